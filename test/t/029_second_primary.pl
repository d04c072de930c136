# Two primaries of one database system: the second one never leads while the first one
# lives, over restarts of all of them and of etcd; an old primary that comes back does not
# lead; and a failover by promotion takes as long as with the setting "wait".
use EtcdLeader::Test;
use EtcdLeader::Http;

my $ttl  = 3;
my $etcd = EtcdLeader::Etcd->new(members => 3);

# A primary with a standby, which streams.
my $nclusters = 0;
sub cluster
{
	my (%settings) = @_;
	my $n       = ++$nclusters;
	my $primary = EtcdLeader::Instance->create("primary$n", etcd => $etcd, init => { allows_streaming => 1 },
		settings => { ttl => $ttl, elections => "cluster$n", %settings });
	$primary->wait_until_leader;
	my $port    = PostgreSQL::Test::Cluster::get_free_port();
	my $standby = EtcdLeader::Instance->create_standby("standby$n", $primary, settings => { http_listen => "127.0.0.1:$port" });
	$primary->wait_for_catchup($standby);
	return ($primary, $standby, "cluster$n", $port);
}

sub promote
{
	my ($node) = @_;
	$node->value('SELECT pg_promote(wait_seconds => 60)');
	return;
}

sub state_is
{
	my ($node, $state, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return poll_is(2 * $ttl + 10, sub { $node->status->{state} }, $state, $what);
}

sub never_led
{
	my ($what, @samplers) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @led = grep { $_->{answer} eq 't' } map { $_->stop } @samplers;
	return is_deeply(\@led, [], $what);
}

# ---- a standby is promoted while the primary lives -----------------------------------------
{
	my ($primary, $standby, $election, $port) = cluster();
	my ($system) = $primary->value('SELECT system_identifier FROM pg_control_system()');
	my $name = sub { return join ' ', map { $_->{key} =~ s{^\Q$election\E/[0-9a-f]+}{}r } $etcd->candidates($election) };
	is($name->(), ".$system.1.pg", 'the name of the key tells system identifier and timeline');
	my $sampler = $standby->sample;
	my $token   = $primary->token;
	promote($standby);
	my $began = now();
	state_is($standby, 'second_primary', 'promoted by mistake: it is a second primary');
	note(sprintf 'a second primary after %.1f s, TTL %d s', now() - $began, $ttl);
	is($name->(), ".$system.1.pg", 'promoted by mistake: it has no key');
	is($primary->token, $token, 'promoted by mistake: the primary leads on');
	is($standby->status->{role}, 'observer', 'promoted by mistake: it observes');
	is($standby->current_leader, $primary->name, 'promoted by mistake: and knows who leads');
	my $row = $standby->row('SELECT * FROM etcd_leader_problems');
	is(join(' ', map { $row->{$_} // '' } qw(item subject severity)), "second_primary $election error", 'the view has the problem');
	like($row->{problem}, qr/^this instance stays out of election "$election": another primary of this database system led on timeline 1 and was alive when this instance was a primary on timeline 2$/, 'its text');
	like($row->{hint}, qr/etcd_campaign\(\).*pg_rewind/, 'and what to do');
	is($standby->status->{last_error}, $row->{problem}, 'last_error is the problem');
	is($standby->log_count("WARNING:  \Q$row->{problem}\E"), 1, 'the log has it, once');
	like((http_get($port, '/metrics'))[2], qr/^etcd_leader_problem\{item="second_primary",subject="$election",severity="error"\} 1$/m, 'the metrics have it');
	is($primary->trouble, '', 'the primary has no problem');

	# the way that made the stale one lead: a restart for a minor update
	for my $mode (qw(fast immediate))
	{
		$primary->stop($mode);
		pause(1.5 * $ttl) if $mode eq 'fast';
		$primary->start;
		$primary->wait_until_leader(undef, 3 * $ttl);
		ok(1, "the primary leads again after a restart ($mode)");
	}
	# the second one is restarted, beside the primary and without it; and both at once
	$sampler->stop;
	$standby->restart;
	$sampler = $standby->sample;
	state_is($standby, 'second_primary', 'restarted: it is one still');
	$sampler->stop;
	$primary->stop('fast');
	$standby->restart;
	$sampler = $standby->sample;
	state_is($standby, 'second_primary', 'restarted without the primary: it is one still');
	pause(2 * $ttl);
	is_deeply([ $etcd->candidates($election) ], [], 'nobody is in the queue');
	# etcd is restarted in between, one member after the other
	for my $member (0 .. 2) { $etcd->stop($member); $etcd->start($member) }
	$primary->start;
	$primary->wait_until_leader(undef, 20);
	poll_ok(20, sub { ($standby->current_leader // '') eq $primary->name }, 'the second one sees it');
	is($standby->status->{state}, 'second_primary', 'and stays out');
	is($standby->is_leader, 0, 'and does not lead');

	# the primary is lost for good: an operator decides
	$primary->stop('immediate');
	pause(2.5 * $ttl);
	is_deeply([ $etcd->candidates($election) ], [], 'the primary is lost: nobody is in the queue');
	never_led('the second primary has never led', $sampler);
	my $log = $standby->log_size;
	is($standby->value('SELECT etcd_campaign()'), 1, 'etcd_campaign() takes it in');
	poll_ok(5, sub { $standby->is_leader }, 'it leads');
	poll_is(5, sub { $standby->trouble }, '', 'the problem is over');
	poll_ok(5, sub { $standby->log_count('LOG:  this problem is over: this instance stays out', $log) }, 'the log says so');
	$standby->restart;
	$standby->wait_until_leader(undef, 10);

	# and now the other one is the old one
	$primary->start;
	state_is($primary, 'second_primary', 'the lost primary comes back: it stays out');
	poll_ok(5, sub { $primary->trouble =~ /a primary of this database system has led on timeline 2, and this instance is a primary on timeline 1/ }, 'and says why');
	# it resigns for good, and somebody thinks of it as any other instance
	is($primary->value('SELECT etcd_resign(rejoin => false)'), 0, 'it resigns for good: there is no key to delete');
	state_is($primary, 'resigned', 'it has resigned');
	my ($sqlstate, $message) = $primary->failure('SELECT etcd_campaign()');
	is($sqlstate, '55000', 'etcd_campaign() then says what is wrong');
	like($message, qr/another primary of this database system leads election "$election", or has led it on a later timeline.*HINT:  If the data of this instance is the right one, call etcd_campaign\(\) again\./s, 'and what to do');
	state_is($primary, 'second_primary', 'it stays out');
	my $primary_sampler = $primary->sample;
	$standby->restart;
	$standby->wait_until_leader(undef, 10);
	never_led('the old primary has never led', $primary_sampler);

	# the setting
	$primary->configure(second_primary => 'wait');
	state_is($primary, 'waiting', 'second_primary = wait: it waits');
	$standby->stop('fast');
	poll_ok(5, sub { $primary->is_leader }, 'second_primary = wait: and leads');
	$_->stop('fast', fail_ok => 1) for $primary, $standby;
}

# ---- a failover ---------------------------------------------------------------------------
# The primary is killed, the standby promoted.  With and without the rule.
{
	my %took;
	for my $second (qw(refuse wait))
	{
		my ($primary, $standby, $election) = cluster(second_primary => $second);
		my $token = $primary->token;
		my $pid   = $primary->{_pid};
		my $elector = $primary->elector_pid;
		my @samplers = map { $_->sample } $primary, $standby;
		# the host is gone: nobody revokes the lease
		kill('STOP', $elector) or die;
		my $began = now();
		kill('KILL', $pid) or die;
		$primary->{_pid} = undef;
		promote($standby);
		poll_ok($ttl + 10, sub { $standby->is_leader }, "failover, $second: the promoted standby leads");
		$took{$second} = now() - $began;
		cmp_ok($standby->token, '>', $token, "failover, $second: under a greater token");
		# the primary is asked for a moment only
		EtcdLeader::Sampler::check_exclusion(\@samplers, "failover, $second");
		kill('KILL', $elector);
		next if $second eq 'wait';

		# the old primary comes back
		wait_for_exit($pid, 10);
		poll_ok(30, sub { $primary->start(fail_ok => 1) }, 'the old primary comes back');
		my $sampler = $primary->sample;
		state_is($primary, 'second_primary', 'it stays out');
		$standby->restart;
		$standby->wait_until_leader(undef, 10);
		is($primary->is_leader, 0, 'a restart of the new one does not make it lead');
		$primary->restart;
		state_is($primary, 'second_primary', 'restarted, it stays out');
		$standby->stop('fast');
		pause($ttl);
		is_deeply([ $etcd->candidates($election) ], [], 'nor does it lead without the new one');
		never_led('it has never led', $sampler);
	}
	note(sprintf 'a failover took %.2f s with the rule, and %.2f s without, TTL %d s', @took{qw(refuse wait)}, $ttl);
	in_time($took{refuse}, $ttl + 2.5, 'a failover takes a TTL');
}

# ---- a switchover by hand ------------------------------------------------------------------
{
	my ($primary, $standby) = cluster();
	$primary->stop('fast');
	promote($standby);
	my $began = now();
	poll_ok(5, sub { $standby->is_leader }, 'stopped, promoted: the new primary leads');
	in_time(now() - $began, 1, 'at once');
	poll_is(5, sub { $standby->trouble }, '', 'without a problem');
}

done_testing();
