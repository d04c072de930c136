# The recipes of doc/hooks.md: all of pg_cron on the leader, also over the start
# of a crashed leader; a subscription that runs on one node; synchronized_standby_slots,
# where PostgreSQL has it (17); news for the outside; maintenance mode by one put.
use EtcdLeader::Test;
use EtcdLeader::Documents;
use EtcdLeader::Hooks;
use EtcdLeader::Session;

my $etcd  = EtcdLeader::Etcd->new;
my %nodes = map { $_ => EtcdLeader::Instance->create($_, etcd => $etcd, preload => 'pg_cron, etcd_leader', init => { allows_streaming => 1 }, settings => { elections => 'shop', watched_prefixes => 'maintenance/', hooks_file => 'hooks.conf' }, start => 0,
	conf => "max_worker_processes = 20\ncron.use_background_workers = on\ncron.database_name = 'postgres'\nmax_replication_slots = 10\nwal_retrieve_retry_interval = 500ms\n") } qw(pg1 pg2);
my ($pg1, $pg2) = @nodes{qw(pg1 pg2)};
for my $node ($pg1, $pg2)
{
	# the role of the recipes
	write_hooks($node);
	$node->start;
	$node->value('CREATE ROLE postgres LOGIN SUPERUSER') unless $node->value(q{SELECT count(*) FROM pg_roles WHERE rolname = 'postgres'});
	$node->create_extension('README');
}
$pg1->wait_until_leader;
$pg2->wait_until_candidate;

# The file has one recipe after the other.  The outside is a program of the test.
my $dir = PostgreSQL::Test::Utils::tempdir('outside');
sub recipe { my ($name) = @_; reload_hooks($_, document_block('doc/hooks.md', $name) =~ s{/usr/local/bin/announce-leader}{$dir/announce}r) for $pg1, $pg2; return }

# The unelected hook of the recipe, which is in the second line, has run.
sub is_switched_off { my ($node) = @_; return last_run($node, 2) =~ /succeeded$/ }

# ---- pg_cron ------------------------------------------------------------------

my $version = $pg1->value(q{SELECT default_version FROM pg_available_extensions WHERE name = 'pg_cron'});
my $has_switch = $version !~ /^1\.[0-4]\b/;
note("pg_cron $version");

# Is pg_cron switched on here?
sub is_on
{
	my ($node) = @_;
	return $has_switch ? $node->try_value(q{SELECT setting FROM pg_settings WHERE name = 'cron.launch_active_jobs'}) eq 'on'
	  : $node->try_value('SELECT bool_and(active) FROM cron.job');
}

for my $node ($pg1, $pg2)
{
	$node->value($_) for 'CREATE EXTENSION pg_cron', 'CREATE ROLE jobs LOGIN', document_block('doc/hooks.md', 'fence'),
	  'CREATE TABLE effect (at timestamptz DEFAULT clock_timestamp(), token bigint DEFAULT etcd_fencing_token())', 'GRANT ALL ON effect TO jobs',
	  q{SELECT cron.schedule_in_database('each', } . ($has_switch ? q{'1 second'} : q{'* * * * *'}) . q{, 'INSERT INTO effect DEFAULT VALUES', 'postgres', 'jobs')},
	  q{SELECT cron.schedule_in_database('start', '@reboot', 'INSERT INTO effect DEFAULT VALUES', 'postgres', 'jobs')};
	$node->append_conf('postgresql.conf', "cron.launch_active_jobs = off\n");
	$node->value('UPDATE cron.job SET active = false') unless $has_switch;
	$node->reload;
}
recipe($has_switch ? 'pg_cron' : 'pg_cron_1.4');
poll_ok(10, sub { is_on($pg1) }, 'pg_cron is on where the instance leads');
ok(!is_on($pg2), 'the switch is off on the follower');
if ($has_switch)
{
	poll_ok(15, sub { $pg1->value('SELECT count(*) FROM effect') }, 'a job runs on the leader');
}
$pg1->value('SELECT etcd_resign()');
$pg2->wait_until_leader;
poll_ok(10, sub { is_on($pg2) && !is_on($pg1) }, 'a hand-over takes it along');

# The leader crashes, another instance leads, the old leader starts again: its file says on.
$pg2->value('TRUNCATE effect');
$pg2->value('DELETE FROM cron.job_run_details');
$pg2->stop('immediate');
$pg1->wait_until_leader;
ok(slurp_file($pg2->data_dir . '/postgresql.auto.conf') =~ /launch_active_jobs = 'on'/, 'the crashed leader has left it on') if $has_switch;
$pg2->start;
poll_ok(10, sub { is_switched_off($pg2) && !is_on($pg2) }, 'the crashed leader starts, and switches pg_cron off');
poll_ok(10, sub { is_on($pg1) }, 'the switch is on on the new leader');
$pg2->wait_until_candidate;
# a second, in which jobs of each second would run
pause(1.5);
is($pg2->value('SELECT count(*) FROM effect'), 0, 'no job has done anything before its election');
my $job_runs = q{SELECT count(*) FROM cron.job_run_details JOIN cron.job USING (jobid) WHERE status = 'succeeded'};
is($pg2->value($job_runs), 0, 'no job without leadership has succeeded');
$pg2->value('TRUNCATE effect');
$pg1->value('SELECT etcd_resign()');
$pg2->wait_until_leader;
poll_ok(10, sub { is_on($pg2) }, 'elected again, it is on');
if ($has_switch)
{
	poll_ok(15, sub { $pg2->value('SELECT count(*) FROM effect') }, 'jobs run on the leader');
	is($pg2->value('SELECT min(token) FROM effect'), $pg2->token, 'the rows have the token of the leader');
}

