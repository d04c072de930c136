# What a new user meets first: CREATE EXTENSION works in a server that has not
# preloaded the library, and a server without an election in its settings starts; the
# functions name the remedy.
use EtcdLeader::Test;

my $node = EtcdLeader::Instance->create('plain', preload => '');
is($node->value(q{SELECT count(*) FROM pg_extension WHERE extname = 'etcd_leader'}), 1, 'CREATE EXTENSION works');

# Every function of the extension, with NULL for each argument without a default.
my @functions = $node->rows(q{
	SELECT p.proname, p.prokind, p.oid::regprocedure::text AS signature, pg_get_function_arguments(p.oid) AS arguments, p.pronargs - p.pronargdefaults AS required
	FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
	JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid
	WHERE e.extname = 'etcd_leader' ORDER BY p.proname});
my %names = map { $_->{proname} => 1 } @functions;
is(join(' ', grep { !$names{$_} } qw(etcd_is_leader etcd_current_leader etcd_fencing_token etcd_wait_for_leadership
	etcd_wait_for_event etcd_await_leadership etcd_await_event etcd_resign etcd_campaign etcd_proclaim etcd_candidates etcd_leader_events)), '', 'all functions are there');

# The statement that calls it, with that value for each argument that is
# needed, and more arguments.
sub call_of
{
	my ($function, $needed, @more) = @_;
	my $is_procedure = $function->{prokind} eq 'p';
	my @arguments = (($is_procedure ? 'NULL' : $needed) x $function->{required}, @more);
	return ($is_procedure ? 'CALL' : 'SELECT * FROM') . " $function->{proname}(" . join(', ', @arguments) . ')';
}
my $own = qr/^etcd_/;
for my $function (grep { $_->{proname} =~ $own } @functions)
{
	my ($state, $message) = $node->failure(call_of($function, "'x'"));
	is($state, '55000', "$function->{signature}: ERROR 55000");
	like($message, qr/HINT:.*shared_preload_libraries/s, "$function->{signature}: the hint says what to do");
}
for my $view (qw(etcd_leader_status etcd_leader_endpoints etcd_leader_stats etcd_leader_hooks etcd_leader_hooks_file))
{
	my ($state, $message) = $node->failure("SELECT * FROM $view");
	is($state, '55000', "$view: ERROR 55000");
	like($message, qr/HINT:.*shared_preload_libraries/s, "$view: the hint says what to do");
}
is($node->value('SELECT 1'), 1, 'the server goes on');
is($node->elector_pid, undef, 'there is no elector');

# It can be dropped, and moved to another schema.
$node->value('CREATE SCHEMA elsewhere');
$node->value('ALTER EXTENSION etcd_leader SET SCHEMA elsewhere');
is(($node->failure('SELECT elsewhere.etcd_is_leader()'))[0], '55000', 'it is relocatable');
is(($node->failure('SELECT * FROM elsewhere.etcd_leader_status'))[0], '55000', 'its views as well');
$node->value('DROP EXTENSION etcd_leader');
$node->value('CREATE EXTENSION etcd_leader SCHEMA elsewhere');

# It lets anything be set that a server with the library would refuse.
my %misfit = (long => 'e' x 128, control => "shop\x01");
$node->value($_) for 'CREATE TABLE ledger (i int)', 'GRANT INSERT ON ledger TO PUBLIC';
for my $name (sort keys %misfit)
{
	$node->value($_)
	  for "CREATE ROLE $name LOGIN", "ALTER ROLE $name SET etcd_leader.require_leadership_of = " . $node->dbh->quote($misfit{$name}),
	  "CREATE DATABASE $name", "ALTER DATABASE $name SET etcd_leader.require_leadership_of = " . $node->dbh->quote($misfit{$name});
}

# Preloaded at the next start, it runs, but takes part in no election until its
# settings name one.
my $etcd = EtcdLeader::Etcd->new;
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'etcd_leader'\netcd_leader.endpoints = '" . $etcd->endpoints . "'\n"
	  . "etcd_leader.ttl = 2\n");
my $warning = qr/WARNING:  "etcd_leader\.elections" is not set, so this instance takes part in no election\n.*HINT:  Set "etcd_leader\.elections" to the name of the cluster/;
my $offset  = $node->log_size;
$node->restart;
poll_ok(10, sub { $node->elector_pid }, 'no election: an elector runs');
poll_ok(10, sub { slurp_file($node->logfile, $offset) =~ $warning }, 'no election: the log says what to set');
is($node->value('SELECT item FROM elsewhere.etcd_leader_problems'), 'elections', 'no election: a problem');
is($node->value('SELECT count(*) FROM elsewhere.etcd_leader_status'), 0, 'no election: the status has no row');
is($node->value('SELECT count(*) FROM elsewhere.etcd_leader_stats'), 1, 'no election: there are statistics');
is($node->value(q{SELECT module_name || ' ' || version FROM pg_get_loaded_modules() WHERE file_name LIKE 'etcd_leader%'}),
	'etcd_leader ' . $node->value(q{SELECT extversion FROM pg_extension WHERE extname = 'etcd_leader'}), 'the library tells its name and version')
  if $node->pg_version >= 18;
