# The procedures that wait hold no snapshot: on a standby they outlast a minute
# of VACUUMs on the primary, and on a primary they keep no dead row.  The
# functions do both.  Where a procedure could not let go of its snapshot, it is
# an error.
use EtcdLeader::Test;
use DBD::Pg ();
use EtcdLeader::Session;
use EtcdLeader::Wire;
use IO::Socket::UNIX;
use IPC::Run;

my $etcd    = EtcdLeader::Etcd->new;
my $primary = EtcdLeader::Instance->create('primary', etcd => $etcd, init => { allows_streaming => 1 },
	conf => "autovacuum = off\n");
$primary->value('CREATE TABLE busy AS SELECT generate_series(1, 1000) AS i');
$primary->value('CREATE TABLE dead (i int)');
$primary->value('CREATE PROCEDURE waits(INOUT seen boolean) LANGUAGE plpgsql AS $$ BEGIN CALL etcd_await_leadership(leads => seen); END $$');
$primary->value('CREATE FUNCTION calls() RETURNS boolean LANGUAGE plpgsql AS $$ DECLARE l boolean; BEGIN CALL etcd_await_leadership(leads => l); RETURN l; END $$');
$primary->wait_until_leader;
my $standby = EtcdLeader::Instance->create_standby('standby', $primary);
$standby->append_conf('postgresql.conf', "max_standby_streaming_delay = 1s\nhot_standby_feedback = off\n");
$standby->reload;
$primary->wait_for_catchup($standby);
poll_is(10, sub { $standby->current_leader }, 'primary', 'the standby names the leader');

# A session that waits: by a statement of the simple protocol, or with
# parameters by a prepared one of the extended protocol.
sub start_waiting
{
	my ($node, $sql, @values) = @_;
	my $dbh = $node->connect_db;
	if (@values)
	{
		my $statement = $dbh->prepare($sql, { pg_async => DBD::Pg::PG_ASYNC(), pg_server_prepare => 1 });
		$statement->execute(@values);
		$dbh->{private_statement} = $statement;
	}
	else { start_statement($dbh, $sql) }
	$dbh->{private_pid} = $dbh->{pg_pid};
	waits_in($node, $dbh, qr/^Extension/);
	return $dbh;
}

# The "xmin xid" that the session holds; - for none.
sub held
{
	my ($node, $pid) = @_;
	return $node->value(q{SELECT coalesce(backend_xmin::text, '-') || ' ' || coalesce(backend_xid::text, '-')
		FROM pg_stat_activity WHERE pid = ? AND wait_event_type = 'Extension'}, $pid);
}

# The first column of what a waiting session returns.
sub returned
{
	my ($dbh) = @_;
	poll(10, sub { $dbh->pg_ready }) or return 'still waiting';
	$dbh->pg_result;
	return ($dbh->{private_statement}->fetchrow_array)[0];
}

# ---- on the standby, for a minute --------------------------------------------
my %waiting = (
	'etcd_await_leadership'           => start_waiting($standby, 'CALL etcd_await_leadership()'),
	'etcd_await_leadership, prepared' => start_waiting($standby, 'CALL etcd_await_leadership(?::text, ?::interval)', 'postgres', '1 hour'),
	'etcd_await_event'                => start_waiting($standby, 'CALL etcd_await_event(NULL)'),
	'etcd_await_event, prepared'      => start_waiting($standby, 'CALL etcd_await_event(?::bigint, ?::interval)', $standby->last_event, '1 hour'),
	'etcd_await_leadership in DO'     => start_waiting($standby, 'DO $$ DECLARE l boolean; BEGIN CALL etcd_await_leadership(leads => l); END $$'),
	'etcd_await_leadership in a procedure' => start_waiting($standby, 'CALL waits(NULL)'));
my %function = map { $_ => start_waiting($standby, "SELECT $_") } 'etcd_wait_for_leadership()', 'count(*) FROM etcd_wait_for_event()';
like(held($standby, $function{$_}{private_pid}), qr/^\d+ -$/, "standby: $_ holds a snapshot") for sort keys %function;
my $began   = now();
my $traffic = EtcdLeader::Util::Process->spawn(
	log  => "$PostgreSQL::Test::Utils::log_path/038_await_traffic.log",
	code => sub {
		my $dbh = $primary->connect_db;
		while (1)
		{
			$dbh->do('UPDATE busy SET i = i + 1');
			$dbh->do('VACUUM busy');
			pause(0.2);
		}
	});
for my $what (sort keys %waiting)
{
	is(held($standby, $waiting{$what}{private_pid}), '- -', "standby: $what holds no snapshot");
}
like(outcome($function{$_}, 20), qr/^40001 .*conflict with recovery/, "standby: $_ is cancelled") for sort keys %function;

