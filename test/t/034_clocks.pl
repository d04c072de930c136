# Clocks.  Somebody steps the wall clock by an hour, on the leader and on a
# candidate, in both directions: nothing changes, and no wait is longer or
# shorter.  The host sleeps, while the elector is frozen and while it is not:
# the first call afterwards says false, and nothing fenced commits.
use EtcdLeader::Test;
use DBD::Pg ();
use EtcdLeader::Relay;
use EtcdLeader::Session;
use EtcdLeader::Shim;
use List::Util qw(max min);

my $hour  = 3600;
my $ttl   = 3;
my $valid = 0.9 * $ttl;
my $etcd  = EtcdLeader::Etcd->new;
my $relay = EtcdLeader::Relay->new($etcd->url(0));
my %shim  = map { $_ => EtcdLeader::Shim->new } qw(pg1 pg2);
my ($pg1, $pg2) = map {
	my $name = $_;
	$shim{$name}->around(sub {
		EtcdLeader::Instance->create($name, endpoints => $name eq 'pg1' ? $relay->url : $etcd->url(0), settings => { ttl => $ttl });
	});
} qw(pg1 pg2);
$pg1->wait_until_leader;
$pg2->wait_until_candidate;
$pg1->value('CREATE TABLE t (i int)');
# It waits for nothing: what ends it is what interrupts it.
$pg1->value('CREATE FUNCTION busy() RETURNS void LANGUAGE plpgsql AS $$ BEGIN LOOP END LOOP; END $$');

my %frozen;
END { kill 'CONT', $_ for keys %frozen }

# Starts a statement that waits; the function that is returned waits for its
# end: (seconds that it took, the first column of its only row or undef, SQLSTATE).
sub start_waiting
{
	my ($node, $sql) = @_;
	my $dbh = $node->connect_db;
	my $statement = $dbh->prepare($sql, { pg_async => DBD::Pg::PG_ASYNC(), pg_server_prepare => 0 });
	my $began = now();
	$statement->execute;
	return sub {
		poll(20, sub { $dbh->pg_ready }) or return (-1, undef, 'hangs');
		my $took = now() - $began;
		return ($took, undef, $dbh->state) unless eval { $dbh->pg_result; 1 } && !$dbh->state;
		my $row = $statement->fetchrow_arrayref;
		return ($took, $row ? $row->[0] : undef, '');
	};
}

# Ends a session, also if its statement was not cancelled.
sub end_session
{
	my ($dbh) = @_;
	$pg1->value('SELECT pg_terminate_backend(?)', $dbh->{pg_pid});
	eval { $dbh->disconnect };
	return;
}

# ---- the wall clock is stepped ----------------------------------------------------

