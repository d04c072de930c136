# Hooks that hang, fail, flood, hold locks, resign, drop what they stand on: the
# elector beats on, NOTIFY goes on, hand-overs take no longer, and a shutdown, DROP
# DATABASE and DROP EXTENSION end them within a second.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use EtcdLeader::Etcd;
use EtcdLeader::Instance;
use EtcdLeader::Session;
use EtcdLeader::Util;
use PostgreSQL::Test::Utils;
use Test::More;

my $etcd = EtcdLeader::Etcd->new;
my ($pg1, $pg2) = map { EtcdLeader::Instance->create($_, etcd => $etcd, settings => { max_hook_workers => 3 }, conf => "max_worker_processes = 16\n") } qw(pg1 pg2);
$pg1->wait_until_leader;
$pg2->wait_until_candidate;
$pg1->value('CREATE TABLE t (i int)');

sub add
{
	my ($name, $command, %args) = @_;
	return ($args{dbh} // $pg1->dbh)->do('SELECT etcd_add_hook(?, ?, ?, timeout => ?)', undef, $name, $args{event} // 'elected', $command, $args{timeout} // '1 min');
}
sub statuses { return join ' ', map { $_->{status} } $pg1->rows('SELECT status FROM etcd_leader_hook_run WHERE hook = ? ORDER BY started_at', $_[0]) }
sub drop { $pg1->value('SELECT etcd_drop_hook(?)', $_) for @_; return }
sub hooks_running { my ($node) = @_; return $node->value(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'etcd_leader hook'}) }

# pg1 gives up, pg2 leads, and back again; a listener of pg1 hears of it.
sub hands_over
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$pg1->wait_until_leader;
	$pg2->wait_until_candidate;
	my $listener = $pg1->listen;
	my $mark     = $pg1->last_event;
	my $began    = now();
	$pg1->value('SELECT etcd_resign()');
	$pg2->wait_until_leader(undef, 5);
	my $took = now() - $began;
	# locks are held for 5 s, and all others for longer; the rest is for a busy machine
	cmp_ok($took, '<', 3, "$what: the hand-over");
	ok($listener->wait_for(sub { $_[0]{event} eq 'unelected' && $_[0]{seq} > $mark }), "$what: NOTIFY goes on");
	cmp_ok(now() - $began, '<', 4, "$what: at once");
	$listener->stop;
	$pg1->wait_until_candidate;
	$pg2->value('SELECT etcd_resign()');
	$pg1->wait_until_leader(undef, 5);
	return;
}

# ---- what a hook may do to itself -----------------------------------------------------

my %fault = (
	hangs  => 'SELECT pg_sleep(600)',
	floods => 'SELECT repeat(\'x\', 1000) FROM generate_series(1, 100000000)',
	busy   => 'DO $$ BEGIN LOOP NULL; END LOOP; END $$',
	locks  => 'BEGIN; LOCK TABLE etcd_leader_hook, etcd_leader_hook_run; SELECT pg_sleep(5); COMMIT',
	large  => q{SELECT length(repeat('x', 1073741000) || repeat('x', 1073741000))},
	own    => 'DROP DATABASE postgres',
);
for my $name (sort keys %fault)
{
	my $offset = $pg1->log_size;
	add($name, $fault{$name});
	if ($name eq 'locks')
	{
		poll_ok(10, sub { $pg1->value(q{SELECT count(*) FROM pg_locks WHERE relation = 'etcd_leader_hook'::regclass AND mode = 'AccessExclusiveLock' AND granted}) }, "$name: it holds the locks");
	}
	else
	{
		poll_ok(10, sub { statuses($name) }, "$name: it has begun");
	}
	hands_over($name);
	my $waits = $pg1->log_count('WARNING:  could not start hooks in database "postgres": ', $offset);
	cmp_ok($waits, '<=', 1, "$name: no flood in the log");
	poll_ok(20, sub { eval { $pg1->dbh->do("SET lock_timeout = '500ms'"); drop($name); 1 } }, "$name: it is dropped");
	$pg1->dbh->do('RESET lock_timeout');
	poll_is(5, sub { hooks_running($pg1) }, 0, "$name: and gone");
}
is($pg1->log_count('was terminated by signal'), 0, 'nothing has crashed');

