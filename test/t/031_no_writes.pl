# Nothing can be written: no line to the server's log, no file of the data
# directory.  The elector needs neither.
#
# That a process cannot write to any file is what its limit of the size of
# files (RLIMIT_FSIZE) of 0 does: write() fails with EFBIG.  The same call
# fails at the same place when the disk of the log is full (ENOSPC), and
# PostgreSQL treats both alike.
use EtcdLeader::Test;
use File::Find ();

die 'root may write everything' if $> == 0;
my $ttl   = 3;
my $etcd  = EtcdLeader::Etcd->new;
# without what writes of its own accord: that is PostgreSQL's own affair
my @nodes = map { EtcdLeader::Instance->create($_, etcd => $etcd, settings => { ttl => $ttl, request_timeout => 900 },
		conf => "logging_collector = off\nautovacuum = off\n") } qw(pg1 pg2);
my ($pg1, $pg2) = @nodes;
$_->wait_until_candidate for @nodes;
$pg1->wait_until_leader;
poll(10, sub { $_->notifier_pid }) or die 'no notifier' for @nodes;
$_->value('CREATE TABLE t (i int)') for @nodes;
my %postmaster = map { $_->name => $_->{_pid} } @nodes;

# What a process may write to a file: 0 or unlimited.
sub limit_writes
{
	my ($limit) = @_;
	for my $node (@nodes)
	{
		system('prlimit', '--pid', $_, "--fsize=$limit:unlimited") == 0 or die 'prlimit failed' for $node->elector_pid, $node->notifier_pid;
	}
	return;
}

sub make_read_only
{
	$_->value('CHECKPOINT') for @nodes;
	system('chmod', '-R', 'a-w', $_->data_dir) == 0 or die 'chmod failed' for @nodes;
	my @writable;
	File::Find::find({ no_chdir => 1, wanted => sub { push @writable, $_ if -w } }, map { $_->data_dir } @nodes);
	is("@writable", '', 'no file of the data directories can be written');
	return;
}

sub make_writable
{
	system('chmod', '-R', 'u+w', $_->data_dir) == 0 or die 'chmod failed' for @nodes;
	return;
}
END { local $?; make_writable() if @nodes }

my @cases = (
	[ 'no log',                 sub { limit_writes(0) }, sub { limit_writes('unlimited') } ],
	[ 'read-only',              \&make_read_only, \&make_writable ],
	[ 'read-only, and no log', sub { limit_writes(0); make_read_only() }, sub { make_writable(); limit_writes('unlimited') } ]);
for my $case (@cases)
{
	my ($name, $do, $undo) = @$case;
	my $mute      = $name =~ /no log/;
	my $token     = $pg1->token;
	my %elector   = map { $_->name => $_->elector_pid } @nodes;
	my %mark      = map { $_->name => $_->last_event } @nodes;
	my %offset    = map { $_->name => $_->log_size } @nodes;
	my %listener  = map { $_->name => $_->listen } @nodes;
	my @samplers  = map { $_->sample } @nodes;
	$do->();

	pause(2.2 * $ttl);
	my %seen = map { ("$_->{answer} $_->{token}" => 1) } $samplers[0]->runs;
	is(join(', ', sort keys %seen), "t $token", "$name: pg1 leads for more than two TTLs, under one token");
	is_deeply([ map { $_->events($mark{ $_->name }) } @nodes ], [], "$name: without an event");

	for my $pair ([ $pg1, $pg2 ], [ $pg2, $pg1 ])
	{
		my ($old, $next) = @$pair;
		my $began = now();
		is($old->value('SELECT etcd_resign()'), 1, "$name: " . $old->name . ' resigns');
		is($next->value(q{SELECT etcd_wait_for_leadership(timeout => '10 s')}), 1, "$name: " . $next->name . ' leads');
		cmp_ok(now() - $began, '<', $ttl / 2, "$name: soon");
		$old->wait_until_candidate;
		$old->wait_until_sees($next->name);
	}
	EtcdLeader::Sampler::check_exclusion(\@samplers, $name);
	for my $node (@nodes)
	{
		my @events = grep { !/^leader postgres - -$/ } map { EtcdLeader::Listener::summarize($_) } $node->events($mark{ $node->name });
		is_deeply(\@events,
			$node == $pg1
			? [ 'unelected postgres - resigned', 'leader postgres pg2 -', 'elected postgres pg1 -' ]
			: [ 'elected postgres pg2 -', 'unelected postgres - resigned', 'leader postgres pg1 -' ],
			"$name: " . $node->name . ' has the events');
		my $last = $node->last_event;
		poll_ok(10, sub { grep { $_->{seq} == $last } $listener{ $node->name }->notifications }, "$name: " . $node->name . ' announces them');
		is($node->elector_pid, $elector{ $node->name }, "$name: " . $node->name . ' has the same elector');

		# it could not be said, or was said once each
		my $lines = $node->log_count('\[\d+\] etcd_leader (?:elector|notifier) .*(?:LOG|WARNING|ERROR|FATAL):', $offset{ $node->name });
		is($lines, $mute ? 0 : $last - $mark{ $node->name }, "$name: what the log of " . $node->name . ' says of it');
		cmp_ok($node->log_count('^', $offset{ $node->name }), '<', 50, "$name: and it is not flooded otherwise");
	}

	$undo->();
	for my $node (@nodes)
	{
		$node->value('INSERT INTO t VALUES (1)');
		$node->value('CHECKPOINT');
		is($node->log_count('PANIC:|was terminated by signal', $offset{ $node->name }), 0, "$name: " . $node->name . ' goes on');
	}
	# the same processes write again
	my $size = $pg1->log_size;
	$pg1->value('SELECT etcd_resign()');
	poll_ok(10, sub { $pg1->log_count('no longer leader of election', $size) }, "$name: afterwards the log is written again");
	$pg2->wait_until_leader;
	$pg1->wait_until_candidate;
	$pg2->value('SELECT etcd_resign()');
	$pg1->wait_until_leader;
	$pg2->wait_until_candidate;
	$pg2->wait_until_sees('pg1');
}
is($_->value(q{SELECT split_part(pg_read_file('postmaster.pid'), E'\n', 1)}), $postmaster{ $_->name }, $_->name . ' was never restarted') for @nodes;
is($_->value('SELECT count(*) FROM t'), scalar @cases, $_->name . ' has written all that could be written') for @nodes;

done_testing();
