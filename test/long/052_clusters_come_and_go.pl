# Two instances are started again and again with endpoints of two etcd
# clusters, in any order, while endpoints are down, come and go: never do both
# lead.  When all are up, one leads if more than half of the endpoints are of one
# cluster, and else none.  ETCD_LEADER_ROUNDS: how often each is started (100).
use EtcdLeader::Test;
use List::Util qw(shuffle);

my $ttl    = 2;
my $rounds = $ENV{ETCD_LEADER_ROUNDS} // 100;
my $seed   = $ENV{ETCD_LEADER_SEED} // time;
srand $seed;
note("ETCD_LEADER_SEED=$seed");
EtcdLeader::Util::watchdog(300 + 30 * $rounds);

my %etcd = map { $_ => EtcdLeader::Etcd->new(members => 3) } qw(a b);
my @endpoints = map { my $c = $_; map { { cluster => $c, member => $_, url => $etcd{$c}->url($_) } } 0 .. 2 } qw(a b);
my @nodes = map { EtcdLeader::Instance->create($_, endpoints => $endpoints[0]{url}, settings => { ttl => $ttl }) } qw(pg1 pg2);
my %down;    # url => how

sub break
{
	my ($endpoint) = @_;
	my $how = qw(freeze kill)[ rand 2 ];
	$etcd{ $endpoint->{cluster} }->$how($endpoint->{member});
	$down{ $endpoint->{url} } = $how;
	return;
}

sub mend
{
	my ($endpoint) = @_;
	my $how = delete $down{ $endpoint->{url} } or return;
	my $etcd = $etcd{ $endpoint->{cluster} };
	$how eq 'kill' ? $etcd->start($endpoint->{member}, wait => 0) : $etcd->thaw($endpoint->{member});
	return;
}

# Both lead: the first one does so before and after the other one, under one token.
sub both_lead
{
	my ($x, $y) = @_;
	my $token = $x->token // return 0;
	return 0 unless $y->is_leader;
	return ($x->token // 0) == $token;
}

my ($overlaps, $entered, $stayed_out) = (0, 0, 0);

sub watch_for
{
	my ($seconds) = @_;
	my $end = now() + $seconds;
	while (now() < $end)
	{
		$overlaps += both_lead(@nodes) || both_lead(reverse @nodes) ? 1 : 0;
		pause(0.01);
	}
	return;
}

for my $round (1 .. $rounds)
{
	my @list = (shuffle @endpoints)[ 0 .. 1 + int rand 3 ];
	my %count;
	$count{ $_->{cluster} }++ for @list;
	my ($major) = grep { 2 * $count{$_} > @list } keys %count;
	my $what = "round $round: " . join ' ', map { $_->{cluster} . $_->{member} } @list;

	break($_) for grep { rand() < 0.25 } @endpoints;
	for my $node (@nodes)
	{
		$node->stop('fast');
		$node->append_conf('postgresql.conf', "etcd_leader.endpoints = '" . join(',', map { $_->{url} } shuffle @list) . "'\n");
		$node->start;
	}
	watch_for(1);
	# some come, some go
	rand() < 0.5 ? mend($_) : rand() < 0.3 && !$down{ $_->{url} } && break($_) for @endpoints;
	watch_for(1.5);
	mend($_) for @endpoints;
	$_->wait_until_serving for values %etcd;

	if ($major)
	{
		my $id = $etcd{$major}->cluster_id;
		my $good = poll(20, sub {
			$overlaps += both_lead(@nodes) || both_lead(reverse @nodes) ? 1 : 0;
			1 == (grep { $_->is_leader } @nodes) && 2 == grep { ($_->status->{cluster_id} // '') eq $id } @nodes;
		});
		ok($good, "$what: one leads, in $major") or diag(join "\n", map { EtcdLeader::Instance::explain_status($_) } @nodes);
		$entered++;
	}
	else
	{
		watch_for(1);
		my @leaders = grep { $_->is_leader } @nodes;
		is(scalar @leaders, 0, "$what: none leads") or diag(join "\n", map { EtcdLeader::Instance::explain_status($_) } @nodes);
		$stayed_out++;
	}
}
is($overlaps, 0, 'never did both lead');
note("$entered rounds with a leader, $stayed_out without");

done_testing();
