# An election that follows Patroni's key, with three members of Patroni and of etcd.
# etcd's leader is stopped until etcd has elected a new leader, and then runs again.  It
# may revoke a lease that its successor has renewed.  Then Patroni loses its key, and
# nobody leads for a while.  Two instances never lead.
#
# ETCD_LEADER_ROUNDS: the number of times (10).
use EtcdLeader::Test;
use EtcdLeader::Patroni;

my $rounds = $ENV{ETCD_LEADER_ROUNDS} || 10;
watchdog(200 + 90 * $rounds);

my $etcd    = EtcdLeader::Etcd->new(members => 3);
my $cluster = EtcdLeader::Patroni->new(etcd => $etcd);
$cluster->primary->wait_until_leader;
my $samplers = $cluster->sample;

# The member that leads, the only primary, and its token.  A member that Patroni restarts
# does not answer.
sub leading
{
	my ($leader, $token);
	poll(60, sub {
		$leader = $cluster->leader or return;
		$token  = $leader->try_value('SELECT etcd_fencing_token() WHERE etcd_is_leader()');
		return defined $token && $cluster->primaries == 1;
	}) or return;
	return ($leader, $token);
}

my ($lost, $moved) = (0, 0);
my ($leader, $token) = leading();
for my $round (1 .. $rounds)
{
	my $member = poll(20, sub { $etcd->leader }) // die 'etcd has no leader';
	# the electors and Patroni know the other members, too
	$etcd->freeze($member);
	pause(4);
	$etcd->thaw($member);
	my ($before, $old) = ($leader, $token);
	($leader, $token) = leading();
	ok($leader, "round $round: afterwards one member leads, the only primary") or die $cluster->explain;
	cmp_ok($token, '>=', $old, "round $round: the token is not lower");
	$moved++ if $leader->name ne $before->name;
	$lost++  if $token != $old;
	$cluster->wait_until_streaming;
}
EtcdLeader::Sampler::check_exclusion($samplers, "etcd's leader stops", max_gap => 2);
diag("$rounds times: Patroni lost its key $lost times, and the leader was another one $moved times");

done_testing();
