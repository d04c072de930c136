# A follower of Patroni's key on a host that is cut off from etcd, while Patroni's
# failsafe_mode keeps the server there a primary.  Packets are dropped, nothing is
# refused: each member has a host of its own, in networks that the test made.
# long/063_patroni_cut.pl has the rest of it, without failsafe_mode, too.
use EtcdLeader::Namespace;
use EtcdLeader::Test;
use EtcdLeader::Patroni;

my $hosts   = EtcdLeader::Namespace::make_hosts(2);
my $etcd    = EtcdLeader::Etcd->new(hosts => [ [ undef, '10.1.0.254', '10.1.0.254' ] ]);
my $cluster = EtcdLeader::Patroni->new(etcd => $etcd, members => 2, hosts => $hosts, dcs => { failsafe_mode => JSON::PP::true() });
my ($granted) = $etcd->lease($cluster->leader_key->{lease});
my $leader = $cluster->primary;
$leader->wait_until_leader;
my $token    = $leader->token;
my $samplers = $cluster->sample;
poll_ok(20, sub { $etcd->keys($cluster->prefix . 'failsafe') }, 'Patroni knows of failsafe_mode');

my $began = now();
EtcdLeader::Namespace::pull('etcd' . $leader->number);
poll_is($granted + 2, sub { $leader->value('SELECT etcd_is_leader()::int') }, 0, 'cut off: false');
cmp_ok(now() - $began, '<', $granted, 'cut off: within the TTL');
is($cluster->leader_key->{value}, $leader->name, 'cut off: before its key is gone');
poll_ok(2 * $granted, sub { !$cluster->leader_key }, 'cut off: the key runs out');
is($leader->value('SELECT pg_is_in_recovery()::int'), 0, 'cut off: it stays a primary');
poll_ok(5, sub { ($leader->status->{last_error} // '') =~ /failsafe_mode may keep this server a primary/ }, 'cut off: last_error says why');
is(join(' ', map { $_->value('SELECT etcd_is_leader()::int') } $cluster->members), '0 0', 'cut off: nobody leads');
EtcdLeader::Namespace::plug('etcd' . $leader->number, 'etcds');
$leader->wait_until_leader;
cmp_ok($leader->token, '>', $token, 'back: it leads again, with a greater token');

EtcdLeader::Sampler::check_exclusion($samplers, 'cut off', max_gap => 2);
done_testing();
