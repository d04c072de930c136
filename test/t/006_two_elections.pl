# Several elections on one instance, led by different instances, over one
# lease and one watch stream each.
use EtcdLeader::Test;

my $etcd  = EtcdLeader::Etcd->new;
my @nodes = map { EtcdLeader::Instance->create($_, etcd => $etcd, settings => { elections => 'alpha, beta' }) } qw(pg1 pg2);
my ($pg1, $pg2) = @nodes;
$pg1->wait_until_leader($_) for qw(alpha beta);
for my $node (@nodes) { $node->wait_until_candidate($_) for qw(alpha beta) }
my @samplers = map { $_->sample(election => 'beta') } @nodes;
my $alpha    = $pg1->token('alpha');

is($pg1->value(q{SELECT etcd_resign('beta')}), 1, 'pg1 gives up beta');
$pg2->wait_until_leader('beta', 5);
ok($pg1->is_leader('alpha'), 'pg1 leads alpha');
ok(!$pg1->is_leader('beta'), 'pg1 does not lead beta');
ok(!$pg2->is_leader('alpha'), 'pg2 does not lead alpha');
is($pg1->token('alpha'), $alpha, "alpha's token is untouched");
is($pg1->is_leader(undef), 1, 'the first one in the settings is the default');
poll_is(5, sub { $pg1->current_leader('beta') }, 'pg2', 'pg1 names the leader of beta');
is($pg2->current_leader('alpha'), 'pg1', 'pg2 names the leader of alpha');
$pg1->wait_until_candidate('beta');
is($pg1->value('SELECT count(*) FROM etcd_leader_status'), 2, 'a row for each election');

# one lease for both keys of an instance
my (%lease, %all);
for my $key (map { $etcd->candidates($_) } qw(alpha beta))
{
	$lease{ $key->{value} }{ $key->{lease} } = 1;
	$all{ $key->{lease} } = 1;
}
is(scalar(keys %{ $lease{$_} }), 1, "$_ has one lease") for qw(pg1 pg2);
is(scalar(keys %all), 2, 'two instances, two leases');
is(join(' ', sort(my @leases = $etcd->leases)), join(' ', sort keys %all), 'etcd has no other keys');

# one watch stream for all watches of an instance
my $streams = 'etcd_debugging_mvcc_watch_stream_total';
my $watchers = 'etcd_debugging_mvcc_watcher_total';
poll_is(10, sub { $etcd->metric($streams) }, 2, 'two instances, two watch streams');
poll_is(10, sub { $etcd->metric($watchers) }, 2 * 2, 'a leader watches its key, its successor both by one watch');
# requests that overlap use more for a moment
poll_ok(10, sub { scalar(my @few = $pg1->tcp_connections($pg1->elector_pid)) <= 3 }, 'few connections');

# more elections: more watches, but no more streams, leases or connections
my @names = map { "e$_" } 1 .. 10;
$_->configure(elections => join ',', 'alpha', 'beta', @names) for @nodes;
$pg1->wait_until_candidate($names[-1]);
$pg2->wait_until_candidate($names[-1]);
for my $name (@names)
{
	poll_ok(10, sub { scalar(my @c = $etcd->candidates($name)) == 2 }, "$name has two candidates");
}
poll_is(10, sub { $etcd->metric($watchers) }, 12 * 2, 'a leader watches its key, its successor both by one watch');
poll_is(10, sub { $etcd->metric($streams) }, 2, 'there are still two watch streams');
is(scalar(my @more = $etcd->leases), 2, 'there are two leases');
for my $node (@nodes)
{
	poll_ok(10, sub { scalar(my @few = $node->tcp_connections($node->elector_pid)) <= 3 }, $node->name . ': few connections');
}
is($pg1->token('alpha'), $alpha, "alpha's token is untouched");

# The requests of a renewal do not grow with the elections.  A request of the change before
# may be late on a busy machine, so one of three times is enough.
my @requests;
poll(30, sub {
	my ($began, $before) = (now(), $pg1->value('SELECT requests FROM etcd_leader_stats'));
	pause(10);
	push @requests, ($pg1->value('SELECT requests FROM etcd_leader_stats') - $before) / ((now() - $began) / (5 / 3));
	return $requests[-1] <= 2.5;
});
cmp_ok($requests[-1], '<=', 2.5, 'two requests a renewal, for twelve elections') or diag("@requests");

# the instance goes: all that it led goes to the other, alpha as well
$pg1->stop('fast');
poll_ok(5, sub { $pg2->is_leader('alpha') && $pg2->is_leader('beta') && !grep { !$pg2->is_leader($_) } @names },
	'pg2 leads all');
cmp_ok($pg2->token('alpha'), '>', $alpha, 'alpha under a greater token');

EtcdLeader::Sampler::check_exclusion(\@samplers, 'beta');
done_testing();
