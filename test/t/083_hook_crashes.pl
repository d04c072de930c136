# Hooks over the end of everything: their process, their launcher, the notifier,
# the server; on a standby and after its promotion; over pg_dump.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use EtcdLeader::Etcd;
use EtcdLeader::Instance;
use EtcdLeader::Session;
use EtcdLeader::Util;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;

my $etcd = EtcdLeader::Etcd->new;
my $pg1  = EtcdLeader::Instance->create('pg1', etcd => $etcd, init => { allows_streaming => 1 }, settings => { ttl => 10 }, conf => "max_worker_processes = 16\n");
$pg1->wait_until_leader;
$pg1->value('CREATE TABLE t (what text, token bigint, at timestamptz DEFAULT clock_timestamp())');

sub runs
{
	my ($node, $hook) = @_;
	return join ', ', map { join ' ', $_->{event}, $_->{fencing_token} // '-', $_->{status} }
	  $node->rows('SELECT * FROM etcd_leader_hook_run WHERE hook = ? ORDER BY started_at', $hook);
}
sub pid_of { my ($node, $type) = @_; return $node->try_value('SELECT pid FROM pg_stat_activity WHERE backend_type = ?', "etcd_leader $type") }

# A run of the hook is in its pg_sleep(); the pid of its process.
sub sleeper
{
	return poll(20, sub { $pg1->try_value(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'etcd_leader hook' AND wait_event = 'PgSleep'}) });
}

# ---- a process is ended ------------------------------------------------------