# ---- on the primary ----------------------------------------------------------
my $dbh  = $primary->connect_db;
my $call = 'CALL etcd_await_leadership()';

is(scalar $primary->value($call), 1, 'who leads need not wait');
is($primary->value('CALL etcd_await_leadership(?, NULL, false)', 'postgres'), 1, 'what is passed for leads means nothing');
is($primary->value('SELECT etcd_resign(rejoin => false)'), 1, 'it does not lead any more');
for my $timeout ([ '0', 0 ], [ '300 ms', 0.3 ], [ '-1 day', 0 ])
{
	my ($interval, $seconds) = @$timeout;
	my $start = now();
	is($primary->value('CALL etcd_await_leadership(timeout => ?)', $interval), 0, "false after $interval");
	my $took = now() - $start;
	cmp_ok($took, '>=', $seconds, "not before $interval");
	in_time($took - $seconds, 1, "and not long after $interval");
}

# Do dead rows stay, because a waiting session keeps VACUUM from removing them?
sub dead_pages
{
	$primary->value('INSERT INTO dead SELECT generate_series(1, 1000)');
	$primary->value('DELETE FROM dead');
	$primary->value('VACUUM dead');
	return $primary->value(q{SELECT pg_relation_size('dead') > 0});
}
my $psql_out = '';
my $psql     = IPC::Run::start([ 'psql', '-XAtq', '-d', $primary->connstr('postgres') ], '<', \"SELECT pg_backend_pid();\n$call;\nSELECT 'next';\n",
	'>', \$psql_out, IPC::Run::timeout(120));
$psql->pump until $psql_out =~ /^(\d+)\n/;
my $psql_pid = $1;
my %here = (
	'simple protocol'   => start_waiting($primary, $call),
	'extended protocol' => start_waiting($primary, 'CALL etcd_await_leadership(timeout => ?::interval)', '1 hour'),
	'in DO'             => start_waiting($primary, q{DO $$ DECLARE l boolean; BEGIN INSERT INTO busy VALUES (0); COMMIT; CALL etcd_await_leadership(leads => l);
		IF NOT l OR NOT etcd_is_leader() OR NOT EXISTS (SELECT FROM busy) THEN RAISE 'no'; END IF; END $$}),
	'in a procedure'    => start_waiting($primary, 'CALL waits(NULL)'));
poll_is(10, sub { held($primary, $psql_pid) }, '- -', 'psql holds no snapshot');
is(held($primary, $here{$_}{private_pid}), '- -', "$_: no snapshot is held") for sort keys %here;
is(dead_pages(), 0, 'VACUUM removes all dead rows meanwhile');
{
	my $waiter = start_waiting($primary, 'SELECT etcd_wait_for_leadership()');
	is(dead_pages(), 1, 'with the function it cannot');
	$primary->value('SELECT pg_cancel_backend(?)', $waiter->{private_pid});
	like(outcome($waiter), qr/^57014 /, 'the function is cancelled');
}

# Interrupts are served.
{
	my $cancelled = start_waiting($primary, $call);
	$primary->value('SELECT pg_cancel_backend(?)', $cancelled->{private_pid});
	like(outcome($cancelled), qr/^57014 /, 'it can be cancelled');
	usable($cancelled, 'cancelled');
	$cancelled->do('SET statement_timeout = 200');
	fails($cancelled, $call, '57014', qr/statement timeout/, 'statement_timeout');
	fails($cancelled, 'CALL etcd_await_event(NULL)', '57014', qr/statement timeout/, 'statement_timeout, event');
	$cancelled->do('RESET statement_timeout');
	usable($cancelled, 'statement_timeout');
	my $terminated = start_waiting($primary, $call);
	$primary->value('SELECT pg_terminate_backend(?)', $terminated->{private_pid});
	ok(wait_for_exit($terminated->{private_pid}, 10), 'it can be terminated');
}

