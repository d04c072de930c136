# The figures that README states, each as a ratio of two medians from one run.
#
#   make bench, or: test/run bench/figures.pl
#
# Environment: CALLS (10000000), ROUNDS (50) hand-overs, IDLE (60) seconds.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../t/lib";
use EtcdLeader::Etcd;
use EtcdLeader::Instance;
use EtcdLeader::Util;
use IO::Handle;
use Test::More;

$| = 1;
my $calls  = $ENV{CALLS}  // 10_000_000;
my $rounds = $ENV{ROUNDS} // 50;
my $idle   = $ENV{IDLE}   // 60;

sub median
{
	my @sorted = sort { $a <=> $b } @_;
	my $n = @sorted;
	return $n % 2 ? $sorted[ $n / 2 ] : ($sorted[ $n / 2 - 1 ] + $sorted[ $n / 2 ]) / 2;
}

sub show
{
	my ($what, $unit, @values) = @_;
	my @sorted = sort { $a <=> $b } @values;
	diag(sprintf '%-52s median %9.3f, min %9.3f, max %9.3f %s (n = %d)',
		$what, median(@values), $sorted[0], $sorted[-1], $unit, scalar @values);
	return median(@values);
}

my $etcd = EtcdLeader::Etcd->new;
my ($a, $b) = map { EtcdLeader::Instance->create($_, etcd => $etcd, settings => { ttl => 10 }, conf => 'jit = off') } qw(pg1 pg2);
$a->wait_until_leader;
$b->wait_until_candidate;

# ---- a statement of many calls, on leader and follower -----------------------

for my $node ($a, $b)
{
	my $dbh = $node->connect_db;
	my $role = $node->is_leader ? 'leader' : 'follower';
	my %times;
	for my $round (1 .. 5)
	{
		for my $function (qw(pg_is_in_recovery etcd_is_leader))
		{
			my $began = now();
			$dbh->selectall_arrayref("SELECT count($function()) FROM generate_series(1, $calls)");
			push @{ $times{$function} }, now() - $began;
		}
	}
	my $base = show("$role: $calls calls of pg_is_in_recovery()", 's', @{ $times{pg_is_in_recovery} });
	my $ours = show("$role: $calls calls of etcd_is_leader()", 's', @{ $times{etcd_is_leader} });
	diag(sprintf '%-52s %.2f', "$role: ratio", $ours / $base);
	cmp_ok($ours / $base, '<=', 1.5, "a statement of calls on the $role");
}

# ---- hand-over -----------------------------------------------------------------

# A process that runs $work->() and writes what it returns; returns (pid, handle).
sub in_background
{
	my ($work) = @_;
	pipe(my $read, my $write) or die $!;
	my $pid = fork // die $!;
	if ($pid == 0)
	{
		close $read;
		$write->autoflush(1);
		eval { $work->($write); 1 } or print STDERR $@;
		POSIX::_exit(0);
	}
	close $write;
	return ($pid, $read);
}

# Milliseconds from calling etcd_resign() on the leader to etcd_is_leader()
# being true on the other.
sub hand_over_ours
{
	my ($old, $new) = $a->is_leader ? ($a, $b) : ($b, $a);
	$new->wait_until_candidate;
	my ($pid, $read) = in_background(
		sub {
			my ($write) = @_;
			my $dbh = $new->connect_db;
			$dbh->{InactiveDestroy} = 0;
			print $write "ready\n";
			my ($leads) = $dbh->selectrow_array("SELECT etcd_wait_for_leadership('10 s') AND etcd_is_leader()");
			print $write ($leads ? now() : 'no'), "\n";
		});
	<$read>;
	pause(0.05);
	my $dbh   = $old->dbh;
	my $began = now();
	$dbh->selectrow_array('SELECT etcd_resign()');
	my $ended = <$read>;
	waitpid $pid, 0;
	return 1000 * ($ended - $began);
}

# An `etcdctl elect`: { pid, out }; its first line is there when it leads.
sub start_etcdctl
{
	my ($value) = @_;
	my $pid = open(my $out, '-|') // die $!;
	if ($pid == 0)
	{
		$ENV{ETCDCTL_API} = 3;
		exec($ENV{ETCDCTL} // 'etcdctl', '--endpoints=' . $etcd->endpoints, 'elect', 'rival', $value) or die $!;
	}
	return { pid => $pid, out => $out };
}

my $leading = start_etcdctl('first');
readline $leading->{out};
my $number = 1;

# Milliseconds from interrupting the one that leads to the next saying so.
sub hand_over_etcdctl
{
	my $next = start_etcdctl('next' . ++$number);
	poll(10, sub { my @queue = $etcd->candidates('rival'); @queue == 2 }) or die 'no second candidate';
	pause(0.05);
	my $began = now();
	kill 'INT', $leading->{pid};
	readline $next->{out};
	my $ended = now();
	close $leading->{out};
	$leading = $next;
	return 1000 * ($ended - $began);
}

my (@ours, @etcdctl);
for my $round (1 .. $rounds)
{
	push @ours, hand_over_ours();
	push @etcdctl, hand_over_etcdctl();
}
kill 'INT', $leading->{pid};
close $leading->{out};
my $ours    = show('hand-over by etcd_resign()', 'ms', @ours);
my $etcdctl = show('hand-over by etcdctl elect, interrupted', 'ms', @etcdctl);
diag(sprintf '%-52s %.2f', 'ratio', $ours / $etcdctl);
cmp_ok($ours / $etcdctl, '<=', 1.0, 'a hand-over takes no longer than that of etcdctl');

# ---- idle -------------------------------------------------------------------------

# Requests, wakeups (voluntary context switches) and CPU of an elector per second.
sub usage
{
	my ($node) = @_;
	my $pid = $node->elector_pid;
	open(my $status, '<', "/proc/$pid/status") or die $!;
	my ($wakeups) = map { /^voluntary_ctxt_switches:\s+(\d+)/ ? $1 : () } <$status>;
	open(my $stat, '<', "/proc/$pid/stat") or die $!;
	my @stat = split ' ', <$stat> =~ s/^.*\) //r;
	my ($requests) = $node->value('SELECT requests FROM etcd_leader_stats');
	return { requests => $requests, wakeups => $wakeups, ticks => $stat[11] + $stat[12] };
}

for my $elections (1, 16)
{
	my $names = join ',', 'postgres', map { "e$_" } 2 .. $elections;
	$_->configure(elections => $names) for $a, $b;
	for my $node ($a, $b)
	{
		poll(30, sub {
				$node->value("SELECT count(*) FROM etcd_leader_status WHERE state IN ('leading', 'waiting')") == $elections
			}) or die 'not settled';
	}
	my %before = map { $_->name => usage($_) } $a, $b;
	my $began = now();
	pause($idle);
	for my $node ($a, $b)
	{
		my $after   = usage($node);
		my $seconds = now() - $began;
		my %rate = map { $_ => ($after->{$_} - $before{ $node->name }{$_}) / $seconds } keys %$after;
		diag(sprintf '%-52s %.2f requests/s, %.2f per TTL/3, %.2f wakeups/s, %.2f %% CPU',
			'idle, TTL 10 s, ' . $node->name . ", elections: $elections",
			$rate{requests}, $rate{requests} * 10 / 3, $rate{wakeups}, $rate{ticks});
		# a beat may lie on the edge of the time that was measured
		cmp_ok($rate{requests}, '<=', 2 / (10 / 3) + 2 / $seconds, 'two requests for each third of a TTL');
		cmp_ok($rate{wakeups}, '<=', 3, 'wakeups');
	}
}

done_testing();
