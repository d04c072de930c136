# Standbys and faults: promoted while etcd is away, demoted by a restart,
# with recovery paused, and without hot standby.
use EtcdLeader::Test;
use DBD::Pg ();

my $ttl  = 3;
my $etcd = EtcdLeader::Etcd->new;
my $old  = EtcdLeader::Instance->create('old', etcd => $etcd, init => { allows_streaming => 1 }, settings => { ttl => $ttl, second_primary => 'wait' });
$old->wait_until_leader;
my $standby = EtcdLeader::Instance->create_standby('standby', $old);
my $cold    = EtcdLeader::Instance->new('cold');
$old->backup('cold');
$old->wait_for_catchup($standby);
$standby->wait_until_sees('old');

# ---- recovery is paused -------------------------------------------------------------

{
	my $mark = $standby->last_event;
	$standby->value('SELECT pg_wal_replay_pause()');
	poll_is(10, sub { $standby->value('SELECT pg_get_wal_replay_pause_state()') }, 'paused', 'recovery is paused');
	$old->value('CREATE TABLE later (i int)');
	pause(1.5 * $ttl);
	my $s = $standby->status;
	is($s->{leader}, 'old', 'paused: it knows the leader still');
	is($s->{connected}, 1, 'paused: it is connected');
	ok($standby->value(q{SELECT last_contact > clock_timestamp() - ? * interval '1 s' FROM etcd_leader_status}, $ttl / 3 + 1), 'paused: the status is fresh');
	is($standby->last_event, $mark, 'paused: nothing has happened');

	$standby->configure_conf(candidate => 'always');
	$standby->wait_until_candidate;
	my @samplers = map { $_->sample } $old, $standby;
	my $token = $old->token;
	$old->value('SELECT etcd_resign()');
	poll_ok(5, sub { $standby->is_leader }, 'paused: candidate = always leads');
	cmp_ok($standby->token, '>', $token, 'paused: under a greater token');
	pause(1.5 * $ttl);
	is($standby->is_leader, 1, 'paused: for longer than its lease');
	is($standby->value('SELECT pg_get_wal_replay_pause_state()'), 'paused', 'paused: all the time');
	is($standby->value(q{SELECT to_regclass('later') IS NULL}), 1, 'paused: what came meanwhile is not replayed');
	$standby->configure_conf(candidate => 'primary');
	$old->wait_until_leader;
	EtcdLeader::Sampler::check_exclusion(\@samplers, 'paused', max_gap => 2);
	$standby->value('SELECT pg_wal_replay_resume()');
	$old->wait_for_catchup($standby);
}

# ---- promoted while etcd is away -----------------------------------------------------

{
	my @samplers = map { $_->sample } $old, $standby;
	my $token = $old->token;
	$etcd->freeze(0);
	poll_ok($ttl + 2, sub { !$old->is_leader && !$standby->status->{connected} }, 'promotion without etcd: nobody leads');
	$old->stop('fast');
	my $began = now();
	is($standby->value('SELECT pg_promote(wait_seconds => 30)'), 1, 'promotion without etcd: it is promoted');
	my $took = now() - $began;
	in_time($took, 2, 'promotion without etcd: and soon') or diag($took);
	note(sprintf 'promotion without etcd: %.0f ms', 1000 * $took);
	$standby->value('CREATE TABLE promoted (i int)');
	is($standby->is_leader, 0, 'promotion without etcd: it does not lead');
	poll_is(5, sub { $standby->status->{state} }, 'joining', 'promotion without etcd: it wants to');
	my ($state, $message) = $standby->failure('SELECT etcd_campaign()');
	is($state, '08006', 'promotion without etcd: etcd_campaign() does not say that it is in the queue');
	like($message, qr/DETAIL:  The instance will enter the election as soon as etcd answers\./, 'promotion without etcd: but that it will be');

	my $back = now();
	$etcd->thaw(0);
	poll_ok(10, sub { $standby->is_leader }, 'promotion without etcd: it leads when etcd is back');
	$took = now() - $back;
	# the old one's lease may have to run out, if its revocation was lost
	in_time($took, $ttl + 2.5, 'promotion without etcd: and soon');
	note(sprintf 'promotion without etcd: it leads %.2f s after etcd was back', $took);
	cmp_ok($standby->token, '>', $token, 'promotion without etcd: under a greater token');
	EtcdLeader::Sampler::check_exclusion(\@samplers, 'promotion without etcd', max_gap => 2);
}
my $new = $standby;

# ---- the old primary comes back as a standby ----------------------------------------

