# An election that follows Patroni, set up wrongly: nobody leads, and last_error
# names the setting.  And what a reload changes.
use EtcdLeader::Test;
use EtcdLeader::Patroni;
use EtcdLeader::Session;

my $etcd    = EtcdLeader::Etcd->new;
my $cluster = EtcdLeader::Patroni->new(etcd => $etcd, members => 2, dcs => { failsafe_mode => JSON::PP::false() });
my $leader  = $cluster->primary;
my ($other) = $cluster->others($leader);
my $name    = $leader->name;

$leader->wait_until_leader;
my $token = $leader->token;

# ---- an old etcd is warned of once -----------------------------------------------------------

sub warnings { return $leader->log_count('WARNING:  etcd at ".*" has version \S+, which may end Patroni') }
{
	# of a server that was started once
	poll_is(10, sub { warnings() }, $etcd->is_old, 'an old etcd: a WARNING at the start');
	$leader->dbh->do('SELECT pg_reload_conf()');
	pause(2);
	is(warnings(), $etcd->is_old, 'an old etcd: a reload does not repeat it');
}

# Waits for what last_error says of an election; nobody may lead it then.
sub says
{
	my ($pattern, $name, $election) = @_;
	my $error = '';
	my $row;
	poll(10, sub { $row = eval { $leader->status($election) } or return; ($error = $row->{last_error} // '') =~ $pattern });
	like($error, $pattern, "$name: last_error");
	is($row->{is_leader}, 0, "$name: does not lead");
	is($row->{state}, 'following', "$name: the state");
	ok($row->{last_error_at}, "$name: last_error_at");
	return;
}

# Changes settings of etcd_leader until $check has been called.
sub with
{
	my ($settings, $check) = @_;
	$leader->configure(%$settings);
	$check->();
	$leader->configure(map { $_ => undef } keys %$settings);
	poll_is(10, sub { $leader->try_value('SELECT etcd_is_leader()::int') }, 1, 'back: leads');
	is($leader->token, $token, 'back: with the same token');
	return;
}

with({ node_name => 'elsewhere' }, sub {
	says(qr/has no member "elsewhere".*"etcd_leader.node_name"/, 'wrong node_name');
});
with({ node_name => $cluster->scope }, sub {
	says(qr/has no member "test1": that is its scope.*"etcd_leader.node_name"/, 'node_name by default');
});
# another's name, of which the key may speak
with({ node_name => $other->name }, sub {
	my $row;
	poll_is(10, sub { ($row = $leader->status)->{is_leader} }, 0, "another's node_name: does not lead");
	poll_ok(10, sub { ($leader->status->{last_error} // '') =~ /not in recovery.*leader key names "$name"/ }, "another's node_name: last_error");
});
with({ elections => 'patroni:nowhere' }, sub {
	says(qr{no keys of a Patroni cluster below "/service/nowhere/".*"etcd_leader.elections"}, 'wrong scope');
	is($leader->value('SELECT etcd_current_leader()'), undef, 'wrong scope: no leader');
	is($leader->value('SELECT count(*) FROM etcd_candidates()'), 0, 'wrong scope: no members');
});
with({ patroni_namespace => '/db' }, sub {
	says(qr{no keys of a Patroni cluster below "/db/test1/".*"etcd_leader.patroni_namespace"}, 'wrong namespace');
});

# Another cluster's keys, with a member of our name.
my $sysid = $leader->value('SELECT system_identifier FROM pg_control_system()');
$etcd->etcdctl('put', '/service/stranger/initialize',    '4711');
$etcd->etcdctl('put', "/service/stranger/members/$name", '{}');
my $lease = ($etcd->etcdctl('lease', 'grant', 300) =~ /lease (\w+)/)[0];
$etcd->etcdctl('put', '/service/stranger/leader', $name, "--lease=$lease");
with({ elections => "patroni:stranger,patroni:test1,patroni:stranger/2,own" }, sub {
	says(qr/system identifier 4711, and this server $sysid.*"etcd_leader.elections"/, "another cluster's keys");
	is($leader->value('SELECT etcd_current_leader()'), $name, "another cluster's keys: whom they name");

	# several side by side, and an election of our own
	poll_is(10, sub { $leader->try_value(q{SELECT etcd_is_leader('patroni:test1')::int}) }, 1, 'several: the right one is led');
	$leader->wait_until_leader('own');
	pass('several: an election of our own is led, too');
	is($leader->value(q{SELECT state FROM etcd_leader_status WHERE election = 'patroni:stranger/2'}), 'following', 'several: a Citus group');

	# it becomes ours, under that group's keys
	$etcd->etcdctl('put', '/service/stranger/2/initialize',    $sysid);
	my $timeline = $leader->value('SELECT timeline_id FROM pg_control_checkpoint()');
	$etcd->etcdctl('put', "/service/stranger/2/members/$name", qq({"role":"master","timeline":$timeline}));
	$etcd->etcdctl('put', '/service/stranger/2/leader', $name, "--lease=$lease");
	poll_is(10, sub { $leader->try_value(q{SELECT etcd_is_leader('patroni:stranger/2')::int}) }, 1, 'several: the Citus group is led');
	# its system identifier changes: as if the cluster had been made anew
	$etcd->etcdctl('put', '/service/stranger/2/initialize', '4712');
	poll_is(10, sub { eval { $leader->value(q{SELECT etcd_verify_leader('patroni:stranger/2')}) } // 'no' }, 'no', "another cluster's keys later: not led any more");

	# a put over the name, with the same create revision, as Patroni before 3.0.3 does it
	$etcd->etcdctl('put', '/service/stranger/2/initialize', $sysid);
	poll_is(10, sub { $leader->try_value(q{SELECT etcd_is_leader('patroni:stranger/2')::int}) }, 1, 'its own again: led');
	$etcd->etcdctl('put', '/service/stranger/2/leader', 'x', "--lease=$lease");
	poll_is(10, sub { $leader->try_value(q{SELECT etcd_current_leader('patroni:stranger/2')}) }, 'x', 'overwritten: another leads');
	$etcd->etcdctl('put', '/service/stranger/2/leader', $name, "--lease=$lease");
	poll_is(10, sub { $leader->try_value(q{SELECT etcd_fencing_token('patroni:stranger/2')}) }, ($etcd->keys('/service/stranger/2/leader'))[0]{mod_revision}, 'overwritten back: the token is the revision of the put');
	$etcd->etcdctl('del', '/service/stranger/2/leader');
	$etcd->etcdctl('put', '/service/stranger/2/leader', $name, "--lease=$lease");
	poll_is(10, sub { $leader->try_value(q{SELECT etcd_is_leader('patroni:stranger/2')::int}) }, 1, 'created anew: led');
});

# a key on a lease that is about to end, and on none
$etcd->etcdctl('put', '/service/stranger/2/leader', $name);
with({ elections => "patroni:test1,patroni:stranger/2" }, sub {
	poll_is(5, sub { $leader->try_value(q{SELECT etcd_current_leader('patroni:stranger/2')}) }, $name, 'a key without a lease: names us');
	is($leader->value(q{SELECT etcd_is_leader('patroni:stranger/2')::int}), 0, 'a key without a lease: not led');
});

# ---- names that are refused ------------------------------------------------------------

for my $bad ([ 'patroni:', qr/scope of the Patroni cluster is missing/ ], [ 'patroni:/1', qr/scope of the Patroni cluster is missing/ ],
	[ 'patroni:a/b', qr/group of the Citus cluster is not a number/ ], [ 'patroni:a/', qr/not a number/ ], [ 'patroni:a/1/2', qr/not a number/ ])
{
	fails($leader->dbh, "ALTER SYSTEM SET etcd_leader.elections = '$bad->[0]'", '22023', $bad->[1], "elections = '$bad->[0]'");
}

# ---- pause -------------------------------------------------------------------------------

$cluster->pause_cluster;
$leader->kill_patroni;
poll_is(30, sub { $leader->value('SELECT etcd_is_leader()::int') }, 0, 'pause, Patroni dead: does not lead');
says(qr/Patroni is paused and keeps this server a primary/, 'pause, Patroni dead');
poll_ok(30, sub { !$cluster->leader_key }, 'pause, Patroni dead: the key runs out');
poll_is(10, sub { $other->try_value('SELECT etcd_current_leader()') // 'none' }, 'none', 'pause: nobody leads');
is($leader->value('SELECT pg_is_in_recovery()::int'), 0, 'pause: and yet it is a primary');
$leader->start_patroni;
poll_is(30, sub { $leader->try_value('SELECT etcd_is_leader()::int') }, 1, 'pause, Patroni back: leads');
cmp_ok($leader->token, '>', $token, 'pause, Patroni back: with a new key');
$cluster->resume_cluster;

done_testing();
