# A hook that crashes the server: at most three crashes, never two in a minute.  Then it is off,
# the instance has resigned, and another instance leads; log, view and metric show the crashes.
use EtcdLeader::Test;
use EtcdLeader::Hooks;

watchdog(600);
my $etcd = EtcdLeader::Etcd->new;
my $crash = q{elected postgres postgres boss 1min "SELECT public.crash('elected')"};
my @hooks = ($crash, q{elected postgres postgres boss 1min "INSERT INTO public.t VALUES ('on')"}, q{unelected postgres postgres boss 1min "INSERT INTO public.t VALUES ('off')"});

# The function kills its own process: an elected one on pg1.  A PANIC comes from a second function.
my ($pg1, $pg2) = map { create_with_hooks($_, [], etcd => $etcd, settings => { ttl => 10 }, sql => [ 'CREATE ROLE boss LOGIN SUPERUSER', 'CREATE TABLE t (what text)', 'CREATE TABLE is_harmless ()',
	q{CREATE FUNCTION crash(text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
		IF to_regclass('public.is_harmless') IS NULL THEN EXECUTE format('COPY (SELECT 1) TO PROGRAM %L', 'kill -' || (SELECT s FROM public.signal) || ' ' || pg_backend_pid()); PERFORM pg_sleep(10); END IF; END $$},
	'CREATE TABLE signal (s text)', q{INSERT INTO signal VALUES ('ABRT')} ]) } qw(pg1 pg2);
$pg1->wait_until_leader;
$pg2->wait_until_candidate;
$pg1->value('DROP TABLE is_harmless');
$pg1->value('SELECT etcd_leader_stats_reset()');

sub crashes { my ($node, $from) = @_; return $node->log_count('terminating any other active server processes', $from // 0) }
sub row { my ($node) = @_; return eval { hook($node, 1) } // {} }

my $began = now();
write_hooks($_, @hooks) for $pg1, $pg2;
$_->reload for $pg1, $pg2;
for my $n (1 .. 3)
{
	poll_ok(90, sub { crashes($pg1) >= $n && (row($pg1)->{crashes} // 0) == $n }, "crash $n");
	cmp_ok(now() - $began, '>', 60 * ($n - 1), 'not within a minute of the one before') if $n > 1;
	is(row($pg1)->{status}, 'crashed', 'the view says it');
	is($pg1->value('SELECT etcd_is_leader()'), 1, 'it leads on') if $n < 3 && poll(10, sub { $pg1->try_value('SELECT etcd_is_leader()') });
}
poll_ok(20, sub { $pg2->try_value('SELECT etcd_is_leader()') }, 'after the third one another instance leads');
ok(row($pg1)->{is_off}, 'the hook is off');
is($pg1->log_count('It has crashed 3 times without a success in between\. The hook is off\.'), 1, 'the log says so');
poll_is(10, sub { $pg1->value(q{SELECT string_agg(what, ' ') FROM t}) }, 'on off', 'the other hooks have run');
$pg1->wait_until_candidate;
ok($pg1->status->{create_revision}, 'the instance queues again');

# It leads again: the hook stays off, also over a reload.
$pg2->value('SELECT etcd_resign()');
$pg1->wait_until_leader;
$pg1->reload;
pause(65);
is(crashes($pg1), 3, 'a reload and an election do not switch it on');
my $port = PostgreSQL::Test::Cluster::get_free_port();
$pg1->configure(http_listen => "127.0.0.1:$port");
my $metrics = '';
poll(10, sub { ($metrics = `curl -s http://127.0.0.1:$port/metrics`) =~ /hook_runs/ });
like($metrics, qr/^etcd_leader_hook_runs_total\{status="crashed"\} 3$/m, 'the metric says it');

# The start of the server does, and a success clears the count.
$pg1->value('CREATE TABLE is_harmless ()');
$pg1->restart;
$pg2->wait_until_leader;
$pg1->wait_until_candidate;
$pg2->value('SELECT etcd_resign()');
$pg1->wait_until_leader;
poll_is(10, sub { row($pg1)->{status} // '' }, 'succeeded', 'the start of the server switches it on');
$pg1->value('DROP TABLE is_harmless');
$pg1->value(q{UPDATE signal SET s = 'KILL'});
my $offset = $pg1->log_size;
$pg1->value('SELECT etcd_resign()');
$pg2->wait_until_leader;
$pg2->value('SELECT etcd_resign()');
poll_ok(90, sub { crashes($pg1, $offset) == 1 && (row($pg1)->{crashes} // 0) == 1 }, 'it crashes once more');
poll(30, sub { $pg1->try_value('SELECT 1') });
$pg1->value('CREATE TABLE is_harmless ()');
poll_ok(90, sub { (row($pg1)->{status} // '') eq 'succeeded' && row($pg1)->{crashes} == 0 }, 'a success clears the count');

# A line that changes is another hook.
$pg1->value('DROP TABLE is_harmless');
$pg1->wait_until_leader;
$offset = $pg1->log_size;
write_hooks($pg1, $crash =~ s/'elected'/'another'/r);
$pg1->reload;
poll_ok(10, sub { crashes($pg1, $offset) == 1 }, 'another line runs at once');
done_testing();
