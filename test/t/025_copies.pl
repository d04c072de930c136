# Copies of a data directory, and data directories that are moved.  A copy that is started
# as a primary is no candidate, also when nobody leads, until etcd_campaign() is called on
# it.  A standby queues.  No copy takes up the lease of the original.
use EtcdLeader::Namespace;
use EtcdLeader::Test;
use EtcdLeader::Documents;
use PostgreSQL::Test::RecursiveCopy;

watchdog(240);
EtcdLeader::Namespace::run_as_root('hostname home');

my $ttl  = 5;
my $etcd = EtcdLeader::Etcd->new;

my $original = EtcdLeader::Instance->create('original', etcd => $etcd,
	settings => { ttl => $ttl, node_name => 'pg1', candidate => 'always' }, init => { allows_streaming => 1 });
$original->wait_until_leader;
my $token = $original->token;
my $lease = $original->status->{lease_id};
my $IS_COPY = qr/the data directory of this server is a copy of one of host "home", so this instance is no candidate/;

sub copy_directory
{
	my ($from, $to) = @_;
	PostgreSQL::Test::RecursiveCopy::copypath($from, $to,
		filterfn => sub { my ($path) = @_; return $path ne 'postmaster.pid' && $path ne 'log' });
	chmod 0700, $to or die $!;
	return;
}

# The file copy: of a server that is running, as a snapshot of its disk is.
sub copy_files
{
	my ($name) = @_;
	my $copy = EtcdLeader::Instance->new($name);
	$original->value('CHECKPOINT');
	copy_directory($original->data_dir, $copy->data_dir);
	$copy->append_conf('postgresql.conf', 'port = ' . $copy->port . "\n");
	$copy->_update_pid(0);
	return $copy;
}

sub base_backup
{
	my ($name, %options) = @_;
	my $copy = EtcdLeader::Instance->new($name);
	$original->backup($name);
	$copy->init_from_backup($original, $name, %options);
	return $copy;
}

# ---- copies that are primaries --------------------------------------------------

sub stays_out
{
	my ($copy, $name) = @_;
	poll_ok(20, sub { $copy->trouble =~ $IS_COPY }, "$name: the view says that it is a copy");
	is($copy->status->{state}, 'observing', "$name: it is no candidate");
	is($copy->value(q{SELECT severity FROM etcd_leader_problems WHERE item = 'copy' AND subject IS NULL}), 'error', "$name: an error of the instance");
	return;
}

sub recover
{
	my $copy = base_backup('backup');
	$copy->append_conf('postgresql.conf', "restore_command = 'false'");
	$copy->append_conf('recovery.signal', '');
	return $copy;
}

my ($claimed, $ignored);
for my $kind ('file copy', 'point-in-time recovery')
{
	my $copy = $kind eq 'file copy' ? ($claimed = copy_files('copied')) : ($ignored = recover());
	$copy->start;
	my $sampler = $copy->sample;
	stays_out($copy, $kind);
	is($copy->log_count('LOG:  the data directory of this server is a copy$'), 1, "$kind: the log says it");
	is($copy->log_count('resuming the lease'), 0, "$kind: it does not resume");
	is(scalar(my @keys = $etcd->candidates('postgres')), 1, "$kind: it has no key");
	is($original->token, $token, "$kind: the original leads as before");
	$original->stop;
	pause($ttl + 2);
	stays_out($copy, "$kind, the original is stopped");
	$copy->stop('immediate');
	$copy->start;
	stays_out($copy, "$kind, after a crash");
	$copy->restart;
	stays_out($copy, "$kind, after a restart");
	is_deeply([ grep { $_->{answer} eq 't' } $sampler->stop ], [], "$kind: it never led");
	if ($ignored)
	{
		is($copy->value('SELECT timeline_id FROM pg_control_checkpoint()'), 2, "$kind: it is on a timeline of its own");
		$copy->append_conf('postgresql.conf', document_block('doc/operations.md', 'look'));
		$copy->reload;
		poll_is(5, sub { $copy->trouble }, '', "$kind: with candidate = never, nothing is wrong");
		$copy->stop;
	}
	$original->start;
	$original->wait_until_leader;
	($token, $lease) = ($original->token, $original->status->{lease_id});
}

