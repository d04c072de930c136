# Hooks of the event change: order, what they are told, failures, places, privileges, the
# recipes of doc/changes.md, and a hook that is passed by the changes.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use EtcdLeader::Documents;
use EtcdLeader::Etcd;
use EtcdLeader::Instance;
use EtcdLeader::Session;
use EtcdLeader::Util;
use PostgreSQL::Test::Utils;
use Test::More;

my $etcd = EtcdLeader::Etcd->new;
my $pg   = EtcdLeader::Instance->create('pg', etcd => $etcd, settings => { watched_prefixes => 'w/, fleet/', max_hook_workers => 3 }, conf => "max_worker_processes = 16\n");
$pg->wait_until_leader;

sub b64 { return EtcdLeader::Etcd::b64($_[0]) }
sub put { my ($key, $value) = @_; $etcd->post('/v3/kv/put', { key => b64($key), value => b64($value) }) or die; return }

# Puts of [key, value] in transactions of 100.
sub put_many
{
	my @puts = @_;
	while (my @some = splice @puts, 0, 100)
	{
		$etcd->post('/v3/kv/txn', { success => [ map { { request_put => { key => b64($_->[0]), value => b64($_->[1]) } } } @some ] }) or die;
	}
	return;
}
sub add
{
	my ($name, $command, %args) = @_;
	return ($args{dbh} // $pg->dbh)->do('SELECT etcd_add_hook(?, ?, ?, timeout => ?)', undef, $name, $args{event} // 'change', $command, $args{timeout} // '1 min');
}
sub drop { $pg->value('SELECT etcd_drop_hook(?)', $_) for @_; return }
sub told { my ($hook) = @_; return map { $_->{told} } $pg->rows('SELECT told FROM effect WHERE hook = ? ORDER BY id', $hook) }

# The runs of a hook that have ended, as "revision status", with - for a gap.
sub runs
{
	my ($hook) = @_;
	return map { ($_->{revision} // '-') . " $_->{status}" }
	  $pg->rows(q{SELECT revision, status FROM etcd_leader_hook_run WHERE hook = ? AND event = 'change' AND ended_at IS NOT NULL ORDER BY started_at}, $hook);
}

# What a hook is told, in a row, as "type key=value reason".
sub tells
{
	my ($hook) = @_;
	return qq{INSERT INTO effect (hook, told, revision) SELECT '$hook', format('%s %s=%s %s', current_setting('etcd_leader.change_type'), current_setting('etcd_leader.change_key'),
		current_setting('etcd_leader.change_value'), current_setting('etcd_leader.change_reason')), nullif(current_setting('etcd_leader.change_revision'), '')::bigint};
}
$pg->value('CREATE TABLE effect (id serial, hook text, told text, revision bigint, who name DEFAULT current_user, pid int DEFAULT pg_backend_pid(), at timestamptz DEFAULT clock_timestamp())');
$pg->value('CREATE TABLE state (is_broken bool)');
$pg->value('INSERT INTO state VALUES (true)');
poll(10, sub { $pg->value(q{SELECT count(*) FROM etcd_leader_events() WHERE event = 'change'}) }) or die 'no gap at the beginning';

# ---- what is not allowed -------------------------------------------------------------

fails($pg->dbh, q{SELECT etcd_add_hook('x', 'change', 'SELECT 1', 'postgres')}, '22023', qr/election must be NULL for a hook of the event "change"/, 'changes are of no election');
fails($pg->dbh, q{INSERT INTO etcd_leader_hook VALUES ('x', 'change', 'postgres', 'SELECT 1', current_user, '1 min')}, '23514', qr/check constraint/, 'by hand neither');
fails($pg->dbh, q{INSERT INTO etcd_leader_hook VALUES ('x', 'elected', NULL, 'SELECT 1', current_user, '1 min')}, '23514', qr/check constraint/, 'the others need one');
is($pg->value("SELECT current_setting('etcd_leader.change_$_')"), '', "etcd_leader.change_$_ is empty elsewhere") for qw(type key value revision reason);

# ---- hooks that fail: the log must not tell of values -------------------------------------

my $offset = $pg->log_size;
add('hopeless', tells('hopeless') . '; SELECT 1 / 0');
add('vain', 'SELECT 1 / 0', event => 'elected');

# It fails once for each of five changes: its first statement is committed.
add('flaky', tells('flaky') . q{; SELECT 1 / (current_setting('etcd_leader.change_key') <> 'w/flaky' OR count(*) > 1)::int
	FROM effect WHERE hook = 'flaky' AND revision = nullif(current_setting('etcd_leader.change_revision'), '')::bigint});
poll(10, sub { told('flaky') }) or die 'no first run';
add('picky', tells('picky') . q{; SELECT coalesce(nullif(current_setting('etcd_leader.change_value'), ''), '0')::int});
poll_is(10, sub { join ', ', told('picky') }, 'gap = gap', 'the first run of a hook is for a gap');
put('w/number', 1);
put('w/number', 'top secret');
put('w/number', 3);
put('w/flaky', $_) for 1 .. 5;
# what comes after the gap of the next hook is a run of that hook
poll(10, sub { $pg->value(q{SELECT count(*) FROM etcd_leader_events() WHERE key IN ('w/number', 'w/flaky')}) == 8 }) or die 'the changes do not come';

# ---- one that fails for a while --------------------------------------------------------

add('broken', q{SELECT 1 / (NOT is_broken OR current_setting('etcd_leader.change_type') = 'gap')::int FROM state; } . tells('broken'));
poll(10, sub { told('broken') == 1 }) or die 'no first run';
put('w/broken', $_) for 1 .. 3;
poll(10, sub { runs('broken') > 2 }) or die 'it is not tried again';
like(join(', ', runs('broken')), qr/^- succeeded(?:, (\d+) failed)(?:, \1 failed)+$/, 'a change that fails is tried again, and no later one overtakes it');
$pg->value('UPDATE state SET is_broken = false');
poll_is(20, sub { join ', ', told('broken') }, 'gap = gap, put w/broken=1 , put w/broken=2 , put w/broken=3 ', 'when it can, it goes on with that change');
is($pg->log_count('WARNING:  hook "broken" in database "postgres" failed: SQLSTATE 22012', $offset), 1, 'the log says so once');
poll_ok(5, sub { $pg->log_count('LOG:  hook "broken" in database "postgres" has succeeded again', $offset) == 1 }, 'and that it is over');
drop('broken');
is($pg->value(q{SELECT message FROM etcd_leader_hook_run WHERE hook = 'picky' AND status = 'failed' ORDER BY started_at LIMIT 1}),
	'invalid input syntax for type integer: "top secret"', 'a record has the message');

# ---- what it is told, and in which order --------------------------------------------------

add('all', tells('all'));
poll_is(10, sub { join ', ', told('all') }, 'gap = gap', 'a third');
$pg->value(q{DELETE FROM effect WHERE hook = 'all'});
my $mark = $pg->last_event;
put('w/a', 'on');
put('w/a', '');
$etcd->etcdctl('del', 'w/a');
put('other', 'not below');
put('w/nul', "a\0b");
put("w/\xff", 'x');
put('w/long', 'x' x 1001);
put('w/quote', q{'; DROP TABLE effect; --});
put('w/utf8', "caf\xc3\xa9\n\$1");
my @expected = ('put w/a=on ', 'put w/a= ', 'delete w/a= ', 'put w/nul=610062 binary', 'put ' . unpack('H*', "w/\xff") . '=x binary',
	'put w/long=' . 'x' x 1000 . ' truncated', q{put w/quote='; DROP TABLE effect; -- }, "put w/utf8=caf\xc3\xa9\n\$1 ");
poll(10, sub { told('all') >= @expected });
is_deeply([ told('all') ], \@expected, 'each change once, in order, and what it is');
is_deeply([ map { $_->{revision} } $pg->rows(q{SELECT revision FROM effect WHERE hook = 'all' ORDER BY id}) ],
	[ map { $_->{revision} } $pg->rows(q{SELECT revision FROM etcd_leader_events(?) WHERE event = 'change' ORDER BY seq}, $mark) ], 'their revisions');
my @revisions = map { "$_->{revision} succeeded" } $pg->rows(q{SELECT revision FROM effect WHERE hook = 'all' ORDER BY id});
poll(10, sub { runs('all') > @revisions });
is_deeply([ runs('all') ], [ '- succeeded', @revisions ], 'a record for each run');
is($pg->value(q{SELECT count(*) FROM etcd_leader_hook_run WHERE hook = 'all' AND (ended_at < started_at OR election IS NOT NULL OR fencing_token IS NOT NULL)}), 0, 'which is sane');

# ---- consecutive changes: one process, and a session as new --------------------------------

$pg->value(q{SELECT etcd_add_hook('fresh', 'change', $$
	CREATE TEMP TABLE scratch AS SELECT current_setting('work_mem') AS work_mem, current_setting('statement_timeout') AS time;
	SET work_mem = '3MB'; SET statement_timeout = '30s'; SET etcd_leader.change_key = 'mine';
	SELECT pg_advisory_lock(1); PREPARE p AS SELECT 1;
	INSERT INTO effect (hook, told) SELECT 'fresh', work_mem || ' ' || time FROM scratch$$, timeout => '20 s')});
poll(10, sub { told('fresh') == 1 }) or die 'no first run';
$pg->value(q{DELETE FROM effect WHERE hook IN ('all', 'fresh')});
put_many(map { [ sprintf('w/%04d', $_), $_ ] } 1 .. 500);
poll_ok(40, sub { told('fresh') == 500 && told('all') == 500 }, '500 changes') or diag(scalar(told('fresh')), ' ', scalar(told('all')));
is_deeply([ told('all') ], [ map { sprintf 'put w/%04d=%d ', $_, $_ } 1 .. 500 ], 'in order');
is($pg->value(q{SELECT string_agg(DISTINCT told, ', ') FROM effect WHERE hook = 'fresh'}), '4MB 20s', 'each run in a session as new');
cmp_ok($pg->value(q{SELECT count(DISTINCT pid) FROM effect WHERE hook = 'all'}), '<', 50, 'a process runs many');
drop('fresh');

poll_is(5, sub { join ' ', map { /flaky=(\d)/ } told('flaky') }, '1 1 2 2 3 3 4 4 5 5', 'a success ends a series of failures: each change waits for a second, and none is given up');
drop('flaky');

# ---- places ------------------------------------------------------------------------------

# Two of them hang; the elected hook has a place of its own.
add("hangs$_", q{SELECT pg_sleep(60) WHERE current_setting('etcd_leader.change_key') = 'w/hang'}) for 1, 2;
poll(10, sub { runs('hangs1') && runs('hangs2') }) or die 'they do not run';
put('w/hang', 1);
my $hanging = q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'etcd_leader hook' AND query LIKE 'SELECT pg_sleep(60)%' AND wait_event = 'PgSleep'};
poll_is(10, sub { $pg->value($hanging) }, 2, 'hooks of changes leave a place free');
my $began = now();
add('on', q{SELECT 1}, event => 'elected');
poll_ok(10, sub { $pg->value(q{SELECT count(*) FROM etcd_leader_hook_run WHERE hook = 'on' AND status = 'succeeded'}) }, 'for an elected one');
cmp_ok(now() - $began, '<', 2, 'which does not wait');
poll_is(5, sub { $pg->value(q{SELECT count(*) FROM etcd_leader_hook_run WHERE status = 'running' AND hook LIKE 'hangs%' AND revision IS NOT NULL}) }, 2, 'a run that takes long is recorded while it runs');

# Each turn of the launcher records those two again, which takes 1.6 s now.
$pg->value($_) for q{CREATE FUNCTION record_slowly() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.8); RETURN new; END'},
  q{CREATE TRIGGER slow BEFORE INSERT ON etcd_leader_hook_run FOR EACH ROW WHEN (new.event = 'change' AND new.status = 'running') EXECUTE FUNCTION record_slowly()};
add('on at once', q{INSERT INTO effect (hook, told) VALUES ('on at once', clock_timestamp())}, event => 'elected');
poll(20, sub { told('on at once') }) or die 'it does not run';
$pg->value('DROP TRIGGER slow ON etcd_leader_hook_run');
cmp_ok($pg->value(q{SELECT extract(epoch FROM (SELECT told::timestamptz FROM effect WHERE hook = 'on at once') - (SELECT started_at FROM etcd_leader_hook_run WHERE hook = 'on at once'))}),
	'<', 1.5, 'an elected hook does not wait until changes are recorded');
$began = now();
drop('hangs1', 'hangs2');
poll_is(5, sub { $pg->value($hanging) }, 0, 'hooks are dropped in the middle of a run');
cmp_ok(now() - $began, '<', 2, 'and end');
put('w/after', 1);
poll_ok(10, sub { (told('all'))[-1] eq 'put w/after=1 ' }, 'others go on');

# With one place for all, they take turns.
$pg->configure(max_hook_workers => 1);
my @endless = map { "endless$_" } 1 .. 3;
add($_, q{SELECT pg_sleep(0.01)}) for @endless;
poll(10, sub { !grep { !runs($_) } @endless }) or die 'no first run';
$began = now();
put_many(map { [ "w/turn$_", $_ ] } 1 .. 200);
add('on again', q{SELECT 1}, event => 'elected');
poll_ok(20, sub { $pg->value(q{SELECT count(*) FROM etcd_leader_hook_run WHERE hook = 'on again' AND status = 'succeeded'}) }, 'one place: an elected hook has its turn');
poll_ok(5, sub { !grep { runs($_) < 2 } @endless }, 'and hooks of changes have theirs');
ok(!(grep { runs($_) > 200 } @endless), 'before the changes are through');
$pg->configure(max_hook_workers => 3);
drop(@endless);

# ---- as whom ----------------------------------------------------------------------------------

$pg->value($_) for 'CREATE ROLE alice LOGIN', 'CREATE ROLE bob LOGIN', 'CREATE TABLE guarded (who text, key text)', 'GRANT ALL ON guarded TO alice, bob',
  'ALTER TABLE guarded ENABLE ROW LEVEL SECURITY', 'CREATE POLICY own ON guarded USING (who = current_user)', 'GRANT EXECUTE ON FUNCTION etcd_add_hook, etcd_drop_hook TO alice',
  q{ALTER ROLE alice SET etcd_leader.change_key = 'of the role'};
my ($alice, $bob) = map { $pg->connect_db('postgres', user => $_) } qw(alice bob);
add('own', q{INSERT INTO guarded VALUES (current_user, current_setting('etcd_leader.change_key'))}, dbh => $alice);
poll(10, sub { runs('own') == 1 }) or die 'no first run';
$alice->do(q{SELECT etcd_add_hook('foreign', 'change', $$INSERT INTO guarded VALUES ('bob', 'x')$$)});
put('w/alice', 1);
poll_is(10, sub { $pg->value(q{SELECT string_agg(key, ' ') FROM guarded WHERE who = 'alice' AND key <> ''}) }, 'w/alice', 'as the role, and told of the change in spite of its settings');
poll_ok(10, sub { $alice->selectrow_array(q{SELECT message FROM etcd_leader_hook_run WHERE hook = 'foreign' LIMIT 1}) }, 'row security holds');
like($alice->selectrow_array(q{SELECT message FROM etcd_leader_hook_run WHERE hook = 'foreign' LIMIT 1}), qr/row-level security/, 'the record says so');
is($bob->selectrow_array('SELECT count(*) FROM etcd_leader_hook_run'), 0, 'others see no runs of hers');
$pg->value('ALTER ROLE alice NOLOGIN');
poll(5, sub { !$pg->value(q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'etcd_leader hook own'}) }) or die 'its process does not end';
put('w/alice', 2);
poll_ok(10, sub { $pg->value(q{SELECT count(*) FROM etcd_leader_hook_run WHERE hook = 'own' AND status = 'failed' AND message LIKE '%not permitted to log in'}) }, 'a role that may not log in');
$pg->value('ALTER ROLE alice LOGIN');
poll_ok(15, sub { $pg->value(q{SELECT count(*) FROM guarded WHERE key = 'w/alice'}) == 2 }, 'the change is not lost');
drop('own', 'foreign');

# ---- the recipes of doc/changes.md ------------------------------------------------------------

$pg->value('CREATE ROLE app LOGIN');
$pg->value('CREATE TABLE orders (id int)');
$pg->value('GRANT ALL ON orders TO app');
$pg->value("$_;") for map { s/;\n?\z//r } split /;\n+(?=CREATE|SELECT etcd)/, document_block('doc/changes.md', 'maintenance');
poll(10, sub { runs('maintenance') }) or die 'no first run';
succeeds($pg->connect_db('postgres', user => 'app'), 'INSERT INTO orders VALUES (1)', 'no maintenance: an application writes');
my ($on, $off) = map { [ split / / ] } document_block('doc/changes.md', 'switch') =~ /^etcdctl (.*?)\s*$/mg;
$etcd->etcdctl(@$on);
my $writes = sub { my $dbh = eval { $pg->connect_db('postgres', user => 'app') } or return 'no connection'; return eval { $dbh->do('INSERT INTO orders VALUES (1)') } ? 'yes' : $dbh->state };
poll_is(10, $writes, '25006', 'one etcdctl put: it may not');
$etcd->etcdctl(@$off);
poll_is(10, $writes, 'yes', 'and again it may');

$pg->value("$_;") for map { s/;\n?\z//r } split /;\n+(?=CREATE|SELECT etcd)/, document_block('doc/changes.md', 'keep');
my $fleet = sub { $pg->value(q{SELECT string_agg(key || '=' || value, ' ' ORDER BY key) FROM fleet}) // '' };
$etcd->etcdctl(qw(put fleet/a 1));
poll_is(10, $fleet, 'fleet/a=1', 'a table follows by a hook');
$etcd->etcdctl(qw(put fleet/b 2));
$etcd->etcdctl(qw(del fleet/a));
poll_is(10, $fleet, 'fleet/b=2', 'a put and a deletion');
drop('maintenance', 'keep fleet');

# ---- hooks that have failed for long -----------------------------------------------------------

# Before many changes push these out of memory.
poll_ok(30, sub { $pg->log_count('WARNING:  hook "picky" in database "postgres" gave up a change', $offset) }, 'a change that always fails is given up');
poll_ok(10, sub { (() = told('picky')) > 8 }, 'and a run for a gap stands for it');
is_deeply([ (told('picky'))[ 1 .. 8 ] ], [ 'put w/number=1 ', ('put w/number=top secret ') x 5, 'gap = gap', 'put w/number=3 ' ], 'tried five times, given up, on to the next');
my @tried = map { $_->{at} } $pg->rows(q{SELECT extract(epoch FROM at) AS at FROM effect WHERE hook = 'picky' AND told LIKE '%secret%' ORDER BY id});
cmp_ok($tried[ $_ + 1 ] - $tried[$_], '>', 2**$_ - 0.1, 'it waits for ' . 2**$_ . ' s') for 0 .. 3;
# five times in 15 s, and a sixth time after 31 s
poll_ok(10, sub { (() = told('hopeless')) >= 5 }, 'a gap that fails is tried again, too');
is(scalar(grep { $_ ne 'gap = gap' } told('hopeless')), 0, 'and nothing else is tried');
is($pg->log_count('hook "hopeless" in database "postgres" gave up'), 0, 'and not given up');
$pg->value(q{UPDATE etcd_leader_hook SET command = 'SELECT 1' WHERE name = 'hopeless'});
drop('vain');
add('vain', 'SELECT 1', event => 'elected');
for my $hook (qw(hopeless vain))
{
	poll_ok(3, sub { $pg->value(q{SELECT count(*) FROM etcd_leader_hook_run WHERE hook = ? AND status = 'succeeded'}, $hook) }, "$hook: a hook that was changed does not wait for its next try");
}
drop(qw(hopeless vain));

# ---- a hook that is slower than the changes -------------------------------------------------

$pg->value('SELECT pg_advisory_lock(7)');
$pg->value(q{DELETE FROM effect WHERE hook = 'all'});
add('slow', q{SELECT pg_advisory_lock(7) WHERE current_setting('etcd_leader.change_type') = 'put'; } . tells('slow'));
poll(10, sub { told('slow') == 1 }) or die 'no first run';
drop('all');
# 4 MB of memory for events, and these have 2 kB each
put_many([ 'w/first', 1 ], map { [ 'w/' . 'k' x 900 . sprintf('%05d', $_), 'v' x 1000 ] } 1 .. 3000);
poll(10, sub { $pg->value(q{SELECT count(*) FROM etcd_leader_events() WHERE key LIKE '%03000'}) }) or die 'the changes do not come';
$pg->value('SELECT pg_advisory_unlock(7)');
poll_ok(30, sub { ((told('slow'))[-1] // '') =~ /k03000=/ }, 'a hook that was passed by the changes comes to the last one');
my @told = map { s/^put w\/k+(\d+)=.*/$1/r } told('slow');
is_deeply([ @told[ 0 .. 2 ] ], [ 'gap = gap', 'put w/first=1 ', 'gap = gap' ], 'after a gap');
is_deeply([ @told[ 3 .. $#told ] ], [ map { sprintf '%05d', $_ } $told[3] .. 3000 ], 'after which all are there, in order');
cmp_ok(scalar(@told), '>', 1000, 'as many as memory holds');
is($pg->value(q{SELECT count(*) FROM etcd_leader_hook_run WHERE hook = 'on' AND status = 'succeeded'}), 1, 'records of elected hooks stay');
poll_ok(10, sub { $pg->value(q{SELECT count(*) FROM etcd_leader_hook_run WHERE event = 'change' AND ended_at IS NOT NULL}) <= 1002 }, 'those of changes are the last 1,000');
drop('slow');

my ($launcher, $age) = @{ $pg->row(q{SELECT pid, extract(epoch FROM clock_timestamp() - backend_start) AS age FROM pg_stat_activity WHERE backend_type = 'etcd_leader hook launcher'}) }{qw(pid age)};
cmp_ok(cpu_seconds($launcher), '<', $age / 10, 'the launcher has slept most of the time');
my $log = slurp_file($pg->logfile);
unlike($log, qr/top secret|w\/number/, 'the log has no values and no keys');
unlike($log, qr/PANIC|TRAP|was terminated by signal/, 'nothing has crashed');
unlike($log, qr/could not start hooks/, 'and nothing was in the way of the records');

# ---- no prefixes ------------------------------------------------------------------------------

$pg->configure(watched_prefixes => '');
poll(10, sub { $pg->value('SHOW etcd_leader.watched_prefixes') eq '' }) or die 'not reloaded';
my $warning = '';
{
	local $SIG{__WARN__} = sub { $warning .= $_[0] };
	local $pg->dbh->{PrintWarn} = 1;
	add('idle', 'SELECT 1');
}
like($warning, qr/no changes are watched\nHINT:  Add prefixes of keys to "etcd_leader.watched_prefixes"/, 'nothing is watched: a WARNING');
done_testing();
