# The C API: an extension of a stranger, built with the installed header alone,
# works on the leader only, and does not commit when it is deposed.
use EtcdLeader::Test;
use FindBin;
use Fcntl ();
use POSIX ();

# Built away from the sources of etcd_leader.
my $dir    = PostgreSQL::Test::Utils::tempdir('stranger');
my $source = "$FindBin::RealBin/../modules/leader_only_worker";
for my $file (qw(Makefile leader_only_worker.c))
{
	append_to_file("$dir/$file", slurp_file("$source/$file"));
}
my $pg_config = $ENV{PG_CONFIG} // 'pg_config';
my $output    = '';
ok(IPC::Run::run([ 'make', '-s', '-C', $dir, "PG_CONFIG=$pg_config", 'with_llvm=no', 'all' ], '<', \undef, '&>', \$output),
	'it builds with the installed header') or diag($output);

my $etcd = EtcdLeader::Etcd->new;
my %node = map {
	$_ => EtcdLeader::Instance->create($_, etcd => $etcd, preload => 'etcd_leader,leader_only_worker', start => 0,
		conf => "dynamic_library_path = '\$libdir:$dir'\n")
} qw(pg1 pg2);
for my $name (qw(pg1 pg2))
{
	$node{$name}->start;
	$node{$name}->value('CREATE EXTENSION etcd_leader');
	$node{$name}->value('CREATE TABLE work (id bigserial, at timestamptz DEFAULT clock_timestamp(), token bigint)');
	$name eq 'pg1' ? $node{$name}->wait_until_leader : $node{$name}->wait_until_candidate;
}
my ($pg1, $pg2) = @node{qw(pg1 pg2)};
sub rows { my ($node) = @_; return $node->value('SELECT count(*) FROM work') }

poll_ok(5, sub { rows($pg1) > 3 }, 'the worker works on the leader');
is(rows($pg2), 0, 'the worker does not work on the candidate');
my $token = $pg1->token;

# A hand-over wakes the other worker.
my $began = now();
$pg1->value('SELECT etcd_resign()');
poll_ok(5, sub { rows($pg2) > 0 }, 'a hand-over: it works on the next leader');
in_time(now() - $began, 1, 'woken by the change, at once');
my $rows = rows($pg1);
pause(0.5);
is(rows($pg1), $rows, 'the worker does not work on the old leader any more');
is($pg1->value('SELECT string_agg(DISTINCT token::text, $$ $$) FROM work'), $token, 'what is there has the token of its leadership');
is($pg2->value('SELECT string_agg(DISTINCT token::text, $$ $$) FROM work'), $pg2->token, 'on both');

# A transaction that is under way does not commit.
{
	$pg2->append_conf('postgresql.conf', "leader_only_worker.pause = '10s'\netcd_leader.cancel_on_loss = on\n");
	$pg2->reload;
	poll_ok(5, sub { $pg2->value(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'leader only worker' AND wait_event = 'PgSleep'}) },
		'a long transaction is under way');
	$rows = rows($pg2);
	my $log = $pg2->log_size;
	$pg2->value('SELECT etcd_resign()');
	poll_ok(5, sub { $pg2->log_count('leader only worker.*this instance does not lead election "[^"]+" any more', $log) },
		'deposed: it is cancelled, with the error of the fence');
	is(rows($pg2), $rows, 'deposed: nothing is committed');
	ok($pg2->value(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'leader only worker'}), 'the worker lives on');
}

# Leadership that ends at its deadline, without a word of the elector, wakes it, too.
poll_ok(5, sub { $pg1->is_leader }, 'the first leads again');
poll_ok(5, sub { rows($pg1) > $rows }, 'the worker works on the new leader');
kill 'STOP', $pg1->elector_pid;
poll_ok(15, sub { !$pg1->is_leader }, 'the elector hangs: leadership ends at the deadline');
$rows = rows($pg1);
pause(0.5);
is(rows($pg1), $rows, 'the work continues');
kill 'CONT', $pg1->elector_pid;

# A commit is refused, and the timer's cancellation has met nothing.  It is not for what
# the worker does next.  A trigger ends the statement, and hangs in it.
{
	$pg2->append_conf('postgresql.conf', "leader_only_worker.pause = 0\n");
	$pg2->reload;
	my $fifo = "$dir/fifo";
	POSIX::mkfifo($fifo, 0600) or die $!;
	my $leader;
	poll(10, sub { ($leader) = grep { $_->is_leader } $pg1, $pg2 }) or die 'nobody leads';
	$leader->value(qq{CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS \$\$ BEGIN RETURN CASE WHEN lo_import('$fifo') = 0 THEN NEW END; END \$\$});
	$leader->value('CREATE TRIGGER hang AFTER INSERT ON work FOR EACH ROW EXECUTE FUNCTION hang()');
	my $worker = q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'leader only worker'};
	my $pid    = $leader->value($worker);
	my $end;
	poll(10, sub { sysopen($end, $fifo, Fcntl::O_WRONLY() | Fcntl::O_NONBLOCK()) }) or die 'the worker does not hang';
	my $log = $leader->log_size;
	$leader->value('SELECT etcd_resign()');
	# each tick of the timer wakes it
	my $switches = sub { return slurp_file("/proc/$pid/status") =~ /^voluntary_ctxt_switches:\s*(\d+)/m ? $1 : die };
	my $first    = $switches->();
	poll(10, sub { $switches->() > $first + 3 }) or die 'there is no timer';
	close($end);
	poll_ok(5, sub { $leader->log_count('leader only worker.*this instance does not lead election "[^"]+" any more', $log) }, 'a commit is refused');
	$leader->value('DROP TRIGGER hang ON work');
	poll_ok(5, sub { my ($next) = grep { $_ != $leader } $pg1, $pg2; $next->is_leader }, 'the other instance leads');
	$_->value('SELECT etcd_resign()') for grep { $_ != $leader } $pg1, $pg2;
	$rows = rows($leader);
	poll_ok(5, sub { rows($leader) > $rows }, 'the worker works when its instance leads again');
	is($leader->value($worker), $pid, 'it has not ended');
	is($leader->log_count('canceling statement', $log), 0, 'and nothing was cancelled later');
}

# Without etcd_leader it says so.
{
	my $alone = EtcdLeader::Instance->create('alone', etcd => $etcd, preload => 'leader_only_worker', start => 0, extension => 0,
		conf => "dynamic_library_path = '\$libdir:$dir'\n", settings => {});
	$alone->start;
	poll_ok(5, sub { $alone->log_count('FATAL:  etcd_leader is not loaded') }, 'not preloaded: there is no API');
}
done_testing();
