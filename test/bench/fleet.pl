# The cost of a fleet for one etcd, and its times, by the number of instances and of elections.
#
#   make bench PARTS=fleet      ROUNDS=1, INSTANCES="10 100 300 1000", ELECTIONS="1 8 32"
use FindBin;
use lib "$FindBin::RealBin/lib";
use EtcdLeader::Test;
use Bench;
use Bench::Peers;
use Time::HiRes ();

my $ttl       = 5;
my $members   = 3;
my $hand_overs = 3;
my $patience  = 30;			# seconds that a fleet has to start
my @instances = split ' ', $ENV{INSTANCES} // '10 100 300 1000';
my @elections = split ' ', $ENV{ELECTIONS} // '1 8 32';
my ($real, $most_peers) = (10, 300);
my $rounds = Bench::rounds(1);
my $bench  = Bench->new(name => 'fleet', title => 'A fleet', text => <<"END");
Each kind has an etcd of $members members to itself, which sync their logs, on the same host: they run on the processors that the fleet needs, too.
`etcd_leader` is one process with all candidates, without PostgreSQL around them: the protocol and the client of etcd of the extension, with a
client and a lease for each candidate. So is Go's `concurrency.Election`. All candidates take part in all elections; with "clusters", three candidates
in the election of each cluster. "PostgreSQL" are $real servers with the extension: more do not fit into the time, as each takes
some seconds to be made. TTL $ttl s; all have the same endpoints, and etcd's leader is the first.

Idle, for a TTL: requests are the messages that etcd's gRPC servers received, bytes what they received from clients and sent to them, entries those of raft's
log. CPU is that of all members together, less that of an etcd without clients, which was measured beside the servers. The candidates started within a third of a TTL, so their renewals are apart, as those of servers are:
renewals that come together share a sync, and cost less. Memory is the private memory of the process for each candidate, and so its fixed part is shared; of PostgreSQL, it is the elector's.
Start: all candidates at once on another etcd, until etcd has each key and each election a leader. Hand-over: one leader in one election resigns, until the next one leads.
Its requests are those without keepalives and status, less the idle ones. At once: the leaders of all elections resign together,
until the last election has a leader. etcd's leader is killed, and in that moment one leader resigns: until the next one leads. Each request of
ours has a ninth of the TTL. Go's `Resign` has no limit of its own, and waits for the 7 s that etcd gives a request; it also forgets its key when it fails. So the program
of the bench calls it with a ninth of the TTL, resumes the election, and calls it again.

An exponent of 1 is growth in proportion; it is that of the best power law through the medians of a curve.
END

