# Three instances: exactly one leads, the others name it, and the views, the
# queue and the keys in etcd agree.
use EtcdLeader::Test;
use JSON::PP ();
use MIME::Base64 qw(decode_base64);

my $etcd  = EtcdLeader::Etcd->new;
my @nodes = map { EtcdLeader::Instance->create($_, etcd => $etcd) } qw(pg1 pg2 pg3);
$_->wait_until_candidate for @nodes;
poll_ok(10, sub { grep { $_->is_leader } @nodes }, 'somebody leads');

is(scalar(grep { $_->is_leader } @nodes), 1, 'exactly one leads');
my ($leader) = grep { $_->is_leader } @nodes;
is($leader->name, 'pg1', 'the instance that entered first leads');
for my $node (@nodes)
{
	poll_is(5, sub { $node->current_leader }, $leader->name, $node->name . ' names the leader');
}

# The keys, as etcdctl prints them.
my $printed = JSON::PP->new->decode($etcd->etcdctl('get', '--prefix', 'postgres/', '-w', 'json'));
my @queue   = sort { $a->{create_revision} <=> $b->{create_revision} } @{ $printed->{kvs} };
is(scalar @queue, 3, 'three keys stand in etcd');
is(join(' ', map { decode_base64($_->{value}) } @queue), 'pg1 pg2 pg3', 'their values are the node names');

my $position = 0;
for my $kv (@queue)
{
	my $name = decode_base64($kv->{value});
	my ($node) = grep { $_->name eq $name } @nodes;
	my $s = $node->status;
	$position++;
	is($s->{key}, decode_base64($kv->{key}), "$name: status has the key");
	my $system = $node->value('SELECT system_identifier FROM pg_control_system()');
	is($s->{key}, "postgres/$s->{lease_id}.$system.1.pg", "$name: the key is <election>/<lease>.<system identifier>.<timeline>.pg");
	is($s->{lease_id}, sprintf('%x', $kv->{lease}), "$name: status has the lease");
	is($s->{create_revision}, $kv->{create_revision}, "$name: status has the create revision");
	is($s->{fencing_token}, $queue[0]{create_revision}, "$name: status has the leader's token");
	is($s->{leader}, 'pg1', "$name: status has the leader");
	is($s->{node}, $name, "$name: status has the node name");
	is($s->{election}, 'postgres', "$name: status has the election");
	is($s->{role}, $position == 1 ? 'leader' : 'candidate', "$name: status has the role");
	is($s->{state}, $position == 1 ? 'leading' : 'waiting', "$name: status has the state");
	is($s->{is_leader}, $position == 1 ? 1 : 0, "$name: status says whether it leads");
	is($s->{connected}, 1, "$name: status says connected");
	is($s->{endpoint}, $etcd->url(0), "$name: status has the endpoint");
	ok($node->value(q{SELECT last_contact > now() - interval '5 s' AND last_contact <= clock_timestamp() FROM etcd_leader_status}),
		"$name: contact was just now");
	ok($node->value(q{SELECT leader_since > now() - interval '60 s' AND leader_since <= clock_timestamp() FROM etcd_leader_status}),
		"$name: the leader is there since a moment ago");
	is($node->token, $position == 1 ? $kv->{create_revision} : undef, "$name: etcd_fencing_token()");
	if ($position == 1)
	{
		ok($s->{valid_s} > 0 && $s->{valid_s} <= 4.5, "$name: valid for what the lease and the margin leave")
		  or diag("valid_for $s->{valid_s}");
	}
	else
	{
		is($s->{valid_s}, undef, "$name: nothing is valid");
	}

	# etcd_candidates() on each instance
	my @rows = $node->rows('SELECT * FROM etcd_candidates() ORDER BY "position"');
	is(scalar @rows, 3, "$name: etcd_candidates() has three rows");
	for my $i (0 .. $#rows)
	{
		my $value = decode_base64($queue[$i]{value});
		is_deeply(
			$rows[$i],
			{
				position        => $i + 1,
				node            => $value,
				is_leader       => $i == 0 ? 1 : 0,
				is_self         => $value eq $name ? 1 : 0,
				key             => decode_base64($queue[$i]{key}),
				lease_id        => sprintf('%x', $queue[$i]{lease}),
				create_revision => $queue[$i]{create_revision},
			},
			"$name: candidate " . ($i + 1));
	}
}

# What leads gates a statement, and the plan shows that it is asked once.
for my $node (@nodes)
{
	my $plan = join "\n", map { values %$_ }
	  $node->rows('EXPLAIN (COSTS OFF) SELECT count(*) FROM generate_series(1, 10) WHERE etcd_is_leader()');
	like($plan, qr/One-Time Filter: etcd_is_leader/, $node->name . ': the gate is a One-Time Filter');
	is($node->value('SELECT count(*) FROM generate_series(1, 10) WHERE etcd_is_leader()'),
		$node->name eq 'pg1' ? 10 : 0, $node->name . ': the gate');
}

# Names of elections.
is($leader->value(q{SELECT etcd_is_leader('postgres')}), 1, 'the election by its name');
is(($leader->failure(q{SELECT etcd_is_leader('other')}))[0], '42704', 'an election that is not in the settings');

# What each has announced so far.
is_deeply([ map { EtcdLeader::Listener::summarize($_) } $nodes[0]->events ],
	[ 'connected - - -', 'elected postgres pg1 -' ], 'events of the leader');
is_deeply([ map { EtcdLeader::Listener::summarize($_) } $nodes[1]->events ],
	[ 'connected - - -', 'leader postgres pg1 -' ], 'events of a follower');

# The leases are kept, by two requests for each renewal: over three TTLs nothing changes.
my @tokens = map { $_->{create_revision} } $etcd->candidates('postgres');
my %before = map { $_->name => $_->row('SELECT requests, failures, keepalives FROM etcd_leader_stats') } @nodes;
my $began  = now();
pause(15);
my $renewals = (now() - $began) / (5 / 3);
is(join(' ', map { $_->{create_revision} } $etcd->candidates('postgres')), "@tokens", 'the queue is the same after three TTLs');
ok($leader->is_leader, 'the same instance leads after three TTLs');
for my $node (@nodes)
{
	my $after = $node->row('SELECT requests, failures, keepalives, elections_won FROM etcd_leader_stats');
	my $old   = $before{ $node->name };
	my ($requests, $keepalives) = map { $after->{$_} - $old->{$_} } qw(requests keepalives);
	ok($keepalives >= $renewals - 2 && $keepalives <= $renewals + 2, $node->name . ': a keepalive each third of the TTL')
	  or diag("$keepalives keepalives in $renewals renewals");
	ok($requests <= 2 * $renewals + 3, $node->name . ': two requests a renewal') or diag("$requests requests in $renewals renewals");
	is($after->{failures}, $old->{failures}, $node->name . ': no failures');
	is($after->{elections_won}, $node->name eq 'pg1' ? 1 : 0, $node->name . ': elections won');
}

done_testing();
