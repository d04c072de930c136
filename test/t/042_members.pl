# A cluster of three members that are restarted, hang, die and change their
# leader: one of ours leads on, under the same token; two of three gone, none.
# ETCD_LEADER_ROUNDS: how often etcd's leader changes (3).
use EtcdLeader::Test;

# Two elections of etcd in a row may fail, by split votes: 4 s without a leader of etcd.
my $ttl    = 8;
my $rounds = $ENV{ETCD_LEADER_ROUNDS} // 3;
EtcdLeader::Util::watchdog(240 + 20 * $rounds);
my $etcd = EtcdLeader::Etcd->new(members => 3);
# pg2 knows one member only, and has to learn of the others
my $pg1 = EtcdLeader::Instance->create('pg1', etcd => $etcd, settings => { ttl => $ttl });
$pg1->wait_until_leader;
my $pg2 = EtcdLeader::Instance->create('pg2', endpoints => $etcd->url(0), settings => { ttl => $ttl });
my @nodes = ($pg1, $pg2);
$pg2->wait_until_candidate;
my $token = $pg1->token;

# Runs $code, and tests that $pg1 leads all the time, and that both have
# contact at the end.
sub undisturbed
{
	my ($what, $code) = @_;
	my @samplers = map { $_->sample } @nodes;
	my $event = $pg1->last_event;
	$code->();
	for my $node (@nodes)
	{
		poll_ok(10, sub { $node->value(qq{SELECT connected AND etcd_current_leader() = 'pg1' AND last_contact > now() - make_interval(secs => $ttl / 2.0) FROM etcd_leader_status}) },
			"$what: " . $node->name . ' has contact, and sees pg1 lead') or diag(EtcdLeader::Instance::explain_status($node));
	}
	is($pg1->token, $token, "$what: the token is the same");
	is(join('; ', grep { /^(?:elected|unelected|leader)/ } map { EtcdLeader::Listener::summarize($_) } $pg1->events($event)),
		'', "$what: no change was announced");
	my %runs = EtcdLeader::Sampler::check_exclusion(\@samplers, $what, max_gap => 2);
	is(scalar(grep { $_->{answer} eq 'f' } @{ $runs{pg1} }), 0, "$what: and it was never in doubt");
	return;
}

# Restarted one by one, as for an upgrade; killed one by one.
for my $how (qw(stop kill))
{
	undisturbed("rolling restart ($how)", sub {
		for my $i ($etcd->all)
		{
			$etcd->$how($i);
			$etcd->start($i);
			$etcd->wait_until_serving;
		}
	});
}

# The member in use hangs.
for my $node (@nodes)
{
	my $name = $node->name;
	undisturbed("the member of $name hangs", sub {
		# the restarts before may have changed it a moment ago
		my $used;
		poll(20, sub { $used = $node->status->{endpoint}; pause(0.5); $node->status->{endpoint} eq $used }) or die 'no endpoint stays in use';
		my ($i) = grep { $etcd->url($_) eq $used } $etcd->all;
		my $switches = $node->value('SELECT endpoint_switches FROM etcd_leader_stats');
		my $began = now();
		$etcd->freeze($i);
		poll_ok(10, sub { $node->status->{endpoint} ne $used }, "$name: another endpoint");
		# a renewal every third of the TTL, and half of the time-out, which is a ninth
		in_time(now() - $began - $ttl / 3 - $ttl / 18, 0.3, "$name: by the next renewal");
		note(sprintf '%s: after %.2f s', $name, now() - $began);
		cmp_ok($node->value('SELECT endpoint_switches FROM etcd_leader_stats'), '>', $switches, "$name: which is counted");
		# at its time-out, which may come after the request to the other member
		poll_ok(5, sub { ($node->value('SELECT last_error FROM etcd_leader_endpoints WHERE url = ?', $used) // '') =~ qr/no answer from etcd at "\Q$used\E"/ },
			"$name: and said");
		pause(1.5 * $ttl);
		$etcd->thaw($i);
		$etcd->wait_until_serving;
	});
}

# Its leader changes again and again: it is moved, killed, and stopped for 10 s
# and woken; with 10 rounds ten times in 70 s.
undisturbed("etcd's leader changes", sub {
	my $began = now();
	for my $round (1 .. $rounds)
	{
		my $leader = $etcd->leader // 0;
		my ($other) = grep { $_ != $leader } $etcd->all;
		my $how = (qw(move freeze kill kill move))[ $round % 5 ];
		if ($how eq 'move')
		{
			my $status = $etcd->post('/v3/maintenance/status', {}, $other);
			$etcd->etcdctl([$leader], 'move-leader', sprintf('%x', $status->{header}{member_id}));
		}
		else
		{
			$etcd->$how($leader);
			pause($how eq 'kill' ? 2 : $ttl + 2);
			$how eq 'kill' ? $etcd->start($leader) : $etcd->thaw($leader);
			# or the next round would leave one of three
			$etcd->wait_until_serving;
		}
		poll(10, sub { my $l = $etcd->leader; defined $l && $l != $leader }) or fail("$how: etcd has another leader");
		pause(2);
	}
	note(sprintf '%d changes in %.0f s', $rounds, now() - $began);
});

# Two of three gone for longer than the TTL.
{
	my @samplers = map { $_->sample } @nodes;
	$etcd->kill($_) for 1, 2;
	# with the first one alone gone, a keepalive is answered
	my $gone = now();
	poll_ok($ttl + 2, sub { !grep { $_->is_leader } @nodes }, 'no majority: nobody leads');
	pause($gone + 1.5 * $ttl - now());
	like($_->status->{last_error}, qr/no (?:answer|leader)|could not connect|Unavailable|timed out|deadline/i, $_->name . ' says why') for @nodes;
	note($_->status->{last_error}) for @nodes;
	my $restarted = now();
	$etcd->start($_, wait => 0) for 1, 2;
	$etcd->wait_until_serving(1, 2);
	my $back = now();
	poll_ok(10, sub { grep { $_->is_leader } @nodes }, 'a majority again: somebody leads');
	in_time(now() - $back, 5, 'within 5 s');
	note(sprintf 'after %.2f s', now() - $back);
	my %runs = EtcdLeader::Sampler::check_exclusion(\@samplers, 'no majority', max_gap => 2);
	my ($last) = reverse grep { $_->{answer} eq 't' && $_->{b1} < $restarted } @{ $runs{pg1} };
	cmp_ok($last->{b1}, '<=', $gone + 0.9 * $ttl + 0.05, 'false when the lease less the margin was over');
}
done_testing();
