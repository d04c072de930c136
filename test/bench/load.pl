# The load of a hand-over on etcd, by the number of waiters.
#
#   make bench PARTS=load      ROUNDS=5, CANDIDATES="10 100 1000"
use FindBin;
use lib "$FindBin::RealBin/lib";
use EtcdLeader::Test;
use Bench;
use Bench::Peers;

my $ttl    = 3600;
my $window = 15;
my $bench = Bench->new(name => 'load', title => 'Load on etcd per hand-over', text => <<"END");
One process has all candidates of a kind (ours without PostgreSQL around them), on an etcd of their own. The leader
resigns and queues again. The figures are the load of the $window s from then on, less the load of the $window s before, when
all candidates waited: messages of gRPC (the gateway's, too) and requests to API v2 that etcd received; and the bytes that it wrote, to clients and disk.
TTL $ttl s, so that renewals are few. The goal is that the waiters' share does not grow: the same figures from 10 to
1,000 candidates. Our share grows: each of our waiters shows who leads, and asks anew when the leader goes. A waiter of a peer knows only its predecessor.
END
my $rounds  = Bench::rounds(5);
my @numbers = split ' ', $ENV{CANDIDATES} // '10 100 1000';

my %table = (
	requests => $bench->table(name => 'load_requests', title => 'Requests per hand-over', unit => 'requests', x => 'candidates', ours => '`etcd_leader`'),
	bytes => $bench->table(name => 'load_bytes', title => 'Bytes written by etcd per hand-over', unit => 'kB', x => 'candidates', ours => '`etcd_leader`'));

sub served
{
	my ($etcd) = @_;
	my ($bytes) = PostgreSQL::Test::Utils::slurp_file('/proc/' . $etcd->pid(0) . '/io') =~ /^wchar: (\d+)/m;
	return { requests => Bench::Peers::requests($etcd), bytes => $bytes / 1000 };
}

# The requests and bytes in the window, including the reads of the counters themselves.
sub in_window
{
	my ($etcd) = @_;
	my $before = served($etcd);
	pause($window);
	my $after = served($etcd);
	return { map { $_ => $after->{$_} - $before->{$_} } keys %$after };
}

for (
	[ '`etcd_leader`', \&Bench::Peers::ours, \&Bench::Peers::queued ],
	[ 'Go `concurrency.Election`', \&Bench::Peers::go, \&Bench::Peers::queued ],
	[ 'npm `etcd-leader`', \&Bench::Peers::npm, \&Bench::Peers::queued_v2 ])
{
	my ($name, $start, $queued) = @$_;
	for my $n (@numbers)
	{
		my %row  = map { $_ => Bench::row($table{$_}, $name, x => $n) } keys %table;
		my $etcd = EtcdLeader::Etcd->new(flags => ['--enable-v2=true']);
		my $many = $bench->try("$name, $n candidates", sub {
			my $started = $start->($etcd, 'load', 'c', $ttl, $n);
			poll(60, sub { $queued->($etcd, 'load') == $n }) or die 'only ' . $queued->($etcd, 'load') . " are in the queue\n";
			return $started;
		}) or next;
		pause(3);
		for my $round (1 .. $rounds)
		{
			$many->forget;
			my $idle = in_window($etcd);
			$many->signal('USR1');
			my $busy = in_window($etcd);
			if (!defined $many->wait_until_elected(5)) { $bench->problem("$name, $n candidates: nobody is elected"); last }
			Bench::sample($row{$_}, $round, $busy->{$_} - $idle->{$_}) for keys %row;
		}
		$many->stop;
		$etcd->stop(0);
	}
}
$bench->finish;
