# Endpoints from DNS: ports, priorities, changes, a server that is gone or does
# not answer, TLS; a real DNS server (dnsmasq) in a network of the test's own.
use EtcdLeader::Namespace;
use EtcdLeader::Test;
use EtcdLeader::Certificates;

my $ttl = 5;
my $dir = PostgreSQL::Test::Utils::tempdir('dns');
my $ca  = EtcdLeader::Certificates->new;
# as for etcdctl: the certificates are for the domain, not for the hosts
my ($cert, $key) = $ca->sign('member', for => [ 'IP:127.0.0.1', 'DNS:tls.test', 'DNS:localhost' ]);
my $etcd = EtcdLeader::Etcd->new(members => 3, tls => [ '--cert-file' => $cert, '--key-file' => $key ]);
my @port = map { $etcd->url($_) =~ /:(\d+)$/ } $etcd->all;
my @tls  = map { /:(\d+)$/ } split /,/, $etcd->tls_endpoints;
my $dns;

# (Re)starts the DNS server with these records: [service, domain, member, port,
# priority].
sub serve
{
	my (@records) = @_;
	$dns->stop('KILL') if $dns;
	my $conf = "$dir/dnsmasq.conf";
	unlink $conf;
	append_to_file($conf, join '',
		"port=53\nlisten-address=127.0.0.1\nbind-interfaces\nno-resolv\nno-hosts\nlocal-ttl=5\nlocal=/test/\n",
		(map { "address=/m$_.hosts.test/127.0.0.1\n" } $etcd->all),
		map { my ($service, $domain, $i, $port, $priority) = @$_;
			"srv-host=_etcd-client$service._tcp.$domain,m$i.hosts.test,$port,$priority,10\n" } @records);
	my $user = getpwuid($>);
	$dns = EtcdLeader::Util::Process->spawn(
		name => 'dnsmasq', log => "$PostgreSQL::Test::Utils::log_path/044_dnsmasq.log",
		cmd  => [ '/usr/sbin/dnsmasq', '--keep-in-foreground', "--conf-file=$conf", '--pid-file', "--user=$user", '--log-facility=-' ]);
	poll(10, sub { (gethostbyname('m0.hosts.test'))[4] }) or die 'dnsmasq does not serve: ' . $dns->output;
	return;
}

sub plain { return [ '', 'plain.test', $_[0], $port[ $_[0] ], $_[1] ] }
sub url   { return "http://m$_[0].hosts.test:$port[$_[0]]" }

# Priorities, and a port of each.
serve(plain(0, 20), plain(1, 10), plain(2, 20), [ '-ssl', 'tls.test', 0, $tls[0], 0 ]);
my $pg1 = EtcdLeader::Instance->create('pg1', endpoints => 'http://127.0.0.1:1', settings => { ttl => $ttl, discovery_srv => 'plain.test' });
$pg1->wait_until_leader;
is($pg1->status->{endpoint}, url(1), 'the endpoint of the highest priority is used, not that of the settings');
my $token   = $pg1->token;
my $sampler = $pg1->sample;
$etcd->kill(1);
poll_ok($ttl, sub { $pg1->status->{endpoint} ne url(1) }, 'it is gone: another record is used');
$etcd->start(1);

# The records change: another member, refreshed by the TTL of DNS.
serve(plain(2, 0));
poll_ok(20, sub { $pg1->value('SELECT string_agg(url, $$ $$) FROM etcd_leader_endpoints') eq url(2) }, 'other records: used when those before have lived their time');

# A lookup that finds the same is no change of the settings: the cluster is not
# looked at anew.
{
	my $lists  = 'grpc_server_handled_total{grpc_code="OK",grpc_method="MemberList",grpc_service="etcdserverpb.Cluster",grpc_type="unary"}';
	poll_ok(10, sub { $etcd->metric($lists, 2) > 0 }, 'the members were asked for');
	# the effects of the change may take a while; each 11 s have some lookups
	my ($before, $after) = (0, 1);
	for (1 .. 4)
	{
		last if $before == $after;
		$before = $etcd->metric($lists, 2);
		pause(11);
		$after = $etcd->metric($lists, 2);
	}
	is($after, $before, 'the same records: nothing is asked for anew');
}

