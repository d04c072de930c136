# Many hand-overs, and many losses of all connections to etcd.  Elector and
# notifier need no more memory or file descriptors after them, and are the same
# processes all the time.  The log has one line for each change, and each event is
# announced once.
#
# ETCD_LEADER_ROUNDS: the number of each (100).
use EtcdLeader::Test;
use EtcdLeader::Relay;

my $rounds = $ENV{ETCD_LEADER_ROUNDS} || 100;
watchdog(200 + 2 * $rounds);

# The allowed growth of a process after the warm-up, for any number of rounds.  It
# covers pages that are touched for the first time.  160 kB in 1,000 rounds are 164
# bytes in a round, less than any message has.
my $warm_up = 50;
my $max_kb  = 160;
my $max_fds = 3;

my $etcd   = EtcdLeader::Etcd->new;
my %relay  = map { $_ => EtcdLeader::Relay->new($etcd->url(0)) } qw(pg1 pg2);
my %nodes  = map { $_ => EtcdLeader::Instance->create($_, endpoints => $relay{$_}->url, settings => { ttl => 60 }) } qw(pg1 pg2);
my @nodes  = @nodes{qw(pg1 pg2)};
$_->wait_until_candidate for @nodes;
poll(30, sub { $_->is_leader && return 1 for @nodes; 0 }) or die 'nobody leads';
poll(30, sub { $_->notifier_pid }) or die 'no notifier' for @nodes;

# The processes that are measured: name => pid.
sub processes
{
	return map { ($_->name . ' elector' => $_->elector_pid, $_->name . ' notifier' => $_->notifier_pid) } @nodes;
}

# The private memory of a process, in kB.
sub private_kb
{
	my ($pid) = @_;
	my $rollup = PostgreSQL::Test::Utils::slurp_file("/proc/$pid/smaps_rollup");
	my $kb = 0;
	$kb += $1 while $rollup =~ /^Private_(?:Clean|Dirty):\s+(\d+) kB/mg;
	return $kb;
}

sub count_fds { my @fds = glob "/proc/$_[0]/fd/*"; return scalar @fds }

sub measure { my %pid = @_; return map { $_ => [ private_kb($pid{$_}), count_fds($pid{$_}) ] } keys %pid }

# A round that begins and ends at rest.  libcurl closes the connections that have died when it
# makes a new connection, but at most once in a second (prune_dead_connections() in its
# lib/url.c).  libcurl 7.74 has a dozen of them after quick rounds, and few after this one.
sub round_at_rest
{
	my ($round) = @_;
	pause(1.1);
	$round->();
	pause(0.5);
	return;
}

# Repeats a round, and tests that no process grows.  A round can end before its last
# event comes; $settled->() is true when it has come.
sub endure
{
	my ($what, $n, $round, $settled) = @_;
	my %pid      = processes();
	my %listener = map { $_->name => $_->listen } @nodes;
	$round->() for 1 .. $warm_up;

	round_at_rest($round);
	my %before = measure(%pid);
	# the line in the log comes before the event
	poll(10, $settled) or die 'the last event is missing';
	my %offset = map { $_->name => $_->log_size } @nodes;
	my %mark   = map { $_->name => $_->last_event } @nodes;
	my $began  = now();
	$round->() for 1 .. $n;
	my $took = now() - $began;
	poll(10, $settled) or die 'the last event is missing';
	my %last = map { $_->name => $_->last_event } @nodes;

	# wait for all notifications before the measurement, so that the notifiers are done
	for my $node (@nodes)
	{
		my $name = $node->name;
		poll_ok(30, sub { grep { $_->{seq} == $last{$name} } $listener{$name}->notifications }, "$what: $name: the last event is announced");
		my @told = grep { $_ > $mark{$name} } map { $_->{seq} } $listener{$name}->notifications;
		ok("@told" eq join(' ', $mark{$name} + 1 .. $last{$name}), "$what: $name: each event once and in order");
		cmp_ok(scalar @told, '>=', $n, "$what: $name: " . @told . ' events');
		is($node->log_count('\[\d+\] etcd_leader (?:elector|notifier) .*(?:LOG|WARNING|ERROR|FATAL|PANIC):  (?!this problem is over)', $offset{$name}),
			scalar @told, "$what: $name: the log has a line for each of them");
		$listener{$name}->stop;
	}

	round_at_rest($round);
	my %after = measure(%pid);
	is_deeply({ processes() }, \%pid, "$what: the same processes as before");
	for my $process (sort keys %pid)
	{
		my ($kb, $fds) = map { $after{$process}[$_] - $before{$process}[$_] } 0, 1;
		cmp_ok($kb, '<=', $max_kb, "$what: $process: memory");
		cmp_ok($fds, '<=', $max_fds, "$what: $process: file descriptors");
		diag(sprintf '%d %s: %s: %d kB and %d file descriptors, %+d kB and %+d', $n, $what, $process, @{ $before{$process} }, $kb, $fds);
	}
	diag(sprintf '%d %s in %.1f s', $n, $what, $took);
	return;
}

# The newest event of a node.
sub newest { return $_[0]->row('SELECT * FROM etcd_leader_events() ORDER BY seq DESC LIMIT 1') }

endure('hand-overs', $rounds, sub {
	my ($old)  = grep { $_->is_leader } @nodes;
	my ($next) = grep { $_ != $old } @nodes;
	my $token  = $old->token;
	$old->value('SELECT etcd_resign()') or die 'nothing to resign';
	$next->value(q{SELECT etcd_wait_for_leadership(timeout => '10 s')}) or die 'it was not handed over';
	$next->token > $token or die 'the token did not increase';
	$old->wait_until_candidate;
}, sub {
	my ($token) = grep { defined } map { $_->token } @nodes;
	return !grep { (newest($_)->{fencing_token} // 0) != $token } @nodes;
});

# All connections are cut, so the watch ends and the next request fails.  When etcd can
# be reached again, there are new connections and a new watch.
my ($leader)    = grep { $_->is_leader } @nodes;
my $token       = $leader->token;
my %connections = map { $_ => $relay{$_}->connections } keys %relay;
my %watches     = map { $_->name => $_->value('SELECT watch_restarts FROM etcd_leader_stats') } @nodes;
endure('reconnects', $rounds, sub {
	$_->cut for values %relay;
	for my $node (@nodes)
	{
		# a first call may succeed with an answer that has arrived before
		poll(10, sub { ($node->failure(q{SELECT etcd_proclaim(current_setting('cluster_name'))}))[0] }) or die 'etcd can be reached';
		$node->status->{connected} and die 'the loss is not noticed';
	}
	my %restarts = map { $_->name => $_->value('SELECT watch_restarts FROM etcd_leader_stats') } @nodes;
	$_->mend for values %relay;
	for my $node (@nodes)
	{
		poll(10, sub {
			$node->status->{connected} &&
			  $node->value('SELECT watch_restarts FROM etcd_leader_stats') > $restarts{ $node->name };
		}) or die 'not connected again';
	}
}, sub { return !grep { newest($_)->{event} ne 'connected' } @nodes });
for my $node (@nodes)
{
	my $name = $node->name;
	my $n    = $rounds + $warm_up;
	cmp_ok($relay{$name}->connections - $connections{$name}, '>=', 2 * $n, "$name: there were new connections");
	cmp_ok($node->value('SELECT watch_restarts FROM etcd_leader_stats') - $watches{$name}, '>=', $n, "$name: there were new watches");
}
is($leader->token, $token, 'the leader has not changed');

done_testing();
