# etcd_leader_check(): each mistake in a set-up has a row that tells it.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use EtcdLeader::Etcd;
use EtcdLeader::Instance;
use EtcdLeader::Util;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $etcd = EtcdLeader::Etcd->new;
my $node = EtcdLeader::Instance->create('pg1', etcd => $etcd);
$node->wait_until_leader;
for my $r ($node->rows('SELECT * FROM etcd_leader_check()')) { diag(join ' | ', map { $r->{$_} // '-' } qw(item subject status detail hint)) }
ok(1);
done_testing();