{
	my %token    = map { $_->name => $_->status->{create_revision} } $pg1, $pg2;
	my @samplers = map { $_->sample } $pg1, $pg2;
	my %seen     = map { $_->name => $_->last_event } $pg1, $pg2;
	for my $step (1, -2)
	{
		my $what  = $step > 0 ? 'leader forward, candidate back' : 'leader back, candidate forward';
		my %waits = (
			'etcd_wait_for_event() of the leader'         => start_waiting($pg1, q{SELECT seq FROM etcd_wait_for_event(timeout => '3 s')}),
			'etcd_wait_for_event() of the candidate'      => start_waiting($pg2, q{SELECT seq FROM etcd_wait_for_event(timeout => '3 s')}),
			'etcd_wait_for_leadership() of the candidate' => start_waiting($pg2, q{SELECT etcd_wait_for_leadership(timeout => '3 s')}),
		);
		my %keepalives = map { $_->name => $_->value('SELECT keepalives FROM etcd_leader_stats') } $pg1, $pg2;
		my $began = now();
		pause(0.3);
		$shim{pg1}->step_wall($step * $hour);
		$shim{pg2}->step_wall(-$step * $hour);
		my $wall = $pg1->value('SELECT extract(epoch FROM clock_timestamp())') - time;
		cmp_ok(abs($wall - ($step > 0 ? 1 : -1) * $hour), '<', 5, "$what: the server's wall clock is stepped");

		my @valid;
		while (now() < $began + 2.9)
		{
			push @valid, $pg1->status->{valid_s} // -1;
			is($pg1->value('SELECT etcd_verify_leader()'), $token{pg1}, "$what: etcd_verify_leader()") if @valid == 10;
			pause(0.02);
		}
		cmp_ok(max(@valid), '<=', $valid, "$what: valid_for is never more than the lease");
		in_time($valid - $ttl / 3 - min(@valid), 0.5, "$what: and never less than what a renewal leaves");
		for my $wait (sort keys %waits)
		{
			my ($took, $value) = $waits{$wait}->();
			cmp_ok($took, '>=', 3, "$what: $wait takes its time");
			in_time($took - 3, 0.5, "$what: $wait takes no longer");
			is($value || undef, undef, "$what: $wait: nothing happens");
		}
		my $window = now() - $began;
		for my $node ($pg1, $pg2)
		{
			my $renewals = $node->value('SELECT keepalives FROM etcd_leader_stats') - $keepalives{ $node->name };
			my $due   = $window / ($ttl / 3);
			ok($renewals > $due - 1.5 && $renewals < $due + 1.5, "$what: " . $node->name . ' keeps its lease alive at the same pace')
			  or diag(sprintf '%d in %.1f s', $renewals, $window);
			is_deeply([ map { EtcdLeader::Listener::summarize($_) } $node->events($seen{ $node->name }) ], [], "$what: " . $node->name . ': no event');
			is($node->status->{create_revision}, $token{ $node->name }, "$what: " . $node->name . ' has its place');
		}
		note(sprintf '%s: valid for %.2f to %.2f s', $what, min(@valid), max(@valid));
	}
	my %runs = EtcdLeader::Sampler::check_exclusion(\@samplers, 'wall clock stepped', max_gap => 2);
	is_deeply([ map { "$_->{answer} $_->{token}" } @{ $runs{pg1} } ], ["t $token{pg1}"], 'the leader never said false');
}

