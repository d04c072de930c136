# HTTP: switched on and off by reload; addresses, certificates and other
# settings changed by reload; a port that is taken; the server and the worker
# killed; the library not there.
use EtcdLeader::Test;
use EtcdLeader::Certificates;
use EtcdLeader::Http;
use IO::Socket::INET;

my $etcd = EtcdLeader::Etcd->new;
my $node = EtcdLeader::Instance->create('pg1', etcd => $etcd, settings => { ttl => 5 });
my ($port, $second, $agent) = map { PostgreSQL::Test::Cluster::get_free_port() } 1 .. 3;
$node->wait_until_leader;

sub worker { return EtcdLeader::Http::worker_pid($node) }
sub server { return EtcdLeader::Http::server_pid(worker()) }
sub says { my ($port, $code, $name) = @_; return poll_is(10, sub { http_code($port, '/leader') }, $code, $name) }

# The server refuses bad values, and names the fault.
for my $value ('8010', 'localhost', 'example.com:8010', '127.0.0.1:0', '127.0.0.1:65536', '127.0.0.1:' . '0' x 60 . '8010', '127.0.0.1:80 10', '::1:8010', '[::1:8010', '127.0.0.1:8010,127.0.0.1:8010', '/leader:80', ':8010')
{
	for my $setting (qw(http_listen http_agent_listen))
	{
		my ($state, $message) = $node->failure("ALTER SYSTEM SET etcd_leader.$setting = '$value'");
		is($state, '22023', "$setting: \"$value\" is refused");
	}
}
is(($node->failure("ALTER SYSTEM SET etcd_leader.http_listen = '$_'"))[0], '', "\"$_\" is an address")
  for '127.0.0.1:8010', '[::1]:8010', '*:8010', 'localhost:8010', '[::]:1, 0.0.0.0:65535';
$node->configure(http_listen => undef);

# On, elsewhere, twice, off.
my $log = $node->log_size;
$node->configure(http_listen => "127.0.0.1:$port");
says($port, 200, 'switched on by reload');
my $worker = worker();
$node->configure(http_listen => "localhost:$second");
says($second, 200, 'another address');
poll_is(5, sub { http_code($port, '/leader') }, 0, 'the old one is closed');
$node->configure(http_listen => "127.0.0.1:$second,*:$port");
says($_, 200, 'two addresses') for $port, $second;
is(http_code($port, '/leader', host => '127.0.0.9'), 200, 'every address of the host');

# Both families, each with its own address, on one port.
$node->configure(http_listen => "0.0.0.0:$port,[::]:$port");
says($port, 200, '0.0.0.0');
SKIP:
{
	skip 'this host has no IPv6', 1 unless -e '/proc/net/if_inet6' && slurp_file('/proc/net/if_inet6') =~ /^0{31}1 /m;
	poll_is(5, sub { `curl -s -o /dev/null -w '%{http_code}' 'http://[::1]:$port/leader'` }, 200, '[::] beside it');
}
is(worker(), $worker, 'by one worker all that time');
$node->configure(http_listen => undef);
poll_ok(5, sub { !worker() }, 'switched off by reload: the worker is gone');
poll_is(5, sub { http_code($port, '/leader') }, 0, 'the port is still open');
is($node->log_count('etcd_leader http.*(?:WARNING|ERROR|FATAL|PANIC)', $log), 0, 'nothing to complain about in the log');
$node->configure(http_listen => "127.0.0.1:$port");
says($port, 200, 'and on again');

# An election that is new in the settings.
$node->configure(elections => 'postgres,other');
poll_is(10, sub { http_code($port, '/leader?election=other') }, 200, 'a new election by reload');
$node->configure(elections => 'postgres');
poll_is(10, sub { http_code($port, '/leader?election=other') }, 404, 'the port is closed');

# A reload loses no request.
{
	my $client = EtcdLeader::Util::Process->spawn(
		name => 'client', log => "$PostgreSQL::Test::Utils::log_path/072_client.log",
		code => sub { while (1) { print STDOUT http_code($port, '/leader'), "\n"; STDOUT->flush; } });
	for my $reload (1 .. 5)
	{
		my $before = () = $client->output =~ /\n/g;
		$node->reload;
		poll(20, sub { (() = $client->output =~ /\n/g) >= $before + 25 });
	}
	$client->stop;
	my @codes = split /\n/, $client->output;
	cmp_ok(scalar @codes, '>=', 100, 'requests while settings are reloaded');
	is(scalar(grep { $_ !~ /^(?:200)?$/ } @codes), 0, 'no request is lost');
	poll_is(10, sub { scalar(my @pids = EtcdLeader::Http::server_pids(worker())) }, 1, 'the servers of earlier settings have ended');
}

