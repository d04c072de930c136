# A planned hand-over that drains: transactions that are fenced go on and commit,
# new transactions fail; the drain ends when the last fenced transaction ends, when its time is over,
# or when the leadership is lost; it can be cancelled and shortened.
use EtcdLeader::Test;
use EtcdLeader::Http;
use EtcdLeader::Session;

watchdog(170);

my $etcd = EtcdLeader::Etcd->new;
my (%nodes, %port, %agent);
for my $name (qw(pg1 pg2))
{
	$port{$name}  = PostgreSQL::Test::Cluster::get_free_port();
	$agent{$name} = PostgreSQL::Test::Cluster::get_free_port();
	$nodes{$name} = EtcdLeader::Instance->create($name, etcd => $etcd,
		settings => { ttl => 4, elections => 'postgres, other', http_listen => "127.0.0.1:$port{$name}", http_agent_listen => "127.0.0.1:$agent{$name}" });
	$nodes{$name}->wait_until_candidate;
}
poll(10, sub { $etcd->candidates('postgres') == 2 }) or die 'not all are in the queue';
my ($old, $new);

# The next leader and the other instance.
sub look
{
	poll(10, sub { ($old) = grep { $_->is_leader } values %nodes }) or die 'nobody leads';
	($new) = grep { $_ != $old } values %nodes;
	poll(10, sub { $etcd->candidates('postgres') == 2 }) or die 'not both are in the queue';
	return;
}

sub in_state { my ($node, $state) = @_; return $node->value(q{SELECT state FROM etcd_leader_status WHERE election = 'postgres'}) eq $state }

for my $node (values %nodes)
{
	$node->dbh->do('CREATE TABLE t (a int)');
	$node->dbh->do($_) for 'CREATE ROLE fenced LOGIN', q{ALTER ROLE fenced SET etcd_leader.require_leadership_of = 'postgres'}, 'GRANT ALL ON t TO fenced',
	  'GRANT EXECUTE ON FUNCTION etcd_resign(text, boolean, interval) TO fenced';
}
sub as_fenced { my ($node) = @_; return $node->connect_db('postgres', user => 'fenced') }

# The NOTICEs of the hand-overs below.
my $notices = '';
$SIG{__WARN__} = sub { $_[0] =~ /^NOTICE:/ ? $notices .= $_[0] : print STDERR $_[0] };

# Runs a hand-over in a session of its own; it drains when this returns.
sub begin_drain
{
	my ($node, $sql) = @_;
	my $session = $node->connect_db;
	$session->{PrintWarn} = 1;
	EtcdLeader::Session::start_statement($session, $sql);
	poll_ok(5, sub { in_state($node, 'draining') }, "$sql: it drains");
	return $session;
}

# ---- who is waited for, and who is refused ----------------------------------------------

look();
my $mark  = $old->last_event;
my $token = $old->token;
my %open  = map { ($_ => $_ eq 'call' || $_ eq 'written' ? $old->connect_db : as_fenced($old)) } qw(call setting written);
$_->begin_work for values %open;
$open{call}->selectrow_array('SELECT etcd_require_leader()');
$open{setting}->do('SELECT 1');
$open{written}->do('INSERT INTO t VALUES (1)');    # fenced by nothing
my $reader = as_fenced($old);
$reader->do('BEGIN READ ONLY');
$reader->do('SELECT 1');
my $other = $old->connect_db;
$other->begin_work;
$other->selectrow_array(q{SELECT etcd_require_leader('other')});
my $log = $old->log_size;
my $resign = begin_drain($old, q{SELECT etcd_resign('postgres', drain => '20 s')});

# for whom: in the order of their processes
my $holders = sub { my ($first, $second) = map { $open{$_}{pg_pid} } @_; return qr/(?:$first, $second|$second, $first)\./ };
poll_ok(5, sub { EtcdLeader::Session::is_done($resign); $notices =~ /HINT/ }, 'the call says at once that it waits');
like($notices, qr/^NOTICE:  the hand-over waits for 2 transactions .*PIDs @{[ $holders->(qw(call setting)) ]}\nHINT:.*pg_stat_activity/s, 'and for whom');
poll_ok(5, sub { $old->log_count('LOG:  hand-over of election "postgres" waits for 2 transactions', $log) }, 'and so does the log');
like(slurp_file($old->logfile, $log), qr/DETAIL:  The transactions are of the processes with PIDs @{[ $holders->(qw(call setting)) ]}/, 'with the PIDs');