{
	# as an operator would bring it back: it was stopped cleanly and has nothing
	# that the new one lacks, but the timeline has changed
	$old->append_conf('postgresql.conf', "recovery_target_timeline = 'latest'\n");
	$old->enable_streaming($new);
	$old->set_standby_mode;
	$old->start;
	is($old->value('SELECT pg_is_in_recovery()'), 1, 'demoted: it is a standby');
	$new->wait_for_catchup($old);
	$old->wait_until_sees('standby');
	my $s = $old->status;
	is($s->{role}, 'observer', 'demoted: its role');
	is($s->{key}, undef, 'demoted: it has no key');
	is_deeply([ map { $_->{value} } $etcd->candidates('postgres') ], ['standby'], 'demoted: nor has etcd one of it');
	is($old->is_leader, 0, 'demoted: it does not lead');
	my ($state) = $old->failure('SELECT etcd_require_leader()');
	is($state, '25006', 'demoted: etcd_require_leader() fails');
	($state) = $old->failure('SELECT etcd_campaign()');
	is($state, '55000', 'demoted: it must not campaign');

	# its events, and what waits for them
	my $mark = $old->last_event;
	my $dbh  = $old->connect_db;
	my $statement = $dbh->prepare(q{SELECT event FROM etcd_wait_for_event(?, '20 s')}, { pg_async => DBD::Pg::PG_ASYNC() });
	$statement->execute($mark);
	my $began = now();
	is($old->value(q{SELECT etcd_wait_for_leadership(timeout => '300 ms')}), 0, 'demoted: etcd_wait_for_leadership() ends at its timeout');
	cmp_ok(now() - $began, '>=', 0.3, 'demoted: and not before');
	$new->value('SELECT etcd_resign()');
	poll_ok(5, sub { $dbh->pg_ready }, 'demoted: etcd_wait_for_event() returns');
	$dbh->pg_result;
	is($statement->fetchrow_arrayref->[0], 'leader', 'demoted: with what happened');
	poll_ok(5, sub { $new->is_leader }, 'demoted: the new primary leads');
}

# Demoted while it leads and lives: a fast stop, standby.signal, a start.
{
	$old->value('SELECT pg_promote(wait_seconds => 30)');
	$old->wait_until_candidate;
	is($new->is_leader, 1, 'demoted at once: two primaries, one leads');
	my @samplers = map { $_->sample } $old, $new;
	$new->set_standby_mode;
	$new->append_conf('postgresql.conf', "recovery_target_timeline = 'latest'\n");
	my $began = now();
	$new->stop('fast');
	$new->start;
	poll_ok(5, sub { $old->is_leader }, 'demoted at once: the other one leads');
	note(sprintf 'demoted at once: %.2f s, with the restart', now() - $began);
	is_deeply([ map { $_->{value} } $etcd->candidates('postgres') ], ['old'], 'demoted at once: there is no other candidate');
	$new->wait_until_sees('old');
	is($new->status->{role}, 'observer', 'demoted at once: it observes');
	EtcdLeader::Sampler::check_exclusion(\@samplers, 'demoted at once', max_gap => 3);
	$new->stop('fast');
}

# ---- no hot standby ---------------------------------------------------------------------

# Nobody can connect to it, and there is no elector before its promotion.
{
	$cold->init_from_backup($old, 'cold');
	$cold->append_conf('postgresql.conf', "hot_standby = off\nrestore_command = 'false'\n");
	$cold->set_standby_mode;
	my $began = now();
	# a server that lets nobody in is ready, for pg_ctl, when it says "standby"
	$cold->start;
	in_time(now() - $began, 5, 'no hot standby: it starts');
	poll_ok(10, sub { $cold->log_count('starting backup recovery|redo starts|entering standby mode') }, 'no hot standby: it is in recovery');
	ok(!eval { $cold->connect_db; 1 }, 'no hot standby: nobody can connect');
	pause(1);
	is($cold->log_count('etcd_leader elector'), 0, 'no hot standby: no elector runs');
	is_deeply([ map { $_->{value} } $etcd->candidates('postgres') ], ['old'], 'no hot standby: it has no key');

	$began = now();
	$cold->stop('fast');
	in_time(now() - $began, 2, 'no hot standby: it stops');
	$cold->start;

	$began = now();
	$cold->promote;
	in_time(now() - $began, 5, 'no hot standby: it is promoted');
	my $promoted = now();
	$cold->wait_until_candidate;
	note(sprintf 'no hot standby: it campaigns %.2f s after its promotion', now() - $promoted);
	is($cold->status->{state}, 'waiting', 'no hot standby: promoted, it campaigns');
	$old->stop('fast');
	poll_ok(5, sub { $cold->is_leader }, 'no hot standby: and leads when its turn comes');
}

done_testing();