# ---- a standby --------------------------------------------------------------------

my $standby = base_backup('standby', has_streaming => 1);
my $from_log = $original->log_size;
$standby->start;
poll_ok(20, sub { ($standby->status->{state} // '') eq 'waiting' }, 'standby: it queues');
isnt($standby->status->{lease_id}, $lease, 'standby: on a lease of its own');
is($standby->log_count('resuming the lease'), 0, 'standby: it does not resume');
for my $node ($original, $standby)
{
	my $who = $node == $original ? 'the original' : 'the standby';
	poll_ok(6 * $ttl, sub { $node->trouble =~ /is also named "pg1"/ }, "standby: the view of $who tells of the name");
	# the log says it after the status
	poll_is(5, sub { $node->log_count('WARNING:  another candidate of election "postgres" is also named "pg1" .its key is "postgres/\S+.pg".$',
				$node == $original ? $from_log : 0) }, 1, "standby: the log of $who says so, once");
}
is($original->token, $token, 'standby: the original leads as before');
$standby->configure(node_name => 'renamed');
poll_is(3 * $ttl, sub { $_->trouble }, '', 'standby: last_error of ' . $_->name . ' ends with the name') for $original, $standby;
$original->stop;
$standby->wait_until_leader;
$standby->promote;
poll_is(10, sub { $standby->value('SELECT pg_is_in_recovery()::int') }, 0, 'standby: it is promoted');
$standby->restart;
$standby->wait_until_leader;
pass('standby: a promoted standby leads, also after a restart');
$standby->stop;

# ---- a copy that is claimed --------------------------------------------------------

stays_out($claimed, 'nobody leads');
ok($claimed->value(document_block('doc/operations.md', 'claim')), 'etcd_campaign() on the copy');
$claimed->wait_until_leader;
poll_is(5, sub { $claimed->trouble }, '', 'claimed: nothing is wrong');
$claimed->stop('immediate');
$claimed->start;
$claimed->wait_until_leader;
pass('claimed: it leads again after a crash');

# ---- a data directory that is moved --------------------------------------------------

# Another disk at the same path.
sub move_to_other_disk
{
	my ($how) = @_;
	my $dir = $claimed->data_dir;
	$claimed->stop($how);
	copy_directory($dir, "$dir.new");
	rename $dir, "$dir.old" or die $!;
	rename "$dir.new", $dir or die $!;
	$claimed->start;
	PostgreSQL::Test::Utils::system_or_bail('rm', '-rf', "$dir.old");
	return;
}

sub move_to_other_host
{
	my ($how, $host) = @_;
	$claimed->stop($how);
	EtcdLeader::Namespace::run_as_root("hostname $host");
	$claimed->start;
	return;
}

move_to_other_disk('fast');
$claimed->wait_until_leader;
pass('moved to another disk: it leads');
move_to_other_host('fast', 'away');
$claimed->wait_until_leader;
pass('moved to another host: it leads');
move_to_other_host('immediate', 'home');
$IS_COPY = qr/is a copy of one of host "away"/;
stays_out($claimed, 'another host after a crash');
ok($claimed->value('SELECT etcd_campaign()::int'), 'another host after a crash: etcd_campaign()');
$claimed->wait_until_leader;
move_to_other_disk('immediate');
$IS_COPY = qr/is a copy of one of host "home"/;
stays_out($claimed, 'another disk after a crash');
$claimed->configure(second_primary => 'wait');
$claimed->wait_until_leader;
poll_is(5, sub { $claimed->trouble }, '', 'second_primary = wait: it is no copy');
$claimed->configure(second_primary => 'refuse');
$claimed->stop('immediate');
$claimed->start;
$claimed->wait_until_leader;
pass('and none afterwards');

done_testing();
