# A flood of changes: each database gets at most ten notifications of changes a
# second, and always one of the last change. So a session that listens and stays in
# a transaction does not fill the queue. Events of elections are announced at once, and
# in the order of the numbers. Readers miss nothing, or see a gap.
#
# ETCD_LEADER_FLOOD: how many changes (20,000).
use EtcdLeader::Test;
use List::Util qw(min);
use Time::HiRes ();

my $changes = $ENV{ETCD_LEADER_FLOOD} // 20_000;
watchdog(180 + $changes / 200);
my $etcd = EtcdLeader::Etcd->new;
my $pg   = EtcdLeader::Instance->create('pg1', etcd => $etcd, settings => { ttl => 30, watched_prefixes => 'flags/' });
$pg->wait_until_leader;
$pg->value('CREATE DATABASE app');
$pg->configure(notify_databases => 'postgres, app');
my @databases = qw(postgres app);
my %listeners;
for my $dbname (@databases)
{
	poll(30, sub { $pg->notifier_pid($dbname) }) or die "no notifier in $dbname";
	$listeners{$dbname} = $pg->listen($dbname);
}

# Puts n keys, 100 in a transaction.
sub flood
{
	my ($n) = @_;
	for my $batch (1 .. $n / 100)
	{
		$etcd->post('/v3/kv/txn', { success => [
			map { { request_put => { key => EtcdLeader::Etcd::b64("flags/$_"), value => EtcdLeader::Etcd::b64("$batch " . 'x' x 100) } } } 1 .. 100 ] }) or die;
	}
	return;
}

# Waits until all databases have the notifications up to an event, and until these are
# counted.  A notifier counts after its commit, when the listener may have the
# notification already; it is idle after that.
sub wait_until_told
{
	my ($seq) = @_;
	for my $dbname (@databases)
	{
		$listeners{$dbname}->wait_for(sub { $_[0]->{seq} >= $seq }, 60) or die "$dbname is not told of event $seq";
	}
	poll(60, sub { !$pg->value(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'etcd_leader notifier' AND state <> 'idle'}) })
	  or die 'a notifier is not idle';
	return;
}

