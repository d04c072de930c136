# Hooks on a standby and after its promotion, on a leader that has crashed, without etcd,
# when the elector hangs, and where no worker is free.
use EtcdLeader::Test;
use EtcdLeader::Hooks;

sub writes { my ($event, $what) = @_; return qq{$event postgres postgres boss 1min "INSERT INTO public.t VALUES ('$what')"} }
my @hooks = ('# the lines begin with the next one', writes('elected', 'done'), writes('unelected', 'off'));
my $etcd = EtcdLeader::Etcd->new;
my $pg1  = create_with_hooks('pg1', \@hooks, etcd => $etcd, init => { allows_streaming => 1 }, settings => { ttl => 10, hooks_max_workers => 4 },
	sql => [ 'CREATE TABLE t (what text, at timestamptz DEFAULT clock_timestamp())', 'CREATE ROLE boss LOGIN SUPERUSER' ]);
$pg1->wait_until_leader;

sub pid_of { my ($node, $type) = @_; return $node->try_value('SELECT pid FROM pg_stat_activity WHERE backend_type = ?', "etcd_leader $type") }

# ---- a standby ------------------------------------------------------------------

my $standby = EtcdLeader::Instance->create_standby('pg2', $pg1, settings => { node_name => 'pg2' });
$pg1->wait_for_catchup($standby);
is($standby->value('SELECT count(*) FROM etcd_leader_hooks'), 2, 'a standby has read its file');
is(pid_of($standby, $_), undef, "and runs no $_") for 'hooks', 'hook';
# it is promoted while another instance leads
$standby->promote;
poll_ok(15, sub { last_run($standby, 3) eq '- succeeded' }, 'promotion without leading runs the unelected hook');
$pg1->stop('immediate');
$standby->wait_until_leader;
poll_is(15, sub { last_run($standby, 2) }, $standby->token . ' succeeded', 'then it leads');

# The old leader starts without leading; then etcd is away at the start.
$pg1->start;
poll_ok(10, sub { last_run($pg1, 3) eq '- succeeded' }, 'the crashed leader starts, does not lead, and runs its unelected hook');
$etcd->stop(0);
$pg1->restart;
my $began = now();
poll_ok(10, sub { last_run($pg1, 3) eq '- succeeded' }, 'without etcd, too');
in_time(now() - $began, 4, 'after a second');
$etcd->start(0);

# The elector is stopped: the deadline passes, and nobody says so.
$pg1->value('SELECT etcd_resign(rejoin => false)');
$standby->wait_until_leader;
my $last    = $standby->token;
my $elector = $standby->elector_pid;
poll(10, sub { last_run($standby, 2) eq "$last succeeded" }) or die 'it does not run';
kill 'STOP', $elector;
poll_ok(20, sub { last_run($standby, 3) eq "$last succeeded" }, 'the elector hangs: unelected hooks run after the deadline');
my $done = hook($standby, 2)->{runs};
kill 'CONT', $elector;
$standby->wait_until_leader;
poll_ok(15, sub { hook($standby, 2)->{runs} > $done && last_run($standby, 2) eq $standby->token . ' succeeded' }, 'it goes on: the last word is that of the elected hook');

# ---- no worker is free ------------------------------------------------------------

my $pg3 = create_with_hooks('pg3', [ 'elected third postgres boss 1min "SELECT 1"' ], etcd => $etcd, settings => { elections => 'third' }, sql => ['CREATE ROLE boss LOGIN SUPERUSER']);
$pg3->append_conf('postgresql.conf', "max_worker_processes = 4\n");
$pg3->restart;
poll_is(10, sub { my $h = hook($pg3, 1); join ': ', $h->{status} // '', $h->{message} // '' }, 'waiting: no background worker is free', 'no worker is free: the view says so');
pause(2.5);
is($pg3->log_count('WARNING:  could not start the hook in line 1'), 1, 'and the log, once');

is($_->log_count('PANIC|TRAP'), 0, $_->name . ': nothing has crashed') for $pg1, $standby;
done_testing();