# While it waits for etcd, which says nothing.
for my $step (1, -2, 1)
{
	poll(10, sub { ($pg1->status->{valid_s} // 0) > $valid - 0.1 }) or die;
	my $token = $pg1->token;
	$relay->freeze;
	my $end = start_waiting($pg1, q{SELECT etcd_verify_leader(timeout => '0.7 s')});
	pause(0.2);
	$shim{pg1}->step_wall($step * $hour);
	my ($took, undef, $state) = $end->();
	$relay->thaw;
	is($state, '25006', "stepped by $step h: etcd_verify_leader() without an answer");
	cmp_ok($took, '>=', 0.7, "stepped by $step h: takes its time");
	in_time($took - 0.7, 0.5, "stepped by $step h: and no longer");
	poll_ok(5, sub { $pg1->value(q{SELECT connected FROM etcd_leader_status}) }, "stepped by $step h: etcd answers");
	is($pg1->token, $token, "stepped by $step h: it leads on");
}

# A transaction that is fenced when the clock is stepped is cancelled when
# leadership is lost, not an hour later.
for my $step (-1, 2, -1)
{
	$pg1->wait_until_leader;
	my $dbh = $pg1->connect_db;
	$dbh->begin_work;
	$dbh->do('SELECT etcd_require_leader()');
	start_statement($dbh, 'SELECT busy()');
	pause(0.3);
	$shim{pg1}->step_wall($step * $hour);
	# the alarm that was set before the step has gone off
	pause(0.5);
	$pg1->value('SELECT etcd_resign()');
	my $began = now();
	like(outcome($dbh, 5), qr/^25006 /, "stepped by $step h: a statement of a fenced transaction is cancelled");
	in_time(now() - $began, 1, "stepped by $step h: within a second");
	end_session($dbh);
	$pg2->wait_until_leader;
	$pg2->value('SELECT etcd_resign()');
}

# ---- the host sleeps ----------------------------------------------------------------

# The waiter stays away: the test is about the belief of the sleeper itself.
$pg1->wait_until_leader;
$pg2->value('SELECT etcd_resign(rejoin => false)');

for my $how ('a moment longer than the lease', 'for longer than a TTL', 'for an hour', 'for an hour, its elector awake', 'for an hour, with a long lease')
{
	# with the elector awake, and the time until its next renewal long
	if ($how =~ /long lease/)
	{
		$ttl = 120;
		$pg1->configure(ttl => $ttl);
	}
	poll(10, sub { ($pg1->status->{valid_s} // 0) > 0.9 * $ttl - 0.2 }) or die EtcdLeader::Instance::explain_status($pg1);
	my $lease  = $pg1->status->{lease_id};
	my $token  = $pg1->token;
	my $seen   = $pg1->last_event;
	my $idle   = $pg1->connect_db;
	my $busy   = $pg1->connect_db;
	my $reader = $pg1->connect_db;
	my $pid    = $pg1->elector_pid;
	for my $dbh ($idle, $busy)
	{
		$dbh->begin_work;
		$dbh->do('SELECT etcd_require_leader()');
		$dbh->do('INSERT INTO t VALUES (1)');
	}
	start_statement($busy, 'SELECT busy()');
	my $look = $reader->prepare('SELECT etcd_is_leader(), etcd_fencing_token()');
	$look->execute;
	$look->fetchall_arrayref;
	my $awake = $how =~ /awake|long lease/;
	if (!$awake)
	{
		kill 'STOP', $pid;
		$frozen{$pid} = 1;
	}
	my $valid_s = $pg1->status->{valid_s};
	cmp_ok($valid_s // 0, '>', 0.5, "$how: it leads before");

	$shim{pg1}->sleep_host($how =~ /moment/ ? $valid_s + 0.001 : $how =~ /TTL/ ? $ttl + 1 : $hour);
	my $slept = now();
	$look->execute;
	my ($leads, $seen_token) = $look->fetchrow_array;
	is($leads, 0, "$how: the first look says false");
	is($seen_token, undef, "$how: and has no token");
	is($pg1->status->{is_leader}, 0, "$how: so does the status");
	# An elector that is awake may lead again under the same token, because etcd has not slept.
	my $leads_again = sub { $awake && ($pg1->token // 0) == $token };
	my ($state) = $pg1->failure('SELECT etcd_require_leader()');
	is($state, '25006', "$how: etcd_require_leader() fails") unless $state eq '' && $leads_again->();
	# COMMIT itself, not one that a statement before it has warned
	my $committed = eval { $idle->commit };
	if ($committed && $leads_again->())
	{
		$pg1->value('DELETE FROM t');
	}
	else
	{
		is($idle->state, '25006', "$how: nothing fenced commits");
		like($@, qr/does not lead election "postgres" any more/, "$how: the message says so");
	}
	my $outcome = outcome($busy, $awake ? 0.9 : 5);
	unless ($outcome eq 'still running' && $leads_again->())
	{
		like($outcome, qr/^25006 /, "$how: a fenced statement is cancelled");
		in_time(now() - $slept, 1, "$how: within a second");
	}
	end_session($busy);
	is($pg1->value('SELECT count(*) FROM t'), 0, "$how: and has written nothing");

	if (!$awake)
	{
		is($pg1->value('SELECT etcd_is_leader()'), 0, "$how: it is false as long as the elector is frozen");
		kill 'CONT', $pid;
		delete $frozen{$pid};
	}
	my $woken = $awake ? $slept : now();

	# Each row is of one moment.
	my (@leases, $told, $led);
	poll_ok(10, sub {
		for (1 .. 50)
		{
			my $s = $reader->selectrow_hashref('SELECT is_leader, lease_id FROM etcd_leader_status');
			next unless $s->{is_leader};
			push @leases, $s->{lease_id};
			$led //= now() - $woken;
		}
		$told //= now() - $woken if grep { $_->{event} eq 'unelected' } $pg1->events($seen);
		return $led;
	}, "$how: it leads again");
	is_deeply([ grep { $_ eq $lease } @leases ], [], "$how: by a fresh lease, and not once by the old one");
	# an event comes after the state
	poll_is(5, sub { join ', ', grep { /elected/ } map { EtcdLeader::Listener::summarize($_) } $pg1->events($seen) },
		'unelected postgres - lease_expired, elected postgres pg1 -', "$how: and says what happened");
	# its timers knew nothing of the sleep: the timers of a renewal, or the longest
	in_time($led // 99, min($ttl / 3, 5) + 1, "$how: soon after it woke");
	is($pg1->elector_pid, $pid, "$how: with the same elector");
	note(sprintf '%s: told after %.3f s, led again after %.3f s; token %s, then %s', $how, $told // -1, $led // -1, $token, $pg1->token // '-');
}

done_testing();
