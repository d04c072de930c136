# Which TTL holds at which distance from etcd.
#
#   make bench PARTS=distance      ROUNDS=1, DELAYS="1 5 10 20 50 100 200" (milliseconds in each direction)
use EtcdLeader::Namespace;
use FindBin;
use lib "$FindBin::RealBin/lib", "$FindBin::RealBin/../chaos/lib";
use EtcdLeader::Test;
use Bench;
use Bench::Peers;
use Chaos::Network;
use Time::HiRes ();

my @ttls    = (2, 3, 5, 10);
my $trial   = 40;
my @delays  = split ' ', $ENV{DELAYS} // '1 5 10 20 50 100 200';
my $rounds  = Bench::rounds(1);
my $bench   = Bench->new(name => 'distance', title => 'The distance to etcd', text => <<"END");
One etcd, and a host for each distance, in network namespaces; test/chaos/network.c between them delays each packet, in each direction, by half the round
trip. (It needs no netem, which not every kernel has.) On each host run two candidates of ours in one process, without PostgreSQL, and two of Go's, for each TTL, all in the same $trial s. Each kind
has an election of its own. The time to the first leader begins with the process. Then nobody asks for anything: each leadership that is lost is lost by a renewal that came too late.
At the end, the leader resigns. No TLS, which makes a new connection slower.
END
my %table = map { $_->[0] => $bench->table(name => "distance_$_->[0]", title => $_->[1], unit => $_->[2], x => 'round trip, ms', linear => 1) }
  [ lost => "Leaderships lost in $trial s", 'leaderships' ], [ first => 'The first leader', 's' ], [ hand_over => 'Hand-over', 'ms' ];

my %address = (etcd => '10.1.0.1', map { +"at$_" => '10.1.0.' . (10 + $_ % 200) } @delays);
my $network = Chaos::Network->new(seed => 1, hosts => \%address);
my $etcd    = EtcdLeader::Etcd->new(hosts => [ [ $network->host('etcd'), $network->address('etcd'), $network->address('etcd') ] ]);
for my $delay (@delays)
{
	$network->add(@$_, delay => $delay / 1000) for [ "at$delay", 'etcd' ], [ 'etcd', "at$delay" ];
}

# The times of the lines of that word.
sub told { my ($process, $word) = @_; return $process->output =~ /^$word (\d+\.\d+)$/mg }

my $dir = PostgreSQL::Test::Utils::tempdir('distance');
my %row;
for my $round (1 .. $rounds)
{
	my @trials;
	for my $delay (@delays)
	{
		for my $ttl (@ttls)
		{
			for ([ '`etcd_leader`', 'candidates' ], [ 'Go', 'candidate' ])
			{
				my ($kind, $program) = @$_;
				my $name = "$kind, TTL $ttl s";
				next if !-x "$FindBin::RealBin/build/$program";
				my $trial = { name => $name, ours => "`etcd_leader`, TTL $ttl s", x => 2 * $delay, began => Time::HiRes::time() };
				$trial->{process} = EtcdLeader::Namespace::Process->spawn(
					host => $network->host("at$delay"),
					name => "$program $ttl",
					log  => "$dir/$round-$program-$ttl-$delay",
					cmd  => [ "$FindBin::RealBin/build/$program", $etcd->endpoints, "$program-$ttl-$delay-$round", 'c', $ttl, 2 ]);
				push @trials, $trial;
			}
		}
	}
	# those that get a leader at all have one by then
	poll(15, sub { !grep { !told($_->{process}, 'elected') } @trials });
	$_->{before} = scalar(() = told($_->{process}, 'unelected')) for @trials;
	pause($trial);
	$_->{after} = scalar(() = told($_->{process}, 'unelected')) for @trials;
	for my $trial (@trials)
	{
		my %found;
		my ($first) = told($trial->{process}, 'elected');
		if (defined $first)
		{
			$found{first} = $first - $trial->{began};
			$found{lost}  = $trial->{after} - $trial->{before};
			my $asked = Time::HiRes::time();
			$trial->{process}->signal('USR1');
			my $next = poll(3, sub { my ($next) = grep { $_ > $asked } told($trial->{process}, 'elected'); return $next });
			$found{hand_over} = 1000 * ($next - $asked) if $next;
		}
		for my $figure (keys %table)
		{
			my $row = $row{$figure}{"$trial->{name} $trial->{x}"} //= Bench::row($table{$figure}, $trial->{name}, x => $trial->{x}, note => defined $first ? undef : 'nobody ever led');
			Bench::sample($row, $round, $found{$figure}) if defined $found{$figure};
		}
		$trial->{process}->stop('KILL');
	}
}
$etcd->kill(0);
$network->stop;
$bench->finish;
