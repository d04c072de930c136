# 200 hand-overs while hooks, launchers of hooks, notifiers, backends, electors and
# whole servers are killed.  The records of runs agree with the effects.  An elected
# hook commits nothing after the loss of leadership.  In the end the switch is on where
# an instance leads, and off on the other.
#
# ETCD_LEADER_ROUNDS: the number of hand-overs (200); ETCD_LEADER_SEED: the seed.
use strict;
use warnings;

use EtcdLeader::Etcd;
use EtcdLeader::Instance;
use EtcdLeader::Util;
use PostgreSQL::Test::Utils;
use Test::More;

my $rounds = $ENV{ETCD_LEADER_ROUNDS} || 200;
my $seed   = $ENV{ETCD_LEADER_SEED} || time;
srand $seed;
note("ETCD_LEADER_SEED=$seed");
watchdog(200 + 4 * $rounds);

my $etcd  = EtcdLeader::Etcd->new;
my %nodes = map { $_ => EtcdLeader::Instance->create($_, etcd => $etcd, settings => { max_hook_workers => 4 },
	conf => "max_worker_processes = 16\ntrack_commit_timestamp = on\nlog_min_messages = warning\nfsync = on\n") } qw(pg1 pg2);
my @nodes = @nodes{qw(pg1 pg2)};
$nodes{pg1}->wait_until_leader;
for my $node (@nodes)
{
	$node->value($_) for 'CREATE TABLE effect (token bigint, hook text)', 'CREATE TABLE switch (state text)', q{INSERT INTO switch VALUES ('off')},
	  # writes the token of each leadership, to be compared with the records
	  q{SELECT etcd_add_hook('quick', 'elected', $$INSERT INTO effect VALUES (etcd_fencing_token(), 'quick')$$)},
	  # is often within its transaction when leadership is lost
	  q{SELECT etcd_add_hook('slow', 'elected', $$INSERT INTO effect SELECT etcd_fencing_token(), 'slow' FROM pg_sleep(0.2 * random())$$)},
	  q{SELECT etcd_add_hook('on', 'elected', $$UPDATE switch SET state = 'on'$$)},
	  q{SELECT etcd_add_hook('off', 'unelected', $$UPDATE switch SET state = 'off'$$, timeout => '20 s')};
}

sub leader { for my $node (@nodes) { return $node if $node->try_value('SELECT etcd_is_leader()') } return }

sub kill_process
{
	my ($node, $type, $signal) = @_;
	my $pid = $node->try_value('SELECT pid FROM pg_stat_activity WHERE backend_type = ? LIMIT 1', $type) or return;
	kill $signal, $pid;
	return;
}

# Starts a server that is down, as soon as all its processes have ended.
sub start_again
{
	my ($node) = @_;
	# PostgreSQL::Test::Cluster keeps the old pid after a failed start
	poll(30, sub { $node->{_pid} = undef; $node->start(fail_ok => 1) }) or die $node->name . ' does not start again';
	return;
}

my %fault = (
	none      => sub { },
	hook      => sub { kill_process($_[0], 'etcd_leader hook', 'TERM') },
	hook9     => sub { kill_process($_[0], 'etcd_leader hook', 'KILL') },
	launcher  => sub { kill_process($_[0], 'etcd_leader hook launcher', 'TERM') },
	launcher9 => sub { kill_process($_[0], 'etcd_leader hook launcher', 'KILL') },
	notifier  => sub { kill_process($_[0], 'etcd_leader notifier', 'TERM') },
	backend   => sub { my $dbh = eval { $_[0]->connect_db } or return; kill 'KILL', $dbh->{pg_pid} },
	elector   => sub { kill_process($_[0], 'etcd_leader elector', 'KILL') },
	immediate => sub { $_[0]->stop('immediate'); start_again($_[0]) },
	server    => sub { $_[0]->kill9; start_again($_[0]) });
my @faults = ((sort keys %fault), ('none', 'hook', 'launcher', 'notifier') x 3);

