# etcd by TLS: authorities, names, client certificates, protocol versions; all
# of them changed while an instance leads.
use EtcdLeader::Test;
use EtcdLeader::Certificates;

my $ttl = 5;
my $ca  = EtcdLeader::Certificates->new;
my ($server_cert, $server_key) = $ca->sign('server', for => ['IP:127.0.0.1']);
my ($client_cert, $client_key) = $ca->sign('client');
# The gateway is a client of its own etcd, with the server's certificate: so
# that has to be trusted as one of a client, too.
my $trusted = "$ca->{dir}/trusted.crt";
append_to_file($trusted, slurp_file($ca->ca));
my $etcd = EtcdLeader::Etcd->new(
	tls => [
		'--cert-file' => $server_cert, '--key-file' => $server_key,
		'--trusted-ca-file' => $trusted, '--client-cert-auth'
	]);
my %tls   = (ssl_ca_file => $ca->ca, ssl_cert_file => $client_cert, ssl_key_file => $client_key);
my @nodes = map {
	EtcdLeader::Instance->create($_, endpoints => $etcd->tls_endpoints, settings => { ttl => $ttl, %tls })
} qw(pg1 pg2);
my ($pg1, $pg2) = @nodes;
$_->wait_until_candidate for @nodes;
$pg1->wait_until_leader;
like($pg1->status->{endpoint}, qr/^https:/, 'the leader speaks TLS');

# A hand-over: the watch works, too.
{
	$pg2->wait_until_sees('pg1');
	my $began = now();
	$pg1->value('SELECT etcd_resign()');
	poll_ok(10, sub { $pg2->is_leader }, 'a hand-over by TLS');
	cmp_ok(now() - $began, '<', $ttl / 3, 'as soon as told by the watch');
	$pg1->wait_until_candidate;
	$pg2->value('SELECT etcd_resign()');
	$pg1->wait_until_leader;
	$pg2->wait_until_candidate;
}

my $token   = $pg1->token;
my $sampler = $pg1->sample;

# The message of each fault helps; $pg2 gets the fault, and then all is well
# again.  The log has the message once, with the remedy.
my %hints = (
	'another authority' => qr/Set "etcd_leader\.ssl_ca_file"/,
	'another name' => qr/Add the host to the certificate's subjectAltName/,
	'no certificate' => qr/Set "etcd_leader\.ssl_cert_file"/,
	'a certificate of another authority' => qr/Have the certificate signed/,
	'a certificate of the future' => qr/Correct the clock/,
	'a key of another certificate' => qr/Set "etcd_leader\.ssl_key_file"/,
	'plain HTTP to TLS' => qr/If it is a port for TLS/);

