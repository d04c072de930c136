# HTTP: slow, half and hostile clients cost others nothing, and the server
# stays within its limits.
use EtcdLeader::Test;
use EtcdLeader::Certificates;
use EtcdLeader::Http;
use Socket;

my $etcd = EtcdLeader::Etcd->new;
my ($port, $agent) = map { PostgreSQL::Test::Cluster::get_free_port() } 1, 2;
my $node = EtcdLeader::Instance->create('pg1', etcd => $etcd,
	settings => { ttl => 5, http_listen => "127.0.0.1:$port", http_agent_listen => "127.0.0.1:$agent" });
$node->wait_until_leader;
poll_ok(10, sub { http_code($port, '/leader') == 200 }, 'the server answers');
my $server = EtcdLeader::Http::server_pid(EtcdLeader::Http::worker_pid($node));
like(slurp_file("/proc/$server/status"), qr/^NoNewPrivs:\t1$/m, 'nothing that the server executes gets new privileges');

sub open_sockets { return scalar grep { (readlink($_) // '') =~ /^socket:/ } glob "/proc/$server/fd/*" }
sub memory_kb { return slurp_file("/proc/$server/status") =~ /^RssAnon:\s+(\d+)/m ? $1 : die 'no memory' }
my $memory = memory_kb();

# What AddressSanitizer keeps of freed memory is no matter here.
my $spare_kb = slurp_file("/proc/$server/maps") =~ /libasan/ ? 1024 * 1024 : 16 * 1024;

# Runs attackers in the background while 60 requests are made, half
# of them from the address that most attackers have.  All must be answered, most in 100 ms.
#   $attack->($stop): in a child, until $$stop
my $undisturbed;
sub attacked
{
	my ($what, $attack, %args) = @_;
	my @attackers = map {
		EtcdLeader::Util::Process->spawn(
			name => $what, log => "$PostgreSQL::Test::Utils::log_path/071_attack.log",
			code => sub { local $SIG{PIPE} = 'IGNORE'; srand($_); $attack->() });
	} 1 .. $args{attackers} // 1;
	pause(0.3);
	my (@took, @codes);
	my $most = 0;
	for my $i (1 .. 60)
	{
		my $began = now();
		my $code = http_code($port, '/leader', from => $i % 2 ? '127.0.0.1' : '127.0.1.1');
		push @took, now() - $began;
		push @codes, $code;
		my $open = open_sockets();
		$most = $open if $open > $most;
		pause(0.005);
	}
	my @alive = grep { $_->alive } @attackers;
	is(scalar @alive, scalar @attackers, "$what: the attack goes on") or diag($attackers[0]->output);
	@took = sort { $a <=> $b } @took;
	is(scalar(grep { $_ == 200 } @codes), 60, "$what: all others are served");
	# the first attack is none
	$undisturbed //= $took[54];
	in_time($took[54], 0.1 + 10 * $undisturbed, "$what: nine of ten within 100 ms");
	note(sprintf '%s: median %.1f ms, greatest %.1f ms, %d sockets, %d kB', $what, 1000 * $took[30], 1000 * $took[59], $most, memory_kb());
	cmp_ok($most, '<=', ($args{most} // 64) + 15, "$what: the connections are limited");
	cmp_ok(memory_kb(), '<', $memory + $spare_kb, "$what: the memory is limited");
	$_->stop for @attackers;
	is(EtcdLeader::Http::server_pid(EtcdLeader::Http::worker_pid($node)), $server, "$what: the server is the same");
	return;
}

# Keeps $count connections open, and calls $each with each in turn.
sub with_connections
{
	my ($count, $each, $addresses) = @_;
	return sub {
		my @sockets;
		for (my $i = 0;; $i++)
		{
			my $from = '127.0.1.' . (1 + $i % ($addresses // 1));
			my $socket = $sockets[ $i % $count ] //= http_connect($port, from => $from);
			if (!$socket || !defined $each->($socket, $i)) { close $socket if $socket; $sockets[ $i % $count ] = undef; }
			pause(0.0005) if $i % 16 == 0;
		}
	};
}

sub send_text { my ($socket, $text) = @_; return syswrite $socket, $text }

attacked('nothing', sub { pause(60) });
attacked('silent connections', with_connections(1000, sub { 1 }));
attacked('silent connections of many addresses', with_connections(3000, sub { 1 }, 50), most => 256);
attacked('a byte at a time', with_connections(300, sub { send_text($_[0], substr("GET /leader HTTP/1.1\r\nHost: x\r\n\r\n", ($_[1] / 300) % 33, 1)) }));
attacked('headers without end', with_connections(50, sub { send_text($_[0], $_[1] < 50 ? "GET / HTTP/1.1\r\n" : "X-$_[1]: " . 'a' x 500 . "\r\n") }));
attacked('a path of 1 MB', with_connections(20, sub { $_[0]->blocking(0); send_text($_[0], 'GET /' . 'a' x 1_000_000) }));
attacked('pipelining, and nothing is read', with_connections(20, sub { $_[0]->blocking(0); send_text($_[0], "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" x 50) }));
attacked('a body without end', with_connections(20, sub { $_[0]->blocking(0); send_text($_[0], $_[1] < 20 ? "GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" : "100\r\n" . 'b' x 256 . "\r\n") }));
attacked('requests as fast as can be', sub { while (1) { http_get($port, '/metrics') } }, attackers => 2);
attacked('connections as fast as can be', sub { while (1) { http_connect($port) } });
attacked('agent checks that are sent data without end', sub {
	my $data = 'x' x 4_000_000;
	while (1) { my $socket = http_connect($agent) or next; while (syswrite $socket, $data) { } }
}, attackers => 3);
attacked('agent checks as fast as can be', sub { while (1) { http_connect($agent) } });

# Connections that have waited for the server come all at once.
{
	my $most = 0;
	for (1 .. 5)
	{
		kill STOP => $server;
		my @waiting = map { http_connect($port, from => '127.0.1.1') } 1 .. 300;
		kill CONT => $server;
		for (1 .. 50) { my $open = open_sockets(); $most = $open if $open > $most; }
		is(http_code($port, '/leader'), 200, 'others are served while waiting connections are accepted');
	}
	cmp_ok($most, '<=', 64 + 15, 'connections that come all at once are limited');
}

# Requests that are nearly right: each byte of one changed, lost, or doubled.
attacked('mutated requests', sub {
	my @requests = (
		"GET /leader?election=postgres HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
		"HEAD / HTTP/1.0\r\n\r\n",
		"POST /status HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabcde",
		"OPTIONS * HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
	while (1)
	{
		my $request = $requests[ rand @requests ];
		for (1 .. 1 + rand 4)
		{
			my $at = int rand length $request;
			substr($request, $at, int rand 3) = (map { chr rand 256 } 1 .. rand 3, '')[0] x rand 3;
		}
		http_exchange($port, $request, timeout => 0.02);
	}
});

# A client that completes no request is disconnected after 5 s, and no client earlier.
{
	my @silent = map { http_connect($port) } 1 .. 3;
	my $began  = now();
	send_text($silent[1], "GET / HTTP/1.1\r\nHost:");
	while (now() - $began < 3.5) { send_text($silent[2], 'x'); pause(0.1); }
	for (@silent) { $_->blocking(0); is(sysread($_, my $piece, 1), undef, 'after 3.5 s it is still there'); }
	for my $i (0 .. 2)
	{
		poll_ok(4, sub { defined sysread($silent[$i], my $piece, 1024) }, 'a connection without a request is closed after 5 s');
	}
	in_time(now() - $began, 6.5, 'the connection is not closed later');
}

# Several requests on one connection.
{
	my $socket = http_connect($port);
	syswrite $socket, "GET /leader HTTP/1.1\r\nHost: x\r\n\r\n" x 3;
	my $answer = '';
	poll(5, sub { sysread $socket, $answer, 65536, length $answer; (() = $answer =~ /^HTTP\/1\.1 200/mg) == 3 });
	is(scalar(() = $answer =~ /^HTTP\/1\.1 200/mg), 3, 'requests one after the other on one connection');
}
# libmicrohttpd 0.9.72 closes before it has read all, and the reset overtakes its answer
like(http_code($port, '/' . 'a' x 20_000), qr/^(?:414|0)$/, 'a long path is refused');
is(http_code($port, '/leader'), 200, 'and the next request is answered');
is(http_code($port, "/ HTTP/1.1\r\nX: " . 'a' x 20_000 . "\r\nY:"), 431, 'long headers are refused');

# TLS: bytes that are no handshake, half a handshake, and many handshakes.
my $ca = EtcdLeader::Certificates->new;
my ($cert, $key) = $ca->sign('http', for => ['IP:127.0.0.1']);
$node->configure(http_ssl_cert_file => $cert, http_ssl_key_file => $key);
poll_ok(10, sub { (EtcdLeader::Http::tls_get($port, '/leader', $ca->ca))[0] == 200 }, 'the server answers by TLS');
$server = EtcdLeader::Http::server_pid(EtcdLeader::Http::worker_pid($node));
$memory = memory_kb();

# (Status codes of twenty requests, the time that nine of ten take at most).
sub tls_answers
{
	my @answers = map { [ EtcdLeader::Http::tls_get($port, '/leader', $ca->ca) ] } 1 .. 20;
	return (join(' ', map { $_->[0] } @answers), (sort { $a <=> $b } map { $_->[3] } @answers)[17]);
}

# Both sides of each handshake take the processor, so the bound is one for a busy machine.
my $bound = 0.5;
for my $attack (
	[ 'no TLS',          with_connections(50, sub { send_text($_[0], 'x' x 100) }) ],
	[ 'half a handshake', with_connections(300, sub { send_text($_[0], "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03") }) ],
	[ 'broken records',  with_connections(50, sub { send_text($_[0], join '', "\x16\x03\x03", map { chr rand 256 } 1 .. 200) }) ])
{
	my ($what, $how) = @$attack;
	my $attacker = EtcdLeader::Util::Process->spawn(
		name => $what, log => "$PostgreSQL::Test::Utils::log_path/071_attack.log",
		code => sub { local $SIG{PIPE} = 'IGNORE'; $how->() });
	pause(0.4);
	my ($codes, $took) = tls_answers();
	is($codes, join(' ', (200) x 20), "$what: others are served");
	cmp_ok($took, '<', $bound, "$what: nine of ten in time");
	note(sprintf '%s: %.1f ms', $what, 1000 * $took);
	cmp_ok(open_sockets(), '<=', 256 + 10, "$what: the connections are limited");
	cmp_ok(memory_kb(), '<', $memory + 2 * $spare_kb, "$what: the memory is limited");
	$attacker->stop;
}
is(EtcdLeader::Http::server_pid(EtcdLeader::Http::worker_pid($node)), $server, 'TLS: the server is the same');
ok($node->is_leader, 'the instance led all the time');
is($node->value('SELECT elections_won FROM etcd_leader_stats'), 1, 'the instance led under one token');
cmp_ok($node->log_count('etcd_leader http'), '<', 30, 'the log has no line per client');
done_testing();
