# doc/patroni.md as it stands: its patroni.yml, its role of etcd, its job and its
# fence work.
use EtcdLeader::Test;
use EtcdLeader::Documents;
use EtcdLeader::Patroni;
use EtcdLeader::Session;

my ($yaml, $users, $login, $job, $fence) = map { document_block('doc/patroni.md', $_) } qw(patroni.yml users login job fence);

my $etcd = EtcdLeader::Etcd->new;
my $dir  = PostgreSQL::Test::Utils::tempdir_short();

# The user of etcd.  Patroni goes in as root.
append_to_file("$dir/password", "geheim-1\n");
chmod 0600, "$dir/password";
my $etcdctl = ($ENV{ETCDCTL} || 'etcdctl') . ' --endpoints=' . $etcd->endpoints;
$etcd->etcdctl(qw(user add root:rootpw));
$etcd->etcdctl(qw(user grant-role root root));
$users =~ s/^etcdctl/$etcdctl/mg;
append_to_file("$dir/script", "set -e\ncd $dir\n$users");
is(system('sh', "$dir/script"), 0, 'the role of the document can be made');
$etcd->etcdctl(qw(auth enable));
$etcd->use_credentials('root', 'rootpw');

# The file of the document, on this machine's addresses and paths.
my $user = getpwuid($<);
chomp(my $bindir = `pg_config --bindir`);
my ($rest, $port) = map { PostgreSQL::Test::Cluster::get_free_port() } 1 .. 2;
my $hosts = $etcd->url(0) =~ s{http://}{}r;
$yaml =~ s/10\.0\.0\.11:8008/127.0.0.1:$rest/g;
$yaml =~ s/10\.0\.0\.11:5432/127.0.0.1:$port/g;
$yaml =~ s/10\.0\.0\.1:2379\S*/$hosts/g;
$yaml =~ s{/var/lib/postgresql/15/batman}{$dir/data};
$yaml =~ s{/var/lib/postgresql/pgpass}{$dir/pgpass};
$yaml =~ s{/usr/lib/postgresql/15/bin}{$bindir};
$yaml =~ s/username: postgres/username: $user/;
$yaml =~ s/10\.0\.0\.0\/24/127.0.0.0\/8/g;
# beyond the document: sockets below this directory, users of etcd, and no fsync
$yaml =~ s/^(etcd3:\n)/$1  username: root\n  password: rootpw\n/m;
my %login = $login =~ /^(\S+) = '(.*)'$/mg;
$login{'etcd_leader.password_file'} = "$dir/password";
$yaml .= "    $_: $login{$_}\n" for sort keys %login;
$yaml .= "    unix_socket_directories: $dir\n    fsync: 'off'\n    max_connections: 40\n";
append_to_file("$dir/patroni.yml", $yaml);

my $patroni = EtcdLeader::Util::Process->spawn(name => 'patroni', log => "$PostgreSQL::Test::Utils::log_path/065_patroni_doc_patroni.log", cmd => [ 'patroni', "$dir/patroni.yml" ]);
my $node = bless { name => 'node1', log => $patroni->{log} =~ s/\.log$//r, dir => $dir, port => $port, process => $patroni }, 'EtcdLeader::Patroni::Member';
END { local $?; $node->kill_all if $node }

poll_ok(60, sub { ($node->try_value('SELECT pg_is_in_recovery()::int') // 1) == 0 }, 'the file of the document starts a primary');
$node->create_extension('README');
$node->wait_until_leader;
is($node->status->{state}, 'leading', 'and it leads');
# an answer that was late once is forgotten after a TTL; a refusal comes again
poll_is(40, sub { $node->value(q{SELECT count(*) FROM etcd_leader_problems WHERE item <> 'version'}) }, 0, 'with a role that may read only');
cmp_ok($node->log_count('WARNING:  etcd at ".*" has version'), '==', $etcd->is_old, 'with that role it knows which etcd this is');
cmp_ok($node->status->{valid_s}, '>', 10, 'the TTL is that of the document');
is($node->value('SELECT node FROM etcd_candidates()'), 'node1', 'etcd_candidates() works with that role');
is($node->value('SELECT etcd_verify_leader()'), $node->token, 'and so does etcd_verify_leader()');

# The job, as pg_cron would run it for an ordinary role.
my ($statement) = $job =~ /\$\$(.*?)\$\$/s;
$node->value('CREATE TABLE rollup (at timestamptz, node text)');
$node->value($_) for 'CREATE ROLE app LOGIN', 'GRANT ALL ON rollup TO app';
$node->connect_db('postgres', user => 'app')->do($statement);
is($node->value('SELECT node FROM rollup'), 'node1', 'the job of the document runs on the leader');

# The three lines for an application that has read the key itself.
{
	my ($leads, $token, $required) = map { $node->value($_) } document_block('doc/patroni.md', 'by_hand') =~ /^(SELECT .*);/mg;
	my ($key) = $etcd->keys('/service/batman/leader');
	is($leads, 1, 'by hand: it leads');
	is($token, $key->{create_revision}, 'by hand: the token is the create revision of the leader key');
	is($required, $token, 'by hand: a fenced transaction has this token');
}

# The fence.
$node->value($fence);
my $app = $node->connect_db('postgres', user => 'app');
succeeds($app, 'INSERT INTO rollup VALUES (now(), NULL)', 'the fence lets the leader write');
$node->configure(elections => 'patroni:batman,other', node_name => 'elsewhere');
poll_is(10, sub { $node->value(q{SELECT etcd_is_leader('patroni:batman')::int}) }, 0, 'it does not lead under another name');
fails($app, 'INSERT INTO rollup VALUES (now(), NULL)', '25006', qr/./, 'and the fence holds');
$patroni->stop('TERM', 20);

done_testing();