# ---- a subscription --------------------------------------------------------------

my $publisher = EtcdLeader::Instance->create('pub', preload => 0, extension => 0, init => { allows_streaming => 'logical' });
$_->value('CREATE TABLE orders (id int PRIMARY KEY)') for $publisher, $pg1, $pg2;
$publisher->value('CREATE PUBLICATION orders FOR TABLE orders');
$publisher->value(q{SELECT pg_create_logical_replication_slot('orders', 'pgoutput')});
for my $node ($pg1, $pg2)
{
	$node->value(q{CREATE SUBSCRIPTION orders CONNECTION '} . $publisher->connstr('postgres') =~ s/'/''/gr
		  . q{' PUBLICATION orders WITH (enabled = false, create_slot = false, slot_name = 'orders', copy_data = false)});
}
recipe('subscription');
sub orders { return $_[0]->value(q{SELECT string_agg(id::text, ' ' ORDER BY id) FROM orders}) // '' }
$publisher->value('INSERT INTO orders VALUES (1)');
poll_is(15, sub { orders($pg2) }, '1', 'the leader applies');
is(orders($pg1), '', 'the other one does not');
$pg2->value('SELECT etcd_resign()');
$pg1->wait_until_leader;
poll_ok(10, sub { is_switched_off($pg2) && !$pg2->value(q{SELECT count(*) FROM pg_stat_subscription WHERE pid IS NOT NULL}) }, 'the old leader ceases to apply');
$publisher->value('INSERT INTO orders VALUES (2)');
poll_is(15, sub { orders($pg1) }, '2', 'the next leader goes on');
is(orders($pg2), '1', 'the old leader does not apply changes');

# ---- synchronized_standby_slots ---------------------------------------------------

if ($pg1->pg_version >= 17)
{
	recipe('standby_slots');
	my $slots = q{SELECT setting FROM pg_settings WHERE name = 'synchronized_standby_slots'};
	poll_is(10, sub { $pg1->value($slots) }, 'peer', 'synchronized_standby_slots is set on the leader');
	is($pg1->value(q{SELECT slot_type FROM pg_replication_slots WHERE slot_name = 'peer'}), 'physical', 'the new primary has the slot');
	is($pg2->value($slots), '', 'the setting is not on the old primary');
	$pg1->value('SELECT etcd_resign()');
	$pg2->wait_until_leader;
	poll_ok(10, sub { $pg2->value($slots) eq 'peer' && $pg1->value($slots) eq '' }, 'a hand-over takes it along');
	$pg2->value('SELECT etcd_resign()');
	$pg1->wait_until_leader;
}

# ---- news for the outside -----------------------------------------------------------

append_to_file("$dir/announce", "#!/bin/sh\ncat >>$dir/news\n");
chmod 0755, "$dir/announce" or die $!;
recipe('tell');
poll_ok(10, sub { -s "$dir/news" }, 'the outside is told');
is(slurp_file("$dir/news"), $pg1->token . "\tpg1\n", 'the token and the name');
my $first = slurp_file("$dir/news");
# a program that hangs
append_to_file("$dir/hang", "#!/bin/sh\nexec sleep 600\n");
chmod 0755, "$dir/hang" or die $!;
reload_hooks($pg1, document_block('doc/hooks.md', 'tell') =~ s{10 /usr/local/bin/announce-leader}{1 $dir/hang}r);
poll_ok(5, sub { (hook($pg1, 1)->{message} // '') =~ /child process exited with exit code 124/ }, 'a program that hangs is ended by "timeout"');
recipe('tell');
poll_is(10, sub { slurp_file("$dir/news") }, "$first$first", 'a line that has come back is a new hook');
$first = slurp_file("$dir/news");
$pg1->value('SELECT etcd_resign()');
$pg2->wait_until_leader;
my $second = $first . $pg2->token . "\tpg2\n";
poll_is(10, sub { slurp_file("$dir/news") }, $second, 'and told of the next one, with a greater token');

# ---- maintenance mode ------------------------------------------------------------------

$_->value(document_block('doc/hooks.md', 'maintenance_procedure')) for $pg1, $pg2;
recipe('maintenance');
sub put { $etcd->post('/v3/kv/put', { key => EtcdLeader::Etcd::b64('maintenance/shop'), value => EtcdLeader::Etcd::b64($_[0]) }) or die; return }
for my $state ([ 1, sub { put('on') }, 'a put' ], [ 0, sub { put('off') }, 'another one' ], [ 1, sub { put('on') }, 'a third one' ],
	[ 0, sub { $etcd->post('/v3/kv/deleterange', { key => EtcdLeader::Etcd::b64('maintenance/shop') }) or die }, 'a deletion' ])
{
	my ($is_on, $act, $what) = @$state;
	$act->();
	poll_ok(10, sub { 2 == grep { $_->value('SELECT is_on FROM ops.maintenance') == $is_on } $pg1, $pg2 }, "maintenance mode: $what reaches all instances");
}

done_testing();
