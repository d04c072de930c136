# Copies of a running leader's data directory, started beside it: none takes up its
# lease.  A copy that is a primary stays out as a second one, also when the original is
# restarted.  A standby queues, and each of the two reports another candidate of its name.
use EtcdLeader::Test;
use PostgreSQL::Test::RecursiveCopy;

my $ttl  = 5;
my $etcd = EtcdLeader::Etcd->new;

my $original = EtcdLeader::Instance->create('original', etcd => $etcd,
	settings => { ttl => $ttl, node_name => 'pg1', candidate => 'always' }, init => { allows_streaming => 1 });
$original->wait_until_leader;
my $token = $original->token;
my $lease = $original->status->{lease_id};

# The file copy: of a server that is running, as a snapshot of its disk is.
sub copy_files
{
	my ($name) = @_;
	my $copy = EtcdLeader::Instance->new($name);
	$original->value('CHECKPOINT');
	PostgreSQL::Test::RecursiveCopy::copypath($original->data_dir, $copy->data_dir,
		filterfn => sub { my ($path) = @_; return $path ne 'postmaster.pid' && $path ne 'log' });
	chmod 0700, $copy->data_dir or die $!;
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

my %make = (
	'file copy'   => sub { copy_files('copied') },
	'base backup' => sub { base_backup('backup') },
	'standby'     => sub { base_backup('standby', has_streaming => 1) },
);
for my $kind (sort keys %make)
{
	my $from_log = $original->log_size;
	my $copy     = $make{$kind}->();
	$copy->start;
	my $sampler = $copy->sample;

	my $is_standby = $kind eq 'standby';
	if ($is_standby)
	{
		poll_ok(20, sub { ($copy->status->{state} // '') eq 'waiting' }, "$kind: it queues");
		isnt($copy->status->{lease_id}, $lease, "$kind: on a lease of its own");
	}
	else
	{
		poll_ok(20, sub { ($copy->status->{state} // '') eq 'second primary' }, "$kind: it stays out");
		is(scalar(my @keys = $etcd->candidates('postgres')), 1, "$kind: and has no key");
		like($copy->trouble, qr/another primary of this database system led on timeline 1 and was alive when this instance was a primary on timeline 1/, "$kind: the view says why");
	}
	is($copy->log_count('resuming the lease'), 0, "$kind: it does not resume");
	is($copy->status->{node_name}, 'pg1', "$kind: it has the same name");
	# a copy without a key is seen by itself alone
	for my $node ($is_standby ? ($original, $copy) : $copy)
	{
		my $who = $node == $original ? 'the original' : 'the copy';
		poll_ok(6 * $ttl, sub { $node->trouble =~ /is also named "pg1"/ }, "$kind: the view of $who tells of the name");
		# the log says it after the status
		poll_is(5, sub { $node->log_count($is_standby ? 'WARNING:  another candidate of election "postgres" is also named "pg1" .its key is "postgres/\S+.pg".$' :
					'WARNING:  the leader of election "postgres" is also named "pg1"$', $node == $original ? $from_log : 0) }, 1, "$kind: the log of $who says so, once");
	}
	is($original->token, $token, "$kind: the original leads as before");
	if ($kind eq 'standby')
	{
		$copy->configure(node_name => 'renamed');
		poll_is(3 * $ttl, sub { $_->trouble }, '', "$kind: last_error of " . $_->name . ' ends with the name') for $original, $copy;
	}
	if (!$is_standby)
	{
		$original->restart;
		$original->wait_until_leader;
		pause(1);
	}
	is_deeply([ grep { $_->{answer} eq 't' } $sampler->stop ], [], "$kind: the copy never led");
	$copy->stop('immediate');
	poll_is(3 * $ttl, sub { $original->trouble }, '', "$kind: it has gone: last_error of the original ends");
	# the log repeats a message only after another change
	$original->restart;
	$original->wait_until_leader;
	($token, $lease) = ($original->token, $original->status->{lease_id});
}

done_testing();
