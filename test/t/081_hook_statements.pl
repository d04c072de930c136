# What a hook executes, and as whom: statements as psql sends them, privileges,
# roles that are gone, and input that is refused.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use EtcdLeader::Etcd;
use EtcdLeader::Instance;
use EtcdLeader::Session;
use EtcdLeader::Util;
use PostgreSQL::Test::Utils;
use Test::More;

my $etcd = EtcdLeader::Etcd->new;
my $node = EtcdLeader::Instance->create('pg1', etcd => $etcd, settings => { elections => 'postgres, other' },
	conf => "max_worker_processes = 16\nlog_min_messages = warning\n");
$node->wait_until_leader;
$node->wait_until_leader('other');
$node->value($_) for 'CREATE TABLE t (i int)', 'GRANT ALL ON t TO PUBLIC', 'CREATE ROLE alice LOGIN', 'CREATE ROLE bob LOGIN',
  'CREATE ROLE batch LOGIN', 'GRANT batch TO alice', 'CREATE ROLE boss LOGIN SUPERUSER', 'GRANT boss TO alice',
  'GRANT EXECUTE ON FUNCTION etcd_add_hook, etcd_drop_hook TO alice, bob', 'GRANT CREATE ON SCHEMA public TO PUBLIC';

sub add
{
	my ($name, $command, %args) = @_;
	my $dbh = $args{dbh} // $node->dbh;
	return $dbh->do('SELECT etcd_add_hook(?, ?, ?, run_as => coalesce(?, current_user)::name, timeout => ?)', undef, $name, $args{event} // 'elected', $command,
		$args{run_as}, $args{timeout} // '20 s');
}

# The end of a hook's first run: "status: message".
sub ended
{
	my ($name) = @_;
	my $run = poll(15, sub { $node->row('SELECT * FROM etcd_leader_hook_run WHERE hook = ? AND ended_at IS NOT NULL ORDER BY started_at', $name) })
	  or return 'it does not end';
	return join ': ', grep { defined } @{$run}{qw(status message)};
}

my $n = 0;
sub runs_as_psql
{
	my ($what, $command, $result, %expected) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $name = 'h' . ++$n;
	$node->value('TRUNCATE t');
	add($name, $command, %expected);
	like(ended($name), $result, "$what: how it ends");
	# one that fails is tried again after a second
	my $rows = $result =~ /failed/ ? 'DISTINCT i::text' : 'i::text';
	is($node->value("SELECT string_agg($rows, ' ' ORDER BY i::text) FROM t") // '', $expected{rows} // '', "$what: its rows");
	$node->value('SELECT etcd_drop_hook(?)', $name);
	return;
}

# ---- statements ---------------------------------------------------------------

my $ok = qr/^succeeded$/;
runs_as_psql('one statement', 'INSERT INTO t VALUES (1)', $ok, rows => '1');
runs_as_psql('several', 'INSERT INTO t VALUES (1); ; INSERT INTO t VALUES (2) -- the end', $ok, rows => '1 2');
runs_as_psql('several, and one fails', 'INSERT INTO t VALUES (1); SELECT 1/0; INSERT INTO t VALUES (3)', qr/^failed: division by zero/, rows => '1');
runs_as_psql('a block', 'BEGIN; INSERT INTO t VALUES (1); INSERT INTO t VALUES (2); COMMIT; INSERT INTO t VALUES (3)', $ok, rows => '1 2 3');
runs_as_psql('a block that fails', 'BEGIN; INSERT INTO t VALUES (1); SELECT 1/0; COMMIT', qr/^failed: division/);
runs_as_psql('a block that is rolled back', 'BEGIN; INSERT INTO t VALUES (1); ROLLBACK; INSERT INTO t VALUES (2)', $ok, rows => '2');
runs_as_psql('savepoints', 'BEGIN; INSERT INTO t VALUES (1); SAVEPOINT s; INSERT INTO t VALUES (2); ROLLBACK TO s; COMMIT', $ok, rows => '1');
runs_as_psql('a block without an end', 'BEGIN; INSERT INTO t VALUES (1)', qr/^failed: the command ended within a transaction block/);
runs_as_psql('settings of the session', q{SET work_mem = '3MB'; INSERT INTO t VALUES (current_setting('work_mem') = '3MB' AND 1 = 1)} =~ s/VALUES \((.*)\)$/SELECT ($1)::int/r,
	$ok, rows => '1');
runs_as_psql('VACUUM', 'INSERT INTO t VALUES (1); VACUUM FULL t; ANALYZE t', $ok, rows => '1');
runs_as_psql('CREATE INDEX CONCURRENTLY', 'CREATE INDEX CONCURRENTLY t_i ON t (i); DROP INDEX CONCURRENTLY t_i', $ok);
$node->value('CREATE PROCEDURE two() LANGUAGE plpgsql AS $$ BEGIN INSERT INTO t VALUES (1); COMMIT; INSERT INTO t VALUES (2); ROLLBACK; INSERT INTO t VALUES (3); END $$');
runs_as_psql('CALL that commits', 'CALL two()', $ok, rows => '1 3');
runs_as_psql('DO that commits', 'DO $$ BEGIN INSERT INTO t VALUES (1); COMMIT; PERFORM 1/0; END $$', qr/^failed: division/, rows => '1');
runs_as_psql('ALTER SYSTEM', q{ALTER SYSTEM SET deadlock_timeout = '777ms'; SELECT pg_reload_conf()}, $ok);
is($node->value('SELECT pg_read_file($$postgresql.auto.conf$$) ~ $$777ms$$'), 1, 'ALTER SYSTEM: it is in the file');
runs_as_psql('a cursor', 'BEGIN; DECLARE c CURSOR FOR SELECT 1; FETCH ALL FROM c; INSERT INTO t VALUES (5); COMMIT', $ok, rows => '5');
runs_as_psql('a prepared statement', 'PREPARE p(int) AS INSERT INTO t VALUES ($1); EXECUTE p(7)', $ok, rows => '7');
runs_as_psql('temporary tables', 'CREATE TEMP TABLE x AS SELECT 4 AS i; INSERT INTO t TABLE x', $ok, rows => '4');
runs_as_psql('NOTIFY', 'NOTIFY somewhere', $ok);
runs_as_psql('LISTEN', 'LISTEN somewhere', qr/^failed: cannot execute LISTEN within a background process/);
runs_as_psql('COPY TO STDOUT', 'INSERT INTO t VALUES (1); COPY t TO STDOUT', qr/^failed: COPY FROM STDIN and COPY TO STDOUT are not possible in a hook/, rows => '1');
runs_as_psql('COPY FROM STDIN', 'COPY t FROM STDIN', qr/^failed: COPY FROM STDIN/);
runs_as_psql('COPY FROM PROGRAM', q{COPY t FROM PROGRAM 'echo 8'}, $ok, rows => '8');
runs_as_psql('PREPARE TRANSACTION', q{BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'x'}, qr/^failed: cannot PREPARE a transaction that requires leadership/);
runs_as_psql('a rule that makes two of one', 'CREATE TABLE r (i int); CREATE RULE r AS ON INSERT TO r DO ALSO INSERT INTO t VALUES (NEW.i); INSERT INTO r VALUES (6); DROP TABLE r',
	$ok, rows => '6');
runs_as_psql('a message of 10 kB', q{DO $$ BEGIN RAISE '%', repeat('ü', 5000); END $$}, qr/^failed: (?:\xc3\xbc){1023}\xc3?$/);
runs_as_psql('a detail', q{DO $$ BEGIN RAISE 'short' USING DETAIL = 'long'; END $$}, qr/^failed: short\nDETAIL:  long$/);
runs_as_psql('statement_timeout is there', q{INSERT INTO t SELECT extract(epoch FROM current_setting('statement_timeout')::interval)}, $ok, rows => '20');
runs_as_psql('its own timeout', q{SET statement_timeout = '100ms'; SELECT pg_sleep(10)}, qr/^failed: canceling statement due to statement timeout/);
runs_as_psql('no timeout of its own', q{SET statement_timeout = 0; SELECT pg_sleep(10)}, qr/^failed: canceling statement due to statement timeout/, timeout => '1 s');
runs_as_psql('a timeout for all statements', q{SELECT pg_sleep(0.7); SELECT pg_sleep(0.7); INSERT INTO t VALUES (1)}, qr/^failed: canceling statement due to statement timeout/, timeout => '1 s');
runs_as_psql('a function that ignores cancellation', q{DO $$ BEGIN LOOP BEGIN PERFORM pg_sleep(20); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END $$},
	qr/^failed: the run did not end at its timeout/, timeout => '1 s');

# ---- as whom -----------------------------------------------------------------------

my %dbh = map { $_ => $node->connect_db('postgres', user => $_) } qw(alice bob boss);
$node->value('CREATE TABLE who (session name, current name, setting text)');
$node->value('GRANT INSERT ON who TO PUBLIC');
$node->value(q{ALTER ROLE batch SET search_path = 'batch_path', public});
my $who = q{INSERT INTO public.who SELECT session_user, current_user, current_setting('search_path')};
add('mine', $who, dbh => $dbh{alice});
add('shared', $who, dbh => $dbh{alice}, run_as => 'batch');
add('strong', $who, dbh => $dbh{boss}, run_as => 'boss');
is(ended($_), 'succeeded', "hook $_ runs") for qw(mine shared strong);
is(join(' ', map { "$_->{session}/$_->{current}" } $node->rows('SELECT * FROM who ORDER BY 1')), 'alice/alice batch/batch boss/boss', 'each as its role');
is($node->value(q{SELECT setting FROM who WHERE session = 'batch'}), 'batch_path, public', "with the role's settings");

add('steals', 'RESET SESSION AUTHORIZATION; RESET ROLE; SET SESSION AUTHORIZATION boss; DELETE FROM who', dbh => $dbh{bob});
like(ended('steals'), qr/^failed: permission denied to set session authorization/, 'nobody becomes somebody else');
add('reads', 'SELECT * FROM pg_authid', dbh => $dbh{bob});
like(ended('reads'), qr/^failed: permission denied for table pg_authid/, 'or may what he may not');

for my $case (
	[ bob => 'run_as', "'elected', 'SELECT 1', run_as => 'batch'", '42501', qr/permission denied for a hook of role "batch"\nDETAIL:  The current user must be able to SET ROLE "batch"\./ ],
	[ alice => 'a superuser of whom she is a member', "'elected', 'SELECT 1', run_as => 'boss'", '42501', qr/Only superusers can add and drop hooks of a superuser/ ],
	[ alice => 'no such role', "'elected', 'SELECT 1', run_as => 'nobody_here'", '42704', qr/role "nobody_here" does not exist/ ],
	[ alice => 'an event', "'elect', 'SELECT 1'", '22023', qr/invalid event of a hook: "elect"\nHINT:  The event is "elected", "unelected" or "change"\./ ],
	[ alice => 'no command', "'elected', ' ; -- nothing'", '22023', qr/the command of a hook must not be empty/ ],
	[ alice => 'not SQL', "'elected', 'SELEC 1'", '42601', qr/syntax error at or near "SELEC"/ ],
	[ alice => 'a short timeout', "'elected', 'SELECT 1', timeout => '999 ms'", '22023', qr/invalid timeout of a hook: 00:00:00.999\nHINT:  The timeout must be 1 s to 1 day\./ ],
	[ alice => 'a long timeout', "'elected', 'SELECT 1', timeout => '25 h'", '22023', qr/The timeout must be 1 s to 1 day/ ],
	[ alice => 'no such election', "'elected', 'SELECT 1', 'nowhere'", '42704', qr/election "nowhere" does not exist/ ],
	[ alice => 'NULL', "NULL, 'SELECT 1'", '22004', qr/event must not be NULL/ ],
	[ alice => 'NULL', "'elected', NULL", '22004', qr/command must not be NULL/ ],
	[ alice => 'NULL', "'elected', 'SELECT 1', timeout => NULL", '22004', qr/timeout must not be NULL/ ],
	[ alice => 'NULL', "'elected', 'SELECT 1', run_as => NULL", '22004', qr/run_as must not be NULL/ ])
{
	my ($role, $what, $args, $state, $message) = @$case;
	fails($dbh{$role}, "SELECT etcd_add_hook('bad', $args)", $state, $message, "$role: $what");
}
fails($dbh{alice}, "SELECT etcd_add_hook(repeat('x', 64), 'elected', 'SELECT 1')", '22023', qr/The name must be 1 to 63 bytes long/, 'a long name');
fails($dbh{alice}, "SELECT etcd_add_hook('', 'elected', 'SELECT 1')", '22023', qr/The name must be 1 to 63 bytes long/, 'no name');
fails($dbh{bob}, "SELECT etcd_add_hook('mine', 'elected', 'SELECT 1')", '42710', qr/hook "mine" already exists/, 'a name that is taken');
fails($dbh{bob}, "SELECT etcd_drop_hook('mine')", '42501', qr/permission denied for a hook of role "alice"/, "somebody else's");
fails($dbh{alice}, "SELECT etcd_drop_hook('strong')", '42501', qr/Only superusers/, "a superuser's");
fails($dbh{alice}, "SELECT etcd_drop_hook('absent')", '42704', qr/hook "absent" does not exist/, 'none');
fails($dbh{bob}, "INSERT INTO etcd_leader_hook VALUES ('x', 'elected', 'postgres', 'SELECT 1', 'boss', '1 min')", '42501', qr/permission denied for table/, 'the table by hand');
fails($dbh{bob}, "UPDATE etcd_leader_hook SET run_as = 'boss'", '42501', qr/permission denied for table/, 'another role by hand');
fails($node->dbh, "INSERT INTO etcd_leader_hook VALUES ('x', 'elected', 'postgres', 'SELECT 1', 'boss', '2 days')", '23514', qr/timeout_check/, 'constraints hold for superusers');
fails($node->connect_db('postgres', user => 'batch'), "SELECT etcd_add_hook('x', 'elected', 'SELECT 1')", '42501', qr/permission denied for function/, 'not granted');

is(join(' ', @{ $dbh{$_}->selectcol_arrayref('SELECT name FROM etcd_leader_hook ORDER BY 1') }), $_ eq 'alice' ? 'mine' : 'reads steals', "$_ sees hooks of $_ alone") for qw(alice bob);
is(join(' ', @{ $dbh{$_}->selectcol_arrayref('SELECT DISTINCT hook FROM etcd_leader_hook_run ORDER BY 1') }), $_ eq 'alice' ? 'mine' : 'reads steals', "$_ sees their runs alone") for qw(alice bob);
is($dbh{bob}->do('UPDATE etcd_leader_hook SET enabled = false'), 2, 'who may switch off his own');
succeeds($dbh{alice}, q{SELECT etcd_drop_hook('shared')}, 'who could add a hook can drop it');
is($node->value('SELECT election FROM etcd_leader_hook WHERE name = ?', 'mine'), 'postgres', 'the election is noted by its name');

# ---- roles that cannot ----------------------------------------------------------------

$node->value("CREATE ROLE gone$_ LOGIN") for 1 .. 3;
$node->configure(max_hook_workers => 0);
# until the launcher has read it
poll(10, sub {
	add('probe', 'SELECT 1');
	my $ran = poll(1.5, sub { $node->value(q{SELECT count(*) FROM etcd_leader_hook_run WHERE hook = 'probe'}) });
	$node->value(q{SELECT etcd_drop_hook('probe')});
	return !$ran;
}) or die 'max_hook_workers is not heeded';
# in one transaction: whoever sees the hooks sees what has become of the roles
$node->dbh->begin_work;
add("gone$_", 'SELECT 1', run_as => "gone$_") for 1 .. 3;
$node->value('DROP ROLE gone1');
$node->value('ALTER ROLE gone2 NOLOGIN');
$node->value('ALTER ROLE gone3 CONNECTION LIMIT 0');
$node->dbh->commit;
is($node->value(q{SELECT count(*) FROM etcd_leader_hook_run WHERE hook LIKE 'gone%'}), 0, 'with max_hook_workers = 0 none runs');
$node->configure(max_hook_workers => 2);
is(ended('gone1'), 'failed: role "gone1" does not exist', 'a role that was dropped');
is(ended('gone2'), 'failed: role "gone2" is not permitted to log in', 'one that may not log in');
is(ended('gone3'), 'failed: too many connections for role "gone3"', 'one that may not connect');
fails($dbh{alice}, q{SELECT etcd_drop_hook('gone1')}, '42501', qr/only superusers can drop such a hook/, 'a hook without a role');
succeeds($node->dbh, "SELECT etcd_drop_hook('gone$_')", "and a superuser can drop it: gone$_") for 1 .. 3;

# ---- another election, another database ------------------------------------------------

$node->value(q{SELECT etcd_add_hook('elsewhere', 'elected', 'INSERT INTO t SELECT 1', 'other')});
is(ended('elsewhere'), 'succeeded', 'a hook of another election');
is($node->value(q{SELECT fencing_token FROM etcd_leader_hook_run WHERE hook = 'elsewhere'}), $node->token('other'), 'under its token');
$node->value('CREATE DATABASE silent');
my $silent = $node->connect_db('silent');
$silent->do('CREATE EXTENSION etcd_leader');
my $warning = '';
{
	local $SIG{__WARN__} = sub { $warning .= $_[0] };
	local $silent->{PrintWarn} = 1;
	$silent->do(q{SELECT etcd_add_hook('idle', 'elected', 'SELECT 1')});
}
like($warning, qr/hooks do not run in database "silent"\nHINT:  Add it to "etcd_leader.databases"/, 'a database that is not notified: a WARNING');

is($node->log_count('was terminated by signal|PANIC|TRAP'), 0, 'nothing has crashed');
done_testing();
