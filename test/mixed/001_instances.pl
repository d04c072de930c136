# Instances of two releases of PostgreSQL hand over to each other in one election.
# Environment: OLD_CONFIG, the pg_config of the older release.
use EtcdLeader::Test;
use EtcdLeader::Rolling;
use File::Basename qw(dirname);

my $old   = dirname(dirname($ENV{OLD_CONFIG}));
my $etcd  = EtcdLeader::Etcd->new;
my @nodes = (
	EtcdLeader::Instance->create('old1', etcd => $etcd, install_path => $old),
	EtcdLeader::Instance->create('new1', etcd => $etcd),
	EtcdLeader::Instance->create('old2', etcd => $etcd, install_path => $old),
	EtcdLeader::Instance->create('new2', etcd => $etcd));
$nodes[0]->wait_until_leader;
$_->wait_until_candidate for @nodes;

my %release = map { $_->value(q{SELECT current_setting('server_version_num')::int / 10000}) => 1 } @nodes;
is(scalar keys %release, 2, 'two releases: ' . join(', ', sort keys %release));
restart_each($etcd, \@nodes, sub { });
done_testing();