# The DNS server is gone, then it hangs: its last answer stays in use.
for my $how (qw(KILL STOP))
{
	serve(plain(2, 0), plain(0, 10));
	pause(6);
	$dns->signal($how);
	my $offset = $pg1->log_size;
	$pg1->reload;
	poll_ok(20, sub { ($pg1->status->{last_error} // '') =~ /could not look up the SRV records for "_etcd-client-ssl\._tcp\.plain\.test"/ }, "DNS gone ($how): last_error says so");
	pause($ttl);
	is($pg1->token, $token, "DNS gone ($how): it leads on");
	is($pg1->status->{connected}, 1, "DNS gone ($how): in contact");
	cmp_ok($pg1->log_count('WARNING:  could not look up', $offset), '<=', 1, "DNS gone ($how): the log says it once");
}
{
	my $pg3 = EtcdLeader::Instance->create('pg3', endpoints => 'http://127.0.0.1:1', settings => { ttl => $ttl, discovery_srv => 'plain.test' });
	is($pg3->is_leader, 0, 'DNS hangs at the start: the server is up, and does not lead');
	my $began = now();
	$pg3->stop('fast');
	in_time(now() - $began, 2, 'DNS hangs: and stops as quickly as ever');
}
$dns->signal('CONT');

# TLS: the certificate has to be valid for the domain.  With TLS configured, other endpoints are not used.
{
	serve(plain(0, 0), [ '-ssl', 'tls.test', 0, $tls[0], 0 ], [ '-ssl', 'other.test', 0, $tls[0], 0 ]);
	my $pg2 = EtcdLeader::Instance->create('pg2', endpoints => 'http://127.0.0.1:1', settings => { ttl => $ttl, discovery_srv => 'tls.test', ssl_ca_file => $ca->ca });
	poll_ok(15, sub { $pg2->status->{connected} }, 'TLS: in contact') or diag(EtcdLeader::Instance::explain_status($pg2));
	is($pg2->status->{endpoint}, "https://m0.hosts.test:$tls[0]", 'TLS: by the host of the record');
	$pg2->wait_until_sees('pg1');
	$pg2->configure(discovery_srv => 'other.test');
	poll_ok(15, sub { ($pg2->status->{last_error} // '') =~ /certificate of etcd .* is not valid.*other\.test/ }, 'a certificate of another domain is not valid')
	  or diag($pg2->status->{last_error});
	$pg2->configure(discovery_srv => 'plain.test');
	poll_ok(15, sub { ($pg2->status->{last_error} // '') =~ /no SRV records for "_etcd-client-ssl\._tcp\.plain\.test"/ }, 'with an authority set, records without TLS do not count')
	  or diag($pg2->status->{last_error});
	unlike($pg2->status->{endpoint}, qr/^http:/, 'nor are they used');
	$pg2->configure(discovery_srv => undef, node_name => 'back');
	# the elector has read all of these settings, and none of the next
	poll_is(15, sub { $pg2->status->{node} }, 'back', 'back to the first: by the elector');
	poll_ok(15, sub { $pg2->status->{connected} }, 'back to the first: in contact');

	# nor where there is a password to lose
	append_to_file("$dir/password", "geheim\n");
	chmod 0600, "$dir/password";
	my $before = $pg2->value('SELECT clock_timestamp()');
	$pg2->configure(discovery_srv => 'plain.test', ssl_ca_file => '', username => 'root', password_file => "$dir/password");
	poll_ok(15, sub { $pg2->value(q{SELECT last_error_at > ? AND last_error ~ 'no SRV records for "_etcd-client-ssl\._tcp\.plain\.test"' FROM etcd_leader_status}, $before) },
		'with a user, records without TLS do not count') or diag($pg2->status->{last_error});
	unlike($pg2->status->{endpoint}, qr/^http:/, 'nor are they used');
	$pg2->configure(discovery_srv => undef, ssl_ca_file => undef, username => undef);
	poll_ok(15, sub { $pg2->status->{connected} }, 'back to the first: in contact');
}

my %runs = EtcdLeader::Sampler::check_exclusion([$sampler], 'DNS', max_gap => 2);
is(scalar(grep { $_->{answer} eq 'f' } @{ $runs{pg1} }), 0, 'all that time it led, without a doubt');

# A user is set after an endpoint without TLS was found: it gets no password,
# not even if it asks for one.
{
	my $asked = sub { return eval { $etcd->metric('grpc_server_handled_total{grpc_code="OK",grpc_method="Authenticate",grpc_service="etcdserverpb.Auth",grpc_type="unary"}') } // 0 };
	$pg1->configure(username => 'root', password_file => "$dir/password");
	poll_ok(15, sub { $pg1->value(q{SELECT count(*) FROM etcd_leader_problems WHERE problem ~ 'no SRV records for "_etcd-client-ssl'}) }, 'a user is set: records with TLS are looked for')
	  or diag(map { "$_->{problem}\n" } $pg1->rows('SELECT problem FROM etcd_leader_problems'));
	$etcd->etcdctl(qw(user add root:geheim));
	$etcd->etcdctl(qw(user grant-role root root));
	my $before = $asked->();
	$etcd->etcdctl(qw(auth enable));
	poll_ok(15, sub { ($pg1->status->{last_error} // '') =~ /user name is empty|etcd_leader\.username/ }, 'etcd asks for a password: last_error says so') or diag($pg1->status->{last_error});
	pause($ttl);
	is($asked->(), $before, 'and gets none');
	ok(!$pg1->is_leader, 'nor is there a leader');
}
done_testing();
