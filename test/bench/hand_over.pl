# From the wish to give leadership up to the next one having it.
#
#   make bench PARTS=hand_over      ROUNDS=50
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../t/lib", "$FindBin::RealBin/lib";
use Bench;
use Bench::Peers;
use EtcdLeader::Etcd;
use EtcdLeader::Instance;
use EtcdLeader::Util;
use POSIX ();

my $bench = Bench->new(name => 'hand_over', title => 'Hand-over', text => <<'END');
Two candidates wait in turn for each other on one etcd; the time is that from calling `etcd_resign()` on the leader, or
from the signal to a peer (`etcdctl elect`: interrupted; `etcd-leader`: `stop()`; Go: `Resign`), to what a client of the next
one sees: that `etcd_is_leader()` is true, that the NOTIFY is there, that the peer has written that it is elected. The
floor is what etcd needs for it: one client deletes a key, another hears of it by its watch and has a txn answered,
through the same gateway, over connections that are open. Without the txn, it ends when the other one hears of it.
END
my $rounds = Bench::rounds(50);

my $etcd = EtcdLeader::Etcd->new(flags => ['--enable-v2=true']);
my ($a, $b) = map { EtcdLeader::Instance->create($_, etcd => $etcd, settings => { ttl => 10 }) } qw(pg1 pg2);
$a->wait_until_leader;
$b->wait_until_candidate;
# a rival that waits for its place anew must not be met before it has it
my $settle = 0.15;

# A process that runs $work->(handle) and ends.
sub in_background
{
	my ($work) = @_;
	pipe(my $read, my $write) or die $!;
	my $pid = fork // die $!;
	if ($pid == 0)
	{
		$write->autoflush(1);
		eval { $work->($write); 1 } or print STDERR $@;
		POSIX::_exit(0);
	}
	close $write;
	return ($pid, $read);
}

# Milliseconds until $see->(connection to the next leader) returns.
sub resign
{
	my ($listen, $see) = @_;
	my ($old, $new) = $a->is_leader ? ($a, $b) : ($b, $a);
	$new->wait_until_candidate;
	my ($pid, $read) = in_background(
		sub {
			my ($write) = @_;
			my $dbh = $new->connect_db;
			$dbh->do('LISTEN etcd_leader') if $listen;
			print $write "ready\n";
			print $write ($see->($dbh, $new->name) ? now() : ''), "\n";
		});
	<$read>;
	my $dbh = $old->dbh;
	pause($settle);
	my $began = now();
	$dbh->selectrow_array('SELECT etcd_resign()');
	chomp(my $ended = <$read>);
	waitpid $pid, 0;
	$new->wait_until_leader;
	poll(10, sub { Bench::Peers::queued($etcd, 'postgres') == 2 });
	return length $ended ? 1000 * ($ended - $began) : undef;
}

sub is_leader
{
	my ($dbh) = @_;
	return $dbh->selectrow_array("SELECT etcd_wait_for_leadership('10 s') AND etcd_is_leader()");
}

sub hears
{
	my ($dbh, $name) = @_;
	while (1)
	{
		while (my $notify = $dbh->pg_notifies)
		{
			return 1 if $notify->[2] =~ /"event":"elected"/;
		}
		my $ready = '';
		vec($ready, $dbh->{pg_socket}, 1) = 1;
		select($ready, undef, undef, 10) or return 0;
	}
}

# Milliseconds from the signal to a peer until the next one says that it is
# elected.  $again: the first one's queueing again; else another is started.
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

# The floor: until a txn after the watch's event is answered, or until that event.
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
	pause(0.02);
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
	[ etcdctl   => '`etcdctl elect`, interrupted', '<= 1.0' ],
	[ npm       => 'npm `etcd-leader`, `stop()`', '<= 0.65' ],
	[ go        => 'Go `concurrency.Election`, `Resign`', '<= 1.4' ],
	[ floor     => 'the floor', '<= 1.8' ],
	[ event     => 'the floor, without the txn' ]);
my %row;
for my $ours (qw(is_leader hears))
{
	my ($name) = map { $_->[1] } grep { $_->[0] eq $ours } @rows;
	my $table = $bench->table(name => "hand_over_$ours", title => "Hand-over, $name", unit => 'ms', ours => $name);
	for (grep { $_->[0] !~ /^(?:is_leader|hears)$/ || $_->[0] eq $ours } @rows)
	{
		my ($what, $title, $goal) = @$_;
		# the peers of both tables are the same samples
		my $row = Bench::row($table, $title, goal => $goal);
		$row->{samples} = $row{$what}{samples} if $row{$what};
		$row{$what} //= $row;
	}
}

my @pairs = (
	[ $row{is_leader}, sub { resign(0, \&is_leader) } ],
	[ $row{hears},     sub { resign(1, \&hears) } ],
	[ $row{floor},     sub { floor(1) } ],
	[ $row{event},     sub { floor(0) } ]);
for ([ 'etcdctl', 'INT', 1 ], [ 'npm', 'USR1' ], [ 'go', 'USR1' ])
{
	my ($what, $signal, $another) = @$_;
	my $pair = $bench->try($row{$what}{name}, sub { Bench::Peers::pair($start{$what}, $queued{$what}) }) or next;
	push @pairs, [ $row{$what}, sub { peer($pair, $signal, $queued{$what}, $another && $start{$what}) } ];
}
$bench->in_turn($rounds, @pairs);
$bench->finish;
