# Hooks over the end of their process, of the process of hooks, of another backend and of the server;
# hooks that hang, flood or resign; shutdown and DROP DATABASE.  Hooks that crash the server three times are in long/083_hook_crashes.pl.
use EtcdLeader::Test;
use EtcdLeader::Hooks;
use EtcdLeader::Session;

my $etcd = EtcdLeader::Etcd->new;
my $pg1  = create_with_hooks('pg1', [], etcd => $etcd, init => { allows_streaming => 1 }, settings => { ttl => 10, hooks_max_workers => 4 },
	sql => [ 'CREATE TABLE t (what text, at timestamptz DEFAULT clock_timestamp())', 'CREATE ROLE boss LOGIN SUPERUSER' ]);
$pg1->wait_until_leader;

sub pid_of { my ($node, $type) = @_; return $node->try_value('SELECT pid FROM pg_stat_activity WHERE backend_type = ?', "etcd_leader $type") }
sub sleeper { return poll(20, sub { $pg1->try_value(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'etcd_leader hook' AND wait_event = 'PgSleep'}) }) // die 'no hook sleeps' }
sub count { my ($node, $what) = @_; return $node->try_value('SELECT count(*) FROM t WHERE what = ?', $what) // -1 }
sub crash_restart { my ($offset) = @_; return poll(30, sub { $pg1->log_count('database system is ready to accept connections', $offset) && $pg1->try_value('SELECT true') }) }
sub writes { my ($event, $what, $before) = @_; return qq{$event postgres postgres boss 1min "} . ($before // '') . qq{INSERT INTO public.t VALUES ('$what')"} }

# ---- a process is ended ------------------------------------------------------

my $token = $pg1->token;
my @hooks = (writes('elected', 'long', 'SELECT pg_sleep(2); '), writes('elected', 'done'), writes('unelected', 'off'));
reload_hooks($pg1, @hooks);
$pg1->value('SELECT pg_terminate_backend(?)', sleeper());
poll_ok(10, sub { (hook($pg1, 1)->{message} // '') eq 'its process was ended' }, 'a hook is ended: the view says so');
$pg1->value('SELECT pg_cancel_backend(?)', sleeper());
poll_is(10, sub { hook($pg1, 1)->{message} // '' }, 'canceling statement due to user request', 'a hook is cancelled');
my $pid = sleeper();
my $hooks_pid = pid_of($pg1, 'hooks');
$pg1->value('SELECT pg_terminate_backend(?)', $hooks_pid);
poll_ok(10, sub { (pid_of($pg1, 'hooks') // $hooks_pid) != $hooks_pid }, 'the process of hooks is ended, and another one is there');
poll_ok(20, sub { sleeper() != $pid }, 'the hook runs again');
poll_is(10, sub { last_run($pg1, 1) }, "$token succeeded", 'until it has succeeded');
is(count($pg1, 'done'), 1, 'what is done is not done again');
is(count($pg1, 'off'), 0, 'nothing was lost');

# ---- somebody else crashes, three times, and a long hook runs -------------------------

reload_hooks($pg1, @hooks, writes('elected', 'innocent', 'SELECT pg_sleep(3); '), writes('elected', 'innocent too', 'SELECT pg_sleep(3); '));
for my $round (1 .. 3)
{
	sleeper();
	my $offset = $pg1->log_size;
	kill 'KILL', $pg1->value('SELECT pg_backend_pid()');
	ok(crash_restart($offset), "crash $round of another process");
}
is($pg1->value('SELECT sum(crashes) FROM etcd_leader_hooks'), 0, 'no hook is accused');
poll_ok(20, sub { count($pg1, 'innocent') == 1 && count($pg1, 'innocent too') == 1 }, 'they run again, and succeed');
is($pg1->token, $token, 'the instance leads under the same token');
is(count($pg1, 'done'), 1, 'what is done is not done again');
is(count($pg1, 'off'), 0, 'no leadership was lost');

# ---- three run, and one kills the server --------------------------------------------------

my $offset = $pg1->log_size;
reload_hooks($pg1, @hooks, writes('elected', 'bystander', 'SELECT pg_sleep(3); '), writes('elected', 'culprit', 'SELECT pg_sleep(20); '), writes('elected', 'bystander too', 'SELECT pg_sleep(3); '));
poll(10, sub { $pg1->value(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'etcd_leader hook' AND wait_event = 'PgSleep'}) == 3 }) or die 'they do not run';
kill 'KILL', $pg1->value(q{SELECT pid FROM pg_stat_activity WHERE query LIKE '%culprit%' AND backend_type = 'etcd_leader hook'});
ok(crash_restart($offset), 'a hook is killed: the server restarts');
poll_ok(20, sub { count($pg1, 'bystander') == 1 && count($pg1, 'bystander too') == 1 }, 'the others run again');
is(join(' ', map { $_->{crashes} } $pg1->rows('SELECT crashes FROM etcd_leader_hooks ORDER BY line')), '0 0 0 0 1 0', 'only the culprit is accused');
is(join(': ', @{ hook($pg1, 5) }{qw(status sqlstate message is_off)}), '57P02: crashed'  =~ s/^(.*): (.*)$/$2: $1: the server crashed while the hook ran: 0/r, 'the view says so');
is($pg1->log_count('WARNING:  the server crashed while the hook in line 5 of the hooks file ran', $offset), 1, 'and the log');
is(hook($pg1, 5)->{runs}, 1, 'it does not run again at once');
is($pg1->value(q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%culprit%' AND backend_type = 'etcd_leader hook'}), 0, 'nor a little later');

# ---- other ways to crash it ------------------------------------------------------------------

create_crashers($pg1);
$pg1->value('CREATE FUNCTION slow(int) RETURNS int LANGUAGE sql PARALLEL SAFE AS $$ SELECT 1 FROM pg_sleep(20) $$');
$pg1->value('CREATE TABLE many AS SELECT i FROM generate_series(1, 10000) i');
my $parallel = join '; ', (map { "SET $_ = 0" } qw(parallel_setup_cost parallel_tuple_cost min_parallel_table_scan_size)), 'SET max_parallel_workers_per_gather = 2', 'SELECT sum(public.slow(i)) FROM public.many';
my $kill_worker = sub { kill 'KILL', poll(10, sub { $pg1->try_value(q{SELECT min(pid) FROM pg_stat_activity WHERE backend_type = 'parallel worker'}) }) // die 'there is no parallel worker' };
for my $case ([ 'a PANIC', 'SELECT public.test_panic()' ], [ 'the end of its parallel worker', $parallel, $kill_worker ])
{
	my ($what, $command, $act) = @$case;
	my $offset = $pg1->log_size;
	write_hooks($pg1, @hooks, qq{elected postgres postgres boss 1min "$command"});
	$pg1->reload;
	$act->() if $act;
	ok(crash_restart($offset), "$what: the server restarts");
	poll_is(20, sub { join ' ', map { $_->{crashes} } $pg1->rows('SELECT crashes FROM etcd_leader_hooks ORDER BY line') }, '0 0 0 1', "$what: the hook is accused");
	pause(1.2);
	is(hook($pg1, 4)->{runs}, 1, "$what: it does not run again");
	is($pg1->log_count('PANIC:  this is the PANIC of the test', $offset), $act || $what ne 'a PANIC' ? 0 : 1, "$what: the log has the message");
}
reload_hooks($pg1, @hooks, 'elected postgres postgres boss 1min "SELECT public.test_exit(3)"');
poll_ok(10, sub { hook($pg1, 4)->{runs} >= 2 }, 'exit(3) is no crash, and the hook runs again');
is(hook($pg1, 4)->{crashes}, 0, 'it is not accused');

# ---- hooks that hang, flood and resign --------------------------------------------------------

reload_hooks($pg1, @hooks, map { qq{elected postgres postgres boss 1min "$_"} } 'SELECT pg_sleep(600)', q{SELECT repeat('x', 1000) FROM generate_series(1, 100000000)}, 'DO $$ BEGIN LOOP NULL; END LOOP; END $$',
	'SELECT pg_sleep(601)', 'SELECT pg_sleep(602)');
my $hooks_running = q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'etcd_leader hook'};
poll_is(10, sub { $pg1->value($hooks_running) }, 4, 'hooks_max_workers hooks run at once');
pause(1.2);
is($pg1->value($hooks_running), 4, 'and no more');
my $began = now();
$pg1->value('SELECT etcd_resign()');
poll(10, sub { ($pg1->token // 0) > $token }) or die 'not elected';
in_time(now() - $began, 3, 'hooks that hang do not hold up the election');
poll_ok(10, sub { count($pg1, 'off') == 1 }, 'the unelected hook runs');
reload_hooks($pg1, @hooks, 'elected postgres postgres boss 1min "SELECT public.etcd_resign()"');
my $mark = $pg1->last_event;
pause(4);
my $elections = grep { $_->{event} eq 'elected' } $pg1->events($mark);
ok($elections >= 1 && $elections <= 6, "a hook that resigns, alone in the queue: $elections elections in 4 s");
reload_hooks($pg1, @hooks);

# ---- databases ---------------------------------------------------------------------------------

$pg1->wait_until_leader;
$pg1->value('CREATE DATABASE app');
reload_hooks($pg1, @hooks, 'elected postgres app boss 1min "SELECT pg_sleep(600)"');
# the run in app: the run of the line before may sleep, too
poll(20, sub { $pg1->value(q{SELECT count(*) FROM pg_stat_activity WHERE datname = 'app' AND wait_event = 'PgSleep'}) }) or die 'no hook sleeps in app';
$pg1->value('CREATE ROLE stranger LOGIN');
fails($pg1->connect_db('postgres', user => 'stranger'), 'DROP DATABASE app', '42501', qr/must be owner/, 'a stranger may not drop the database');
is(hook($pg1, 4)->{status} . hook($pg1, 4)->{runs}, 'running1', 'and does not end a hook there');
$began = now();
$pg1->value('ALTER DATABASE app RENAME TO moved');
in_time(now() - $began, 2, 'ALTER DATABASE ends a hook there');
poll_is(10, sub { hook($pg1, 4)->{message} // '' }, 'database "app" does not exist', 'which then fails');
$pg1->value('ALTER DATABASE moved RENAME TO app');
sleeper();
$began = now();
$pg1->value('DROP DATABASE app');
# it would fail after 5 s
in_time(now() - $began, 2, 'DROP DATABASE ends a hook there');
$pg1->value('CREATE DATABASE app');
sleeper();
# an unelected hook, which runs once, is not lost
reload_hooks($pg1, @hooks, 'unelected postgres app boss 1min "CREATE TABLE IF NOT EXISTS public.begun (); SELECT pg_sleep(2); CREATE TABLE public.done ()"');
$pg1->value('SELECT etcd_resign(rejoin => false)');
sleeper();
$pg1->value('CREATE DATABASE copy TEMPLATE app');
poll_is(10, sub { join ' ', @{ hook($pg1, 4) }{qw(status failures)} }, 'succeeded 0', 'an unelected hook that CREATE DATABASE has ended runs again');
reload_hooks($pg1, @hooks, 'elected postgres app boss 1min "SELECT pg_sleep(600)"');
$pg1->value('SELECT etcd_campaign()');
sleeper();
$began  = now();
$offset = $pg1->log_size;
$pg1->stop('fast');
in_time(now() - $began, 4, 'a fast shutdown ends it');
is($pg1->log_count('etcd_leader hook', $offset), 0, 'without a word') or diag(slurp_file($pg1->logfile, $offset));
is($pg1->log_count('PANIC: |TRAP'), 1, 'nothing else has crashed');
done_testing();
