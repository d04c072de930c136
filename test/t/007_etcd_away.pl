# etcd is away for longer than the TTL: killed (nobody listens) and frozen
# (connections hang).  False in time, the events in order, queries go on, and
# a leader soon after it is back, without a restart.
use EtcdLeader::Test;

my $ttl   = 3;
my $etcd  = EtcdLeader::Etcd->new;
my @nodes = map { EtcdLeader::Instance->create($_, etcd => $etcd, settings => { ttl => $ttl }) } qw(pg1 pg2);
my ($pg1, $pg2) = @nodes;
$_->wait_until_candidate for @nodes;
$pg1->value('CREATE TABLE t (i int)');
my %elector = map { $_->name => $_->elector_pid } @nodes;

for my $how (qw(killed frozen))
{
	my ($leader) = grep { $_->is_leader } @nodes;
	poll_ok(10, sub { ($leader) = grep { $_->is_leader } @nodes }, "$how: somebody leads");
	my ($other) = grep { $_ != $leader } @nodes;
	$other->wait_until_sees($leader->name);
	$_->wait_until_candidate for @nodes;
	my %listener = map { $_->name => $_->listen } @nodes;
	my @samplers = map { $_->sample } @nodes;
	my %log      = map { $_->name => $_->log_size } @nodes;
	my $token    = $leader->token;

	my $gone = now();
	$how eq 'killed' ? $etcd->kill(0) : $etcd->freeze(0);
	my %cpu = map { $_->name => cpu_seconds($_->elector_pid) } @nodes;

	# Queries go on, and nothing that only reads waits.
	my ($slowest, $queries) = (0, 0);
	while (now() < $gone + 2 * $ttl)
	{
		for my $node (@nodes)
		{
			my $began = now();
			$node->value('INSERT INTO t VALUES (1)') if $node == $pg1;
			$node->value('SELECT etcd_is_leader(), etcd_current_leader(), etcd_fencing_token(), count(*)
				FROM etcd_leader_status, etcd_leader_stats, etcd_leader_events()');
			my $took = now() - $began;
			$slowest = $took if $took > $slowest;
			$queries++;
		}
		pause(0.02);
	}
	in_time($slowest, 0.5, "$how: $queries queries, none waited for etcd");
	for my $node (@nodes)
	{
		my $name = $node->name;
		is($node->is_leader, 0, "$how: $name says false");
		is($node->current_leader, undef, "$how: $name names nobody");
		is($node->token, undef, "$how: $name has no token");
		like(($node->failure('SELECT etcd_require_leader()'))[1], qr/DETAIL:  No leader is known at present, as there is no contact with etcd\./m, "$how: $name: ERROR 25006 names nobody");
		my $s = $node->status;
		is($s->{connected}, 0, "$how: $name: status says not connected");
		isnt($s->{last_error} // '', '', "$how: $name: status has the error") and note($s->{last_error});
		ok($node->value(q{SELECT last_error_at > now() - interval '20 s' FROM etcd_leader_status}), "$how: $name: and its time");
		cmp_ok(cpu_seconds($node->elector_pid) - $cpu{$name}, '<', 0.05 * 2 * $ttl, "$how: $name: no CPU is burnt");
	}

	# What waits for etcd ends with an error, in bounded time.
	# (A put may take effect later: so it proclaims the present value.)
	for my $call (q{etcd_candidates()}, q{etcd_proclaim(current_setting('cluster_name'))})
	{
		my $began = now();
		my ($state, $message) = $other->failure("SELECT * FROM $call");
		isnt($state, '', "$how: $call fails") and note("$state $message");
		in_time(now() - $began, 2 * $ttl, "$how: and soon");
	}
	my $began = now();
	is($leader->value(q{SELECT etcd_wait_for_leadership(timeout => '200 ms')}), 0, "$how: etcd_wait_for_leadership() says false at its timeout");
	in_time(now() - $began, 1, "$how: and soon");

	# The server can be stopped quickly, and a database dropped.
	if ($how eq 'frozen')
	{
		$other->value('CREATE DATABASE scratch');
		$began = now();
		$other->value('DROP DATABASE scratch');
		in_time(now() - $began, 1.5, "$how: DROP DATABASE is quick");
	}

	my %events = map { $_->name => [ grep { /^(?:disconnected|unelected|leader)/ } $listener{ $_->name }->summary ] } @nodes;
	for my $told (values %events)
	{
		s/^(disconnected - -) .+/$1 WHY/ for @$told;
	}
	is_deeply($events{ $leader->name },
		[ 'disconnected - - WHY', 'unelected postgres - lease_expired', 'leader postgres - no_contact' ],
		"$how: what the leader told, in order");
	is_deeply($events{ $other->name }, [ 'disconnected - - WHY', 'leader postgres - no_contact' ],
		"$how: what the other told, in order");
	for my $node (@nodes)
	{
		cmp_ok($node->log_count('\[\d+\] etcd_leader elector .*(?:LOG|WARNING):', $log{ $node->name }), '<=', 5,
			"$how: " . $node->name . ' logs what changes, and not each retry');
	}

	# It is back.
	$how eq 'killed' ? $etcd->start(0) : $etcd->thaw(0);
	my $back = now();
	poll_ok(10, sub { grep { $_->is_leader } @nodes }, "$how: there is a leader again");
	my $took = now() - $back;
	in_time($took, 3, sprintf '%s: within 3 s', $how);
	note(sprintf '%s: a leader %.2f s after etcd was back', $how, $took);
	($leader) = grep { $_->is_leader } @nodes;
	cmp_ok($leader->token, '>=', $token, "$how: no token goes back");
	for my $node (@nodes)
	{
		poll_is(10, sub { $node->current_leader }, $leader->name, "$how: " . $node->name . ' names it');
		ok($listener{ $node->name }->wait_for(sub { $_[0]->{event} eq 'connected' }), "$how: " . $node->name . ' tells that it is connected');
		is($node->elector_pid, $elector{ $node->name }, "$how: " . $node->name . ' has the same elector');
		is($node->status->{connected}, 1, "$how: " . $node->name . ': status says connected');
	}
	for my $node (@nodes)
	{
		my $name = $node->name;
		poll_is(2 * $ttl, sub { $node->trouble }, '', "$how: $name: the error is over");
	}

	my %runs = EtcdLeader::Sampler::check_exclusion(\@samplers, "etcd was $how", max_gap => 2);
	my ($last) = reverse grep { $_->{answer} eq 't' && $_->{b1} < $back } map { @$_ } values %runs;
	cmp_ok($last->{b1}, '<=', $gone + $ttl * 0.9 + 0.02, "$how: no true after the lease less the margin");
	note(sprintf '%s: true for %.3f s after etcd was gone', $how, $last->{b1} - $gone);
}

# With etcd hung, the server stops as fast as without the extension, nearly.
$etcd->freeze(0);
my $began = now();
$pg2->stop('fast');
in_time(now() - $began, 2.5, 'pg_ctl stop -m fast is quick while etcd hangs');
note(sprintf 'it took %.2f s', now() - $began);
$etcd->thaw(0);

# Started while etcd is away, and etcd comes later.
$etcd->kill(0);
$pg2->start;
poll_is(10, sub { $pg2->status->{state} }, 'joining', 'started without etcd: it wants to enter the queue');
poll_ok(10, sub { $pg2->status->{last_error} }, 'the status has the error');
is($pg2->is_leader, 0, 'nobody leads without etcd');
my ($sqlstate) = $pg2->failure('SELECT etcd_campaign()');
is($sqlstate, '08006', 'etcd_campaign() does not say that it is there already');
$etcd->start(0);
poll_ok(10, sub { my $l = $pg2->current_leader; defined $l }, 'etcd is there: somebody leads');

# A deadline passes, and the key that outlasts it still names the instance.  No error
# sends the client to the instance that raises it.
{
	my $leader;
	poll(10, sub { ($leader) = grep { $_->is_leader } @nodes }) or die 'nobody leads';
	$leader->configure(ttl => 4, safety_margin => 2000);
	poll(10, sub { my $t = $leader->status->{valid_s}; defined $t && $t < 2.1 && $t > 1.5 }) or die 'the margin is not longer';
	my ($commits, $fences) = map { $leader->connect_db } 1 .. 2;
	$commits->do($_) for 'BEGIN', 'SELECT etcd_require_leader()', 'INSERT INTO t VALUES (1)';
	$etcd->freeze(0);
	poll(10, sub { !$leader->is_leader }) or die 'the deadline does not pass';
	is($leader->current_leader, $leader->name, 'past the deadline: the key still names it');
	my $name = $leader->name;
	for my $case ([ 'SELECT etcd_require_leader()', $fences ], [ 'COMMIT', $commits ])
	{
		my ($state, $message) = $leader->failure(@$case);
		is($state, '25006', "past the deadline: $case->[0]");
		unlike($message, qr/"$name"/, "past the deadline: $case->[0]: it does not send the client here");
	}
	$etcd->thaw(0);
}

done_testing();
