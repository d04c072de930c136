# The log speaks at the start: whoever makes a mistake in the set-up reads in the
# server log, some seconds after the start or a reload, the fault and its
# remedy.
use EtcdLeader::Test;
use EtcdLeader::Certificates;

my $ca = EtcdLeader::Certificates->new;
my ($server_cert, $server_key) = $ca->sign('server', for => ['IP:127.0.0.1']);
append_to_file("$ca->{dir}/trusted.crt", slurp_file($ca->ca));
my $etcd = EtcdLeader::Etcd->new(
	tls => [ '--cert-file' => $server_cert, '--key-file' => $server_key, '--trusted-ca-file' => "$ca->{dir}/trusted.crt", '--client-cert-auth' ]);
my $tls    = $etcd->tls_endpoints;
my $plain  = $etcd->endpoints;
my $closed = 'http://127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port();

# The fault; the settings; DETAIL and HINT.
my @mistakes = (
	[ 'nobody listens', { endpoints => $closed }, qr/could not connect to etcd at "$closed": Connection refused/, qr/Check that etcd runs there/ ],
	[ 'no such host', { endpoints => 'http://nowhere.invalid:2379' }, qr/could not resolve host|could not connect to etcd at "http:\/\/nowhere\.invalid:2379"/, qr/Check / ],
	[ 'TLS to plain HTTP', { endpoints => $plain =~ s/http/https/r }, qr/no TLS connection to etcd/, qr/speaks http/ ],
	[ 'another authority', { endpoints => $tls }, qr/certificate of etcd at "\Q$tls\E" is not valid: .*etcd_leader\.ssl_ca_file/, qr/Set "etcd_leader\.ssl_ca_file"/ ],
	[ 'no certificate', { endpoints => $tls, ssl_ca_file => $ca->ca }, qr/etcd at "\Q$tls\E" requires a client certificate that it trusts/, qr/Set "etcd_leader\.ssl_cert_file"/ ],
);

# All of them at the start, each on a server of its own.  The time-outs are so long that a
# busy host does not reach them first.
my $n = 0;
my @nodes;
for my $mistake (@mistakes)
{
	my ($what, $settings) = @$mistake;
	push @nodes, EtcdLeader::Instance->create('pg' . ++$n, endpoints => $closed, settings => { ttl => 20, %$settings }, extension => 0);
}
for my $i (0 .. $#nodes)
{
	my ($what, undef, $detail, $hint) = @{ $mistakes[$i] };
	my $node = $nodes[$i];
	poll_ok(20, sub { $node->log_count('WARNING:  no contact with etcd, so this instance cannot become or stay leader: ') }, "$what: the log says so");
	my ($text) = slurp_file($node->logfile) =~ /(WARNING:  no contact with etcd[^\n]*\n[^\n]*HINT:  [^\n]*\n)/;
	like($text, qr/become or stay leader: .*$detail/, "$what: with the last error");
	like($text, qr/HINT:  .*$hint/, "$what: and what to do");
}
pause(1);
is($_->log_count('no contact with etcd'), 1, $_->name . ': once') for @nodes;

# A reload that does not mend the fault is no news; a reload that does ends it.
my $node = $nodes[0];
my $offset = $node->log_size;
$node->configure(ttl => 6);
poll_is(8, sub { $node->value('SHOW etcd_leader.ttl') }, '6s', 'a reload');
pause(4);
is($node->log_count('WARNING:  no contact with etcd', $offset), 0, 'the log does not say so again');
$offset = $node->log_size;
$node->configure(endpoints => $plain);
poll_ok(8, sub { $node->log_count('LOG:  connected to etcd', $offset) }, 'put right: contact');
poll_ok(8, sub { $node->log_count('LOG:  this problem is over: no contact with etcd', $offset) }, 'and the end of the problem');
pause(3.5);
is($node->log_count('WARNING', $offset), 0, 'and no warning');

done_testing();