# One that resigns: each election leads to another, but not in a tight loop.
{
	my $mark = $pg1->last_event;
	add('resigns', 'SELECT etcd_resign()');
	poll(5, sub { $pg1->last_event > $mark }) or die 'it does not resign';
	$pg2->value('SELECT etcd_resign(rejoin => false)');
	$pg1->wait_until_leader;
	my $runs = q{SELECT count(*) FROM etcd_leader_hook_run WHERE hook = 'resigns'};
	my $since = now();
	$mark = $pg1->value($runs);
	pause(3);
	poll(5, sub { $pg1->value($runs) > $mark });
	my $more = $pg1->value($runs) - $mark;
	my $time = now() - $since;
	ok($more >= 1 && $more <= $time + 1, sprintf 'a hook that resigns, alone: %d runs in %.1f s', $more, $time);
	unlike(statuses('resigns'), qr/succeeded/, 'no cancelled run has committed anything');
	like($pg1->value(q{SELECT message FROM etcd_leader_hook_run WHERE hook = 'resigns' AND status = 'cancelled' LIMIT 1}), qr/does not lead election/, 'the records say that the runs were cancelled');
	drop('resigns');
	# a last run may still resign: the other one comes back after that
	poll_is(5, sub { hooks_running($pg1) }, 0, 'the process of the run has ended');
	$pg1->wait_until_leader;
	$pg2->value('SELECT etcd_campaign()');
	$pg2->wait_until_candidate;
}

# ---- one after the other -------------------------------------------------------------

# They run until the test lets them end.
$pg1->value('SELECT pg_advisory_lock(1)');
add("wait$_", 'SELECT pg_advisory_lock_shared(1)') for 1 .. 7;
poll_is(10, sub { hooks_running($pg1) }, 3, 'max_hook_workers hooks run at once');
pause(1.2);
is(hooks_running($pg1), 3, 'and no more');
$pg1->value('SELECT pg_advisory_unlock(1)');
poll_ok(20, sub { $pg1->value(q{SELECT count(*) FROM etcd_leader_hook_run WHERE hook LIKE 'wait%' AND status = 'succeeded'}) == 7 }, 'more hooks than workers: all run');
is($pg1->value(q{SELECT string_agg(hook, ' ' ORDER BY started_at) FROM etcd_leader_hook_run WHERE hook LIKE 'wait%'}), join(' ', map { "wait$_" } 1 .. 7), 'the hooks begin in the order of their names');
drop(map { "wait$_" } 1 .. 7);

# ---- the last 1,000 runs ---------------------------------------------------------------

# in one transaction: runs of hooks that are not there are deleted
$pg1->dbh->begin_work;
$pg1->value(q{INSERT INTO etcd_leader_hook_run SELECT 'kept', 'postgres', 'elected', i, now() - '1 day'::interval + i * '1 s'::interval, now(), 'failed' FROM generate_series(1, 1500) i});
$pg1->value(q{INSERT INTO etcd_leader_hook_run VALUES ('kept', 'postgres', 'elected', 9, now() - '2 days'::interval, now(), 'succeeded')});
$pg1->value(q{INSERT INTO etcd_leader_hook_run VALUES ('unknown', 'postgres', 'elected', 9, now(), now(), 'succeeded')});
add('kept', 'SELECT 1');
$pg1->dbh->commit;
# beside the last 1,000: the last success, and the run of now, if it is recorded after the others were pruned
poll_ok(10, sub {
	my $kept = $pg1->value(q{SELECT count(*) FROM etcd_leader_hook_run WHERE hook = 'kept' AND fencing_token < 1501});
	return $kept >= 1000 && $kept <= 1002 && !$pg1->value(q{SELECT count(*) FROM etcd_leader_hook_run WHERE hook = 'unknown'});
}, 'the last runs are kept, with those of hooks that are there');
drop('kept');

# ---- what ends them ------------------------------------------------------------------

