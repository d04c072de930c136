# The successor leads as soon as its watch reports that the leader's key is
# gone, without reading again: also while none of its reads gets through.  It
# does not lead if its own key went with the leader's.
use EtcdLeader::Test;
use EtcdLeader::Relay;
use HTTP::Tiny;

my $etcd  = EtcdLeader::Etcd->new;
my %relay = map { $_ => EtcdLeader::Relay->new($etcd->url(0)) } qw(pg1 pg2 pg3);
# so long that no deadline passes while reads are held
my %nodes = map { $_ => EtcdLeader::Instance->create($_, endpoints => $relay{$_}->url, settings => { ttl => 20, protocol => 'json' }) } sort keys %relay;
my %evicted;

# The leader, its successor and the third, when all know their places.
sub places
{
	my @queue;
	poll(20, sub {
		@queue = map { $nodes{ $_->{value} } } $etcd->candidates('postgres');
		return @queue == 3 && $queue[0]->is_leader && !grep { $_->status->{state} ne 'waiting' } @queue[ 1, 2 ];
	}) or die 'no queue of three: ' . join ', ', map { $_->{value} } $etcd->candidates('postgres');
	# the read by which the successor knows that there is nobody else before it
	pause(0.2);
	return @queue;
}

# Does etcd answer a read that goes through the relay of an instance?
sub answers
{
	my ($node) = @_;
	my $answer = HTTP::Tiny->new(timeout => 0.3, http_proxy => undef)
	  ->post($relay{ $node->name }->url . '/v3/kv/range', { content => '{"key":"eA=="}' });
	return $answer->{success};
}

my @samplers = map { $_->sample } values %nodes;

{
	my $what = 'resigned';
	my ($leader, $next, $third) = places();
	my $token = $leader->token;
	my $began = now();
	is($leader->value('SELECT etcd_resign()'), 1, "$what: etcd_resign() says true");
	poll_ok(1, sub { $next->is_leader }, "$what: the successor leads");
	note(sprintf '%s: %.0f ms', $what, 1000 * (now() - $began));
	cmp_ok($next->token, '>', $token, "$what: under a greater token");
	is($next->token, $next->status->{create_revision}, "$what: its key's create revision");
	poll_is(1, sub { $third->current_leader }, $next->name, "$what: the third one names it");
}

{
	my $what = 'reads held';
	my ($leader, $next) = places();
	my $relay = $relay{ $next->name };
	my $seen  = $next->last_event;
	$relay->hold_keys;
	ok(!answers($next), "$what: none gets through");
	my $held  = $relay->held;
	my $began = now();
	is($leader->value('SELECT etcd_resign()'), 1, "$what: etcd_resign() says true");
	poll_ok(1, sub { $next->is_leader }, "$what: the successor leads");
	note(sprintf '%s: %.0f ms', $what, 1000 * (now() - $began));
	poll_ok(1, sub { $relay->held > $held }, "$what: its read is on its way");
	ok(!answers($next), "$what: still, none gets through");
	ok($next->is_leader, "$what: and it leads");
	my $token = $next->token;
	is($token, ($etcd->candidates('postgres'))[0]{create_revision}, "$what: under the create revision of the first key");

	$relay->release;
	poll_ok(5, sub { $next->try_value('SELECT etcd_verify_leader()') }, "$what: released, etcd confirms that it leads");
	poll_ok(5, sub { answers($next) }, "$what: reads get through again");
	is($next->token, $token, "$what: under the same token");
	is_deeply([ map { $_->{event} } $next->events($seen) ], ['elected'], "$what: it was elected, and has nothing else to tell");
}

# The leader's deletion comes first in the frame, and alone would make the
# successor lead.
{
	my $what = 'both keys deleted at once';
	my ($leader, $next, $third) = places();
	my $relay = $relay{ $next->name };
	my $seen  = $next->last_event;
	my $own   = $next->status;
	my $keys  = $leader->status->{key} . "\ndel $own->{key}";
	# until its watch reports it
	$evicted{ $leader->token } = 1.5;
	$relay->hold_keys;
	ok(!answers($next), "$what: none of its reads gets through");
	like($etcd->etcdctl('txn', \"\ndel $keys\n\n\n"), qr/^SUCCESS\s+1\s+1$/, "$what: it is done");
	poll_ok(1, sub { !defined $next->status->{create_revision} }, "$what: its watch tells the successor");
	ok(!answers($next), "$what: still, none gets through");
	ok(!$next->is_leader, "$what: it does not lead");
	poll_ok(1, sub { $third->is_leader }, "$what: the third one does");

	$relay->release;
	poll_ok(5, sub { ($next->status->{create_revision} // 0) > $own->{create_revision} }, "$what: released, it queues anew");
	poll_is(5, sub { $next->current_leader }, $third->name, "$what: it knows who leads");
	is_deeply([ grep { $_->{event} eq 'elected' } $next->events($seen) ], [], "$what: and has never led");
	places();
}

EtcdLeader::Sampler::check_exclusion(\@samplers, 'three hand-overs', evicted => \%evicted);

done_testing();
