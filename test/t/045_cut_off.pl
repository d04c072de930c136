# The member in use is cut off: from us, from its peers, from all.  Packets are
# dropped, nothing is refused: each member is a host of its own, in a network
# that the test made, with an interface for clients and one for peers.
use EtcdLeader::Namespace;
use EtcdLeader::Test;

my $ttl = 5;

# Hosts 1 to 3 have 10.1.0.N for clients and 10.2.0.N for peers; the
# PostgreSQL instances are here, at 10.1.0.254.
EtcdLeader::Namespace::make_network('clients', '10.1.0.254/24');
EtcdLeader::Namespace::make_network('peers');
my @hosts;
for my $n (1 .. 3)
{
	my $host = EtcdLeader::Namespace::make_host([ "client$n", "10.1.0.$n/24" ], [ "peer$n", "10.2.0.$n/24" ]);
	plug("$_$n") for qw(client peer);
	push @hosts, [ $host, "10.1.0.$n", "10.2.0.$n" ];
}

sub pull { EtcdLeader::Namespace::pull($_) for @_; return }
sub plug { EtcdLeader::Namespace::plug($_, s/\d/s/r) for @_; return }

my $etcd  = EtcdLeader::Etcd->new(members => 3, hosts => \@hosts);
my @nodes = map { EtcdLeader::Instance->create($_, etcd => $etcd, settings => { ttl => $ttl }) } qw(pg1 pg2);
my ($pg1, $pg2) = @nodes;
$pg1->wait_until_leader;
$pg2->wait_until_candidate;
my $token = $pg1->token;

sub member_of { my ($node) = @_; my $url = $node->status->{endpoint}; return (grep { $etcd->url($_) eq $url } $etcd->all)[0] + 1 }

# cables; whether the member that is cut off shall lead etcd, or not
for my $case ([ 'from us', ['client'], 0 ], [ 'from its peers', ['peer'], 0 ], [ 'from its peers, which it leads', ['peer'], 1 ],
	[ 'from all', [ 'client', 'peer' ], 0 ])
{
	my ($what, $cables, $leads) = @$case;
	my $n = member_of($pg1);
	if (($etcd->leader + 1 == $n) != $leads)
	{
		my $target = $leads ? $n - 1 : (grep { $_ != $n - 1 } $etcd->all)[0];
		my $status = $etcd->post('/v3/maintenance/status', {}, $target);
		$etcd->etcdctl([ $etcd->leader ], 'move-leader', sprintf('%x', $status->{header}{member_id}));
		poll(10, sub { ($etcd->leader // -1) == $target }) or die 'etcd does not move its leader';
		pause($ttl);
	}
	$n = member_of($pg1);
	my @samplers = map { $_->sample } @nodes;
	my $began = now();
	pull(map { "$_$n" } @$cables);
	poll_ok(15, sub { member_of($pg1) != $n }, "cut off $what: pg1 uses another member");
	my $took = now() - $began;
	note(sprintf '%s: after %.2f s', $what, $took);
	# a renewal every third of the TTL, and half of the time-out, which is a ninth
	in_time($took - $ttl / 3 - $ttl / 18, 0.3, "cut off $what: by the next renewal");
	pause(1.1 * $ttl);
	is($pg1->token, $token, "cut off $what: pg1 leads on");
	my %runs = EtcdLeader::Sampler::check_exclusion(\@samplers, "cut off $what", max_gap => 2);
	is(scalar(grep { $_->{answer} eq 'f' } @{ $runs{pg1} }), 0, "cut off $what: and was never in doubt");

	# A member that comes back to etcd 3.4 has a higher term than the others, and
	# takes the leader from them (there is --pre-vote against that): etcd may have
	# none for longer than the rest of a TTL of 5 s.  Nobody else leads then.
	@samplers = map { $_->sample } @nodes;
	plug(map { "$_$n" } @$cables);
	$etcd->wait_until_serving;
	pause(2);
	for my $node (@nodes)
	{
		poll_ok(10, sub { $node->value(q{SELECT connected AND etcd_current_leader() = 'pg1' AND last_contact > now() - interval '2 s' FROM etcd_leader_status}) },
			"cut off $what: " . $node->name . ' has contact, and sees pg1 lead');
	}
	is($pg1->token, $token, "cut off $what, and back: pg1 leads under the same token");
	EtcdLeader::Sampler::check_exclusion(\@samplers, "cut off $what, and back", max_gap => 2);
}
done_testing();
