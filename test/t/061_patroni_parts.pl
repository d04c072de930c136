# Patroni and PostgreSQL part: Patroni is killed or stopped, and PostgreSQL
# lives on as a primary that nobody leads.
use EtcdLeader::Test;
use EtcdLeader::Patroni;
use EtcdLeader::Session;

watchdog(400);

my $etcd     = EtcdLeader::Etcd->new(members => 3);
my $cluster  = EtcdLeader::Patroni->new(etcd => $etcd);
my $election = $cluster->election;

$cluster->primary->value('CREATE TABLE work (at timestamptz)');
poll(30, sub { !grep { !defined $_->try_value("SELECT to_regclass('work')") } $cluster->members }) or die 'no table';

# ---- Patroni is restarted on the leader ------------------------------------------

my $leader = $cluster->primary;
$leader->wait_until_leader;
my $samplers = $cluster->sample;
my $token = $leader->token;
my $lease = $cluster->leader_key->{lease};
my %after = map { $_->name => $_->last_event } $cluster->members;
my $watch = $leader->watch_roles;
$leader->kill_patroni;
$leader->start_patroni;
poll_ok(15, sub { my $k = $cluster->leader_key; $k && $k->{lease} ne $lease }, 'Patroni restarted: the key hangs on a new lease');
poll_is(5, sub { $leader->status->{lease_id} }, $cluster->leader_key->{lease_hex}, 'the new lease is known');
$watch->stop;
is(join(' ', map { $_->[2] // 'down' } EtcdLeader::Patroni::Member::roles_seen($watch)), '1', 'Patroni restarted: never false');
is($leader->token, $token, 'Patroni restarted: the same token');
for my $member ($cluster->members)
{
	is(join(' ', map { $_->{event} } $member->events($after{ $member->name })), '', 'Patroni restarted: no event on ' . $member->name);
}

# ---- Patroni is killed, or stopped ---------------------------------------------------

# The old primary goes on writing, and must not lead when another has the key.
# Returns the old and the new leader.
sub part
{
	my ($name, $end_patroni) = @_;
	my $old = $cluster->wait_for_primary;
	$old->wait_until_leader;
	my $token = $old->token;
	my $fenced = $old->connect_db;
	$fenced->begin_work;
	$fenced->do('SELECT etcd_require_leader()');
	$fenced->do('INSERT INTO work VALUES (now())');

	$end_patroni->($old);
	my ($false_at, $key_gone);
	my $roles = $old->watch_roles;
	# who reads a key that is gone, or names another, must find it false
	my $new = poll(60, sub {
		my $key = $cluster->leader_key;
		return if $key && $key->{value} eq $old->name;
		$key_gone //= now();
		return $key ? $cluster->leader : undef;
	});
	ok($new, "$name: another has the key") or return;
	is($old->value('SELECT etcd_is_leader()::int'), 0, "$name: the old one does not lead");
	$cluster->wait_for_primary($new);
	$new->wait_until_leader;
	cmp_ok($new->token, '>', $token, "$name: the new one leads, with a greater token");
	$roles->stop;
	my ($false) = grep { @$_ == 3 && !$_->[2] } EtcdLeader::Patroni::Member::roles_seen($roles);
	cmp_ok($false->[0], '<', $key_gone, sprintf '%s: false %.2f s before the key was gone', $name, $key_gone - $false->[0]);
	return ($old, $new, $fenced);
}

for my $how ([ 'SIGKILL of Patroni', 'kill_patroni', 'start_patroni' ], [ 'SIGSTOP of Patroni', 'freeze_patroni', 'thaw_patroni' ])
{
	my ($name, $end, $begin) = @$how;
	my ($old, $new, $fenced) = part($name, sub { $_[0]->$end });
	is($old->value('SELECT pg_is_in_recovery()::int'), 0, "$name: PostgreSQL there is a primary as before");
	ok(eval { $old->value('INSERT INTO work VALUES (now())'); 1 }, "$name: and takes writes that are not fenced");
	fails($fenced, 'COMMIT', '25006', qr/./, "$name: a fenced transaction");
	fails($old->dbh, 'SELECT etcd_require_leader()', '25006', qr/./, "$name: etcd_require_leader()");
	poll_ok(5, sub { ($old->status->{last_error} // '') =~ /not in recovery.*leader key names "${\$new->name}"/ }, "$name: last_error says what is wrong");
	$old->$begin;
	# the old primary is demoted; but Patroni before 3.0.3 that wakes up may put its name
	# over the other's, and demote the other
	poll_ok(60, sub { $cluster->primaries == 1 }, "$name: afterwards there is one primary");
	$cluster->wait_until_streaming;
	$cluster->wait_for_primary->wait_until_leader;
}

# ---- both are killed ----------------------------------------------------------------

my $old = $cluster->wait_for_primary;
$old->wait_until_leader;
$old->kill_all;
my $new = $cluster->wait_for_primary(undef, [$old]);
$new->wait_until_leader;
pass('both killed: another leads');
$old->start_patroni;
$cluster->wait_until_streaming;
is($old->value('SELECT etcd_is_leader()::int'), 0, 'both killed: back as a replica');

EtcdLeader::Sampler::check_exclusion($samplers, 'Patroni apart', max_gap => 2);
done_testing();
