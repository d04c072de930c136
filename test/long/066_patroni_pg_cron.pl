# A job of pg_cron runs each second on three members.  It is gated by an election that
# follows Patroni, as in doc/patroni.md.  There are switchovers, and Patroni is killed
# while its server lives on.  No second has two rows.  Seconds without a row are
# counted.
#
# pg_cron 1.4 starts jobs at full minutes, and @reboot jobs at the end of recovery.  So
# both start a procedure that runs for ever, unless it runs already.  It asks the gate
# and commits each second.  A row may be lost when a server is rewound, so the
# procedure also writes each row to the server's log, after the commit.
#
# ETCD_LEADER_ROUNDS: the number of switchovers (10); Patroni is killed after every fifth.
use EtcdLeader::Test;
use EtcdLeader::Patroni;

my $rounds = $ENV{ETCD_LEADER_ROUNDS} || 10;
watchdog(200 + 120 * $rounds);

my $etcd    = EtcdLeader::Etcd->new;
my $cluster = EtcdLeader::Patroni->new(
	etcd    => $etcd,
	preload => 'etcd_leader, pg_cron',
	conf    => { 'cron.use_background_workers' => 'on' },
	dcs     => { postgresql => { parameters => { max_worker_processes => 20 } } });
my $first = $cluster->primary;
$first->wait_until_leader;
$first->value($_) for 'CREATE EXTENSION pg_cron', 'CREATE TABLE tick (second bigint, node text, token bigint)', q{
	CREATE PROCEDURE tick_each_second() LANGUAGE plpgsql AS $$
	DECLARE
		at bigint;
		done bigint;
	BEGIN
		IF NOT pg_try_advisory_lock(4711) THEN
			RETURN;
		END IF;
		LOOP
			at := floor(extract(epoch FROM clock_timestamp())) + 1;
			PERFORM pg_sleep(at - extract(epoch FROM clock_timestamp()));
			INSERT INTO tick
				SELECT at, current_setting('etcd_leader.node_name'), etcd_fencing_token()
				WHERE etcd_is_leader();
			GET DIAGNOSTICS done = ROW_COUNT;
			COMMIT;
			RAISE LOG 'tick % %', at, CASE done WHEN 1 THEN 'done' ELSE 'held back' END;
		END LOOP;
	END $$},
  q{SELECT cron.schedule('after a start', '@reboot', 'CALL tick_each_second()')},
  q{SELECT cron.schedule('each minute', '* * * * *', 'CALL tick_each_second()')};
poll(30, sub { (grep { ($_->try_value('SELECT count(*) FROM cron.job') // 0) == 2 } $cluster->members) == 3 }) or die 'no jobs';

# second => [names of members that committed a row]; and the number of runs that the
# gate refused
sub runs
{
	my (%runs, $held_back);
	for my $member ($cluster->members)
	{
		my $log = slurp_file($member->logfile);
		push @{ $runs{$1} }, $member->name while $log =~ /tick (\d+) done$/mg;
		$held_back += () = $log =~ /tick \d+ held back$/mg;
	}
	return (\%runs, $held_back);
}

sub switch_over
{
	my $old = $cluster->wait_for_primary;
	my ($next) = $cluster->others($old);
	$old->wait_until_leader;
	$cluster->switchover($next);
	$cluster->wait_for_primary($next)->wait_until_leader;
	$cluster->wait_until_streaming;
	return $next;
}

# the job begins with the first switchover
switch_over();
poll_ok(20, sub { keys %{ (runs())[0] } }, 'the job runs after a switchover, before the minute is full');
my $began = time;
my $kills = 0;
for my $round (1 .. $rounds)
{
	my $leader = switch_over();
	pause(3);
	next if $round % 5;
	# two primaries
	$kills++;
	$leader->kill_patroni;
	my $new = $cluster->wait_for_primary(undef, [$leader]);
	$new->wait_until_leader;
	pause(3);
	is($leader->value('SELECT pg_is_in_recovery()::int'), 0, "Patroni killed, $kills: there are two primaries");
	$leader->start_patroni;
	poll(60, sub { ($leader->try_value('SELECT pg_is_in_recovery()::int') // 0) == 1 }) or die 'the old one is not demoted';
	$cluster->wait_until_streaming;
}
pause(2);
my $ended = time - 1;

my ($runs, $held_back) = runs();
is(join(', ', map { "$_: @{ $runs->{$_} }" } grep { @{ $runs->{$_} } > 1 } sort keys %$runs), '', 'no second has two rows in the logs');
my $primary = $cluster->primary;
is($primary->value(q{SELECT coalesce(string_agg(second::text, ' '), '') FROM (SELECT second FROM tick GROUP BY second HAVING count(*) > 1) AS s}),
	'', 'no second has two rows in the table');
is($primary->value(q{SELECT count(*) FROM (SELECT token < lag(token) OVER (ORDER BY second) AS back FROM tick) AS t WHERE back}), 0, 'tokens never decrease');
my $seconds = $ended - $began + 1;
my $without = grep { !$runs->{$_} } $began .. $ended;
cmp_ok($seconds - $without, '>', $seconds / 4, 'the job has run');
cmp_ok($held_back, '>', 0, 'the gate has refused runs on a primary that does not lead') if $kills;
diag(sprintf '%d switchovers, %d Patronis killed: of %d seconds %d without a row; %d runs held back', $rounds, $kills, $seconds, $without, $held_back // 0);

done_testing();
