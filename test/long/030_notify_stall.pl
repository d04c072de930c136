# NOTIFY is not possible: a commit that waits for a standby holds its lock, its queue
# is full, the database does not exist, or there is no background worker for it.  Each
# failure is logged once, is tried again, and does not affect the election.  Later all
# events are announced, once and in order.  At last there is no background worker for
# the elector, and all functions report that.
use EtcdLeader::Test;
use EtcdLeader::Session;

my $ttl  = 3;
my $etcd = EtcdLeader::Etcd->new;
my $pg1  = EtcdLeader::Instance->create('pg1', etcd => $etcd, settings => { ttl => $ttl },
	init => { allows_streaming => 1 }, conf => "synchronous_commit = off\n", start => 0);
# the least value, in releases that have the setting
my $queue_has_limit = $pg1->pg_version >= 17;
$pg1->append_conf('postgresql.conf', "max_notify_queue_pages = 64\n") if $queue_has_limit;
$pg1->start;
$pg1->value('CREATE EXTENSION etcd_leader');
$pg1->value('CREATE TABLE t (i int)');
my $pg2 = EtcdLeader::Instance->create('pg2', etcd => $etcd, settings => { ttl => $ttl });
$_->wait_until_candidate for $pg1, $pg2;
$pg1->wait_until_leader;
$pg1->value('SELECT pg_reload_conf()');
poll(10, sub { $pg1->notifier_pid }) or die 'no notifier';

sub stats { return $pg1->row('SELECT * FROM etcd_leader_stats') }

# Checks for at least that many seconds that pg1 leads all the time, with one token and
# one elector.
sub untouched
{
	my ($name, $seconds, $meanwhile) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($token, $elector, $keepalives) = ($pg1->token, $pg1->elector_pid, stats()->{keepalives});
	my $sampler = $pg1->sample;
	my $began   = now();
	$meanwhile->() if $meanwhile;
	my $least = $ttl;
	do
	{
		my $valid = $pg1->status->{valid_s} // 0;
		$least = $valid if $valid < $least;
		pause(0.05);
	} while (now() < $began + $seconds);
	my $took = now() - $began;
	my %seen = map { ("$_->{answer} $_->{token}" => 1) } $sampler->stop;
	is(join(', ', sort keys %seen), "t $token", "$name: pg1 leads all the time, under one token");
	cmp_ok($least, '>', 0.2 * $ttl, "$name: valid_for is renewed");
	cmp_ok(stats()->{keepalives} - $keepalives, '>=', int(2.5 * $took / $ttl) - 1, "$name: the renewals go on");
	is($pg1->elector_pid, $elector, "$name: with the same elector");
	note(sprintf '%s: %.1f s, valid_for never below %.2f s', $name, $took, $least);
	return;
}

