# HTTP on hosts that are cut off from etcd, while their clients still reach them.  Two
# instances never answer 200 for /leader at the same time; each is asked every
# millisecond.  Each instance has a host of its own, in networks of the test.  Packets
# are dropped, and no connection is refused.
#
# ETCD_LEADER_ROUNDS: how often the leader is cut off (10).
use EtcdLeader::Namespace;
use EtcdLeader::Test;
use EtcdLeader::Http;

my $rounds = $ENV{ETCD_LEADER_ROUNDS} || 10;
my $ttl    = 3;
my $port   = 8010;
watchdog(100 + 40 * $rounds);

my $hosts = EtcdLeader::Namespace::make_hosts(3);
my $etcd  = EtcdLeader::Etcd->new(hosts => [ [ undef, '10.1.0.254', '10.1.0.254' ] ]);
my @nodes = map {
	EtcdLeader::Instance->create("pg$_", etcd => $etcd, host => $hosts->[$_][0], settings => { ttl => $ttl, http_listen => "$hosts->[$_][1]:$port" })
} 0 .. 2;
$_->wait_until_candidate for @nodes;

sub says { my ($i) = @_; return http_code($port, '/leader', host => $hosts->[$i][1]) }

poll_is(20, sub { join ' ', sort map { says($_) } 0 .. 2 }, '200 503 503', 'one leads');
my @samplers = map { $nodes[$_]->sample(host => $hosts->[$_][1], port => $port, interval => 0.001) } 0 .. 2;
my @took;
for my $round (1 .. $rounds)
{
	my ($old) = grep { says($_) == 200 } 0 .. 2;
	my $began = now();
	EtcdLeader::Namespace::pull("etcd$old");
	my ($false, $true);
	poll_ok(3 * $ttl, sub {
		$false //= now() if says($old) == 503;
		$true  //= now() if grep { $_ != $old && says($_) == 200 } 0 .. 2;
		return $false && $true;
	}, "round $round: 503 there, and 200 on another");
	cmp_ok($false - $began, '<', $ttl, "round $round: the old leader ends within the TTL");
	cmp_ok($false, '<', $true, "round $round: the next one leads after that");
	push @took, sprintf '%.1f/%.1f', $false - $began, $true - $began;
	# it stays so while it is cut off
	pause(1);
	is(says($old), 503, "round $round: 503 as long as it is cut off");
	EtcdLeader::Namespace::plug("etcd$old", 'etcds');
	$nodes[$old]->wait_until_candidate;
}
diag("seconds from the cut to 503 there and to 200 on another: @took");
EtcdLeader::Sampler::check_exclusion(\@samplers, 'cut off', max_gap => 2);
done_testing();
