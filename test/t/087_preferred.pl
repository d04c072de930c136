# etcd_leader.preferred_nodes: the best node leads again after preferred_delay,
# once; a node that comes and goes costs nothing; different lists do not race.
use EtcdLeader::Test;

watchdog(170);

my $delay = 1;
my $etcd  = EtcdLeader::Etcd->new;
my %nodes = map {
	$_ => EtcdLeader::Instance->create($_, etcd => $etcd,
		settings => { ttl => 3, preferred_nodes => 'pg1, pg2', preferred_delay => "${delay}s" })
} qw(pg1 pg2 pg3);
my @nodes = @nodes{qw(pg1 pg2 pg3)};
$_->wait_until_candidate for @nodes;
poll_ok(15, sub { $nodes{pg1}->is_leader }, 'the best one leads');
my @samplers = map { $_->sample } @nodes;

sub changes { my ($node, $mark) = @_; return join ' ', map { $_->{event} . ($_->{reason} ? "($_->{reason})" : '') } grep { $_->{event} =~ /elected/ } $node->events($mark) }

# 1. It dies, the next in the queue leads, it comes back.
poll(10, sub { $etcd->candidates('postgres') == 3 });
my %mark = map { $_ => $nodes{$_}->last_event } qw(pg2 pg3);
$nodes{pg1}->stop('fast');
poll_ok(10, sub { $nodes{pg2}->is_leader }, 'pg1 is gone: pg2 leads');
pause($delay + 1.5);
ok($nodes{pg2}->is_leader, 'the leader still leads if there is no preferred candidate');
my $began = now();
$nodes{pg1}->start;
$nodes{pg1}->wait_until_candidate;
poll_ok(15, sub { $nodes{pg1}->is_leader }, 'pg1 is back: it leads');
my $took = now() - $began;
cmp_ok($took, '>=', $delay, 'not before the delay has passed') and note(sprintf '%.1f s', $took);
pause(2 * $delay);
ok($nodes{pg1}->is_leader, 'the preferred leader still leads');
like(changes($nodes{pg1}, 0), qr{^elected unelected\(shutdown\) elected$}, 'pg1 was elected once before its stop, and once since then');
like(changes($nodes{pg2}, $mark{pg2}), qr/^(?:(?:un)?elected\S* ?)*elected unelected\(transferred\)$/, 'pg2 says why it ceased to lead');

# 2. It comes and goes: nobody loses anything.
$nodes{pg1}->value('SELECT etcd_resign(rejoin => false)');
poll(10, sub { $nodes{pg2}->is_leader || $nodes{pg3}->is_leader });
poll_ok(15, sub { $nodes{pg2}->is_leader }, 'the second best one leads');
pause(0.5);
my $token = $nodes{pg2}->token;
# a delay that no machine is too slow for; the TTL shows that it is taken
$nodes{pg2}->configure(preferred_delay => '10s', ttl => 6);
poll(10, sub { my ($key) = $etcd->candidates('postgres'); ($etcd->lease($key->{lease}))[0] == 6 }) or die 'the settings are not taken';
for (1 .. 3)
{
	$nodes{pg1}->value('SELECT etcd_campaign()');
	pause($delay / 4);
	$nodes{pg1}->value('SELECT etcd_resign(rejoin => false)');
	pause(0.3);
}
is($nodes{pg2}->token, $token, 'pg1 comes and goes: pg2 leads on under the same token');
$nodes{pg2}->configure(preferred_delay => undef, ttl => undef);
pause($delay + 1.5);
is($nodes{pg2}->token, $token, 'a node that has resigned for good does not get leadership');

# 3. Different lists: no more hand-overs than one in a delay.
$nodes{pg2}->configure(preferred_nodes => 'pg1, pg2');
$nodes{pg1}->configure(preferred_nodes => 'pg2, pg1');
my @seq = map { $_->last_event } @nodes;
$began = now();
$nodes{pg1}->value('SELECT etcd_campaign()');
pause(6 * $delay);
my $seconds = now() - $began;
my $handed  = 0;
for my $i (0 .. 2)
{
	$handed += grep { $_->{event} eq 'unelected' && $_->{reason} eq 'transferred' } $nodes[$i]->events($seq[$i]);
}
cmp_ok($handed, '>=', 2, 'different lists: leadership moves');
cmp_ok($handed, '<=', $seconds / $delay, 'different lists: at most once in a delay') and note(sprintf '%d in %.1f s', $handed, $seconds);

# 4. None: nobody is preferred, and nothing is asked for it.
$_->configure(preferred_nodes => '') for @nodes;
pause(1);
my $leader;
poll(10, sub { ($leader) = grep { $_->is_leader } @nodes; $leader }) or die 'nobody leads';
$token = $leader->token;
pause($delay + 1);
is($leader->token, $token, 'an empty list: the leader stays');

EtcdLeader::Sampler::check_exclusion(\@samplers, 'with preferred nodes');
done_testing();