# The agent check.
$node->configure(http_agent_listen => "127.0.0.1:$agent");
poll_is(10, sub { http_exchange($agent, '') }, "up ready\n", 'agent: the leader is up');
is(http_exchange($agent, "pg1\n"), "up ready\n", 'agent: what the client says does not matter');
$node->value('SELECT etcd_resign(rejoin => false)');
poll_is(5, sub { http_exchange($agent, '') }, "down\n", 'agent: who does not lead is down');
$node->value('SELECT etcd_campaign()');
poll_is(5, sub { http_exchange($agent, '') }, "up ready\n", 'agent: and up again');
$node->configure(http_listen => undef);
poll_is(10, sub { http_code($port, '/leader') }, 0, 'the agent alone');
is(http_exchange($agent, ''), "up ready\n", 'the agent goes on');
$node->configure(http_listen => "127.0.0.1:$port", http_agent_listen => undef);
says($port, 200, 'HTTP alone');

# A port that is taken: said once, tried again, and others are served.
{
	$log = $node->log_size;
	my $holder = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $second, Listen => 1, ReuseAddr => 1) or die "listen: $!";
	$node->configure(http_listen => "127.0.0.1:$port,127.0.0.1:$second");
	poll_ok(10, sub { $node->log_count("could not listen at \"127.0.0.1:$second\".*http_listen", $log) }, 'taken: the log says so');
	says($port, 200, 'taken: the other address is served');
	pause(2.2);
	is($node->log_count('could not listen', $log), 1, 'taken: once');
	close $holder;
	says($second, 200, 'free again: served');
}

