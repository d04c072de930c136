# 200 hand-overs while hooks, the process of hooks, notifiers, backends, electors and
# whole servers are killed.  Each leadership that lasts has its elected run.  An elected
# hook commits nothing after the loss of leadership.  No unelected run of an earlier loss
# comes behind the elected run of the next leadership.  In the end the switch is on where
# an instance leads, and off on the other.
#
# ETCD_LEADER_ROUNDS: the number of hand-overs (200); ETCD_LEADER_SEED: the seed.
use EtcdLeader::Test;
use EtcdLeader::Hooks;

my $rounds = $ENV{ETCD_LEADER_ROUNDS} || 200;
my $seed   = $ENV{ETCD_LEADER_SEED} || time;
srand $seed;
note("ETCD_LEADER_SEED=$seed");
watchdog(200 + 4 * $rounds);

my $etcd  = EtcdLeader::Etcd->new;
my @hooks = (
	# writes the token of each leadership
	q{elected all postgres boss 1min "INSERT INTO public.effect VALUES (public.etcd_fencing_token(), 'quick')"},
	# is often within its transaction when leadership is lost
	q{elected all postgres boss 1min "INSERT INTO public.effect SELECT public.etcd_fencing_token(), 'slow' FROM pg_sleep(0.2 * random())"},
	q{elected all postgres boss 1min "UPDATE public.switch SET state = 'on', token = current_setting('etcd_leader.hook_fencing_token')::bigint"},
	q{unelected all postgres boss 20s "INSERT INTO public.off (token) VALUES (nullif(current_setting('etcd_leader.hook_fencing_token'), '')::bigint); UPDATE public.switch SET state = 'off'"});
my %nodes = map { $_ => create_with_hooks($_, \@hooks, etcd => $etcd, settings => { hooks_max_workers => 4 },
	conf => "track_commit_timestamp = on\nlog_min_messages = warning\nfsync = on\n",
	sql => [ 'CREATE ROLE boss LOGIN SUPERUSER', 'CREATE TABLE effect (id serial, token bigint, hook text)' =~ s/id serial, //r, 'CREATE TABLE switch (state text, token bigint)', q{INSERT INTO switch VALUES ('off')},
		'CREATE TABLE off (id serial, token bigint)' ]) } qw(pg1 pg2);
my @nodes = @nodes{qw(pg1 pg2)};
poll(30, sub { grep { $_->try_value('SELECT etcd_is_leader()') } @nodes }) or die 'nobody leads';

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
	hooks     => sub { kill_process($_[0], 'etcd_leader hooks', 'TERM') },
	hooks9    => sub { kill_process($_[0], 'etcd_leader hooks', 'KILL') },
	notifier  => sub { kill_process($_[0], 'etcd_leader notifier', 'TERM') },
	backend   => sub { my $dbh = eval { $_[0]->connect_db } or return; kill 'KILL', $dbh->{pg_pid} },
	elector   => sub { kill_process($_[0], 'etcd_leader elector', 'KILL') },
	immediate => sub { $_[0]->stop('immediate'); start_again($_[0]) },
	server    => sub { $_[0]->kill9; start_again($_[0]) });
my @faults = ((sort keys %fault), ('none', 'hook', 'hooks', 'notifier') x 3);

# The number of each kind of fault, and the leader of each token.
my (%count, %seen);
my $handed_over = 0;
my $missed = 0;
for my $round (1 .. $rounds)
{
	my $leader = poll(60, \&leader) or die 'nobody leads';
	my $token  = $leader->try_value('SELECT etcd_fencing_token()') or redo;
	if ($round % 4 == 0)
	{
		# a hook that was killed waits for a minute, the others for a second; and the process of
		# hooks for up to a minute, if it was killed several times before it had run for a second
		my $has_run = sub { ($leader->try_value(q{SELECT count(*) FROM effect WHERE hook = 'quick' AND token = etcd_fencing_token()}) // 0) >= 1
			|| ($leader->try_value('SELECT max(crashes) FROM etcd_leader_hooks') // 1) > 0 || ($leader->try_value('SELECT etcd_fencing_token()') // 0) != $token };
		poll(70, $has_run) or $missed++;
	}
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
is($missed, 0, 'each leadership that lasted has had its elected run');
# a hook that was killed waits for a minute; after three kills it is off
for my $node (@nodes)
{
	poll(30, sub { $node->try_value('SELECT true') }) or die $node->name . ' does not answer';
	write_hooks($node, map { s/all postgres boss/all postgres boss/r . ' # again' } map { s/"([A-Z])/"\/* again *\/ $1/r } @hooks);
	$node->reload;
}
poll_is(90, sub { $last->try_value('SELECT state || token FROM switch') }, 'on' . $last->token, 'the switch is on where it leads');
poll_is(90, sub { $other->try_value('SELECT state FROM switch') }, 'off', 'the switch is off on the other');
for my $node (@nodes)
{
	my $name = $node->name;
	# at a kill the effect is there and the run is not known to be over: then it runs again
	is($node->value(q{SELECT count(*) FROM off a JOIN off b ON b.id > a.id AND b.token < a.token}), 0, "$name: unelected runs come in the order of the losses");
	is($node->log_count('PANIC|TRAP'), 0, "$name: the log is clean");
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
