# Electors that are frozen, and leases that run out meanwhile.  A waiter whose
# lease expired never leads on its old key (etcd issue 19597); a leader that
# is frozen says false in time, with nobody's help.
use EtcdLeader::Test;

my $ttl   = 3;
my $etcd  = EtcdLeader::Etcd->new;
my @nodes = map { EtcdLeader::Instance->create($_, etcd => $etcd, settings => { ttl => $ttl }) } qw(pg1 pg2);
my ($pg1, $pg2) = @nodes;
$_->wait_until_candidate for @nodes;
$pg1->wait_until_leader;

my %frozen;
END { kill 'CONT', $_ for keys %frozen }

sub freeze { my $pid = $_[0]->elector_pid; kill 'STOP', $pid; $frozen{$pid} = 1; return $pid }
sub thaw   { kill 'CONT', $_[0]; return delete $frozen{ $_[0] } }

# The tokens under which an instance was seen to lead.
sub tokens_of { my %t = map { $_->{token} => 1 } grep { $_->{answer} eq 't' } @_; return sort { $a <=> $b } keys %t }

# On a busy machine a sampler sees it later.
sub wait_until_sampled { my ($sampler) = @_; return poll(10, sub { grep { $_->{answer} eq 't' } $sampler->runs }) }

# 1. The waiter's elector is frozen until its lease is gone, then the leader
# goes: the way is free for a key that does not stand any more.
{
	my @samplers = map { $_->sample(interval => 0) } @nodes;
	my $old      = $pg2->status->{create_revision};
	my $pid      = freeze($pg2);
	poll_ok($ttl + 5, sub { !grep { $_->{value} eq 'pg2' } $etcd->candidates('postgres') }, "the waiter's key has expired");
	$pg1->value('SELECT etcd_resign(rejoin => false)');
	is(scalar($etcd->candidates('postgres')), 0, 'nobody is in the queue');
	my $rival = $etcd->background_etcdctl('elect', 'postgres', 'rival');
	poll_ok(10, sub { $rival->output =~ /^rival$/m }, 'a rival leads');
	my ($rival_key) = $etcd->candidates('postgres');
	thaw($pid);
	$pg2->wait_until_candidate;
	poll_ok(10, sub { my $s = $pg2->status; $s->{create_revision} && $s->{create_revision} > $rival_key->{create_revision} },
		'the woken waiter has queued anew, behind the rival');
	is($pg2->is_leader, 0, 'the woken instance does not lead');
	$rival->stop('INT');
	poll_ok(5, sub { $pg2->is_leader }, 'the woken instance leads when it is first in the queue');
	my ($key) = $etcd->candidates('postgres');
	is($pg2->token, $key->{create_revision}, 'its token is the create revision of its key');
	wait_until_sampled($samplers[1]);
	my %runs = EtcdLeader::Sampler::check_exclusion(\@samplers, 'a frozen waiter', max_gap => 2);
	is(join(' ', tokens_of(@{ $runs{pg2} })), $key->{create_revision}, 'never under another');
	cmp_ok($key->{create_revision}, '>', $old, 'its key is not the old one');
}

