# The time until the next instance leads when the leader's host is lost.
#
#   make bench PARTS=host_lost      ROUNDS=5
use FindBin;
use lib "$FindBin::RealBin/lib";
use EtcdLeader::Test;
use Bench;
use Bench::Patroni;
use Bench::Peers;

my $ttl   = 5;
my $bench = Bench->new(name => 'host_lost', title => 'Host lost', text => <<"END");
SIGSTOP to all processes of the leader at once, at a random time of a renewal, and SIGCONT when the next instance leads; TTL $ttl s. Ours
is asked every 2 ms whether it leads, Patroni's standby whether it is still in recovery (`ttl: $ttl`, `loop_wait: 1`,
`retry_timeout: 2`). npm's client writes each half of a TTL and the others renew each third, so etcd expires its key earlier: see
[Where the time goes](#where-the-time-goes). The goal of ours is the TTL and the half second in which etcd looks for leases that have expired.
END
my $rounds = Bench::rounds(5);

my $etcd = EtcdLeader::Etcd->new(flags => ['--enable-v2=true']);
my ($leading, $waiting) = map { EtcdLeader::Instance->create($_, etcd => $etcd, settings => { ttl => $ttl }) } qw(pg1 pg2);
$leading->wait_until_leader;
$waiting->wait_until_candidate;

# The seconds from the loss of these processes until $leads->() is true.  It is called
# every 2 ms.
sub lose
{
	my ($leads, @pids) = @_;
	$leads->();
	pause(rand($ttl / 3));
	my $began = now();
	kill 'STOP', @pids;
	my $ended;
	until ($ended) { last if now() > $began + 6 * $ttl; $leads->() ? $ended = now() : pause(0.002) }
	kill 'CONT', @pids;
	return $ended ? $ended - $began : die "nobody leads\n";
}

sub ours
{
	my $asked = $waiting->connect_db->prepare('SELECT etcd_is_leader()');
	my $took = lose(sub { $asked->execute; return ($asked->fetchrow_array)[0] }, Bench::server_pids($leading->data_dir));
	($leading, $waiting) = ($waiting, $leading);
	poll(30, sub { Bench::Peers::queued($etcd, 'postgres') == 2 }) or die "no second candidate\n";
	return $took;
}

sub peer
{
	my ($pair, $queued) = @_;
	$pair->{waiting}->forget;
	my $took = lose(sub { $pair->{waiting}->wait_until_elected(0) }, $pair->{leading}->pid);
	@$pair{qw(leading waiting)} = @$pair{qw(waiting leading)};
	poll(30, sub { $queued->() == 2 }) or die "no second candidate\n";
	# the stopped leader may write something when it runs again
	$pair->{waiting}->forget;
	return $took;
}

sub patroni
{
	my ($patroni) = @_;
	my ($primary, $standby) = $patroni->roles;
	my $took = lose(sub { my $recovers = $patroni->in_recovery($standby); return defined $recovers && !$recovers }, $patroni->pids($primary));
	poll(90, sub { $patroni->streams }) or die "the old primary does not come back\n";
	return $took;
}

my $table = $bench->table(name => 'host_lost', title => "Host lost, TTL $ttl s", unit => 's', ours => '`etcd_leader`', linear => 1);
my @pairs = [ Bench::row($table, '`etcd_leader`', goal => '<= ' . ($ttl + 0.5)), \&ours ];
for (
	[ 'Go `concurrency.Election`', sub { Bench::Peers::go($etcd, 'go', $_[0], $ttl) }, sub { Bench::Peers::queued($etcd, 'go') } ],
	[ 'npm `etcd-leader`', sub { Bench::Peers::npm($etcd, 'npm', $_[0], $ttl) }, sub { Bench::Peers::queued_v2($etcd, 'npm') } ])
{
	my ($name, $start, $queued) = @$_;
	my $row = Bench::row($table, $name, goal => $name =~ /^npm/ ? undef : '<= 1.0');
	my $pair = $bench->try($name, sub { Bench::Peers::pair($start, $queued) }) or next;
	push @pairs, [ $row, sub { peer($pair, $queued) } ];
}
my $row = Bench::row($table, 'Patroni', goal => '<= 1.0');
if (my $patroni = $bench->try('Patroni', sub { Bench::Patroni->new($etcd, $ttl) }))
{
	push @pairs, [ $row, sub { patroni($patroni) } ];
}
$bench->in_turn($rounds, @pairs);
$bench->finish;
