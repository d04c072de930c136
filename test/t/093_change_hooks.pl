# Hooks of the event change: after the last change a run has begun and succeeded; failures,
# places, prefixes, gaps.
use EtcdLeader::Test;
use EtcdLeader::Documents;
use EtcdLeader::Hooks;
use EtcdLeader::Session;

my $etcd = EtcdLeader::Etcd->new;
my $pg   = create_with_hooks('pg', [], etcd => $etcd, extension => 'README', settings => { watched_prefixes => 'w/, fleet/', hooks_max_workers => 3 }, sql => [
	'CREATE ROLE boss LOGIN SUPERUSER', 'CREATE TABLE effect (id serial, hook text, number int, reason text)', 'CREATE TABLE state (is_broken bool)', 'INSERT INTO state VALUES (true)' ]);
$pg->wait_until_leader;

sub b64 { return EtcdLeader::Etcd::b64($_[0]) }
sub put { my ($key, $value) = @_; $etcd->post('/v3/kv/put', { key => b64($key), value => b64($value) }) or die; return }
sub told { my ($hook) = @_; return map { $_->{number} // '-' } $pg->rows('SELECT number FROM effect WHERE hook = ? ORDER BY id', $hook) }

# The line of a hook that inserts the value of a key.
sub reads
{
	my ($hook, $prefix, $key, $more) = @_;
	return qq{change $prefix postgres boss 20s "INSERT INTO public.effect (hook, number, reason) VALUES ('$hook', (SELECT value::int FROM etcd_leader.etcd_get('$key')), current_setting('etcd_leader.hook_reason'))} . ($more // '') . '"';
}

# ---- which runs ------------------------------------------------------------------

reload_hooks($pg, reads('one', 'w/', 'w/one'), reads('two', 'w/two', 'w/two'), reads('all', 'all', 'w/one'));
poll_ok(10, sub { 3 == grep { told($_) } qw(one two all) }, 'each hook runs once at the beginning');
is($pg->value(q{SELECT string_agg(DISTINCT reason, ' ') FROM effect}), 'gap', 'for a gap');
$pg->value('TRUNCATE effect');
put('w/one', 1);
poll_ok(10, sub { "@{[told('one')]} @{[told('all')]}" eq '1 1' }, 'a put has a run of the hooks whose prefix it is below');
is(join(' ', told('two')), '', 'and of no other');
is($pg->value(q{SELECT string_agg(DISTINCT reason, ' ') FROM effect}), 'change', 'the reason');
put('w/two', 7);
poll_is(10, sub { join ' ', told('two') }, '7', 'the other one runs, too');
is(join(' ', @{ hook($pg, 2) }{qw(event election)}), 'change w/two', 'the view has the prefix');

# ---- 1,000 puts in bursts -----------------------------------------------------------

reload_hooks($pg, reads('one', 'w/', 'w/one'), reads('slow', 'w/', 'w/one', '; SELECT pg_sleep(0.2)'),
	reads('broken', 'w/', 'w/one', '; SELECT 1 / (NOT is_broken)::int FROM public.state'));
poll(10, sub { told('broken') }) or die 'it does not run';
my ($begun, $began) = (hook($pg, 1)->{runs}, now());
put('w/one', $_) for 1 .. 1000;
poll_is(20, sub { (told('one'))[-1] }, 1000, 'after 1,000 puts the last run has read the last one');
cmp_ok(hook($pg, 1)->{runs} - $begun, '<=', 10 * (now() - $began) + 2, 'and runs have begun at most ten times a second');
poll_is(20, sub { (told('slow'))[-1] }, 1000, 'also that of a slow hook');
cmp_ok(scalar(told('slow')), '<', 200, 'changes that come during a run have one run');
my $failures = hook($pg, 3)->{failures};
poll_ok(10, sub { hook($pg, 3)->{failures} > $failures }, 'one that fails is tried again');
$pg->value('UPDATE state SET is_broken = false');
poll_is(70, sub { hook($pg, 3)->{status} }, 'succeeded', 'until it succeeds');
is((told('broken'))[-1], 1000, 'with the last value');
pause(0.5);
my $runs = $pg->value('SELECT sum(runs) FROM etcd_leader_hooks');
pause(1);
is($pg->value('SELECT sum(runs) FROM etcd_leader_hooks'), $runs, 'then nothing runs');

# ---- gaps, processes, etcd -------------------------------------------------------------

my $pid = $pg->value(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'etcd_leader hooks'});
$pg->value('SELECT pg_terminate_backend(?)', $pid);
put('w/one', 1001);
poll_is(10, sub { (told('one'))[-1] }, 1001, 'the process of hooks is ended: no change is lost');
$pg->value('SELECT pg_terminate_backend(?)', $pg->elector_pid);
put('w/one', 1002);
poll_is(10, sub { (told('one'))[-1] }, 1002, 'nor when the elector is');
$etcd->stop(0);
$etcd->start(0);
put('w/one', 1003);
poll_is(20, sub { (told('one'))[-1] }, 1003, 'nor when etcd is restarted');
my $offset = $pg->log_size;
put('w/one', 1004);
kill 'KILL', $pg->value('SELECT pg_backend_pid()');
poll(30, sub { $pg->log_count('database system is ready to accept connections', $offset) && $pg->try_value('SELECT true') }) or die 'it does not restart';
poll_is(20, sub { (told('one'))[-1] }, 1004, 'nor when the server crashes');

# ---- places ------------------------------------------------------------------------------

reload_hooks($pg, (map { qq{change w/ postgres boss 1min "SELECT pg_sleep(600 + $_)"} } 1 .. 4), 'elected postgres postgres boss 1min "SELECT 1"');
my $running = q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'etcd_leader hook' AND wait_event = 'PgSleep'};
poll_is(10, sub { $pg->value($running) }, 2, 'hooks of changes take two places of three');
$pg->wait_until_leader;
poll_is(5, sub { last_run($pg, 5) }, $pg->token . ' succeeded', 'the last one is never for them');
pause(0.5);
is($pg->value($running), 2, 'they do not take it');
reload_hooks($pg);
poll_is(5, sub { $pg->value($running) }, 0, 'the file is emptied in the middle of runs: they end');

# With one place for changes, all have their turn.
$pg->configure(hooks_max_workers => 2);
reload_hooks($pg, map { reads("turn$_", 'w/', 'w/one', '; SELECT pg_sleep(0.1)') } 1 .. 4);
put('w/one', $_) for 2001 .. 2050;
poll_ok(20, sub { 4 == grep { ((told("turn$_"))[-1] // 0) == 2050 } 1 .. 4 }, 'one place: all have their turn');

# ---- two databases that two statements want for themselves ----------------------------------

# Since 19 (its betas, too) the server ends the runs.  Before, no run begins for a second.
if ($pg->pg_version->major < 19)
{
	$pg->value($_) for 'CREATE DATABASE app', 'CREATE DATABASE other0';
	reload_hooks($pg, 'change w/ app boss 20s "SELECT 1"');
	poll(10, sub { last_run($pg, 1) eq '- succeeded' }) or die 'it does not run';
	my ($holder, $dropper) = ($pg->connect_db, $pg->connect_db);
	my $was_early;
	for my $try (1 .. 10)
	{
		# the first statement has said that it wants the database, and waits
		my $runs   = hook($pg, 1)->{runs};
		my $asked  = now();
		$holder->do(q{BEGIN; COMMENT ON DATABASE app IS 'it is locked'});
		start_statement($dropper, 'ALTER DATABASE app RENAME TO moved');
		waits_in($pg, $dropper, 'Lock/object');
		$pg->value('ALTER DATABASE other' . ($try - 1) . " RENAME TO other$try");
		put('w/one', 3000 + $try);
		poll(10, sub { hook($pg, 1)->{runs} > $runs }) or die 'it does not run';
		$was_early = now() - $asked < 1 and poll_is(5, sub { hook($pg, 1)->{status} }, 'cancelled', 'two statements want two databases: no run begins in either');
		# not by pg_cancel(), which since DBD::Pg 3.19 fetches the outcome itself
		$pg->value('SELECT pg_cancel_backend(?)', $dropper->{pg_pid});
		outcome($dropper);
		$holder->do('ROLLBACK');
		last if $was_early;
		poll(10, sub { last_run($pg, 1) eq '- succeeded' }) or die 'it does not succeed';
	}
	ok($was_early, 'a run was started before the hold was over');
}

# ---- as doc/changes.md has it ------------------------------------------------------------

$pg->value('CREATE ROLE app LOGIN');
$pg->value('CREATE ROLE postgres LOGIN SUPERUSER') unless $pg->value(q{SELECT count(*) FROM pg_roles WHERE rolname = 'postgres'});
$pg->value(document_block('doc/changes.md', 'maintenance_procedure'));
reload_hooks($pg, document_block('doc/changes.md', 'maintenance'));
my ($on, $off) = document_block('doc/changes.md', 'switch') =~ /^etcdctl (.+)$/mg;
my $read_only = q{SELECT setconfig::text FROM pg_db_role_setting JOIN pg_roles r ON r.oid = setrole WHERE rolname = 'app'};
$etcd->etcdctl(split / /, $on);
poll_is(10, sub { $pg->value($read_only) }, '{default_transaction_read_only=t}', 'maintenance by one etcdctl put');
$etcd->etcdctl(split / /, $off);
poll_is(10, sub { $pg->value($read_only) }, '{default_transaction_read_only=f}', 'and its end');

is($pg->log_count('PANIC|TRAP'), 0, 'nothing has crashed');
done_testing();
