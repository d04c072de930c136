# The README's recipe that closes what the fence leaves open: its SQL as it
# stands there, and what it promises.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use EtcdLeader::Etcd;
use EtcdLeader::Instance;
use PostgreSQL::Test::Utils;
use Test::More;

my $readme = slurp_file("$FindBin::RealBin/../../README.md");
my ($sql) = $readme =~ /^```sql\n(CREATE TABLE account.*?)^```$/ms;
ok($sql, 'the README has the recipe') or BAIL_OUT('no recipe');

my $etcd = EtcdLeader::Etcd->new;
my $node = EtcdLeader::Instance->create('pg1', etcd => $etcd);
$node->wait_until_leader;
$node->dbh->do($sql);
my $token = $node->token;

$node->value('INSERT INTO account (id, balance) VALUES (1, 100)');
is($node->value('SELECT fencing_token FROM account'), $token, 'a row has the token of who wrote it');
is($node->dbh->do('UPDATE account SET balance = balance - 10, fencing_token = 1 WHERE id = 1'), 1, 'and so has the next version');
is($node->value('SELECT fencing_token FROM account'), $token, 'whatever the statement says');

# a newer leader has written here, as far as the row can tell
$node->dbh->do('SET session_replication_role = replica');
$node->dbh->do('UPDATE account SET fencing_token = fencing_token + 1');
$node->dbh->do('RESET session_replication_role');
my ($state, $message) = $node->failure('UPDATE account SET balance = 0');
is($state, '25006', 'an older token is refused');
like($message, qr/a newer leader has written here.*Its token is @{[$token + 1]}, ours is $token/s, 'and the error says so');
is($node->value('SELECT balance FROM account'), 90, 'nothing has changed');

# and it arms the transaction by itself
$node->value('SELECT etcd_resign(rejoin => false)');
is(($node->failure('INSERT INTO account (id, balance) VALUES (2, 1)'))[0], '25006', 'who does not lead does not write');

done_testing();
