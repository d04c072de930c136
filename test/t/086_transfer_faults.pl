# etcd_transfer() to a target that is stopped, dies, is cut off, resigns or
# leaves: somebody leads within a TTL, and the call says what happened.
use EtcdLeader::Test;
use EtcdLeader::Relay;

watchdog(170);

my $ttl   = 3;
my $etcd  = EtcdLeader::Etcd->new;
my @names = map { "pg$_" } 1 .. 3;
my %relay = map { $_ => EtcdLeader::Relay->new($etcd->url(0)) } @names;
my %nodes = map { $_ => EtcdLeader::Instance->create($_, endpoints => $relay{$_}->url, settings => { ttl => $ttl }) } @names;
my @nodes = @nodes{@names};
$_->wait_until_candidate for @nodes;
my @samplers = map { $_->sample } @nodes;

sub queue { return map { $_->{value} } $etcd->candidates('postgres') }

# All three are in the queue, and the first leads: they, in order.
sub settled
{
	poll(20, sub { my @q = queue(); @q == 3 && $nodes{ $q[0] }->is_leader }) or die 'they do not settle';
	$_->wait_until_candidate for @nodes;
	return @nodes{ queue() };
}

# (answer or SQLSTATE, seconds); $amid is called as soon as the call is sent.
sub transfer
{
	my ($from, $to, $timeout, $amid) = @_;
	my $began = now();
	my $dbh   = $from->connect_db;
	my $call  = $dbh->prepare('SELECT etcd_transfer(?, NULL, ?::interval)', { pg_async => 1 });
	$call->execute($to->name, $timeout);
	$amid->() if $amid;
	my ($answer) = eval { $dbh->pg_result; $call->fetchrow_array };
	my $outcome = $@ ? $dbh->state : $answer;
	$dbh->disconnect;
	return ($outcome, now() - $began);
}

# Somebody leads within a TTL (and half a second, and what a busy machine takes).
sub somebody_leads
{
	my ($name, @who) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $began = now();
	poll_ok($ttl + 3, sub { grep { ($_->try_value('SELECT etcd_is_leader()') // 0) } @who }, "$name: somebody leads");
	note(sprintf '%s: after %.1f s', $name, now() - $began);
	return;
}

# 1. Stopped before the call: its key is the first for the rest of its lease.
for my $place (1, 2)
{
	my @order = settled();
	my ($leader, $target) = @order[ 0, $place ];
	my $pid = $target->elector_pid;
	kill 'STOP', $pid;
	my ($outcome, $took) = transfer($leader, $target, '2 s');
	is($outcome, 0, "stopped, place $place: false");
	in_time($took, 4, "stopped, place $place: within the timeout") and note(sprintf '%.2f s', $took);
	somebody_leads("stopped, place $place", grep { $_ != $target } @order);
	kill 'CONT', $pid;
}

# 2. The target's elector is killed at each moment: before, amid, after.
for my $delay (0, 0.001, 0.003, 0.01, 0.05)
{
	my ($leader, $other, $target) = settled();
	my $pid = $target->elector_pid;
	my $dbh = $leader->connect_db;
	$dbh->do(sprintf('SELECT etcd_transfer(%s, NULL, %s)', $dbh->quote($target->name), $dbh->quote('3 s')), { pg_async => 1 });
	pause($delay);
	kill 'KILL', $pid;
	my $began = now();
	my $outcome = eval { $dbh->pg_result; 1 } ? 'answered' : $dbh->state;
	in_time(now() - $began, 5, "killed after $delay s: the call ends in time") and note("$outcome");
	like($outcome, qr/^(?:answered|42704|08006|55000)$/, "killed after $delay s: it says what happened");
	somebody_leads("killed after $delay s", @nodes);
	$dbh->disconnect if $dbh->ping;
	# the server restarts itself, and has another elector then
	poll(20, sub {
		my $new = eval { $target->elector_pid };
		return defined $new && $new != $pid && eval { $target->connect_db->disconnect; 1 };
	}) or die 'no restart';
}

# 3. It resigns, or stops, at the same time.
for my $how (qw(resign stop))
{
	my ($leader, $other, $target) = settled();
	my $dbh = $leader->connect_db;
	my $leaving = $target->connect_db;
	$dbh->do(sprintf('SELECT etcd_transfer(%s, NULL, %s)', $dbh->quote($target->name), $dbh->quote('3 s')), { pg_async => 1 });
	$how eq 'resign' ? $leaving->do('SELECT etcd_resign()') : $leaving->do('SELECT pg_terminate_backend(?)', {}, $target->elector_pid);
	my $outcome = eval { $dbh->pg_result; 1 } ? 'answered' : $dbh->state;
	like($outcome, qr/^(?:answered|42704)$/, "$how: the call says what happened");
	somebody_leads($how, @nodes);
}

# 4. The target alone loses etcd: before the call, or just after it was sent.  Its
# key stands for the rest of its lease.  True means that it led before the cut.
for my $moment (qw(before amid))
{
	my ($leader, $target, $last) = settled();
	my $name  = "cut off $moment the call";
	my $relay = $relay{ $target->name };
	my $seen  = $target->last_event;
	my $amid  = sub { pause(rand 0.015); $relay->cut };
	$relay->cut if $moment eq 'before';
	my ($outcome, $took) = transfer($leader, $target, '2 s', $moment eq 'amid' ? $amid : undef);
	my $led = grep { $_->{event} eq 'elected' } $target->events($seen);
	like($outcome, $led ? qr/^(?:[01]|08006)$/ : qr/^(?:0|08006)$/, "$name: it says what happened");
	in_time($took, 4, "$name: within the timeout") and note(sprintf '%s after %.2f s, the target led: %d', $outcome, $took, $led);
	somebody_leads($name, $leader, $last);
	$relay->mend;
	poll_ok(20, sub { queue() == 3 }, "$name: mended, all queue again");
}

# 5. etcd is away: an error within the timeout, or false.
{
	my ($leader, $other, $target) = settled();
	$etcd->freeze(0);
	my ($outcome, $took) = transfer($leader, $target, '1 s');
	like($outcome, qr/^(?:0|08006)$/, 'etcd is away: false, or an error');
	in_time($took, 3, 'etcd is away: within the timeout') and note("$outcome");
	$etcd->thaw(0);
	somebody_leads('etcd is back', @nodes);
}
settled();

EtcdLeader::Sampler::check_exclusion(\@samplers, 'with faults');
done_testing();
