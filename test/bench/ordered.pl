# The cost of the rule ORDERED, and of the dialect, for etcd.
#
#   make bench PARTS=ordered   ROUNDS=3 (of IDLE=40 seconds)
use FindBin;
use lib "$FindBin::RealBin/lib";
use EtcdLeader::Test;
use Bench;
use Bench::Peers;

my $ttl    = 10;
my $number = 10;
my $idle   = $ENV{IDLE} // 40;
my $bench  = Bench->new(name => 'ordered', title => 'What ORDERED costs', text => <<"END");
The rule ORDERED of [protocol.md](../protocol.md#the-rules-that-other-clients-lack): the read of a renewal goes through raft's log. $number candidates,
ours without PostgreSQL around them, TTL $ttl s; one leads and the others wait, for $idle s a round. They begin one after the other, so that
their renewals are apart: renewals that come together would share a sync. "by reads alone" is the same program with
the mistake `core/unordered` of `test/mistakes`, which takes this rule away and no other. "in JSON" is the same program as the first one, by way of etcd's gateway.
Each kind has an etcd of one member to itself, which syncs its log; another etcd has no candidates. All are measured in the same seconds. CPU, syncs of the log, entries of the log and requests (messages
of gRPC, the gateway's, too) are etcd's own counts. Disk writes are the kernel's counts for the process of etcd. Where
"by reads alone" writes nothing, there is no ratio.
END
my $rounds = Bench::rounds(3);

# The resources that etcd has used so far, by its own metrics and by the kernel's.
my @figures = (
	[ 'cpu', 'CPU of etcd', '%', sub { 100 * EtcdLeader::Etcd::sum($_[0], 'process_cpu_seconds_total') } ],
	[ 'written', 'Disk writes of etcd', 'kB/s', sub { $_[1] / 1000 } ],
	[ 'syncs', 'Syncs of the log', '1/s', sub { EtcdLeader::Etcd::sum($_[0], 'etcd_disk_wal_fsync_duration_seconds_count') } ],
	[ 'entries', 'Entries of the log', '1/s', sub { EtcdLeader::Etcd::sum($_[0], 'etcd_server_proposals_applied_total') } ],
	[ 'requests', 'Requests', '1/s', sub { EtcdLeader::Etcd::sum($_[0], 'grpc_server_msg_received_total') } ]);
my %table = map { $_->[0] => $bench->table(name => "ordered_$_->[0]", title => $_->[1], unit => $_->[2], ours => 'ORDERED', linear => 1) } @figures;

sub used
{
	my ($etcd) = @_;
	my $metrics = $etcd->metrics;
	my ($written) = PostgreSQL::Test::Utils::slurp_file('/proc/' . $etcd->pid(0) . '/io') =~ /^write_bytes: (\d+)/m;
	return { at => now(), map { $_->[0] => $_->[3]->($metrics, $written) } @figures };
}

my @kinds;
for ([ 'ORDERED', 'candidates' ], [ 'by reads alone', 'candidates_by_reads' ], [ 'in JSON', 'candidates', json => 1 ], [ 'no candidates' ])
{
	my ($name, $program, @json) = @$_;
	my $etcd = EtcdLeader::Etcd->new(fsync => 1);
	my $many;
	if ($program)
	{
		$many = $bench->try($name, sub {
			my @started = map { pause($ttl / 3 / $number); Bench::Peers::ours($etcd, 'idle', "c$_", $ttl, 1, program => $program, @json) } 1 .. $number;
			poll(60, sub { Bench::Peers::queued($etcd, 'idle') == $number }) or die "not all are in the queue\n";
			return \@started;
		}) or next;
	}
	push @kinds, { etcd => $etcd, many => $many, rows => { map { $_ => Bench::row($table{$_}, $name) } keys %table } };
}
# the start is not measured
pause($ttl);
for my $round (1 .. $rounds)
{
	my @before = map { used($_->{etcd}) } @kinds;
	pause($idle);
	for my $kind (@kinds)
	{
		my ($before, $after) = (shift @before, used($kind->{etcd}));
		my $seconds = $after->{at} - $before->{at};
		Bench::sample($kind->{rows}{$_}, $round, ($after->{$_} - $before->{$_}) / $seconds) for keys %table;
	}
}
$bench->finish;
