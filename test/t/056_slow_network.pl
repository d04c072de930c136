# A network that is slower than the time-outs: the log and the check say that it is
# the time-out that is too short, and which setting to raise.  A round trip takes
# 300 ms.
use EtcdLeader::Namespace;
use EtcdLeader::Test;
use FindBin;
use lib "$FindBin::RealBin/../chaos/lib";
use Chaos::Network;

my $network = Chaos::Network->new(seed => 1, hosts => { etcd => '10.1.0.1', pg => '10.1.0.2' });
my $etcd    = EtcdLeader::Etcd->new(hosts => [ [ $network->host('etcd'), $network->address('etcd'), $network->address('etcd') ] ]);
my $url     = $etcd->endpoints;
$network->add('pg', 'etcd', delay => 0.15);
$network->add('etcd', 'pg', delay => 0.15);
my $node = EtcdLeader::Instance->create('pg1', endpoints => $url, settings => { ttl => 2 }, host => $network->host('pg'));

poll_ok(10, sub { $node->log_count('WARNING:  no contact with etcd') }, 'no contact');
my ($text) = slurp_file($node->logfile) =~ /(WARNING:  no contact with etcd[^\n]*\n[^\n]*HINT:  [^\n]*\n)/;
# a busy host may find the connection made before it looks at the clock
like($text, qr/become or stay leader: (?:could not connect to|no answer from) etcd at "\Q$url\E" within 222 ms/, 'the time-out');
like($text, qr/HINT:  If the network (?:or etcd )?is slower than that, the time-out is too short: raise "etcd_leader\.ttl"/, 'and the setting');

my ($row) = $node->rows(q{SELECT * FROM etcd_leader_check('10 s') WHERE item = 'contact'});
is($row->{severity}, 'error', 'the check has it');
like($row->{hint}, qr/^If the network (?:or etcd )?is slower than that, the time-out is too short: raise "etcd_leader\.ttl"/, 'with the setting');

# With a TTL for such a network, it leads.
$node->configure(ttl => 10);
$node->restart;
$node->wait_until_leader;
is($node->value(q{SELECT count(*) FROM etcd_leader_check('10 s') WHERE item IN ('contact', 'endpoint')}), 0, 'a longer TTL: the check has no complaint');
$node->stop;
$network->stop;
done_testing();
