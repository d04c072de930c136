# The time until the next instance leads when the leader's server is killed.
#
#   make bench PARTS=killed      ROUNDS=6
use FindBin;
use lib "$FindBin::RealBin/lib";
use EtcdLeader::Test;
use Bench;
use Bench::Peers;

my $ttl   = 5;
my $bench = Bench->new(name => 'killed', title => 'Server killed', text => <<"END");
SIGKILL to the postmaster of the leader, or to the process of a peer that leads, at a random time of a renewal; TTL $ttl s. Ours
is asked every 2 ms whether it leads.
END
my $rounds = Bench::rounds(6);

my $etcd = EtcdLeader::Etcd->new(flags => ['--enable-v2=true']);
my ($leading, $waiting) = map { EtcdLeader::Instance->create($_, etcd => $etcd, settings => { ttl => $ttl }) } qw(pg1 pg2);
$leading->wait_until_leader;
$waiting->wait_until_candidate;

sub ours
{
	my $dbh = $waiting->connect_db;
	my $asked = $dbh->prepare('SELECT etcd_is_leader()');
	my $leads = sub { $asked->execute; return ($asked->fetchrow_array)[0] };
	$leads->();
	pause(rand($ttl / 3));
	my (undef, @children) = Bench::server_pids($leading->data_dir);
	my $began = now();
	$leading->kill9;
	until ($leads->()) { die "nobody leads\n" if now() > $began + 3 * $ttl; pause(0.002) }
	my $ended = now();
	undef $leading->{el_dbh};
	wait_for_exit($_, 30) or die "a process of the server stays\n" for @children;
	$leading->start;
	poll(30, sub { Bench::Peers::queued($etcd, 'postgres') == 2 }) or die "no second candidate\n";
	($leading, $waiting) = ($waiting, $leading);
	return $ended - $began;
}

sub peer
{
	my ($pair, $start, $queued) = @_;
	pause(rand($ttl / 3));
	$pair->{waiting}->forget;
	my $began = now();
	$pair->{leading}->signal('KILL');
	my $ended = $pair->{waiting}->wait_until_elected(4 * $ttl) or die "nobody is elected\n";
	$pair->{leading}->stop;
	@$pair{qw(leading waiting)} = ($pair->{waiting}, $start->('another'));
	poll(30, sub { $queued->() == 2 }) or die "no second candidate\n";
	return $ended - $began;
}

my %row;
my $table = $bench->table(name => 'killed', title => "Server killed, TTL $ttl s", unit => 's', ours => '`etcd_leader`');
$row{ours} = Bench::row($table, '`etcd_leader`');
my @pairs = [ $row{ours}, \&ours ];
for (
	[ 'Go `concurrency.Election`', sub { Bench::Peers::go($etcd, 'go', $_[0], $ttl) }, sub { Bench::Peers::queued($etcd, 'go') } ],
	[ 'npm `etcd-leader`', sub { Bench::Peers::npm($etcd, 'npm', $_[0], $ttl) }, sub { Bench::Peers::queued_v2($etcd, 'npm') } ])
{
	my ($name, $start, $queued) = @$_;
	my $row = Bench::row($table, $name, goal => '<= 0.1');
	my $pair = $bench->try($name, sub { Bench::Peers::pair($start, $queued) }) or next;
	push @pairs, [ $row, sub { peer($pair, $start, $queued) } ];
}
$bench->in_turn($rounds, @pairs);
$bench->finish;
