# An immediate stop while etcd_candidates() is under way: the answer arrives
# while the elector revokes its lease.  It wakes nobody: the wake-up takes the
# lock of a condition variable, which a process may have died with by then.
# The session that waits is frozen, so that it lives on, and the wake-up, which
# is a signal, stays pending.  This shows that the elector sends no wake-up.
use EtcdLeader::Test;
use Config;
use EtcdLeader::Relay;
use EtcdLeader::Session;

my $etcd  = EtcdLeader::Etcd->new;
my $relay = EtcdLeader::Relay->new($etcd->url(0));
my $node  = EtcdLeader::Instance->create('pg1', endpoints => $relay->url, settings => { ttl => 20, request_timeout => 10000 });
$node->wait_until_leader;

my %number;
@number{ split / /, $Config{sig_name} } = split / /, $Config{sig_num};

# Has a frozen process been sent that signal?
sub is_pending
{
	my ($pid, $signal) = @_;
	my ($mask) = slurp_file("/proc/$pid/status") =~ /^ShdPnd:\s*([0-9a-f]+)$/m;
	return hex($mask) >> ($number{$signal} - 1) & 1;
}

# A session that waits for etcd, which does not answer, and is frozen.
sub wait_frozen
{
	my $dbh = $node->connect_db;
	$relay->freeze;
	start_statement($dbh, 'SELECT * FROM etcd_candidates()');
	waits_in($node, $dbh, qr/^Extension/);
	kill 'STOP', $dbh->{pg_pid};
	# a busy machine takes its time
	poll(10, sub { slurp_file("/proc/$dbh->{pg_pid}/status") =~ /^State:\s*T/m }) or die 'the session does not freeze';
	return $dbh;
}

# in ordinary life it is woken
{
	my $dbh = wait_frozen();
	ok(!is_pending($dbh->{pg_pid}, 'URG'), 'nobody wakes a session while etcd does not answer');
	$relay->thaw;
	poll_ok(10, sub { is_pending($dbh->{pg_pid}, 'URG') }, 'the answer does');
	kill 'CONT', $dbh->{pg_pid};
	is(outcome($dbh), 'done', 'which it gets');
}

# in an immediate stop it is not
{
	my $dbh     = wait_frozen();
	my $pid     = $dbh->{pg_pid};
	my $elector = $node->elector_pid;
	my ($lease) = $etcd->leases;
	my $stop = EtcdLeader::Util::Process->spawn(
		log => $PostgreSQL::Test::Utils::log_path . '/039_stop.log',
		cmd => [ 'pg_ctl', '-D', $node->data_dir, '-m', 'immediate', '-w', 'stop' ]);
	poll(3, sub { is_pending($pid, 'QUIT') }) or die 'no immediate stop';
	ok(kill(0, $elector), 'the elector waits for etcd');
	$relay->thaw;
	poll_is(3, sub { scalar(grep { $_ eq $lease } $etcd->leases) }, 0, 'etcd answers, and the lease is revoked');
	ok(wait_for_exit($elector, 3), 'the elector has ended');
	ok(!is_pending($pid, 'URG'), 'the answer has woken nobody');
	$dbh->{InactiveDestroy} = 1;
	kill 'KILL', $pid;
	ok($stop->wait(10), 'the server has stopped');
	$node->_update_pid(0);
}

done_testing();
