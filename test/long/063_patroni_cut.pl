# An election that follows Patroni's key, when etcd cannot be reached: from one host,
# with and without Patroni's failsafe_mode, or from all.  Then etcd is put back to an
# earlier state.  Two instances never lead, and recovery needs no restart.
#
# Each member has a host of its own, in networks of the test.  Packets are dropped, and
# no connection is refused.  The test itself uses Unix sockets.
use EtcdLeader::Namespace;
use EtcdLeader::Test;
use EtcdLeader::Patroni;

watchdog(500);

my $hosts   = EtcdLeader::Namespace::make_hosts(3);
my $etcd    = EtcdLeader::Etcd->new(hosts => [ [ undef, '10.1.0.254', '10.1.0.254' ] ]);
my $cluster = EtcdLeader::Patroni->new(etcd => $etcd, hosts => $hosts, settings => { ttl => 5 });
my ($granted) = $etcd->lease($cluster->leader_key->{lease});

$cluster->primary->wait_until_leader;
my $samplers = $cluster->sample;

# Cuts a member off from the network of etcd, or of the other members, or of both, and
# connects it again.
sub cut  { my ($member, @networks) = @_; EtcdLeader::Namespace::pull($_ . $member->number) for @networks; return }
sub mend { my ($member, @networks) = @_; EtcdLeader::Namespace::plug($_ . $member->number, "${_}s") for @networks; return }

# The pids of all electors.
sub electors { return { map { $_->name => $_->elector_pid } $cluster->members } }

# ---- one host is cut off -------------------------------------------------------------