my @of_an_election = grep { $_->{arguments} =~ /(?<!OUT )\belection text/ } @functions;
cmp_ok(scalar @of_an_election, '>=', 8, 'no election: functions have an argument for one');
for my $function (@of_an_election)
{
	my $needed = "'1 s'";
	my $call = sub { call_of({ %$function, proname => "elsewhere.$function->{proname}" }, $needed, @_) };
	my ($state, $message) = $node->failure($call->());
	is($state, '55000', "no election: $function->{signature}: ERROR 55000");
	like($message, qr/HINT:  Set "etcd_leader\.elections" to the name of the cluster/, "no election: $function->{signature}: the hint says what to set");
	is(($node->failure($call->(q{election => 'shop'})))[0], '42704', "no election: $function->{signature}: 42704 with a name");
}
is($node->value('SELECT count(*) FROM elsewhere.etcd_leader_events() WHERE election IS NOT NULL'), 0, 'no election: there are no events of one');
{
	my $requests = $node->value('SELECT requests FROM elsewhere.etcd_leader_stats');
	my $cpu    = cpu_seconds($node->elector_pid);
	$offset = $node->log_size;
	pause(3);
	cmp_ok($node->value('SELECT requests FROM elsewhere.etcd_leader_stats') - $requests, '<=', 12, 'no election: etcd is left in peace');
	cmp_ok(cpu_seconds($node->elector_pid) - $cpu, '<=', 0.05, 'no election: the elector does not spin');
	unlike(slurp_file($node->logfile, $offset), qr/etcd_leader elector/, 'no election: the elector logs nothing');
}
is(scalar(my @none = $etcd->leases), 0, 'no election: it has no lease');

# A reload is enough to enter one, and to leave the last one.
$node->configure(elections => 'shop');
poll_ok(10, sub { $node->try_value('SELECT elsewhere.etcd_is_leader()') }, 'an election by a reload: it leads');
is($node->value('SELECT election FROM elsewhere.etcd_leader_status'), 'shop', 'an election by a reload: the status');

# A setting from before the library was there to check it fences all the same: the
# instance leads no election of that name.
for my $name (sort keys %misfit)
{
	for my $session ($node->connect_db('postgres', user => $name), $node->connect_db($name))
	{
		my $what = "$name: " . $session->selectrow_array(q{SELECT current_user || ' in ' || current_database()});
		is($session->selectrow_array('SELECT 1'), 1, "$what may read");
		my ($state, $message) = $node->failure($session->selectrow_array('SELECT current_database()') eq 'postgres' ?
			  'INSERT INTO ledger VALUES (1)' : 'CREATE TABLE ledger (i int)', $session);
		is($state, '42704', "$what may not write");
		like($message, qr/^ERROR:  election ".*" does not exist\nDETAIL:  It is required by "etcd_leader\.require_leadership_of"\./, "$what: the error says why");
	}
}
is($node->value('SELECT count(*) FROM ledger'), 0, 'nothing was written');
is(($node->failure("ALTER ROLE $_ SET etcd_leader.require_leadership_of = " . $node->dbh->quote($misfit{$_})))[0], '22023', "$_: it could not be set now")
  for sort keys %misfit;

$offset = $node->log_size;
$node->configure(elections => '');
poll_is(10, sub { scalar(my @keys = $etcd->candidates('shop')) }, 0, 'the last election is dropped: the key is gone');
poll_is(10, sub { ($node->failure('SELECT elsewhere.etcd_is_leader()'))[0] }, '55000', 'the last election is dropped: no default is left');
poll_ok(10, sub { slurp_file($node->logfile, $offset) =~ $warning }, 'the last election is dropped: the log says what to set');

# No worker slot is left for the elector: the status, the log and the functions
# name the setting.  (The server's own launcher takes the only one.)
for my $slots (0, 1)
{
	$node->append_conf('postgresql.conf', "etcd_leader.elections = 'shop'\nmax_worker_processes = $slots\n") ;
	$node->configure(elections => undef) if $slots == 0;
	$offset = $node->log_size;
	$node->restart;
	my $status = $node->row('SELECT *, last_error_at = pg_postmaster_start_time() AS at_start FROM elsewhere.etcd_leader_status');
	is($status->{state}, 'elector_not_running', "max_worker_processes = $slots: the state");
	like($status->{last_error}, qr/"max_worker_processes" is too small/, "max_worker_processes = $slots: last_error names the setting");
	is($status->{at_start}, 1, "max_worker_processes = $slots: and when it was");
	like(slurp_file($node->logfile, $offset), qr/WARNING:  could not register the elector of etcd_leader\n.*HINT:  Increase "max_worker_processes"/s, "max_worker_processes = $slots: so does the log");
	my ($state, $message) = $node->failure('SELECT elsewhere.etcd_campaign()');
	is($state, '55000', "max_worker_processes = $slots: a command is an error");
	like($message, qr/elector of etcd_leader is not running.*HINT:  Increase "max_worker_processes"/s, "max_worker_processes = $slots: that names the setting");
	is($node->value('SELECT elsewhere.etcd_is_leader()'), 0, "max_worker_processes = $slots: it does not lead");
}
$node->append_conf('postgresql.conf', "max_worker_processes = 2\n");
$node->restart;
poll_ok(10, sub { $node->value('SELECT elsewhere.etcd_is_leader()') }, 'max_worker_processes = 2: it leads');
unlike($node->value('SELECT last_error FROM elsewhere.etcd_leader_status') // '', qr/max_worker_processes/, 'max_worker_processes = 2: nothing is said of that');

done_testing();
