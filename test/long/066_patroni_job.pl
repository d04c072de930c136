# A job each second on every member, gated by the followed election, over
# switchovers and over Patronis that are killed while their servers live on: no
# second has two runs.  Seconds without a run are counted.
#
# pg_cron starts jobs where the server is not in recovery; pg_cron 1.4 does so at
# full minutes only, so a process beside each server stands for it here.  What
# it notes outlives what a server has to rewind.
#
# ETCD_LEADER_ROUNDS: how many switchovers (2); after every other one Patroni is
# killed.
use strict;
use warnings;

use EtcdLeader::Etcd;
use EtcdLeader::Patroni;
use EtcdLeader::Util;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes ();

my $rounds = $ENV{ETCD_LEADER_ROUNDS} // 2;
watchdog(200 + 120 * $rounds);

my $etcd    = EtcdLeader::Etcd->new;
my $cluster = EtcdLeader::Patroni->new(etcd => $etcd);
$cluster->primary->wait_until_leader;
$cluster->primary->value('CREATE TABLE tick (second bigint, node text)');
poll(30, sub { !grep { !defined $_->try_value("SELECT to_regclass('tick')") } $cluster->members }) or die 'no table';

# Writes "second" for each run that did something, and "second -" for each that
# the gate held back although the server is not in recovery.
sub run_job
{
	my ($member) = @_;
	my $dbh;
	while (1)
	{
		my $second = int(Time::HiRes::time()) + 1;
		pause($second - Time::HiRes::time());
		eval {
			$dbh //= $member->connect_db;
			my ($recovers) = $dbh->selectrow_array('SELECT pg_is_in_recovery()::int');
			if (!$recovers)
			{
				my $rows = $dbh->do('INSERT INTO tick SELECT ?, ? WHERE etcd_is_leader()', undef, $second, $member->name);
				syswrite(STDOUT, $rows > 0 ? "$second\n" : "$second -\n");
			}
			1;
		} or $dbh = undef;
	}
}

my %job = map { my $member = $_; $member->name => EtcdLeader::Util::Process->spawn(
		name => 'job of ' . $member->name,
		log  => "$PostgreSQL::Test::Utils::tmp_check/job_" . $member->name,
		code => sub { run_job($member) }) } $cluster->members;
my $began = int(Time::HiRes::time()) + 2;

for my $round (1 .. $rounds)
{
	my $old = $cluster->wait_for_primary;
	my ($next) = $cluster->others($old);
	$old->wait_until_leader;
	pause(2);
	$cluster->switchover($next);
	$cluster->wait_for_primary($next)->wait_until_leader;
	$cluster->wait_until_streaming;
	next if $round % 2;
	pause(2);
	# two primaries
	$next->kill_patroni;
	my $new = $cluster->wait_for_primary(undef, [$next]);
	$new->wait_until_leader;
	pause(3);
	is($next->value('SELECT pg_is_in_recovery()::int'), 0, 'Patroni killed: there are two primaries');
	$next->start_patroni;
	poll(60, sub { ($next->try_value('SELECT pg_is_in_recovery()::int') // 0) == 1 }) or die 'the old one is not demoted';
	$cluster->wait_until_streaming;
}
pause(2);
my $ended = int(Time::HiRes::time()) - 1;
$_->stop for values %job;

my (%runs, $held_back);
for my $name (sort keys %job)
{
	for my $line (split /\n/, $job{$name}->output)
	{
		if   ($line =~ /^(\d+)$/) { push @{ $runs{$1} }, $name }
		else                      { $held_back++ }
	}
}
is(join(', ', map { "$_: @{ $runs{$_} }" } grep { @{ $runs{$_} } > 1 } sort keys %runs), '', 'no second has two runs');
my $without = grep { !$runs{$_} } $began .. $ended;
my $seconds = $ended - $began + 1;
cmp_ok(scalar(keys %runs), '>', $seconds / 4, 'the job has run');
ok($held_back, 'and was held back on a primary that does not lead') if $rounds > 1;
note(sprintf '%d switchovers, %d Patronis killed: of %d seconds %d without a run; %d runs held back', $rounds, int($rounds / 2), $seconds, $without, $held_back // 0);
diag(sprintf '%d of %d seconds without a run', $without, $seconds) if $ENV{ETCD_LEADER_ROUNDS};

done_testing();