sub goes_wrong
{
	my ($what, $settings, @patterns) = @_;
	my $offset = $pg2->log_size;
	$pg2->configure(%$settings);
	my ($problems, $text) = ('');
	poll(15, sub { $problems = join "\n", map { $_->{problem} } $pg2->rows('SELECT problem FROM etcd_leader_problems'); return !grep { $problems !~ $_ } @patterns; });
	like($problems, $_, "$what: a problem says so") for @patterns;
	($text) = grep { $_ =~ $patterns[0] } split /\n/, $problems;
	my $hint = $hints{$what};
	poll_ok(5, sub { slurp_file($pg2->logfile, $offset) =~ /HINT:  $hint/ }, "$what: the log says what to do") if $hint;
	pause(1);
	my $error = '(?:LOG|WARNING):  ' . quotemeta($text // '?');
	cmp_ok($pg2->log_count($error, $offset), '<=', 1, "$what: the log says it once at most");
	cmp_ok($pg2->log_count('etcd_leader elector .*LOG:', $offset), '<=', 8, "$what: and has no line per retry")
	  or diag(PostgreSQL::Test::Utils::slurp_file($pg2->logfile, $offset));
	$pg2->configure(map { $_ => ($tls{$_} // ($_ eq 'endpoints' ? $etcd->tls_endpoints : undef)) } keys %$settings);
	my $put_right = $pg2->value('SELECT clock_timestamp()');
	poll_ok(15, sub { $pg2->value('SELECT connected AND last_contact > ? FROM etcd_leader_status', $put_right) },
		"$what: put right, there is contact again") or diag(EtcdLeader::Instance::explain_status($pg2));
	return;
}

my $other_ca = EtcdLeader::Certificates->new;
my ($other_cert, $other_key) = $other_ca->sign('client');
goes_wrong('another authority', { ssl_ca_file => $other_ca->ca }, qr/certificate of etcd .* is not valid/, qr/etcd_leader\.ssl_ca_file/);
goes_wrong('no authority', { ssl_ca_file => '' }, qr/certificate of etcd .* is not valid/);
goes_wrong('another name', { endpoints => $etcd->tls_endpoints('localhost') }, qr/certificate of etcd .* is not valid.*localhost/);
goes_wrong('no such file', { ssl_ca_file => '/nowhere/ca.crt' }, qr{/nowhere/ca\.crt});
goes_wrong('no certificate', { ssl_cert_file => '', ssl_key_file => '' }, qr/etcd at "https:\S+" requires a client certificate that it trusts \(alert /);
goes_wrong('a certificate of another authority', { ssl_cert_file => $other_cert, ssl_key_file => $other_key },
	qr/etcd at "https:\S+" does not accept the client certificate \(alert .*no authority in "etcd_leader\.ssl_ca_file" has signed it/);
my ($early_cert, $early_key) = $ca->sign('early', between => [ 86400, 172800 ]);
goes_wrong('a certificate of the future', { ssl_cert_file => $early_cert, ssl_key_file => $early_key },
	qr/does not accept the client certificate \(alert .*: the certificate is not valid before 2/);
goes_wrong('a key of another certificate', { ssl_key_file => $other_key },
	qr/could not use the files of "etcd_leader\.ssl_cert_file".*: the private key does not belong to the certificate/);
goes_wrong('plain HTTP to TLS', { endpoints => $etcd->tls_endpoints =~ s/https/http/r }, qr/HTTP request to an HTTPS server|closed the connection|HTTP status 400/);
goes_wrong('TLS to plain HTTP', { endpoints => $etcd->endpoints =~ s/http/https/r }, qr/no TLS connection to etcd/);

# A key that others can read is not used: said with the permissions it needs.
{
	my $readable = "$client_key.readable";
	PostgreSQL::Test::Utils::append_to_file($readable, PostgreSQL::Test::Utils::slurp_file($client_key));
	chmod 0644, $readable;
	my $offset = $pg2->log_size;
	$pg2->configure(ssl_key_file => $readable);
	poll_ok(10, sub { $pg2->log_count('file ".*" ."etcd_leader.ssl_key_file". has group or world access', $offset) }, 'a readable key: the log says so');
	$pg2->configure(ssl_key_file => $client_key);
	poll_ok(15, sub { $pg2->status->{connected} }, 'a readable key: put right');
}

# A key with a passphrase asks nobody.
{
	my $locked = "$client_key.locked";
	EtcdLeader::Certificates::openssl('rsa', '-aes128', '-passout', 'pass:geheim', '-in', $client_key, '-out', $locked);
	chmod 0600, $locked;
	goes_wrong('a key with a passphrase', { ssl_key_file => $locked }, qr/could not use the files of "etcd_leader\.ssl_cert_file"/);
}

# Certificates of both sides are rotated, authority and all, while it leads.
{
	my $new = EtcdLeader::Certificates->new;
	my $both = "$ca->{dir}/both.crt";
	append_to_file($both, slurp_file($ca->ca) . slurp_file($new->ca));
	append_to_file($trusted, slurp_file($new->ca));
	$_->configure(ssl_ca_file => $both) for @nodes;
	my ($cert, $key) = $new->sign('server', for => ['IP:127.0.0.1']);
	for ([ $cert, $server_cert ], [ $key, $server_key ])
	{
		my ($from, $to) = @$_;
		rename $from, $to or die "rename: $!";
	}
	# etcd reads them for each connection; and to make new connections:
	$etcd->kill(0);
	$etcd->start(0);
	poll_ok(10, sub { $pg1->status->{connected} && !$pg1->value(q{SELECT count(*) FROM etcd_leader_problems WHERE item IN ('contact', 'endpoint')}) },
		"etcd's certificate is rotated: contact");
	$ca->sign('client');
	$_->reload for @nodes;
	$etcd->kill(0);
	$etcd->start(0);
	for my $node (@nodes)
	{
		poll_ok(10, sub { $node->value(q{SELECT connected AND last_contact > now() - interval '2 s' FROM etcd_leader_status}) },
			'our certificate is rotated: ' . $node->name . ' has contact');
	}
	$pg2->wait_until_candidate;
}

# TLS 1.3 or nothing.
{
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	my ($cert, $key) = $ca->sign('old', for => ['IP:127.0.0.1']);
	my $server = EtcdLeader::Util::Process->spawn(
		name => 'openssl s_server', log => "$ca->{dir}/s_server.log",
		cmd  => [ 'openssl', 's_server', '-accept', "127.0.0.1:$port", '-cert', $cert, '-key', $key, '-tls1_2', '-www', '-quiet' ]);
	goes_wrong('TLS 1.2 where 1.3 is asked for',
		{ endpoints => "https://127.0.0.1:$port", ssl_min_protocol_version => 'TLSv1.3' }, qr/no TLS connection to etcd.*(?:version|protocol)/);
}

# Expired: no new connection; the open connections go on, and so does the leader.
{
	$ca->sign('server', for => ['IP:127.0.0.1'], days => 0);
	pause(1.1);
	for ([ "$ca->{dir}/server.crt", $server_cert ], [ "$ca->{dir}/server.key", $server_key ])
	{
		my ($from, $to) = @$_;
		rename $from, $to or die "rename: $!" if $from ne $to;
	}
	$etcd->kill(0);
	# newer releases of etcd do not even serve themselves
	$etcd->start(0, wait => 0);
	poll_ok(15, sub { !$pg1->is_leader }, 'an expired certificate: nobody leads');
	poll_ok(10, sub { ($pg1->status->{last_error} // '') =~ /certificate of etcd .* is not valid: .*expired/ }, 'and last_error says why')
	  or diag($pg1->status->{last_error});
	my %runs = EtcdLeader::Sampler::check_exclusion([$sampler], 'TLS', max_gap => 2);
	is(join(' ', do { my %t; grep { !$t{$_}++ } map { $_->{token} } grep { $_->{answer} eq 't' } @{ $runs{pg1} } }), $token,
		'all that time it led under one token');
	my @false = grep { $_->{answer} eq 'f' } @{ $runs{pg1} };
	is(scalar(@false), 1, 'and not a moment without, until the certificate expired');
	$ca->sign('server', for => ['IP:127.0.0.1']);
	poll_ok(15, sub { grep { $_->is_leader } @nodes }, 'a valid one: somebody leads, without a restart');
}

is($_->log_count('PRIVATE KEY|geheim'), 0, $_->name . ': no secret is in the log') for @nodes;
done_testing();
