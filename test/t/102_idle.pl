# An elector that has nothing to do sleeps: on the leader and on a candidate it wakes up for
# the renewals alone, and for what can be done with them: 1.3 times a second.  Answers that come
# apart on a busy machine cost a little more; it was 2.4 when each thing had a turn of its own.
use EtcdLeader::Test;

watchdog(150);

my $seconds = 30;
my $etcd    = EtcdLeader::Etcd->new;
my @nodes   = map { EtcdLeader::Instance->create($_, etcd => $etcd, settings => { ttl => 10 }) } qw(pg1 pg2);
$_->wait_until_candidate for @nodes;
poll(10, sub { $etcd->candidates('postgres') == 2 }) or die 'not all are in the queue';

# How often a process has gone to sleep (proc(5)).
sub sleeps
{
	my ($pid) = @_;
	open my $fh, '<', "/proc/$pid/status" or die $!;
	my ($n) = map { /^voluntary_ctxt_switches:\s+(\d+)/ ? $1 : () } <$fh>;
	return $n;
}

sub workers
{
	my ($node) = @_;
	return @{ $node->dbh->selectall_arrayref(q{SELECT pid, backend_type FROM pg_stat_activity WHERE backend_type LIKE 'etcd_leader%'}) };
}

# what begins with a leader is over after a few renewals
sleep 12;
my %before;
for my $node (@nodes)
{
	$before{ $_->[0] } = sleeps($_->[0]) for workers($node);
}
sleep $seconds;
for my $node (@nodes)
{
	my $role = $node->is_leader ? 'the leader' : 'a candidate';
	for my $worker (workers($node))
	{
		my ($pid, $type) = @$worker;
		my $rate = (sleeps($pid) - $before{$pid}) / $seconds;

		note(sprintf '%s, %s: %.2f wake-ups a second', $role, $type, $rate);
		cmp_ok($rate, '<=', $pid == $node->elector_pid ? 1.6 : 0.3, "$role: $type sleeps");
	}
}
done_testing();