# Makes two hand-overs, so that pg1 leads again.
sub hand_over_twice
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for my $pair ([ $pg1, $pg2 ], [ $pg2, $pg1 ])
	{
		my ($old, $next) = @$pair;
		is($old->value('SELECT etcd_resign()'), 1, "$name: " . $old->name . ' resigns');
		is($next->value(q{SELECT etcd_wait_for_leadership(timeout => '10 s')}), 1, "$name: " . $next->name . ' leads');
		$old->wait_until_candidate;
		poll(5, sub { ($old->current_leader // '') eq $next->name }) or die 'it does not see who leads';
	}
	return;
}

# Checks that all events after the mark are announced, once and in order.
sub all_announced
{
	my ($listener, $mark, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $last = $pg1->last_event;
	cmp_ok($last, '>=', $mark + 3, "$name: there were events");
	poll_ok(30, sub { grep { $_->{seq} == $last } $listener->notifications }, "$name: the last one is announced");
	is(join(' ', grep { $_ > $mark } map { $_->{seq} } $listener->notifications), join(' ', $mark + 1 .. $last),
		"$name: each event once and in order");
	return;
}

# ---- another session's commit waits for a standby and holds the lock of NOTIFY -------
{
	my $name     = 'commit stalled';
	my $listener = $pg1->listen;
	my $offset   = $pg1->log_size;
	my $failed   = stats()->{notifications_failed};
	my $mark     = $pg1->last_event;
	$pg1->value(q{ALTER SYSTEM SET synchronous_standby_names = 'nobody'});
	$pg1->value('SELECT pg_reload_conf()');
	my $stalled = $pg1->connect_db;
	poll(10, sub { $stalled->selectrow_array('SHOW synchronous_standby_names') eq 'nobody' }) or die 'not reloaded';
	$stalled->do('SET synchronous_commit = on');
	start_statement($stalled, q{BEGIN; INSERT INTO t VALUES (1); NOTIFY other, 'x'; COMMIT});
	waits_in($pg1, $stalled, qr/SyncRep/);

	hand_over_twice($name);
	my $others = $pg1->connect_db;
	start_statement($others, 'NOTIFY other');
	waits_in($pg1, $others, qr/^Lock/);
	# until the notifier's first lock timeout
	untouched($name, 2.5 * $ttl, sub {
		poll_ok(20, sub { stats()->{notifications_failed} > $failed }, "$name: the notifier gives up waiting");
	});
	is_deeply([ map { $_->{seq} } grep { $_->{seq} > $mark } $listener->notifications ], [], "$name: nothing is announced meanwhile");
	is($pg1->log_count('WARNING:  could not announce events in database "postgres": canceling statement due to lock timeout', $offset),
		1, "$name: the log says so once");
	ok(!is_done($stalled), "$name: the commit still waits");

	$pg1->value('ALTER SYSTEM RESET synchronous_standby_names');
	$pg1->value('SELECT pg_reload_conf()');
	is(outcome($stalled), 'done', "$name: the commit succeeds");
	is(outcome($others),  'done', "$name: another NOTIFY succeeds");
	all_announced($listener, $mark, $name);
	is($pg1->log_count('LOG:  events are announced in database "postgres" again', $offset), 1, "$name: the log says that it is over");
	$listener->stop;
}

# ---- the queue is full -------------------------------------------------------------

# A session that listens and does not end its transaction keeps the whole queue.
# Before PostgreSQL 17 the queue is full when the disk is full, at 8 GB, or when its
# directory cannot be written.
{
	my $name     = 'queue full';
	$pg1->value('CREATE DATABASE quiet');
	$pg1->configure(notify_databases => 'postgres, quiet');
	poll(10, sub { $pg1->notifier_pid('quiet') }) or die 'no notifier';
	my $listener = $pg1->listen;
	my $mark     = $pg1->last_event;
	my $offset   = $pg1->log_size;
	my $before   = stats();
	my $queue    = $pg1->data_dir . '/pg_notify';
	my $keeper   = $pg1->connect_db;
	$keeper->do('LISTEN other');
	$keeper->do('BEGIN');
	$keeper->do('SELECT txid_current()');

	my $filler = $pg1->connect_db;
	if (!$queue_has_limit) { chmod 0500, $queue or die $! }
	my ($notified, $state) = (0, '');
	# each fills a page, so that the last page has no room for an event
	until ($state)
	{
		($state) = $pg1->failure(q{SELECT pg_notify('other', repeat('x', 7999))}, $filler);
		$notified++;
		die 'the queue does not get full' if $notified > 1000;
	}
	note("the queue is full after $notified notifications: " . $filler->errstr);

	hand_over_twice($name);
	untouched($name, 0.9 * $ttl, sub {
		poll_ok(20, sub { stats()->{notifications_failed} >= $before->{notifications_failed} + 2 }, "$name: failures are counted, and it is tried again");
	});
	is($pg1->log_count('WARNING:  could not announce events in database "postgres": ', $offset), 1, "$name: the log says so once");
	like(PostgreSQL::Test::Utils::slurp_file($pg1->logfile, $offset),
		$queue_has_limit ? qr/WARNING:.*too many notifications in the NOTIFY queue/ : qr/WARNING:.*\n.* notifier DETAIL:.*pg_notify.*Permission denied/,
		"$name: and why");
	is_deeply([ map { $_->{seq} } grep { $_->{seq} > $mark } $listener->notifications ], [], "$name: nothing is announced meanwhile");

	# After that many failures the notifiers wait for seconds before they try again.
	poll(20, sub { stats()->{notifications_failed} >= $before->{notifications_failed} + 6 }) or die 'it is not tried again';
	ok($pg1->notifier_pid('quiet'), "$name: another notifier waits to try again");
	my $began = now();
	$pg1->value('DROP DATABASE quiet');
	in_time(now() - $began, 0.7, "$name: the notifier makes room at once");
	$pg1->configure(notify_databases => 'postgres');

	if (!$queue_has_limit) { chmod 0700, $queue or die $! }
	$keeper->disconnect;
	all_announced($listener, $mark, $name);
	is(stats()->{notifications_sent}, $before->{notifications_sent} + $pg1->last_event - $mark, "$name: the counter has each announced event once");
	is($pg1->log_count('LOG:  events are announced in database "postgres" again', $offset), 1, "$name: the log says that it is over");
	$listener->stop;
}

# ---- a connection to the database is not possible -------------------------------------------

$pg1->value('CREATE DATABASE app');
$pg1->configure(notify_databases => 'postgres, app');
poll(10, sub { $pg1->notifier_pid('app') }) or die 'no notifier';
my @ways = (
	[ 'renamed', 'ALTER DATABASE app RENAME TO other', 'ALTER DATABASE other RENAME TO app', 'database "app" does not exist' ],
	[ 'dropped', 'DROP DATABASE app', 'CREATE DATABASE app', 'database "app" does not exist' ],
	[ 'closed', 'ALTER DATABASE app ALLOW_CONNECTIONS false', 'ALTER DATABASE app ALLOW_CONNECTIONS true',
		'database "app" is not currently accepting connections' ]);
for my $way (@ways)
{
	my ($what, $do, $undo, $message) = @$way;
	my $name = "database $what";
	my $pid  = poll(10, sub { $pg1->notifier_pid('app') }) or die 'no notifier';
	# only the end of a notifier that has run for a while is logged
	poll(10, sub { $pg1->value(q{SELECT backend_start < now() - interval '1.1 s' FROM pg_stat_activity WHERE pid = ?}, $pid) });
	my $offset = $pg1->log_size;
	my $mark   = $pg1->last_event;
	untouched($name, 0.8 * $ttl, sub {
		$pg1->value($do);
		# the statement does not end existing connections
		$pg1->value('SELECT pg_terminate_backend(?)', $pid) if $what eq 'closed';
		poll_ok(10, sub { $pg1->log_count("FATAL:  $message", $offset) }, "$name: the log says so");
		# each reload causes another try at once
		for (1 .. 5) { $pg1->value('SELECT pg_reload_conf()'); pause(0.1); }
	});
	hand_over_twice($name);
	is($pg1->log_count("FATAL:  $message", $offset), 1, "$name: the log says so once");
	is($pg1->log_count('WARNING:  the notifier for database "app" ended', $offset), 1, "$name: the elector says so once");
	is($pg1->notifier_pid('app'), undef, "$name: there is no notifier");

	$pg1->value($undo);
	my $listener = $pg1->listen('app');
	$pg1->value('SELECT pg_reload_conf()');
	all_announced($listener, $mark, $name);
	is($pg1->log_count('LOG:  the notifier for database "app" is running again', $offset), 1, "$name: the log says that it is over");
	$listener->stop;
}
$_->stop('fast') for $pg1, $pg2;

# ---- no background worker is free ---------------------------------------------------------

# PostgreSQL's own launcher of logical replication is registered first.
my $pg3 = EtcdLeader::Instance->create('pg3', etcd => $etcd, settings => { ttl => $ttl, notify_databases => '' },
	conf => "max_worker_processes = 3\nmax_parallel_workers = 3\n");
$pg3->wait_until_leader;
($pg1, $pg2) = ($pg3, undef);

# There is none for the notifier.
{
	my $name = 'no worker for the notifier';
	my $busy = $pg3->connect_db;
	$busy->do('SET ' . ($pg3->pg_version >= 16 ? 'debug_parallel_query' : 'force_parallel_mode') . ' = on');
	start_statement($busy, 'SELECT pg_sleep(60)');
	poll(10, sub { $pg3->value(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'parallel worker'}) }) or die 'no parallel worker';
	my $offset   = $pg3->log_size;
	my $listener = $pg3->listen;
	my $mark     = $pg3->last_event;
	$pg3->configure(notify_databases => 'postgres');
	poll_ok(10, sub { $pg3->log_count('WARNING:  could not start the notifier for database "postgres"', $offset) }, "$name: the log says so");
	like(PostgreSQL::Test::Utils::slurp_file($pg3->logfile, $offset), qr/HINT:.*max_worker_processes/, "$name: the hint names the setting");
	for (1 .. 2) { $pg3->value('SELECT etcd_resign()'); $pg3->wait_until_leader; }
	untouched($name, 1.3 * $ttl);
	is($pg3->log_count('WARNING:  could not start the notifier', $offset), 1, "$name: once");
	is_deeply([ $listener->notifications ], [], "$name: nothing is announced");

	$pg3->value('SELECT pg_cancel_backend(?)', $busy->{pg_pid});
	like(outcome($busy), qr/^57014/, "$name: a worker is free again");
	poll_ok(10, sub { $pg3->notifier_pid }, "$name: the notifier runs");
	all_announced($listener, $mark, $name);
	$listener->stop;
}

# There is none for the elector.
{
	my $name = 'no worker for the elector';
	$pg3->stop('fast');
	$pg3->append_conf('postgresql.conf', "max_worker_processes = 1\n");
	my $offset = $pg3->log_size;
	$pg3->start;
	is($pg3->log_count('LOG:  too many background workers', $offset), 1, "$name: the log says so");
	my $status = $pg3->status;
	is($status->{state}, 'elector_not_running', "$name: the status says so");
	is_deeply([ @{$status}{qw(role is_leader leader connected node)} ], [ 'observer', 0, undef, 0, 'pg3' ], "$name: nothing else is claimed");
	is_deeply($pg3->row('SELECT etcd_is_leader() AS l, etcd_current_leader() AS c, etcd_fencing_token() AS t'),
		{ l => 0, c => undef, t => undef }, "$name: nobody leads");
	is(($pg3->events(0))[-1]{reason}, 'shutdown', "$name: there is no event since the one before");

	my $dbh = $pg3->connect_db;
	for my $call ('etcd_resign()', 'etcd_campaign()', q{etcd_proclaim('x')}, 'etcd_candidates()')
	{
		fails($dbh, "SELECT * FROM $call", '55000', [ qr/the elector of etcd_leader is not running/, qr/^HINT:.*"max_worker_processes"/m ],
			"$name: $call");
	}
	for my $call ('etcd_require_leader()', 'etcd_verify_leader()', q{etcd_verify_leader(NULL, NULL)})
	{
		fails($dbh, "SELECT $call", '25006', qr/^DETAIL:.*The elector of etcd_leader is not running\.$/m, "$name: $call");
	}
	for my $call (q{etcd_wait_for_leadership(timeout => '300 ms')}, q{(SELECT count(*) > 0 FROM etcd_wait_for_event(NULL, '300 ms'))})
	{
		my $began = now();
		is($dbh->selectrow_array("SELECT $call"), 0, "$name: $call");
		my $took = now() - $began;
		ok($took >= 0.3 && $took < 2, "$name: at its timeout") or diag($took);
	}
	start_statement($dbh, 'SELECT etcd_wait_for_leadership()');
	waits_in($pg3, $dbh, qr/^Extension/);
	$pg3->value('SELECT pg_cancel_backend(?)', $dbh->{pg_pid});
	like(outcome($dbh), qr/^57014/, "$name: etcd_wait_for_leadership() waits");

	$pg3->append_conf('postgresql.conf', "max_worker_processes = 8\n");
	$pg3->restart;
	$pg3->wait_until_leader;
	ok(1, "$name: with more workers it leads");
}

done_testing();
