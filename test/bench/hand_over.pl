# The time of a hand-over, from the resignation to the next leader.
#
#   make bench PARTS=hand_over      ROUNDS=50 TLS=
#
# TLS=1: all speak TLS, but for npm's, which is left out, as is the floor.
use FindBin;
use lib "$FindBin::RealBin/lib";
use EtcdLeader::Test;
use Bench;
use Bench::Peers;
use DBD::Pg qw(:async);
use EtcdLeader::Certificates;

my $bench = Bench->new(name => 'hand_over', title => 'Hand-over', text => <<'END');
Two candidates wait in turn for each other on one etcd. The time begins with the call of `etcd_resign()` on the leader, or
with the signal to a peer (`etcdctl elect`: interrupted; `etcd-leader`: `stop()`; Go: `Resign`). It ends when a client of the next
leader sees that `etcd_is_leader()` is true, or has the NOTIFY, or when the peer has written that it is elected. The
floor is the time that etcd itself needs through its JSON gateway: one client deletes a key, a second client gets the event of its
watch and the answer to a txn, over open connections. Without the txn, the time ends with the event. Nobody sends
anything in the 0.15 s before. A client sees a result when its socket, or the pipe of the peer, has it. The client sends its own
statement before the time begins; `etcd_resign()` is sent, parsed and planned within the time.
END
my $rounds = Bench::rounds(50);

my $ca   = $ENV{TLS} && EtcdLeader::Certificates->new;
my @cert = $ca ? $ca->sign('server', for => ['IP:127.0.0.1']) : ();
my $etcd = EtcdLeader::Etcd->new(
	flags => ['--enable-v2=true'],
	tls   => $ca && [ '--cert-file' => $cert[0], '--key-file' => $cert[1] ]);
$Bench::Peers::ca_file = $ca->ca if $ca;
my %pair;
for my $protocol (qw(grpc json))
{
	my @pair = map { EtcdLeader::Instance->create("$protocol$_", endpoints => Bench::Peers::endpoints($etcd), settings => { ttl => 10, elections => $protocol, protocol => $protocol,
			($ca ? (ssl_ca_file => $ca->ca) : ()) }) } 1, 2;
	$pair[0]->wait_until_leader;
	$pair[1]->wait_until_candidate;
	$pair{$protocol} = \@pair;
}
# the time in which a peer that queues again gets its place
my $settle = 0.15;

# Waits until a connection can be read, in the same way as for the output of a peer.
# Returns the time.
sub arrival
{
	my ($dbh) = @_;
	my $ready = '';
	vec($ready, $dbh->{pg_socket}, 1) = 1;
	select($ready, undef, undef, 10) > 0 or die "nothing has come\n";
	return now();
}

# The milliseconds until the function that $prepare->(the next leader) has returned ends.
sub resign
{
	my ($protocol, $prepare) = @_;
	my ($old, $new) = @{ $pair{$protocol} };
	($old, $new) = ($new, $old) unless $old->is_leader;
	$new->wait_until_candidate;
	my $see = $prepare->($new);
	my $resign = $old->dbh->prepare('SELECT etcd_resign()', { pg_async => PG_ASYNC });
	pause($settle);
	my $began = now();
	$resign->execute;
	my $ended = $see->();
	$resign->pg_result;
	$resign->finish;
	$new->wait_until_leader;
	poll(10, sub { Bench::Peers::queued($etcd, $protocol) == 2 });
	return 1000 * ($ended - $began);
}

sub is_leader
{
	my ($new) = @_;
	my $dbh = $new->dbh;
	my $wait = $dbh->prepare("SELECT etcd_wait_for_leadership(timeout => '10 s') AND etcd_is_leader()", { pg_async => PG_ASYNC });
	$wait->execute;
	return sub {
		my $at = arrival($dbh);
		$wait->pg_result;
		my ($leads) = $wait->fetchrow_array;
		return $leads ? $at : die "it does not lead\n";
	};
}

sub hears
{
	my ($new) = @_;
	my $dbh = $new->connect_db;
	$dbh->do('LISTEN etcd_leader');
	return sub {
		while (1)
		{
			my $at = arrival($dbh);
			while (my $notify = $dbh->pg_notifies)
			{
				return $at if $notify->[2] =~ /"event":"elected"/;
			}
		}
	};
}

