# The recipe of doc/operations.md for a job that is done once for each period: its
# table, its procedure and its schedule, as they stand there.  A period in which nobody
# led, or whose leader was lost at work, is done by the next leader; no period is done twice.
# pg_cron 1.4 starts jobs at full minutes: this test takes one minute.
use EtcdLeader::Test;
use EtcdLeader::Documents;
use EtcdLeader::Session;

my ($table, $procedure, $schedule) = map { document_block('doc/operations.md', $_) } qw(table procedure schedule);

my $etcd = EtcdLeader::Etcd->new;
my $pg1  = EtcdLeader::Instance->create('pg1', etcd => $etcd, extension => 'README', settings => { elections => 'shop', ttl => 2 }, init => { allows_streaming => 1 },
	preload => 'etcd_leader, pg_cron', conf => "max_worker_processes = 20\ncron.use_background_workers = on\ncron.database_name = 'postgres'\n");
$pg1->wait_until_leader('shop');
$pg1->value('CREATE EXTENSION pg_cron');
# an ordinary role
$pg1->value($_) for 'CREATE ROLE app LOGIN', 'GRANT CREATE ON SCHEMA public TO app', 'GRANT USAGE ON SCHEMA cron TO app';
my $app = $pg1->connect_db('postgres', user => 'app');
$app->do('CREATE TABLE sales (at timestamptz, amount numeric)');
$app->do('CREATE TABLE rollup (period timestamptz, amount numeric)');
$app->do($_) for split /(?<=;)(?:    --.*)?\n(?=INSERT)/, $table;
$app->do($procedure);
is($pg1->value('SELECT count(*) FROM period_done WHERE period + interval $$1 hour$$ = date_trunc($$hour$$, now())'), 1, 'the hour before is taken for done');
my $pg2 = EtcdLeader::Instance->create_standby('pg2', $pg1);

# As if the job had run last $hours hours ago; one sale in each hour since.
sub forget
{
	my ($node, $hours) = @_;
	$node->value($_) for 'TRUNCATE rollup, sales', 'DELETE FROM period_done',
	  "INSERT INTO period_done VALUES ('rollup', date_trunc('hour', now()) - interval '1 hour' * ($hours + 1), 0)",
	  "INSERT INTO sales SELECT date_trunc('hour', now()) - interval '1 hour' * i + interval '1 minute', i FROM generate_series(1, $hours) AS i";
	return;
}
# The periods that are done: their amounts, which all differ; and the tokens.
sub done { my ($node) = @_; return $node->value(q{SELECT coalesce(string_agg(amount::text, ' ' ORDER BY period), '') FROM rollup}) }
sub tokens { my ($node) = @_; return $node->value(q{SELECT coalesce(string_agg(DISTINCT token::text, ' '), '') FROM period_done WHERE token > 0}) }
sub call { my ($node) = @_; return $node->connect_db('postgres', user => 'app')->do('CALL do_periods()') }

# at the turn of an hour, one more period is due
sub within_an_hour { pause(1) while (time + 60) % 3600 < 60; return }
within_an_hour();

forget($pg1, 0);
call($pg1);
is(done($pg1), '', 'the current hour is not due');
forget($pg1, 3);
call($pg1);
is(done($pg1), '3 2 1', 'all periods that were missed are done, each of them once');
is(tokens($pg1), $pg1->token, 'under the token of the leader');
call($pg1);
is(done($pg1), '3 2 1', 'and not again');

# two at once
forget($pg1, 2);
my $slow = $pg1->connect_db('postgres', user => 'app');
$slow->do('BEGIN');
$slow->do(q{INSERT INTO period_done VALUES ('rollup', date_trunc('hour', now()) - interval '2 hours', etcd_require_leader())});
$slow->do(q{INSERT INTO rollup VALUES (date_trunc('hour', now()) - interval '2 hours', 2)});
my $second = $pg1->connect_db;
my $calling = EtcdLeader::Util::Process->spawn(name => 'second', log => "$PostgreSQL::Test::Utils::log_path/094_second.log",
	cmd => [ 'psql', '-XqAt', '-v', 'VERBOSITY=sqlstate', '-d', $pg1->connstr('postgres') . ' user=app', '-c', 'CALL do_periods()' ]);
poll_ok(10, sub { $pg1->value(q{SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%do_periods%'}) }, 'a second session waits');
$slow->do('COMMIT');
$calling->wait(10);
like($calling->output, qr/23505/, 'and fails');
call($pg1);
is(done($pg1), '2 1', 'each period is done once');

# nobody leads when it is due
forget($pg1, 2);
$pg1->value('SELECT etcd_resign(rejoin => false)');
call($pg1);
is(done($pg1), '', 'nothing is done while nobody leads');
$pg1->value('SELECT etcd_campaign()');
$pg1->wait_until_leader('shop');
call($pg1);
is(done($pg1), '2 1', 'the next leader does what was missed');

# leadership is lost at work: the row and the work are not there
forget($pg1, 1);
{
	my $worker = $pg1->connect_db('postgres', user => 'app');
	$worker->do('BEGIN');
	$worker->do(q{INSERT INTO period_done VALUES ('rollup', date_trunc('hour', now()) - interval '1 hour', etcd_require_leader())});
	$worker->do('INSERT INTO rollup VALUES (now(), 99)');
	$pg1->value('SELECT etcd_resign()');
	fails($worker, 'COMMIT', '25006', qr/lead/, 'a leader that was deposed at work cannot commit');
	$pg1->wait_until_leader('shop');
	is(done($pg1), '', 'and nothing of it is there');
}

# the server is lost before it is done; the standby is promoted, and catches up
forget($pg1, 3);
$app->do($schedule);
$app->disconnect;
$pg1->value('SELECT cron.alter_job(jobid, active => false) FROM cron.job');
my $token = $pg1->token;
$pg1->wait_for_catchup($pg2);
$pg1->stop('immediate');
$pg2->promote;
$pg2->wait_until_leader('shop');
$pg2->value('SELECT cron.alter_job(jobid, active => true) FROM cron.job');
poll_is(90, sub { done($pg2) }, '3 2 1', 'a standby that was promoted does what was missed, by its schedule');
is(tokens($pg2), $pg2->token, 'under its own token');
cmp_ok($pg2->token, '>', $token, 'which is greater');

done_testing();