# 2. The waiter loses its key while it is frozen, and the leader's key is
# deleted at the same moment: when it wakes it learns of both at once.  With a
# restart of etcd before, it learns by reading, since its watch has ended; and
# as only its key is deleted, its lease does not show that.
for my $restart (0, 1)
{
	my $what = $restart ? 'deleted while frozen, etcd restarted' : 'revoked while frozen';
	$pg1->value('SELECT etcd_resign(rejoin => false)');
	$pg2->value('SELECT etcd_campaign()');
	$pg2->wait_until_leader;
	$pg1->value('SELECT etcd_campaign()');
	$pg1->wait_until_candidate;
	# long enough to be good still when etcd is back, or when etcdctl revokes it
	$pg1->configure(ttl => 30);
	poll_is(10, sub { ($etcd->lease(($etcd->candidates('postgres'))[1]{lease}))[0] }, 30, "$what: the lease");
	# the key is on that lease a moment before the waiter knows it
	poll_is(10, sub { $pg1->status->{lease_id} }, sprintf('%x', ($etcd->candidates('postgres'))[1]{lease}), "$what: the waiter has it");
	my @samplers = map { $_->sample(interval => 0) } @nodes;
	my $old      = $pg1->status;
	my $pid      = freeze($pg1);
	if ($restart)
	{
		$etcd->kill(0);
		$etcd->start(0);
		poll_ok(10, sub { $pg2->status->{connected} && $pg2->is_leader }, "$what: etcd is back, and the leader leads");
	}
	$etcd->etcdctl($restart ? ('del', $old->{key}) : ('lease', 'revoke', $old->{lease_id}));
	$pg2->value('SELECT etcd_resign(rejoin => false)');
	my $revision = $etcd->post('/v3/kv/range', { key => 'eA==' })->{header}{revision};
	thaw($pid);
	poll_ok(10, sub { $pg1->is_leader }, "$what: the woken waiter leads");
	my ($key) = $etcd->candidates('postgres');
	is($key && $pg1->token, $key && $key->{create_revision}, "$what: under the key that stands");
	cmp_ok($key->{create_revision} // 0, '>', $revision, "$what: which it has made after it woke");
	wait_until_sampled($samplers[0]);
	my %runs = EtcdLeader::Sampler::check_exclusion(\@samplers, $what, max_gap => 2);
	is(join(' ', tokens_of(@{ $runs{pg1} })), $key->{create_revision} // 'none',
		"$what: never under the old one");
	isnt($old->{create_revision}, $key->{create_revision}, "$what: which is another");
	$pg1->configure(ttl => $ttl);
	poll_is(10, sub { ($etcd->lease(($etcd->candidates('postgres'))[0]{lease}))[0] }, $ttl, "$what: the lease is as before");
	poll_ok(10, sub { $pg2->status->{connected} }, "$what: the other one is connected");
}

# 3. A waiter's lease is revoked while it is awake: it takes a new place.
{
	$pg2->value('SELECT etcd_campaign()');
	$pg2->wait_until_candidate;
	my $old = $pg2->status->{create_revision};
	$etcd->etcdctl('lease', 'revoke', $pg2->status->{lease_id});
	poll_ok(5, sub { my $s = $pg2->status; $s->{create_revision} && $s->{create_revision} > $old }, 'the instance has a new key');
	is($pg2->is_leader, 0, 'the instance does not lead');
	$pg1->value('SELECT etcd_resign()');
	poll_ok(5, sub { $pg2->is_leader }, 'the woken instance leads when it is first in the queue');
	cmp_ok($pg2->token, '>', $old, 'its token is the create revision of the new key');
	$pg1->wait_until_candidate;
}

# 4. The leader's elector is frozen: false in time, and before the other leads.
{
	my @samplers = map { $_->sample(interval => 0) } @nodes;
	my $token    = $pg2->token;
	my $listener = $pg2->listen;
	my $pid      = freeze($pg2);
	# not before: a renewal may come while freeze() asks for the pid
	my $froze    = now();
	poll_ok($ttl + 5, sub { $pg1->is_leader }, 'the next one leads when the lease has expired');
	is($pg2->value('SELECT etcd_is_leader()'), 0, 'the frozen one says false');
	is($pg2->token, undef, 'the instance has no token');
	is($pg2->status->{is_leader}, 0, 'its status says so');
	isnt($pg2->status->{role}, 'leader', 'and not that it is the leader');
	cmp_ok($pg2->value('SELECT coalesce(extract(epoch FROM valid_for), 0) FROM etcd_leader_status'), '<=', 0, 'nothing is valid');
	# frozen for longer: the name of the leader is not known for ever
	poll_is($ttl + 2, sub { $pg2->current_leader }, undef, 'it names nobody after a TTL');
	thaw($pid);
	poll_is(10, sub { $pg2->current_leader }, 'pg1', 'woken, it names the new leader');
	$pg2->wait_until_candidate;
	my %runs = EtcdLeader::Sampler::check_exclusion(\@samplers, 'a frozen leader', max_gap => 2);
	my ($last) = reverse grep { $_->{answer} eq 't' && $_->{token} eq $token } @{ $runs{pg2} };
	my ($next) = grep { $_->{answer} eq 't' } @{ $runs{pg1} };
	my $margin = $ttl / 10;
	# The keepalive that counted last was sent before the freeze.
	cmp_ok($last->{b1}, '<=', $froze + $ttl - $margin + 0.02, 'it believed no longer than the lease less the margin');
	cmp_ok($last->{b1}, '>', $froze, 'the old leader is named for some time');
	note(sprintf 'believed for %.3f s after the freeze; the other led %.3f s later', $last->{b1} - $froze, $next->{b0} - $last->{b1});
	ok($listener->wait_for(sub { $_[0]->{event} eq 'unelected' }), 'woken, it tells that it has lost');
	is_deeply([ grep { /^unelected/ } $listener->summary ], ['unelected postgres - lease_expired'], 'why, and once');
}

done_testing();
