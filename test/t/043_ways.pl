# Ways to etcd: a load balancer (haproxy, before three members), a proxy before
# the JSON gateway, IPv6, a Unix socket; and the keys are the same.
use EtcdLeader::Test;
use EtcdLeader::Certificates;

my $dir  = PostgreSQL::Test::Utils::tempdir('ways');
my $ipv6 = PostgreSQL::Test::Cluster::get_free_port();
# etcd makes its socket in its own directory
chdir $dir or die "chdir: $!";
my $etcd = EtcdLeader::Etcd->new(members => 3, listen => [ "http://[::1]:$ipv6", 'unix://socket:1' ]);

my ($balanced, $gateway, $secured) = map { PostgreSQL::Test::Cluster::get_free_port() } 1 .. 3;
my $ca = EtcdLeader::Certificates->new;
my ($cert, $key) = $ca->sign('proxy', for => ['DNS:localhost']);
append_to_file("$dir/proxy.pem", slurp_file($cert) . slurp_file($key));
my $servers = join '', map { '    server e' . $_ . ' ' . ($etcd->url($_) =~ s{http://}{}r) . " check inter 200 fall 1 rise 1\n" } $etcd->all;
append_to_file("$dir/haproxy.cfg", <<"CFG");
defaults
    timeout connect 500ms
    timeout client 60s
    timeout server 60s
frontend balanced
    mode tcp
    bind 127.0.0.1:$balanced
    default_backend members
frontend gateway
    mode http
    bind 127.0.0.1:$gateway
    default_backend gateways
frontend secured
    mode http
    bind 127.0.0.1:$secured ssl crt $dir/proxy.pem
    default_backend gateways
backend members
    mode tcp
    balance roundrobin
$servers
backend gateways
    mode http
    balance roundrobin
$servers
CFG
my $haproxy = EtcdLeader::Util::Process->spawn(
	name => 'haproxy', log => "$PostgreSQL::Test::Utils::log_path/043_haproxy.log",
	cmd  => [ 'haproxy', '-db', '-f', "$dir/haproxy.cfg" ]);
poll_ok(10, sub { IO::Socket::INET->new("127.0.0.1:$secured") }, 'haproxy listens') or diag($haproxy->output);

my %ways = (
	balanced => { endpoints => "http://127.0.0.1:$balanced" },
	gateway  => { endpoints => "http://127.0.0.1:$gateway/", protocol => 'json' },
	secured  => { endpoints => "https://localhost:$secured", protocol => 'json', ssl_ca_file => $ca->ca },
	ipv6     => { endpoints => "http://[::1]:$ipv6" },
	socket   => { endpoints => "unix://$dir/socket:1" },
);
my %node = map { $_ => EtcdLeader::Instance->create($_, endpoints => $ways{$_}{endpoints}, settings => { ttl => 5, %{ $ways{$_} } }) } sort keys %ways;
$_->wait_until_candidate for values %node;
poll_ok(10, sub { grep { $_->is_leader } values %node }, 'somebody leads');

# Each leads in turn, and hears of it by its watch.
for (1 .. keys %ways)
{
	my ($leader) = grep { $_->is_leader } values %node;
	my ($next)   = map { $_->{value} } ($etcd->candidates('postgres'))[1];
	poll_ok(10, sub { $leader->value('SELECT count(*) FROM etcd_candidates()') == keys %ways }, $leader->name . ': etcd_candidates() tells of all');
	my $began = now();
	$leader->value('SELECT etcd_resign()');
	poll_ok(5, sub { $node{$next}->is_leader }, "$next leads next");
	in_time(now() - $began, 1, "$next: told by its watch, not by a renewal");
	is($node{$next}->status->{endpoint}, $ways{$next}{endpoints}, "$next: by its own way");
	poll_ok(10, sub { (map { $_->{value} } $etcd->candidates('postgres'))[-1] eq $leader->name }, $leader->name . ' queues again');
}

# A member behind the load balancer goes: no change of leader.
{
	my ($leader) = grep { $_->is_leader } values %node;
	while ($leader->name ne 'balanced')
	{
		$leader->value('SELECT etcd_resign()');
		poll(5, sub { grep { $_->is_leader && $_ != $leader } values %node });
		($leader) = grep { $_->is_leader } values %node;
	}
	my $token = $leader->token;
	my $sampler = $leader->sample;
	for my $i (1, 2)
	{
		$etcd->kill($i);
		pause(2);
		$etcd->start($i);
		$etcd->wait_until_serving;
		pause(1);
	}
	is($leader->token, $token, 'members behind a load balancer die: it leads on');
	my %runs = EtcdLeader::Sampler::check_exclusion([$sampler], 'balanced', max_gap => 2);
	is(scalar(grep { $_->{answer} eq 'f' } @{ $runs{balanced} }), 0, 'and was never in doubt');
}

$haproxy->stop;
done_testing();
