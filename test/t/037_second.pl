# A candidate that does not lead dies: as the second in the queue, and between its lease
# and its key, with the entry on its way to etcd.  The leader is not disturbed,
# nothing of the dead stays behind, and the queue goes on.  And a leader that
# is frozen for three TTLs.
use EtcdLeader::Test;
use EtcdLeader::Relay;

my $ttl   = 2;
my $etcd  = EtcdLeader::Etcd->new;
my %relay = map { $_ => EtcdLeader::Relay->new($etcd->url(0)) } qw(pg1 pg2 pg3);
my %nodes = map { $_ => EtcdLeader::Instance->create($_, endpoints => $relay{$_}->url, settings => { ttl => $ttl, protocol => 'json' }) } sort keys %relay;

my %frozen;
END { kill 'CONT', $_ for keys %frozen }

sub freeze { my $pid = $_[0]->elector_pid; kill 'STOP', $pid; $frozen{$pid} = 1; return $pid }
sub thaw   { kill 'CONT', $_[0]; return delete $frozen{ $_[0] } }

# All of them, in the order of the queue, when the queue is known to all.
sub places
{
	my @queue;
	poll(20, sub {
		@queue = map { $nodes{ $_->{value} } } $etcd->candidates('postgres');
		return @queue == 3 && $queue[0]->try_value('SELECT etcd_is_leader()')
		  && !grep { ($_->try_value('SELECT state FROM etcd_leader_status') // '') ne 'waiting' } @queue[ 1, 2 ];
	}) or die 'no queue of three: ' . join ', ', map { $_->{value} } $etcd->candidates('postgres');
	return @queue;
}

sub key_of
{
	my ($node) = @_;
	my ($key) = grep { $_->{value} eq $node->name } $etcd->candidates('postgres');
	return $key;
}

sub start_again
{
	my ($node, $killed) = @_;
	return if $node->{_pid};
	wait_for_exit($killed, 10) if $killed;
	# all processes of the old server must be gone before it can start
	poll(30, sub { $node->start(fail_ok => 1) }) or die 'the dead server does not start again';
	return;
}

my %death = (
	'postmaster killed' => sub { $_[0]->kill9 },
	'immediate stop'    => sub { $_[0]->stop('immediate') },
	'fast stop'         => sub { $_[0]->stop('fast') },
	'elector killed'    => sub { kill 'KILL', $_[0]->elector_pid },
	'elector frozen'    => sub { freeze($_[0]) },
	# no process is left to say good-bye
	'host gone' => sub {
		my ($node) = @_;
		my $elector = $node->elector_pid;
		kill 'STOP', $elector;
		kill 'KILL', $node->{_pid}, $elector;
		$node->{_pid} = undef;
	},
);

# ---- second in the queue ----------------------------------------------------------

for my $death ('elector killed', 'postmaster killed', 'immediate stop', 'fast stop', 'elector frozen')
{
	my $what = "second, $death";
	my ($leader, $second, $third) = places();
	my @samplers = map { $_->sample } $leader, $third;
	my $token    = $leader->token;
	my %seen     = map { $_->name => $_->last_event } $leader, $second, $third;
	my $key      = key_of($second);
	my $pid      = $second->{_pid};
	my $offset   = $second->log_size;
	my $next     = $third;

	my $began  = now();
	my $result = $death{$death}->($second);
	if ($death eq 'elector killed')
	{
		poll_ok(20, sub { $second->log_count('database system is ready to accept connections', $offset) }, "$what: the server restarts");
		poll_is($ttl, sub { $second->try_value('SELECT state FROM etcd_leader_status') }, 'waiting', "$what: it waits again");
		is($second->status->{create_revision}, $key->{create_revision}, "$what: in its place");
		is(key_of($second)->{lease}, $key->{lease}, "$what: on its lease");
		$next = $second;
	}
	else
	{
		poll_ok($ttl + 3, sub { !key_of($second) }, "$what: its key goes");
		my $took = now() - $began;
		if ($death eq 'elector frozen')
		{
			cmp_ok($took, '>', $ttl / 2, "$what: with its lease");
			pause($began + 3 * $ttl - now());
		}
		else
		{
			in_time($took, 0.5, "$what: at once");
			poll_ok(1, sub { !grep { $_ == $key->{lease} } $etcd->leases }, "$what: and its lease");
		}
		note(sprintf '%s: its key is gone after %.0f ms', $what, 1000 * $took);
	}
	is($leader->token, $token, "$what: the leader leads as before");
	is_deeply([ map { $_->{event} } map { $_->events($seen{ $_->name }) } $leader, $third ], [], "$what: nobody has anything to tell");

	$leader->value('SELECT etcd_resign()');
	poll_ok(2, sub { $next->is_leader }, "$what: the next one leads when the leader resigns");
	cmp_ok($next->token, '>', $token, "$what: under a greater token");
	if ($death eq 'elector frozen')
	{
		thaw($result);
		poll_ok(5, sub { ($second->status->{create_revision} // 0) > $next->token }, "$what: woken, it queues anew");
		is($second->current_leader, $next->name, "$what: and knows who leads");
		is_deeply([ grep { $_->{event} eq 'elected' } $second->events($seen{ $second->name }) ], [], "$what: and has never led");
	}
	my %runs = EtcdLeader::Sampler::check_exclusion(\@samplers, $what, max_gap => 2);
	is(scalar(grep { $_->{answer} eq 't' && $_->{token} eq $token } @{ $runs{ $leader->name } }), 1, "$what: the leader led without a gap");
	start_again($second, $death eq 'postmaster killed' && $pid);
}

# ---- between lease and key ----------------------------------------------------------

for my $death ('elector killed', 'postmaster killed', 'immediate stop', 'fast stop', 'elector frozen', 'host gone')
{
	my $what = "between lease and key, $death";
	my ($leader, $second, $joining) = places();
	my $token  = $leader->token;
	my $name   = $joining->name;
	my %others = map { key_of($_)->{lease} => 1 } $leader, $second;
	$joining->stop('fast');
	poll(5, sub { $etcd->leases == 2 }) or die;
	my $seen  = $second->last_event;
	my $holds = $relay{$name}->held;
	$relay{$name}->hold_puts;
	$joining->start;
	poll_ok(10, sub { $relay{$name}->held > $holds }, "$what: its entry is on its way");
	my ($lease) = grep { !$others{$_} } $etcd->leases;
	ok($lease, "$what: it has a lease");
	is(key_of($joining), undef, "$what: and no key");
	my $pid    = $joining->{_pid};
	my $offset = $joining->log_size;

	my $began  = now();
	my $result = $death{$death}->($joining);
	my $gone;
	if ($death eq 'elector killed')
	{
		poll(20, sub { $joining->log_count('database system is ready to accept connections', $offset) }) or die;
		poll(10, sub { $joining->try_value('SELECT requests FROM etcd_leader_stats') }) or die;
	}
	elsif ($death ne 'host gone')
	{
		# or nobody is there to revoke it
		poll_ok($ttl + 3, sub { !grep { $_ == $lease } $etcd->leases }, "$what: its lease goes");
		$gone = now() - $began;
		in_time($gone, 0.5, "$what: at once") unless $death eq 'elector frozen';
	}

	# The packets that it sent before it died arrive now.
	$relay{$name}->release;
	if ($death eq 'host gone')
	{
		poll_ok(5, sub { key_of($joining) }, "$what: its entry arrives late");
		is(key_of($joining)->{lease}, $lease, "$what: on its lease");
		is($leader->token, $token, "$what: the leader leads as before");
		# it becomes the first of the queue, and is so for no longer than that lease
		$leader->value('SELECT etcd_resign()');
		poll_ok(2, sub { $second->is_leader }, "$what: the queue goes on");
		$second->wait_until_leader;
		poll(5, sub { ($leader->status->{state} // '') eq 'waiting' }) or die;
		$second->value('SELECT etcd_resign()');
		is(($etcd->candidates('postgres'))[0]{value}, $name, "$what: it would be the next");
		poll_ok($ttl + 3, sub { $leader->is_leader }, "$what: its key goes with its lease");
		is(key_of($joining), undef, "$what: it does not stand any more");
		poll_is(5, sub { (($second->events(0))[-1] // {})->{leader} }, $leader->name, "$what: the other one has told so");
		($token, $seen) = ($leader->token, $second->last_event);
		ok(!(grep { $_ == $lease } $etcd->leases), "$what: which is gone");
		$gone = now() - $began;
	}
	elsif ($death ne 'elector killed')
	{
		pause(0.3);
		is(key_of($joining), undef, "$what: no late entry makes it a candidate");
	}
	note(sprintf '%s: its lease is gone after %.0f ms', $what, 1000 * $gone) if $gone;

	is($leader->token, $token, "$what: the leader leads as before");
	is_deeply([ $second->events($seen) ], [], "$what: nobody has anything to tell");
	thaw($result) if $death eq 'elector frozen';
	start_again($joining, $death =~ /^(?:postmaster killed|host gone)$/ && $pid);
	places();
	poll_is($ttl + 3, sub { scalar(my @keys = $etcd->candidates('postgres')) }, 3, "$what: afterwards, everybody is a candidate");
	poll_is($ttl + 3, sub { scalar(my @leases = $etcd->leases) }, 3, "$what: with a lease each, and no other");
	is($joining->status->{create_revision}, key_of($joining)->{create_revision}, "$what: and knows its place");
	$leader->value('SELECT etcd_resign()');
	poll_ok(2, sub { $second->is_leader }, "$what: the next one leads when the leader resigns");
}

# ---- a leader is frozen for three TTLs -------------------------------------------------

{
	my ($leader, $second, $third) = places();
	my @samplers = map { $_->sample(interval => 0.001) } $leader, $second, $third;
	my $token    = $leader->token;
	my $seen     = $leader->last_event;
	my $froze    = now();
	my $pid      = freeze($leader);
	poll_ok($ttl + 3, sub { $second->is_leader }, 'leader frozen: the next one leads');
	pause($froze + 3 * $ttl - now());
	thaw($pid);
	my $woke = now();
	poll_ok(5, sub { ($leader->status->{create_revision} // 0) > $second->token }, 'leader frozen: woken, it queues anew');
	is(($etcd->candidates('postgres'))[-1]{value}, $leader->name, 'leader frozen: last');
	poll_is(5, sub { $leader->current_leader }, $second->name, 'leader frozen: it knows who leads');
	is_deeply([ map { EtcdLeader::Listener::summarize($_) } grep { $_->{event} =~ /^(?:unelected|elected)$/ } $leader->events($seen) ],
		['unelected postgres - lease_expired'], 'leader frozen: and says so');
	pause($ttl);
	my %runs = EtcdLeader::Sampler::check_exclusion(\@samplers, 'leader frozen', max_gap => 2);
	my @true = grep { $_->{answer} eq 't' } @{ $runs{ $leader->name } };
	is_deeply([ map { $_->{token} } @true ], [$token], 'leader frozen: true without a gap, then never again');
	cmp_ok($true[0]{b1}, '<=', $froze + 0.9 * $ttl + 0.02, 'leader frozen: until its deadline');
	my ($next) = grep { $_->{answer} eq 't' } @{ $runs{ $second->name } };
	cmp_ok($true[0]{a1}, '<', $next->{b0}, 'leader frozen: and the next one not before') if $true[0] && $next;
	note(sprintf 'leader frozen: true for %.3f s, the next one %.3f s later', $true[0]{b1} - $froze, $next->{b0} - $true[0]{a1});
}

done_testing();
