# Three instances are restarted one after the other, each while it leads, onto
# a newer library: no two lead at once, and each restart is one hand-over.
use EtcdLeader::Test;
use EtcdLeader::Installation;
use EtcdLeader::Rolling;

my $etcd         = EtcdLeader::Etcd->new;
my $dir          = PostgreSQL::Test::Utils::tempdir('rolling');
my $installation = EtcdLeader::Installation->new("$dir/installation");
EtcdLeader::Installation::copy_sources("$dir/sources");
$installation->put_library(EtcdLeader::Installation::build("$dir/sources"));

my @nodes = map { EtcdLeader::Instance->create($_, etcd => $etcd, install_path => $installation->path) } qw(pg1 pg2 pg3);
$nodes[0]->wait_until_leader;
$_->wait_until_candidate for @nodes;

# A process that has loaded the file before shows it as deleted.
sub has_old_library
{
	my ($node) = @_;
	return PostgreSQL::Test::Utils::slurp_file('/proc/' . $node->elector_pid . '/maps') =~ m{/etcd_leader\.so \(deleted\)$}m ? 1 : 0;
}

unlink "$dir/sources/src/session/readers.o";
$installation->put_library(EtcdLeader::Installation::build("$dir/sources", 'ETCD_LEADER_VERSION=1.1'));
is(join(' ', map { has_old_library($_) } @nodes), '1 1 1', 'the new library is installed, the old one runs');

restart_each($etcd, \@nodes, sub { is(has_old_library($_[0]), 0, $_[0]->name . ' has the new library') });
done_testing();
