# Endpoints of two etcd clusters, by mistake: two instances that list them in
# another order never both lead.  An instance leads where more than half of its
# endpoints belong to one cluster.  The log names a spare endpoint that is not
# used.
use EtcdLeader::Test;

my $ttl = 2;
# three members; and a member with two addresses.  URLs of the loopback do not count
# in a list of members, so each endpoint has to name its cluster.
my $b1   = 'http://127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port();
my $etcd_a = EtcdLeader::Etcd->new(members => 3);
my $etcd_b = EtcdLeader::Etcd->new(listen => [$b1]);
my @a = map { $etcd_a->url($_) } $etcd_a->all;
my @b = ($etcd_b->url(0), $b1);
my %id = (a => $etcd_a->cluster_id, b => $etcd_b->cluster_id);

sub list { return join ',', @_ }

my @nodes = map { EtcdLeader::Instance->create($_, endpoints => list($a[0], $b[0]), settings => { ttl => $ttl }, start => 0) } qw(pg1 pg2);
my ($pg1, $pg2) = @nodes;

# Starts both with these endpoints, the second one in the opposite order.
sub start_with
{
	my @endpoints = @_;
	$_->stop('fast') for grep { $_->{started} } @nodes;
	$pg1->append_conf('postgresql.conf', "etcd_leader.endpoints = '" . list(@endpoints) . "'\n");
	$pg2->append_conf('postgresql.conf', "etcd_leader.endpoints = '" . list(reverse @endpoints) . "'\n");
	for my $node (@nodes)
	{
		$node->{offset} = -s $node->logfile // 0;
		$node->start;
		$node->value('CREATE EXTENSION etcd_leader') unless $node->{started}++;
	}
	return;
}

sub count_leaders { return scalar grep { $_->is_leader } @nodes }

