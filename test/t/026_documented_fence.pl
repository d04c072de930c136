# What the documents recommend for commits: the transaction and the setting of
# README, the trigger that closes the gap of the fence, their SQL as it
# stands there; and a gate that all processes of a statement share.
use EtcdLeader::Test;
use EtcdLeader::Documents;
use EtcdLeader::Session;

my $sql = document_block('doc/fence.md', 'refuse_old_token');

my $etcd = EtcdLeader::Etcd->new;
my $node = EtcdLeader::Instance->create('pg1', etcd => $etcd, extension => 'README', settings => { elections => 'shop' });
$node->wait_until_leader;
$node->value($_) for 'CREATE ROLE app LOGIN', 'GRANT CREATE ON SCHEMA public TO app';
$node->connect_db('postgres', user => 'app')->do($sql);
my $token = $node->token;

$node->value('INSERT INTO account (id, balance) VALUES (1, 100)');
is($node->value('SELECT fencing_token FROM account'), $token, 'a row has the token of who wrote it');
is($node->dbh->do('UPDATE account SET balance = balance - 10, fencing_token = 1 WHERE id = 1'), 1, 'and so has the next version');
is($node->value('SELECT fencing_token FROM account'), $token, 'whatever the statement says');

# a session cannot replace a function or an operator that the trigger calls by its own
{
	my $shadow = $node->connect_db;
	$shadow->do($_)
	  for 'CREATE SCHEMA mine', 'CREATE FUNCTION mine.etcd_require_leader() RETURNS bigint LANGUAGE sql AS $$ SELECT 9999999 $$',
	  'CREATE FUNCTION mine.never(bigint, bigint) RETURNS boolean LANGUAGE sql AS $$ SELECT false $$',
	  'CREATE OPERATOR mine.< (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = mine.never)',
	  'SET search_path = mine, pg_catalog, public, etcd_leader', 'UPDATE account SET balance = balance WHERE id = 1';
	is($node->value('SELECT fencing_token FROM account'), $token, "only the extension's function counts");
}

# a newer leader has written here, according to the row
$node->dbh->do('SET session_replication_role = replica');
$node->dbh->do('UPDATE account SET fencing_token = fencing_token + 1');
$node->dbh->do('RESET session_replication_role');
my ($state, $message) = $node->failure('UPDATE account SET balance = 0');
is($state, '25006', 'an older token is refused');
like($message, qr/a newer leader has written here.*Its token is @{[$token + 1]}, ours is $token/s, 'the error of the trigger names both tokens');
is($node->value('SELECT balance FROM account'), 90, 'nothing has changed');

# Both are asked once.  Below a One-Time Filter there is no parallel plan; a
# sub-select leaves it parallel.
$node->value('CREATE TABLE big AS SELECT generate_series(1, 10000) AS i');
my $gated = $node->connect_db;
$gated->do("SET $_") for 'min_parallel_table_scan_size = 0', 'parallel_setup_cost = 0', 'parallel_tuple_cost = 0';
my %processes = (
	'etcd_is_leader()'          => [ 1, qr/Result \(actual rows=\S+ loops=1\)[^>]*One-Time Filter: etcd_is_leader/ ],
	'(SELECT etcd_is_leader())' => [ 3, qr/InitPlan.*\s+->  Result \(actual rows=\S+ loops=1\)[^>]*Output: etcd_is_leader.*Workers Launched: 2.*One-Time Filter: (?!etcd)/s ]);
for my $gate (sort keys %processes)
{
	my ($times, $pattern) = @{ $processes{$gate} };
	my $query = "SELECT count(*) FROM big WHERE $gate";
	my $plan  = join "\n", map { $_->[0] } @{ $gated->selectall_arrayref("EXPLAIN (ANALYZE, VERBOSE, COSTS OFF, TIMING OFF, BUFFERS OFF) $query") };
	like($plan, $pattern, "$gate is called once, and the number of reading processes is $times");
	is($gated->selectrow_array($query), 10000, "$gate on the leader");
}

# The transaction of README, by an ordinary role, one statement after the other; and its role.
my @transaction = map { s/\s*--.*//r } split /\n/, document_block('README.md', 'require_leader');
is($transaction[0] . $transaction[-1], 'BEGIN;COMMIT;', 'README has a whole transaction');
$node->dbh->do('UPDATE account SET balance = 100') if $node->dbh->do('DELETE FROM account') && $node->dbh->do('INSERT INTO account (id, balance) VALUES (1, 100)');
my $session = $node->connect_db('postgres', user => 'app');
$session->do($_) for @transaction;
is($node->value('SELECT balance FROM account'), 90, 'the transaction of README commits on the leader');
$node->value($_) for 'CREATE TABLE plain (i int)', 'GRANT ALL ON plain TO app', document_block('README.md', 'fence_role');
my $app = $node->connect_db('postgres', user => 'app');
$node->value($_) for 'CREATE DATABASE shop', 'CREATE ROLE admin SUPERUSER LOGIN', 'CREATE ROLE other SUPERUSER LOGIN', document_block('doc/fence.md', 'fence_database');
succeeds($app, 'INSERT INTO plain VALUES (1)', 'the role of README writes on the leader');
$session->do($_) for @transaction[ 0 .. $#transaction - 1 ];

# and the trigger fences the transaction by itself
$node->value('SELECT etcd_resign(rejoin => false)');
fails($session, 'COMMIT', '25006', qr/does not lead|any more/, 'the transaction of README does not commit elsewhere');
is($node->value('SELECT balance FROM account'), 90, 'nothing is written on the other node');
fails($app, 'INSERT INTO plain VALUES (2)', '25006', qr{(?:does|did) not lead}, 'the role of README does not write elsewhere');
is($node->value('SELECT count(*) FROM plain'), 1, 'the role of README reads its rows on the other node');
fails($node->connect_db('shop', user => 'other'), 'CREATE TABLE of_other ()', '25006', qr/did not lead/, 'the setting of a database holds for superusers');
succeeds($node->connect_db('shop', user => 'admin'), 'CREATE TABLE of_admin ()', 'the setting of the database does not fence a role with another setting');
is(($node->failure('INSERT INTO account (id, balance) VALUES (2, 1)'))[0], '25006', 'who does not lead does not write');
is($gated->selectrow_array("SELECT count(*) FROM big WHERE $_"), 0, "$_ elsewhere") for sort keys %processes;

done_testing();
