# etcd_leader.require_leadership_of: for roles and databases whose code cannot be
# changed.  What writes needs leadership, under one token from its first
# statement; what reads does not.  A role cannot switch it off for itself.  And
# it does not catch what keeps a server running.
use EtcdLeader::Test;
use FindBin;
use DBD::Pg ();
use EtcdLeader::Documents;
use EtcdLeader::Session;

my $etcd = EtcdLeader::Etcd->new;
my $node = EtcdLeader::Instance->create(
	'pg1',
	etcd     => $etcd,
	settings => { ttl => 20, elections => 'alpha,beta' },
	init     => { allows_streaming => 'logical' },
	conf     => "max_prepared_transactions = 5\nautovacuum_naptime = 1\nmax_connections = 60\n");
$node->wait_until_leader($_) for 'alpha', 'beta';

sub lose { $node->value('SELECT etcd_resign(?, false)', $_[0] // 'alpha') }

sub win
{
	my $election = $_[0] // 'alpha';
	$node->value('SELECT etcd_campaign(?)', $election);
	$node->value('SELECT etcd_wait_for_leadership(?, ?)', $election, '10 s') or die "not elected: $election";
}

my $guc = 'etcd_leader.require_leadership_of';
my $insert = q{INSERT INTO ledger VALUES ('x')};
$node->value($_)
  for 'CREATE ROLE app LOGIN', 'CREATE ROLE free LOGIN', 'CREATE ROLE friend', 'GRANT friend TO app',
  'CREATE TABLE ledger (made_by text)', 'CREATE TABLE big AS SELECT generate_series(1, 1000) AS i', 'CREATE SEQUENCE seq',
  'GRANT ALL ON SCHEMA public TO PUBLIC', 'GRANT ALL ON ledger, big, seq TO PUBLIC', 'CREATE DATABASE other',
  "ALTER ROLE app SET $guc = 'alpha'";

sub count { return $node->value('SELECT count(*) FROM ledger') }

# Tests that a write of that session is refused and leaves nothing.
sub refused
{
	my ($dbh, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $before = count();
	fails($dbh, $insert, '25006', [ qr/election "alpha"/, qr/^DETAIL:  .*require_leadership_of/m, qr/^HINT:/m ], $name);
	usable($dbh, $name);
	is(count(), $before, "$name: it leaves nothing");
	return;
}

# ---- the rights of a role on the leader, and elsewhere -------------------------
my $app = $node->connect_db('postgres', user => 'app');
my @writes = (
	[ 'INSERT', $insert ],
	[ 'CREATE TABLE', 'CREATE TABLE made (i int); DROP TABLE made' ],
	[ 'a temporary table', 'CREATE TEMPORARY TABLE made_temp (i int); DROP TABLE made_temp' ],
	[ 'a row lock', 'SELECT * FROM big WHERE i = 1 FOR UPDATE' ],
	[ 'a large object', q{SELECT lo_unlink(lo_from_bytea(0, 'x'))} ],
	[ 'nextval()', q{SELECT nextval('seq') FROM generate_series(1, 100)} ],
	[ 'COPY', sub { $app->do('COPY ledger FROM STDIN'); $app->pg_putcopydata("x\n"); $app->pg_putcopyend } ],
	[ 'DO', "DO \$\$ BEGIN $insert; END \$\$" ],
	[ 'what was rolled back to a savepoint', "BEGIN; SAVEPOINT a; $insert; ROLLBACK TO a; COMMIT" ],
);
my @reads = (
	[ 'SELECT', 'SELECT count(*) FROM big' ],
	[ 'a block that reads', 'BEGIN; SELECT 1; SELECT count(*) FROM big; COMMIT' ],
	[ 'a cursor', 'BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT * FROM big; COMMIT; FETCH 3 FROM c; CLOSE c' ],
	[ 'COPY TO', sub { $app->do('COPY big TO STDOUT'); my $row; 1 while $app->pg_getcopydata($row) >= 0 } ],
	[ 'SET and SHOW', 'SET work_mem = 1024; SHOW work_mem; RESET work_mem' ],
	[ 'LISTEN and NOTIFY', 'LISTEN a; NOTIFY a; UNLISTEN a' ],
	[ 'an advisory lock', 'SELECT pg_advisory_lock(1), pg_advisory_unlock(1)' ],
	[ 'EXPLAIN', "EXPLAIN $insert" ],
	[ 'PREPARE and EXECUTE', 'PREPARE p AS SELECT 1; EXECUTE p; DEALLOCATE p' ],
);
for my $case (@reads, @writes)
{
	my ($name, $sql) = @$case;
	succeeds($app, $sql, "the leader: $name");
}
is($app->ping, 1, 'the leader: no transaction is left open');
lose();
for my $case (@reads)
{
	my ($name, $sql) = @$case;
	succeeds($app, $sql, "elsewhere: $name");
}
for my $case (@writes)
{
	my ($name, $sql) = @$case;
	my $before = count();
	fails($app, $sql, '25006', [ qr/election "alpha"/, qr/require_leadership_of/, qr/^HINT:/m ], "elsewhere: $name");
	$app->do('ROLLBACK') if $app->ping != 1;
	usable($app, "elsewhere: $name");
	is(count(), $before, "elsewhere: $name: it leaves nothing");
}
succeeds($node->connect_db('postgres', user => 'free'), $insert, 'other roles may write');
win();

# ---- a connection for replication: it executes SQL, too -------------------------
# Whoever has REPLICATION asks for it by a parameter of the connection.
{
	$node->value($_) for 'CREATE ROLE streamer LOGIN REPLICATION', "ALTER ROLE streamer SET $guc = 'alpha'", 'GRANT ALL ON ledger TO streamer',
	  'CREATE PUBLICATION streamed FOR TABLE ledger';
	my $as   = $node->connstr('postgres') . ' user=streamer';
	my $psql = sub {
		my ($sql) = @_;
		my ($stdout, $stderr);
		IPC::Run::run([ 'psql', '-XAtq', '-v', 'VERBOSITY=verbose', '-d', "$as replication=database", map { ('-c', $_) } ref $sql ? @$sql : $sql ],
			'<', \undef, '>', \$stdout, '2>', \$stderr);
		return $stdout . $stderr;
	};
	my $slot = 'CREATE_REPLICATION_SLOT of_streamer LOGICAL pgoutput';
	is($psql->($insert), '', 'replication=database: the leader writes');
	lose();
	my $before = count();
	is($psql->("SHOW $guc"), "alpha\n", 'replication=database: the setting is there');
	like($psql->($insert), qr/ERROR:  25006: .*"alpha".*DETAIL:.*require_leadership_of/s, 'replication=database: a write elsewhere is refused');
	like($psql->([ 'BEGIN', $insert, 'COMMIT' ]), qr/ERROR:  25006: /, 'replication=database: and so is one in a block');
	is(count(), $before, 'replication=database: it leaves nothing');
	is($psql->('SELECT 1'), "1\n", 'replication=database: what only reads is not refused');
	like($psql->('IDENTIFY_SYSTEM'), qr/^\d+\|/, 'replication=database: nor is IDENTIFY_SYSTEM');
	like($psql->($slot), qr/^of_streamer\|/, 'replication=database: nor is a slot');
	like($psql->([ 'BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ', q{CREATE_REPLICATION_SLOT of_a_snapshot TEMPORARY LOGICAL pgoutput (SNAPSHOT 'use')}, 'SELECT 2', 'COMMIT' ]),
		qr/^of_a_snapshot\|.*^2$/ms, 'replication=database: nor is the snapshot of a slot');
	# a change to stream
	$node->value($insert);
	my $until = $node->value('SELECT pg_current_wal_insert_lsn()');
	my $changes = PostgreSQL::Test::Utils::tempdir('streamed') . '/changes';
	PostgreSQL::Test::Utils::command_ok(
		[ 'pg_recvlogical', '-d', $as, '-S', 'of_streamer', '--start', '--no-loop', '-o', 'proto_version=1', '-o', 'publication_names=streamed', '-E', $until, '-f', $changes ],
		'replication=database: nor is logical streaming');
	like(slurp_file($changes), qr/ledger/, 'replication=database: which has the change');
	PostgreSQL::Test::Utils::command_ok(
		[ 'pg_basebackup', '-D', PostgreSQL::Test::Utils::tempdir('backup') . '/b', '-c', 'fast', '-X', 'stream', '-d', $as ],
		'a role that is fenced: pg_basebackup');
	like($psql->('DROP_REPLICATION_SLOT of_streamer'), qr/^$/, 'replication=database: nor is the end of a slot');
	$node->value('DROP PUBLICATION streamed');
	win();
}

# ---- lost on the way, and one token from the first statement on ------------------
{
	my $before = count();
	$app->do('BEGIN');
	$app->do($insert);
	lose();
	fails($app, 'COMMIT', '25006', [ qr/election "alpha" any more/, qr/token \d+/ ], 'lost before the commit');
	usable($app, 'lost before the commit');
	win();
	$app->do('BEGIN');
	$app->do('SELECT 1');
	lose();
	succeeds($app, 'SELECT 2', 'lost: what only reads goes on');
	succeeds($app, 'COMMIT', 'lost: and commits');
	win();
	for my $first ('SELECT 1', $insert, 'DECLARE c CURSOR FOR SELECT 1', 'SET LOCAL work_mem = 1024', 'SAVEPOINT a')
	{
		$app->do('BEGIN');
		$app->do($first);
		lose();
		win();
		fails($app, $first eq $insert ? 'COMMIT' : sub { $app->do($insert); $app->do('COMMIT') },
			'25006', qr/election "alpha" any more/, "another token since $first");
		$app->do('ROLLBACK') if $app->ping != 1;
		usable($app, "another token since $first");
	}
	is(count(), $before, 'no refused statement leaves a row');
	# not the leader at first
	lose();
	$app->do('BEGIN');
	$app->do('SELECT 1');
	win();
	fails($app, sub { $app->do($insert); $app->do('COMMIT') }, '25006',
		[ qr/did not lead election "alpha" when the transaction began/, qr/^HINT:  This instance leads now\. Run the whole transaction again\.$/m ], 'elected after the first statement');
	$app->do('ROLLBACK') if $app->ping != 1;
	# it led, and reads only at first
	$app->do('BEGIN READ ONLY');
	lose();
	$app->do('SET TRANSACTION READ WRITE');
	fails($app, sub { $app->do($insert); $app->do('COMMIT') }, '25006', qr/does not lead election "alpha" any more/, 'READ WRITE after a loss');
	$app->do('ROLLBACK') if $app->ping != 1;
	$app->do('BEGIN READ ONLY');
	win();
	$app->do('SET TRANSACTION READ WRITE');
	fails($app, sub { $app->do($insert); $app->do('COMMIT') }, '25006', qr/did not lead election "alpha" when the transaction began/, 'READ WRITE after it was elected');
	$app->do('ROLLBACK') if $app->ping != 1;
	usable($app, 'elected after the first statement');
	is(count(), $before, 'elected after the first statement: it leaves nothing');

	# a call of the transaction itself counts as well
	$app->do('BEGIN');
	$app->do(q{SELECT etcd_require_leader('beta')});
	$app->do($insert);
	lose('beta');
	fails($app, 'COMMIT', '25006', qr/election "beta"/, 'fenced for another one, too');
	usable($app, 'fenced for another one, too');
	win('beta');

	# a procedure: each transaction stands for itself
	$node->value(q{CREATE PROCEDURE stages() LANGUAGE plpgsql SECURITY INVOKER AS $$ BEGIN
		INSERT INTO ledger VALUES ('stage'); COMMIT;
		PERFORM etcd_resign('alpha', false); PERFORM etcd_campaign('alpha'); PERFORM etcd_wait_for_leadership('alpha', '10 s');
		COMMIT;
		INSERT INTO ledger VALUES ('stage'); COMMIT;
		PERFORM etcd_resign('alpha', false);
		COMMIT;
		INSERT INTO ledger VALUES ('stage'); COMMIT; END $$});
	$node->value('GRANT EXECUTE ON FUNCTION etcd_resign(text, boolean, interval), etcd_campaign(text) TO app');
	fails($app, 'CALL stages()', '25006', qr/election "alpha"/, 'a procedure');
	usable($app, 'a procedure');
	is($node->value(q{SELECT count(*) FROM ledger WHERE made_by = 'stage'}), 2, 'a procedure: each transaction under its own token');
	# an expression alone is no statement: the INSERT is the first one
	win();
	$node->value(q{CREATE PROCEDURE waits() LANGUAGE plpgsql SECURITY INVOKER AS $$ DECLARE ok bool; BEGIN
		INSERT INTO ledger VALUES ('waits'); COMMIT;
		ok := etcd_resign('alpha', false); ok := etcd_campaign('alpha'); ok := etcd_wait_for_leadership('alpha', '10 s');
		INSERT INTO ledger VALUES ('waits'); COMMIT; END $$});
	succeeds($app, 'CALL waits()', 'a procedure that waits to lead before it writes');
	is($node->value(q{SELECT count(*) FROM ledger WHERE made_by = 'waits'}), 2, 'a procedure that waits: both are there');
}

# ---- the setting names another election meanwhile ---------------------------------
# The token of the first election remains: by SET LOCAL of a superuser, and by the
# SET clause of a function that an unprivileged role calls.
{
	my $before = count();
	my $losing = q{PERFORM etcd_resign('alpha', false); PERFORM etcd_campaign('alpha'); PERFORM etcd_wait_for_leadership('alpha', '10 s');};
	$node->value("CREATE FUNCTION $_->[0]() RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET $guc = '$_->[1]' AS \$\$ BEGIN PERFORM 1; $_->[2] END \$\$")
	  for [ 'elsewhere', 'beta', '' ], [ 'loses', 'beta', $losing ], [ 'unknown', 'nobody', '' ];
	my $su = $node->connect_db;
	$su->do("SET $guc = 'alpha'");
	my $local = sub { $su->do("SET LOCAL $guc = '$_[0]'"); $su->do('SELECT 1') };
	my %ways = (
		'SET LOCAL'  => [ $su, sub { $local->('beta'); if ($_[0]) { lose(); win() } $local->('alpha') } ],
		'SET clause' => [ $app, sub { $app->do($_[0] ? 'SELECT loses()' : 'SELECT elsewhere()') } ]);
	for my $way (sort keys %ways)
	{
		my ($dbh, $change) = @{ $ways{$way} };
		for my $first ($insert, 'SELECT 1')
		{
			fails($dbh, sub { $dbh->do('BEGIN'); $dbh->do($first); $change->(1); $dbh->do($insert); $dbh->do('COMMIT') },
				'25006', qr/election "alpha" any more/, "$way, another token since $first");
			$dbh->do('ROLLBACK') if $dbh->ping != 1;
			usable($dbh, "$way, another token since $first");
			# the timer may have ended the function before it campaigned
			win();
		}
		succeeds($dbh, sub { $dbh->do('BEGIN'); $dbh->do('SELECT 1'); $change->(1); $dbh->do('COMMIT') }, "$way, another token: what only reads commits");
		is(count(), $before, "$way: no refused transaction leaves a row");
		succeeds($dbh, sub { $dbh->do('BEGIN'); $dbh->do($insert); $change->(0) for 1 .. 3; $dbh->do($insert); $dbh->do('COMMIT') }, "$way, the same token");
		is(count(), $before += 2, "$way, the same token: the rows are there");
	}
	fails($su, sub { $su->do('BEGIN'); $su->do($insert); $local->('beta'); lose(); win(); $su->do('COMMIT') },
		'25006', qr/election "alpha" any more/, 'SET LOCAL until the commit, another token');
	usable($su, 'SET LOCAL until the commit, another token');
	succeeds($su, sub { $su->do('BEGIN'); $local->('beta'); lose(); $su->do($insert); $su->do('COMMIT') }, 'SET LOCAL before the first write: the first election does not matter');
	win();
	# written under alpha, read only by a function that requires what this instance does not lead
	lose('beta');
	for my $function ('elsewhere', 'unknown')
	{
		succeeds($app, sub { $app->do('BEGIN'); $app->do("SELECT $function()"); $app->do($insert); $app->do("SELECT $function()"); $app->do('COMMIT') },
			"a SET clause, $function: only the leadership of the first election matters");
	}
	win('beta');
	is(count(), $before + 3, 'the rows are there');
	# COMMIT in a procedure: the next transaction has a token of its own
	$node->value(qq{CREATE PROCEDURE other_stages() LANGUAGE plpgsql AS \$\$ BEGIN
		$insert; PERFORM elsewhere(); COMMIT;
		PERFORM loses(); COMMIT;
		$insert; PERFORM elsewhere(); COMMIT; END \$\$});
	succeeds($app, 'CALL other_stages()', 'a procedure: each transaction has a token of its own');
	# the limit
	fails($su, "BEGIN; SELECT 1; DO \$\$ BEGIN FOR i IN 1..40 LOOP PERFORM set_config('$guc', 'e' || i, true); PERFORM 1; PERFORM count(*) FROM big; END LOOP; END \$\$",
		'54000', qr/more than \d+ elections/, 'a SET of too many elections');
	$su->do('ROLLBACK') if $su->ping != 1;
	usable($su, 'a SET of too many elections');
}

# ---- what acts on files before its transaction commits -----------------------------
{
	win();
	$node->value('ALTER ROLE app CREATEDB');
	succeeds($app, 'CREATE DATABASE kept', 'CREATE DATABASE on the leader');
	my $other_place = PostgreSQL::Test::Utils::tempdir_short();
	my $fenced = $node->connect_db;
	$fenced->do("SET $guc = 'alpha'");
	lose();
	my $files = sub { return join ' ', sort map { glob } $node->data_dir . '/base/*', $node->data_dir . '/pg_tblspc/*', "$other_place/*" };
	my $before = $files->();
	fails($app, 'DROP DATABASE kept', '25006', qr/election "alpha"/, 'DROP DATABASE elsewhere');
	fails($app, 'CREATE DATABASE made', '25006', qr/election "alpha"/, 'CREATE DATABASE elsewhere');
	fails($fenced, "CREATE TABLESPACE made LOCATION '$other_place'", '25006', qr/election "alpha"/, 'CREATE TABLESPACE elsewhere');
	is($files->(), $before, 'they have made no file, and removed none');
	is($node->connect_db('kept')->selectrow_array('SELECT 1'), 1, 'the database is whole');
	win();
	succeeds($app, 'DROP DATABASE kept', 'DROP DATABASE on the leader');
}

# ---- a statement of several transactions ---------------------------------------------
{
	$app->do('CREATE TABLE built AS SELECT generate_series(1, 100) AS i');
	my $writer = $node->connect_db;
	$writer->do('BEGIN');
	$writer->do('INSERT INTO built VALUES (0)');
	start_statement($app, 'CREATE INDEX CONCURRENTLY built_i ON built (i)');
	waits_in($node, $app, qr/^Lock/);
	is($node->value(q{SELECT count(*) FROM pg_class WHERE relname = 'built_i'}), 1, 'its first transaction is committed');
	lose();
	win();
	$writer->do('ROLLBACK');
	like(outcome($app), qr/^25006/, 'CREATE INDEX CONCURRENTLY: lost and won again on the way');
	is($node->value(q{SELECT indisvalid FROM pg_index WHERE indexrelid = 'built_i'::regclass}), 0, 'what came after is not committed');
	succeeds($app, 'DROP INDEX built_i; DROP TABLE built', 'the session stays usable');
}

# ---- two-phase commit; from here on it does not lead ----------------------------
{
	win();
	my $su = $node->connect_db;
	for my $name ('one', 'two', 'three')
	{
		$su->do('BEGIN');
		$su->do($insert);
		$su->do("PREPARE TRANSACTION '$name'");
	}
	$app->do('BEGIN');
	$app->do($insert);
	fails($app, q{PREPARE TRANSACTION 'four'}, '0A000', qr/election "alpha"/, 'PREPARE TRANSACTION');
	usable($app, 'PREPARE TRANSACTION');
	is($node->value(q{SELECT count(*) FROM pg_prepared_xacts WHERE gid = 'four'}), 0, 'PREPARE TRANSACTION: nothing is prepared');

	# only a superuser may finish a transaction that others have prepared
	my $fenced = $node->connect_db;
	$fenced->do("SET $guc = 'alpha'");
	my $before = count();
	lose();
	fails($fenced, q{COMMIT PREPARED 'one'}, '25006', [ qr/election "alpha"/, qr/^DETAIL:/m, qr/^HINT:/m ], 'COMMIT PREPARED elsewhere');
	usable($fenced, 'COMMIT PREPARED elsewhere');
	is(count(), $before, 'COMMIT PREPARED elsewhere: it has done nothing');
	is($node->value(q{SELECT count(*) FROM pg_prepared_xacts WHERE gid = 'one'}), 1, 'COMMIT PREPARED elsewhere: it can be done later');
	succeeds($fenced, q{ROLLBACK PREPARED 'one'}, 'ROLLBACK PREPARED elsewhere');
	succeeds($su, q{COMMIT PREPARED 'two'}, 'COMMIT PREPARED in a session that is not fenced');
	win();
	succeeds($fenced, q{COMMIT PREPARED 'three'}, 'COMMIT PREPARED on the leader');
	is(count(), $before + 2, 'the rows are there');
	$fenced->do("SET $guc = 'nobody'");
	fails($fenced, q{COMMIT PREPARED 'five'}, '42704', qr/election "nobody" does not exist/, 'COMMIT PREPARED, an election that is not there');
}

# ---- an election that does not exist -----------------------------------------
{
	my $before = count();
	$node->value("ALTER ROLE app SET $guc = 'nobody'");
	my $dbh = $node->connect_db('postgres', user => 'app');
	succeeds($dbh, 'SELECT count(*) FROM big', 'unknown election: reading');
	fails($dbh, $insert, '42704', [ qr/election "nobody" does not exist/, qr/require_leadership_of/ ], 'unknown election: writing');
	usable($dbh, 'unknown election');
	$dbh->do('BEGIN');
	fails($dbh, sub { $dbh->do($insert); $dbh->do('COMMIT') }, '42704', qr/election "nobody"/, 'unknown election: in a block');
	$dbh->do('ROLLBACK') if $dbh->ping != 1;
	usable($dbh, 'unknown election: in a block');
	is(count(), $before, 'unknown election: it leaves nothing');
	# a misspelt name gets a NOTICE at once
	my $notice = '';
	local $SIG{__WARN__} = sub { $notice .= $_[0] };
	local $node->dbh->{PrintWarn} = 1;
	for my $case ([ 'ROLE app', 'shpo', 1 ], [ 'DATABASE other', 'shpo', 1 ], [ 'ROLE app', 'alpha', 0 ], [ 'DATABASE other', '', 0 ])
	{
		my ($whose, $value, $told) = @$case;
		$notice = '';
		$node->value("ALTER $whose SET $guc = '$value'");
		is($notice =~ /^NOTICE:  election "shpo" does not exist/ ? 1 : 0, $told, "unknown election: ALTER $whose SET '$value'") or diag($notice);
	}
	$node->value("ALTER ROLE app SET $guc = 'alpha'");
}

# ---- the role cannot switch it off ----------------------------------------------
lose();
$node->value('CREATE DATABASE owned OWNER app');
$node->value('CREATE FUNCTION attempt() RETURNS void LANGUAGE sql AS $$ SELECT $$');
$node->value('ALTER FUNCTION attempt() OWNER TO app');
refused($node->connect_db('postgres', user => 'app'), 'a new session');
for my $attempt (
	"SET $guc = ''", "SET LOCAL $guc = ''", "SET SESSION $guc TO DEFAULT", "RESET $guc", 'RESET ALL', 'DISCARD ALL', 'SET ROLE friend',
	'SET SESSION AUTHORIZATION app', 'SET SESSION AUTHORIZATION DEFAULT', "SET $guc = 'beta'",
	"SELECT set_config('$guc', '', false)", "UPDATE pg_settings SET setting = '' WHERE name = '$guc'",
	"ALTER ROLE app SET $guc = ''", "ALTER ROLE app RESET $guc", 'ALTER ROLE app RESET ALL', "ALTER ROLE app IN DATABASE postgres SET $guc = ''",
	"ALTER DATABASE owned SET $guc = ''", 'ALTER DATABASE owned RESET ALL', "ALTER SYSTEM SET $guc = ''",
	"ALTER FUNCTION attempt() SET $guc = ''", "CREATE FUNCTION attempt2() RETURNS void LANGUAGE sql SET $guc = '' AS 'SELECT'",
	"CREATE FUNCTION attempt3() RETURNS void LANGUAGE sql SET $guc FROM CURRENT AS '$insert'; SELECT attempt3()",
	q{LOAD '$libdir/etcd_leader'}, 'DROP EXTENSION etcd_leader')
{
	my $dbh = $node->connect_db('postgres', user => 'app');
	eval { $dbh->do($attempt) };
	my $what = $dbh->state || 'no error';
	refused($dbh, "after $attempt ($what)");
	refused($node->connect_db('postgres', user => 'app'), "a new session after $attempt");
}
# by options of the connection: there is none then
for my $options ("-c $guc=", "-c $guc=beta", "--etcd_leader.require-leadership-of=")
{
	my $dbh = eval {
		DBI->connect('dbi:Pg:' . join(';', 'host=' . $node->host, 'port=' . $node->port, "dbname=postgres", "options='$options'"),
			'app', undef, { RaiseError => 1, PrintError => 0 });
	};
	like($@, qr/permission denied to set parameter "$guc"/, "options of the connection: $options");
	refused($dbh, "options of the connection: $options") if $dbh;
}
# nor by the order in which the settings of role and database count
$node->value("ALTER DATABASE other SET $guc = ''");
{
	my $dbh = $node->connect_db('other', user => 'app');
	is($dbh->selectrow_array("SHOW $guc"), 'alpha', 'the setting of the role is stronger than that of the database');
}

# ---- who can ------------------------------------------------------------------
{
	my $granted = $node->connect_db('postgres', user => 'app');
	$node->value(qq{CREATE FUNCTION unfenced() RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS
		\$\$ BEGIN PERFORM set_config('$guc', '', true); $insert; END \$\$});
	succeeds($granted, 'SELECT unfenced()', q{a superuser's SECURITY DEFINER function can});
	refused($granted, 'but only for its transaction');
	# a SET clause is over before the commit
	$node->value(qq{CREATE FUNCTION unfenced_inside() RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET $guc = '' AS
		\$\$ BEGIN $insert; END \$\$});
	fails($granted, 'SELECT unfenced_inside()', '25006', qr/election "alpha"/, 'the SET clause of such a function alone cannot');
	usable($granted, 'the SET clause of such a function alone cannot');
	$node->value("GRANT SET ON PARAMETER $guc TO app");
	succeeds($granted, "SET $guc = ''", 'SET ON PARAMETER can be granted');
	succeeds($granted, $insert, 'the granted privilege works');
	succeeds($granted, "RESET $guc", 'RESET');
	refused($granted, 'and back');
	$granted->do('BEGIN');
	$granted->do("SET LOCAL $guc = ''");
	$granted->do($insert);
	succeeds($granted, 'COMMIT', 'SET LOCAL holds for the transaction');
	refused($granted, 'and not for the next');
	$node->value("REVOKE SET ON PARAMETER $guc FROM app");
	my $su = $node->connect_db;
	succeeds($su, "SET $guc = 'alpha'", 'a superuser fences itself');
	refused($su, 'a superuser fences itself');
	succeeds($su, "SET $guc = ''", 'a superuser frees itself');
	succeeds($su, $insert, 'the transaction writes on the leader');
}

# ---- sessions that the setting does not fence, see the reference -------------------
# The setting belongs to the session: to the role that logs in, and to the time of the login.
{
	$node->value($_) for 'CREATE ROLE crew', 'GRANT crew, app TO free', "ALTER ROLE crew SET $guc = 'alpha'";
	my $open = $node->connect_db('postgres', user => 'free');
	$node->value("ALTER ROLE free SET $guc = 'alpha'");
	succeeds($open, $insert, 'a session that was open before is not fenced');
	refused($node->connect_db('postgres', user => 'free'), 'one that begins now is');
	$node->value("ALTER ROLE free RESET $guc");
	my $free = $node->connect_db('postgres', user => 'free');
	succeeds($free, $insert, 'a member of a role that has the setting is not fenced');
	for my $role ('crew', 'app')
	{
		succeeds($free, "SET ROLE $role", "SET ROLE $role");
		is($free->selectrow_array('SELECT current_user'), $role, "SET ROLE $role: it is");
		succeeds($free, $insert, "SET ROLE $role: it is not fenced");
	}
}
# It fences transactions that have a transaction ID.
{
	my $fenced   = $node->connect_db('postgres', user => 'app');
	my $listener = $node->listen('postgres', 'elsewhere');
	succeeds($fenced, q{NOTIFY elsewhere, '{"event":"told"}'}, 'what only does NOTIFY is not fenced');
	ok($listener->wait_for(sub { $_[0]->{event} eq 'told' }), 'the listener receives the NOTIFY');
	fails($fenced, qq{BEGIN; NOTIFY elsewhere, '{"event":"not told"}'; $insert; COMMIT}, '25006', qr/election "alpha"/, 'NOTIFY in what writes');
	$fenced->do('ROLLBACK') if $fenced->ping != 1;
	is(scalar(grep { $_->{event} eq 'not told' } $listener->notifications), 0, 'NOTIFY in what writes: is not told');

	$node->value($_) for 'CREATE TABLE vacuumed AS SELECT generate_series(1, 100) AS i', 'DELETE FROM vacuumed WHERE i < 50', 'ALTER TABLE vacuumed OWNER TO app';
	succeeds($fenced, 'VACUUM vacuumed', 'VACUUM is not fenced');
	cmp_ok($node->value(q{SELECT relallvisible FROM pg_class WHERE relname = 'vacuumed'}), '>', 0, 'VACUUM did its work');

	my $su = $node->value('SELECT current_user');
	$node->connect_db('other')->do('CREATE TABLE far (made_by text)');
	$node->value($_)
	  for 'CREATE EXTENSION postgres_fdw',
	  "CREATE SERVER other FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '" . $node->host . "', port '" . $node->port . "', dbname 'other')",
	  qq{CREATE USER MAPPING FOR app SERVER other OPTIONS (user '$su', password_required 'false')},
	  q{CREATE FOREIGN TABLE far (made_by text) SERVER other}, 'GRANT ALL ON far TO app';
	my $far = sub { $node->connect_db('other')->selectrow_array('SELECT count(*) FROM far') };
	succeeds($fenced, q{INSERT INTO far VALUES ('x')}, 'what only writes to another server is not fenced');
	is($far->(), 1, 'and is there');
	win();
	$fenced->do('BEGIN');
	$fenced->do($_) for $insert, q{INSERT INTO far VALUES ('x')};
	lose();
	fails($fenced, 'COMMIT', '25006', qr/election "alpha" any more/, 'here and on another server');
	usable($fenced, 'here and on another server');
	is($far->(), 1, 'here and on another server: COMMIT looks before that commits');
}
# A library that writes at pre-commit: listed before etcd_leader, it comes after the last look.
{
	my $library = PostgreSQL::Test::Utils::tempdir() . '/late_writer';
	my ($headers) = split /\n/, `pg_config --includedir-server`;
	PostgreSQL::Test::Utils::system_or_bail('cc', '-shared', '-fPIC', '-O2', "-I$headers", '-o', "$library.so",
		"$FindBin::RealBin/lib/EtcdLeader/late_writer.c");
	for my $case ([ 'before', "$library, etcd_leader", 1 ], [ 'behind', "etcd_leader, $library", 0 ])
	{
		my ($where, $preload, $written) = @$case;
		my $observer = EtcdLeader::Instance->create("observer$written", etcd => $etcd, preload => $preload,
			settings => { elections => 'alpha', candidate => 'never' });
		$observer->value($_) for 'CREATE ROLE app LOGIN', "ALTER ROLE app SET $guc = 'alpha'";
		my $dbh = $observer->connect_db('postgres', user => 'app');
		my $ok  = eval { $dbh->do('SELECT 1'); 1 };
		is($ok ? 'written' : $dbh->state, $written ? 'written' : '25006', "a library that is listed $where etcd_leader: what it writes at pre-commit");
		is($observer->value(q{SELECT count(*) FROM pg_largeobject_metadata WHERE lomowner = 'app'::regrole}) > 0 ? 1 : 0, $written,
			"a library that is listed $where etcd_leader: what is there");
		$observer->stop('immediate');
	}
}

# ---- by database, by role in a database, for all roles -------------------------
{
	my %how = (
		'ALTER DATABASE'         => [ "ALTER DATABASE other SET $guc = 'alpha'", "ALTER DATABASE other RESET $guc" ],
		'ALTER ROLE IN DATABASE' => [ "ALTER ROLE free IN DATABASE other SET $guc = 'alpha'", "ALTER ROLE free IN DATABASE other RESET $guc" ],
		'ALTER ROLE ALL'         => [ "ALTER ROLE ALL SET $guc = 'alpha'", "ALTER ROLE ALL RESET $guc" ]);
	my $su = $node->connect_db('other');
	$su->do("SET $guc = ''");
	$su->do('CREATE TABLE ledger (made_by text); GRANT ALL ON ledger TO PUBLIC');
	$node->value("ALTER DATABASE other RESET $guc");
	for my $how (sort keys %how)
	{
		$node->value($how{$how}[0]);
		my $dbh = $node->connect_db('other', user => 'free');
		fails($dbh, $insert, '25006', qr/election "alpha"/, $how);
		usable($dbh, $how);
		if ($how eq 'ALTER DATABASE')
		{
			for my $who (undef, 'free')
			{
				my $other = $node->connect_db('other', user => $who);
				$other->do('SET ROLE app');
				fails($other, $insert, '25006', qr/election "alpha"/, "$how: " . ($who // 'a superuser') . ' after SET ROLE');
			}
			$node->value("ALTER ROLE free SET $guc = ''");
			succeeds($node->connect_db('other', user => 'free'), $insert, "$how: but not a role with another setting");
			$node->value("ALTER ROLE free RESET $guc");
		}
		win();
		succeeds($dbh, $insert, "$how: on the leader");
		lose();
		$node->value($how{$how}[1]);
	}
}

# ---- in postgresql.conf: it does not catch what keeps the server running ---------
$node->dbh->do("SET $guc = ''");
my $open = $node->connect_db('postgres', user => 'free');
$node->append_conf('postgresql.conf', "$guc = 'alpha'\n");
$node->reload;
poll_is(5, sub { $open->selectrow_array("SHOW $guc") }, 'alpha', 'in postgresql.conf: a session that was open before');
refused($open, 'in postgresql.conf: a session that was open before');
my $client = $node->connect_db('postgres', user => 'free');
poll_is(5, sub { $node->connect_db->selectrow_array("SHOW $guc") }, 'alpha', 'in postgresql.conf');
refused($client, 'in postgresql.conf: one that begins now');
refused($node->connect_db, 'in postgresql.conf: superusers too');

# autovacuum, which analyzes as well: that writes statistics
{
	$node->value('CREATE TABLE worn (i int) WITH (autovacuum_vacuum_threshold = 1, autovacuum_analyze_threshold = 1,
		autovacuum_vacuum_scale_factor = 0, autovacuum_analyze_scale_factor = 0)');
	$node->value('INSERT INTO worn SELECT generate_series(1, 1000)');
	$node->value('DELETE FROM worn WHERE i <= 400');
	poll_ok(60, sub { $node->value(q{SELECT autovacuum_count > 0 AND autoanalyze_count > 0 AND n_dead_tup = 0
		FROM pg_stat_user_tables WHERE relname = 'worn'}) }, 'autovacuum works');
	# it is counted before it commits
	poll_is(10, sub { $node->value(q{SELECT count(*) FROM pg_stats WHERE tablename = 'worn'}) }, 1, 'autovacuum: the statistics are written');
	is($node->value(q{SELECT reltuples FROM pg_class WHERE relname = 'worn'}), 600, 'autovacuum: and those of the table');
}

# Logical replication between two fenced servers,
# neither of which leads: walsenders, tablesync and apply workers.
{
	my $subscriber = EtcdLeader::Instance->create('pg2', etcd => $etcd,
		settings => { ttl => 20, elections => 'alpha,beta', candidate => 'never' },
		conf     => "max_connections = 60\n");
	$subscriber->dbh->do("SET $guc = ''");
	$subscriber->append_conf('postgresql.conf', "$guc = 'alpha'\n");
	$subscriber->reload;
	poll_is(5, sub { $subscriber->connect_db->selectrow_array("SHOW $guc") }, 'alpha', 'in postgresql.conf of the subscriber');
	$node->value('CREATE TABLE copied (i int PRIMARY KEY, note text)');
	$node->value('INSERT INTO copied SELECT generate_series(1, 100)');
	$node->value('CREATE PUBLICATION p FOR TABLE copied');
	$subscriber->value('CREATE TABLE copied (i int PRIMARY KEY, note text)');
	my $log = $subscriber->log_size;
	my $at  = $node->log_size;
	$subscriber->value("CREATE SUBSCRIPTION s CONNECTION 'host=" . $node->host . ' port=' . $node->port . " dbname=postgres' PUBLICATION p");
	poll_is(30, sub { $subscriber->value('SELECT count(*) FROM copied') }, 100, 'logical replication: the first copy');
	poll_is(30, sub { $subscriber->value(q{SELECT string_agg(srsubstate::text, '') FROM pg_subscription_rel}) }, 'r', 'logical replication: is in step');
	$node->value(q{INSERT INTO copied VALUES (101, 'new')});
	$node->value(q{UPDATE copied SET note = 'changed' WHERE i = 1});
	$node->value('DELETE FROM copied WHERE i = 2');
	$node->value('TRUNCATE worn');
	poll_is(20, sub { $subscriber->value(q{SELECT string_agg(i || note, ' ' ORDER BY i) FROM copied WHERE note IS NOT NULL OR i = 2}) },
		'1changed 101new', 'logical replication: changes are applied');
	refused($client, 'and clients are still fenced');
	is($subscriber->log_count('ERROR:', $log), 0, 'logical replication: no error on the subscriber');
	is($node->log_count('walsender .*ERROR:', $at), 0, 'logical replication: none of the walsenders');
	$subscriber->value('DROP SUBSCRIPTION s');

	# walsenders that copy the server
	my $copy = $PostgreSQL::Test::Utils::tmp_check . '/copy';
	PostgreSQL::Test::Utils::command_ok(
		[ 'pg_basebackup', '-D', $copy, '-c', 'fast', '-X', 'stream', '-d', $node->connstr('postgres') ], 'pg_basebackup works');
	$subscriber->stop('fast');
}

# The notifier and the elector are background workers of a superuser: the
# setting of that role is none of theirs.
{
	my $su = $node->value('SELECT current_user');
	$node->value(qq{ALTER ROLE "$su" SET $guc = 'alpha'});
	my ($notifier, $elector) = ($node->notifier_pid, $node->elector_pid);
	$node->value('SELECT pg_terminate_backend(?)', $_) for $notifier, $elector;
	poll_ok(20, sub { ($node->notifier_pid // $notifier) != $notifier && ($node->elector_pid // $elector) != $elector },
		'the own workers are back');
	$node->wait_until_leader('beta');
	my $listener = $node->listen;
	my $began = $node->last_event;
	lose('beta');
	win('beta');
	ok($listener->wait_for(sub { $_[0]->{event} eq 'elected' && $_[0]->{seq} > $began }), 'a transaction that only executes NOTIFY is not fenced');
	# a payload proves nothing
	$node->connect_db('postgres', user => 'free')->do(q{NOTIFY etcd_leader, '{"event":"forged"}'});
	ok($listener->wait_for(sub { $_[0]->{event} eq 'forged' }), 'anybody can NOTIFY on the channel');
	$node->value(qq{ALTER ROLE "$su" RESET $guc});
}
win();
succeeds($client, $insert, 'in postgresql.conf: on the leader all may write');

# ---- without the preload ---------------------------------------------------------
{
	my $plain = EtcdLeader::Instance->create('plain', preload => '');
	$plain->value($_) for 'CREATE ROLE app LOGIN', 'CREATE TABLE ledger (made_by text)', 'GRANT ALL ON ledger TO PUBLIC',
	  "ALTER ROLE app SET $guc = 'alpha'";
	my $dbh = $plain->connect_db('postgres', user => 'app');
	succeeds($dbh, $insert, 'without the preload the setting is not known, and does nothing');
	fails($dbh, 'SELECT etcd_require_leader()', '55000', qr/shared_preload_libraries/, 'without the preload: the function');
	my $recipe = document_block('doc/fence.md', 'session_preload');
	$plain->value($recipe);
	for my $attempt ('', q{-c etcd_leader.require_leadership_of=}, '-c session_preload_libraries=')
	{
		my $in = eval {
			DBI->connect('dbi:Pg:' . join(';', 'host=' . $plain->host, 'port=' . $plain->port, "dbname=postgres",
					(length $attempt ? "options='$attempt'" : ())),
				'app', undef, { RaiseError => 1, PrintError => 0 });
		};
		ok(!$in, "with the recipe the role cannot log in, options '$attempt'") or diag('it can');
		like($@, length $attempt ? qr/cannot be enforced|permission denied/ : qr/"etcd_leader\.require_leadership_of" cannot be enforced.*shared_preload_libraries/s,
			"with the recipe: why, options '$attempt'");
	}
	is($plain->connect_db->selectrow_array('SELECT 1'), 1, 'other roles can');
	# and nothing of it is in the way where the library is preloaded
	$node->value($recipe);
	succeeds($node->connect_db('postgres', user => 'app'), $insert, 'the recipe where the library is preloaded');
}

done_testing();
