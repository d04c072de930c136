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
my $pg   = EtcdLeader::Instance->create('pg', etcd => $etcd, init => { allows_streaming => 1 }, settings => { ttl => 20, watched_prefixes => 'w/' },
	conf => "max_worker_processes = 16\n");
$pg->wait_until_leader;
$pg->value('CREATE TABLE effect (id serial, told text)');

# Another server, in which no worker is free: the elected hook has the last one, as long as
# the server leads, which a long TTL sees to.  Its hook of
# changes is tried after 1, 2, 4, 8 s, while the tests below run.
my $tight = EtcdLeader::Instance->create('tight', etcd => $etcd, settings => { ttl => 20, elections => 'tight', watched_prefixes => 't/', max_hook_workers => 3 }, conf => "max_worker_processes = 5\n");
$tight->value('CREATE TABLE effect (id serial, told text)');
$tight->value(q{SELECT etcd_add_hook('holds', 'elected', 'SELECT pg_sleep(600)')});

# Not by etcdctl, which may take longer to start than a run sleeps.
sub put { my ($key, $value) = @_; $etcd->post('/v3/kv/put', { key => EtcdLeader::Etcd::b64($key), value => EtcdLeader::Etcd::b64($value // 1) }) or die 'no answer'; return }
sub told { my ($node) = @_; return $node->try_value(q{SELECT string_agg(told, ' ' ORDER BY id) FROM effect}) // '' }
sub pid_of { my ($node, $type) = @_; return $node->try_value('SELECT min(pid) FROM pg_stat_activity WHERE backend_type = ?', "etcd_leader $type") }

# The pid of a process that sleeps in a command.
sub sleeper { return poll(15, sub { $pg->try_value(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'etcd_leader hook' AND wait_event = 'PgSleep'}) }) // die 'none sleeps' }

# Sleeps for the number at the beginning of the value, then tells the key, or "gap".
my $command = q{SELECT pg_sleep(substring(current_setting('etcd_leader.change_value') FROM '^\d+')::float / 10);
	INSERT INTO effect (told) SELECT coalesce(nullif(current_setting('etcd_leader.change_key'), ''), 'gap')};
poll(10, sub { $pg->value(q{SELECT count(*) FROM etcd_leader_events() WHERE event = 'change'}) }) or die 'no gap at the beginning';
$pg->value(q{SELECT etcd_add_hook('h', 'change', ?)}, $command);
poll_is(10, sub { told($pg) }, 'gap', 'a hook begins with a gap');

my $waiting = q{SELECT min(status || ': ' || message) || ', ' || count(*) FROM etcd_leader_hook_run WHERE event = 'change'};
poll(10, sub { $tight->value(q{SELECT count(*) FROM etcd_leader_hook_run WHERE status = 'running'}) }) or die 'no run takes the worker';
$tight->value(q{SELECT etcd_add_hook('h', 'change', ?)}, $command);
poll_ok(10, sub { ($tight->value($waiting) // '') =~ /^waiting: no background worker is free.*, 1$/ }, 'no worker is free: the record says so');
put("t/$_", 0) for 1, 2;

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
$pid = pid_of($pg, 'hook') and $pg->value('SELECT pg_terminate_backend(?)', $pid);
poll(5, sub { !defined pid_of($pg, 'hook') }) or die 'its process does not end';
is($pg->log_count('ERROR|WARNING', $offset), 0, 'and nothing is said');

# ---- leadership ----------------------------------------------------------------------------

$pg->value('TRUNCATE effect');
# for longer than a process waits for changes: the next one runs in another
put('w/led', 11);
sleeper();
my $launcher = pid_of($pg, 'hook launcher');
my $cpu = cpu_seconds($launcher);
$pg->value(q{SELECT etcd_add_hook('waits', 'change', 'SELECT 1')});
$pg->value('SELECT etcd_resign(rejoin => false)');
put('w/not', 0);
poll_is(10, sub { told($pg) }, 'w/led w/not', 'leadership is lost: the run goes on, and so do the changes');
ok(!$pg->is_leader, 'and it leads no more');
cmp_ok(cpu_seconds($launcher) - $cpu, '<', 0.3, 'the launcher sleeps while a hook waits for a place');
$pg->value(q{SELECT etcd_drop_hook('waits')});
$pg->value('SELECT etcd_campaign()');

# ---- its timeout --------------------------------------------------------------------------

put('w/changed', 600);
sleeper();
$pg->value(q{UPDATE etcd_leader_hook SET timeout = '3 s'});
poll_is(15, sub { told($pg) }, 'w/led w/not gap', 'a hook is changed in the middle of a run: it begins with a gap');
put("w/short$_", 16) for 1, 2;
poll_is(10, sub { told($pg) }, 'w/led w/not gap w/short1 w/short2', 'the timeout is that of one run');
is($pg->log_count('WARNING', $offset), 0, 'and not of a process');
put('w/late', 600);
put('w/6', 0);
poll_ok(10, sub { $pg->value(q{SELECT count(*) FROM etcd_leader_hook_run WHERE message = 'canceling statement due to statement timeout'}) }, 'a run that takes longer fails');
$pg->value(q{UPDATE etcd_leader_hook SET enabled = false});
$pg->value('TRUNCATE effect');
put('w/off', 0);
poll(10, sub { $pg->value(q{SELECT count(*) FROM etcd_leader_events() WHERE key = 'w/off'}) }) or die 'the change does not come';
pause(0.3);
is(told($pg), '', 'one that is switched off does not run');
$pg->value(q{UPDATE etcd_leader_hook SET enabled = true, timeout = '1 min'});
poll_is(10, sub { told($pg) }, 'gap', 'one that was switched off and on: a gap');

# ---- several databases, of other encodings --------------------------------------------------

# One place is for all of them.  Each begins with a hook of the same name.
my %shown = (latin1 => "w/caf\xe9=5\xfc?", sql_ascii => "w/caf\xc3\xa9=5\xc3\xbc\xe2\x82\xac");
my @others = sort keys %shown;
$pg->value("CREATE DATABASE $_ TEMPLATE template0 ENCODING '$_' LC_COLLATE 'C' LC_CTYPE 'C'") for @others;
my %other = map { $_ => $pg->connect_db($_) } @others;
for my $dbh (values %other)
{
	$dbh->do($_) for 'CREATE EXTENSION etcd_leader', 'CREATE TABLE effect (id serial, told text)';
}
my $told_in = sub { my ($name) = @_; return $other{$name}->selectrow_array(q{SELECT encode(string_agg(told, ' ' ORDER BY id)::bytea, 'hex') FROM effect}) // '' };
$pg->configure(databases => join ',', 'postgres', @others);
poll(10, sub { $pg->notifier_pid($_) }) or die "no notifier in $_" for @others;
pause(0.2);
for my $name (@others)
{
	$other{$name}->do(q{SELECT etcd_add_hook('h', 'change', $$INSERT INTO effect (told) SELECT current_setting('etcd_leader.change_key') || '=' || current_setting('etcd_leader.change_value')$$)});
	my $added = $other{$name}->selectrow_array('SELECT clock_timestamp()');
	poll_is(10, sub { $told_in->($name) }, unpack('H*', '='), "a hook in a database of $name");
	cmp_ok($other{$name}->selectrow_array(q{SELECT extract(epoch FROM backend_start - ?::timestamptz) FROM pg_stat_activity WHERE backend_type = 'etcd_leader hook launcher' AND datname = current_database()}, undef, $added),
		'<', 0.5, 'its launcher starts at once, though its notifier has just started');
}
$pg->value('TRUNCATE effect');
put("w/caf\xc3\xa9", "5\xc3\xbc\xe2\x82\xac");
poll_is(10, sub { $told_in->($_) }, unpack('H*', "= $shown{$_}"), "$_: characters of its encoding, and ? for others") for @others;
poll_is(10, sub { told($pg) }, "w/caf\xc3\xa9", 'UTF8: all characters');
$other{latin1}->do(q{SELECT etcd_drop_hook('h')});
put('w/+', 0);
poll_is(10, sub { $told_in->('sql_ascii') }, unpack('H*', "= $shown{sql_ascii} w/+=0"), 'a hook is dropped in one database: the others go on');
poll_is(10, sub { told($pg) }, "w/caf\xc3\xa9 w/+", 'in order');
is($told_in->('latin1'), unpack('H*', "= $shown{latin1}"), 'and it does not run');
poll_is(5, sub { $other{sql_ascii}->selectrow_array(q{SELECT string_agg(status, ' ') FROM etcd_leader_hook_run}) }, 'succeeded succeeded succeeded', 'each database has its own records');
$_->disconnect for values %other;
$pg->configure(databases => 'postgres');
poll_is(5, sub { $pg->value(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'etcd_leader hook launcher'}) }, 1, 'databases that are taken out of the settings have no launcher');
$pg->value('TRUNCATE effect');

# ---- records that cannot be written --------------------------------------------------------

$offset = $pg->log_size;
$pg->value('ALTER TABLE etcd_leader_hook_run RENAME message TO renamed');
put('w/unrecorded', 0);
poll_ok(10, sub { $pg->log_count('WARNING:  could not start hooks in database "postgres": column', $offset) }, 'records cannot be written: the log says so');
$cpu = cpu_seconds($launcher);
pause(1.3);
cmp_ok(cpu_seconds($launcher) - $cpu, '<', 0.3, 'the launcher does not try without a pause');
is($pg->log_count('could not start hooks', $offset), 1, 'nor say so twice');
$pg->value('ALTER TABLE etcd_leader_hook_run RENAME renamed TO message');
poll_is(15, sub { told($pg) }, 'w/unrecorded', 'when they can, it goes on');
$pg->value('TRUNCATE effect');

# ---- a server without a free worker -------------------------------------------------------

my $starved = $tight->value(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'etcd_leader hook launcher'});
cmp_ok(cpu_seconds($starved), '<', 0.5, 'no worker is free: the launcher does not try without a pause');
is($tight->log_count('WARNING:  could not start hook "h"'), 1, 'the log says so once');
like($tight->value($waiting), qr/^waiting: .*, 1$/, 'one record');
$tight->value(q{SELECT etcd_drop_hook('holds')});
poll(5, sub { !defined pid_of($tight, 'hook') }) or die 'its process does not end';
my $began = now();
$tight->value(q{SELECT etcd_add_hook('on', 'elected', 'SELECT 1')});
poll_ok(10, sub { $tight->value(q{SELECT count(*) FROM etcd_leader_hook_run WHERE hook = 'on' AND status = 'succeeded'}) }, 'a worker is free: an elected hook');
cmp_ok(now() - $began, '<', 2, 'does not wait for as long as the changes');

# ---- its launcher -------------------------------------------------------------------------

# As if the clock had been set back.
$pg->value(q{INSERT INTO etcd_leader_hook_run (hook, event, started_at, ended_at, status) VALUES ('h', 'change', now() + '1 hour', now() + '1 hour', 'succeeded')});
put('w/7', 30);
put('w/8', 0);
sleeper();
$pg->value('SELECT pg_terminate_backend(?)', $launcher);
poll_is(15, sub { told($pg) }, 'gap', 'the launcher is ended, and its runs: a gap stands for them');
put('w/9', 0);
poll_is(15, sub { told($pg) }, 'gap w/9', 'it goes on');
poll_is(5, sub { $pg->value(q{SELECT count(*) FROM etcd_leader_hook_run WHERE started_at > now() + '30 min'::interval AND ended_at >= started_at}) }, 3, 'a run counts as later than those before it');

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
# the record follows the run
poll_is(5, sub { $pg->value('SELECT count(*) FROM etcd_leader_hook_run WHERE ended_at IS NULL') }, 0, 'no run is open');
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
$began = now();
$standby->value('DROP EXTENSION etcd_leader');
poll_is(5, sub { pid_of($standby, 'hook') }, undef, 'DROP EXTENSION ends it');
cmp_ok(now() - $began, '<', 4, 'soon');
poll_is(5, sub { pid_of($standby, 'hook launcher') }, undef, 'and the launcher');
$standby->value('CREATE EXTENSION etcd_leader');
$standby->value(q{SELECT etcd_add_hook('h', 'change', ?)}, $command);
poll_is(10, sub { told($standby) }, 'w/14 gap w/15 gap', 'a new one begins with a gap');
# after 15 s, or at the latest after 60 s
poll_is(70, sub { told($tight) }, 'gap t/1 t/2', 'what has waited for a worker has run, in order');
poll_is(5, sub { $tight->value(q{SELECT count(*) FROM etcd_leader_hook_run WHERE status = 'waiting'}) }, 0, 'and waits no more');
is($_->log_count('PANIC|TRAP'), 0, $_->name . ': nothing else has crashed') for $pg, $standby, $tight;
is($tight->log_count('could not start the hook launcher'), 0, 'one launcher is enough');
is($standby->log_count('could not start hooks'), 0, 'nothing was in the way of the records');
done_testing();
