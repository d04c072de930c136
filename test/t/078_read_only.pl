# etcd_leader.read_only_unless_leader_of: sessions are read-only by default where the
# instance does not lead, so that drivers with a list of hosts find the leader.  What
# follows the leadership, and when; what does not; and psql and psycopg2 with a list
# in which an isolated old leader comes first.
use EtcdLeader::Test;
use EtcdLeader::Documents;
use EtcdLeader::Relay;
use EtcdLeader::Session;

my $default = 'default_transaction_read_only';
my $insert  = 'INSERT INTO t VALUES (1)';
my $etcd    = EtcdLeader::Etcd->new;
my $relay   = EtcdLeader::Relay->new($etcd->url(0));
my @nodes   = map {
	my $node = EtcdLeader::Instance->create($_,
		endpoints => $_ eq 'pg1' ? $relay->url : $etcd->endpoints,
		settings  => { ttl => 2, second_primary => 'wait' },
		init      => { allows_streaming => 1 },
		# as documented, for the election of this test
		conf      => "max_prepared_transactions = 2\n" . document_block('doc/clients.md', 'read_only') =~ s/shop/postgres/r);
	$node->value($_)
	  for 'CREATE ROLE app LOGIN', 'CREATE ROLE reader LOGIN', "ALTER ROLE reader SET $default = on",
	  'CREATE ROLE writer LOGIN', "ALTER ROLE writer SET $default = off", 'CREATE ROLE walsender LOGIN REPLICATION',
	  'GRANT CREATE ON DATABASE postgres TO app', 'CREATE SCHEMA app AUTHORIZATION app', 'ALTER ROLE app SET search_path = app, public',
	  'SET ROLE app', 'CREATE TABLE app.t (i int)', 'RESET ROLE', 'GRANT ALL ON SCHEMA app TO PUBLIC', 'GRANT ALL ON app.t TO PUBLIC',
	  'CREATE PROCEDURE app.hop() LANGUAGE plpgsql AS $$ BEGIN PERFORM 1; COMMIT; INSERT INTO app.t VALUES (1); COMMIT; END $$';
	$node->wait_until_candidate;
	$node;
} qw(pg1 pg2);
my ($pg1, $pg2) = @nodes;
$pg1->wait_until_leader;

