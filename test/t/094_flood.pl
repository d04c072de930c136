# A flood of changes: NOTIFY tells of it ten times a second at most, in each
# database, and of the last change always; a session that listens and stays in a
# transaction does not fill the queue; events of elections are told at once and
# in the order of the numbers; readers miss nothing, or see a gap.
#
# ETCD_LEADER_FLOOD: how many changes (20,000).
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use EtcdLeader::Etcd;
use EtcdLeader::Instance;
use EtcdLeader::Session;
use EtcdLeader::Util;
use Test::More;

my $changes = $ENV{ETCD_LEADER_FLOOD} // 20_000;
watchdog(180 + $changes / 200);
my $etcd = EtcdLeader::Etcd->new;
my $pg   = EtcdLeader::Instance->create('pg1', etcd => $etcd, settings => { ttl => 30, watched_prefixes => 'flags/' });
$pg->wait_until_leader;
$pg->value('CREATE DATABASE app');
$pg->set_and_reload(databases => 'postgres, app');
my @databases = qw(postgres app);
for my $dbname (@databases)
{
	poll(30, sub { $pg->notifier_pid($dbname) }) or die "no notifier in $dbname";
}
my %listeners = map { ($_ => $pg->listen($_)) } @databases;

# Sends `n` puts, 100 in a transaction.
sub flood
{
	my ($n) = @_;
	for my $batch (1 .. $n / 100)
	{
		$etcd->post('/v3/kv/txn', { success => [
			map { { request_put => { key => EtcdLeader::Etcd::b64("flags/$_"), value => EtcdLeader::Etcd::b64("$batch" . 'x' x 100) } } } 1 .. 100 ] }) or die;
	}
	return;
}

# The notifications after that event.
sub told { my ($listener, $mark) = @_; return grep { $_->{seq} > $mark } $listener->notifications }

# ---- a change after a quiet time is told at once -------------------------------

my @delays;
for my $n (1 .. 11)
{
	pause(0.15);
	my $mark = $pg->last_event;
	$etcd->etcdctl('put', 'flags/single', $n);
	my $told = $listeners{postgres}->wait_for(sub { $_[0]->{seq} > $mark });
	my $at = $pg->value('SELECT extract(epoch FROM at) FROM etcd_leader_events(?)', $mark);
	push @delays, 1000 * $pg->value(q{SELECT extract(epoch FROM ?::timestamptz)}, $told->{at}) - 1000 * $at;
	push @delays, 1000 * ($told->{arrived} - ($pg->value('SELECT extract(epoch FROM clock_timestamp())') - $at)) if 0;
}
