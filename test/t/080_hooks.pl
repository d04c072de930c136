# Hooks: when they run, as whom, under which token, and the views.
use EtcdLeader::Test;
use EtcdLeader::Documents;
use EtcdLeader::Hooks;
use EtcdLeader::Session;

my $etcd = EtcdLeader::Etcd->new;
my @lines = (
	q{elected   postgres postgres app 10s "INSERT INTO public.effect (what, token) VALUES ('on', public.etcd_fencing_token())"},
	q{unelected postgres postgres app 10s "INSERT INTO public.effect (what, token) SELECT 'off', nullif(current_setting('etcd_leader.hook_fencing_token'), '')::bigint FROM pg_sleep(0.3)"});
my ($pg1, $pg2) = map { create_with_hooks($_, \@lines, etcd => $etcd, sql => [
	'CREATE ROLE app LOGIN', 'CREATE TABLE effect (id serial, what text, token bigint, who name DEFAULT session_user)', 'GRANT ALL ON ALL TABLES IN SCHEMA public TO app', 'GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO app' ]) } qw(pg1 pg2);

sub effects { return join ' ', map { "$_->{what}-" . ($_->{token} // '') } $_[0]->rows('SELECT what, token FROM effect ORDER BY id') }

# ---- elected and unelected ------------------------------------------------

$pg1->wait_until_leader;
$pg2->wait_until_candidate;
my $token1 = $pg1->token;
poll_is(10, sub { last_run($pg1, 1) }, "$token1 succeeded", 'an elected hook runs where this instance leads');
is($pg1->value('SELECT who FROM effect LIMIT 1'), 'app', 'as its role');
poll_is(10, sub { last_run($pg2, 2) }, '- succeeded', 'a start without leading: the unelected hook runs');
poll_is(10, sub { effects($pg2) }, 'off-', 'once');
is(last_run($pg2, 1), '', 'the follower has not run the elected hook');

$pg1->value('SELECT etcd_resign()');
$pg2->wait_until_leader;
my $token2 = $pg2->token;
poll_is(10, sub { last_run($pg2, 1) }, "$token2 succeeded", 'the next leader runs its own');
poll_is(10, sub { last_run($pg1, 2) }, "$token1 succeeded", 'the old leader runs its unelected hook, with the token that it lost');
is(effects($pg1), "on-$token1 off-$token1", 'the effects on the old leader');
is(effects($pg2), "off- on-$token2", 'and on the new one');

# Alone in the queue, an instance loses and wins in an instant: both hooks run,
# and the elected one waits for the other.
$pg1->value('SELECT etcd_resign(rejoin => false)');
$pg2->value('TRUNCATE effect');
my $expected = '';
for my $round (1 .. 3)
{
	my $token = $pg2->token;
	$pg2->value('SELECT etcd_resign()');
	poll(10, sub { ($pg2->token // 0) > $token }) or die 'not elected again';
	$expected .= " off-$token on-" . $pg2->token;
	poll_is(10, sub { effects($pg2) }, substr($expected, 1), "resignation $round: the hooks run in the order of the events") if $round < 3;
}
# without a wait in between: each loss counts
my $before = $pg2->token;
$pg2->value('SELECT etcd_resign()');
poll(10, sub { ($pg2->token // 0) > $before }) or die 'not elected again';
poll_is(15, sub { effects($pg2) }, substr($expected, 1) =~ s/ on-$before$//r . " off-$before on-" . $pg2->token, 'two losses at once: each has its unelected run')
  or diag($expected);

# ---- a start without leading ------------------------------------------------

$pg1->value('TRUNCATE effect');
$pg1->restart;
poll_is(10, sub { effects($pg1) }, 'off-', 'the server starts without leading: its unelected hook runs');
$pg1->wait_until_candidate;
pause(1.2);
is(effects($pg1), 'off-', 'once');
$pg1->value('SELECT etcd_resign(rejoin => false)');
$pg2->restart;
$pg2->wait_until_leader;
my $token3 = $pg2->token;
poll_is(10, sub { last_run($pg2, 1) }, "$token3 succeeded", 'one that leads runs the other');
is(last_run($pg2, 2), '', 'and that alone');

# ---- the view ------------------------------------------------------------------

my $hook = $pg2->row('SELECT *, ended_at >= started_at AS sane FROM etcd_leader_hooks WHERE line = 1');
is_deeply([ @{$hook}{qw(event election database role timeout is_off status sqlstate message runs failures crashes sane)} ],
	[ 'elected', 'postgres', 'postgres', 'app', '00:00:10', 0, 'succeeded', undef, undef, 1, 0, 0, 1 ], 'a row of the view');
my $hash = $pg2->value('SELECT hash FROM etcd_leader_hooks_file');
is($pg1->value('SELECT hash FROM etcd_leader_hooks_file'), $hash, 'equal hooks have an equal hash');
$pg2->value('SET ROLE app');
fails($pg2->dbh, "SELECT * FROM $_", '42501', qr/permission denied for function $_/, "$_ is not for PUBLIC") for qw(etcd_leader_hooks etcd_leader_hooks_file);
fails($pg2->dbh, "SELECT * FROM $_()", '42501', qr/permission denied for function $_/, "$_() is not for PUBLIC") for qw(etcd_leader_hooks etcd_leader_hooks_file);
$pg2->value('RESET ROLE');

# ---- lines that come, move and go --------------------------------------------------

my $added = q{elected all postgres app 1min "INSERT INTO public.effect (what) VALUES (pg_catalog.concat_ws('/', current_setting('etcd_leader.hook_event'), current_setting('etcd_leader.hook_election'), current_setting('etcd_leader.hook_fencing_token'), current_setting('etcd_leader.hook_reason')))"};
reload_hooks($pg2, '# comments and order do not count', reverse(@lines), $added);
poll_is(10, sub { last_run($pg2, 4) }, "$token3 succeeded", 'a line that is added runs at once where the instance leads');
is($pg2->value('SELECT what FROM effect ORDER BY id DESC LIMIT 1'), "elected/postgres/$token3/elected", 'what it is told');
is(hook($pg2, 3)->{runs}, 1, 'a line that is moved does not run again');
isnt($pg2->value('SELECT hash FROM etcd_leader_hooks_file'), $hash, 'other hooks, another hash');
reload_hooks($pg2, reverse(@lines), $added =~ s/1min/2min/r);
pause(0.5);
is(hook($pg2, 3)->{runs}, 1, 'nor one whose timeout has changed');

my $sleeper = q{elected postgres postgres app 1min "INSERT INTO public.effect (what) VALUES ('never'); BEGIN; INSERT INTO public.effect (what) VALUES ('never'); SELECT pg_sleep(60); COMMIT"};
sub sleeping { return $_[0]->value(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'etcd_leader hook' AND wait_event = 'PgSleep'}) }
reload_hooks($pg2, @lines, $sleeper);
poll_is(10, sub { sleeping($pg2) }, 1, 'a hook that takes long runs');
reload_hooks($pg2, @lines);
my $took = poll_is(5, sub { sleeping($pg2) }, 0, 'its line goes: it is cancelled');
in_time($took, 1.5, 'within a second');
reload_hooks($pg2);
is($pg2->value('SELECT count(*) FROM etcd_leader_hooks'), 0, 'an empty file');
reload_hooks($pg2, @lines);
poll_is(10, sub { last_run($pg2, 1) }, "$token3 succeeded", 'the lines come back, as new ones');

# ---- failure, timeout, loss -----------------------------------------------------------

my $offset = $pg2->log_size;
reload_hooks($pg2, @lines, q{elected postgres postgres app 1min "DO $$ BEGIN RAISE 'broken' USING DETAIL = 'the detail', HINT = 'the hint'; END $$"});
poll_ok(10, sub { hook($pg2, 3)->{failures} >= 2 }, 'a hook that fails is tried again');
is(join(' ', @{ hook($pg2, 3) }{qw(sqlstate message)}), "P0001 broken\nDETAIL:  the detail", 'its SQLSTATE and message');
is($pg2->log_count('ERROR:  broken', $offset), 1, 'the log says so once');
is($pg2->log_count("$_", $offset), 1, "with $_") for 'DETAIL:  the detail', 'HINT:  the hint', 'CONTEXT:  PL/pgSQL function inline_code_block line 1 at RAISE';
reload_hooks($pg2, @lines, q{elected postgres postgres app 1s "SELECT pg_sleep(60)"});
poll_is(10, sub { hook($pg2, 3)->{message} // '' }, 'canceling statement due to statement timeout', 'a run ends at its timeout');
reload_hooks($pg2, @lines, q{elected postgres postgres app 1s "DO $$ BEGIN LOOP BEGIN PERFORM pg_sleep(20); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END $$"});
poll_is(10, sub { hook($pg2, 3)->{message} // '' }, 'the run did not end at its timeout', 'also one that ignores it');
cmp_ok($pg2->log_count('WARNING:  hook in line 3 of the hooks file failed: the run did not end at its timeout'), '>=', 1, 'the log says so');

reload_hooks($pg2, @lines, $sleeper, $added =~ s/^elected/unelected/r);
poll_is(10, sub { sleeping($pg2) }, 1, 'a hook is in a transaction');
my $began = now();
$pg2->value('SELECT etcd_resign(rejoin => false)');
poll_is(10, sub { last_run($pg2, 3) }, "$token3 cancelled", 'a loss cancels it');
in_time(now() - $began, 3, 'soon');
poll_is(10, sub { last_run($pg2, 2) }, "$token3 succeeded", 'then the unelected hook runs');
poll_is(10, sub { last_run($pg2, 4) }, "$token3 succeeded", 'and so do others');
is($pg2->value(q{SELECT what FROM effect WHERE what LIKE 'unelected/%'}), "unelected/postgres/$token3/resigned", 'what they are told');
is($pg2->value(q{SELECT (SELECT started_at FROM etcd_leader_hooks WHERE line = 2) >= (SELECT ended_at FROM etcd_leader_hooks WHERE line = 3)}), 1, 'not before');

# One that waits for the loss, and writes at once.
$pg2->value('SELECT etcd_campaign()');
$pg2->wait_until_leader;
my $lost = $pg2->token;
reload_hooks($pg2, @lines, q{elected postgres postgres app 1min "DO $$ BEGIN WHILE public.etcd_is_leader() LOOP PERFORM pg_sleep(0.005); END LOOP; INSERT INTO public.effect (what) VALUES ('late'); END $$"});
poll(10, sub { last_run($pg2, 3) eq "$lost running" }) or die 'it does not run';
$pg2->value('SELECT etcd_resign(rejoin => false)');
poll_is(10, sub { last_run($pg2, 3) }, "$lost cancelled", 'one that writes as soon as leadership is lost');
unlike(effects($pg2), qr/late/, 'commits nothing');

# ---- as doc/hooks.md has them --------------------------------------------------------

$pg2->value($_) for 'CREATE SCHEMA app', 'CREATE TABLE app.duty (who text, token bigint)', 'CREATE TABLE app.opening (token bigint PRIMARY KEY)',
  'CREATE ROLE app_owner LOGIN', 'GRANT USAGE ON SCHEMA app TO app_owner', 'GRANT ALL ON ALL TABLES IN SCHEMA app TO app_owner';
reload_hooks($pg2, map { document_block('doc/hooks.md', $_) } 'first', 'idempotent');
$pg2->value('SELECT etcd_campaign()');
$pg2->wait_until_leader;
my $token4 = $pg2->token;
poll_is(10, sub { $pg2->value('SELECT who || token FROM app.duty') }, "pg2$token4", 'the first hook of the document');
poll_is(10, sub { $pg2->value('SELECT token FROM app.opening') }, $token4, 'the one that stores the token');

# ---- no file ---------------------------------------------------------------------------

$pg2->configure(hooks_file => '');
poll_is(10, sub { $pg2->value(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'etcd_leader hook%'}) }, 0, 'without a file there is no process');
is($pg2->value('SELECT count(*) FROM etcd_leader_hooks'), 0, 'and no hook');
$pg2->configure(hooks_file => undef);
poll_is(10, sub { last_run($pg2, 2) }, "$token4 succeeded", 'a reload sets it again');
$pg1->value('ALTER SYSTEM SET etcd_leader.hooks_file = $$$$');
$pg1->restart;
for my $process ([ postmaster => slurp_file($pg1->data_dir . '/postmaster.pid') =~ /^(\d+)/ ], [ elector => $pg1->elector_pid ])
{
	my ($name, $pid) = @$process;
	my ($rss) = slurp_file("/proc/$pid/smaps") =~ m{^\S+ rw-s \S+ 00:01 \d+ +/dev/zero \(deleted\)\nSize: +(?:2\d\d|[345]\d\d) kB\n(?:.*\n)*?Rss: +(\d+) kB}m;
	is($rss // 'no mapping', 0, "where no file is set, hooks take no memory: $name");
}
is($pg1->value(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'etcd_leader hook%'}), 0, 'and no process');
$pg1->configure(hooks_file => undef);
poll_is(10, sub { last_run($pg1, 2) }, '- succeeded', 'the first hooks come by a reload, and the instance does not lead: its unelected hook runs');

done_testing();