# One instance leads, in that cluster; the other sees it.
sub one_leads
{
	my ($what, $cluster) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	poll_is(15, sub { join ',', map { $_->status->{cluster_id} // '' } @nodes }, "$id{$cluster},$id{$cluster}", "$what: both are in cluster $cluster");
	poll_ok(10, sub { count_leaders() == 1 && ($pg1->current_leader // '') eq ($pg2->current_leader // '-') }, "$what: one leads");
	return;
}

# Half of them: none leads, and both say why.
start_with($a[0], $b[0]);
my $end = now() + 1.2 * $ttl;
my $most = 0;
while (now() < $end) { my $n = count_leaders(); $most = $n if $n > $most; pause(0.05) }
is($most, 0, 'one endpoint of each: none leads');
for my $node (@nodes)
{
	poll_ok(10, sub { ($node->status->{last_error} // '') =~ /etcd at ".*" is of cluster [0-9a-f]+, etcd at ".*" of cluster [0-9a-f]+$/ }, $node->name . ' says why') or diag($node->status->{last_error});
	is($node->status->{cluster_id}, undef, 'and has entered no cluster');
}
is(scalar $etcd_a->candidates('postgres') + scalar $etcd_b->candidates('postgres'), 0, 'and no key was written');

# The same if the other half is no etcd.  Each request fails at the same endpoint then, and
# the next one waits for a back-off.
my $nobody = 'http://127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port();
start_with($a[0], $nobody);
pause(3);
for my $node (@nodes)
{
	poll_ok(10, sub { ($node->status->{last_error} // '') =~ /etcd at "\Q$a[0]\E" is of cluster $id{a}, but 1 of 2 endpoints belongs to it, and more than half must: could not connect to etcd at "\Q$nobody\E": Connection refused$/ },
		$node->name . ' says what is missing') or diag($node->status->{last_error});
	cmp_ok($node->value('SELECT requests FROM etcd_leader_stats'), '<', 30, 'and sends few requests');
	ok(!$node->is_leader, 'and does not lead');
}

# A foreign spare, first in the list of one instance.
start_with($a[0], $a[1], $b[0]);
one_leads('two endpoints of three', 'a');
for my $node (@nodes)
{
	poll_ok(5, sub { $node->log_count(qr/WARNING:  etcd at "\Q$b[0]\E" is not used, as it belongs to another cluster/, $node->{offset}) == 1 },
		$node->name . ' tells of the spare');
	is($node->log_count(qr/another cluster: etcd at "\Q$b[0]\E" is of cluster $id{b}, etcd at "\S+" of cluster $id{a}/, $node->{offset}), 1, 'which clusters they are');
}

# It costs nobody the leadership: not when the member in use hangs, nor by a
# reload in which no cluster has more than half.
my ($leader, $follower) = $pg1->is_leader ? @nodes : reverse @nodes;
my $token = $leader->token;
my @samplers = map { $_->sample } @nodes;
my ($used) = grep { $a[$_] eq $leader->status->{endpoint} } $etcd_a->all;
# the leader of etcd would cost more than a request
if ($etcd_a->leader == $used)
{
	my $status = $etcd_a->post('/v3/maintenance/status', {}, ($used + 1) % 3);
	$etcd_a->etcdctl([$used], 'move-leader', sprintf('%x', $status->{header}{member_id}));
	poll(5, sub { my $l = $etcd_a->leader; defined $l && $l != $used }) or die 'etcd has another leader';
	pause($ttl);    # a lease of this term
}
$etcd_a->freeze($used);
poll_ok(5, sub { $leader->status->{endpoint} ne $a[$used] }, 'the member in use hangs: the other one is used');
ok((!grep { $_ eq $leader->status->{endpoint} } @b), 'and not the foreign one');
$_->configure(endpoints => list($a[0], $b[0], $b[1], $a[1])) for @nodes;
pause(1.2 * $ttl);
$etcd_a->thaw($used);
is($leader->token, $token, 'two endpoints of four: the leader stays');
for my $node (@nodes)
{
	# the text names another endpoint, too, which a reload may change
	like($node->log_count(qr/WARNING:  etcd at "\Q$_\E" is not used/, $node->{offset}), qr/^[12]$/, $node->name . ' tells of each') for @b;
	is($node->log_count(qr/this problem is over: etcd at "\Q$b[0]\E"/, $node->{offset}), 0, 'and it is not over by a reload');
}
my %runs = EtcdLeader::Sampler::check_exclusion(\@samplers, 'foreign spares', max_gap => 2);
is(scalar(grep { $_->{answer} eq 'f' } @{ $runs{ $leader->name } }), 0, 'and it was never in doubt');

# A spare that is down.
$_->configure(endpoints => list(@a)) for @nodes;
poll(5, sub { !grep { my $node = $_; grep { $node->status->{endpoint} eq $_ } @b } @nodes });
my ($spare) = grep { my $i = $_; !grep { $_->status->{endpoint} eq $a[$i] } @nodes } $etcd_a->all;
$_->{offset} = $_->log_size for @nodes;
$etcd_a->kill($spare);
$_->reload for @nodes;
for my $node (@nodes)
{
	poll_ok(15, sub { $node->log_count(qr/WARNING:  etcd at "\Q$a[$spare]\E" cannot be used/, $node->{offset}) }, $node->name . ' tells that a spare is down');
}
$etcd_a->start($spare);
poll_ok(10, sub { $_->log_count(qr/LOG:  this problem is over: etcd at "\Q$a[$spare]\E" cannot be used/, $_->{offset}) }, 'and ' . $_->name . ' that it is up') for @nodes;
# it may see that before it has reloaded, and then says the new reason, too
like($_->log_count(qr/WARNING:  etcd at "\Q$a[$spare]\E" cannot be used/, $_->{offset}), qr/^[12]$/, $_->name . ': once, or twice') for @nodes;
is($leader->token, $token, 'the leader stays');

# A spare that is tried in its turn, as all others fail, cannot be used for that.
$etcd_a->kill($spare);
$_->{offset} = $_->log_size for @nodes;
$_->reload for @nodes;
for my $node (@nodes)
{
	poll_ok(15, sub { $node->log_count(qr/WARNING:  etcd at "\Q$a[$spare]\E" cannot be used/, $node->{offset}) }, $node->name . ' tells again that the spare is down');
}
$etcd_a->kill($_) for grep { $_ != $spare } $etcd_a->all;
poll_is(2 * $ttl + 2, sub { $_->status->{connected} }, 0, $_->name . ' loses contact') for @nodes;
is($_->log_count(qr/this problem is over: etcd at "\Q$a[$spare]\E"/, $_->{offset}), 0, $_->name . ' does not say that an endpoint works') for @nodes;
$etcd_a->start($_, wait => 0) for $etcd_a->all;
$etcd_a->wait_until_serving($_) for $etcd_a->all;

# The settings name the cluster.  Its tokens must be greater than those before.
$etcd_b->post('/v3/kv/put', { key => 'eA==' }) for 1 .. 100;
$_->configure(endpoints => list($a[0], $a[1], $b[0]), cluster_id => $id{b}) for @nodes;
one_leads('cluster_id', 'b');
$_->stop('fast') for @nodes;

done_testing();
