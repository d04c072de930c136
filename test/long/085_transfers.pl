# Many transfers to each of five waiters, even the last, under load.  The target leads
# next, tokens increase, two never lead, and all instances queue again.
#
# ETCD_LEADER_ROUNDS: the number of transfers to each place (40).
use EtcdLeader::Test;

my $rounds = $ENV{ETCD_LEADER_ROUNDS} || 40;
watchdog(200 + 10 * $rounds);

my $etcd  = EtcdLeader::Etcd->new(members => 3);
my @names = map { "pg$_" } 1 .. 6;
my %nodes = map { $_ => EtcdLeader::Instance->create($_, etcd => $etcd, settings => { ttl => 10 }) } @names;
my @nodes = @nodes{@names};
$_->wait_until_candidate for @nodes;
my @samplers = map { $_->sample } @nodes;
my %asking   = map { $_ => $nodes{$_}->connect_db } @names;

# Other clients write to etcd all the time.
my @load = map {
	my $i = $_;
	EtcdLeader::Util::Process->spawn(name => "load $i", log => PostgreSQL::Test::Utils::tempdir() . "/load$i", code => sub {
		$etcd->post('/v3/kv/put', { key => EtcdLeader::Etcd::b64("load/$i"), value => EtcdLeader::Etcd::b64('x' x 100) }) while 1;
	})
} 1 .. 2;

sub queue { return map { $_->{value} } $etcd->candidates('postgres') }

my $token = 0;
my (%failed, %took);
for my $round (1 .. $rounds)
{
	for my $place (1 .. 5)
	{
		poll(20, sub { my @q = queue(); @q == 6 && $nodes{ $q[0] }->is_leader }) or die "round $round: they do not settle";
		my @queue  = queue();
		my $target = $nodes{ $queue[$place] };
		my $began  = now();
		my ($done) = $asking{ $queue[0] }->selectrow_array('SELECT etcd_transfer(?)', {}, $queue[$place]);
		push @{ $took{$place} }, now() - $began;
		$failed{'it is true'}++       if !$done;
		$failed{'the target leads'}++ if !$target->is_leader;
		my $next = $target->token // 0;
		$failed{'tokens increase'}++ if $next <= $token;
		$token = $next;
	}
}
for my $place (1 .. 5)
{
	my @sorted = sort { $a <=> $b } @{ $took{$place} };
	note(sprintf 'place %d: median %.0f ms, longest %.0f ms', $place, 1000 * $sorted[ @sorted / 2 ], 1000 * $sorted[-1]);
}
is($failed{$_} // 0, 0, "$_, each of " . 5 * $rounds . ' times') for 'it is true', 'the target leads', 'tokens increase';
poll_is(20, sub { scalar queue() }, 6, 'everybody is in the queue again');
$_->stop('KILL') for @load;
EtcdLeader::Sampler::check_exclusion(\@samplers, 'with transfers');
done_testing();