# The milliseconds from the signal to a peer until the next one writes that it is elected.
# $another: starts a new candidate; without it the old leader queues again by itself.
sub peer
{
	my ($pair, $signal, $queued, $another) = @_;
	poll(10, sub { $queued->() == 2 }) or die "no second candidate\n";
	pause($settle);
	$pair->{waiting}->forget;
	my $began = now();
	$pair->{leading}->signal($signal);
	my $ended = $pair->{waiting}->wait_until_elected(20) or die "nobody is elected\n";
	if ($another)
	{
		$pair->{leading}->stop;
		$pair->{leading} = $another->();
	}
	@$pair{qw(leading waiting)} = @$pair{qw(waiting leading)};
	return 1000 * ($ended - $began);
}

my $number = 0;
my %start  = (
	etcdctl => sub { Bench::Peers::etcdctl($etcd, 'rival', 'v' . ++$number) },
	npm     => sub { Bench::Peers::npm($etcd, 'npm', "n$_[0]", 10) },
	go      => sub { Bench::Peers::go($etcd, 'go', "g$_[0]", 10) });
my %queued = (
	etcdctl => sub { Bench::Peers::queued($etcd, 'rival') },
	npm     => sub { Bench::Peers::queued_v2($etcd, 'npm') },
	go      => sub { Bench::Peers::queued($etcd, 'go') });

# The floor: the milliseconds from a deletion until the event of a watch, or until the
# answer to a txn after that event.
my ($deleter, $watcher, $writer) = map { Bench::Connection->new($etcd) } 1 .. 3;
my $key = EtcdLeader::Etcd::b64('floor');
$watcher->request('/v3/watch', { create_request => { key => $key } });

sub floor
{
	my ($with_txn) = @_;
	$deleter->request('/v3/kv/put', { key => $key, value => 'QQ==' });
	$watcher->chunk;
	my $delete = JSON::PP->new->encode({ key => $key });
	my $txn = JSON::PP->new->encode({
		compare => [ { key => $key, target => 'CREATE', result => 'EQUAL', create_revision => '0' } ],
		success => [ { request_put => { key => $key, value => 'Qg==' } } ] });
	pause($settle);
	my $began = now();
	$deleter->send_request('/v3/kv/deleterange', $delete);
	$watcher->chunk =~ /"type":"DELETE"/ or die "the watch tells of something else\n";
	die "the txn failed\n" if $with_txn && $writer->request('/v3/kv/txn', $txn) !~ /"succeeded":true/;
	my $ended = now();
	$deleter->answer;
	$watcher->chunk if $with_txn;
	return 1000 * ($ended - $began);
}

my @rows = (
	[ is_leader => '`etcd_resign()` → `etcd_is_leader()`' ],
	[ hears     => '`etcd_resign()` → NOTIFY' ],
	[ json      => 'the same with `protocol = json`' ],
	[ etcdctl   => '`etcdctl elect`, interrupted', '<= 0.75' ],
	[ npm       => 'npm `etcd-leader`, `stop()`', '<= 0.65' ],
	[ go        => 'Go `concurrency.Election`, `Resign`', '<= 0.85', '<= 0.95' ],
	[ floor     => 'the floor', '<= 1.8' ],
	[ event     => 'the floor, without the txn' ]);
my %row;
for my $ours (qw(is_leader hears))
{
	my ($name) = map { $_->[1] } grep { $_->[0] eq $ours } @rows;
	my $table = $bench->table(name => "hand_over_$ours", title => "Hand-over, $name", unit => 'ms', ours => $name);
	for (grep { $_->[0] !~ /^(?:is_leader|hears)$/ || $_->[0] eq $ours } @rows)
	{
		my ($what, $title, $goal, $goal_of_notify) = @$_;
		$goal = $goal_of_notify if $goal_of_notify && $ours eq 'hears';
		# the peers of both tables are the same samples
		my $row = Bench::row($table, $title, goal => $goal);
		$row->{samples} = $row{$what}{samples} if $row{$what};
		$row{$what} //= $row;
	}
}

my @pairs = (
	[ $row{is_leader}, sub { resign('grpc', \&is_leader) } ],
	[ $row{hears},     sub { resign('grpc', \&hears) } ],
	[ $row{json},      sub { resign('json', \&is_leader) } ],
	($ca ? () : ([ $row{floor}, sub { floor(1) } ], [ $row{event}, sub { floor(0) } ])));
for ([ 'etcdctl', 'INT', 1 ], ($ca ? () : [ 'npm', 'USR1' ]), [ 'go', 'USR1' ])
{
	my ($what, $signal, $another) = @$_;
	my $pair = $bench->try($row{$what}{name}, sub { Bench::Peers::pair($start{$what}, $queued{$what}) }) or next;
	push @pairs, [ $row{$what}, sub { peer($pair, $signal, $queued{$what}, $another && $start{$what}) } ];
}
$bench->in_turn($rounds, @pairs);
$bench->finish;