my $token = $pg1->token;
$pg1->value(q{SELECT etcd_add_hook('long', 'elected', 'INSERT INTO t VALUES (''begun''); SELECT pg_sleep(3); INSERT INTO t VALUES (''long'', etcd_fencing_token())')});
$pg1->value('SELECT pg_terminate_backend(?)', sleeper() // die 'it does not run');
poll_ok(10, sub { runs($pg1, 'long') =~ /^elected $token failed/ }, 'a hook is ended');
is($pg1->value(q{SELECT message FROM etcd_leader_hook_run WHERE status = 'failed' ORDER BY started_at LIMIT 1}), 'its process was ended', 'its record says so');
my $pid = sleeper();
ok($pid, 'it runs again');
$pg1->value('SELECT pg_cancel_backend(?)', $pid);
poll_is(10, sub { $pg1->value('SELECT message FROM etcd_leader_hook_run WHERE ended_at IS NOT NULL ORDER BY started_at DESC LIMIT 1') },
	'canceling statement due to user request', 'a hook is cancelled');
ok(sleeper(), 'it runs again');

my $launcher = pid_of($pg1, 'hook launcher');
$pg1->value('SELECT pg_terminate_backend(?)', $launcher);
poll_ok(10, sub { (pid_of($pg1, 'hook launcher') // $launcher) != $launcher }, 'the launcher is ended, and another one is there');
poll_ok(10, sub { runs($pg1, 'long') =~ /, elected $token cancelled/ }, 'its runs ended with it, and the records say so');
ok(sleeper(), 'they run again');
my $notifier = $pg1->notifier_pid;
$pg1->value('SELECT pg_terminate_backend(?)', $notifier);
poll_ok(10, sub { runs($pg1, 'long') =~ /, elected $token succeeded$/ }, 'the notifier is ended: the hook goes on');
poll_ok(10, sub { $pg1->notifier_pid }, 'another notifier runs');
is($pg1->value(q{SELECT count(*) FROM t WHERE what = 'long'}), 1, 'one run has succeeded');

# SIGKILL: the server restarts, and goes on leading under its token.
$pg1->value(q{SELECT etcd_drop_hook('long')});
$pg1->value('TRUNCATE t');
$pg1->value(q{SELECT etcd_add_hook('done', 'elected', 'INSERT INTO t VALUES (''done'')')});
poll(10, sub { runs($pg1, 'done') eq "elected $token succeeded" }) or die 'it does not succeed';
$pg1->value(q{SELECT etcd_add_hook('killed', 'elected', 'INSERT INTO t VALUES (''begun''); SELECT pg_sleep(2); INSERT INTO t VALUES (''killed'')')});
$pg1->value(q{SELECT etcd_add_hook('off', 'unelected', 'INSERT INTO t VALUES (''off'')')});
$pid = sleeper() or die 'it does not run';
my $offset = $pg1->log_size;
kill 'KILL', $pid;
poll_ok(20, sub { $pg1->log_count('database system is ready to accept connections', $offset) }, 'a hook is killed: the server restarts');
poll_ok(15, sub { ($pg1->try_value(q{SELECT string_agg(status, ' ' ORDER BY started_at) FROM etcd_leader_hook_run WHERE hook = 'killed'}) // '') eq 'cancelled succeeded' },
	'its run is closed, and another one succeeds');
is($pg1->value(q{SELECT message FROM etcd_leader_hook_run WHERE status = 'cancelled'}), 'the server, or the process that starts hooks, ended before the run did', 'the record says why');
is($pg1->token, $token, 'the instance leads under the same token');
is(runs($pg1, 'done'), "elected $token succeeded", 'what is done is not done again');
is(runs($pg1, 'off'), '', 'no leadership was lost');
is($pg1->value(q{SELECT count(*) FROM etcd_leader_hook_run WHERE ended_at IS NULL}), 0, 'no record of a run is open');

# ---- a standby ------------------------------------------------------------------

my $standby = EtcdLeader::Instance->create_standby('pg2', $pg1, settings => { node_name => 'pg2' });
$pg1->wait_for_catchup($standby);
is($standby->value('SELECT count(*) FROM etcd_leader_hook'), 3, 'a standby has the hooks');
is(pid_of($standby, 'hook launcher'), undef, 'no launcher runs');
$pg1->stop('immediate');
$standby->promote;
$standby->wait_until_leader;
my $next = $standby->token;
poll_ok(15, sub { runs($standby, 'done') =~ /, elected $next succeeded$/ && runs($standby, 'killed') =~ /elected $next succeeded$/ }, 'promotion runs what is due');
poll_is(5, sub { $standby->value('SELECT count(*) FROM etcd_leader_hook_run WHERE ended_at IS NULL') }, 0, 'no record of a run is open');

# The old primary is a server of its own by now.  It starts without leading.
$pg1->start;
poll_is(10, sub { runs($pg1, 'off') }, 'unelected - succeeded', 'the crashed leader starts, does not lead, and runs its unelected hook');
pause(0.5);
is(runs($pg1, 'off'), 'unelected - succeeded', 'the hook has run once');

# etcd is away at the start: the same.
$etcd->stop(0);
$pg1->restart;
poll_is(10, sub { runs($pg1, 'off') }, 'unelected - succeeded, unelected - succeeded', 'without etcd, too');
$etcd->start(0);

# ---- the elector is stopped: the deadline passes, and nobody says so ----------------

$pg1->value('SELECT etcd_resign(rejoin => false)');
poll(10, sub { $standby->is_leader }) or $standby->wait_until_leader;
my $last    = $standby->token;
my $elector = $standby->elector_pid;
poll(10, sub { runs($standby, 'done') =~ /elected $last succeeded$/ }) or die 'it does not run';
kill 'STOP', $elector;
poll_ok(20, sub { runs($standby, 'off') =~ /unelected $last succeeded$/ }, 'the elector hangs: unelected hooks run after the deadline');
kill 'CONT', $elector;
$standby->wait_until_leader;
my $newest = $standby->token;
poll_ok(15, sub { runs($standby, 'done') =~ /elected $newest succeeded$/ }, 'it goes on, and so do they');
is(scalar(() = runs($standby, 'off') =~ /unelected $last /g), 1, 'the loss counts once');

# ---- pg_dump ---------------------------------------------------------------------------

$standby->value('CREATE ROLE worker LOGIN');
$standby->value(q{SELECT etcd_add_hook('other role', 'elected', 'SELECT 1; -- ''quoted''', run_as => 'worker', timeout => '2 h')});
my ($error, $output) = ('', '');
my $dump = PostgreSQL::Test::Utils::tempdir('dump') . '/dump.sql';
$standby->value(q{UPDATE etcd_leader_hook SET enabled = false WHERE name = 'killed'});
$last = $standby->token;
$standby->value('SELECT etcd_resign(rejoin => false)');
# nothing is recorded any more after the run that the loss causes
poll(10, sub { runs($standby, 'off') =~ /unelected $last succeeded$/ && !$standby->value('SELECT count(*) FROM etcd_leader_hook_run WHERE ended_at IS NULL') })
  or die 'the hooks do not end';
ok(IPC::Run::run([ 'pg_dump', '-f', $dump, '-d', $standby->connstr('postgres') ], '2>', \$error), 'pg_dump') or diag($error);
$standby->value('CREATE DATABASE restored');
ok(IPC::Run::run([ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-f', $dump, '-d', $standby->connstr('restored') ], '>', \$output, '2>', \$error), 'restored') or diag($error);
my $restored = $standby->connect_db('restored');
for my $table (qw(etcd_leader_hook etcd_leader_hook_run))
{
	my $all = "SELECT md5(string_agg(x::text, '|' ORDER BY x::text)) FROM $table x";
	is($restored->selectrow_array($all), $standby->value($all), "$table is as it was");
}
is($restored->selectrow_array(q{SELECT count(*) FROM pg_policies WHERE tablename LIKE 'etcd\_leader\_hook%'}), 2, 'the restored tables have their policies');

is($_->log_count('PANIC|TRAP'), 0, $_->name . ': nothing else has crashed') for $pg1, $standby;
done_testing();
