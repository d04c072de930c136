# An election that follows Patroni's key, and faults between it and etcd: a silent
# watch, a change of the key without a watch, a compaction.
# long/068_patroni_etcd_leader.pl tests a leader of etcd that is stopped and woken.
use EtcdLeader::Test;
use EtcdLeader::Patroni;
use EtcdLeader::Relay;

watchdog(400);

my $etcd    = EtcdLeader::Etcd->new(members => 3);
my @relays  = map { EtcdLeader::Relay->new($etcd->url(0)) } 0 .. 1;
my $cluster = EtcdLeader::Patroni->new(etcd => $etcd, members => 2, elector_relays => \@relays, settings => { ttl => 5 });
my %relay   = map { $cluster->member($_)->name => $relays[$_] } 0 .. 1;
my ($granted) = $etcd->lease($cluster->leader_key->{lease});
my $leader  = $cluster->primary;
my ($other) = $cluster->others($leader);

$leader->wait_until_leader;
my $samplers = $cluster->sample;
my %elector = map { $_->name => $_->elector_pid } $cluster->members;

# ---- only the elector is cut off from etcd ----------------------------------------------

my $token = $leader->token;
$relay{ $leader->name }->cut;
poll_is($granted + 2, sub { $leader->value('SELECT etcd_is_leader()::int') }, 0, 'elector cut off: it does not lead any more');
is($cluster->leader_key->{value}, $leader->name, "elector cut off: Patroni's key stays");
pause($granted);
$relay{ $leader->name }->mend;
poll_is(5, sub { $leader->value('SELECT etcd_is_leader()::int') }, 1, 'elector back: leads');
is($leader->token, $token, 'elector back: under the same token');
is($leader->log_count('WARNING:  etcd at ".*" has version'), $etcd->is_old, 'elector back: the warning of an old etcd is not repeated');

# ---- the key expires while there is no watch, and etcd is compacted ---------------------

$relay{ $other->name }->cut;
poll_is(20, sub { $other->status->{connected} }, 0, 'replica cut off');
my $frozen = now();
$leader->kill_patroni;
poll_ok(30, sub { my $k = $cluster->leader_key; !$k || $k->{value} ne $leader->name }, 'meanwhile the key expires');
is($leader->value('SELECT etcd_is_leader()::int'), 0, 'the old leader does not lead by then');
my ($new, $old) = ($cluster->wait_for_primary($other), $leader);
is($new->value('SELECT etcd_is_leader()::int'), 0, 'the new leader does not know that yet');
$etcd->etcdctl('put', 'noise', $_) for 1 .. 20;
my $revision = $etcd->post('/v3/kv/range', { key => 'eA==' })->{header}{revision};
$etcd->etcdctl('compact', $revision);
$relay{ $new->name }->mend;
poll_is(5, sub { $new->value('SELECT etcd_is_leader()::int') }, 1, 'the watch is back: it leads');
is($new->value('SELECT etcd_current_leader()'), $new->name, 'the watch is back: it shows itself as the leader');
is($new->elector_pid, $elector{ $new->name }, 'the watch is back: the elector was not restarted');
$old->start_patroni;
poll_is(60, sub { $old->try_value('SELECT pg_is_in_recovery()::int') }, 1, 'the old leader is demoted');
$cluster->wait_until_streaming;

# ---- a watch that is silent --------------------------------------------------------------

($leader, $other) = ($new, $old);
$leader->wait_until_leader;
$relay{ $other->name }->stall_watches;
my $before = $leader->token;
$cluster->switchover($other);
$cluster->wait_for_primary($other);
my $took = poll_is($granted, sub { $other->value('SELECT etcd_is_leader()::int') }, 1, 'silent watch: the new one leads at the next renewal');
in_time($took - $granted / 3, 1, sprintf 'silent watch: after %.2f s, a renewal is due each %.2f s', $took, $granted / 3);
cmp_ok($other->token, '>', $before, 'silent watch: with a greater token');
$cluster->wait_until_streaming;

# the key of a leader is deleted while its watch is silent
my $key = $cluster->leader_key;
$other->kill_patroni;
$etcd->etcdctl('del', $cluster->prefix . 'leader');
$took = poll_is($granted, sub { $other->value('SELECT etcd_is_leader()::int') }, 0, 'silent watch: the key is gone');
in_time($took - $granted / 3, 1, sprintf 'silent watch: seen after %.2f s', $took);
$other->start_patroni;
poll_ok(60, sub { my $p = $cluster->leader; $p && ($p->try_value('SELECT etcd_is_leader()::int') // 0) && $cluster->primaries == 1 }, 'silent watch: there is a leader again');
$cluster->wait_until_streaming;

# another program has deleted that key, so leaderships may overlap until the renewal
EtcdLeader::Sampler::check_exclusion($samplers, 'etcd and the elector', max_gap => 2, evicted => { $key->{create_revision} => $granted });

done_testing();