# name => [title, unit], in the order of the tables
my @figures = (
	[ requests  => 'Requests when idle', '1/s' ],
	[ bytes     => 'Bytes from and to clients when idle', 'kB/s' ],
	[ entries   => q{Entries of raft's log when idle}, '1/s' ],
	[ watches   => 'Watches', 'watches' ],
	[ cpu       => 'CPU of etcd when idle', '%' ],
	[ memory    => 'Private memory of a candidate', 'MB' ],
	[ start     => 'Start of all at once', 's' ],
	[ hand_over => 'Hand-over', 'ms' ],
	[ load      => 'Requests of a hand-over', 'requests' ],
	[ at_once   => 'Hand-over of all elections at once', 'ms' ],
	[ loss      => q{Hand-over when etcd's leader is killed}, 'ms' ]);
my @growth = map { $bench->table(name => "fleet_growth_$_->[0]", title => $_->[1], unit => 'times the first', x => $_->[0], growth => 1) }
  [ 'instances', 'Growth by instances, in one election' ], [ 'elections', 'Growth by elections' ];
my %table = map { $_->[0] => $bench->table(name => "fleet_$_->[0]", title => $_->[1], unit => $_->[2], x => 'instances', growth => 1) } @figures;
my $formula = $bench->table(name => 'fleet_formula', title => 'Idle `etcd_leader`, measured ÷ the formula of sizing.md', unit => 'ratio', x => 'instances', linear => 1);
my $same = $bench->table(name => 'fleet_same', title => 'Servers of PostgreSQL ÷ the process of candidates', unit => 'ratio', x => 'elections', linear => 1);
my $lost = $bench->table(name => 'fleet_lost', title => q{Leaderships lost while a fleet is idle, and after the loss of etcd's leader}, unit => 'leaderships', x => 'instances', linear => 1);
my %row;
my $unused = 0;				# CPU of an etcd without clients, as it was measured last

# The row of a figure of a kind; ours is what the others are compared to.
sub row
{
	my ($table, $name, $ours, $x, %args) = @_;
	return $row{"$table->{name} $name $x"} //= Bench::row($table, $name, x => $x, ($ours eq '' || $name eq $ours ? () : (ours => $ours)), %args);
}

sub titled { my ($kind, $elections) = @_; return "$kind, $elections election" . ($elections == 1 ? '' : 's') }

# CPU seconds of a process with its threads, finer than a clock tick: clock_getcpuclockid(3).
sub cpu_clock { my ($pid) = @_; return Time::HiRes::clock_gettime(-8 * ($pid + 1) + 2) }

# What etcd has done so far, by its members' own metrics and by the kernel's.
sub counted
{
	my ($etcd, @members) = @_;
	my %sum = (at => now(), map { $_ => 0 } qw(requests load bytes watches cpu entries));
	for my $i (@members ? @members : $etcd->all)
	{
		my $metrics = $etcd->metrics($i);
		$sum{requests} += EtcdLeader::Etcd::sum($metrics, 'grpc_server_msg_received_total');
		$metrics =~ s/^grpc_server_msg_received_total\{grpc_method="(?:LeaseKeepAlive|Status)".*\n//mg;
		$sum{load}    += EtcdLeader::Etcd::sum($metrics, 'grpc_server_msg_received_total');
		$sum{bytes}   += EtcdLeader::Etcd::sum($metrics, "etcd_network_client_grpc_${_}_bytes_total") / 1000 for qw(received sent);
		$sum{watches} += EtcdLeader::Etcd::sum($metrics, 'etcd_debugging_mvcc_watcher_total');
		$sum{cpu}     += 100 * cpu_clock($etcd->pid($i));
		my $entries = EtcdLeader::Etcd::sum($metrics, 'etcd_server_proposals_applied_total');
		$sum{entries} = $entries if $entries > $sum{entries};
	}
	return \%sum;
}

# What it does for so many seconds, a second.
sub rates
{
	my ($etcd, $seconds) = @_;
	my $before = counted($etcd);
	pause($seconds);
	return rate($before, counted($etcd));
}

sub rate
{
	my ($before, $after) = @_;
	return { watches => $after->{watches}, map { $_ => ($after->{$_} - $before->{$_}) / ($after->{at} - $before->{at}) } qw(requests load bytes cpu entries) };
}

# The number of keys of the elections of a fleet.
sub entered
{
	my ($etcd, $member) = @_;
	my $answer = $etcd->post('/v3/kv/range', { map({ $_->[0] => EtcdLeader::Etcd::b64($_->[1]) } [ key => 'fleet/' ], [ range_end => 'fleet0' ]), count_only => JSON::PP::true }, $member);
	return $answer ? $answer->{count} // 0 : 0;
}

# A fleet of candidates in one process on an etcd of its own, and etcd's leader; $code->(fleet,
# etcd, leader, seconds since it was started) measures it.  Both end with that.
sub with_fleet
{
	my ($start, $n, $elections, $clusters, $seconds, $code) = @_;
	my ($etcd, $leader) = new_etcd();
	my $began = Time::HiRes::time();
	my $fleet = $start->($etcd, 'fleet', 'c', $ttl, $n, endpoints => ordered($etcd, $leader), elections => $elections, clusters => $clusters, start => $seconds);
	my $ok = eval {
		$fleet->elections($elections * $clusters, $patience);
		my $left = $began + $patience - Time::HiRes::time();
		poll($left > 0 ? $left : 0, sub { entered($etcd, $leader) >= $n * $elections })
		  or die entered($etcd, $leader) . ' of ' . $n * $elections . " keys in $patience s\n";
		$code->($fleet, $etcd, $leader, Time::HiRes::time() - $began);
		1;
	};
	my $why = $@;
	$fleet->stop;
	$etcd->kill($_) for $etcd->all;
	die $why unless $ok;
	return;
}

sub new_etcd
{
	my $etcd = EtcdLeader::Etcd->new(members => $members, fsync => 1);
	my $leader;
	poll(10, sub { $leader = $etcd->leader; return defined $leader }) or die "etcd has no leader\n";
	return ($etcd, $leader);
}

# The endpoints, etcd's leader first: the member in use is the one that is killed.
sub ordered { my ($etcd, $leader) = @_; return $etcd->endpoints($leader, grep { $_ != $leader } $etcd->all) }

# Measures such a fleet.  What was found before a failure counts.
sub measure
{
	my ($name, $start, $n, $elections, $clusters) = @_;
	my %found;
	$bench->try("$name, start of all at once", sub {
		with_fleet($start, $n, $elections, $clusters, 0, sub { $found{start} = [ $_[3] ] });
		return 1;
	});
	$bench->try($name, sub {
		with_fleet($start, $n, $elections, $clusters, $ttl / 3, sub { measure_running(\%found, $n, $elections * $clusters, @_) });
		return 1;
	});
	return \%found;
}

sub measure_running
{
	my ($found, $n, $contested, $fleet, $etcd, $leader) = @_;
	# until the questions of the start are answered
	pause(1);
	my $losses = $fleet->losses;
	my $idle = rates($etcd, $ttl);
	$idle->{cpu} -= $unused;
	$found->{$_} = [ $idle->{$_} ] for qw(requests bytes entries watches cpu);
	$found->{memory} = [ Bench::memory($fleet->pid) / $n ];
	$found->{lost} = $fleet->losses - $losses;

	my $before = counted($etcd);
	for (1 .. $hand_overs)
	{
		my $end = now() + $ttl / 3 / $hand_overs;
		push @{ $found->{hand_over} }, hand_over($fleet, 'USR1', 1);
		pause($end - now()) if $end > now();
	}
	pause(0.5);
	my $after = counted($etcd);
	$found->{load} = [ ($after->{load} - $before->{load} - $idle->{load} * ($after->{at} - $before->{at})) / $hand_overs ];

	for (1 .. $hand_overs)
	{
		push @{ $found->{at_once} }, hand_over($fleet, 'USR2', $contested);
		pause(0.3);
	}

	$losses = $fleet->losses;
	$etcd->kill($leader);
	$found->{loss} = [ hand_over($fleet, 'USR1', 1, 20) ];
	pause(1);
	# less the one that resigned
	$found->{lost} += $fleet->losses - $losses - 1;
	return;
}

# The milliseconds from the signal to so many new leaders.
sub hand_over
{
	my ($fleet, $signal, $number, $timeout) = @_;
	$fleet->forget;
	my $began = Time::HiRes::time();
	$fleet->signal($signal);
	my @times = sort { $a <=> $b } $fleet->elections($number, $timeout // 15);
	return 1000 * ($times[-1] - $began);
}

# Writes down what was found of a kind, and compares the idle figures with the formula.
sub note_down
{
	my ($kind, $n, $elections, $round, $found, $what) = @_;
	my $name = $what // titled($kind, $elections);
	my $ours = $what ? $what =~ s/^.*?(?=,)/`etcd_leader`/r : titled('`etcd_leader`', $elections);
	for my $figure (map { $_->[0] } @figures)
	{
		Bench::sample(row($table{$figure}, $name, $ours, $n), $round, $_) for @{ $found->{$figure} // [] };
	}
	Bench::sample(row($lost, $kind, '`etcd_leader`', $n), $round, $found->{lost}) if defined $found->{lost};
	return if $kind ne '`etcd_leader`' || !$found->{requests};
	my $probe = $ttl < 5 ? 5 : $ttl > 20 ? 20 : $ttl;
	my %expected = (requests => $n * (6 / $ttl + $members / $probe), entries => $n * 3 / $ttl);
	Bench::sample(row($formula, "$_, " . ($name =~ s/^.*?, //r), '', $n, goal => '<= 1.1'), $round, $found->{$_}[0] / $expected{$_}) for sort keys %expected;
	return;
}

# Real servers, idle: they are made once, and then have one number of elections after the other.
# The candidates that they are compared to, and an etcd without clients, are measured in the same seconds.
my ($real_etcd, $empty_etcd, @servers);

sub measure_servers
{
	my ($round, $elections) = @_;
	if (!@servers)
	{
		($empty_etcd) = new_etcd();
		($real_etcd, my $leader) = new_etcd();
		my $endpoints = ordered($real_etcd, $leader);
		@servers = map { EtcdLeader::Instance->create("pg$_", endpoints => $endpoints, settings => { ttl => $ttl }) } 1 .. $real;
	}
	$_->configure(elections => join ',', map { "fleet/$_" } 0 .. $elections - 1) for @servers;
	poll(60, sub { entered($real_etcd, 0) == $real * $elections }) or die entered($real_etcd, 0) . " keys\n";
	with_fleet(\&Bench::Peers::ours, $real, $elections, 1, $ttl / 3, sub {
		my ($fleet, $etcd) = @_;
		pause($ttl);
		my @all = ($real_etcd, $etcd, $empty_etcd);
		for my $window (1 .. 3)
		{
			my @before = map { counted($_) } @all;
			pause($ttl);
			my ($theirs, $ours, $empty) = map { rate(shift @before, counted($_)) } @all;
			$unused = $empty->{cpu};
			$_->{cpu} -= $unused for $theirs, $ours;
			my %found = (memory => $window == 1 ? [ map { Bench::memory($_->elector_pid) } @servers ] : [], map { $_ => [ $theirs->{$_} ] } qw(requests bytes entries watches cpu));
			note_down('PostgreSQL', $real, $elections, $round, \%found);
			Bench::sample(row($same, $_, '', $elections, goal => '<= 1.1'), $round, $theirs->{$_} / $ours->{$_}) for qw(requests bytes entries watches cpu);
		}
	});
	return 1;
}

my %found;					# {elections}{instances}{figure}: the samples of ours
for my $round (1 .. $rounds)
{
	for my $elections (@elections)
	{
		$bench->try(titled("$real servers of PostgreSQL", $elections), sub { measure_servers($round, $elections) });
		for my $n (@instances)
		{
			for ([ '`etcd_leader`', \&Bench::Peers::ours, 1e9 ], [ 'Go', \&Bench::Peers::go, $most_peers ])
			{
				my ($kind, $start, $most) = @$_;
				next if $n > $most;
				my $found = measure("$n × " . titled($kind, $elections), $start, $n, $elections, 1);
				note_down($kind, $n, $elections, $round, $found);
				push @{ $found{$elections}{$n}{$_} }, [ $round, Bench::Table::median(@{ $found->{$_} }) ] for $kind eq 'Go' ? () : grep { $found->{$_} } map { $_->[0] } @figures;
			}
		}
	}
	my ($n) = sort { $b <=> $a } grep { $_ <= $most_peers } @instances;
	my $clusters = int($n / 3);
	for ([ '`etcd_leader`', \&Bench::Peers::ours ], [ 'Go', \&Bench::Peers::go ])
	{
		my ($kind, $start) = @$_;
		note_down($kind, $n, 1, $round, measure("$kind, $clusters clusters", $start, $n, 1, $clusters), "$kind, $clusters clusters");
	}
}

# Each figure as a multiple of the one with the fewest instances, or elections.
for my $figure (@figures)
{
	my ($name, $title) = @$figure;
	my %by_elections = map { my $e = $_; $e => $found{$e}{ $instances[ @instances > 1 ? 1 : 0 ] } } keys %found;
	for ([ $growth[0], $found{ $elections[0] } ], [ $growth[1], \%by_elections ])
	{
		my ($table, $by) = @$_;
		my ($first, @x) = sort { $a <=> $b } grep { $by->{$_}{$name} } keys %$by;
		next unless @x;
		my %first = map { $_->[0] => $_->[1] } @{ $by->{$first}{$name} };
		for my $x ($first, @x)
		{
			my $row = Bench::row($table, $title, x => $x);
			Bench::sample($row, $_->[0], $_->[1] / $first{ $_->[0] }) for grep { $first{ $_->[0] } && $_->[1] > 0 } @{ $by->{$x}{$name} };
		}
	}
}
$_->stop for @servers;
$bench->finish;
