# Three etcd members.  etcd's leader is frozen for 8 s and woken, again and
# again: a woken leader may revoke leases that its successor has renewed long
# since.  No change of leader, no two at once: the key has moved onto a fresh
# lease, with the same create revision.
#
# ETCD_LEADER_ROUNDS: how often (4).
use EtcdLeader::Test;

my $rounds = $ENV{ETCD_LEADER_ROUNDS} || 4;
watchdog(120 + 20 * $rounds);
my $etcd   = EtcdLeader::Etcd->new(members => 3);
my @nodes  = map { EtcdLeader::Instance->create($_, etcd => $etcd, settings => { ttl => 5 }) } qw(pg1 pg2);
$_->wait_until_candidate for @nodes;
my ($pg1, $pg2) = @nodes;
$pg1->wait_until_leader;
my $token    = $pg1->token;
my $revision = $pg2->status->{create_revision};
my @samplers = map { $_->sample } @nodes;
my $mark     = $pg1->last_event;

for my $round (1 .. $rounds)
{
	my $frozen = $etcd->leader;
	my @up     = grep { $_ != $frozen } $etcd->all;
	my ($before) = $etcd->candidates('postgres', $up[0]);
	$etcd->freeze($frozen);
	my $froze = now();

	# It is away for 8 s: longer than the lease.  Soon after there is a
	# successor, and not only when the old lease has lapsed, there is a fresh
	# lease.
	my $elected;
	poll_ok(8, sub {
		if (!defined $elected)
		{
			my $leader = $etcd->leader(@up);
			$elected = now() if defined $leader && $leader != $frozen;
		}
		my @c = $etcd->candidates('postgres', $up[0]);
		return @c && $c[0]{lease} ne $before->{lease};
	}, "round $round: the key is on a fresh lease");
	my $moved = now() - $froze;
	in_time(now() - ($elected // now()), 1.5, "round $round: soon after etcd has a new leader");
	pause(8 - $moved);
	$etcd->thaw($frozen);

	# The woken member acts on the leases within milliseconds; but
	# a whole lease must have passed before all effects have come to light.
	pause(3);
	$etcd->wait_until_serving;
	my ($after, $waiter) = $etcd->candidates('postgres');
	is($after->{create_revision}, $token, "round $round: the create revision is the same");
	is($after->{key}, $before->{key}, "round $round: the key has kept its name");
	is($waiter->{create_revision}, $revision, "round $round: the waiter has kept its place");
	ok($pg1->is_leader, "round $round: pg1 leads");
	is($pg1->token, $token, "round $round: under the same token");
	is($pg2->current_leader, 'pg1', "round $round: pg2 names it");
	note(sprintf 'round %d: moved after %.2f s, from lease %s to %s', $round, $moved, $before->{lease_hex}, $after->{lease_hex});
}

my %runs = EtcdLeader::Sampler::check_exclusion(\@samplers, "$rounds rounds");
is(scalar(grep { $_->{answer} eq 't' } @{ $runs{pg2} }), 0, 'pg2 never led');
is(join(' ', grep { $_ ne $token } map { $_->{token} } grep { $_->{answer} eq 't' } @{ $runs{pg1} }), '',
	'pg1 led under no other token');
is(join(' ', map { "$_->{event} $_->{leader}" } grep { $_->{event} eq 'leader' && $_->{leader} } $pg1->events($mark)), '',
	'no change of leader was announced');

# How long pg1 was not sure, while etcd had no leader itself: not a fault.
my $unsure = 0;
$unsure += $_->{a1} - $_->{b0} for grep { $_->{answer} eq 'f' } @{ $runs{pg1} };
note(sprintf 'pg1 was in doubt for %.2f s', $unsure);

# One lease for each instance is left: the old leases were revoked, or expire.
poll_is(15, sub { scalar(my @l = $etcd->leases) }, 2, 'the old leases are gone');

done_testing();