# Where it cannot let go of its snapshot.
my @blocks = (
	[ 'a transaction block', sub { $dbh->do('BEGIN'); $dbh->do($call) }, qr/CALL etcd_await_leadership cannot run inside a transaction block/ ],
	[ 'a transaction block, event', sub { $dbh->do('BEGIN'); $dbh->do('CALL etcd_await_event(NULL)') }, qr/CALL etcd_await_event cannot run inside/ ],
	[ 'several statements at once', "SELECT 1; $call", qr/inside a transaction block/ ],
	[ 'a function', 'SELECT calls()', qr/function/ ],
	[ 'an exception block', 'DO $$ DECLARE l boolean; BEGIN BEGIN CALL etcd_await_leadership(leads => l); EXCEPTION WHEN division_by_zero THEN NULL; END; END $$',
		qr/subtransaction|atomic|function/ ],
	[ 'a transaction that has written', 'DO $$ DECLARE l boolean; BEGIN INSERT INTO dead VALUES (2); CALL etcd_await_leadership(leads => l); END $$', qr/has written\n.*HINT:  COMMIT/s ],
	[ 'a loop over a query', 'DO $$ DECLARE l boolean; r record; BEGIN FOR r IN SELECT * FROM busy LOOP CALL etcd_await_leadership(leads => l); END LOOP; END $$',
		qr/keeps a snapshot\n.*HINT:  COMMIT/s ],
	[ 'repeatable read', sub { $dbh->do(q{SET default_transaction_isolation = 'repeatable read'}); $dbh->do($call) }, qr/keeps a snapshot/ ]);
for my $block (@blocks)
{
	my ($what, $do, $pattern) = @$block;
	fails($dbh, $do, '25001', $pattern, $what);
	$dbh->do('ROLLBACK');
	$dbh->do('RESET default_transaction_isolation');
	usable($dbh, $what);
}

# In a pipeline, which is one transaction: a client of its own, as the driver
# has none.  The server's answers to these statements, sent at once.
sub pipeline
{
	my @statements = @_;
	my $client = EtcdLeader::Wire->new($primary);
	for my $statement (@statements)
	{
		$client->parse($statement);
		$client->bind;
		$client->send('E', "\0\0\0\0\0");
	}
	$client->send('S', '');
	return $client->answer;
}
my $short = q{CALL etcd_await_leadership(timeout => '100 ms')};
is(pipeline('SELECT 1', $short), '1 25001', 'a pipeline: not after another statement');
is(pipeline($short, 'SELECT 1'), 'f 1', 'a pipeline: before another one');

# Events.
{
	my $mark = $primary->last_event;
	is($primary->value('CALL etcd_await_event(?)', $mark - 1), $mark, 'an event that is there: its number, at once');
	is($primary->value('CALL etcd_await_event(?)', $mark + 1_000_000), $mark, 'a number of another server: any event will do');
	is($primary->value(q{CALL etcd_await_event(NULL, '100 ms')}), $mark, 'at the timeout: the newest number');
	my $next = start_waiting($primary, 'CALL etcd_await_event(?::bigint)', $mark);
	my $new  = start_waiting($primary, 'CALL etcd_await_event(NULL, ?::interval)', '1 hour');
	is($primary->value('SELECT etcd_campaign()'), 1, 'it campaigns');
	$primary->wait_until_leader;
	my @seqs   = map { returned($_) } $next, $new;
	my @events = $primary->events($mark);
	for my $seq (@seqs)
	{
		ok((grep { $_->{seq} == $seq } @events), 'woken by an event: it returns its number') or diag($seq);
	}
}
is(outcome($here{$_}), 'done', "$_: it returns when this instance leads") for grep { !$here{$_}{private_statement} } sort keys %here;
is(returned($here{'extended protocol'}), 1, 'extended protocol: it returns true');
$psql->finish;
is($psql_out, "$psql_pid\nt\nnext\n", 'psql prints true, and goes on');

# ---- a minute later -----------------------------------------------------------
pause(60 - (now() - $began)) if now() - $began < 60;
ok($traffic->alive, 'there was traffic all the time');
for my $what (sort grep { !/event/ } keys %waiting)
{
	ok(!is_done($waiting{$what}), "standby: $what waits after a minute");
	is(held($standby, $waiting{$what}{private_pid}), '- -', "standby: $what holds no snapshot then");
}
cmp_ok($standby->value('SELECT confl_snapshot FROM pg_stat_database_conflicts WHERE datname = current_database()'), '>=', 2,
	'standby: there were conflicts');
my $caught_up = $primary->value('SELECT pg_current_wal_lsn()');
poll_ok(5, sub { $standby->value('SELECT pg_last_wal_replay_lsn() >= ?::pg_lsn', $caught_up) }, 'standby: recovery is not held up');
$traffic->stop;

# The events that came meanwhile have woken those who wait for one.
is(outcome($waiting{etcd_await_event}), 'done', 'standby: etcd_await_event has returned');
cmp_ok(returned($waiting{'etcd_await_event, prepared'}), '<=', $standby->last_event, 'standby: etcd_await_event, prepared, has returned');

# The end of the server ends them.
{
	my $pid = $waiting{'etcd_await_leadership'}{private_pid};
	$standby->kill9;
	ok(wait_for_exit($pid, 10), 'the postmaster is killed: who waits ends');
}
done_testing();
