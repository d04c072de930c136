# What the functions promise beside the election itself: waits that end and
# can be cancelled, resigning for good, campaigning again, proclaiming, and
# who may call what.
use EtcdLeader::Test;
use DBD::Pg ();
use EtcdLeader::Session;

my $etcd  = EtcdLeader::Etcd->new;
my @nodes = map { EtcdLeader::Instance->create($_, etcd => $etcd) } qw(pg1 pg2);
my ($pg1, $pg2) = @nodes;
$_->wait_until_candidate for @nodes;
$pg1->wait_until_leader;
$_->wait_until_sees('pg1') for @nodes;
my @samplers = map { $_->sample } @nodes;

# Starts a statement on a connection of its own: (handle, statement).
sub start_on
{
	my ($node, $sql, @values) = @_;
	my $dbh       = $node->connect_db;
	my $statement = $dbh->prepare($sql, { pg_async => DBD::Pg::PG_ASYNC() });
	$statement->execute(@values);
	return ($dbh, $statement);
}

# Waits until the statement waits: a cancellation that comes before it does nothing.
sub wait_for_wait
{
	my ($node, $dbh) = @_;
	poll(10, sub { ($node->value('SELECT wait_event_type FROM pg_stat_activity WHERE pid = ?', $dbh->{pg_pid}) // '') eq 'Extension' })
	  or diag('it does not wait in the extension');
	return;
}

# Cancels the statement of the connection, from another session.
sub cancel
{
	my ($node, $dbh) = @_;
	wait_for_wait($node, $dbh);
	return $node->value('SELECT pg_cancel_backend(?)', $dbh->{pg_pid});
}

# Its first column when it is done; 'error: SQLSTATE' if it failed.
sub result_of
{
	my ($dbh, $statement) = @_;
	return 'still running' unless $dbh->pg_ready;
	return 'error: ' . $dbh->state unless eval { $dbh->pg_result; 1 } && !$dbh->state;
	my $row = $statement->fetchrow_arrayref;
	return $row ? $row->[0] : undef;
}

# ---- waiting for leadership ----
{
	is($pg1->value('SELECT etcd_wait_for_leadership()'), 1, 'the leader need not wait');
	for my $timeout ('0', '250 ms', '1.5 s')
	{
		my $seconds = { '0' => 0, '250 ms' => 0.25, '1.5 s' => 1.5 }->{$timeout};
		my $began = now();
		is($pg2->value('SELECT etcd_wait_for_leadership(timeout => ?)', $timeout), 0, "false after $timeout");
		my $took = now() - $began;
		cmp_ok($took, '>=', $seconds, "not before $timeout");
		in_time($took - $seconds, 0.5, "and not long after $timeout");
	}
	my ($dbh, $statement) = start_on($pg2, 'SELECT etcd_wait_for_leadership()');
	ok(!poll(0.3, sub { $dbh->pg_ready }), 'without a timeout it waits');
	wait_for_wait($pg2, $dbh);
	ok($dbh->pg_cancel, 'it can be cancelled');

	($dbh, $statement) = start_on($pg2, 'SELECT etcd_wait_for_leadership()');
	ok(cancel($pg2, $dbh), 'pg_cancel_backend() ends it');
	poll_ok(5, sub { $dbh->pg_ready }, 'a cancelled wait ends at once');
	is(result_of($dbh, $statement), 'error: 57014', 'a cancelled wait ends with 57014');

	($dbh, $statement) = start_on($pg2, 'SELECT etcd_wait_for_leadership()');
	is(($pg2->failure('SET statement_timeout = 200; SELECT etcd_wait_for_leadership()'))[0], '57014', 'statement_timeout ends it');
	$pg2->value('RESET statement_timeout');

	# and it returns as soon as there is something to return
	$pg1->value('SELECT etcd_resign()');
	my $resigned = now();
	poll_ok(5, sub { $dbh->pg_ready }, 'the wait returns when this instance leads');
	in_time(now() - $resigned, 1, 'the wait returns within a second');
	is(result_of($dbh, $statement), 1, 'the wait returns true');
	ok($pg2->is_leader, 'the instance whose wait has returned leads');
	$pg1->wait_until_candidate;
}

# ---- waiting for events ----
{
	my $mark  = $pg1->last_event;
	my $began = now();
	is(scalar(my @none = $pg1->rows(q{SELECT * FROM etcd_wait_for_event(?, '300 ms')}, $mark)), 0, 'no event: no row at the timeout');
	my $took = now() - $began;
	cmp_ok($took, '>=', 0.3, 'not before');
	in_time($took - 0.3, 0.7, 'and not long after');
	is(scalar(@none = $pg1->rows(q{SELECT * FROM etcd_wait_for_event(NULL, '0')})), 0, 'NULL: from now on');
	my @past = $pg1->rows(q{SELECT * FROM etcd_wait_for_event(0, '10 s')});
	my ($started) = $pg1->value('SELECT extract(epoch FROM pg_postmaster_start_time() - timestamptz \'2000-01-01 UTC\') * 1000000');
	cmp_ok(abs($past[0]{seq} - $started), '<', 5e6, 'the first number is that of the clock at the start');
	is(join(' ', map { $_->{seq} } @past), join(' ', $past[0]{seq} .. $mark), 'after 0: all events, at once, in order');

	my ($dbh, $statement) = start_on($pg1, 'SELECT seq FROM etcd_wait_for_event()');
	# it returns what happens after it has begun to wait
	waits_in($pg1, $dbh, qr/^Extension/);
	ok(!poll(0.3, sub { $dbh->pg_ready }), 'without a timeout it waits');
	$pg2->value('SELECT etcd_resign()');
	poll_ok(5, sub { $dbh->pg_ready }, 'the wait for an event returns when there is one');
	is(result_of($dbh, $statement), $mark + 1, 'the wait returns the first event after the mark');
	$pg1->wait_until_leader(undef, 5);
	$pg2->wait_until_candidate;

	($dbh, $statement) = start_on($pg1, 'SELECT seq FROM etcd_wait_for_event()');
	cancel($pg1, $dbh);
	poll_ok(5, sub { $dbh->pg_ready }, 'it can be cancelled');
	is(result_of($dbh, $statement), 'error: 57014', 'a cancelled wait ends with 57014');

	# A reader that goes on from the last seq sees all, once.
	my @seen;
	my $last = $pg1->last_event;
	my $from = $last;
	for (1 .. 5)
	{
		$pg1->value('SELECT etcd_resign()');
		$pg2->wait_until_leader(undef, 5);
		$pg1->wait_until_candidate;
		$pg2->value('SELECT etcd_resign()');
		$pg1->wait_until_leader(undef, 5);
		$pg2->wait_until_candidate;
		my @new = map { $_->{seq} } $pg1->rows(q{SELECT seq FROM etcd_wait_for_event(?, '1 s')}, $last);
		push @seen, @new;
		$last = $seen[-1];
	}
	is(join(' ', @seen), join(' ', $from + 1 .. $last), 'events in steps: each once and in order');
}

# ---- many events: the ring keeps at least the last 256 ----
{
	my $began = $pg1->last_event;
	$pg2->value('SELECT etcd_resign(rejoin => false)');
	my $n = 0;
	while ($pg1->last_event - $began < 300)
	{
		$pg1->value('SELECT etcd_resign()');
		$pg1->value(q{SELECT etcd_wait_for_leadership(timeout => '5 s')}) or die 'not elected again';
		die 'too many' if ++$n > 400;
	}
	my @events = $pg1->events;
	my $last   = $pg1->last_event;
	cmp_ok(scalar @events, '>=', 256, 'at least 256 events are kept');
	is(join(' ', map { $_->{seq} } @events), join(' ', $events[0]{seq} .. $last), 'the numbers of the kept events have no gap');
	is($events[-1]{seq}, $last, 'up to the newest');
	is($pg2->value('SELECT etcd_campaign()'), 1, 'the other one is back');
}

# ---- resign for good, and campaign ----

# What psql prints for it, and the messages.
sub resign
{
	my ($node, $rejoin) = @_;
	my (undef, $out, $err) = $node->psql('postgres', "SELECT etcd_resign(rejoin => $rejoin)");
	$err =~ s/^psql:<stdin>:\d+: //mg;
	return "$out $err";
}
{
	$_->wait_until_candidate for @nodes;
	my $elected = $pg1->token;
	is($pg1->value('SELECT etcd_campaign()'), 0, 'etcd_campaign() says false to one that is in');
	is(resign($pg1, 'false'), 't ', 'the leader resigns for good');
	is($pg1->is_leader, 0, 'the instance that resigned does not lead when the call has returned');
	$pg2->wait_until_leader(undef, 3);
	is($pg1->status->{state}, 'resigned', 'its state is resigned');
	is($pg1->status->{role}, 'observer', 'its role is observer');
	poll_is(5, sub { $pg1->current_leader }, 'pg2', 'the instance that resigned names the new leader');
	is($pg1->value('SELECT etcd_resign()'), 0, 'a second resignation returns false');
	is(($pg1->failure(q{SELECT etcd_proclaim('x')}))[0], '55000', 'an instance without a key cannot proclaim');

	# It stays out when the other instance goes, over a reload and a restart of the elector.
	$pg1->value('SELECT pg_reload_conf()');
	like(resign($pg2, 'false'), qr/^t NOTICE:  election "postgres" has no other candidate\nDETAIL:  Nobody will lead until a candidate enters/,
		'who leaves nobody behind is told so');
	pause(1);    # it has the time to do wrong
	is(scalar(my @c = $etcd->candidates('postgres')), 0, 'nobody is in the queue');
	poll_is(5, sub { $pg1->current_leader }, undef, 'nobody leads');
	is($pg1->is_leader, 0, 'the instance that resigned does not lead');

	is($pg1->value('SELECT etcd_campaign()'), 1, 'etcd_campaign() enters again');
	poll_ok(5, sub { $pg1->is_leader }, 'the instance leads after etcd_campaign()');
	like(resign($pg1, 'true'), qr/^t NOTICE:  election "postgres" has no other candidate\nDETAIL:  This instance will try to enter the queue again/,
		'who is alone and queues again is told so');
	poll_ok(5, sub { $pg1->is_leader }, 'the instance leads again after its resignation');
	cmp_ok($pg1->token, '>', $elected, 'the new leadership has a greater token');

	# A drain would refuse work, and nobody would take over.
	my $lone = $pg1->token;
	poll_ok(5, sub { $pg1->value(q{SELECT count(*) FROM etcd_leader_events() WHERE event = 'elected' AND fencing_token = ?}, $lone) }, 'the new leadership is announced');
	my $seq = $pg1->last_event;
	my $open = $pg1->connect_db;
	$open->do($_) for 'BEGIN', 'SELECT etcd_require_leader()';
	my $took = fails($pg1->dbh, q{SELECT etcd_resign(drain => '20 s')}, '55000',
		[ qr/election "postgres" has no other candidate/, qr/^DETAIL:  .*It leads on\.$/m, qr/^HINT:  .*rejoin => false/m ], 'who is alone does not drain');
	in_time($took, 5, 'who is alone is told so at once');
	is($pg1->token, $lone, 'who is alone leads on');
	is($pg1->last_event, $seq, 'who is alone has announced nothing');
	fails($pg1->dbh, q{SELECT etcd_transfer('nobody', drain => '20 s')}, '42704', qr/no candidate "nobody"/, 'nor does a transfer to nobody');
	is($pg1->last_event, $seq, 'which has announced nothing either');
	# whoever leaves for good drains, and gets a NOTICE before
	my $notices = '';
	local $SIG{__WARN__} = sub { $notices .= $_[0] };
	my $leaving = $pg1->connect_db;
	$leaving->{PrintWarn} = 1;
	start_statement($leaving, q{SELECT etcd_resign(rejoin => false, drain => '20 s')});
	poll_ok(5, sub { is_done($leaving); $notices =~ /no other candidate.*Nobody will lead/s }, 'who leaves nobody behind is told so before it drains');
	poll_is(5, sub { $pg1->status->{state} }, 'draining', 'and drains');
	$open->do('COMMIT');
	is(outcome($leaving), 'done', 'and resigns');
	is(scalar(() = $notices =~ /no other candidate/g), 1, 'which is told once');
	is($pg1->value('SELECT etcd_campaign()'), 1, 'it enters again');
	poll_ok(5, sub { $pg1->is_leader }, 'and leads');

	# A restart of the server ends it, too.
	my $mark = $pg2->last_event;
	$pg2->stop('immediate');
	$pg2->start;
	$pg2->wait_until_candidate;

	# Events are lost, and the new numbers are above the old ones.
	my @all  = $pg2->events;
	my $last = $all[-1]{seq};
	cmp_ok($all[0]{seq}, '>', $mark + 1, 'after a restart: the first number shows that there may be a gap');
	is(join(' ', map { $_->{seq} } @all), join(' ', $all[0]{seq} .. $last), 'after a restart: and from there on there is none');
	for my $after ([ 'from before the restart', $mark ], [ 'of another server', $last + 1_000_000 ], [ 'of long ago', 5 ])
	{
		my ($what, $number) = @$after;
		is(join(' ', map { $_->{seq} } $pg2->events($number)), join(' ', map { $_->{seq} } @all), "after a restart: a number $what misses nothing that is there");
		is($pg2->value(q{SELECT min(seq) FROM etcd_wait_for_event(?, '5 s')}, $number), $all[0]{seq}, "after a restart: nor does one who waits with a number $what");
	}
	ok(1, 'after a restart the other one is a candidate again');
	is($pg2->value('SELECT etcd_resign()'), 1, 'a candidate that does not lead can resign as well');
	$pg2->wait_until_candidate;
	ok($pg1->is_leader, 'a resignation of a candidate does not affect the leader');
}

# ---- proclaim ----
{
	my $mark  = $pg2->last_event;
	my $token = $pg1->token;
	my ($before) = $etcd->candidates('postgres');
	my @refused = $pg1->failure(q{SELECT etcd_proclaim(E'pg1\xE2\x80\xAE2gp')});
	is($refused[0], '22023', 'a proclaimed name has no hidden characters');
	like($refused[1], qr/must not contain the format character U\+202E/, 'the error says which');
	$pg1->value(q{SELECT etcd_proclaim('pg1 is up: 5432 ä')});
	my ($after) = $etcd->candidates('postgres');
	is($after->{value}, 'pg1 is up: 5432 ä', 'the key has the value');
	is($after->{create_revision}, $before->{create_revision}, 'a proclaim keeps the key');
	is($after->{lease}, $before->{lease}, 'on the same lease');
	is($pg1->token, $token, 'the token is the same');
	is($pg1->current_leader, 'pg1 is up: 5432 ä', 'the leader itself knows');
	poll_is(5, sub { $pg2->current_leader }, 'pg1 is up: 5432 ä', 'the other one sees it');
	poll_ok(5, sub { grep { $_->{event} eq 'leader' && ($_->{reason} // '') eq 'proclaimed' } $pg2->events($mark) }, 'the other instance announces the proclaimed name');
	is(scalar(my @told = $pg2->events($mark)), 1, 'the proclaimed name is announced once');
	is($pg2->value('SELECT node FROM etcd_candidates() WHERE is_leader'), 'pg1 is up: 5432 ä', 'etcd_candidates() as well');

	my $observer = $etcd->background_etcdctl('elect', '-l', 'postgres');
	poll_ok(10, sub { $observer->output =~ /^pg1 is up: 5432 ä$/m }, 'etcdctl elect -l prints it');
	$pg1->value(q{SELECT etcd_proclaim('pg1')});
	poll_ok(10, sub { $observer->output =~ /^pg1$/m }, 'an observer of etcdctl sees the next proclaimed name');
	$observer->stop('INT');
	$pg2->wait_until_sees('pg1');

	# a waiting candidate may proclaim, too: its key has the value that it will announce
	$pg2->value(q{SELECT etcd_proclaim('in spe')});
	is($pg1->value('SELECT node FROM etcd_candidates() WHERE NOT is_leader'), 'in spe', 'a candidate proclaims');
	is($pg1->current_leader, 'pg1', 'a proclaim of a candidate does not change the leader');
	$pg2->value(q{SELECT etcd_proclaim('pg2')});
}

# ---- privileges ----
{
	for my $node (@nodes) { $node->value('CREATE ROLE joe LOGIN') }
	my $joe = $pg1->connect_db('postgres', user => 'joe');
	for my $call (
		'etcd_is_leader()', 'etcd_current_leader()', 'etcd_fencing_token()', q{etcd_wait_for_leadership(timeout => '0')},
		q{etcd_wait_for_event(NULL, '0')}, 'etcd_leader_events()', 'etcd_leader_status', 'etcd_leader_endpoints', 'etcd_leader_stats')
	{
		is(join('', $pg1->failure("SELECT * FROM $call", $joe)), '', "PUBLIC may ask $call");
	}
	my %signature = (
		etcd_resign     => [ '()',    'text, boolean, interval' ],
		etcd_campaign   => [ '()',    'text' ],
		etcd_proclaim   => [ "('x')", 'text, text' ],
		etcd_candidates => [ '()',    'text' ],
		etcd_leader_stats_reset => [ '()', '' ]);
	for my $function (sort keys %signature)
	{
		my ($call, $types) = @{ $signature{$function} };
		is(($pg1->failure("SELECT $function$call", $joe))[0], '42501', "PUBLIC may not call $function");
		$pg1->value("GRANT EXECUTE ON FUNCTION $function($types) TO joe");
		is(join('', $pg1->failure("SELECT $function$call", $joe)), '', "$function can be granted");
		$_->wait_until_candidate for @nodes;
	}
	# who may read a view may call the function below it, and the other way round
	$pg1->value($_) for 'CREATE ROLE watcher LOGIN', 'GRANT pg_monitor TO watcher', 'CREATE ROLE anybody LOGIN';
	my @views = map { $_->{name} } $pg1->rows(q{SELECT relname AS name FROM pg_class WHERE relkind = 'v' AND relname LIKE 'etcd\_%' ORDER BY 1});
	cmp_ok(scalar(@views), '>=', 5, 'views');
	for my $role (qw(watcher anybody))
	{
		my $dbh = $pg1->connect_db('postgres', user => $role);
		my %denied = map { $_ => 1 } 'etcd_leader_hooks', $role eq 'anybody' ? 'etcd_leader_hooks_file' : ();
		for my $view (@views)
		{
			is(($pg1->failure("SELECT * FROM $view$_", $dbh))[0], $denied{$view} ? '42501' : '', "$role: $view$_") for '', '()';
		}
	}
	is(($pg1->failure('ALTER SYSTEM SET etcd_leader.ttl = 7', $joe))[0], '42501', 'an ordinary role cannot change the settings');
}

# ---- statistics ----
{
	my $stats = $pg1->row('SELECT *, stats_reset AS since FROM etcd_leader_stats');
	my $tally = q{SELECT won || ' ' || lost FROM etcd_leader_status};
	$pg1->value('SELECT etcd_leader_stats_reset()');
	my $reset = $pg1->row('SELECT *, stats_reset > now() - interval \'10 s\' AS fresh FROM etcd_leader_stats');
	ok($reset->{fresh}, 'statistics: etcd_leader_stats_reset() sets the time');
	is($pg1->value($tally), '0 0', 'statistics: no election was won or lost since');
	is($reset->{$_}, 0, "statistics: $_ begins anew")
	  for qw(timeouts elections_won elections_lost notifications_sent commits_refused statements_cancelled);
	cmp_ok($reset->{$_}, '<', 20, "statistics: $_ begins anew") for qw(requests keepalives latency_count);

	$_->wait_until_candidate for @nodes;
	poll(10, sub { $pg1->is_leader || $pg2->is_leader }) or die 'nobody leads';
	for my $pair ($pg1->is_leader ? ([ $pg1, $pg2 ], [ $pg2, $pg1 ]) : ([ $pg2, $pg1 ], [ $pg1, $pg2 ]))
	{
		my ($old, $next) = @$pair;
		$old->value('SELECT etcd_resign()');
		$next->wait_until_leader;
		$old->wait_until_candidate;
	}
	is($pg1->value($tally), '1 1', 'statistics: won and lost are counted');
	is($pg1->value('SELECT elections_lost FROM etcd_leader_stats'), 1, 'statistics: the losses');
	is($pg1->value(q{SELECT string_agg(reason, ' ') FROM etcd_leader_losses WHERE losses > 0}), 'resigned', 'statistics: and why');
	poll_ok(10, sub { $pg1->value('SELECT latency_count > 0 AND latency_sum_ms > 0 AND latency_sum_ms / latency_count <= latency_max_ms
		AND latency_max_ms <= latency_sum_ms FROM etcd_leader_stats') },
		'statistics: the latencies fit together');
	is($stats->{version}, $pg1->value(q{SELECT extversion FROM pg_extension WHERE extname = 'etcd_leader'}), 'statistics: the version');
	$_->wait_until_candidate for @nodes;
}

# ---- what a gate needs: inside functions, in parallel, prepared ----
{
	my ($leader) = grep { $_->is_leader } @nodes;
	$leader->value('CREATE TABLE big AS SELECT generate_series(1, 20000) AS i');
	$leader->value('SET debug_parallel_query = on') if eval { $leader->value('SHOW debug_parallel_query') };
	$leader->value('SET force_parallel_mode = on')  if eval { $leader->value('SHOW force_parallel_mode') };
	is($leader->value('SELECT count(*) FROM big WHERE etcd_is_leader() AND i > 0 AND etcd_fencing_token() = ?', $leader->token),
		20000, 'in a parallel worker');
	$leader->dbh->disconnect;
}

EtcdLeader::Sampler::check_exclusion(\@samplers, 'all the time', max_gap => 3);
done_testing();
