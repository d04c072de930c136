# The use in doc/changes.md: a table follows keys of etcd, over a restart of the
# elector.
use EtcdLeader::Test;
use EtcdLeader::Documents;
use EtcdLeader::Session;

my ($conf, $follow, $put, $gate, $grant) = map { document_block('doc/changes.md', $_) } qw(setting follow put gate grant);
my @sql = ($follow, $gate);
my @etcdctl = $put =~ /^etcdctl (put \S+ \S+)$/mg;
is(scalar(@etcdctl), 1, 'a command of etcdctl');

my $etcd = EtcdLeader::Etcd->new;
$etcd->etcdctl(qw(put fleet/before 1));
my $pg = EtcdLeader::Instance->create('pg', etcd => $etcd, extension => 'README', conf => "$conf\n");
# an ordinary role
$pg->value($_) for 'CREATE ROLE app LOGIN', 'GRANT CREATE ON SCHEMA public TO app', $grant;
my $session = $pg->connect_db('postgres', user => 'app');
$session->do($sql[0]);
my $app = $pg->connect_db('postgres', user => 'app');
my $is_in_maintenance = sub { $app->selectrow_array($sql[1]) };
start_statement($session, 'CALL follow_fleet()');
my $table = sub { $pg->value(q{SELECT string_agg(key || '=' || value, ' ' ORDER BY key) FROM fleet}) // '' };
poll_is(10, $table, 'fleet/before=1', 'what was there before');
is($is_in_maintenance->(), 0, 'the table has no maintenance at first');
$etcd->etcdctl(split / /, $etcdctl[0]);
poll_ok(10, $is_in_maintenance, 'maintenance by one etcdctl put');
$pg->value('SELECT pg_terminate_backend(?)', $pg->elector_pid);
$etcd->etcdctl(qw(del fleet/before));
$etcd->etcdctl(qw(put fleet/maintenance off));
poll_is(20, $table, 'fleet/maintenance=off', 'over a restart of the elector');
is($is_in_maintenance->(), 0, 'maintenance is over');
waits_in($pg, $session, qr/^Extension/);
is($pg->value(q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'CALL follow%' AND backend_xmin IS NOT NULL}), 0,
	'the session that follows holds no snapshot');
done_testing();
