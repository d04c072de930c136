# One cluster for a long time, half of it at rest, and half under pgbench with a
# hand-over each minute: what the processes of the extension take, and what
# they leave in logs and in etcd, must not grow.  `plots` draws what this notes.
#
# Environment: CHAOS_SECONDS (7200), CHAOS_DATA, a directory for soak.csv.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../t/lib", "$FindBin::RealBin/lib";
use Chaos::History;
use EtcdLeader::Etcd;
use EtcdLeader::Instance;
use EtcdLeader::Util;
use PostgreSQL::Test::Utils;
use Test::More;

my $seconds = $ENV{CHAOS_SECONDS} || 7200;
my $every   = $seconds > 1800 ? 10 : 5;
EtcdLeader::Util::watchdog($seconds + 300);

my $etcd  = EtcdLeader::Etcd->new(members => 3);
my @nodes = map {
	EtcdLeader::Instance->create($_, etcd => $etcd,
		settings => { ttl => 5, http_listen => '127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port() })
} qw(pg1 pg2 pg3);
$_->wait_until_candidate for @nodes;
my @listeners = map { $_->listen } @nodes;
system_or_bail('pgbench', '-i', '-q', '-h', $_->host, '-p', $_->port, 'postgres') for @nodes;

my $dir = Chaos::History::dir();
mkdir $dir;
open my $csv, '>', "$dir/soak.csv" or die "cannot write soak.csv: $!";
$csv->autoflush(1);
print $csv "seconds,phase,instance,what,process,value\n";

# The extension's processes of an instance: by their titles.
my %title = (elector => 'etcd_leader elector', notifier => 'etcd_leader notifier', http => 'etcd_leader http');
my %first;
my %latest;

sub note_value
{
	my ($began, $phase, $name, $what, $process, $value) = @_;
	printf $csv "%.1f,%s,%s,%s,%s,%d\n", now() - $began, $phase, $name, $what, $process, $value;
	push @{ $latest{"$name $process $what"}{$phase} }, $value;
	return;
}

# Memory of its own, file descriptors and TCP connections of each process.
sub measure
{
	my ($began, $phase) = @_;
	for my $node (@nodes)
	{
		my $name = $node->name;
		for my $row ($node->rows(q{SELECT pid, backend_type FROM pg_stat_activity WHERE backend_type LIKE 'etcd_leader%'}))
		{
			my ($process) = $row->{backend_type} =~ /^etcd_leader (\w+)/;
			my $status = eval { PostgreSQL::Test::Utils::slurp_file("/proc/$row->{pid}/status") } or next;
			my ($rss) = $status =~ /^RssAnon:\s+(\d+)/m;
			note_value($began, $phase, $name, 'memory', $process, $rss);
			note_value($began, $phase, $name, 'descriptors', $process, scalar(() = glob "/proc/$row->{pid}/fd/*"));
			note_value($began, $phase, $name, 'connections', $process, scalar($node->tcp_connections($row->{pid})));
		}
		# lines of the extension; pgbench and the listener log nothing
		note_value($began, $phase, $name, 'log', 'server', $node->log_size);
	}
	for my $i ($etcd->all)
	{
		my %metric = (database => 'etcd_mvcc_db_total_size_in_bytes', streams => 'etcd_debugging_mvcc_watcher_total');
		for my $what (sort keys %metric)
		{
			# a member that answers late is not what this is about
			my $value = eval { $etcd->metric($metric{$what}, $i) } // next;
			note_value($began, $phase, "etcd$i", $what, 'etcd', $value);
		}
	}
	return;
}

my $began = now();
my $hand_overs = 0;
for my $phase (qw(rest load))
{
	my $start = now();
	my @load;
	if ($phase eq 'load')
	{
		@load = map {
			EtcdLeader::Util::Process->spawn(log => "$PostgreSQL::Test::Utils::log_path/pgbench_" . $_->name,
				cmd => [ 'pgbench', '-h', $_->host, '-p', $_->port, '-n', '-c', 2, '-R', 50, '-T', int($seconds / 2), 'postgres' ])
		} @nodes;
	}
	my $next = $start + 60;
	while (now() - $start < $seconds / 2)
	{
		measure($began, $phase);
		if ($phase eq 'load' && now() >= $next)
		{
			my ($leader) = grep { $_->is_leader } @nodes;
			if ($leader && $leader->value('SELECT etcd_resign()')) { $hand_overs++ }
			$next += 60;
		}
		pause($every);
	}
	$_->stop for @load;
}
cmp_ok($hand_overs, '>=', int($seconds / 120) - 1, "$hand_overs hand-overs");

# The last quarter of each phase against its second: nothing grows by more than
# a tenth and what one more connection takes.
for my $key (sort keys %latest)
{
	my (undef, undef, $what) = split / /, $key;
	next unless $what =~ /^(?:memory|descriptors|connections|streams)$/;
	for my $phase (qw(rest load))
	{
		my @values = @{ $latest{$key}{$phase} // [] };
		my $quarter = int(@values / 4) or next;
		my $mean = sub { my $sum = 0; $sum += $_ for @_; return $sum / @_ };
		my $then = $mean->(@values[ $quarter .. 2 * $quarter - 1 ]);
		my $now  = $mean->(@values[ @values - $quarter .. $#values ]);
		my $room = $what eq 'memory' ? 300 : 3;
		cmp_ok($now, '<=', 1.1 * $then + $room, sprintf '%s at %s: %.0f, then %.0f', $key, $phase, $then, $now);
	}
}
done_testing();
