# A server that sends frames without end, from the start on, as the first endpoint and
# as the second one: a table of when the instance leads, which part of a processor
# the elector takes, and how long a fast stop takes.
use EtcdLeader::Test;
use EtcdLeader::Flood;

my $etcd = EtcdLeader::Etcd->new;
my $good = $etcd->url(0);
my $pg   = EtcdLeader::Instance->create('pg', etcd => $etcd, settings => { ttl => 5 });
# one endpoint of two is not more than half of them
$pg->append_conf('postgresql.conf', "etcd_leader.cluster_id = '" . $etcd->cluster_id . "'\n");
$pg->stop;
EtcdLeader::Util::watchdog(900);
my @table;

for my $kind (sort keys %EtcdLeader::Flood::kinds)
{
	my ($url, $process) = EtcdLeader::Flood::serve($kind);
	my @cells;
	for my $endpoints ("$url,$good", "$good,$url")
	{
		my $place = @cells ? 'second' : 'first';
		$pg->append_conf('postgresql.conf', "etcd_leader.endpoints = '$endpoints'\n");
		$pg->start;
		my $began = now();
		poll_ok(10, sub { $pg->is_leader }, "$kind, $place: it leads");
		push @cells, sprintf '%.2f s', now() - $began;
		my $elector = $pg->elector_pid;
		my $cpu     = cpu_seconds($elector);
		my $since   = now();
		pause(3);
		my $part = (cpu_seconds($elector) - $cpu) / (now() - $since);
		push @cells, sprintf '%.1f %%', 100 * $part;
		# libcurl reads up to 80 MB outside of the body before a callback may stop it
		cmp_ok($part, '<', 0.1, "$kind, $place: it leaves the processor to others");
		$began = now();
		$pg->stop('fast');
		push @cells, sprintf '%.2f s', now() - $began;
		cmp_ok(now() - $began, '<', 2, "$kind, $place: a fast stop is fast");
	}
	push @table, sprintf '%-38s %s', $kind, join ' | ', map { sprintf '%8s', $_ } @cells;
	$process->stop('KILL');
}
note(sprintf '%-38s %s', 'without end', 'first: leads, processor, stop | second: leads, processor, stop');
note($_) for @table;

done_testing();