# The server killed: back, and nobody else noticed.
{
	my $pid     = $node->value('SELECT pg_backend_pid()');
	my $elector = $node->elector_pid;
	$worker = worker();
	for my $signal (qw(KILL ABRT TERM XCPU))
	{
		my $server = server();
		my $began  = now();
		kill $signal, $server;
		poll_ok(5, sub { (server() // $server) != $server && http_code($port, '/leader') == 200 }, "the server gets SIG$signal: another serves");
		note(sprintf '%.0f ms', 1000 * (now() - $began));
		pause(1.1);
	}
	is($node->value('SELECT pg_backend_pid()'), $pid, 'the sessions live on');
	is($node->elector_pid, $elector, 'the elector is the same process');
	is(worker(), $worker, 'the worker is the same process');
	is($node->log_count('the HTTP server of etcd_leader, process \d+, died', $log), 4, 'the log says it once each time');
}

# It cannot write to shared memory.
{
	my @writable = grep { /^\S+ rw.s/ } split /\n/, slurp_file('/proc/' . server() . '/maps');
	is(join("\n", @writable), '', 'the server has no shared memory that it could write to');
}

# The worker terminated: back, too.
$worker = worker();
$node->value('SELECT pg_terminate_backend(?)', $worker);
poll_ok(10, sub { (worker() // $worker) != $worker && http_code($port, '/leader') == 200 }, 'the worker is terminated: another is there');

# TLS, by reload: on, another certificate, bad certificates.
my $ca = EtcdLeader::Certificates->new;
my ($cert, $key) = $ca->sign('http', for => ['IP:127.0.0.1']);
$node->configure(http_ssl_cert_file => $cert, http_ssl_key_file => $key);
sub tls_says { my ($name) = @_; return poll_is(10, sub { (EtcdLeader::Http::tls_get($port, '/leader', $ca->ca))[0] }, 200, $name) }
tls_says('TLS by reload');
is(http_code($port, '/leader'), 0, 'and no plain HTTP any more');
isnt((EtcdLeader::Http::tls_get($port, '/leader', $ca->ca, '--tls-max', '1.1'))[0], 200, 'no TLS 1.1');
sub serial { my $out = `openssl s_client -connect 127.0.0.1:$port </dev/null 2>/dev/null | openssl x509 -noout -serial`; return $out }
{
	my $serial = serial();
	$ca->sign('http', for => ['IP:127.0.0.1']);
	$node->reload;
	poll_ok(10, sub { my $s = serial(); $s && $s ne $serial }, 'another certificate by reload');
	tls_says('with which it is served');
}
for (
	[ 'a file that is not there', { http_ssl_cert_file => '/nowhere/http.crt' }, qr{could not (?:open|access).*/nowhere/http\.crt} ],
	[ 'a key of another certificate', { http_ssl_key_file => ($ca->sign('other'))[1] }, qr/the HTTP server of etcd_leader, process \d+, died|libmicrohttpd/ ],
	[ 'no certificate',     { http_ssl_cert_file => '' },                   qr/"etcd_leader.http_ssl_key_file" is set/ ])
{
	my ($what, $settings, $pattern) = @$_;
	$log = $node->log_size;
	$node->configure(%$settings);
	poll_ok(10, sub { $node->log_count($pattern, $log) }, "$what: the log says so");
	pause(1.2);
	cmp_ok($node->log_count('etcd_leader http.*(?:WARNING|LOG):', $log), '<=', 4, "$what: and does not go on about it")
	  or diag(PostgreSQL::Test::Utils::slurp_file($node->logfile, $log));
	tls_says("$what: the certificate before is served");
	$node->configure(http_ssl_cert_file => $cert, http_ssl_key_file => $key);
	tls_says("$what: put right");
}
{
	chmod 0644, $key;
	$log = $node->log_size;
	$node->reload;
	poll_ok(10, sub { $node->log_count('private key file .* has group or world access', $log) }, 'a key that others can read is not used');
	chmod 0600, $key;
	$node->reload;
	tls_says('put right');
}
# What cannot be read is tried again each second, and costs no memory.
{
	sub worker_kb { return slurp_file('/proc/' . worker() . '/status') =~ /^RssAnon:\s+(\d+)/m ? $1 : die 'no memory' }
	my $large = PostgreSQL::Test::Utils::tempdir() . '/large.crt';
	append_to_file($large, slurp_file($cert) . ("#\n" x 450_000));
	chmod 0, $key;
	$log = $node->log_size;
	$node->configure(http_ssl_cert_file => $large);
	poll_ok(10, sub { $node->log_count('could not open file .*http\.key', $log) }, 'a key that cannot be read: the log says so');
	my $before = worker_kb();
	pause(3.2);
	cmp_ok(worker_kb() - $before, '<', 600, 'what is tried again costs no memory');
	chmod 0600, $key;
	$node->configure(http_ssl_cert_file => $cert);
	tls_says('put right');
}
is($node->log_count('PRIVATE KEY'), 0, 'no secret is in the log');

# A bad certificate at the start of the server: nothing is served in its place.
$node->configure(http_ssl_cert_file => '/nowhere/http.crt');
$node->restart;
$node->wait_until_leader;
poll_ok(10, sub { worker() && $node->log_count('Nothing is served until it can be used') }, 'a bad certificate at the start: the log says so');
is(http_code($port, '/leader'), 0, 'no plain HTTP in its place');
$node->configure(http_ssl_cert_file => $cert);
tls_says('put right');

# A crash of the server as a whole: all is back.
$node->configure(http_ssl_cert_file => undef, http_ssl_key_file => undef);
says($port, 200, 'plain HTTP again');
my $checkpointer = q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'};
my $killed       = $node->value($checkpointer);
kill 'KILL', $killed;
poll_ok(20, sub { ($node->try_value($checkpointer) // $killed) != $killed && http_code($port, '/leader') == 200 }, 'a crash restart: it serves again');

# The library is not there: said once, all else goes on.
{
	my $library = $node->config_data('--pkglibdir') . '/etcd_leader.so';
	my $dir     = PostgreSQL::Test::Utils::tempdir('library');
	symlink $library, "$dir/etcd_leader.so" or die "symlink: $!";
	$node->configure(http_listen => undef);
	poll_ok(5, sub { !worker() }, 'off');
	# by one reload: a second reload would try again, and log again
	$node->append_conf('postgresql.conf', "dynamic_library_path = '$dir'\n");
	$log = $node->log_size;
	$node->configure(http_listen => "127.0.0.1:$port");
	poll_is(5, sub { $node->value('SHOW dynamic_library_path') }, $dir, 'another path of libraries');
	poll_ok(10, sub { $node->log_count('could not load the HTTP library of etcd_leader', $log) }, 'no library: the log says so');
	pause(2.5);
	is($node->log_count('could not load the HTTP library of etcd_leader', $log), 1, 'no library: once');
	ok($node->is_leader, 'no library: the instance leads');
	$node->append_conf('postgresql.conf', "dynamic_library_path = '\$libdir'\n");
	$node->reload;
	says($port, 200, 'there again: served');
}

# Stops in no time, and leaves nobody behind.
my $server = server();
my $began  = now();
$node->stop('fast');
in_time(now() - $began, 2, 'a fast stop is fast');
ok(wait_for_exit($server, 2), 'the server has ended');
done_testing();
