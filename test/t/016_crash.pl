# What ends a server without asking it: others lead soon, and nobody too
# early.  A crash of a backend costs at most the leadership.
use EtcdLeader::Test;

# so long that a lease outlasts a crash restart
my $ttl   = 10;
my $etcd  = EtcdLeader::Etcd->new;
my %nodes = map { $_ => EtcdLeader::Instance->create($_, etcd => $etcd, settings => { ttl => $ttl }) } qw(pg1 pg2);
my @nodes = @nodes{qw(pg1 pg2)};
$_->wait_until_candidate for @nodes;
$nodes[0]->wait_until_leader;
my @samplers = map { $_->sample } @nodes;

# The leader, and the candidate behind it.
sub places
{
	$_->wait_until_candidate for @nodes;
	my ($first, $second) = map { $nodes{ $_->{value} } } $etcd->candidates('postgres');
	$first->wait_until_leader;
	return ($first, $second);
}

# How long until the next one leads.
sub time_to_lead
{
	my ($node, $began, $what) = @_;
	poll_ok($ttl + 5, sub { $node->is_leader }, "$what: the next one leads");
	my $took = now() - $began;
	note(sprintf '%s: after %.0f ms', $what, 1000 * $took);
	return $took;
}

# The leader leads again after the crash restart, under the same token, and
# nobody else has seen a change of leader: the lease and the place are resumed.
sub resumed_ok
{
	my ($leader, $next, $token, $seen, $began, $offset, $what) = @_;
	poll_ok($ttl, sub { $leader->try_value('SELECT etcd_is_leader()') }, "$what: it leads again");
	note(sprintf '%s: after %.0f ms', $what, 1000 * (now() - $began));
	is($leader->token, $token, "$what: under the same token");
	is($leader->log_count('resuming the lease', $offset), 1, "$what: the log says so");
	is_deeply([ grep { $_->{event} eq 'leader' } $next->events($seen) ], [], "$what: the other one has seen no change");
}

# The elector is killed.  The server takes that as a crash and restarts.
{
	my ($leader, $next) = places();
	my $token   = $leader->token;
	my $elector = $leader->elector_pid;
	my $offset  = $leader->log_size;
	my $seen    = $next->last_event;
	my $counted = q{SELECT won, lost, elections_won, elections_lost, losses, stats_reset, leases_granted FROM etcd_leader_status, etcd_leader_stats,
		etcd_leader_losses WHERE reason = 'shutdown'};
	my $before  = $leader->row($counted);
	my $last    = $leader->last_event;
	my $sent    = $leader->value('SELECT notifications_sent FROM etcd_leader_stats');
	my $began   = now();
	kill 'KILL', $elector;
	poll_ok(20, sub { $leader->log_count('database system is ready to accept connections', $offset) }, 'elector killed: the server restarts');
	poll_ok(20, sub { my $p = $leader->try_value(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'etcd_leader elector'}); $p && $p != $elector },
		'elector killed: there is a new one');
	resumed_ok($leader, $next, $token, $seen, $began, $offset, 'elector killed');
	$before->{$_}++ for qw(won lost elections_won elections_lost losses);
	is_deeply($leader->row($counted), $before, 'elector killed: the statistics go on, with the loss');

	# Leadership may have ended without an event, so a number is skipped.
	my @events = $leader->events($last);
	is(join(' ', map { $_->{seq} } @events), join(' ', $last + 2 .. $last + 1 + @events), 'elector killed: the numbers of events go on, with a gap');
	poll_ok(10, sub { $leader->value('SELECT notifications_sent FROM etcd_leader_stats') == $sent + $leader->last_event - $last - 1 },
		'elector killed: what is new is notified');
	is($leader->log_count('events were not announced', $offset), 0, 'elector killed: and nothing is missed');
}

