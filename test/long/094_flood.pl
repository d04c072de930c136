# A flood of 100,000 changes: test/t/094_flood.pl with more of them.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../t/lib";
# their INIT blocks would not run any more
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

$ENV{ETCD_LEADER_FLOOD} //= 100_000;
my $test = "$FindBin::RealBin/../t/094_flood.pl";
defined(do $test) or die $@ || "$test: $!";
