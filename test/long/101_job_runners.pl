# The job runners of doc/clients.md, as it has them: beside each of two servers runs one of
# each kind, and a supervisor starts it again when it has ended.  Over hand-overs, a killed
# server, a stopped server and killed runners, jobs run on the leader alone.
use EtcdLeader::Test;
use EtcdLeader::Documents;
use FindBin;

watchdog(300);
my $modules = "$FindBin::RealBin/build/npm/node_modules";
-d $modules or die "there is no $modules: test/setup --long makes it";
my $page = 'doc/clients.md';
my $dir  = PostgreSQL::Test::Utils::tempdir('runners');
my $etcd = EtcdLeader::Etcd->new;
my %node;
for my $name (qw(pg1 pg2))
{
	my $node = $node{$name} = EtcdLeader::Instance->create($name, etcd => $etcd, conf => "listen_addresses = '127.0.0.1'\n", settings => { ttl => 3 }, start => 0);
	$node->append_conf('pg_hba.conf', "host all all 127.0.0.1/32 trust\n");
	$node->start;
	$node->create_extension('README');
	$node->wait_until_candidate;
}

# ---- the runners ---------------------------------------------------------------------------

# A block of the page for a server.
sub block_here
{
	my ($node, $name) = @_;
	my $port = $node->port;
	return document_block($page, $name) =~ s{'shop'}{'postgres'}r =~ s{localhost/shop}{127.0.0.1:$port/postgres}r
	  =~ s{host=localhost dbname=shop}{host=127.0.0.1 port=$port dbname=postgres}r;
}

sub url { my ($node, $user) = @_; return "postgres://$user\@127.0.0.1:" . $node->port . '/postgres' }

sub run_once
{
	my $output = '';
	local $ENV{NODE_PATH} = $modules;
	IPC::Run::run(\@_, '<', \undef, '>&', \$output);
	return ($? >> 8, $output);
}

