# etcd_require_leader() and etcd_verify_leader(): a fenced transaction commits
# only while its instance leads under the same token, whatever it is made of;
# else it leaves nothing, the error says what there is to say, and the session
# goes on.
use EtcdLeader::Test;
use DBD::Pg ();
use EtcdLeader::Relay;
use EtcdLeader::Session;

# A TTL so long that only the test ends a leadership.
my $etcd  = EtcdLeader::Etcd->new;
my $relay = EtcdLeader::Relay->new($etcd->url(0));
my $node  = EtcdLeader::Instance->create(
	'pg1',
	endpoints => $relay->url,
	settings  => { ttl => 20, elections => 'alpha,beta', safety_margin => 10000 },
	init      => { allows_streaming => 1 },
	conf      => "max_prepared_transactions = 5\nmax_connections = 100\n");
my $other = EtcdLeader::Instance->create('pg2', etcd => $etcd, settings => { elections => 'alpha', candidate => 'never' });
$node->wait_until_leader($_) for 'alpha', 'beta';
$other->wait_until_sees('pg1', 'alpha');

sub lose { $node->value('SELECT etcd_resign(?, false)', $_[0] // 'alpha') }

sub win
{
	my $election = $_[0] // 'alpha';
	$node->value('SELECT etcd_campaign(?)', $election);
	$node->value('SELECT etcd_wait_for_leadership(?, ?)', $election, '10 s') or die "not elected: $election";
}

sub cancel_on_loss
{
	my ($value) = @_;
	$node->configure(cancel_on_loss => $value);
	poll_is(5, sub { $node->connect_db->selectrow_array('SHOW etcd_leader.cancel_on_loss') }, $value, "cancel_on_loss is $value");
	return;
}

$node->value('CREATE TABLE ledger (made_by text)');
$node->value('CREATE TABLE deferred (i int)');
$node->value('CREATE TABLE big AS SELECT generate_series(1, 5000) AS i');

# a table of another server, or at least of another database of this one
my $su = $node->value('SELECT current_user');
$node->value('CREATE DATABASE far');
my $far = $node->connect_db('far');
$far->do('CREATE TABLE ledger (made_by text)');
$node->value($_)
  for 'CREATE EXTENSION postgres_fdw',
  "CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '" . $node->host . "', port '" . $node->port . "', dbname 'far')",
  qq{CREATE USER MAPPING FOR PUBLIC SERVER far OPTIONS (user '$su')},
  q{CREATE FOREIGN TABLE far_ledger (made_by text) SERVER far OPTIONS (table_name 'ledger')};

my $s = $node->connect_db;

# ---- results and messages -------------------------------------------------------
{
	is($s->selectrow_array('SELECT etcd_require_leader()'), $node->token('alpha'), 'etcd_require_leader() returns the token of the first election');
	is($s->selectrow_array(q{SELECT etcd_require_leader('beta')}), $node->token('beta'), 'etcd_require_leader(election) returns the token of that election');
	fails($s, q{SELECT etcd_require_leader('nobody')}, '42704', qr/election "nobody" does not exist/, 'an election that is not there');
	fails($s, q{SELECT etcd_verify_leader('nobody')}, '42704', qr/election "nobody" does not exist/, 'the same of etcd_verify_leader()');
	lose();
	poll_is(5, sub { $node->current_leader('alpha') }, undef, 'nobody leads');
	fails($s, 'SELECT etcd_require_leader()', '25006',
		[ qr/^ERROR:  this instance does not lead election "alpha"\n/, qr/^DETAIL:  No leader is known at present\.$/m, qr/^HINT:  .*leader/m ],
		'nobody leads');
	usable($s, 'nobody leads');
	my $rival = $etcd->background_etcdctl('elect', 'alpha', 'the "rival"');
	$node->wait_until_sees('the "rival"', 'alpha');
	fails($s, 'SELECT etcd_require_leader(NULL)', '25006',
		[ qr/election "alpha"/, qr/^DETAIL:  The leader is "the "rival""\.$/m, qr/^HINT:/m ], 'another leads');
	fails($s, 'SELECT etcd_verify_leader()', '25006',
		[ qr/election "alpha"/, qr/^DETAIL:  The leader is "the "rival""\.$/m, qr/^HINT:/m ], 'another leads: etcd_verify_leader()');
	$rival->stop('INT');
	# it may end before its deletion is done
	$etcd->etcdctl('del', '--prefix', 'alpha/');
	# as a key of an earlier life of this server
	$rival = $etcd->background_etcdctl('elect', 'alpha', 'pg1');
	$node->wait_until_sees('pg1', 'alpha');
	fails($s, 'SELECT etcd_require_leader()', '25006', [ qr/^DETAIL:  No leader is known at present\.$/m, qr/^HINT:  Connect to the leader/m ], 'a leader of the name of this instance');
	$rival->stop('INT');
	$etcd->etcdctl('del', '--prefix', 'alpha/');
	win();

	$other->wait_until_sees('pg1', 'alpha');
	# One that observes, and one whose elections others are in.
	fails($other->dbh, 'SELECT etcd_require_leader()', '25006', [ qr/election "alpha"/, qr/The leader is "pg1"/ ], 'an observer');
	fails($other->dbh, 'SELECT etcd_verify_leader()', '25006', [ qr/election "alpha"/, qr/The leader is "pg1"/ ], 'an observer verifies');
}

# ---- a call that fails fences nothing ----------------------------------------------
{
	lose('beta');
	my $sp = $node->connect_db;
	$sp->do('BEGIN');
	$sp->do('SAVEPOINT a');
	fails($sp, q{SELECT etcd_require_leader('beta')}, '25006', qr/election "beta"/, 'not the leader');
	$sp->do('ROLLBACK TO a');
	$sp->do(q{INSERT INTO ledger VALUES ('not fenced')});
	succeeds($sp, 'COMMIT', 'a call that failed fences nothing');
	succeeds($sp, q{DO $$ BEGIN
		BEGIN PERFORM etcd_require_leader('beta'); EXCEPTION WHEN read_only_sql_transaction THEN NULL; END;
		BEGIN PERFORM etcd_verify_leader('beta'); EXCEPTION WHEN read_only_sql_transaction THEN NULL; END;
		INSERT INTO ledger VALUES ('not fenced'); END $$}, 'a call that failed in PL/pgSQL has not fenced the transaction');
	is($node->value(q{DELETE FROM ledger WHERE made_by = 'not fenced' RETURNING (SELECT count(*) FROM ledger)}), 2, 'both were written');
	# nor does it remove the fence
	$sp->do('BEGIN');
	$sp->do('SELECT etcd_require_leader()');
	$sp->do('SAVEPOINT a');
	fails($sp, q{SELECT etcd_require_leader('beta')}, '25006', qr/election "beta"/, 'not the leader of another');
	$sp->do('ROLLBACK TO a');
	$sp->do(q{INSERT INTO ledger VALUES ('fenced')});
	lose();
	fails($sp, 'COMMIT', '25006', qr/election "alpha"/, 'what was fenced before stays so');
	usable($sp, 'what was fenced before stays so');
	win($_) for 'alpha', 'beta';
}

# Its signal goes to the thread that runs PostgreSQL's code, and not to one of another library.
{
	my $sp = $node->connect_db;
	$sp->do('SELECT etcd_require_leader()');
	like(slurp_file("/proc/$sp->{pg_pid}/timers"), qr{^notify: signal/tid\.$sp->{pg_pid}$}m, 'the timer signals a thread');
}

# The timer of cancel_on_loss cannot be created: the backend may queue no signals.
{
	my $sp = $node->connect_db;
	PostgreSQL::Test::Utils::command_ok([ 'prlimit', "--pid=$sp->{pg_pid}", '--sigpending=0:' ], 'a backend that cannot create a timer');
	fails($sp, 'SELECT etcd_require_leader()', '53000', qr/could not create a timer/, 'no timer');
	fails($sp, 'SELECT etcd_verify_leader()', '53000', qr/could not create a timer/, 'no timer: etcd_verify_leader()');
	usable($sp, 'no timer');
	# after the error is caught, the transaction is as it was before the call
	succeeds($sp, q{DO $$ BEGIN
		BEGIN PERFORM etcd_require_leader(); EXCEPTION WHEN insufficient_resources THEN NULL; END;
		PERFORM etcd_resign('alpha', false);
		INSERT INTO ledger VALUES ('no timer'); END $$}, 'no timer: the call has not fenced the transaction');
	is($node->value(q{DELETE FROM ledger WHERE made_by = 'no timer' RETURNING (SELECT count(*) FROM ledger)}), 1, 'no timer: which commits on a node that does not lead');
	win();
	$sp->do('BEGIN');
	$sp->do('SAVEPOINT a');
	fails($sp, 'SELECT etcd_require_leader()', '53000', qr/could not create a timer/, 'no timer, in a savepoint');
	$sp->do('ROLLBACK TO a');
	# the limit is gone: the next call creates the timer, and fences
	PostgreSQL::Test::Utils::command_ok([ 'prlimit', "--pid=$sp->{pg_pid}", '--sigpending=100:' ], 'a backend that can again');
	$sp->do('SELECT etcd_require_leader()');
	$sp->do(q{INSERT INTO ledger VALUES ('fenced')});
	lose();
	fails($sp, 'COMMIT', '25006', qr/election "alpha"/, 'with a timer the transaction is fenced');
	usable($sp, 'with a timer');
	win();
}

# ---- all that a transaction can be made of -------------------------------------

# The view of other sessions.
sub residue
{
	return join ' ', $far->selectrow_array('SELECT count(*) FROM ledger'), map { $node->value($_) } 'SELECT count(*) FROM ledger', 'SELECT count(*) FROM deferred',
	  'SELECT count(*) FROM big', 'SELECT count(*) FROM pg_class', 'SELECT count(*) FROM pg_largeobject_metadata';
}

$node->value(q{CREATE FUNCTION fence_and_forget() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
	PERFORM etcd_require_leader();
	RAISE division_by_zero;
EXCEPTION WHEN division_by_zero THEN NULL; END $$});
$node->value(q{CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO deferred VALUES (1); RETURN NULL; END $$});
$node->value('CREATE TABLE noting (i int)');
$node->value('CREATE CONSTRAINT TRIGGER noted AFTER INSERT ON noting DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION noted()');

my $fence    = 'SELECT etcd_require_leader()';
my $insert = q{INSERT INTO ledger VALUES ('x')};

# [name, statements between BEGIN and COMMIT; a piece of Perl gets the session].
# visible => 0: there is nothing that others could see after it.
my @kinds = (
	[ 'INSERT', $fence, $insert ],
	[ 'fenced after the INSERT', $insert, $fence ],
	[ 'fenced by a prepared statement',
		sub { my $p = $_[0]->prepare('SELECT etcd_require_leader($1)', { pg_server_prepare => 1 }); $p->execute('alpha'); $p->finish },
		$insert ],
	[ 'fenced by etcd_verify_leader()', 'SELECT etcd_verify_leader()', $insert ],
	[ 'fenced in a savepoint that was rolled back', 'SAVEPOINT a', $fence, 'ROLLBACK TO a', $insert ],
	[ 'fenced in a savepoint that failed', 'SAVEPOINT a', $fence, sub { eval { $_[0]->do('SELECT 1/0') } }, 'ROLLBACK TO a', $insert ],
	[ 'fenced in a savepoint that was released', 'SAVEPOINT a', 'SAVEPOINT b', $fence, 'RELEASE a', $insert ],
	[ 'written in a savepoint that was rolled back', $fence, 'SAVEPOINT a', $insert, 'ROLLBACK TO a', $insert ],
	[ 'fenced in an exception block', 'SELECT fence_and_forget()', $insert ],
	[ 'fenced in DO', 'DO $$ BEGIN PERFORM etcd_require_leader(); END $$', $insert ],
	[ 'fenced by a row of COPY', sub { copy_in($_[0], "COPY fencing FROM STDIN", "1\n") }, $insert ],
	[ 'COPY', $fence, sub { copy_in($_[0], 'COPY ledger FROM STDIN', "x\ny\n") } ],
	[ 'CREATE TABLE', $fence, 'CREATE TABLE made (i int)' ],
	[ 'CREATE INDEX and ALTER TABLE', $fence, 'CREATE INDEX made_index ON big (i)', 'ALTER TABLE big ADD made int' ],
	[ 'TRUNCATE', $fence, 'TRUNCATE big' ],
	[ 'a temporary table', $fence, 'CREATE TEMPORARY TABLE made_temp AS SELECT 1 AS i' ],
	[ 'a temporary table with ON COMMIT DROP', $fence, 'CREATE TEMPORARY TABLE made_temp2 (i int) ON COMMIT DROP', $insert ],
	[ 'large objects', $fence, q{SELECT lo_from_bytea(0, 'x')} ],
	[ 'a deferred trigger', $fence, 'INSERT INTO noting VALUES (1)' ],
	[ 'a cursor', $fence, 'DECLARE c CURSOR FOR SELECT * FROM big', 'FETCH 5 FROM c', $insert ],
	[ 'fenced by a cursor', 'DECLARE c CURSOR FOR SELECT etcd_require_leader()', 'FETCH c', $insert ],
	[ 'a cursor WITH HOLD', $fence, 'DECLARE held CURSOR WITH HOLD FOR SELECT * FROM big', $insert ],
	[ 'a parallel query', $fence, sub { parallel($_[0], 'SELECT count(*) FROM big') }, $insert ],
	[ 'fenced in a parallel query',
		sub { parallel($_[0], 'SELECT etcd_require_leader(), i FROM big WHERE i < 100') }, $insert ],
	[ 'another server', $fence, q{INSERT INTO far_ledger VALUES ('x')} ],
	[ 'another server, and here', $insert, $fence, q{INSERT INTO far_ledger VALUES ('x')} ],
	[ 'several elections', $fence, q{SELECT etcd_require_leader('beta')}, $insert ],
	[ 'several elections, this one last', q{SELECT etcd_require_leader('beta')}, $insert, $fence ],
	[ 'fenced many times', ($fence) x 40, $insert ],
	[ 'NOTIFY', $fence, 'NOTIFY elsewhere', $insert ],
	[ 'nothing written', [ 0 ], $fence, 'SELECT count(*) FROM big' ],
	[ 'row locks', [ 0 ], $fence, 'SELECT * FROM big WHERE i = 1 FOR UPDATE' ],
	[ 'READ ONLY', [ 0 ], 'SET TRANSACTION READ ONLY', $fence ],
	[ 'SERIALIZABLE', 'SET TRANSACTION ISOLATION LEVEL SERIALIZABLE', $fence, $insert ],
);
# A trigger may call it for each row.
{
	my $s = $node->connect_db;
	my $used = q{SELECT sum(used_bytes) FROM pg_backend_memory_contexts WHERE name IN ('TopTransactionContext', 'TopMemoryContext')};
	my $call = 'SELECT count(etcd_require_leader()) FROM generate_series(1, 100000)';
	$s->do('BEGIN');
	$s->do($_) for $call, $used;
	my $before = $s->selectrow_array($used);
	$s->do($call);
	cmp_ok($s->selectrow_array($used) - $before, '<', 10_000, 'another 100,000 calls take no memory until the commit');
	$s->do('COMMIT');
}

$node->value('CREATE TABLE fencing (i int CHECK (etcd_require_leader() >= i))');

sub copy_in
{
	my ($dbh, $sql, @data) = @_;
	$dbh->do($sql);
	$dbh->pg_putcopydata($_) for @data;
	$dbh->pg_putcopyend;
}

sub parallel
{
	my ($dbh, $sql) = @_;
	my ($guc) = $dbh->selectrow_array(q{SELECT name FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')});
	$dbh->do("SET LOCAL $guc = on; SET LOCAL min_parallel_table_scan_size = 0; SET LOCAL parallel_setup_cost = 0; SET LOCAL parallel_tuple_cost = 0");
	my $plan = join "\n", map { $_->[0] } @{ $dbh->selectall_arrayref("EXPLAIN $sql") };
	like($plan, qr/Gather/, 'the query is parallel');
	$dbh->selectall_arrayref($sql);
}

sub run_steps
{
	my ($dbh, @steps) = @_;
	for my $step (@steps) { ref $step ? $step->($dbh) : $dbh->do($step) }
}

# ---- a statement that is a transaction by itself, and writes to another server --
# The callback of postgres_fdw comes before the callback of the fence.
{
	my $body = q{BEGIN PERFORM etcd_require_leader(); INSERT INTO far_ledger VALUES ('x'); PERFORM etcd_resign('alpha', false); END};
	$node->value("CREATE FUNCTION write_far() RETURNS void LANGUAGE plpgsql AS \$\$ $body \$\$");
	$node->value("CREATE PROCEDURE call_far() LANGUAGE plpgsql AS \$\$ $body \$\$");
	my @writers = (
		[ 'DO', "DO \$\$ $body \$\$" ],
		[ 'CALL', 'CALL call_far()' ],
		[ 'the last of several statements', 'SELECT 1; CALL call_far()' ],
		[ 'SELECT', 'SELECT write_far()' ],
		[ 'EXPLAIN ANALYZE', 'EXPLAIN ANALYZE SELECT write_far()' ],
		[ 'DO, cancel_on_loss is off', "DO \$\$ $body \$\$", 'off' ],
		[ 'SELECT, cancel_on_loss is off', 'SELECT write_far()', 'off' ],
	);
	for my $writer (@writers)
	{
		my ($name, $sql, $cancel) = @$writer;
		cancel_on_loss($cancel) if $cancel;
		my $before = residue();
		fails($s, $sql, '25006', qr/election "alpha" any more/, "another server, $name");
		usable($s, "another server, $name");
		is(residue(), $before, "another server, $name: nothing is there");
		cancel_on_loss('on') if $cancel;
		win();
	}
	# a block goes on until its COMMIT, or can be rolled back
	$s->do('BEGIN');
	$s->do($_) for $fence, 'SAVEPOINT a';
	lose();
	succeeds($s, 'ROLLBACK TO a', 'ROLLBACK TO after a loss');
	succeeds($s, 'ROLLBACK', 'ROLLBACK after a loss');
	usable($s, 'ROLLBACK after a loss');
	win();
}

my $refused = $node->value('SELECT commits_refused FROM etcd_leader_stats');
for my $kind (@kinds)
{
	my ($name, @steps) = @$kind;
	my $visible = 1;
	($visible) = @{ shift @steps } if ref $steps[0] eq 'ARRAY';
	my $before = residue();

	$s->do('BEGIN');
	run_steps($s, @steps);
	$s->do('ROLLBACK');
	is(residue(), $before, "$name: rolled back");

	$s->do('BEGIN');
	run_steps($s, @steps);
	lose();
	fails($s, 'COMMIT', '25006',
		[ qr/^ERROR:  this instance does not lead election "alpha" any more$/m, qr/^DETAIL:  .*fencing token \d+\.$/m, qr/^HINT:  .*on the leader\.$/m ],
		"$name: lost");
	usable($s, "$name: lost");
	is(residue(), $before, "$name: lost: it leaves nothing");
	succeeds($s, 'SELECT 1', "$name: lost: the next transaction is not fenced");
	win();

	# lost and won again, under another token
	$s->do('BEGIN');
	run_steps($s, @steps);
	lose();
	win();
	fails($s, 'COMMIT', '25006', [ qr/election "alpha"/, qr/^HINT:  This instance leads again\. Run the whole transaction again\.$/m ], "$name: another token");
	usable($s, "$name: another token");
	is(residue(), $before, "$name: another token: it leaves nothing");

	$s->do('BEGIN');
	run_steps($s, @steps);
	succeeds($s, 'COMMIT', "$name: it commits");
	is(residue() ne $before ? 1 : 0, $visible, "$name: and is there");
	$s->do('DISCARD ALL');
	$s->do('DROP TABLE IF EXISTS made; DROP INDEX IF EXISTS made_index; ALTER TABLE big DROP COLUMN IF EXISTS made');
	$s->do('INSERT INTO big SELECT generate_series(1, 5000)') if $name eq 'TRUNCATE';
}
is($node->value('SELECT commits_refused FROM etcd_leader_stats') - $refused, 2 * @kinds, 'each commit that was refused is counted');

# ---- in a parallel worker ---------------------------------------------------------
# A function with a wrong mark PARALLEL SAFE raises an error: the fence of a
# worker would end with the worker, and the transaction would not notice.
for my $call ('etcd_require_leader', 'etcd_verify_leader')
{
	$node->value("CREATE OR REPLACE FUNCTION mismarked() RETURNS bigint LANGUAGE plpgsql PARALLEL SAFE AS \$\$ BEGIN RETURN $call(); END \$\$");
	$s->do('BEGIN');
	$s->do('SET LOCAL parallel_leader_participation = off');
	fails($s, sub { parallel($s, 'SELECT mismarked(), i FROM big WHERE i < 100') }, '25000',
		[ qr/cannot require leadership in a parallel worker/, qr/PARALLEL RESTRICTED/ ], "$call() in a parallel worker");
	$s->do('ROLLBACK');
	usable($s, "$call() in a parallel worker");
	$s->do('BEGIN');
	succeeds($s, 'SELECT mismarked() FROM big WHERE i < 100', "$call(): the same function in the leader of the query");
	$s->do($insert);
	lose();
	fails($s, 'COMMIT', '25006', qr/election "alpha"/, "$call(): and it has fenced the transaction");
	win();
}

# ---- large objects through the function calls of the protocol -------------------
# These are no statements: nothing but the commit sees them.
{
	my $before = residue();
	my $write  = sub {
		my ($dbh) = @_;
		$dbh->begin_work;
		$dbh->do($fence);
		my $oid = $dbh->pg_lo_creat($dbh->{pg_INV_WRITE});
		my $fd  = $dbh->pg_lo_open($oid, $dbh->{pg_INV_WRITE});
		$dbh->pg_lo_write($fd, 'x', 1);
		$dbh->pg_lo_close($fd);
	};
	$write->($s);
	lose();
	fails($s, sub { $s->commit }, '25006', qr/election "alpha" any more/, 'calls for large objects: lost');
	$s->rollback if !$s->{AutoCommit};
	usable($s, 'calls for large objects: lost');
	is(residue(), $before, 'calls for large objects: lost: they leave nothing');
	win();
	$write->($s);
	succeeds($s, sub { $s->commit }, 'calls for large objects: they commit');
	isnt(residue(), $before, 'calls for large objects: and are there');
}

# ---- as a single statement, in each protocol ------------------------------------

# It loses leadership itself.
{
	my $before  = residue();
	my $suicide = q{INSERT INTO ledger SELECT etcd_require_leader()::text FROM (SELECT 1) AS a};
	my $with    = q{WITH fenced AS MATERIALIZED (SELECT etcd_require_leader() AS token),
		lost AS MATERIALIZED (SELECT token, etcd_resign('alpha', false) AS r FROM fenced)
		INSERT INTO ledger SELECT token::text FROM lost};
	fails($s, $with, '25006', qr/election "alpha"/, 'one statement, simple protocol');
	usable($s, 'one statement, simple protocol');
	win();
	fails($s, sub { my $p = $s->prepare($with . ' WHERE token > $1', { pg_server_prepare => 1 }); $p->execute(0) },
		'25006', qr/election "alpha"/, 'one statement, extended protocol');
	usable($s, 'one statement, extended protocol');
	win();
	fails($s, "$suicide; SELECT etcd_resign('alpha', false); $suicide", '25006', qr/election "alpha"/, 'statements in one message');
	usable($s, 'statements in one message');
	win();
	fails($s, q{DO $$ BEGIN PERFORM etcd_require_leader(); INSERT INTO ledger VALUES ('x'); PERFORM etcd_resign('alpha', false); END $$},
		'25006', qr/election "alpha"/, 'DO');
	usable($s, 'DO');
	win();
	is(residue(), $before, 'single statements: nothing is left');
	succeeds($s, $suicide, 'one statement: it commits');
	isnt(residue(), $before, 'one statement: and is there');
}

# A pipeline, of pgbench: the statements after the error up to the end are skipped,
# and earlier statements of the same transaction are rolled back.
{
	my $script = $PostgreSQL::Test::Utils::tmp_check . '/pipeline.sql';
	my $run = sub {
		my ($loss) = @_;
		open my $fh, '>', $script or die;
		print $fh "\\startpipeline\nBEGIN;\nSELECT etcd_require_leader();\nINSERT INTO ledger VALUES ('pipeline');\n"
		  . ($loss ? "SELECT etcd_resign('alpha', false);\n" : '')
		  . "COMMIT;\nINSERT INTO ledger VALUES ('behind');\n\\endpipeline\n";
		close $fh;
		my ($out, $err) = ('', '');
		IPC::Run::run([ 'pgbench', '-n', '-t', 1, '-M', 'extended', '-f', $script, '-d', $node->connstr('postgres') ],
			'<', \undef, '>', \$out, '2>', \$err);
		return $err;
	};
	my $count = sub { $node->value(q{SELECT count(*) FROM ledger WHERE made_by IN ('pipeline', 'behind')}) };
	like($run->(1), qr/does not lead election "alpha" any more/, 'a pipeline: lost');
	is($count->(), 0, 'a pipeline: lost: nothing is left');
	win();
	unlike($run->(0), qr/ERROR/, 'a pipeline: it commits');
	is($count->(), 2, 'a pipeline: and is there');
}

# ---- chained transactions, procedures that commit --------------------------------
{
	my $before = residue();
	$s->do('BEGIN');
	$s->do($fence);
	$s->do('SELECT 1');
	succeeds($s, 'COMMIT AND CHAIN', 'COMMIT AND CHAIN: the first one commits');
	lose();
	$s->do($insert);
	succeeds($s, 'COMMIT AND CHAIN', 'COMMIT AND CHAIN: the second one was not fenced');
	$s->do('ROLLBACK');
	isnt(residue(), $before, 'COMMIT AND CHAIN: and is there');
	win();
	$before = residue();
	$s->do('BEGIN');
	$s->do($fence);
	$s->do($insert);
	lose();
	fails($s, 'COMMIT AND CHAIN', '25006', qr/election "alpha"/, 'COMMIT AND CHAIN: lost');
	usable($s, 'COMMIT AND CHAIN: lost');
	is(residue(), $before, 'COMMIT AND CHAIN: lost: it leaves nothing');
	win();
	$s->do('BEGIN');
	$s->do($fence);
	$s->do($insert);
	lose();
	$s->do('ROLLBACK AND CHAIN');
	$s->do($insert);
	succeeds($s, 'COMMIT', 'ROLLBACK AND CHAIN: the second one was not fenced');
	win();

	my $loss = q{PERFORM etcd_resign('alpha', false);};
	my $gain = q{PERFORM etcd_campaign('alpha'); PERFORM etcd_wait_for_leadership('alpha', '10 s');};
	for my $cancel (qw(on off))
	{
		cancel_on_loss($cancel);
		for my $how ('procedure', 'DO')
		{
			$node->value('TRUNCATE ledger');
			my $body = qq{\$\$ BEGIN
				PERFORM etcd_require_leader(); INSERT INTO ledger VALUES ('1 fenced'); COMMIT;
				$loss
				INSERT INTO ledger VALUES ('2 not fenced'); COMMIT;
				INSERT INTO ledger VALUES ('3 rolled back'); ROLLBACK;
				$gain
				PERFORM etcd_require_leader(); INSERT INTO ledger VALUES ('4 fenced'); COMMIT;
				PERFORM etcd_require_leader(); INSERT INTO ledger VALUES ('5 lost'); $loss COMMIT;
				INSERT INTO ledger VALUES ('6 not reached'); END \$\$};
			my $call = "DO $body";
			if ($how eq 'procedure')
			{
				$node->value("CREATE OR REPLACE PROCEDURE stages() LANGUAGE plpgsql AS $body");
				$call = 'CALL stages()';
			}
			fails($s, $call, '25006', qr/election "alpha"/, "$how, cancel_on_loss $cancel: the last transaction is lost");
			usable($s, "$how, cancel_on_loss $cancel");
			is($node->value(q{SELECT string_agg(made_by, ', ' ORDER BY made_by) FROM ledger}), '1 fenced, 2 not fenced, 4 fenced',
				"$how, cancel_on_loss $cancel: each transaction stands for itself");
			win();
		}
	}
	cancel_on_loss('on');
}

# ---- two-phase commit ---------------------------------------------------------
{
	my $before = residue();
	$s->do('BEGIN');
	$s->do($fence);
	$s->do($insert);
	fails($s, q{PREPARE TRANSACTION 'fenced'}, '0A000', qr/election "alpha"/, 'PREPARE TRANSACTION');
	usable($s, 'PREPARE TRANSACTION');
	$s->do('BEGIN');
	$s->do('SAVEPOINT a');
	$s->do($fence);
	$s->do('ROLLBACK TO a');
	$s->do($insert);
	lose();
	fails($s, q{PREPARE TRANSACTION 'fenced'}, '0A000', qr/election "alpha"/, 'PREPARE TRANSACTION, lost');
	usable($s, 'PREPARE TRANSACTION, lost');
	is($node->value('SELECT count(*) FROM pg_prepared_xacts'), 0, 'nothing is prepared');
	is(residue(), $before, 'nothing is written');
	# anybody can prepare and commit a transaction that is not fenced
	$s->do('BEGIN');
	$s->do($insert);
	succeeds($s, q{PREPARE TRANSACTION 'free'}, 'what is not fenced can be prepared');
	succeeds($s, q{COMMIT PREPARED 'free'}, 'a prepared transaction of a role without the setting can be committed');
	win();
}

# ---- several elections: each of them counts ------------------------------------
for my $lost ('alpha', 'beta')
{
	my $before = residue();
	my $kept   = $lost eq 'alpha' ? 'beta' : 'alpha';
	$s->do('BEGIN');
	$s->do(q{SELECT etcd_require_leader('alpha'), etcd_require_leader('beta')});
	$s->do($insert);
	lose($lost);
	fails($s, 'COMMIT', '25006', qr/^ERROR:  this instance does not lead election "$lost"/, "two elections, $lost lost");
	usable($s, "two elections, $lost lost");
	is(residue(), $before, "two elections, $lost lost: it leaves nothing");
	$s->do('BEGIN');
	$s->do('SELECT etcd_require_leader(?)', undef, $kept);
	$s->do($insert);
	succeeds($s, 'COMMIT', "only $kept fenced, $lost lost: it commits");
	win($lost);

	# fenced again under another token, in the same transaction
	cancel_on_loss('off');
	$s->do('BEGIN');
	$s->do('SELECT etcd_require_leader(?)', undef, $lost);
	$s->do('SAVEPOINT a');
	$before = residue();
	$s->do($insert);
	lose($lost);
	win($lost);
	fails($s, "SELECT etcd_require_leader('$lost')", '25006', qr/election "$lost" any more/, "$lost fenced again under another token");
	$s->do('ROLLBACK TO a');
	$s->do($insert);
	fails($s, 'COMMIT', '25006', qr/election "$lost"/, "$lost fenced again under another token: the first one counts");
	is(residue(), $before, "$lost fenced again under another token: it leaves nothing");
	cancel_on_loss('on');
}

# Returns just after a renewal: the next one comes in a third of the TTL of 20 s, and
# the deadline is 10 s away.
sub after_a_renewal
{
	poll(10, sub { ($node->status('alpha')->{valid_s} // 0) > 9 }) or die 'no renewal';
	return;
}

# ---- won again under the same token ------------------------------------------
# The elector is frozen past the deadline, which comes half a TTL before the
# lease ends: its key stands, and it leads again under it.
{
	my $token  = $node->token('alpha');
	my $before = residue();
	my $pid    = $node->elector_pid;
	# a renewal may come two seconds late
	$node->configure(ttl => 12, safety_margin => 6000);
	poll(10, sub { my ($key) = $etcd->candidates('alpha'); ($etcd->lease($key->{lease}))[0] == 12 }) or die 'the TTL is not shorter';
	poll(10, sub { my $t = $node->status->{valid_s}; defined $t && $t < 6 }) or die 'the margin is not shorter';
	my ($commits, $waits) = map { $node->connect_db } 1 .. 2;
	for my $dbh ($commits, $waits)
	{
		$dbh->do('BEGIN');
		$dbh->do($fence);
		$dbh->do($insert);
	}
	kill 'STOP', $pid;
	poll(10, sub { !$node->is_leader('alpha') }) or die 'the deadline did not pass';
	fails($commits, 'COMMIT', '25006', qr/election "alpha"/, 'past the deadline');
	fails($s, $fence, '25006', [ qr/election "alpha"/, qr/DETAIL/ ], 'past the deadline: fencing');
	kill 'CONT', $pid;
	$node->wait_until_leader('alpha', 10);
	is($node->token('alpha'), $token, 'it leads again under the same token');
	succeeds($waits, 'COMMIT', 'a transaction that was fenced before under the same token commits');
	isnt(residue(), $before, 'its row is there');
	usable($commits, 'past the deadline');
	$node->configure(ttl => 20, safety_margin => 10000);
	poll_ok(10, sub { my $t = $node->status->{valid_s}; defined $t && $t > 6 }, 'the TTL is longer');
}

# ---- who may ------------------------------------------------------------------
{
	$node->value('CREATE ROLE joe LOGIN');
	my $joe = $node->connect_db('postgres', user => 'joe');
	succeeds($joe, $fence, 'PUBLIC may call etcd_require_leader()');
	fails($joe, 'SELECT etcd_verify_leader()', '42501', qr/etcd_verify_leader/, 'an ordinary role may not call etcd_verify_leader()');
	$node->value('GRANT EXECUTE ON FUNCTION etcd_verify_leader(text, interval) TO joe');
	succeeds($joe, 'SELECT etcd_verify_leader()', 'etcd_verify_leader() can be granted');
}

# ---- etcd_verify_leader() -------------------------------------------------------

{
	is($s->selectrow_array('SELECT etcd_verify_leader()'), $node->token('alpha'), 'etcd_verify_leader() returns the token');
	is($s->selectrow_array(q{SELECT etcd_verify_leader('beta', NULL)}), $node->token('beta'), 'NULL: without a timeout');
	my $reads = $node->value('SELECT requests FROM etcd_leader_stats');
	$s->do('SELECT etcd_verify_leader()') for 1 .. 5;
	cmp_ok($node->value('SELECT requests FROM etcd_leader_stats') - $reads, '>=', 5, 'each call asks etcd');

	# More at once than the mailbox has places: they share the reads.
	my @many = map { $node->connect_db } 1 .. 40;
	$relay->freeze;
	start_statement($_, q{SELECT etcd_verify_leader('alpha', '30 s')}) for @many;
	waits_in($node, $_, qr/^Extension/) for @many;
	# All of the instance's own work goes on.
	succeeds($s, 'SELECT etcd_is_leader()', 'reading does not wait for them');
	$reads = $node->value('SELECT requests FROM etcd_leader_stats');
	$relay->thaw;
	my %outcomes;
	$outcomes{ outcome($_) }++ for @many;
	is(join(', ', map { "$_ x $outcomes{$_}" } sort keys %outcomes), 'done x 40', '40 at once: all are answered');
	cmp_ok($node->value('SELECT requests FROM etcd_leader_stats') - $reads, '<', 30, '40 at once: by fewer reads');

	# They end at the timeout, can be cancelled, and are not in the way then.
	after_a_renewal();
	$relay->freeze;
	for my $timeout ('0', '300 ms', '1 s')
	{
		my $seconds = { '0' => 0, '300 ms' => 0.3, '1 s' => 1 }->{$timeout};
		my $took    = fails($s, "SELECT etcd_verify_leader('alpha', '$timeout')", '25006', [ qr/election "alpha"/, qr/DETAIL/, qr/HINT/ ],
			"no answer after $timeout");
		cmp_ok($took, '>=', $seconds, "no answer after $timeout: not before");
		in_time($took - $seconds, 0.7, "no answer after $timeout: and not long after");
	}
	is($node->is_leader('alpha'), 1, 'an instance that waits for etcd still leads until its deadline');
	for my $dbh (@many[ 0 .. 19 ]) { start_statement($dbh, q{SELECT etcd_verify_leader('alpha', '400 ms')}) }
	%outcomes = ();
	$outcomes{ substr outcome($_), 0, 5 }++ for @many[ 0 .. 19 ];
	is(join(', ', map { "$_ x $outcomes{$_}" } sort keys %outcomes), '25006 x 20', '20 at once: all end at their timeout');

	my $waiting = $many[0];
	start_statement($waiting, q{SELECT etcd_verify_leader('alpha', NULL)});
	waits_in($node, $waiting, qr/^Extension/);
	$node->value('SELECT pg_cancel_backend(?)', $waiting->{pg_pid});
	like(outcome($waiting, 3), qr/^57014 /, 'it can be cancelled');
	usable($waiting, 'it can be cancelled');
	$waiting->do('SET statement_timeout = 300');
	fails($waiting, q{SELECT etcd_verify_leader('alpha', NULL)}, '57014', qr/statement timeout/, 'statement_timeout ends it');
	usable($waiting, 'statement_timeout ends it');

	# Those that have left must not keep others from giving up leadership.
	my $resigning = $many[1];
	start_statement($resigning, q{SELECT etcd_resign('alpha', false)});
	poll_is(3, sub { $node->is_leader('alpha') }, 0, 'etcd_resign() is heard behind all of them');
	$relay->thaw;
	is(outcome($resigning), 'done', 'the resignation is done when etcd is back');
	$_->disconnect for @many;
	poll(10, sub { $node->status->{connected} }) or die 'not connected';
	win();
	poll_ok(10, sub { scalar eval { $s->selectrow_array('SELECT etcd_verify_leader()') } }, 'when etcd is back it works again');
}

# The key is deleted, and no event of the watch arrives: until
# the next renewal, which is seconds away, nobody knows, except a session that asks etcd.
{
	is($s->selectrow_array('SELECT etcd_verify_leader()'), $node->token('alpha'), 'it leads');
	# the next in the queue, so that it does not win at once again
	my $rival = $etcd->background_etcdctl('elect', 'alpha', 'rival');
	poll(10, sub { 2 == $etcd->candidates('alpha') }) or die 'the rival is not in the queue';
	after_a_renewal();
	$relay->stall_watches;
	my $key = $node->status('alpha')->{key};
	$s->do('BEGIN');
	$s->do($fence);
	$etcd->etcdctl('del', $key);
	my $believed = $node->is_leader('alpha');
	fails($node->connect_db, 'SELECT etcd_verify_leader()', '25006', qr/election "alpha"/, 'the key is gone: etcd_verify_leader()');
	is($node->token('alpha'), undef, 'the token is gone for the whole instance after the verification');
	fails($s, 'COMMIT', '25006', qr/election "alpha"/, 'a transaction that was fenced before is refused');
	is($believed, 1, 'the instance believed that it led before the verification');
	$rival->stop('INT');
}

done_testing();
