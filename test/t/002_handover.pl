# Each way to lose leadership hands over to the next in the queue, with a
# greater token; each instance NOTIFYs the changes that it saw, once, with the reason.
use EtcdLeader::Test;

my $etcd  = EtcdLeader::Etcd->new;
my %nodes = map { $_ => EtcdLeader::Instance->create($_, etcd => $etcd, settings => { ttl => 10 }) } qw(pg1 pg2 pg3);
my @nodes = @nodes{qw(pg1 pg2 pg3)};
$_->wait_until_candidate for @nodes;
$nodes[0]->wait_until_leader;
$_->wait_until_sees('pg1') for @nodes;
my %listeners = map { $_->name => $_->listen } @nodes;
my @samplers  = map { $_->sample } @nodes;
my $leaderships    = 1;
my %evicted;

# Notifications after a mark that begin like this, in short.
sub told
{
	my ($name, $mark, $pattern) = @_;
	return grep { /^$pattern/ } $listeners{$name}->summary($mark);
}

# Makes the leader lose by $how->(leader), and tests all that must follow.
#   evict    => 1: others take its key away
#   listener => 0: the old leader's listener is gone with its server
sub hand_over
{
	my ($what, $reason, $how, %args) = @_;
	my @queue = map { $_->{value} } $etcd->candidates('postgres');
	is(scalar @queue, 3, "$what: three are in the queue");
	my ($old, $next, $third) = @nodes{@queue};
	ok($old->is_leader, "$what: " . $old->name . ' leads');
	my $token = $old->token;
	my %mark  = map { $_ => $nodes{$_}->last_event } keys %nodes;

	# two may lead until the old leader's watch reports it, not until its next renewal after 10/3 s
	$evicted{$token} = 1.5 if $args{evict};
	my $began = now();
	$how->($old);
	poll_ok(5, sub { $next->is_leader }, "$what: the next one leads");
	my $took = now() - $began;
	in_time($took, 3, "$what: long before the lease would have expired");
	note(sprintf '%s: %.0f ms', $what, 1000 * $took);
	cmp_ok($next->token, '>', $token, "$what: with a greater token");
	poll_is(5, sub { $third->current_leader }, $next->name, "$what: the third one names it");
	$leaderships++;

	poll_ok(5, sub { told($next->name, $mark{ $next->name }, 'elected') }, "$what: elected is told");
	poll_ok(5, sub { told($third->name, $mark{ $third->name }, 'leader postgres ' . $next->name) }, "$what: leader is told");
	$args{then}->($old) if $args{then};
	poll_ok(20, sub { my $l = $old->try_value('SELECT etcd_current_leader()'); defined $l && $l eq $next->name },
		"$what: the old one names it");
	$old->wait_until_candidate;
	if (!defined $args{listener})
	{
		poll_ok(5, sub { told($old->name, $mark{ $old->name }, 'leader postgres ' . $next->name) },
			"$what: leader is told by the old one");
		my @lost = told($old->name, $mark{ $old->name }, 'unelected');
		is(@lost, 1, "$what: the old one tells its loss once");
		like($lost[0], qr/^unelected postgres - (?:$reason)$/, "$what: and why");
		is_deeply([ told($old->name, $mark{ $old->name }, 'leader postgres pg') ],
			[ 'leader postgres ' . $next->name . ' -' ], "$what: the old one tells the leader, once");
	}
	is_deeply([ told($next->name, $mark{ $next->name }, '(?:elected|unelected|leader postgres pg)') ],
		[ 'elected postgres ' . $next->name . ' -' ], "$what: the next one tells its election, once");
	is_deeply([ told($third->name, $mark{ $third->name }, '(?:elected|unelected|leader postgres pg)') ],
		[ 'leader postgres ' . $next->name . ' -' ], "$what: the third one tells the leader, once");
	my ($elected) = grep { $_->{event} eq 'elected' && $_->{seq} > $mark{ $next->name } } $listeners{ $next->name }->notifications;
	is($elected->{fencing_token}, $next->token, "$what: the notification has the token");
	is($elected->{node}, $next->name, "$what: the notification has the node");

	# all three stand in the queue again, the old one last
	is(join(' ', map { $_->{value} } $etcd->candidates('postgres')),
		join(' ', map { $_->name } $next, $third, $old), "$what: the old one is last in the queue");
	return;
}

hand_over('resign', 'resigned', sub { is($_[0]->value('SELECT etcd_resign()'), 1, 'etcd_resign() says true') });

hand_over('terminate', 'shutdown', sub { $_[0]->value('SELECT pg_terminate_backend(?)', $_[0]->elector_pid) });

hand_over('delete', 'key_deleted', sub { $etcd->etcdctl('del', $_[0]->status->{key}) }, evict => 1);

# a renewal may find that the lease is gone before the watch tells of the key
hand_over('revoke', 'key_deleted|lease_expired', sub { $etcd->etcdctl('lease', 'revoke', $_[0]->status->{lease_id}) }, evict => 1);

# One at a time, to distinguish an instance from its successor.
my @stopped;
hand_over('fast stop', 'shutdown',
	sub { push @stopped, $_[0]; $_[0]->stop('fast') },
	listener => 0,
	then     => sub { $_[0]->start; $listeners{ $_[0]->name } = $_[0]->listen });

# Every event was announced once, in order, and as it stands in the server.
for my $node (grep { $_ != $stopped[0] } @nodes)
{
	my $name   = $node->name;
	my $last   = $node->last_event;
	poll_ok(5, sub { grep { $_->{seq} == $last } $listeners{$name}->notifications }, "$name: the last event has arrived");
	my @told   = $listeners{$name}->notifications;
	my $first  = $told[0]{seq};
	is(join(' ', map { $_->{seq} } @told), join(' ', $first .. $last), "$name: each event once and in order");
	my @events = $node->events($first - 1);
	my @columns = qw(seq election event node leader fencing_token reason);
	for my $i (0 .. $#events)
	{
		my %got      = map { $_ => $told[$i]{$_} } @columns;
		my %expected = map { $_ => $events[$i]{$_} } @columns;
		is_deeply(\%got, \%expected, "$name: notification $events[$i]{seq} is the event");
		is(join(' ', sort grep { !/^(?:arrived|pid|channel|payload)$/ } keys %{ $told[$i] }),
			'at election event fencing_token key leader node reason revision seq value', "$name: its keys");
		ok($node->value('SELECT ?::timestamptz = ?::timestamptz', $told[$i]{at}, $events[$i]{at}), "$name: its time");
	}
}

my %runs   = EtcdLeader::Sampler::check_exclusion(\@samplers, 'five hand-overs', evicted => \%evicted);
my %tokens = map { $_->{token} => 1 } grep { $_->{answer} eq 't' } map { @$_ } values %runs;
is(scalar keys %tokens, $leaderships, 'each leadership was seen');

done_testing();
