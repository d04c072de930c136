# The effect of thousands of HTTP requests a second on hand-overs.
#
#   make bench PARTS=http_hand_over      ROUNDS=50
use FindBin;
use lib "$FindBin::RealBin/lib";
use EtcdLeader::Test;
use Bench;
use EtcdLeader::Http;
use Time::HiRes ();

my $build = "$FindBin::RealBin/build";
my $bench = Bench->new(name => 'http_hand_over', title => 'Hand-overs while HTTP is under load', text => <<'END');
The time from calling `etcd_resign()` to the event `elected` on the next instance, and to the first 200 of its `/leader`, which is asked each
0.2 ms. In turn: idle; with 10,000 requests a second to the `/leader` of both instances; and, as the control, with the same number of requests to
two servers that have nothing to do with the instances and send a fixed answer of the same length. The clients run on the same two
cores, with `nice 19`. The load of the machine by clients and network is the same in the last two cases: their difference is the work of our
servers. Do times differ by more than the noise? The test is the two-sided Mann-Whitney test (p), and the median of all differences.
END
my $rounds = Bench::rounds(50);

my $etcd = EtcdLeader::Etcd->new;
my %port = map { $_ => PostgreSQL::Test::Cluster::get_free_port() } qw(pg1 pg2);
my %node = map { $_ => EtcdLeader::Instance->create($_, etcd => $etcd, settings => { ttl => 10, http_listen => "127.0.0.1:$port{$_}" }) } sort keys %port;
$node{pg1}->wait_until_leader;
$node{pg2}->wait_until_candidate;
poll(10, sub { http_code($port{pg1}, '/leader') == 200 && http_code($port{pg2}, '/leader') == 503 }) or die "it does not serve\n";

# The clients and the control run in sessions of their own, as PostgreSQL's processes do.
# Linux shares the processor among sessions (autogroup), and etcd is in the session of this
# program.  With autogroup the priority is that of the session.
my @apart = ('setsid', 'nice', '-n', 19, 'sh', '-c', 'echo 19 2>/dev/null >/proc/self/autogroup; exec "$@"', 'apart');
my $rate  = 10_000;

# The servers of the control.
my $answer_bytes = length((http_get($port{pg1}, '/leader'))[2]);
my %control      = map { $_ => PostgreSQL::Test::Cluster::get_free_port() } 1, 2;
my @control      = map { EtcdLeader::Util::Process->spawn(name => 'http_answer', log => PostgreSQL::Test::Utils::tempdir() . '/answer',
		cmd => [ 'setsid', "$build/http_answer", $_, $answer_bytes ]) } values %control;
for my $port (values %control) { poll(10, sub { http_code($port, '/') == 200 }) or die "the control does not answer\n" }

# The milliseconds until the event of the next leader, and until its answer by HTTP; and
# the answered requests a second to the ports under load.
sub hand_over
{
	my (@ports) = @_;
	my ($old, $new) = http_code($port{pg1}, '/leader') == 200 ? qw(pg1 pg2) : qw(pg2 pg1);
	my $load = @ports && EtcdLeader::Util::Process->spawn(name => 'load', log => PostgreSQL::Test::Utils::tempdir() . '/load',
		cmd => [ @apart, "$build/http_load", join(',', @ports), '/leader', 16, 60, $rate, 1 ]);
	pause(0.5);
	my $asks = EtcdLeader::Sampler::by_http('127.0.0.1', $port{$new});
	$asks->();
	my $resigner = $node{$old}->connect_db;
	my $began    = Time::HiRes::time();
	$resigner->do('SELECT etcd_resign()', { pg_async => DBD::Pg::PG_ASYNC() });
	while (!($asks->())[1])
	{
		die "nobody leads\n" if Time::HiRes::time() > $began + 10;
		pause(0.0002);
	}
	my $by_http = Time::HiRes::time();
	$resigner->pg_result;
	$load->stop if $load;
	my $elected = $node{$new}->value(q{SELECT max(extract(epoch FROM at)) FROM etcd_leader_events() WHERE event = 'elected'});
	die "no event tells of the election\n" if $elected < $began;
	my ($answered) = $load ? split(' ', $load->output) : ();
	poll(30, sub { ($node{$old}->try_value('SELECT count(*) FROM etcd_candidates()') // 0) == 2 }) or die "no second candidate\n";
	return (map({ 1000 * ($_ - $began) } $elected, $by_http), $answered);
}
my @cases = ([ 'idle' ], [ 'control: 10,000 requests/s to others', values %control ], [ '10,000 requests/s to both instances', values %port ]);
my $answered = $bench->table(name => 'http_hand_over_load', title => 'Requests that were answered meanwhile', unit => 'requests/s', linear => 1);
my @kinds = map { { name => $_, table => $bench->table(name => "http_hand_over_$_->[0]", title => $_->[1], unit => 'ms', linear => 1) } }
  [ 'event', 'From `etcd_resign()` until the next instance leads' ], [ 'answer', 'From `etcd_resign()` until `/leader` of the next instance says 200' ];
my @pairs;
for my $case (@cases)
{
	my ($name, @ports) = @$case;
	my @rows = map { $_->{rows}{$name} = Bench::row($_->{table}, $name) } @kinds;
	push @rows, Bench::row($answered, $name) if @ports;
	push @pairs, [ \@rows, sub { return hand_over(@ports) } ];
}
$bench->in_turn($rounds, @pairs);
$_->stop for @control;
my $p     = $bench->table(name => 'http_hand_over_p', title => 'Do these times differ by more than the noise?', unit => 'p', linear => 1);
my $shift = $bench->table(name => 'http_hand_over_difference', title => 'By how much the hand-over takes longer', unit => 'ms', linear => 1);
for my $kind (@kinds)
{
	my ($idle, $control, $ours) = map { $kind->{rows}{ $_->[0] } } @cases;
	for my $of ([ 'requests to both instances, than with requests to others', $control, $ours ],
		[ 'requests to both instances, than idle', $idle, $ours ], [ 'requests to others, than idle', $idle, $control ])
	{
		my ($name, $first, $second) = @$of;
		my @found = Bench::compare($first, $second);
		Bench::sample(Bench::row($p,     "$kind->{name}[0]: $name"), 1, $found[0]);
		Bench::sample(Bench::row($shift, "$kind->{name}[0]: $name"), 1, $found[1]);
	}
}
$bench->finish;