# The milliseconds from an event to its notification.
my $wall = Time::HiRes::time() - now();
sub delay_ms
{
	my ($notification) = @_;
	my $at = $pg->value('SELECT extract(epoch FROM ?::timestamptz)', $notification->{at});
	return 1000 * ($notification->{arrived} + $wall - $at);
}
sub median { my @sorted = sort { $a <=> $b } @_; return $sorted[ $#sorted / 2 ] }

# ---- a change after a quiet time -------------------------------------------------

my @delays;
for my $n (1 .. 11)
{
	pause(0.2);
	my $mark = $pg->last_event;
	$etcd->etcdctl('put', 'flags/single', $n);
	my $told = $listeners{postgres}->wait_for(sub { $_[0]->{seq} > $mark });
	push @delays, delay_ms($told);
}
note(sprintf 'a single change: told after %.1f ms (median), %.1f ms (longest)', median(@delays), (sort { $a <=> $b } @delays)[-1]);
in_time(median(@delays) / 1000, 0.02, 'a change after a quiet time is told at once');

# ---- changes and events of elections, while the notifier cannot announce them -------

my $notifier = $pg->notifier_pid;
for my $changes_last (0, 1)
{
	my $name = $changes_last ? 'a change after elections' : 'a change before elections';
	my $mark = $pg->last_event;
	my $put  = sub {
		my $before = $pg->last_event;
		$etcd->etcdctl('put', 'flags/held', $_[0]);
		poll(10, sub { $pg->last_event > $before }) or die;
	};
	kill 'STOP', $notifier;
	$put->(1);
	$pg->value('SELECT etcd_resign()');
	$pg->wait_until_leader;
	$put->(2) if $changes_last;
	kill 'CONT', $notifier;
	my $last = $pg->last_event;
	$listeners{postgres}->wait_for(sub { $_[0]->{seq} >= $last });
	my @elections = map { "$_->{seq} $_->{event}" } grep { $_->{event} ne 'change' } $pg->events($mark);
	is(join(' ', map { "$_->{seq} $_->{event}" } grep { $_->{seq} > $mark } $listeners{postgres}->notifications),
		join(' ', $changes_last ? (@elections, "$last change") : ($mark + 1 . ' change', @elections)), "$name: one notification, in the order of the numbers");
}

# ---- a flood ---------------------------------------------------------------------

# These listen, and take nothing from the queue.
my @idle = map { $pg->connect_db($_) } @databases;
for (@idle)
{
	$_->do('LISTEN etcd_leader');
	$_->do('BEGIN');
	$_->do('SELECT 1');
}

# The queue of NOTIFY, in pages: the limit is 1,048,576, or max_notify_queue_pages.
sub queue_pages { return 1_048_576 * $pg->value('SELECT pg_notification_queue_usage()') }

my $mark        = $pg->last_event;
wait_until_told($mark);
my $pages       = queue_pages();
my $sent        = $pg->value('SELECT notifications_sent FROM etcd_leader_stats');
my $began       = now();
my $writer      = EtcdLeader::Util::Process->spawn(name => 'flood', log => "$PostgreSQL::Test::Utils::log_path/094_flood.log", code => sub { flood($changes) });
my $reader      = $pg->connect_db;
my @read;
my $read_up_to  = $mark;
my $resignations = 0;
while ($writer->alive)
{
	$reader->do('CALL etcd_await_event(?, ?)', undef, $read_up_to, '100 ms');
	my $rows = $reader->selectall_arrayref('SELECT seq, event, reason FROM etcd_leader_events(?)', { Slice => {} }, $read_up_to);
	$read_up_to = $rows->[-1]{seq} if @$rows;
	push @read, @$rows;
	if (now() - $began > 0.5 * ($resignations + 1) && $resignations < 3)
	{
		$pg->value('SELECT etcd_resign()');
		$resignations++;
	}
}
my $flooded = now();
$pg->wait_until_leader;
pause(0.5);
my $last = $pg->last_event;
push @read, $pg->rows('SELECT seq, event, reason FROM etcd_leader_events(?)', $read_up_to);
note(sprintf '%d changes in %.1f s', $changes, $flooded - $began);

my ($hole, $gaps, $before) = (0, 0, $mark);
for (@read)
{
	my $is_gap = ($_->{reason} // '') eq 'gap';
	$gaps++ if $is_gap;
	$hole++ if $_->{seq} != $before + 1 && !$is_gap;
	$before = $_->{seq};
}
is($hole, 0, 'a reader misses no number without a gap');
is($before, $last, 'and reads up to the last one');
note("$gaps gaps");
cmp_ok(scalar(grep { $_->{event} eq 'change' } @read), '>=', $changes, 'each change is an event') if $gaps == 0;
my @elections = grep { $_->{event} ne 'change' } @read;
cmp_ok(scalar(@elections), '>=', 2 * $resignations, 'with events of elections among them');
my ($last_change) = map { $_->{seq} } grep { $_->{event} eq 'change' } reverse @read;

my $notifications = 0;
wait_until_told($last);
for my $dbname (@databases)
{
	my @all   = grep { $_->{seq} > $mark } $listeners{$dbname}->notifications;
	my @told  = grep { $_->{event} eq 'change' } @all;
	$notifications += @all;
	is(scalar(grep { $all[$_]{seq} <= $all[ $_ - 1 ]{seq} } 1 .. $#all), 0, "$dbname: the numbers only grow");
	is(join(' ', map { "$_->{seq} $_->{event}" } grep { $_->{event} ne 'change' } @all), join(' ', map { "$_->{seq} $_->{event}" } @elections),
		"$dbname: each event of an election is told");
	is($told[-1]{seq}, $last_change, "$dbname: the last change is told");
	# the first one may arrive late
	my $seconds = $told[-1]{arrived} - $began;
	note(sprintf '%s: %d notifications of changes in %.1f s', $dbname, scalar @told, $seconds);
	# and one before each event of an election
	cmp_ok(scalar(@told), '<=', 10 * $seconds + 1 + @elections, "$dbname: ten notifications of changes a second");
	cmp_ok(scalar(@told), '>=', 2 * $seconds, "$dbname: and not much less");
	in_time(median(map { delay_ms($_) } grep { $_->{event} ne 'change' } @all) / 1000, 0.08, "$dbname: events of elections are told at once");
	# A notification of a change comes before it in the same transaction, and arrives
	# with it.
	my ($together, $before_it) = (0, 0);
	my @after;
	for (@all)
	{
		($before_it, $together) = ($together, $_->{arrived}) if $_->{arrived} != $together;
		push @after, $_->{arrived} - $before_it if $_->{event} ne 'change';
	}
	cmp_ok(min(@after), '<', 0.09, "$dbname: and do not wait for the changes") or diag(join ' ', map { sprintf '%.3f', $_ } @after);
	is(scalar(grep { defined $_->{key} || defined $_->{value} } @told), 0, "$dbname: no keys, no values");
}
is($pg->value('SELECT notifications_sent FROM etcd_leader_stats') - $sent, $notifications, 'they are counted');
# each of them is less than 400 bytes, and each page has 8 kB
my $grown = queue_pages() - $pages;
cmp_ok($grown, '<=', 2 + $notifications / 20, 'the queue stays small') or diag("$grown pages, $notifications notifications");
note(sprintf 'the queue has grown by %.0f pages', $grown);
for my $session (@idle)
{
	$session->do('COMMIT');
	my $last_told;
	while (my $notify = $session->func('pg_notifies')) { $last_told = $notify->[2] }
	like($last_told // '', qr/"seq":$last[,}]|"seq":$last_change[,}]/, 'a session that was in a transaction: the last one is there');
}
done_testing();
