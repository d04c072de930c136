# A password, and a member of etcd on another host that was learned of and has no
# TLS: a WARNING, once, and again after a reload.  The endpoint in the settings is
# on this host, where nobody listens in.
use EtcdLeader::Namespace;
use EtcdLeader::Test;

EtcdLeader::Namespace::make_network('net', '10.1.0.254/24');
my $etcd = EtcdLeader::Etcd->new(members => 2, hosts => [ [ undef, '127.0.0.1', '10.1.0.254' ], [ undef, '10.1.0.254', '10.1.0.254' ] ]);
$etcd->etcdctl(qw(user add root:geheim-1));
$etcd->etcdctl(qw(user grant-role root root));
$etcd->etcdctl(qw(auth enable));
$etcd->use_credentials('root', 'geheim-1');
my $password_file = PostgreSQL::Test::Utils::tempdir() . '/password';
append_to_file($password_file, "geheim-1\n");
chmod 0600, $password_file;

my $node = EtcdLeader::Instance->create('pg1', endpoints => $etcd->url(0), settings => { username => 'root', password_file => $password_file });
$node->wait_until_leader;

my $open = qr/WARNING:  the password of etcd's user "root" is sent to "\Q${\$etcd->url(1)}\E" without encryption/;
poll_is(10, sub { $node->log_count($open) }, 1, 'a member was learned of: a WARNING');
is($node->log_count('HINT:  A member of etcd announces this URL as its own'), 1, 'which says where the URL comes from');
is($node->log_count(qr/is sent to "\Q${\$etcd->url(0)}\E"/), 0, 'none of the endpoint on this host');
# the member is used, and lost: that is no news
$etcd->freeze(0);
poll_is(20, sub { $node->status->{endpoint} }, $etcd->url(1), 'it is used');
$etcd->thaw(0);
$etcd->wait_until_serving(0);
is($node->log_count($open), 1, 'no more of them by that');
my $hint = sub { return $node->value(q{SELECT hint FROM etcd_leader_problems WHERE item = 'encryption'}) // '' };
like($hint->(), qr/^A member of etcd announces this URL as its own/, 'the problem is there');
$node->configure(endpoints => $etcd->endpoints);
poll_ok(10, sub { $hint->() =~ /^Use a URL that begins with "https/ }, 'in the settings: another remedy');
is($node->log_count($open), 1, 'and no line more');

# A wrong password is an answer of etcd; the runbook says so.
$node->stop('fast');
append_to_file($password_file, 'x');
$node->start;
poll_ok(20, sub { ($node->status->{last_error} // '') =~ /authentication failed/ }, 'a wrong password: last_error');
poll_ok(10, sub { $node->status->{connected} }, 'a wrong password: connected is true');
ok($node->log_count('HINT:  Check .*etcd_leader\.password_file'), 'a wrong password: the log warns of it');
is($node->status->{state}, 'joining', 'a wrong password: it is not in the queue');
unlike(slurp_file($node->logfile), qr/geheim/, 'the password is not in the log');
done_testing();
