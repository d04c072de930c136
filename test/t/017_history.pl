# etcd is replaced by a new etcd, or put back to an earlier state: the instances drop
# their beliefs, and nobody leads with a token that is not greater than
# an earlier one until that is asked for.
use EtcdLeader::Test;

my $ttl  = 3;
my $etcd = EtcdLeader::Etcd->new;
# many revisions, so that a fresh etcd is far behind
$etcd->etcdctl('put', 'noise', $_) for 1 .. 50;
my $pg1 = EtcdLeader::Instance->create('pg1', etcd => $etcd, settings => { ttl => $ttl });
$pg1->wait_until_leader;
my $token   = $pg1->token;
my $elector = $pg1->elector_pid;
my $mark    = $pg1->last_event;
my $sampler = $pg1->sample;
cmp_ok($token, '>', 50, 'the token is a revision');

# Another etcd at the same address, with nothing in it.
$etcd->kill(0);
my $gone = now();
$etcd->start(0, fresh => 1);
poll_ok(3 * $ttl, sub { grep { $_->{event} eq 'unelected' } $pg1->events($mark) }, 'replaced: leadership is lost');
poll_is(5 * $ttl, sub { $pg1->status->{state} }, 'held_back', 'replaced: it is first, but held back');
is($pg1->is_leader, 0, 'replaced: it does not lead');
is($pg1->token, undef, 'replaced: it has no token');
my ($key) = $etcd->candidates('postgres');
is($key && $key->{value}, 'pg1', 'replaced: its key stands in the new etcd');
cmp_ok($key->{create_revision}, '<', $token, 'replaced: with a lesser create revision');
pause(1);
is($pg1->is_leader, 0, 'replaced: and still does not lead');

# An elector that is started again has no lease, but knows which tokens were seen.
$pg1->value('SELECT pg_terminate_backend(?)', $elector);
poll_ok(10, sub { ($pg1->elector_pid // $elector) != $elector }, 'replaced: a new elector');
poll_is(5 * $ttl, sub { $pg1->status->{state} }, 'held_back', 'replaced: held back after a restart of the elector, too');
is($pg1->is_leader, 0, 'replaced: it does not lead then, either');
$elector = $pg1->elector_pid;

# The administrator says that it is all right.
$pg1->value('SELECT etcd_campaign()');
poll_ok(5, sub { $pg1->is_leader }, 'etcd_campaign(): it leads');
is($pg1->elector_pid, $elector, 'with the same elector');
my @runs = $sampler->stop;
my ($last) = reverse grep { $_->{answer} eq 't' && $_->{token} == $token } @runs;
cmp_ok($last->{b1}, '<=', $gone + $ttl * 0.9 + 0.02, 'it believed no longer than the lease less the margin');

# Once more; this time the revision of the new etcd passes the highest one seen.
$token = $pg1->token;
my $seen = $etcd->post('/v3/kv/range', { key => 'eA==' })->{header}{revision};
$etcd->etcdctl('put', 'noise', $_) for 1 .. 20;
# the instance has to have seen that
poll_ok(10, sub { $pg1->value('SELECT count(*) FROM etcd_candidates()') == 1 }, 'it has seen later revisions');
$etcd->kill(0);
$etcd->start(0, fresh => 1);
poll_is(5 * $ttl, sub { $pg1->status->{state} }, 'held_back', 'replaced again: held back');
$etcd->etcdctl('put', 'noise', $_) for 1 .. 60;
poll_ok(5 * $ttl, sub { $pg1->is_leader }, 'when the revision has passed what was seen, it leads');
cmp_ok($pg1->token, '>', $seen, 'under a token that is greater than what was seen');

done_testing();
