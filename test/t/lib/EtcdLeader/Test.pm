# What nearly every test uses: `use EtcdLeader::Test;` is strict and warnings,
# Test::More, PostgreSQL's utilities, a real etcd, servers with the extension, and
# EtcdLeader::Util.
package EtcdLeader::Test;

use strict;
use warnings;

use EtcdLeader::Etcd;
use EtcdLeader::Instance;
use EtcdLeader::Util;
use Exporter ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

sub import
{
	my $caller = caller;
	strict->import;
	warnings->import;
	Exporter::export($_, $caller) for qw(EtcdLeader::Util PostgreSQL::Test::Utils Test::More);
	return;
}

1;
