# doc/streaming.md as it stands there: its settings and commands make a primary and a
# standby, undo a mistaken promotion, and do a failover, a switchover and the return of an
# old primary.  It prints what the page says.
use EtcdLeader::Test;
use EtcdLeader::Documents;

my $page = 'doc/streaming.md';
my $etcd = EtcdLeader::Etcd->new;
my $dir  = PostgreSQL::Test::Utils::tempdir('streaming');
my $user = getpwuid($<);
my %node;
my $stopped;					# a process that would outlive the test
END { local $?; kill 'KILL', $stopped if $stopped }

# A block for this machine: the servers differ by their ports.  Each has an /etc of its own.
sub block_here
{
	my ($name) = @_;
	my $text  = document_block($page, $name);
	my $hosts = $etcd->endpoints;
	my $ports = sub { join ',', map { $node{$_}->port } split /,/, shift };
	$text =~ s{http://10\.0\.0\.1:2379\S*(?=')}{$hosts};
	$text =~ s{host=(pg\d(?:,pg\d)?)}{'host=' . join(',', map { $node{$_}->host } split /,/, $1) . ' port=' . $ports->($1)}ge;
	$text =~ s{user=postgres}{user=$user}g;
	$text =~ s{/etc/}{$dir/etc/};
	return $text;
}

# The page takes pg2 as the source; a test may need pg1.
sub swapped { my ($text) = @_; my ($port1, $port2) = map { $_->port } @node{qw(pg1 pg2)}; return $text =~ s{port=$port2\b}{port=$port1}gr }

# Runs a script as the server's user on that host.  Returns what it prints; it must succeed.
sub run_on
{
	my ($node, $script, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $conf = $node->data_dir . '/postgresql.conf';
	my $log  = $node->logfile;
	my $output = '';
	# the file of this host is in the place of that of the other one; a server has no terminal
	my $here = "pg_ctl() { if [ \$1 = restart ]; then set -- -l $log restart; fi; if [ \$1 = start ]; then sed -i 's,${dir}[^ ]*/etc/,$dir/" . $node->name . "/etc/,' $conf; set -- -l $log start; fi; command pg_ctl \"\$@\" >>$dir/pg_ctl.log; }\n";
	local @ENV{qw(PGDATA PGHOST PGPORT PGUSER PGDATABASE PSQLRC)} = ($node->data_dir, $node->host, $node->port, $user, 'postgres', '/dev/null');
	my $ok = IPC::Run::run([ 'sh', '-ec', "$here$script" ], '<', \undef, '>', \$output, '2>', "$dir/stderr");
	ok($ok, "$page: $what") or die $output, slurp_file("$dir/stderr");
	$node->_update_pid(-e $node->data_dir . '/postmaster.pid' ? 1 : 0);
	return $output;
}

sub run_block { my ($node, $name) = @_; local $Test::Builder::Level = $Test::Builder::Level + 1; return run_on($node, block_here($name), $name) }
sub run_block_swapped { my ($node, $name) = @_; local $Test::Builder::Level = $Test::Builder::Level + 1; return run_on($node, swapped(block_here($name)), "$name, pg1 and pg2 swapped") }

# What psql prints for a block, or for a query without its head.
sub printed
{
	my ($node, $query, @options) = @_;
	my $output = '';
	IPC::Run::run([ 'psql', '-X', '-P', 'footer=off', @options, '-d', $node->connstr('postgres'), '-c', $query ], '<', \undef, '>', \$output);
	return $output =~ s/ +$//mgr =~ s/\n+\z/\n/r;
}

sub state_is
{
	my ($node, $state, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return poll_is(20, sub { eval { $node->status->{state} } }, $state, $name);
}

# The server shows its state and the problem as the page prints them.
sub shows
{
	my ($node, $name, $problem) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	state_is($node, 'second_primary', "$name: it stays out");
	is(printed($node, document_block($page, 'state')), document_block($page, "$name.out"), "$name: its state, as the page prints it");
	is(printed($node, q{SELECT problem FROM etcd_leader_problems WHERE item = 'second_primary'}, '-At'),
		document_block($page, "$problem.out"), "$name: the problem, as the page prints it");
	return;
}

# Clients come to the leader, in whatever order the hosts are.
my $rows = 0;
sub clients_find
{
	my ($leader, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $block = block_here('route');
	my @ports = map { $_->port } @node{qw(pg2 pg1)};
	for my $route ($block, $block =~ s/port=$ports[0],$ports[1]/port=$ports[1],$ports[0]/r)
	{
		$rows++;
		my $output = '';
		IPC::Run::run([ 'sh', '-c', $route =~ s/\n/ -XAtc 'INSERT INTO t VALUES ($rows)' -c 'SHOW etcd_leader.node_name'/r ], '<', \undef, '&>', \$output);
		is($output, "INSERT 0 1\n" . $leader->name . "\n", "$what: clients write on the leader");
	}
	return;
}

sub streams
{
	my ($standby, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	state_is($standby, 'observing', "$what: the standby observes");
	poll_is(20, sub { $standby->try_value('SELECT count(*) FROM t') }, $rows, "$what: the standby has all rows");
	return;
}

# ---- settings ------------------------------------------------------------------------------

$node{pg2} = EtcdLeader::Instance->new('pg2');
$node{pg1} = EtcdLeader::Instance->create('pg1', preload => 0, start => 0, init => { allows_streaming => 1 });
my ($pg1, $pg2) = @node{qw(pg1 pg2)};
for my $node ($pg1, $pg2)
{
	my $name = $node->name;
	system('mkdir', '-p', "$dir/$name/etc/etcd_leader") == 0 or die;
	append_to_file("$dir/$name/etc/etcd_leader/node.conf",
		document_block($page, 'node') =~ s/pg1/$name/r . 'port = ' . $node->port . "\netcd_leader.ttl = 4\n");
}
$pg1->append_conf('postgresql.conf', block_here('settings'));
run_on($pg1, 'pg_ctl start', 'the primary starts');
$pg1->create_extension('README');
$pg1->wait_until_leader;
$pg1->value($_) for 'CREATE TABLE t (i int)', 'CREATE ROLE app LOGIN', 'GRANT INSERT ON t TO app', document_block($page, 'fence');
run_block($pg2, 'standby');
state_is($pg2, 'observing', 'the standby observes');
poll_is(10, sub { printed($pg2, document_block($page, 'state')) }, document_block($page, 'state.out'), 'the state of the standby, as the page prints it');
clients_find($pg1, 'a primary and a standby');
is(join(' ', map { $_->trouble } $pg1, $pg2), ' ', 'no problem');

# ---- promoted by mistake, and undone -----------------------------------------------------------

run_block($pg2, 'promote');
shows($pg2, 'mistaken', 'mistaken_problem');
is($pg1->trouble, '', 'the leader has no problem');
clients_find($pg1, 'promoted by mistake');
my $app = $pg2->connect_db('postgres', user => 'app');
$app->do('BEGIN READ WRITE');
is(($pg2->failure('INSERT INTO t VALUES (0)', $app))[0], '25006', 'promoted by mistake: a role with the fence cannot write there');
$app->disconnect;
run_block($pg2, 'undo');
streams($pg2, 'undone');

# ---- the primary is restarted in its place -------------------------------------------------------

like(run_block($pg1, 'restart'), qr/\bt\b/, 'restarted: it leads');
ok($pg1->is_leader, 'restarted: as it says');
clients_find($pg1, 'restarted');
streams($pg2, 'restarted');

# ---- a failover, on the timeline of the mistake, and the return of the old primary ----------------

my $token = $pg1->token;
{
	my ($postmaster, $elector) = ($pg1->{_pid}, $pg1->elector_pid);
	$pg1->dbh->disconnect;
	# the host is lost: nobody revokes the lease
	kill('STOP', $stopped = $elector) or die;
	kill('KILL', $postmaster) or die;
	$pg1->{_pid} = undef;
	my $began = now();
	like(run_block($pg2, 'failover'), qr/^ t$/m, 'failover: the promoted standby leads');
	in_time(now() - $began, 4 + 2, 'failover: within a TTL');
	cmp_ok($pg2->token, '>', $token, 'failover: under a greater token');
	kill('KILL', $elector);
	wait_for_exit($elector, 10);
	undef $stopped;
}
clients_find($pg2, 'failover');
run_on($pg1, 'pg_ctl start', 'the old primary comes back');
shows($pg1, 'returned', 'returned_problem');
clients_find($pg2, 'the old primary is back');
run_block($pg1, 'stop');
run_block($pg1, 'rewind');
streams($pg1, 'returned');

# ---- a switchover, to pg1 ----------------------------------------------------------------------

run_on($pg2, 'psql -Xc "' . document_block($page, 'resign') . '"', 'resign');
is($pg2->status->{state}, 'resigned', 'switchover: the primary has resigned');
poll_is(5, sub { $pg1->current_leader }, undef, 'switchover: nobody leads');
run_block($pg2, 'stop');
run_block($pg1, 'promote');
poll_ok(5, sub { $pg1->is_leader }, 'switchover: the promoted standby leads');
run_block_swapped($pg2, 'rewind');
streams($pg2, 'switchover');
clients_find($pg1, 'switchover');
streams($pg2, 'switchover, new rows');

# ---- promoted by mistake, and right --------------------------------------------------------------

run_block($pg2, 'promote');
state_is($pg2, 'second_primary', 'promoted again: it stays out');
run_block($pg1, 'stop_first');
pause(2);
is($pg2->status->{state}, 'second_primary', 'also while the first one is down');
is($pg2->value(document_block($page, 'campaign')), 1, 'etcd_campaign()');
poll_ok(5, sub { $pg2->is_leader }, 'then it leads');
poll_is(5, sub { $pg2->trouble }, '', 'without a problem');
run_on($pg1, 'pg_ctl start', 'the first one starts');
state_is($pg1, 'second_primary', 'and stays out');
run_block($pg1, 'stop');
run_block($pg1, 'rewind');
clients_find($pg2, 'the second one is right');
streams($pg1, 'the second one is right');

done_testing();
