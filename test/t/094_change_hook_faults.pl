# Hooks of changes over the end of everything: their process, their launcher, the
# server; on a standby and after its promotion; over DROP EXTENSION. Each change has
# its run, or a run for a gap comes after it.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use EtcdLeader::Etcd;
use EtcdLeader::Instance;
use EtcdLeader::Util;
use PostgreSQL::Test::Utils;
use Test::More;

my $etcd = EtcdLeader::Etcd->new;
my $pg   = EtcdLeader::Instance->create('pg', etcd => $etcd, init => { allows_streaming => 1 }, settings => { watched_prefixes => 'w/' },
	conf => "max_worker_processes = 16\n");
$pg->wait_until_leader;
$pg->value('CREATE TABLE effect (id serial, told text)');

sub put { my ($key, $value) = @_; $etcd->etcdctl('put', $key, $value // 1); return }
sub told { my ($node) = @_; return $node->try_value(q{SELECT string_agg(told, ' ' ORDER BY id) FROM effect}) // '' }
sub pid_of { my ($node, $type) = @_; return $node->try_value('SELECT min(pid) FROM pg_stat_activity WHERE backend_type = ?', "etcd_leader $type") }

# The pid of a process that sleeps in a command.
sub sleeper { return poll(15, sub { $pg->try_value(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'etcd_leader hook' AND wait_event = 'PgSleep'}) }) // die 'none sleeps' }

# Sleeps for the value, then tells the key, or "gap".
my $command = q{SELECT pg_sleep(nullif(current_setting('etcd_leader.change_value'), '')::float / 10);
	INSERT INTO effect (told) SELECT coalesce(nullif(current_setting('etcd_leader.change_key'), ''), 'gap')};
poll(10, sub { $pg->value(q{SELECT count(*) FROM etcd_leader_events() WHERE event = 'change'}) }) or die 'no gap at the beginning';
$pg->value(q{SELECT etcd_add_hook('h', 'change', ?)}, $command);
poll_is(10, sub { told($pg) }, 'gap', 'a hook begins with a gap');

# ---- its process, a request to cancel ----------------------------------------------------

put('w/1', 20);
put('w/2', 0);
my $pid = sleeper();
$pg->value('SELECT pg_terminate_backend(?)', $pid);
poll_is(15, sub { told($pg) }, 'gap w/1 w/2', 'its process is ended: the change is run again, and the next one after it');
is($pg->value(q{SELECT message FROM etcd_leader_hook_run WHERE status = 'failed'}), 'its process was ended', 'the record says so');
put('w/3', 20);
$pg->value('SELECT pg_cancel_backend(?)', sleeper());
poll_is(15, sub { told($pg) }, 'gap w/1 w/2 w/3', 'it is cancelled: the same');
is($pg->value(q{SELECT message FROM etcd_leader_hook_run WHERE status = 'failed' ORDER BY started_at DESC LIMIT 1}), 'canceling statement due to user request', 'and the record');

# A request that comes while none runs is for none.
my $offset = $pg->log_size;
put('w/4', 0);
poll(10, sub { told($pg) =~ /4$/ }) or die 'it does not run';
$pid = pid_of($pg, 'hook') and $pg->value('SELECT pg_cancel_backend(?)', $pid);
put('w/5', 0);
poll_is(15, sub { told($pg) }, 'gap w/1 w/2 w/3 w/4 w/5', 'nothing to cancel');
is($pg->log_count('ERROR|WARNING', $offset), 0, 'and nothing is said');

# ---- its timeout --------------------------------------------------------------------------

$pg->value(q{UPDATE etcd_leader_hook SET timeout = '1 s'});
poll_is(15, sub { told($pg) }, 'gap w/1 w/2 w/3 w/4 w/5 gap', 'a hook that was changed begins with a gap');
put('w/late', 600);
put('w/6', 0);
poll_ok(10, sub { $pg->value(q{SELECT count(*) FROM etcd_leader_hook_run WHERE message = 'canceling statement due to statement timeout'}) > 1 }, 'the timeout is that of one run');
$pg->value(q{UPDATE etcd_leader_hook SET enabled = false});
$pg->value('TRUNCATE effect');
$pg->value(q{UPDATE etcd_leader_hook SET enabled = true, timeout = '1 min'});
poll_is(10, sub { told($pg) }, 'gap', 'one that was switched off and on: a gap');

# ---- records that cannot be written --------------------------------------------------------

my $launcher = pid_of($pg, 'hook launcher');
$offset = $pg->log_size;
$pg->value('ALTER TABLE etcd_leader_hook_run RENAME message TO renamed');
put('w/unrecorded', 0);
poll_ok(10, sub { $pg->log_count('WARNING:  could not start hooks in database "postgres": column', $offset) }, 'records cannot be written: the log says so');
my $cpu = cpu_seconds($launcher);
pause(2);
cmp_ok(cpu_seconds($launcher) - $cpu, '<', 0.3, 'the launcher does not try without a pause');
is($pg->log_count('could not start hooks', $offset), 1, 'nor say so twice');
$pg->value('ALTER TABLE etcd_leader_hook_run RENAME renamed TO message');
poll_is(15, sub { told($pg) }, 'gap w/unrecorded', 'when they can, it goes on');
$pg->value('TRUNCATE effect');

# ---- its launcher -------------------------------------------------------------------------

put('w/7', 30);
put('w/8', 0);
sleeper();
$pg->value('SELECT pg_terminate_backend(?)', $launcher);
poll_is(15, sub { told($pg) }, 'gap', 'the launcher is ended, and its runs: a gap stands for them');
put('w/9', 0);
poll_is(15, sub { told($pg) }, 'gap w/9', 'it goes on');

# ---- the server ----------------------------------------------------------------------------

$pg->value('TRUNCATE effect');
put('w/10', 30);
$offset = $pg->log_size;
kill 'KILL', sleeper();
put('w/11', 0);
poll_ok(20, sub { $pg->log_count('database system is ready to accept connections', $offset) }, 'its process is killed: the server restarts');
poll_ok(20, sub { told($pg) =~ /^gap/ }, 'a gap');
put('w/12', 0);
poll_ok(15, sub { told($pg) =~ /^(?:gap )+(?:w\/11 )?w\/12$/ }, 'and it goes on') or diag(told($pg));
is($pg->value('SELECT count(*) FROM etcd_leader_hook_run WHERE ended_at IS NULL'), 0, 'no run is open');
$pg->value('TRUNCATE effect');
$etcd->stop(0);
$pg->restart;
$etcd->start(0);
poll_ok(20, sub { told($pg) =~ /^gap/ }, 'a restart, with etcd away: a gap when it is back');
put('w/13', 0);
poll_ok(15, sub { told($pg) =~ /^(?:gap )+w\/13$/ }, 'and what comes then') or diag(told($pg));

# ---- a standby --------------------------------------------------------------------------------

my $standby = EtcdLeader::Instance->create_standby('standby', $pg, settings => { node_name => 'standby' });
$pg->wait_for_catchup($standby);
poll(10, sub { $standby->value(q{SELECT count(*) FROM etcd_leader_events() WHERE event = 'change'}) }) or die 'it sees no changes';
$pg->value('TRUNCATE effect');
put('w/14', 0);
poll_ok(10, sub { $standby->value(q{SELECT count(*) FROM etcd_leader_events() WHERE key = 'w/14'}) }, 'a standby sees a change');
poll_is(10, sub { told($pg) }, 'w/14', 'its primary runs the hook');
$pg->wait_for_catchup($standby);
is(pid_of($standby, 'hook launcher'), undef, 'and nobody on the standby');
$pg->stop('immediate');
$standby->promote;
poll_is(15, sub { told($standby) }, 'w/14 gap', 'promotion: a gap');
put('w/15', 0);
poll_is(15, sub { told($standby) }, 'w/14 gap w/15', 'and what comes then');

# ---- the end ---------------------------------------------------------------------------------

put('w/16', 600);
poll(10, sub { $standby->value(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'etcd_leader hook' AND wait_event = 'PgSleep'}) }) or die 'it does not run';
my $began = now();
$standby->value('DROP EXTENSION etcd_leader');
poll_is(5, sub { pid_of($standby, 'hook') }, undef, 'DROP EXTENSION ends it');
cmp_ok(now() - $began, '<', 2, 'soon');
poll_is(5, sub { pid_of($standby, 'hook launcher') }, undef, 'and the launcher');
$standby->value('CREATE EXTENSION etcd_leader');
$standby->value(q{SELECT etcd_add_hook('h', 'change', ?)}, $command);
poll_is(10, sub { told($standby) }, 'w/14 gap w/15 gap', 'a new one begins with a gap');
is($_->log_count('PANIC|TRAP'), 0, $_->name . ': nothing else has crashed') for $pg, $standby;
is($standby->log_count('could not start hooks'), 0, 'nothing was in the way of the records');
done_testing();