# The number of each kind of fault, and the leader of each token.
my (%count, %seen);
my $handed_over = 0;
for my $round (1 .. $rounds)
{
	my $leader = poll(60, \&leader) or die 'nobody leads';
	my $token  = $leader->try_value('SELECT etcd_fencing_token()') or redo;
	pause(rand 0.4);
	my $fault = $faults[ rand @faults ];
	$count{$fault}++;
	$fault{$fault}->($leader);
	# go on at any moment of a recovery
	pause(rand 0.1);
	$leader->try_value('SELECT etcd_resign()');
	$seen{$token} = $leader->name;
	poll(60, sub {
		my $next = leader() or return 0;
		my $now = $next->try_value('SELECT etcd_fencing_token()') // 0;
		if ($now == $token) { $next->try_value('SELECT etcd_resign()') }
		return $now > $token;
	}) or die 'it was not handed over';
	$handed_over++;
}
note(join ', ', map { "$_ $count{$_}" } sort keys %count);
is($handed_over, $rounds, "$rounds hand-overs");

# ---- the end state ---------------------------------------------------------------

my $last = poll(30, \&leader) or die 'nobody leads';
my ($other) = grep { $_ != $last } @nodes;
for my $node (@nodes)
{
	poll(30, sub { $node->try_value('SELECT true') }) or die $node->name . ' does not answer';
	my $open = q{SELECT count(*) FROM etcd_leader_hook_run WHERE ended_at IS NULL};
	poll_is(30, sub { $node->try_value($open) }, 0, $node->name . ': no run is open');
}
poll_is(60, sub { $last->value('SELECT state FROM switch') }, 'on', 'the switch is on where it leads');
poll_is(60, sub { $other->value('SELECT state FROM switch') }, 'off', 'the switch is off on the other');

for my $node (@nodes)
{
	my $name = $node->name;
	is($node->value(q{SELECT count(*) FROM effect e WHERE NOT EXISTS (SELECT FROM etcd_leader_hook_run r
		WHERE r.hook = e.hook AND r.fencing_token = e.token AND r.event = 'elected')}), 0, "$name: each effect has a record");
	is($node->value(q{SELECT count(*) FROM etcd_leader_hook_run r WHERE status = 'succeeded' AND hook IN ('quick', 'slow') AND NOT EXISTS (SELECT FROM effect e
		WHERE r.hook = e.hook AND r.fencing_token = e.token)}), 0, "$name: each run that succeeded has its effect");
	# a run may have had its effect though the server crashed before the record of its end
	is($node->value(q{SELECT count(*) FROM (SELECT hook, token, count(*) AS n FROM effect GROUP BY 1, 2) e WHERE n >
		(SELECT count(*) FROM etcd_leader_hook_run r WHERE r.hook = e.hook AND r.fencing_token = e.token)}), 0, "$name: there are no more effects than runs");
	diag(sprintf '%s: %s', $name, join ', ', map { "$_->{hook} $_->{status} $_->{n}" }
		  $node->rows('SELECT hook, status, count(*) AS n FROM etcd_leader_hook_run GROUP BY 1, 2 ORDER BY 1, 2'));
	is($node->log_count('PANIC|TRAP|could not start hooks'), 0, "$name: the log is clean");
}

# Each token has one leader.  All commits under a token come before the next leader's,
# except for the time from PRE_COMMIT to the end of a commit.
{
	my %committed;
	for my $node (@nodes)
	{
		push @{ $committed{ $_->{token} } }, $_
		  for $node->rows(q{SELECT token, hook, extract(epoch FROM pg_xact_commit_timestamp(xmin)) AS at, current_setting('cluster_name') AS node FROM effect});
	}
	my @tokens = sort { $a <=> $b } keys %committed;
	is(join(' ', grep { my %by = map { $_->{node} => 1 } @{ $committed{$_} }; keys %by > 1 } @tokens), '', 'each token has one leader');
	my ($late, $worst) = (0, 0);
	for my $i (0 .. $#tokens - 1)
	{
		my ($first) = sort { $a <=> $b } map { $_->{at} } @{ $committed{ $tokens[ $i + 1 ] } };
		for my $effect (@{ $committed{ $tokens[$i] } })
		{
			my $by = $effect->{at} - $first;
			$late++ if $by > 0;
			$worst = $by if $by > $worst;
		}
	}
	cmp_ok($late, '==', 0, 'nothing is committed after the next leader has committed') or diag(sprintf '%.3f s', $worst);
	cmp_ok(scalar @tokens, '>', $rounds / 3, scalar(@tokens) . ' tokens have effects');
}
done_testing();
