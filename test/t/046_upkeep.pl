# The work of etcd's operators: compaction and defragmentation while candidates
# come and go, and the alarm that there is no space left.
# ETCD_LEADER_ROUNDS: hand-overs under compaction (15).
use EtcdLeader::Test;

my $ttl    = 5;
my $rounds = $ENV{ETCD_LEADER_ROUNDS} // 15;
EtcdLeader::Util::watchdog(240 + 5 * $rounds);
my $etcd  = EtcdLeader::Etcd->new(flags => [ '--quota-backend-bytes' => 4 * 1024 * 1024 ]);
my @nodes = map { EtcdLeader::Instance->create($_, etcd => $etcd, settings => { ttl => $ttl }) } qw(pg1 pg2 pg3);
my %node  = map { $_->name => $_ } @nodes;
$_->wait_until_candidate for @nodes;
poll(10, sub { grep { $_->is_leader } @nodes });

# Compacts to the newest revision, and now and then rewrites the file, for ever.
my $upkeep = EtcdLeader::Util::Process->spawn(
	name => 'upkeep', log => "$PostgreSQL::Test::Utils::log_path/046_upkeep_etcd.log",
	code => sub {
		for (my $i = 0 ;; $i++)
		{
			my $now = $etcd->post('/v3/kv/range', { key => 'eA==' }) or next;
			print STDOUT "compacted\n"
			  if $etcd->post('/v3/kv/compaction', { revision => $now->{header}{revision}, physical => JSON::PP::true });
			$etcd->post('/v3/maintenance/defragment', {}) if $i % 20 == 0;
			STDOUT->flush;
		}
	});

# Candidates come and go: the next one hears of it each time, and no hand-over waits
# for a renewal, a third of the TTL.
{
	my @samplers = map { $_->sample } @nodes;
	my @took;
	for my $round (1 .. $rounds)
	{
		my ($leader) = grep { $_->is_leader } @nodes;
		my ($next)   = map { $_->{value} } ($etcd->candidates('postgres'))[1];
		my $began = now();
		# now this one, now the one in the middle goes, and comes back
		my $goes = $round % 3 == 0 ? $node{$next} : $leader;
		$goes->value('SELECT etcd_resign()');
		if ($goes == $leader)
		{
			poll(10, sub { $node{$next}->is_leader }) or last;
			push @took, now() - $began;
		}
		poll(10, sub { 3 == (() = $etcd->candidates('postgres')) }) or last;
	}
	is(scalar(@took), $rounds - int($rounds / 3), 'each hand-over came to pass');
	my ($longest) = sort { $b <=> $a } @took;
	# defragmentation stops all of etcd for a moment
	cmp_ok($longest, '<', $ttl / 3, 'none was missed and waited for the next renewal');
	note(sprintf 'the longest took %.0f ms', 1000 * $longest);
	my $compactions = () = $upkeep->output =~ /compacted/g;
	cmp_ok($compactions, '>', $rounds, 'there were compactions meanwhile') and note("$compactions compactions");
	EtcdLeader::Sampler::check_exclusion(\@samplers, 'upkeep', max_gap => 2);
}
$upkeep->stop('KILL');

# The confirming read of each renewal is a proposal of raft, which writes nothing.
{
	my $seconds = 2 * $ttl;
	my $before = $etcd->post('/v3/maintenance/status', {});
	pause($seconds);
	my $after = $etcd->post('/v3/maintenance/status', {});
	is($after->{header}{revision}, $before->{header}{revision}, 'idle candidates leave no revision');
	my $renewals = @nodes * 3 * $seconds / $ttl;
	my $proposals = $after->{raftIndex} - $before->{raftIndex};
	cmp_ok(abs($proposals - $renewals), '<=', 4, 'and a raft entry for each renewal') or diag("$proposals entries, $renewals renewals");
}

# No space left: the leader goes on, and an instance that must write reports the error.
{
	my ($leader) = grep { $_->is_leader } @nodes;
	my ($other)  = grep { $_ != $leader } @nodes;
	my $token   = $leader->token;
	my $sampler = $leader->sample;
	my $offset  = $other->log_size;
	# more elections than one would think of
	my @many = map { "many$_" } 1 .. 20;
	my $busy = EtcdLeader::Instance->create('pg4', etcd => $etcd, settings => { ttl => 60, elections => join(',', @many) });
	$busy->wait_until_leader($_) for @many;
	my $filled = 0;
	for (1 .. 80)
	{
		my ($status, undef, $error) = $etcd->try_etcdctl('put', 'filler', 'x' x 100_000);
		$filled = $error =~ /space exceeded/ and last;
	}
	ok($filled, 'etcd has no space left');
	like($etcd->etcdctl('alarm', 'list'), qr/NOSPACE/, 'and says so');
	$other->value('SELECT etcd_resign(rejoin => true)');
	poll_ok(10, sub { ($other->status->{last_error} // '') =~ /space exceeded|NOSPACE/ }, 'who wants to enter says what to do')
	  or diag($other->status->{last_error});
	pause(1.2 * $ttl);
	is($leader->token, $token, 'who leads goes on');
	is($other->log_count('WARNING:  .*space exceeded', $offset), 1, 'the log says it once');
	like($other->value(q{SELECT hint FROM etcd_leader_problems WHERE problem ~ 'space exceeded'}), qr/^Compact and defragment etcd, then run "etcdctl alarm disarm"/, 'and what to do');
	my $busy_offset = $busy->log_size;
	$busy->value('SELECT etcd_resign(?)', $_) for @many;
	pause($ttl);
	my $lines = $busy->log_count('space exceeded', $busy_offset);
	ok($lines > 10 && $lines <= 20, 'the log says it once for each election') or diag("$lines lines");
	$busy->stop('fast');
	my $now = $etcd->post('/v3/kv/range', { key => 'eA==' })->{header}{revision};
	$etcd->etcdctl('compact', $now);
	$etcd->etcdctl('defrag');
	$etcd->etcdctl('alarm', 'disarm');
	poll_ok(10, sub { 3 == (() = $etcd->candidates('postgres')) }, 'there is space again: it has entered');
	my %runs = EtcdLeader::Sampler::check_exclusion([$sampler], 'no space', max_gap => 2);
	is(scalar(grep { $_->{answer} eq 'f' } map { @$_ } values %runs), 0, 'without a doubt');
}
done_testing();