is_deeply($old->row(q{SELECT role, is_leader, state, valid_for FROM etcd_leader_status WHERE election = 'postgres'}),
	{ role => 'leader', is_leader => 0, state => 'draining', valid_for => undef }, 'the view');
ok(!$old->is_leader, 'etcd_is_leader() is false');
is($old->token, undef, 'there is no token');
is($old->value('SELECT etcd_current_leader()'), $old->name, 'it is the leader');
ok($old->value(q{SELECT etcd_is_leader('other')}), 'the other election is not drained');
ok(!$new->is_leader, 'nobody else leads');
my ($state, $message) = $old->failure('SELECT etcd_require_leader()');
is($state, '25006', 'etcd_require_leader(): 25006');
like($message, qr/handing over leadership of election "postgres".*accepts no new ones.*next leader/s, 'it says why, and what to do');
is(($old->failure('SELECT etcd_verify_leader(timeout => $$1 s$$)'))[0], '25006', 'etcd_verify_leader() as well');
my $late = as_fenced($old);
($state, $message) = $old->failure('INSERT INTO t VALUES (2)', $late);
is($state, '25006', 'a role that is fenced: 25006');
like($message, qr/is handing over leadership/, 'it says why');
ok($old->value('SELECT true'), 'others read');
is(join(' ', map { http_code($port{ $old->name }, $_) } qw(/leader /primary / /read-write /readiness /replica)), '404 404 404 404 200 503', 'HTTP: 404');
like(http_exchange($agent{ $old->name }, ''), qr/^drain/, 'the agent check: drain');
like((http_get($port{ $old->name }, '/metrics'))[2], qr/^etcd_leader_draining\{[^}]*election="postgres"[^}]*\} 1$/m, 'the metric');

is($open{call}->selectrow_array('SELECT etcd_is_leader()'), 1, 'a fenced transaction leads');
is($open{call}->selectrow_array('SELECT etcd_fencing_token()'), $token, 'under its token');
is($open{call}->selectrow_array('SELECT etcd_require_leader()'), $token, 'and may require it again');
is($open{setting}->selectrow_array('SELECT etcd_require_leader()'), $token, 'and so by its setting');
$open{$_}->do('INSERT INTO t VALUES (3)') for qw(call setting);
pause(1);
ok(!EtcdLeader::Session::is_done($resign), 'it waits');
ok(eval { $open{call}->commit; 1 }, 'a transaction that was fenced by a call commits');
pause(0.2);
ok(!EtcdLeader::Session::is_done($resign), 'it waits for the other one');
poll_ok(10, sub { slurp_file($old->logfile, $log) =~ /waits for 1 transaction\n.*DETAIL:  The transaction is of the process with PID $open{setting}{pg_pid}\./ }, 'the log says so in time');
my $ended = now();
ok(eval { $open{setting}->commit; 1 }, 'one that was fenced by a setting commits');
is(EtcdLeader::Session::outcome($resign), 'done', 'then it hands over');
in_time(now() - $ended, 0.5, 'soon');
poll_ok(5, sub { $new->is_leader }, 'the other instance leads');
ok(eval { $open{written}->commit; 1 }, 'a transaction that is not fenced was not waited for, and commits');
ok(eval { $reader->commit; 1 }, 'one that only reads as well');
ok(eval { $other->commit; 1 }, 'one of the other election as well');
is(join(', ', map { join '/', grep { defined } @$_{qw(event fencing_token reason)} } grep { $_->{election} eq 'postgres' && $_->{event} ne 'leader' } $old->events($mark)),
	"draining/$token, unelected/resigned", 'the events');
is($old->value('SELECT drains FROM etcd_leader_stats'), 1, 'it is counted');
is($old->value('SELECT transactions_refused FROM etcd_leader_stats'), 2, 'and so are the calls that were refused');

# ---- its end ----------------------------------------------------------------------------------

sub fenced_session
{
	my ($node) = @_;
	my $dbh = $node->connect_db;
	$dbh->begin_work;
	$dbh->selectrow_array('SELECT etcd_require_leader()');
	return $dbh;
}

look();
my $began = now();
ok($old->value(q{SELECT etcd_resign('postgres', drain => '20 s')}), 'without open transactions');
in_time(now() - $began, 1, 'it is at once');

look();
my $open = fenced_session($old);
$began = now();
ok($old->connect_db->selectrow_array(q{SELECT etcd_resign('postgres', drain => '1 s')}), 'the time is over');
cmp_ok(now() - $began, '>=', 0.99, 'not before');
in_time(now() - $began, 2, 'in time');
ok(!eval { $open->commit; 1 }, 'the transaction that was left is refused');
is($open->state, '25006', 'as without a drain');

