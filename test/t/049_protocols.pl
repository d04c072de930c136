# The wire protocol is the administrator's choice: gRPC, or the JSON of etcd's gateway.
# An endpoint that does not speak gRPC is an error that names the setting.
use EtcdLeader::Test;
use EtcdLeader::Certificates;
use EtcdLeader::Listener;
use EtcdLeader::Relay;

my $ttl  = 3;
my $etcd = EtcdLeader::Etcd->new;

sub create { my ($name, %settings) = @_; return EtcdLeader::Instance->create($name, etcd => $etcd, settings => { ttl => $ttl, elections => 'postgres', endpoints => $etcd->url(0), %settings }) }
sub protocol { return $_[0]->status->{protocol} // '' }

# Leads, under the token that it had.
sub still_leads
{
	my ($node, $token, $what) = @_;
	my $seen = $node->value('SELECT clock_timestamp()');
	poll_ok(10, sub { $node->value('SELECT connected AND last_contact > ? FROM etcd_leader_status', $seen) }, "$what: there is contact");
	is($node->token, $token, "$what: it leads on under its token");
	return;
}

# ---- the setting ----------------------------------------------------------------------

my $pg1 = create('pg1');
$pg1->wait_until_leader;
is(protocol($pg1), 'grpc', 'it is gRPC by default');
my $token = $pg1->token;
for my $protocol (qw(json grpc json grpc))
{
	$pg1->configure(protocol => $protocol);
	poll_is(10, sub { protocol($pg1) }, $protocol, "a reload: $protocol");
	still_leads($pg1, $token, "a reload: $protocol");
}

# The connections of gRPC do not outlive it, and those of JSON are kept.
{
	my $relay = EtcdLeader::Relay->new($etcd->url(0));
	my $changed = create('changed', elections => 'changed', endpoints => $relay->url);
	$changed->wait_until_leader('changed');
	$changed->configure(protocol => 'json');
	poll_is(10, sub { protocol($changed) }, 'json', 'a reload: JSON');
	pause($ttl);
	my $connections = $relay->connections;
	pause(2 * $ttl);
	# two requests that overlap use two
	cmp_ok($relay->connections - $connections, '<=', 2, 'in JSON connections are kept');
	$changed->stop;
}

# Both sorts of candidates are one queue.
my $pg2 = create('pg2', protocol => 'json');
$pg2->wait_until_candidate;
is(protocol($pg2), 'json', 'the second one speaks JSON');
for my $next ($pg2, $pg1)
{
	my ($leader) = grep { $_ != $next } $pg1, $pg2;
	my $began = now();
	$leader->value('SELECT etcd_resign()');
	poll_ok(10, sub { $next->is_leader }, $next->name . ' takes over');
	cmp_ok(now() - $began, '<', $ttl / 3, 'told by its watch');
	$leader->wait_until_candidate;
}

# ---- an endpoint that speaks HTTP/1 only ----------------------------------------------

my $old = EtcdLeader::Relay->new($etcd->url(0), http2 => 'refused');
my $pg3 = create('pg3', elections => 'other', endpoints => $old->url);
my $names = qr/no answer in gRPC \("etcd_leader\.protocol"\) from etcd at "\Q${\$old->url}\E": it answers in HTTP\/1/;
poll_ok(10, sub { ($pg3->status->{last_error} // '') =~ $names }, 'a proxy that passes HTTP/1 alone: last_error names the setting') or diag($pg3->status->{last_error});
poll_ok(10, sub { ($pg3->value('SELECT last_error FROM etcd_leader_endpoints WHERE in_use') // '') =~ $names }, 'that of the endpoint, too');
poll_ok(10, sub { $pg3->log_count($names) }, 'and the log');
poll_ok(10, sub { $pg3->log_count(qr/HINT:  If there is a proxy, let it pass gRPC, or set "etcd_leader\.protocol" to "json"\./) }, 'with a hint');
my $row;
my $check = sub { return map { join '|', map { $_ // '' } @{$_}{qw(item severity problem hint)} } $pg3->rows(q{SELECT * FROM etcd_leader_check() WHERE item = 'contact'}) };
poll_ok(10, sub { ($row) = $check->(); $row =~ /^contact\|error\|.*$names\|If there is a proxy/ }, 'and etcd_leader_check()') or diag($row);
is($pg3->status->{connected}, 0, 'there is no contact');
$pg3->configure(protocol => 'json');
$pg3->wait_until_leader('other');
is(protocol($pg3), 'json', 'in JSON it is used');
$token = $pg3->value(q{SELECT etcd_fencing_token('other')});

# Together with an endpoint that passes gRPC, at the first start: no cluster has the more
# than half of the endpoints that it needs.
my $mixed = create('mixed', elections => 'mixed', endpoints => $old->url . ',' . $etcd->url(0));
poll_ok(15, sub { ($mixed->status->{last_error} // '') =~ /more than half must: $names$/ }, 'a mixed list at the first start: last_error names the setting') or diag($mixed->status->{last_error});
poll_ok(5, sub { $mixed->log_count(qr/more than half must: $names\n[^\n]*HINT:  If there is a proxy/) }, 'and the hint is that of the protocol');
$mixed->configure(protocol => 'json');
$mixed->wait_until_leader('mixed');
$mixed->stop;

# Together with an endpoint that passes gRPC, when the cluster is known.
$pg3->configure(protocol => 'grpc', endpoints => $old->url . ',' . $etcd->url(0));
poll_is(10, sub { $pg3->status->{endpoint} }, $etcd->url(0), 'in gRPC the next endpoint is used');
poll_ok(10, sub { $pg3->status->{connected} && $pg3->is_leader('other') }, 'and it leads');
is($pg3->value(q{SELECT etcd_fencing_token('other')}), $token, 'under its token');
# On a busy machine a request may take too long: then the first endpoint is tried once.
my $moves = sub { return $pg3->value('SELECT endpoint_switches - 2 * timeouts FROM etcd_leader_stats') };
my $before = $moves->();
pause(3 * $ttl);
cmp_ok($moves->(), '<=', $before, 'the endpoint is kept');

# ---- endpoints that speak nothing --------------------------------------------------------

my $reset = EtcdLeader::Relay->new($etcd->url(0), http2 => 'reset');
$pg3->configure(endpoints => $reset->url);
poll_ok(10, sub { ($pg3->status->{last_error} // '') =~ /closed the connection/ }, 'connections are reset: no contact');
unlike($pg3->status->{last_error}, qr/protocol/, 'and the setting is not blamed');
poll_ok(5, sub { $pg3->log_count(qr/closed the connection without an answer\n[^\n]*HINT:  If it is a port for TLS[^\n]* set "etcd_leader\.protocol" to "json"/) }, 'but the hint has it as a possibility');
$pg3->configure(endpoints => $reset->url . ',' . $etcd->url(0));
$pg3->wait_until_leader('other');

# ---- etcd without its gateway, or with it at an address of its own -------------------------

my $program = (split /,/, $ENV{ETCD} || 'etcd')[0];
my %without = ('without the gateway' => '--enable-grpc-gateway=false');
$without{'the gateway elsewhere'} = '--listen-client-http-urls=http://127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port()
  if `"$program" --help 2>&1` =~ /--listen-client-http-urls/;
for my $what (sort keys %without)
{
	my $url   = 'http://127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port();
	my $peer  = 'http://127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port();
	my $dir   = PostgreSQL::Test::Utils::tempdir('no_gateway');
	my $way = EtcdLeader::Relay->new($url);
	my $alone = EtcdLeader::Util::Process->spawn(
		name => "etcd, $what",
		log  => "$PostgreSQL::Test::Utils::log_path/no_gateway.log",
		cmd  => [ $program, '--name', 'alone', '--data-dir', "$dir/data", $without{$what}, '--listen-client-urls', $url,
			'--advertise-client-urls', $way->url . ",$url", '--listen-peer-urls', $peer, '--initial-advertise-peer-urls', $peer, '--initial-cluster', "alone=$peer" ]);
	my $pg4 = create('pg4_' . ($what =~ s/ /_/gr), endpoints => $way->url);
	$pg4->wait_until_leader;
	is(protocol($pg4), 'grpc', "$what: gRPC");
	$pg4->configure(protocol => 'json');
	poll_ok(10, sub { ($pg4->status->{last_error} // '') =~ /404|not etcd|closed|HTTP/ }, "$what: JSON is not answered") or diag($pg4->status->{last_error});
	$pg4->configure(protocol => 'grpc');
	$pg4->wait_until_leader;
	my $alone_token = $pg4->token;
	$way->stop;
	poll_is(10, sub { $pg4->status->{endpoint} }, $url, "$what: the member was learned");
	still_leads($pg4, $alone_token, "$what, by the address that was learned");
	$pg4->stop;
	$alone->stop('KILL');
}

# ---- a user by the name in its certificate ---------------------------------------------------

{
	my $ca = EtcdLeader::Certificates->new;
	my ($cert, $key) = $ca->sign('127.0.0.1');
	my $secured = EtcdLeader::Etcd->new(tls => [ "--cert-file=$cert", "--key-file=$key", '--trusted-ca-file=' . $ca->ca, '--client-cert-auth' ]);
	$secured->etcdctl(@$_) for [ 'user', 'add', 'root:rootpw' ], [ 'user', 'grant-role', 'root', 'root' ], [ 'user', 'add', 'pg:unused' ], [ 'role', 'add', 'pg' ],
	  [ 'role', 'grant-permission', 'pg', '--prefix=true', 'readwrite', 'mine/' ], [ 'user', 'grant-role', 'pg', 'pg' ], [ 'auth', 'enable' ];
	$secured->use_credentials('root', 'rootpw');
	my ($own_cert, $own_key) = $ca->sign('pg');
	my $pg5 = create('pg5', endpoints => $secured->tls_endpoints, elections => 'mine', ssl_ca_file => $ca->ca, ssl_cert_file => $own_cert, ssl_key_file => $own_key);
	$pg5->wait_until_leader('mine');
	is($pg5->value(q{SELECT current_setting('etcd_leader.username')}), '', 'no user is set');
	is(protocol($pg5), 'grpc', 'the common name is the user');
	$pg5->configure(elections => 'mine, foreign');
	poll_ok(10, sub { ($pg5->value('SELECT problem FROM etcd_leader_problems') // '') =~ /may not read and write keys that begin with "foreign\// }, 'with its rights alone') or diag($pg5->value('SELECT problem FROM etcd_leader_problems'));
	$pg5->configure(elections => 'mine');
	poll_is(5, sub { $pg5->value('SELECT count(*) FROM etcd_leader_status') }, 1, 'an election without rights leaves when it is dropped');
	poll_is(2, sub { $pg5->trouble }, '', 'and nothing is said of it any more');

	# another certificate of the same user, by a reload
	$token = $pg5->value(q{SELECT etcd_fencing_token('mine')});
	my ($new_cert, $new_key) = $ca->sign('pg');
	$pg5->configure(ssl_cert_file => $new_cert, ssl_key_file => $new_key);
	my $seen = $pg5->value('SELECT clock_timestamp()');
	poll_ok(10, sub { $pg5->value('SELECT connected AND last_contact > ? FROM etcd_leader_status LIMIT 1', $seen) }, 'a new certificate: there is contact');
	is($pg5->value(q{SELECT etcd_fencing_token('mine')}), $token, 'a new certificate: it leads on');
}

is($_->log_count('was terminated by signal|PANIC|TRAP'), 0, $_->name . ': nothing has crashed') for $pg1, $pg2, $pg3;
done_testing();
