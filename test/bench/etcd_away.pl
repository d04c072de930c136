# The time until there is a leader after etcd was down for a while.
#
#   make bench PARTS=etcd_away      ROUNDS=3
use FindBin;
use lib "$FindBin::RealBin/lib";
use EtcdLeader::Test;
use Bench;
use Bench::Patroni;
use Bench::Peers;

my $ttl      = 5;
my $patience = 40;
my $bench    = Bench->new(name => 'etcd_away', title => 'etcd away', text => <<"END");
SIGKILL to etcd, which is started again 5 s, or 3 TTL, later; TTL $ttl s. All wait for the same etcd at the same time. The time begins when
etcd answers a linearizable read, and ends when one of two candidates leads; it is 0 if a candidate never stopped leading.
A peer that has no leader $patience s later counts with $patience s. Patroni (`ttl: $ttl`, `loop_wait: 1`, `retry_timeout: 2`) leads where a server is
not in recovery.
END
my $rounds = Bench::rounds(3);

my $etcd = EtcdLeader::Etcd->new(flags => ['--enable-v2=true']);
my @ours = map { EtcdLeader::Instance->create($_, etcd => $etcd, settings => { ttl => $ttl }) } qw(pg1 pg2);
$ours[0]->wait_until_leader;
$ours[1]->wait_until_candidate;

# what => { name, leads => code }
my @who = { name => '`etcd_leader`', leads => sub { return grep { $_->try_value('SELECT etcd_is_leader()') } @ours } };
for (
	[ 'Go `concurrency.Election`', sub { Bench::Peers::go($etcd, 'go', $_[0], $ttl) }, sub { Bench::Peers::queued($etcd, 'go') } ],
	[ 'npm `etcd-leader`, started again on errors', sub { Bench::Peers::npm($etcd, 'npm', $_[0], $ttl) }, sub { Bench::Peers::queued_v2($etcd, 'npm') } ])
{
	my ($name, $start, $queued) = @$_;
	my $pair = $bench->try($name, sub { Bench::Peers::pair($start, $queued) }) or next;
	push @who, { name => $name, leads => sub { return grep { $_->leads } values %$pair } };
}
if (my $patroni = $bench->try('Patroni', sub { Bench::Patroni->new($etcd, $ttl) }))
{
	push @who, { name => 'Patroni', leads => sub { return $patroni->primaries } };
}

for my $away (5, 3 * $ttl)
{
	my $table = $bench->table(
		name => "etcd_away_$away", title => "etcd away for $away s, TTL $ttl s", unit => 's', ours => '`etcd_leader`', linear => 1);
	my %row = map { $_->{name} => Bench::row($table, $_->{name}, goal => $_ == $who[0] ? '<= 2' : undef) } @who;
	for my $round (1 .. $rounds)
	{
		poll(60, sub { !grep { !$_->{leads}->() } @who });
		pause(2 + rand($ttl / 3));
		$etcd->kill(0);
		my $down = now();
		# read the output of the peers meanwhile
		while (now() < $down + $away) { $_->{leads}->() for @who; pause(0.05) }
		$etcd->start(0);
		my $back = now();
		my %after;
		while (keys %after < @who && now() < $back + $patience)
		{
			for my $who (@who) { $after{ $who->{name} } //= now() - $back if $who->{leads}->() }
			pause(0.005);
		}
		Bench::sample($row{ $_->{name} }, $round, $after{ $_->{name} } // $patience) for @who;
	}
}
$bench->finish;
