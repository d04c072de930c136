# etcd_leader.require_leadership_of in postgresql.conf of servers that do not
# lead, and pg_cron: its launcher and its background workers are not caught,
# but a job whose role has the setting is fenced.  Jobs that pg_cron runs over
# a connection are clients.  pg_cron 1.4 starts jobs at full minutes: this test takes
# one minute.
use EtcdLeader::Test;

my $guc  = 'etcd_leader.require_leadership_of';
my $etcd = EtcdLeader::Etcd->new;

# by name: background workers or connections; does it lead
my %mode = (
	worker     => [ 'on',  0 ],
	connection => [ 'off', 0 ],
	leader     => [ 'on',  1 ]);
my %node;
for my $name (sort keys %mode)
{
	my ($workers, $leads) = @{ $mode{$name} };
	my $node = $node{$name} = EtcdLeader::Instance->create(
		$name,
		etcd     => $etcd,
		preload  => 'pg_cron, etcd_leader',
		# where the jobs are in background workers, it does not matter that sessions are read-only
		settings => { ttl => 20, candidate => $leads ? 'primary' : 'never', $name eq 'worker' ? (read_only_unless_leader_of => 'postgres') : () },
		conf     => "max_worker_processes = 20\ncron.use_background_workers = $workers\ncron.database_name = 'postgres'\n");
	$node->append_conf('postgresql.conf', "cron.host = '" . $node->host . "'\n");
	$node->restart;
	$node->wait_until_leader if $leads;
	$node->dbh->do("SET $guc = ''");
	$node->value($_)
	  for 'CREATE EXTENSION pg_cron', 'CREATE TABLE report (made_by text)', 'CREATE ROLE free LOGIN', 'CREATE ROLE fenced LOGIN',
	  'GRANT ALL ON report TO PUBLIC', "ALTER ROLE fenced SET $guc = 'postgres'";
	for my $role ('free', 'fenced')
	{
		$node->value(q{SELECT cron.schedule_in_database(?, '* * * * *', ?, 'postgres', ?)},
			$role, q{INSERT INTO report VALUES (current_user)}, $role);
		$node->value(q{SELECT cron.schedule_in_database(?, '* * * * *', ?, 'postgres', ?)},
			"$role reads", q{SELECT count(*) FROM report}, $role);
	}
	$node->append_conf('postgresql.conf', "$guc = 'postgres'\n");
	$node->reload;
	poll_is(5, sub { $node->connect_db->selectrow_array("SHOW $guc") }, 'postgres', "$name: in postgresql.conf");
}

# How the jobs of a role have ended: "status: message", by pg_cron's own notes,
# which its launcher writes.
sub runs
{
	my ($node, $job) = @_;
	return join ', ', map { "$_->{status}: " . ($_->{return_message} // '') } $node->rows(
		q{SELECT DISTINCT status, return_message FROM cron.job_run_details JOIN cron.job USING (jobid)
		  WHERE jobname = ? AND status IN ('succeeded', 'failed')}, $job);
}

sub writers { return $_[0]->value(q{SELECT string_agg(DISTINCT made_by, ' ' ORDER BY made_by) FROM report}) // 'nobody' }

for my $name (sort keys %mode)
{
	for my $job ('free', 'free reads', 'fenced', 'fenced reads')
	{
		poll_ok(90, sub { length runs($node{$name}, $job) }, "$name: the launcher notes how the job of '$job' has ended")
		  or die 'pg_cron does not work';
	}
	like(runs($node{$name}, "$_ reads"), qr/^succeeded: /, "$name: $_ may read") for 'free', 'fenced';
}
my $refused = qr/^failed: .*lead election "postgres"/;
like(runs($node{leader}, $_), qr/^succeeded: INSERT 0 1/, "leader: the job of $_ has written") for 'free', 'fenced';
like(runs($node{worker}, 'free'), qr/^succeeded: INSERT 0 1/, 'worker: the job of a role without the setting has written');
like(runs($node{worker}, 'fenced'), $refused, 'worker: that of a role that has it has not');
like(runs($node{connection}, $_), $refused, "connection: the job of $_ has not") for 'free', 'fenced';
is(writers($node{leader}), 'fenced free', 'leader: what is there');
is(writers($node{worker}), 'free', 'worker: what is there');
is(writers($node{connection}), 'nobody', 'connection: what is there');

done_testing();
