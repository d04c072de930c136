# etcd_transfer(): the named candidate leads next, wherever it is in the queue;
# the others queue again, and make no noise; a refused call changes nothing.
use EtcdLeader::Test;

watchdog(170);

my $etcd  = EtcdLeader::Etcd->new;
my @names = map { "pg$_" } 1 .. 4;
my %nodes = map { $_ => EtcdLeader::Instance->create($_, etcd => $etcd, settings => { ttl => 10 }) } @names;
my @nodes = @nodes{@names};
$_->wait_until_candidate for @nodes;
poll(10, sub { $etcd->candidates('postgres') == 4 }) or die 'not all are in the queue';

sub queue { return map { $_->{value} } $etcd->candidates('postgres') }
sub leader { return $nodes{ (queue())[0] // '' } }
poll_ok(10, sub { leader()->is_leader }, 'one of the instances leads');
$_->wait_until_sees(leader()->name) for @nodes;
my @samplers = map { $_->sample } @nodes;

like($_->{key}, qr{^postgres/[0-9a-f]{1,16}\.\d{1,20}\.1\.pg$}, "$_->{value}: its key ends with .pg") for $etcd->candidates('postgres');

# ---- it leads next -------------------------------------------------------------

# To each place in the queue, with each kind of timeout.
my @timeout = (undef, '10 s', '300 years', '300000 years');
for my $place (1 .. 3)
{
	my @before = $etcd->candidates('postgres');
	my $old    = $nodes{ $before[0]{value} };
	my $target = $nodes{ $before[$place]{value} };
	my $name   = "to place $place";
	my %mark   = map { $_->name => $_->last_event } @nodes;
	my %log    = map { $_->name => $_->log_size } @nodes;
	my $token  = $old->token;

	$old->dbh->begin_work;
	is($old->value('SELECT etcd_require_leader()'), $token, "$name: a transaction is fenced");
	my $session = $old->connect_db;
	my $began   = now();
	is($session->selectrow_array('SELECT etcd_transfer(?, timeout => ?)', {}, $target->name, $timeout[$place]), 1, "$name, timeout $timeout[$place]: true");
	my $took = now() - $began;
	ok($target->is_leader, "$name: " . $target->name . ' leads');
	in_time($took, 3, "$name: soon") and note(sprintf '%s: %.0f ms', $name, 1000 * $took);
	cmp_ok($target->token, '>', $token, "$name: with a greater token");
	is($target->token, $before[$place]{create_revision}, "$name: that of the key it had");
	ok(!eval { $old->dbh->commit; 1 }, "$name: the fenced transaction fails");
	is($old->dbh->state, '25006', "$name: as at a resignation");
	eval { $old->dbh->rollback };

	poll_is(5, sub { scalar queue() }, 4, "$name: everybody is in the queue again");
	my @expected = map { $_->{value} } @before[ $place .. 3 ];
	is_deeply([ (queue())[ 0 .. 3 - $place ] ], \@expected, "$name: those behind have kept their places");
	for my $node (@nodes)
	{
		poll_is(5, sub { $node->current_leader }, $target->name, "$name: " . $node->name . ' names it');
		my $leader = 'leader ' . $target->name . ' -';
		my @events = $node == $old ? ('unelected - transferred', $leader) : $node == $target ? ('elected ' . $target->name . ' -') : ($leader);
		# an event comes after the state
		poll_is(5, sub { join ', ', map { join ' ', $_->{event}, $_->{leader} // '-', $_->{reason} // '-' } $node->events($mark{ $node->name }) },
			join(', ', @events), "$name: the events of " . $node->name);
		my $lines = () = substr(slurp_file($node->logfile), $log{ $node->name }) =~ /(?:elector|etcd_leader).* LOG: /g;
		cmp_ok($lines, '<=', 2, "$name: the log of " . $node->name . ' has a line for each');
	}
	$_->wait_until_candidate for @nodes;
}
my $lost = 0;
$lost += $_->value('SELECT losses FROM etcd_leader_losses WHERE reason = ?', 'transferred') for @nodes;
is($lost, 3, 'each is counted, as what it was');

# ---- refused calls -----------------------------------------------------------------

# The state afterwards is the state before.
sub nothing_changed
{
	my ($name, $state, $node, $sql) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	# an event comes after the state
	for my $each (@nodes)
	{
		poll(5, sub {
			my @named = grep { $_->{event} =~ /^(?:elected|leader)$/ } $each->events;
			($named[-1]{leader} // '') eq ($each->current_leader // '');
		}) or die $each->name . ' has no event of its leader';
	}
	my @before = $etcd->candidates('postgres');
	my %mark   = map { $_->name => $_->last_event } @nodes;
	my ($got, $message) = $node->failure($sql);
	is($got, $state, "$name: $state") and note($message);
	is_deeply([ $etcd->candidates('postgres') ], \@before, "$name: the queue is as it was");
	is_deeply([ map { $_->events($mark{ $_->name }) } @nodes ], [], "$name: there is no event");
	return $message;
}

my $leader   = leader();
my $follower = $nodes{ (queue())[1] };
my $token    = $leader->token;
like(nothing_changed('on a follower', '55000', $follower, 'SELECT etcd_transfer(\'pg1\')'),
	qr/leader is "${\$leader->name}"/i, 'on a follower: the message names the leader');
nothing_changed('an unknown name', '42704', $leader, q{SELECT etcd_transfer('stranger')});
nothing_changed('a long name', '42704', $leader, q{SELECT etcd_transfer(repeat('x', 300))});
nothing_changed('an unknown election', '42704', $leader, q{SELECT etcd_transfer('pg1', 'nowhere')});
nothing_changed('NULL', '22004', $leader, 'SELECT etcd_transfer(NULL)');
my @before = $etcd->candidates('postgres');
is($leader->value('SELECT etcd_transfer(?)', $leader->name), 1, 'to itself: true');
is_deeply([ $etcd->candidates('postgres') ], \@before, 'to itself: nothing is done');
is($leader->token, $token, 'to itself: the instance still leads');
$leader->value('CREATE ROLE stranger LOGIN');
is(($leader->failure('SET ROLE stranger; SELECT etcd_transfer(\'pg1\')'))[0], '42501', 'not for PUBLIC');
$leader->value('RESET ROLE');

# ---- candidates of other programs -----------------------------------------------------

my $rival = $etcd->background_etcdctl('elect', 'postgres', 'rival');
poll_ok(10, sub { (queue())[-1] eq 'rival' }, 'a candidate of etcdctl is last');
# the two behind the leader come to be behind it
for my $name ((queue())[ 1, 2 ])
{
	$nodes{$name}->value('SELECT etcd_resign()');
	poll_ok(10, sub { (queue())[-1] eq $name }, "$name queues behind the rival");
}
my @queue = queue();
is($queue[2], 'rival', 'the target is the third in the queue') or note("@queue");
nothing_changed('one behind it', '55000', $leader, "SELECT etcd_transfer('$_')") for @queue[ 3, 4 ];

# One before it: it is not touched.
my ($rival_key) = grep { $_->{value} eq 'rival' } $etcd->candidates('postgres');
is($leader->value('SELECT etcd_transfer(?)', $queue[1]), 1, 'one before it: true');
is_deeply([ grep { $_->{value} eq 'rival' } $etcd->candidates('postgres') ], [$rival_key], 'the rival keeps its key');
$leader = $nodes{ $queue[1] };

# To it.
is($leader->value(q{SELECT etcd_transfer('rival')}), 1, 'to the rival: true');
poll_ok(5, sub { $rival->output =~ /^rival$/m }, 'the rival leads');
$rival->stop('INT');
# etcdctl may end before its key is deleted
poll_ok(10, sub { my $l = leader(); $l && $l->is_leader }, 'one of ours leads again');
$_->wait_until_candidate for @nodes;
poll_is(10, sub { scalar queue() }, 4, 'all are in the queue');

# ---- a name that two have ------------------------------------------------------------------

@queue  = queue();
$leader = leader();
$nodes{ $queue[3] }->value('SELECT etcd_proclaim(?)', $queue[2]);
like(nothing_changed('a name that two have', '55000', $leader, "SELECT etcd_transfer('$queue[2]')"), qr/more than one/, 'a name that two have: the message says so');
$nodes{ $queue[3] }->value('SELECT etcd_proclaim(?)', $queue[3]);

# ---- two at once ---------------------------------------------------------------------------

for my $round (1 .. 5)
{
	poll(10, sub { queue() == 4 && leader()->is_leader }) or die 'the queue is not complete';
	@queue  = queue();
	$leader = leader();
	my @asking = map { $leader->connect_db } 1 .. 2;
	my @sql    = ("SELECT etcd_transfer('$queue[2]')", $round % 2 ? "SELECT etcd_transfer('$queue[3]')" : 'SELECT etcd_resign()');
	$asking[$_]->do($sql[$_], { pg_async => 1 }) for 0, 1;
	my @outcome = map { eval { $_->pg_result; 1 } ? 'ok' : $_->state } @asking;
	note("round $round: @outcome");
	is(scalar(grep { !/^(?:ok|55000)$/ } @outcome), 0, "two at once, round $round: each is answered");
	poll_ok(5, sub { my $l = leader(); $l && $l->is_leader }, "two at once, round $round: one leads");
	$_->disconnect for @asking;
	$_->wait_until_candidate for @nodes;
}
poll_is(10, sub { scalar queue() }, 4, 'everybody is in the queue again');

EtcdLeader::Sampler::check_exclusion(\@samplers, 'with transfers');
done_testing();
