# A statement that runs in a fenced transaction when leadership goes is
# cancelled within a second, by its own backend; a session that waits for its
# client gets the error at its next command; and a commit that waits for a synchronous standby
# is neither cancelled nor reported as done.
use EtcdLeader::Test;
use DBD::Pg ();
use EtcdLeader::Session;
use EtcdLeader::Wire;

# A second is the promise; the rest is for a machine that has other work.
my $soon = 3;

my $etcd = EtcdLeader::Etcd->new;
my $node = EtcdLeader::Instance->create(
	'pg1',
	etcd     => $etcd,
	settings => { ttl => 20, elections => 'alpha,beta,gamma' },
	init     => { allows_streaming => 1 },
	conf     => "max_connections = 80\nmax_parallel_workers_per_gather = 2\n");
my $standby = EtcdLeader::Instance->create_standby('standby', $node, settings => { candidate => 'never' });
$node->wait_until_leader($_) for 'alpha', 'beta';

my %frozen;
END { kill 'CONT', $_ for keys %frozen }

sub freeze { kill 'STOP', $_[0]; $frozen{ $_[0] } = 1; return }
sub thaw   { kill 'CONT', $_[0]; delete $frozen{ $_[0] }; return }

# Returns when it was lost.
sub lose { my $at = now(); $node->value('SELECT etcd_resign(?, false)', $_[0] // 'alpha'); return $at }

sub win
{
	my $election = $_[0] // 'alpha';
	$node->value('SELECT etcd_campaign(?)', $election);
	$node->value('SELECT etcd_wait_for_leadership(?, ?)', $election, '10 s') or die "not elected: $election";
}

# This one nobody leads, in any of the tests.
$node->wait_until_leader('gamma');
lose('gamma');

my $guc    = 'etcd_leader.require_leadership_of';
my $insert = q{INSERT INTO ledger VALUES ('x')};
$node->value($_)
  for 'CREATE TABLE ledger (made_by text)', 'CREATE TABLE rows (i int PRIMARY KEY)', 'INSERT INTO rows SELECT generate_series(1, 100)',
  'CREATE TABLE locked (i int)', 'CREATE TABLE copied (i int)', 'CREATE TABLE big AS SELECT generate_series(1, 1000) AS i',
  'CREATE ROLE app LOGIN', "ALTER ROLE app SET $guc = 'alpha'", 'GRANT ALL ON ledger, rows, big, locked TO app',
  'CREATE TABLE parts (i int) PARTITION BY LIST (i)', 'CREATE TABLE part PARTITION OF parts FOR VALUES IN (1)', 'CREATE TABLE bound (i int)',
  q{CREATE FUNCTION constant() RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
	BEGIN PERFORM pg_sleep(60); EXCEPTION WHEN OTHERS THEN RETURN 1; END; RETURN 0; END $$},
  'CREATE TABLE slow (i int)', 'CREATE TABLE slow_deferred (i int)',
  'CREATE FUNCTION sleeping() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(60); RETURN NULL; END $$',
  'CREATE TRIGGER sleeping AFTER INSERT ON slow FOR EACH ROW EXECUTE FUNCTION sleeping()',
  'CREATE CONSTRAINT TRIGGER sleeping AFTER INSERT ON slow_deferred DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION sleeping()',
  q{CREATE FUNCTION stubborn(seconds float) RETURNS int LANGUAGE plpgsql AS $$ BEGIN
	BEGIN PERFORM pg_sleep(seconds); EXCEPTION WHEN OTHERS THEN RETURN 1; END; RETURN 0; END $$},
  q{CREATE PROCEDURE stages() LANGUAGE plpgsql AS $$ BEGIN
	PERFORM etcd_require_leader(); COMMIT;
	PERFORM etcd_require_leader(); INSERT INTO ledger VALUES ('x');
	BEGIN PERFORM pg_sleep(60); EXCEPTION WHEN OTHERS THEN NULL; END;
	PERFORM pg_sleep(60); END $$};

# The locks that the sessions below wait for.
my $holder = $node->connect_db;
$holder->do('BEGIN');
$holder->do('SELECT * FROM rows WHERE i = 1 FOR UPDATE; SELECT pg_advisory_xact_lock(1); LOCK locked, part IN ACCESS EXCLUSIVE MODE');

my $fence = 'SELECT etcd_require_leader()';

sub parallel_step
{
	my ($dbh) = @_;
	$dbh->do('SET LOCAL min_parallel_table_scan_size = 0; SET LOCAL parallel_setup_cost = 0; SET LOCAL parallel_tuple_cost = 0');
}

# [name, wait event of the statement, steps before, the statement]; user => who.
my $any   = qr/./;
my @fenced = (
	[ 'pg_sleep()', qr/PgSleep/, [$fence], 'SELECT pg_sleep(60)' ],
	[ 'after a write', qr/PgSleep/, [ $fence, $insert ], 'SELECT pg_sleep(60)' ],
	[ 'fenced in the statement', qr/PgSleep/, [], 'SELECT etcd_require_leader(), pg_sleep(60)' ],
	[ 'fenced in a savepoint that was rolled back', qr/PgSleep/, [ 'SAVEPOINT a', $fence, 'ROLLBACK TO a' ], 'SELECT pg_sleep(60)' ],
	[ 'after an error in a savepoint', qr/PgSleep/, [ $fence, 'SAVEPOINT a', sub { eval { $_[0]->do('SELECT 1/0') } }, 'ROLLBACK TO a' ],
		'SELECT pg_sleep(60)' ],
	[ 'in a savepoint', qr/PgSleep/, [ $fence, 'SAVEPOINT a', $insert ], 'SELECT pg_sleep(60)' ],
	[ 'a row lock', qr/^Lock/, [$fence], 'UPDATE rows SET i = 0 WHERE i = 1' ],
	[ 'an advisory lock', qr/^Lock/, [$fence], 'SELECT pg_advisory_lock(1)' ],
	[ 'LOCK TABLE', qr/^Lock/, [$fence], 'LOCK locked' ],
	[ 'a query that computes', qr/^-$/, [$fence], 'SELECT sum(i) FROM (SELECT generate_series(1, 2000000000) AS i) AS s' ],
	[ 'PL/pgSQL that computes', qr/^-$/, [$fence], 'DO $$ BEGIN LOOP END LOOP; END $$' ],
	[ 'a wait of the extension', qr/^Extension/, [$fence], q{SELECT etcd_wait_for_leadership('gamma', '60 s')} ],
	[ 'a cursor', qr/PgSleep/, [ $fence, 'DECLARE c CURSOR FOR SELECT pg_sleep(60)' ], 'FETCH c' ],
	[ 'a parallel query', $any, [ $fence, \&parallel_step ], 'SELECT count(*) FROM big a, big b, big c WHERE a.i + b.i + c.i = 0' ],
	[ 'a trigger', qr/PgSleep/, [$fence], 'INSERT INTO slow VALUES (1)' ],
	[ 'a deferred trigger', qr/PgSleep/, [ $fence, 'INSERT INTO slow_deferred VALUES (1)' ], 'COMMIT' ],
	[ 'SET CONSTRAINTS', qr/PgSleep/, [ $fence, 'INSERT INTO slow_deferred VALUES (1)' ], 'SET CONSTRAINTS ALL IMMEDIATE' ],
	[ 'COPY TO', qr/PgSleep/, [$fence], "COPY (SELECT pg_sleep(60)) TO '/dev/null'" ],
	[ 'CREATE TABLE AS', qr/PgSleep/, [$fence], 'CREATE TABLE made AS SELECT 1 AS i FROM pg_sleep(60)' ],
	[ 'WHEN OTHERS', qr/PgSleep/, [$fence], q{DO $$ BEGIN
		BEGIN PERFORM pg_sleep(60); EXCEPTION WHEN OTHERS THEN NULL; END;
		PERFORM pg_sleep(60); END $$} ],
	[ 'WHEN OTHERS in functions', qr/PgSleep/, [$fence], 'SELECT stubborn(60), stubborn(60)' ],
	[ 'WHEN OTHERS in a statement of a function', qr/PgSleep/, [$fence],
		q{DO $$ BEGIN PERFORM stubborn(60); EXCEPTION WHEN OTHERS THEN PERFORM pg_sleep(60); END $$} ],
	[ 'a procedure that has committed', qr/PgSleep/, undef, 'CALL stages()' ],
	[ 'a role that is fenced', qr/PgSleep/, [$insert], 'SELECT pg_sleep(60)', user => 'app' ],
	[ 'a role that is fenced, in one statement', qr/PgSleep/, undef, qq{WITH w AS ($insert RETURNING 1) SELECT pg_sleep(60) FROM w}, user => 'app' ],
	[ 'two elections', qr/PgSleep/, [ q{SELECT etcd_require_leader('beta')}, $fence ], 'SELECT pg_sleep(60)' ],
	# outside of statements
	[ 'a table lock in parse analysis', qr/^Lock/, [$fence], 'SELECT * FROM locked' ],
	[ 'parse analysis after an error in a savepoint', qr/^Lock/, [ $fence, 'SAVEPOINT a', sub { eval { $_[0]->do('SELECT 1/0') } }, 'ROLLBACK TO a' ],
		'SELECT * FROM locked' ],
	[ 'a partition that is planned', qr/^Lock/, [$fence], 'SELECT * FROM parts' ],
	[ 'an IMMUTABLE function that is planned', qr/PgSleep/, [$fence], 'SELECT constant()' ],
	[ 'parse analysis in a role that is fenced', qr/^Lock/, [$insert], 'SELECT * FROM locked', user => 'app' ],
	# who insists on cancellations being no end, is asked again, and cannot commit
	[ 'WHEN query_canceled', qr/PgSleep/, [$fence], q{DO $$ BEGIN FOR i IN 1..3 LOOP
		BEGIN PERFORM pg_sleep(60); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; PERFORM pg_sleep(60); END $$}, time => 5 ],
);
my @untouched = (
	[ 'not fenced', [], 'SELECT pg_sleep(5)' ],
	[ 'not fenced, and writing', [$insert], 'SELECT pg_sleep(5)' ],
	[ 'fenced for another election', [ q{SELECT etcd_require_leader('beta')}, $insert ], 'SELECT pg_sleep(5)' ],
	[ 'a fenced role that reads', ['SELECT 1'], 'SELECT pg_sleep(5)', user => 'app' ],
	[ 'after the end of a fenced one', undef, 'SELECT pg_sleep(5)', before => 'BEGIN; SELECT etcd_require_leader(); COMMIT' ],
	[ 'after the rollback of a fenced one', undef, 'SELECT pg_sleep(5)', before => 'BEGIN; SELECT etcd_require_leader(); ROLLBACK' ],
);

# Starts them all; each has its session in {dbh}.
sub start_all
{
	my @started;
	for my $case (@_)
	{
		my ($name, @rest) = @$case;
		my $event = ref $rest[0] eq 'Regexp' ? shift @rest : qr/PgSleep/;
		my ($steps, $sql, %more) = @rest;
		my $dbh = $node->connect_db('postgres', user => $more{user});
		$dbh->do($more{before}) if $more{before};
		if ($steps)
		{
			$dbh->do('BEGIN');
			for my $step (@$steps) { ref $step ? $step->($dbh) : $dbh->do($step) }
		}
		start_statement($dbh, $sql);
		push @started, { name => $name, dbh => $dbh, event => $event, time => $soon, block => $steps && $sql ne 'COMMIT', %more };
	}
	for my $case (@started)
	{
		eval { waits_in($node, $case->{dbh}, $case->{event}); 1 } or die "$case->{name}: $@";
	}
	return @started;
}

# Waits until all are done or the time is over, and notes when each was.
sub watch_all
{
	my ($timeout, @started) = @_;
	poll($timeout, sub {
		for my $case (grep { !defined $_->{done} } @started)
		{
			next unless $case->{dbh}->pg_ready;
			$case->{done} = now();
			$case->{outcome} = outcome($case->{dbh});
		}
		return !grep { !defined $_->{done} } @started;
	});
	return;
}

# How each of them ended after a loss at $lost.
sub check_cancelled
{
	my ($what, $lost, @started) = @_;
	for my $case (@started)
	{
		my $name = "$what: $case->{name}";
		like($case->{outcome} // 'still running', qr/^25006 /, "$name: is cancelled");
		like($case->{outcome} // '', qr/election "alpha" any more\nDETAIL:.*token \d+.*\nHINT:/, "$name: is told why");
		in_time(($case->{done} // now()) - $lost, $case->{time}, "$name: soon");
		is($case->{dbh}->ping, $case->{block} ? 4 : 1, "$name: the transaction is aborted");
		$case->{dbh}->do('ROLLBACK') if $case->{dbh}->ping == 4;
		usable($case->{dbh}, $name);
	}
	my ($slowest) = sort { $b <=> $a } map { $_->{done} - $lost } grep { defined $_->{done} && $_->{time} == $soon } @started;
	note(sprintf '%s: %d statements, the last one ended after %.3f s', $what, scalar @started, $slowest // -1);
	return;
}

# ---- statements that are cancelled, and others ----------------------------------
# A few at a time: the computing statements keep the machine busy.
{
	my $before = $node->value('SELECT count(*) FROM ledger');
	my $before_all = $node->value('SELECT statements_cancelled FROM etcd_leader_stats');
	my $all        = @fenced;
	my @others = start_all(@untouched);
	while (my @some = splice @fenced, 0, 11)
	{
		my @started = start_all(@some);
		my $lost    = lose();
		watch_all(6, @started);
		check_cancelled('lost', $lost, @started);
		$_->{dbh}->disconnect for @started;
		win();
		if (@others)
		{
			watch_all(10, @others);
			for my $case (@others)
			{
				is($case->{outcome} // 'still running', 'done', "$case->{name}: is not touched");
				succeeds($case->{dbh}, 'COMMIT', "$case->{name}: and commits");
				$case->{dbh}->disconnect;
			}
			@others = ();
		}
	}
	# the three that wait for nothing may be refused before they begin
	my $cancelled = $node->value('SELECT statements_cancelled FROM etcd_leader_stats') - $before_all;
	ok($cancelled >= $all - 3 && $cancelled <= $all, 'each statement that was cancelled is counted') or diag("$cancelled of $all");
	is($node->value('SELECT count(*) FROM ledger'), $before + 2, 'only what was not fenced is there');
	is($node->value(q{SELECT to_regclass('made')}), undef, 'and no table');
}

# ---- the clock alone: no process reports that the deadline has passed ------------
{
	# a renewal may come more than a second late
	$node->configure(ttl => 10, safety_margin => 5000);
	poll(10, sub { my $t = $node->status('alpha')->{valid_s}; defined $t && $t < 5 }) or die 'the TTL is not shorter';
	my ($elector) = $node->elector_pid;
	my @started = start_all(
		[ 'pg_sleep()', qr/PgSleep/, [ $fence, $insert ], 'SELECT pg_sleep(60)' ],
		[ 'a query that computes', qr/^-$/, [$fence], 'SELECT sum(i) FROM (SELECT generate_series(1, 2000000000) AS i) AS s' ],
		[ 'a fenced role', qr/PgSleep/, [$insert], 'SELECT pg_sleep(60)', user => 'app' ]);
	freeze($elector);
	poll(10, sub { !$node->is_leader('alpha') }) or die 'the deadline does not pass';
	my $lost = now();
	my ($state, $message) = $node->failure(q{SELECT etcd_require_leader('alpha')});
	is("$state " . ($message =~ /DETAIL:  (.*)/)[0], '25006 No leader is known at present.', 'an instance whose deadline has passed names no leader');
	watch_all(6, @started);
	thaw($elector);
	check_cancelled('a frozen elector', $lost, @started);
	$node->configure(ttl => 20, safety_margin => -1);
	poll(20, sub { my $t = $node->status('alpha')->{valid_s}; defined $t && $t > 6 }) or die 'the TTL is not longer';
}

# Has the server sent something that the client has not read?
sub has_message
{
	my ($dbh) = @_;
	my $ready = '';
	vec($ready, $dbh->{pg_socket}, 1) = 1;
	return select($ready, undef, undef, 0);
}

# ---- a session that waits for its client -----------------------------------------
{
	my @idle = map { { dbh => $node->connect_db } } 1 .. 5;
	for my $case (@idle)
	{
		$case->{dbh}->do('BEGIN');
		$case->{dbh}->do($fence);
		$case->{dbh}->do('SAVEPOINT a');
		$case->{dbh}->do($insert);
	}
	# a client in the middle of a row, and a client that has sent nothing
	my @copies;
	for my $data ("first\nsec", undef)
	{
		my $copy = $node->connect_db;
		$copy->do('BEGIN');
		$copy->do($fence);
		$copy->do('LOCK copied IN ACCESS EXCLUSIVE MODE') unless @copies;
		$copy->do('COPY ledger FROM STDIN');
		$copy->pg_putcopydata($data) if defined $data;
		push @copies, { dbh => $copy, pid => $copy->{pg_pid} };
	}
	waits_in($node, $_->{dbh}, qr{Client/ClientRead}) for @copies;
	# a COPY that is not fenced
	my $free = $node->connect_db;
	$free->do('COPY ledger FROM STDIN');
	$free->pg_putcopydata("free\n");
	my $log = $node->log_size;
	my $lost = lose();
	# A COPY that waits for its client holds its locks no longer.
	my $alive = q{SELECT count(*) FROM pg_stat_activity WHERE pid = ANY (?)};
	poll_is(6, sub { $node->value($alive, [ map { $_->{pid} } @copies ]) }, 0, 'COPY FROM STDIN: the sessions end');
	in_time(now() - $lost, $soon, 'COPY FROM STDIN: soon');
	succeeds($node->connect_db, 'BEGIN; LOCK copied IN ACCESS EXCLUSIVE MODE NOWAIT; COMMIT', 'COPY FROM STDIN: the lock is free');
	# the timers have had their time
	pause(1);
	my ($command, $commit, $rollback, $savepoint, $prepared) = map { $_->{dbh} } @idle;
	is($node->value($alive, [ map { $_->{pg_pid} } $command, $commit, $rollback, $savepoint, $prepared ]), 5, 'a session that waits for its client is left alone');
	is(has_message($command), 0, 'and is told nothing');
	fails($command, 'SELECT 1', '25006', [ qr/election "alpha" any more/, qr/DETAIL/, qr/HINT/ ], 'the next command');
	is($command->ping, 4, 'the next command: the transaction is aborted');
	$command->do('ROLLBACK');
	usable($command, 'the next command');
	fails($commit, 'COMMIT', '25006', qr/election "alpha" any more/, 'COMMIT as the next command');
	usable($commit, 'COMMIT as the next command');
	succeeds($rollback, 'ROLLBACK', 'ROLLBACK as the next command');
	usable($rollback, 'ROLLBACK as the next command');
	succeeds($savepoint, 'ROLLBACK TO a', 'ROLLBACK TO as the next command');
	fails($savepoint, $insert, '25006', qr/election "alpha" any more/, 'but what follows');
	$savepoint->do('ROLLBACK');
	usable($savepoint, 'but what follows');
	fails($prepared, sub { my $p = $prepared->prepare('SELECT $1::int', { pg_server_prepare => 1 }); $p->execute(1) },
		'25006', qr/election "alpha" any more/, 'the next command, extended protocol');
	$prepared->do('ROLLBACK');
	usable($prepared, 'the next command, extended protocol');

	for my $copy (@copies)
	{
		eval { $copy->{dbh}->pg_putcopyend };
		# before 14, libpq gives up at the failed write and reads no message
		next if $copy->{dbh}->{pg_lib_version} < 140000;
		like($copy->{dbh}->errstr, qr/FATAL:  terminating connection because .*election "alpha" any more\nDETAIL:.*token \d+.*\nHINT:/,
			'COPY FROM STDIN: the client is told why');
		is($copy->{dbh}->state, '25006', 'COPY FROM STDIN: SQLSTATE');
	}
	is($node->log_count('administrator command', $log), 0, 'COPY FROM STDIN: nor does the log name an administrator');
	succeeds($free, sub { $free->pg_putcopyend }, 'COPY FROM STDIN that is not fenced goes on');
	$node->value(q{DELETE FROM ledger WHERE made_by = 'free'});
	is($node->value(q{SELECT count(*) FROM ledger WHERE made_by <> 'x'}), 0, 'COPY FROM STDIN: nothing is there');
	win();
}

# ---- a message that executes no statement ------------------------------------------
{
	my %oid = map { $_ => $node->value('SELECT ?::regprocedure::oid', $_) } 'pg_advisory_xact_lock(bigint)', 'pg_sleep(double precision)';
	my $is_fenced = sub { my $client = EtcdLeader::Wire->new($node); $client->query($_) for 'BEGIN', $fence; return $client };
	my %client = map { $_ => $is_fenced->() } 'fast path, a lock', 'fast path, pg_sleep()';
	$client{Bind} = EtcdLeader::Wire->new($node);
	$client{Bind}->parse('SELECT * FROM bound', 'b');
	$client{Bind}->send('S', '');
	$client{Bind}->answer;
	# the second time it is bound, its plan may be old, and the lock is taken again
	$client{Bind}->query($_) for 'BEGIN', $fence;
	my $locks = $node->connect_db;
	$locks->do($_) for 'BEGIN', 'LOCK bound IN ACCESS EXCLUSIVE MODE';
	my $before = $node->value('SELECT statements_cancelled FROM etcd_leader_stats');
	my $idle   = $is_fenced->();
	$client{'fast path, a lock'}->call($oid{'pg_advisory_xact_lock(bigint)'}, 1);
	$client{'fast path, pg_sleep()'}->call($oid{'pg_sleep(double precision)'}, 60);
	$client{Bind}->bind('b');
	$client{Bind}->send('S', '');
	for my $name (keys %client)
	{
		poll(10, sub { $node->value(q{SELECT wait_event_type IN ('Lock', 'Timeout') FROM pg_stat_activity WHERE pid = ?}, $client{$name}->pid) }) or die "$name: it does not wait";
	}
	my $lost = lose();
	for my $name (sort keys %client)
	{
		is($client{$name}->answer, '25006', "$name: is cancelled");
		in_time(now() - $lost, $soon, "$name: soon");
		like($client{$name}->error, qr/election "alpha" any more\0D.*token \d+.*\0H/s, "$name: is told why");
		is($client{$name}->query('ROLLBACK; SELECT 1'), '1', "$name: the session is usable");
	}
	pause(1);
	is($idle->is_answered, 0, 'a session that is idle is told nothing');
	is($idle->query('SELECT 1'), '25006', 'but its next command fails');
	is($node->value('SELECT statements_cancelled FROM etcd_leader_stats') - $before, scalar keys %client, 'each is counted once, and the idle one is not');
	$locks->do('ROLLBACK');
	win();
}

# ---- cancellations by others ----------------------------------------------------
{
	my @started = start_all([ 'own', qr/PgSleep/, [ $fence, $insert ], 'SELECT pg_sleep(60)' ]);
	$node->value('SELECT pg_cancel_backend(?)', $started[0]{dbh}{pg_pid});
	like(outcome($started[0]{dbh}), qr/^57014 .*user request/, 'pg_cancel_backend() is still 57014');
	$started[0]{dbh}->do('ROLLBACK');
	usable($started[0]{dbh}, 'pg_cancel_backend()');
	my $dbh = $started[0]{dbh};
	$dbh->do('BEGIN');
	$dbh->do($fence);
	$dbh->do('SET LOCAL statement_timeout = 600');
	fails($dbh, 'SELECT pg_sleep(60)', '57014', qr/statement timeout/, 'statement_timeout is still 57014');
	$dbh->do('ROLLBACK');
	$dbh->do('BEGIN');
	$dbh->do($fence);
	$dbh->do('SET LOCAL lock_timeout = 600');
	fails($dbh, 'SELECT pg_advisory_lock(1)', '55P03', qr/lock timeout/, 'lock_timeout is as it was');
	$dbh->do('ROLLBACK');
	usable($dbh, 'timeouts');
}

# ---- lost and won again while a statement runs ----------------------------------
# Under another token: that is lost as well.
{
	my @started = start_all([ 'won again', qr/PgSleep/, [ $fence, $insert ], 'SELECT pg_sleep(60)' ]);
	my $lost = lose();
	win();
	watch_all(6, @started);
	check_cancelled('another token', $lost, @started);
}

# ---- off ------------------------------------------------------------------------
{
	$node->configure(cancel_on_loss => 'off');
	poll_is(5, sub { $node->connect_db->selectrow_array('SHOW etcd_leader.cancel_on_loss') }, 'off', 'cancel_on_loss is off');
	my @started = start_all(
		[ 'pg_sleep()', qr/PgSleep/, [ $fence, $insert ], 'SELECT pg_sleep(2)' ],
		[ 'a fenced role', qr/PgSleep/, [$insert], 'SELECT pg_sleep(2)', user => 'app' ]);
	lose();
	watch_all(10, @started);
	for my $case (@started)
	{
		is($case->{outcome}, 'done', "off: $case->{name} is not cancelled");
		succeeds($case->{dbh}, 'SELECT 1', "off: $case->{name}: nor is the next command");
		fails($case->{dbh}, 'COMMIT', '25006', qr/election "alpha" any more/, "off: $case->{name}: but cannot commit");
		usable($case->{dbh}, "off: $case->{name}");
	}
	$node->configure(cancel_on_loss => undef);
	poll_is(5, sub { $node->connect_db->selectrow_array('SHOW etcd_leader.cancel_on_loss') }, 'on', 'cancel_on_loss is on');
	win();
}

# ---- a commit that waits for a synchronous standby ------------------------------
{
	$node->wait_for_catchup($standby);
	my $count = sub { $node->value(q{SELECT count(*) FROM ledger WHERE made_by = 'synchronous'}) };
	my $write = q{INSERT INTO ledger VALUES ('synchronous')};
	my $log   = $node->log_size;
	$node->dbh->do(q{ALTER SYSTEM SET synchronous_standby_names = 'standby'});
	$node->reload;
	poll(10, sub { ($node->value('SELECT sync_state FROM pg_stat_replication') // '') eq 'sync' }) or die 'the standby is not synchronous';
	my $receiver = $standby->value(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'walreceiver'});
	freeze($receiver);

	my @waiting = map { { name => $_ } } 'fenced by function', 'a fenced role', 'one statement', 'a procedure', 'CHAIN';
	$_->{dbh} = $node->connect_db('postgres', user => $_->{name} eq 'a fenced role' ? 'app' : undef) for @waiting;
	for my $case (@waiting[ 0, 1, 4 ])
	{
		$case->{dbh}->do('BEGIN');
		$case->{dbh}->do($fence) unless $case->{name} eq 'a fenced role';
		$case->{dbh}->do($write);
	}
	start_statement($waiting[0]{dbh}, 'COMMIT');
	start_statement($waiting[1]{dbh}, 'COMMIT');
	start_statement($waiting[2]{dbh}, q{INSERT INTO ledger SELECT 'synchronous' WHERE etcd_require_leader() > 0});
	start_statement($waiting[3]{dbh}, "DO \$\$ BEGIN PERFORM etcd_require_leader(); $write; COMMIT; END \$\$");
	start_statement($waiting[4]{dbh}, 'COMMIT AND CHAIN');
	waits_in($node, $_->{dbh}, qr{IPC/SyncRep}) for @waiting;
	lose();
	# the timers have had their time, many times over
	pause(2);
	is(join(', ', map { $_->{name} } grep { $_->{dbh}->pg_ready } @waiting), '', 'synchronous standby: nobody is told that it is done');
	waits_in($node, $_->{dbh}, qr{IPC/SyncRep}) for @waiting;
	is($count->(), 0, 'synchronous standby: nothing is visible');
	thaw($receiver);
	for my $case (@waiting)
	{
		is(outcome($case->{dbh}), 'done', "synchronous standby: $case->{name}: done when it answers");
		$case->{dbh}->do('ROLLBACK') if $case->{name} eq 'CHAIN';
		usable($case->{dbh}, "synchronous standby: $case->{name}");
	}
	is($count->(), 5, 'synchronous standby: and is there');
	is($node->log_count('canceling wait for synchronous replication', $log), 0, 'synchronous standby: no wait was cancelled');
	poll_is(10, sub { $standby->value(q{SELECT count(*) FROM ledger WHERE made_by = 'synchronous'}) }, 5, 'synchronous standby: it has them');
}

# The timer goes on for the next transaction, but not for ever.
{
	win();
	my $session  = $node->connect_db;
	my $switches = sub { return slurp_file("/proc/$session->{pg_pid}/status") =~ /^voluntary_ctxt_switches:\s*(\d+)/m ? $1 : die };
	for (1 .. 3)
	{
		$session->begin_work;
		$session->do('SELECT etcd_require_leader()');
		my $began = $switches->();
		pause(1);
		cmp_ok($switches->() - $began, '>=', 2, 'a fenced transaction has a timer') if $_ == 2;
		$session->commit;
	}
	pause(0.6);
	my $began = $switches->();
	pause(1);
	is($switches->() - $began, 0, 'a session that is idle is not woken');
}

done_testing();