# A new session; options as of the start-up packet.
sub session
{
	my ($node, $user, $options) = @_;
	local $ENV{PGOPTIONS} = $options // '';
	return $node->connect_db('postgres', user => $user // 'app');
}

sub show { my ($dbh) = @_; return $dbh->selectrow_array("SHOW $default") }

# Executes a statement: 'done', or its SQLSTATE.
sub try_to { my ($dbh, $sql) = @_; return eval { $dbh->do($sql); 1 } ? 'done' : $dbh->state }

# Hands over, and waits until both know.
sub hand_over
{
	my ($from, $to) = @_;
	poll(10, sub { $etcd->candidates('postgres') == 2 }) or die 'not both are in the queue';
	$from->value('SELECT etcd_resign()');
	$to->wait_until_leader;
	return;
}

# ---- new sessions ------------------------------------------------------------------

is(show(session($pg1)), 'off', 'the leader: a new session writes');
is(try_to(session($pg1), $insert), 'done', 'the leader: in its first transaction');
my $follower = session($pg2);
is_deeply($follower->selectrow_arrayref("SELECT setting, source, reset_val FROM pg_settings WHERE name = '$default'"), [ 'on', 'client', 'on' ],
	'elsewhere: a new session is read-only by default');
fails($follower, $insert, '25006', qr/read-only transaction/, 'elsewhere: a write');
is(try_to($follower, "BEGIN READ WRITE; $insert; COMMIT"), 'done', 'elsewhere: a transaction that says READ WRITE writes');
is(show(session($pg2, 'writer')), 'on', 'elsewhere: the setting of a role does not count');
is(show(session($pg1, 'reader')), 'on', 'the leader: a role whose sessions are read-only stays so');
is(show($pg2->connect_db), 'off', 'elsewhere: a superuser is not affected');
is(show(session($pg2, 'app', "-c $default=off")), 'off', 'elsewhere: an option of the connection counts');
is(show(session($pg1, 'app', "-c $default=on")), 'on', 'the leader: an option of the connection counts');
is(run_psql("host=@{[ $pg2->host ]} port=@{[ $pg2->port ]} user=walsender dbname=postgres replication=database", "SHOW $default"), 'off',
	'elsewhere: a walsender is not affected');

# Runs psql with that connection string; returns its output.
sub run_psql
{
	my ($connection, $sql) = @_;
	my ($out, $err) = PostgreSQL::Test::Utils::run_command([ 'psql', '-XAtq', '-c', $sql, $connection ]);
	return $out . ($err =~ /(ERROR|FATAL|error): (.*)/ ? "$1: $2" : '');
}

# ---- sessions that are open at an election -------------------------------------------

my %open = map { $_ => session($pg2) } qw(first read error rollback prepare set set_local default_set savepoint discard hop chain);
my $wrote  = session($pg1);
my $reader = session($pg1, 'reader');
my $writer = session($pg2, 'writer');
my $option = session($pg2, 'app', "-c $default=on");
my $chosen = session($pg1, 'app', "-c $default=off");
$open{set}->do("SET $default = on");
$open{default_set}->do('SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY');
$open{set_local}->do("BEGIN; SET LOCAL $default = on");
$open{savepoint}->do("BEGIN; SAVEPOINT a; SET $default = on");
$open{chain}->do('BEGIN');
hand_over($pg1, $pg2);

is(try_to($open{first}, $insert), '25006', 'elected: the first transaction of an idle session is refused');
is(try_to($open{first}, $insert), 'done', 'elected: the second one writes');
$open{read}->do('SELECT 1');
is(try_to($open{read}, $insert), 'done', 'elected: after one that reads');
try_to($open{error}, 'SELECT 1/0');
is(try_to($open{error}, $insert), 'done', 'elected: after one that fails');
$open{rollback}->do('BEGIN; ROLLBACK');
is(try_to($open{rollback}, $insert), 'done', 'elected: after one that is rolled back');
$open{prepare}->do("BEGIN READ WRITE; $insert; PREPARE TRANSACTION 'x'");
is(try_to($open{prepare}, $insert), 'done', 'elected: after one that is prepared');
$pg2->value("COMMIT PREPARED 'x'");
$open{set_local}->do('COMMIT');
is(try_to($open{set_local}, $insert), 'done', 'elected: after one with SET LOCAL');
$open{savepoint}->do('ROLLBACK TO a; COMMIT');
is(try_to($open{savepoint}, $insert), 'done', 'elected: after one that has rolled its SET back');
is(try_to($open{hop}, 'CALL hop()'), 'done', 'elected: in a procedure, after its first COMMIT');
$open{chain}->do('COMMIT AND CHAIN');
is(try_to($open{chain}, $insert), '25006', 'elected: COMMIT AND CHAIN keeps what the transaction has been');
$open{chain}->do('ROLLBACK');
is(try_to($open{chain}, $insert), 'done', 'elected: and what comes after writes');
$open{discard}->do('DISCARD ALL');
is(try_to($open{discard}, $insert), 'done', 'elected: after DISCARD ALL');
$writer->do('SELECT 1');
is(show($writer), 'off', 'elected: the session of a role whose sessions write');
$option->do('SELECT 1');
is(show($option), 'on', 'elected: what the connection asked for stays');
$open{$_}->do('SELECT 1') for qw(set default_set);
is(show($open{$_}), 'on', "elected: a SET of the session stays ($_)") for qw(set default_set);
for my $set ("SET $default='on'", "SET $default = on;")
{
	my $chooser = session($pg2);
	$chooser->do($set);
	is(try_to($chooser, $insert), '25006', "elected: $set: a session is read-only on purpose");
	$chooser->do("SET $default='off';");
	is(show($chooser), 'off', "elected: $set: a replay by PgBouncer for the next client ends that");
}
{
	my $pooled = session($pg2);
	$pooled->do("SET $default='on';");
	is(show($pooled), 'off', 'elected: a replay by PgBouncer has no effect');
	is(try_to($pooled, $insert), 'done', 'elected: a write after a replay');
	my $own = session($pg2, 'app', "-c $default=off");
	$own->do("SET $default='on';");
	is(show($own), 'on', 'elected: but in a session that does not follow');
}
$open{set}->do("RESET $default");
is(show($open{set}), 'off', 'elected: RESET returns to what holds now');
$open{default_set}->do('RESET ALL');
is(show($open{default_set}), 'off', 'elected: and so does RESET ALL');

is(try_to($wrote, $insert), '25006', 'not elected any more: the first transaction of an idle session is refused');
is(show($wrote), 'on', 'not elected any more: then its default has followed');
# as PgBouncer replays the value that its client got before the hand-over
$wrote->do("SET TimeZone='UTC';SET $default='off';SET IntervalStyle='iso_8601';");
is(show($wrote), 'on', 'not elected any more: a replay by PgBouncer has no effect');
is($wrote->selectrow_array('SHOW IntervalStyle'), 'iso_8601', 'not elected any more: other parameters in the same message have');
is(try_to($wrote, $insert), '25006', 'not elected any more: a write after a replay is refused');
for my $set ("SET $default='off'", "SET $default = off;", 'SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE')
{
	$wrote->do($set);
	is(show($wrote), 'off', "not elected any more: $set is shown");
	is(try_to($wrote, $insert), '25006', "not elected any more: $set: a write is refused");
	is(try_to($wrote, $insert), '25006', "not elected any more: $set: and the next one");
	is(try_to($wrote, 'CALL hop()'), '25006', "not elected any more: $set: a procedure is refused");
	is(try_to($wrote, "BEGIN READ WRITE; $insert; COMMIT"), 'done', "not elected any more: $set: a transaction that says READ WRITE writes");
	is(try_to($wrote, "BEGIN; SET TRANSACTION READ WRITE; $insert; COMMIT"), 'done', "not elected any more: $set: also by SET TRANSACTION");
	is(try_to($wrote, 'CREATE TABLE u ()'), '25006', "not elected any more: $set: DDL is refused");
	is($wrote->selectrow_array('SELECT count(*) > 0 FROM t'), 1, "not elected any more: $set: a query is not");
	is(try_to($wrote, "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT 1; $insert; COMMIT"), '25006', "not elected any more: $set: SERIALIZABLE");
	$wrote->do('ROLLBACK');
}
my $statement = $wrote->prepare('INSERT INTO t VALUES ($1)', { pg_server_prepare => 1, pg_prepare_now => 1 });
is(eval { $statement->execute(1); 'done' } // $wrote->state, '25006', 'not elected any more: a prepared statement is refused');
$wrote->do('DISCARD ALL');
is(show($wrote), 'on', 'not elected any more: DISCARD ALL returns to what holds now');
is(try_to($wrote, 'CALL hop()'), '25006', 'not elected any more: a procedure is refused');
$chosen->do('SELECT 1');
is(show($chosen), 'off', 'not elected any more: what the connection asked for stays');
$reader->do('SELECT 1');

# A statement that commits during its work goes on.
my $idle = session($pg2);
$idle->do('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t');
my $index = session($pg2);
start_statement($index, 'CREATE INDEX CONCURRENTLY ON t (i)');
waits_in($pg2, $index, 'Lock/virtualxid');
# the way back: what waits for leadership does so in a transaction of its own
my $waiter = session($pg1);
start_statement($waiter, 'CALL etcd_await_leadership(NULL)');
hand_over($pg2, $pg1);
$idle->do('COMMIT');
is(outcome($index), 'done', 'a statement that commits during its work is not refused in between');
is(outcome($waiter), 'done', 'a session waits for the leadership');
is(try_to($waiter, $insert), 'done', 'and writes in its next transaction');
$reader->do('SELECT 1');
is(show($reader), 'on', 'elected again: a role whose sessions are read-only stays so');

# A drain takes no new work.
$pg1->configure(elections => 'postgres');
my $fenced = session($pg1);
my $second = session($pg1);
$fenced->do('BEGIN; SELECT etcd_require_leader()');
my $drain = $pg1->connect_db;
poll(10, sub { $etcd->candidates('postgres') == 2 }) or die 'not both are in the queue';
start_statement($drain, q{SELECT etcd_resign(drain => '20 s')});
poll(10, sub { $pg1->status->{state} eq 'draining' }) or die 'it does not drain';
is(show(session($pg1)), 'on', 'draining: a new session is read-only by default');
is(try_to($fenced, $insert), 'done', 'draining: a transaction that is open goes on');
$second->do('SELECT 1');
is(show($second), 'on', 'draining: a session that has ended a transaction is read-only by default');
$pg1->value('SELECT etcd_campaign()');
outcome($drain);
$fenced->do('COMMIT');
$second->do('SELECT 1');
is(show($second), 'off', 'a drain that is cancelled: it writes again');

# ---- the settings ------------------------------------------------------------------------

# a reload, of which $dbh hears when it has ended a transaction
sub reloaded
{
	my ($node, $dbh, $setting, $value) = @_;
	return poll(5, sub { $dbh->selectrow_array("SHOW $setting") eq $value }) && do { $dbh->do('SELECT 1'); show($dbh) };
}
my $old = session($pg2);
$pg2->configure(read_only_unless_leader_of => '');
is(reloaded($pg2, $old, 'etcd_leader.read_only_unless_leader_of', ''), 'off', 'switched off: an open session, too');
is(show(session($pg2)), 'off', 'switched off: a new session');
my $untouched = session($pg2);
{
	my $led = session($pg1);
	$led->do('SELECT 1');
	$pg1->value("ALTER SYSTEM SET $default = on");
	$pg1->value('SELECT pg_reload_conf()');
	poll_is(5, sub { show($led) }, 'on', "the leader: a reload of $default reaches sessions whose value has not changed");
	$pg1->dbh->do("SET $default = off");
	$pg1->value("ALTER SYSTEM RESET $default");
	$pg1->value('SELECT pg_reload_conf()');
	poll_is(5, sub { show($led) }, 'off', "the leader: and the next one, too");
}
$pg2->configure(read_only_unless_leader_of => 'shpo');
is(reloaded($pg2, $untouched, 'etcd_leader.read_only_unless_leader_of', 'shpo'), 'on', 'an election that does not exist: an open session is read-only by default');
is(show(session($pg2)), 'on', 'an election that does not exist: a new session, too');
poll_ok(10, sub { $pg2->log_count(qr/WARNING:  "etcd_leader\.read_only_unless_leader_of" names election "shpo", which does not exist, .*\n.*HINT:  .*etcd_leader\.elections/) },
	'an election that does not exist: the log says so');
$pg2->configure(read_only_unless_leader_of => undef);
is(reloaded($pg2, $untouched, 'etcd_leader.read_only_unless_leader_of', 'postgres'), 'on', 'it does not lead');

# ---- dumps --------------------------------------------------------------------------------

my $dump = PostgreSQL::Test::Utils::tempdir('dump') . '/t.dump';
my @at = map { [ '-h', $_->host, '-p', $_->port, '-U', 'app', '-d', 'postgres' ] } @nodes;
$untouched->disconnect;
command_ok([ 'pg_dump', @{ $at[1] }, '-Fc', '-n', 'app', '-t', 'app.t', '-f', $dump ], 'elsewhere: pg_dump of a user');
command_fails([ 'pg_restore', @{ $at[1] }, '-e', '-c', '--if-exists', $dump ], 'elsewhere: pg_restore of a user is refused');
{
	local $ENV{PGOPTIONS} = "-c $default=off";
	command_ok([ 'pg_restore', @{ $at[1] }, '-e', '-c', '--if-exists', $dump ], 'elsewhere: but not with the option');
}
command_ok([ 'pg_restore', @{ $at[0] }, '-e', '-c', '--if-exists', $dump ], 'the leader: pg_restore of a user');

# ---- a standby -----------------------------------------------------------------------------

my $standby = EtcdLeader::Instance->create_standby('pg3', $pg2, settings => { endpoints => $etcd->endpoints, second_primary => 'wait' });
push @nodes, $standby;
my ($early, $between) = map { session($standby) } 1 .. 2;
is(show($early), 'off', 'in recovery: PostgreSQL itself says that it is read-only');
is(try_to($early, $insert), '25006', 'in recovery: a write is refused');
$standby->promote;
$between->do('SELECT 1');
is(show($between), 'on', 'promoted, not elected: it is read-only by default');
is(show(session($standby)), 'on', 'promoted, not elected: a new session, too');
$standby->wait_until_candidate;
$pg1->value(q{SELECT etcd_transfer('pg3')});
$standby->wait_until_leader;
is(try_to($early, $insert), 'done', 'promoted and elected: a session that began in recovery writes in its first transaction');
$between->do('SELECT 1');
is(try_to($between, $insert), 'done', 'promoted and elected: one that was told otherwise in its second');

# ---- drivers with a list ---------------------------------------------------------------------

# The connection strings of the documents, with the hosts of this test.
sub list
{
	my ($name, @order) = @_;
	my $string = document_block('doc/clients.md', $name);
	my %order = (host => [ map { $_->host } @order ], port => [ map { $_->port } @order ]);
	$string =~ s/host=\S+/'host=' . join(',', @{ $order{host} }) . ' port=' . join(',', @{ $order{port} })/e or die 'no hosts';
	$string =~ s/dbname=\S+ user=\S+/dbname=postgres user=app/ or die 'no database';
	$string =~ s/^psql "(.*)"\n$/$1/ or die 'no psql';
	return $string;
}
my $python = EtcdLeader::Util::Process->spawn(
	name => 'psycopg2',
	log  => "$PostgreSQL::Test::Utils::log_path/078_psycopg2.log",
	cmd  => [ 'python3', '-uc', <<'PYTHON', list('route_libpq', @nodes) ]);
import psycopg2, select, sys, time
told = None                          # what a session that is kept was told
kept = psycopg2.connect(sys.argv[1])
kept.autocommit = True
while True:
    try:
        connection = psycopg2.connect(sys.argv[1])
        with connection, connection.cursor() as cursor:
            cursor.execute("INSERT INTO t VALUES (2); SHOW cluster_name")
            print("wrote on", cursor.fetchone()[0])
        connection.close()
    except psycopg2.Error as error:
        print("error", error)
    kept.cursor().execute("SELECT 1")
    now = kept.get_parameter_status("default_transaction_read_only")
    if now != told:
        print("told", now)
    told = now
    time.sleep(0.02)
PYTHON

# Both find that leader, wherever it is in the list.
sub found
{
	my ($leader, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $offset = length $python->output;
	my $write  = "INSERT INTO t VALUES (3); SHOW cluster_name";
	is(join(' ', map { run_psql(list('route_libpq', @nodes[ map { $_ % 3 } $_ .. $_ + 2 ]), $write) } 0 .. 2), join(' ', ($leader->name) x 3), "$name: psql finds the leader");
	my @wrote;
	poll(10, sub { @wrote = substr($python->output, $offset) =~ /^wrote on (\S+)$/mg; @wrote >= 3 });
	# the first one may have begun before
	shift @wrote;
	is(join(' ', sort { $a cmp $b } keys %{ { map { $_ => 1 } @wrote } }), $leader->name, "$name: psycopg2 finds the leader");
	return;
}

found($standby, 'the last one leads');
poll_ok(5, sub { $python->output =~ /^told off$/m }, 'the client is told');
$standby->value(q{SELECT etcd_transfer('pg1')});
$pg1->wait_until_leader;
found($pg1, 'a hand-over');
poll_ok(5, sub { $python->output =~ /^told off\n(?:.*\n)*told on$/m }, 'the client is told when it has changed');
$relay->freeze;
poll(10, sub { !$pg1->is_leader && grep { $_->is_leader } $pg2, $standby }) or die 'nobody else leads';
my ($leader) = grep { $_->is_leader } $pg2, $standby;
found($leader, 'an isolated old leader is first in the list');
is($pg1->value('SELECT pg_is_in_recovery()'), 0, 'the isolated one is a primary still');
my ($other) = grep { $_ != $leader } $pg2, $standby;
$leader->stop('immediate');
$other->wait_until_leader;
found($other, 'an isolated old leader, and another one that has crashed');
$other->value('SELECT etcd_resign(rejoin => false)');
like(run_psql(list('route_libpq', @nodes), 'SELECT 1'), qr/session is read-only/, 'nobody leads: psql says that there is none');
$python->stop;
$relay->thaw;

done_testing();
