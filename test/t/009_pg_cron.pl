# pg_cron on two instances, with the same job on both, gated by
# etcd_is_leader(): rows come from the leader only, before and after a
# hand-over.  pg_cron 1.4 starts jobs at full minutes: this takes two of them.
use EtcdLeader::Test;
use EtcdLeader::Documents;

my $etcd  = EtcdLeader::Etcd->new;
my @nodes = map {
	EtcdLeader::Instance->create(
		$_,
		etcd    => $etcd,
		extension => 'README',
		settings => { ttl => 10 },
		preload => 'pg_cron, etcd_leader',
		conf    => "max_worker_processes = 20\ncron.use_background_workers = on\ncron.database_name = 'postgres'\n")
} qw(pg1 pg2);
my ($pg1, $pg2) = @nodes;
$_->wait_until_candidate for @nodes;
$pg1->wait_until_leader;

for my $node (@nodes)
{
	$node->value('CREATE EXTENSION pg_cron');
	$node->value('CREATE TABLE report (made_by text, token bigint, made_at timestamptz DEFAULT now())');
	$node->value(q{SELECT cron.schedule('report', '* * * * *', $$
		INSERT INTO report SELECT current_setting('cluster_name'), etcd_fencing_token() WHERE etcd_is_leader() $$)});
}

# How many runs of the job have ended well; their results, as pg_cron notes them.
sub runs { return $_[0]->value(q{SELECT count(*) FROM cron.job_run_details WHERE status = 'succeeded'}) }

sub results
{
	return join ', ', map { $_->{return_message} }
	  $_[0]->rows(q{SELECT return_message FROM cron.job_run_details WHERE status = 'succeeded' ORDER BY runid});
}

sub failed { return $_[0]->value(q{SELECT count(*) FROM cron.job_run_details WHERE status = 'failed'}) }

# the first minute: pg1 leads
poll_ok(90, sub { runs($pg1) >= 1 && runs($pg2) >= 1 }, 'the job has run on both');
my $token1 = $pg1->token;
is($pg1->value('SELECT count(*) FROM report'), runs($pg1), 'a row for each run on the leader');
is($pg1->value('SELECT min(token) = max(token) AND min(token) = ? FROM report', $token1), 1, 'the rows have the token of the leader');
is($pg2->value('SELECT count(*) FROM report'), 0, 'the follower has no rows');
like(results($pg2), qr/^INSERT 0 0(?:, INSERT 0 0)*$/, 'where the job ran, and did nothing');

# The jobs of the documents, of an ordinary role, their commands at once: on the leader only.
my %app;
for my $node (@nodes)
{
	$node->value($_) for 'CREATE ROLE app LOGIN', 'GRANT CREATE ON SCHEMA public TO app', 'GRANT USAGE ON SCHEMA cron TO app';
	my $app = $app{ $node->name } = $node->connect_db('postgres', user => 'app');
	$app->do($_) for 'CREATE TABLE sales (day date, amount numeric)', q{INSERT INTO sales VALUES ('2026-01-01', 2), ('2026-01-01', 3)},
	  'CREATE TABLE rollup (day date, amount numeric)', 'CREATE PROCEDURE rollup() LANGUAGE sql AS $$ INSERT INTO rollup VALUES (NULL, 7) $$';
	for my $block (document_block('README.md', 'gate'), document_block('doc/operations.md', 'gate_procedure'))
	{
		my ($job) = $app->selectrow_array($block);
		$app->do($app->selectrow_array('SELECT command FROM cron.job WHERE jobid = ?', {}, $job));
		$app->do('SELECT cron.unschedule(?::bigint)', {}, $job);
	}
	is($node->value('SELECT coalesce(sum(amount), 0) FROM rollup'), $node == $pg1 ? 12 : 0, 'the documented jobs on ' . $node->name);
}

# hand-over, well before the next minute
my %before = map { $_->name => runs($_) } @nodes;
my $rows   = $pg1->value('SELECT count(*) FROM report');
$pg1->value('SELECT etcd_resign()');
$pg2->wait_until_leader(undef, 5);

# the second minute: pg2 leads
poll_ok(90, sub { runs($pg1) > $before{pg1} && runs($pg2) > $before{pg2} }, 'the job has run on both again');
is($pg1->value('SELECT count(*) FROM report'), $rows, 'the old leader gets no more rows');
is($pg2->value('SELECT count(*) FROM report'), runs($pg2) - $before{pg2}, 'a row for each run on the new one');
is($pg2->value('SELECT min(token) FROM report'), $pg2->token, 'the rows have the new token');
is(failed($_), 0, $_->name . ': no run has failed') for @nodes;

# A job at the start of the server comes before the election is over: the
# document lets it wait.
my $schedule = document_block('doc/operations.md', 'after_a_start');
$pg1->value('SELECT etcd_resign(rejoin => false)');
$app{pg2}->do('CREATE TABLE started (at timestamptz)');
$pg2->value('CREATE TABLE asked (at timestamptz)');
$app{pg2}->do($schedule);
$_->disconnect for values %app;
$pg2->value(q{SELECT cron.schedule('asks', '@reboot', 'INSERT INTO asked SELECT now() WHERE etcd_is_leader()')});
$pg2->value('SELECT etcd_resign(rejoin => false)');
$etcd->stop(0);
$pg2->restart;
poll_ok(10, sub { $pg2->try_value(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_cron' AND query LIKE '%etcd_wait_for_leadership%'}) },
	'a job at the start of the server waits');
$etcd->start(0);
poll_ok(15, sub { $pg2->value('SELECT count(*) FROM started') }, 'the waiting job has run when the server leads');
poll_is(10, sub { $pg2->value(q{SELECT count(*) FROM cron.job_run_details JOIN cron.job USING (jobid) WHERE schedule = '@reboot' AND status = 'succeeded'}) },
	2, 'the job that only asks has succeeded, too');
is($pg2->value('SELECT count(*) FROM asked'), 0, 'the job that only asks ran too early and wrote nothing');

done_testing();