my %command;					# of each runner of each server
my $has_pgagent = $node{pg1}->value(q{SELECT count(*) FROM pg_available_extensions WHERE name = 'pgagent'});
note('without pgAgent: no package of it for this PostgreSQL') unless $has_pgagent;
for my $node (values %node)
{
	my $name = $node->name;
	$node->value($_) for split /;\n/, block_here($node, 'role');
	$node->value($_) for 'CREATE ROLE owner LOGIN', 'GRANT owner TO jobs', 'GRANT CREATE ON DATABASE postgres TO owner',
	  q{CREATE TABLE ran (runner text DEFAULT current_setting('application_name'), at timestamptz DEFAULT clock_timestamp(), token bigint DEFAULT etcd_fencing_token())},
	  'ALTER TABLE ran OWNER TO owner',
	  q{CREATE PROCEDURE rollup() LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.1); INSERT INTO ran DEFAULT VALUES; END'};

	my ($status, $output) = run_once('node', "$modules/graphile-worker/dist/cli.js", '-c', url($node, 'owner'), '--schema-only');
	is($status, 0, "$name: graphile-worker has its schema") or diag($output);
	$node->value(q{SELECT count(graphile_worker.add_job('rollup')) FROM generate_series(1, 3000)});
	($status, $output) = run_once('node', '-e', q{
		const boss = new (require('pg-boss'))(process.argv[1]);
		boss.start().then(() => boss.createQueue('rollup')).then(() => boss.stop({ wait: true })).catch(error => { console.error(error); process.exit(1); });
	}, url($node, 'owner'));
	is($status, 0, "$name: pg-boss has its schema") or diag($output);
	$node->value(q{INSERT INTO pgboss.job (name) SELECT 'rollup' FROM generate_series(1, 1000)});

	for ([ graphile_worker => 'js' ], [ pg_boss => 'js' ], [ node_cron => 'js' ], [ apscheduler => 'py' ])
	{
		my ($runner, $language) = @$_;
		append_to_file("$dir/$name.$runner.$language", block_here($node, $runner));
		$command{"$name $runner"} = [ $language eq 'js' ? 'node' : 'python3', "$dir/$name.$runner.$language" ];
	}
	next unless $has_pgagent;
	$node->value($_) for 'CREATE EXTENSION pgagent', 'CREATE ROLE pgagent LOGIN', 'GRANT USAGE ON SCHEMA pgagent TO pgagent',
	  map({ "GRANT ALL ON ALL $_ IN SCHEMA pgagent TO pgagent" } qw(TABLES SEQUENCES)),
	  q{INSERT INTO pgagent.pga_job (jobjclid, jobname) VALUES (1, 'rollup')},
	  q{INSERT INTO pgagent.pga_jobstep (jstjobid, jstname, jstkind, jstdbname, jstcode) SELECT jobid, jobname, 's', 'postgres', '' FROM pgagent.pga_job},
	  block_here($node, 'pgagent');
	$command{"$name pgagent"} = [ 'pgagent', '-f', '-t', '1', '-l', '1', 'host=127.0.0.1 port=' . $node->port . ' user=pgagent dbname=postgres' ];
}
my @runners = sort map { s/^pg1 //r } grep { /^pg1 / } keys %command;

# ---- a supervisor --------------------------------------------------------------------------

my (%process, %started);

# Starts again what has ended.  pgAgent knows the minutes of its schedules; here its job is
# always due.
sub supervise
{
	for my $name (grep { !$process{$_} || !$process{$_}->alive } sort keys %command)
	{
		next if $started{$name} && now() < $started{$name} + 2;
		$started{$name} = now();
		my ($server, $runner) = split / /, $name;
		$process{$name} = EtcdLeader::Util::Process->spawn(
			name => $name, cmd => $command{$name},
			env  => { NODE_PATH => $modules, PGAPPNAME => $runner },
			log  => "$PostgreSQL::Test::Utils::log_path/101_" . ($name =~ tr/ /_/r) . '.log');
	}
	$_->try_value('UPDATE pgagent.pga_job SET jobnextrun = now() WHERE jobnextrun > now() OR jobnextrun IS NULL') for $has_pgagent ? values %node : ();
	return;
}

# How many jobs of each runner ran on this server.
sub ran
{
	my ($node) = @_;
	my %ran = map { $_ => 0 } @runners;
	# pg-boss has a name of its own
	$ran{ $_->{name} } = $_->{jobs} for $node->rows(q{SELECT replace(runner, 'pgboss', 'pg_boss') AS name, count(*) AS jobs FROM ran GROUP BY 1});
	return \%ran;
}

# Waits until each runner has run two more jobs on this server.
sub wait_for_jobs
{
	my ($node, $what, @which) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($before, @missing) = ran($node);
	poll(100, sub {
		supervise();
		my $ran = ran($node);
		@missing = grep { $ran->{$_} < $before->{$_} + 2 } @which;
		return !@missing;
	});
	is("@missing", '', $what);
	return;
}

# The jobs of all runners run here, and no job runs on the other server.
sub only_here
{
	my ($leader, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($other) = grep { $_ != $leader } values %node;
	poll(30, sub { supervise(); $leader->try_value('SELECT etcd_is_leader()') }) or die $leader->name . ' does not lead';
	wait_for_jobs($leader, "$what: all runners run on the leader", @runners);
	my $before = ran($other);
	wait_for_jobs($leader, "$what: they go on there", @runners);
	is_deeply(ran($other), $before, "$what: no job runs on the other server");
	return;
}

sub leader { my ($leader) = grep { $_->try_value('SELECT etcd_is_leader()') } values %node; return $leader }

# ---- what happens --------------------------------------------------------------------------

my $first = leader();
my ($second) = grep { $_ != $first } values %node;

only_here($first, 'at first');
$first->value('SELECT etcd_resign()');
only_here($second, 'after a hand-over');
$first->wait_until_candidate;
$second->value('SELECT etcd_resign()');
only_here($first, 'after a hand-over back');

my $pid = $first->{_pid};
$first->kill9;
wait_for_exit($pid, 10);
wait_for_jobs($second, 'after SIGKILL of the server: all runners run on the next leader', @runners);
# all processes of the old server must be gone before it can start
poll(20, sub { $first->start(fail_ok => 1) }) or die 'the killed server does not start again';
$first->wait_until_candidate;
only_here($second, 'after the start of the killed server');
$second->value('SELECT etcd_resign()');
only_here($first, 'the server that was killed leads again');

$first->stop;
wait_for_jobs($second, 'after a stop of the server: all runners run on the next leader', @runners);
$first->start;
$first->wait_until_candidate;
$_->stop('KILL') for map { $process{"pg1 $_"}, $process{"pg2 $_"} } @runners;
only_here($second, 'after SIGKILL of the runners');

# In the order of the tokens, the jobs of a token are all on one server, and later than all jobs before.
{
	my @rows = map { my $name = $_; map { { %$_, node => $name } } $node{$name}->rows(q{SELECT token, extract(epoch FROM min(at)) AS first, extract(epoch FROM max(at)) AS last, count(*) FROM ran GROUP BY 1}) } sort keys %node;
	is(scalar(grep { !defined $_->{token} } @rows), 0, 'each job ran under a token');
	@rows = sort { $a->{token} <=> $b->{token} } @rows;
	cmp_ok(scalar @rows, '>=', 5, 'jobs ran under the tokens of five leaders');
	my @wrong = grep { $rows[ $_ - 1 ]{token} == $rows[$_]{token} || $rows[ $_ - 1 ]{last} >= $rows[$_]{first} } 1 .. $#rows;
	is(scalar(@wrong), 0, 'no two servers ran jobs at the same time') or diag(map { join(' ', map { $_ // 'NULL' } @$_{qw(node token first last count)}) . "\n" } @rows);
	note(map { "$_->{node}: $_->{count} jobs under token $_->{token}\n" } @rows);
}

# The gate matters: without the setting of the role, the runner that has no other gate runs everywhere.
{
	my $before = ran($first);
	$first->value($_) for 'ALTER ROLE jobs RESET etcd_leader.require_leadership_of', q{SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'jobs'};
	wait_for_jobs($first, 'without the setting: pg-boss runs where the instance does not lead', 'pg_boss');
	wait_for_jobs($second, 'meanwhile all runners run on the leader', @runners);
	my $after = ran($first);
	is_deeply([ grep { $after->{$_} > $before->{$_} } @runners ], ['pg_boss'], 'the runners that ask for the leadership do not');
}
$_->stop('KILL') for values %process;
done_testing();