# No worker is free.
{
	my $pg3 = EtcdLeader::Instance->create('pg3', etcd => $etcd, settings => { elections => 'third' }, conf => "max_worker_processes = 4\n");
	$pg3->wait_until_leader;
	$pg3->value(q{SELECT etcd_add_hook('starved', 'elected', 'SELECT 1')});
	poll_ok(10, sub { ($pg3->value(q{SELECT status || ': ' || message FROM etcd_leader_hook_run}) // '') =~ /^waiting: no background worker is free/ }, 'no worker is free: the record says so');
	pause(2.5);
	is($pg3->log_count('WARNING:  could not start hook "starved"'), 1, 'no worker is free: the log says so once');
	is($pg3->value('SELECT count(*) FROM etcd_leader_hook_run'), 1, 'no worker is free: one record');
	# the launcher of logical replication makes room
	$pg3->append_conf('postgresql.conf', "max_worker_processes = 8\n");
	$pg3->restart;
	$pg3->wait_until_leader;
	poll_is(10, sub { $pg3->value('SELECT string_agg(status, $$ $$) FROM etcd_leader_hook_run') }, 'succeeded', 'the hook runs when a worker is free');
	$pg3->stop('fast');
}

# DROP DATABASE and DROP EXTENSION, also while a hook holds locks.
$pg1->value('CREATE DATABASE app');
$pg1->configure(databases => 'postgres, app');
poll(10, sub { $pg1->notifier_pid('app') }) or die 'no notifier';
my $app = $pg1->connect_db('app');
$app->do('CREATE EXTENSION etcd_leader');
add('same', 'SELECT pg_sleep(600)', dbh => $app);
add('same', 'INSERT INTO t VALUES (1)');
poll_is(10, sub { statuses('same') }, 'succeeded', 'two databases, the same name: one runs');
poll_ok(10, sub { $app->selectrow_array('SELECT status FROM etcd_leader_hook_run') }, 'the other hook runs, too');
$app->do('UPDATE etcd_leader_hook SET enabled = false');
poll_is(3, sub { hooks_running($pg1) }, 0, 'a hook that is disabled ends');
poll_is(3, sub { $app->selectrow_array(q{SELECT status || ': ' || message FROM etcd_leader_hook_run}) }, 'cancelled: the hook was dropped or disabled', 'and the record says so');
add('locks', 'LOCK TABLE etcd_leader_hook_run IN ACCESS SHARE MODE', dbh => $app);
$app->do(q{UPDATE etcd_leader_hook SET command = 'BEGIN; SELECT count(*) FROM etcd_leader_hook, etcd_leader_hook_run; SELECT pg_sleep(600)', enabled = true});
poll(10, sub { hooks_running($pg1) == 2 }) or die 'they do not run';
my $began = now();
$app->do('DROP EXTENSION etcd_leader');
cmp_ok(now() - $began, '<', 3, 'DROP EXTENSION waits for no hook');
poll_is(4, sub { hooks_running($pg1) }, 0, 'the processes of the runs have ended');
cmp_ok(now() - $began, '<', 4, 'within a second, and what a busy machine takes');

$app->do('CREATE SCHEMA s');
$app->do('CREATE EXTENSION etcd_leader SCHEMA s');
$app->do(q{SELECT s.etcd_add_hook('hangs', 'elected', 'SELECT pg_sleep(600)')});
poll(10, sub { hooks_running($pg1) == 1 }) or die 'it does not run';
$began = now();
{ local $app->{PrintWarn} = 0; local $SIG{__WARN__} = sub { }; $app->do('DROP SCHEMA s CASCADE'); }
poll_is(3, sub { hooks_running($pg1) }, 0, 'DROP SCHEMA ends them, too');
poll_is(3, sub { $pg1->value(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'etcd_leader hook launcher' AND datname = 'app'}) }, 0, 'and the launcher');
$app->do('CREATE EXTENSION etcd_leader');
add('hangs', 'SELECT pg_sleep(600)', dbh => $app);
poll(10, sub { hooks_running($pg1) == 1 }) or die 'it does not run';
$app->disconnect;
$began = now();
$pg1->value('DROP DATABASE app');
# it would fail after 5 s
cmp_ok(now() - $began, '<', 4, 'DROP DATABASE ends a hook there');

# Shutdown.
add($_, $fault{$_}) for qw(hangs busy);
poll(10, sub { hooks_running($pg1) == 2 }) or die 'they do not run';
my $offset = $pg1->log_size;
$began = now();
$pg1->stop('fast');
cmp_ok(now() - $began, '<', 4, 'a fast shutdown ends them');
is($pg1->log_count('etcd_leader hook', $offset), 0, 'without a word') or diag(slurp_file($pg1->logfile, $offset));
done_testing();