look();
$mark = $old->last_event;
ok($old->value(q{SELECT etcd_resign('postgres', drain => '1 us')}), 'a drain of less than a millisecond');
is((grep { ($_->{election} // '') eq 'postgres' } $old->events($mark))[0]{event}, 'draining', 'drains');

# a drain does not wait longer for a transaction that ends without a commit
for my $how ('ROLLBACK', 'pg_terminate_backend')
{
	look();
	$open   = fenced_session($old);
	$resign = begin_drain($old, q{SELECT etcd_resign('postgres', drain => '20 s')});
	$ended  = now();
	$how eq 'ROLLBACK' ? $open->rollback : $old->value('SELECT pg_terminate_backend(?)', $open->{pg_pid});
	is(EtcdLeader::Session::outcome($resign), 'done', "$how: it hands over");
	in_time(now() - $ended, 1, "$how: at once");
}

# cancelled: the instance leads on
look();
$token = $old->token;
$mark  = $old->last_event;
for my $how ('Ctrl-C', 'pg_terminate_backend', 'etcd_campaign')
{
	$open   = fenced_session($old);
	$resign = begin_drain($old, q{SELECT etcd_resign('postgres', false, drain => '30 s')});
	if ($how eq 'etcd_campaign')
	{
		ok($old->value(q{SELECT etcd_campaign('postgres')}), "$how: true");
		poll_ok(5, sub { EtcdLeader::Session::is_done($resign) }, "$how: the call ends");
	}
	else { $old->value($how eq 'Ctrl-C' ? 'SELECT pg_cancel_backend(?)' : 'SELECT pg_terminate_backend(?)', $resign->{pg_pid}) }
	poll_ok(2, sub { $old->is_leader }, "$how: it leads on");
	is($old->token, $token, "$how: under the same token");
	ok(eval { $open->commit; 1 }, "$how: the fenced transaction commits");
}
is(join(', ', map { join '/', grep { defined } @$_{qw(event fencing_token reason)} } grep { $_->{election} eq 'postgres' } $old->events($mark)),
	join(', ', ("draining/$token", "drain_cancelled/$token") x 3), 'the events');
is($old->value('SELECT elections_won FROM etcd_leader_stats'), $old->value('SELECT sum(won) FROM etcd_leader_status'), 'none of it counts as won');

# a second call takes its place
$open   = fenced_session($old);
$resign = begin_drain($old, q{SELECT etcd_resign('postgres', drain => '30 s')});
my $second = $old->connect_db;
EtcdLeader::Session::start_statement($second, q{SELECT etcd_resign('postgres', drain => '40 s')});
is(EtcdLeader::Session::outcome($resign), 'done', 'the first one ends');
ok(in_state($old, 'draining'), 'the instance drains for the second');
ok($old->connect_db->selectrow_array(q{SELECT etcd_resign('postgres', drain => '0 s')}), 'a third one without a drain: true');
is(EtcdLeader::Session::outcome($second), 'done', 'the second one ends');
poll_ok(5, sub { $new->is_leader }, 'the other instance leads');
eval { $open->rollback };

# the lease is lost meanwhile
look();
$open   = fenced_session($old);
$mark   = $old->last_event;
$resign = begin_drain($old, q{SELECT etcd_resign('postgres', drain => '30 s')});
$etcd->etcdctl('lease', 'revoke', $old->value(q{SELECT lease_id FROM etcd_leader_status WHERE election = 'postgres'}));
poll_ok(5, sub { $new->is_leader }, 'the lease is lost: the other instance leads');
is(EtcdLeader::Session::outcome($resign), 'done', 'the call ends');
ok(!eval { $open->commit; 1 }, 'the fenced transaction is refused');
is($open->state, '25006', 'with 25006');

# two elections at once, and a reload meanwhile: each waits for its own
look();
poll(5, sub { $old->value(q{SELECT etcd_is_leader('other')}) })
  or $new->value(q{SELECT etcd_transfer(?, 'other')}, $old->name);
my %both;
for my $election (qw(postgres other))
{
	my $dbh = $old->connect_db;
	$dbh->begin_work;
	$dbh->selectrow_array('SELECT etcd_require_leader(?)', undef, $election);
	my $caller = $old->connect_db;
	EtcdLeader::Session::start_statement($caller, "SELECT etcd_resign('$election', drain => '30 s')");
	poll_is(5, sub { $old->value('SELECT state FROM etcd_leader_status WHERE election = ?', $election) }, 'draining', "$election drains");
	$both{$election} = [ $dbh, $caller ];
}
$old->configure(ttl => 5);
$old->value(q{SELECT etcd_proclaim('a value', 'other')});
pause(0.5);
ok(!EtcdLeader::Session::is_done($both{$_}[1]), "a reload and a proclaim do not end it: $_") for qw(postgres other);
ok(eval { $both{other}[0]->commit; 1 }, 'a transaction of the one election commits');
is(EtcdLeader::Session::outcome($both{other}[1]), 'done', 'its drain ends');
ok(!EtcdLeader::Session::is_done($both{postgres}[1]), 'the other goes on');
ok(eval { $both{postgres}[0]->commit; 1 }, 'a transaction of the other election commits');
is(EtcdLeader::Session::outcome($both{postgres}[1]), 'done', 'its drain ends, too');
$old->configure(ttl => 4);

# a server that crashes waits for nobody afterwards, and carries out the resignation
look();
$open   = fenced_session($old);
$resign = begin_drain($old, q{SELECT etcd_resign('postgres', false, drain => '30 s')});
kill 'KILL', $open->{pg_pid};
poll_ok(15, sub { $new->is_leader }, 'a fenced backend is killed: the other instance leads');
poll(15, sub { defined $old->try_value('SELECT 1') }) or die 'it does not start again';
poll_is(10, sub { $old->try_value(q{SELECT state FROM etcd_leader_status WHERE election = 'postgres'}) }, 'resigned', 'the wish to stay out outlives the crash');
$old->value(q{SELECT etcd_campaign('postgres')});

# ---- transfers, settings, the caller ------------------------------------------------------------

look();
$open = fenced_session($old);
my $transfer = begin_drain($old, "SELECT etcd_transfer('" . $new->name . "', 'postgres', '2 s', drain => '20 s')");
pause(2.5);
ok(!EtcdLeader::Session::is_done($transfer), 'the timeout of a transfer does not count the drain');
ok(eval { $open->commit; 1 }, 'the fenced transaction commits');
is(EtcdLeader::Session::outcome($transfer), 'done', 'then it hands over');
poll_ok(5, sub { $new->is_leader }, 'the target leads');

look();
$open     = fenced_session($old);
$token    = $old->token;
$transfer = begin_drain($old, "SELECT etcd_transfer('" . $new->name . "', 'postgres', '2 s', drain => '20 s')");
$new->value(q{SELECT etcd_resign('postgres', false)});
$open->commit;
like(EtcdLeader::Session::outcome($transfer), qr/^42704 .*no candidate/, 'the target has gone meanwhile');
ok($old->is_leader, 'it leads on');
is($old->token, $token, 'under the same token');
$new->value(q{SELECT etcd_campaign('postgres')});

look();
$old->configure(drain_timeout => '20s');
poll(5, sub { $old->value('SHOW etcd_leader.drain_timeout') eq '20s' });
$open   = fenced_session($old);
$resign = begin_drain($old, q{SELECT etcd_resign('postgres')});
$open->commit;
is(EtcdLeader::Session::outcome($resign), 'done', 'etcd_leader.drain_timeout holds without the argument');
$old->configure(drain_timeout => undef);

look();
$open = fenced_session($old);
$old->configure(preferred_nodes => $new->name, preferred_delay => '200ms', drain_timeout => '20s');
poll_ok(5, sub { in_state($old, 'draining') }, 'a hand-over to a preferred node drains');
pause(0.5);
ok(!$new->is_leader, 'it waits');
ok(eval { $open->commit; 1 }, 'the fenced transaction commits');
poll_ok(5, sub { $new->is_leader }, 'then the preferred node leads');
$old->configure(preferred_nodes => undef, preferred_delay => undef, drain_timeout => undef);

look();
for my $case ([ 'fenced by a call', $old->connect_db, 'SELECT etcd_require_leader()' ], [ 'that has written', as_fenced($old), 'INSERT INTO t VALUES (4)' ])
{
	my ($what, $dbh, $sql) = @$case;
	$dbh->begin_work;
	$dbh->do($sql);
	is(($old->failure(q{SELECT etcd_resign('postgres', drain => '1 s')}, $dbh))[0], '25001', "in a transaction $what: 25001");
}
is(($old->failure("SELECT etcd_resign('postgres', drain => '$_')"))[0], '22023', "a negative time, $_: 22023") for '-1 s', '-1 us', '-300000 years';
ok($old->is_leader, 'and the instance leads on');
my $caller = as_fenced($old);
$began = now();
ok($caller->selectrow_array(q{SELECT etcd_resign('postgres', drain => '10 s')}), 'a caller whose role is fenced');
in_time(now() - $began, 2, 'is not waited for');

# transactions that have written, and became READ ONLY; and procedures that roll back
{
	look();
	my $read_only = as_fenced($old);
	$read_only->do($_) for 'BEGIN', 'INSERT INTO t VALUES (5)', 'SET TRANSACTION READ ONLY', 'SELECT 1';
	my $procedure = as_fenced($old);
	EtcdLeader::Session::start_statement($procedure,
		'DO $$ BEGIN INSERT INTO t VALUES (6); PERFORM pg_sleep(1); ROLLBACK; INSERT INTO t VALUES (7); COMMIT; END $$');
	my $waiter = fenced_session($old);
	pause(0.2);
	$resign = begin_drain($old, q{SELECT etcd_resign('postgres', drain => '20 s')});
	is($waiter->selectrow_array(q{SELECT etcd_wait_for_leadership(timeout => '1 s')}), 1, 'etcd_wait_for_leadership() in a fenced transaction');
	$waiter->commit;
	is(EtcdLeader::Session::outcome($procedure), 'done', 'ROLLBACK in a procedure');
	ok(!EtcdLeader::Session::is_done($resign), 'a transaction that wrote and is READ ONLY is waited for');
	ok(eval { $read_only->do('COMMIT'); 1 }, 'and commits');
	is(EtcdLeader::Session::outcome($resign), 'done', 'then it hands over');
}

# a statement that goes on in other transactions
look();
my $vacuum = as_fenced($old);
$old->dbh->do($_) for 'ALTER TABLE t OWNER TO fenced', 'CREATE TABLE t2 AS SELECT 1 AS a', 'ALTER TABLE t2 OWNER TO fenced';
my $blocker = $old->connect_db;
$blocker->begin_work;
$blocker->do('LOCK TABLE t IN SHARE MODE');
# each table is rewritten in a transaction of its own; the drain begins in the first
EtcdLeader::Session::start_statement($vacuum, 'VACUUM FULL t, t2');
EtcdLeader::Session::waits_in($old, $vacuum, qr/^Lock/);
$resign = begin_drain($old, q{SELECT etcd_resign('postgres', drain => '20 s')});
pause(0.5);
ok(!EtcdLeader::Session::is_done($resign), 'VACUUM is waited for');
$blocker->commit;
is(EtcdLeader::Session::outcome($vacuum), 'done', 'it goes on over its transactions, and writes');
is(EtcdLeader::Session::outcome($resign), 'done', 'then it hands over');

# ---- smart shutdown --------------------------------------------------------------------------------

look();
$open = fenced_session($old);
my $admin = $old->connect_db;
my ($pid) = slurp_file($old->data_dir . '/postmaster.pid') =~ /^(\d+)/;
kill 'TERM', $pid;
poll_ok(1, sub { http_code($port{ $old->name }, '/primary') == 404 && http_code($port{ $old->name }, '/readiness') == 503 }, 'smart shutdown: HTTP says so');
like(http_exchange($agent{ $old->name }, ''), qr/^drain/, 'smart shutdown: the agent check: drain');
poll_ok(3, sub { $admin->selectrow_array(q{SELECT state = 'draining' FROM etcd_leader_status WHERE election = 'postgres'}) }, 'smart shutdown: it drains');
ok($admin->selectrow_array(q{SELECT etcd_campaign('postgres')}), 'smart shutdown: somebody cancels the drain');
pause(1.5);
ok(!$new->is_leader, 'smart shutdown: it waits for the transaction');
ok(eval { $open->commit; 1 }, 'smart shutdown: which commits');
poll_ok(4, sub { $new->is_leader }, 'smart shutdown: another instance leads though a session stays');
ok($open->selectrow_array('SELECT NOT etcd_is_leader()'), 'smart shutdown: the session is there');
# its read may still show that the key is gone
poll_is(1, sub { $open->selectrow_array(q{SELECT state FROM etcd_leader_status WHERE election = 'postgres'}) }, 'resigned', 'smart shutdown: the instance does not come back');
$_->disconnect for grep { $_ } $open, $admin, values %open, $resign, $transfer, $reader, $other, $late, $caller, $vacuum, $blocker;
done_testing();