# It is killed where it waits behind the leader: it keeps its place.
{
	my ($leader, $next) = places();
	my $key     = $next->status->{key};
	my $offset  = $next->log_size;
	kill 'KILL', $next->elector_pid;
	poll_ok(20, sub { $next->log_count('database system is ready to accept connections', $offset) }, 'waiting elector killed: the server restarts');
	poll_ok($ttl, sub { ($next->try_value('SELECT state FROM etcd_leader_status') // '') eq 'waiting' }, 'waiting elector killed: it waits again');
	is($next->status->{key}, $key, 'waiting elector killed: with the same key');
	is(scalar($etcd->candidates('postgres')), 2, 'waiting elector killed: and no other');
}

# A backend is killed: the same.
{
	my ($leader, $next) = places();
	my $token  = $leader->token;
	my $offset = $leader->log_size;
	my $seen   = $next->last_event;
	my $began  = now();
	kill 'KILL', $leader->connect_db->{pg_pid};
	poll_ok(20, sub { $leader->log_count('database system is ready to accept connections', $offset) }, 'backend killed: the server restarts');
	resumed_ok($leader, $next, $token, $seen, $began, $offset, 'backend killed');
}

# An instance that has resigned for good stays out.
{
	my ($leader, $next) = places();
	is($next->value('SELECT etcd_resign(rejoin => false)'), 1, 'resigned for good');
	my $offset = $next->log_size;
	kill 'KILL', $next->connect_db->{pg_pid};
	poll_ok(20, sub { $next->log_count('database system is ready to accept connections', $offset) }, 'resigned for good: the server restarts');
	poll_ok($ttl, sub { ($next->try_value('SELECT leader FROM etcd_leader_status') // '') eq $leader->name }, 'resigned for good: it sees who leads');
	is($next->status->{state}, 'resigned', 'resigned for good: and does not queue');
	$next->value('SELECT etcd_campaign()');
	$next->wait_until_candidate;
}

# An immediate stop: the elector withdraws and revokes, milliseconds later
# another instance leads.
{
	my ($leader, $next) = places();
	my $token = $leader->token;
	my $began = now();
	$leader->stop('immediate');
	cmp_ok(time_to_lead($next, $began, 'immediate stop'), '<', $ttl / 2, 'immediate stop: long before the lease would have expired');
	cmp_ok($next->token, '>', $token, 'immediate stop: under a greater token');
	$leader->start;
}

# The postmaster is killed: the elector sees it.
{
	my ($leader, $next) = places();
	my $token = $leader->token;
	my $pid   = $leader->{_pid};
	my $began = now();
	$leader->kill9;
	cmp_ok(time_to_lead($next, $began, 'postmaster killed'), '<', $ttl / 2, 'postmaster killed: long before the lease would have expired');
	cmp_ok($next->token, '>', $token, 'postmaster killed: under a greater token');
	wait_for_exit($pid, 10);
	# all processes of the old server must be gone before it can start
	poll(20, sub { $leader->start(fail_ok => 1) }) or die 'the killed server does not start again';
}

# All of its processes are killed at once, as if its host were gone: the lease
# runs out.
{
	my ($leader, $next) = places();
	my $token   = $leader->token;
	my @all     = map { $_->{pid} } $leader->rows('SELECT pid FROM pg_stat_activity');
	my $elector = $leader->elector_pid;
	my $began   = now();
	kill 'STOP', $elector;
	kill 'KILL', $leader->{_pid}, $elector;
	$leader->{_pid} = undef;
	wait_for_exit($_, 10) for @all;
	my $took = time_to_lead($next, $began, 'host gone');
	in_time($took, $ttl + 2.5, 'host gone: when the lease has expired');
	cmp_ok($took, '>', $ttl / 2, 'host gone: and not before');
	cmp_ok($next->token, '>', $token, 'host gone: under a greater token');
	poll(20, sub { $leader->start(fail_ok => 1) }) or die 'the killed server does not start again';
	places();
}

# Smart shutdown: it leads until its last client has left.
{
	my ($leader, $next) = places();
	my $client = $leader->connect_db;
	$_->stop for @samplers;
	$leader->{el_dbh}->disconnect;
	my $stop = EtcdLeader::Util::Process->spawn(
		log => "$PostgreSQL::Test::Utils::log_path/016_crash_smart.log",
		cmd => [ 'pg_ctl', '-D', $leader->data_dir, '-m', 'smart', '-w', 'stop' ]);
	poll_ok(10, sub { $leader->log_count('received smart shutdown request') }, 'smart stop: asked for');
	is($client->selectrow_array('SELECT etcd_is_leader()'), 1, 'smart stop: it leads as long as there is a client');
	is($next->is_leader, 0, 'smart stop: and nobody else');
	$client->disconnect;
	my $began = now();
	in_time(time_to_lead($next, $began, 'smart stop'), 3, 'smart stop: the next one leads when the client has left');
	ok($stop->wait(20), 'smart stop: the server has stopped');
	$leader->_update_pid(0);
}

EtcdLeader::Sampler::check_exclusion(\@samplers, 'all crashes', max_gap => 3);
done_testing();