my $old   = $cluster->primary;
my $token = $old->token;
my $began = now();
cut($old, 'etcd');
poll_is($granted + 2, sub { $old->try_value('SELECT etcd_is_leader()::int') // 0 }, 0, 'cut off: the old leader does not lead any more');
cmp_ok(now() - $began, '<', $granted, 'cut off: its leadership ends within the TTL');
ok($cluster->leader_key && $cluster->leader_key->{value} eq $old->name, 'cut off: its leadership ends before its key is gone');
my $new = $cluster->wait_for_primary(undef, [$old]);
$new->wait_until_leader;
cmp_ok($new->token, '>', $token, 'cut off: another leads, with a greater token');
mend($old, 'etcd');
$cluster->wait_until_streaming;
$old->wait_until_sees($new->name);
pass('cut off: the old leader has contact again, and knows the leader');

# ---- the same with failsafe_mode ------------------------------------------------------

$cluster->edit_config(failsafe_mode => 'true');
poll_ok(20, sub { $etcd->keys($cluster->prefix . 'failsafe') }, 'failsafe_mode: Patroni has switched it on');
my $electors = electors();
($old, $token) = ($new, $new->token);
cut($old, 'etcd');
poll_is($granted + 2, sub { $old->value('SELECT etcd_is_leader()::int') }, 0, 'failsafe_mode, cut off: the old leader does not lead any more');
# the elector reports this after the deadline
poll_ok(2, sub { ($old->status->{last_error} // '') =~ /failsafe_mode may keep this server a primary/ }, 'failsafe_mode, cut off: last_error says why');
poll_ok(2 * $granted, sub { !$cluster->leader_key }, 'failsafe_mode, cut off: the key expires');
pause(2);
is($old->value('SELECT pg_is_in_recovery()::int'), 0, 'failsafe_mode, cut off: it stays a primary');
is(join(' ', map { $_->value('SELECT etcd_is_leader()::int') } $cluster->members), '0 0 0', 'failsafe_mode, cut off: nobody leads');
mend($old, 'etcd');
my $leader = $cluster->wait_for_primary;
$leader->wait_until_leader;
cmp_ok($leader->token, '>', $token, 'failsafe_mode, back: there is a leader');
is_deeply(electors(), $electors, 'failsafe_mode, back: without a restart');

# ---- cut off from the other members, too: failsafe_mode asks them ---------------------------

($old, $token) = ($leader, $leader->token);
cut($old, 'etcd', 'peer');
poll_is($granted + 2, sub { $old->try_value('SELECT etcd_is_leader()::int') // 0 }, 0, 'cut off from all: the old leader does not lead any more');
ok($cluster->leader_key && $cluster->leader_key->{value} eq $old->name, 'cut off from all: its leadership ends before its key is gone');
$leader = $cluster->wait_for_primary(undef, [$old]);
$leader->wait_until_leader;
cmp_ok($leader->token, '>', $token, 'cut off from all: another leads, with a greater token');
mend($old, 'etcd', 'peer');
$cluster->wait_until_streaming;
$old->wait_until_sees($leader->name);
pass('cut off from all: the old leader has contact again, and knows the leader');
$electors = electors();

# ---- etcd is away for longer than the TTL -----------------------------------------------

$token = $leader->token;
my %postmasters = map { $_->name => $_->postmaster_pid } $cluster->members;
$etcd->freeze(0);
poll_is($granted + 2, sub { $leader->value('SELECT etcd_is_leader()::int') }, 0, 'etcd away: it does not lead any more');
pause($granted / 2);
is($leader->value('SELECT pg_is_in_recovery()::int'), 0, 'etcd away: it stays a primary');
like($leader->status->{last_error}, qr/failsafe_mode/, 'etcd away: last_error says why');
$etcd->thaw(0);
# All leases have expired, and Patroni's members come back one by one.  The first one
# takes the key, and Patroni demotes the other primary.
my $before = $leader;
poll_ok(60, sub { $leader = $cluster->leader or return; return ($leader->try_value('SELECT etcd_is_leader()::int') // 0) && $cluster->primaries == 1 },
	'etcd back: there is a leader') or diag $cluster->explain;
cmp_ok($leader->token, '>=', $token, 'etcd back: the token is not lower');
$cluster->wait_until_streaming;
my $now = electors();
# Patroni may have run pg_rewind, which begins with a stop of the server
my @same = grep { $_->postmaster_pid == $postmasters{ $_->name } } $cluster->others($before);
is_deeply([ map { $now->{ $_->name } } @same ], [ map { $electors->{ $_->name } } @same ], 'etcd back: without a restart of electors');

# ---- etcd is put back to an earlier state ------------------------------------------------

# Copies etcd's present data; etcd is down for a short time only.
sub copy_data
{
	my $dir = $etcd->{members}[0]{dir};
	$etcd->stop(0);
	system('cp', '-a', $dir, "$dir.copy") == 0 or die 'no copy';
	$etcd->start(0);
	return;
}

sub restore_data
{
	my $dir = $etcd->{members}[0]{dir};
	$etcd->kill(0);
	File::Path::rmtree($dir);
	rename("$dir.copy", $dir) or die "cannot restore: $!";
	$etcd->start(0);
	return;
}

copy_data();
$leader->wait_until_leader;
my ($next) = $cluster->others($leader);
$cluster->switchover($next);
$next->wait_until_leader;
$cluster->wait_until_streaming;
$electors = electors();
restore_data();
# The key names the earlier leader again.  Patroni promotes that one, or another.
my $found;
poll_ok(90, sub {
	$found = $cluster->leader or return;
	return ($found->try_value('SELECT etcd_is_leader()::int') // 0) && $cluster->primaries == 1;
}, 'restored: there is a leader again') or diag $cluster->explain;
$cluster->wait_until_streaming;
is(scalar(grep { ($_->try_value('SELECT etcd_is_leader()::int') // 0) } $cluster->members), 1, 'restored: only one leads');

# After a restore tokens may decrease, and one may be used twice.  So this checks only
# that two never lead at the same time.
my %runs = map { $_->{name} => [ $_->stop ] } @$samplers;
my @overlaps;
for my $a (sort keys %runs)
{
	for my $b (grep { $_ gt $a } sort keys %runs)
	{
		for my $x (grep { $_->{answer} eq 't' } @{ $runs{$a} })
		{
			push @overlaps, map { sprintf '%s %.3f-%.3f, %s %.3f-%.3f', $a, $x->{a0}, $x->{b1}, $b, $_->{a0}, $_->{b1} }
			  grep { $_->{answer} eq 't' && $x->{a0} < $_->{b1} && $_->{a0} < $x->{b1} } @{ $runs{$b} };
		}
	}
}
is(join("\n", @overlaps), '', 'no two led at once');

done_testing();
