# HTTP where something runs out: descriptors, processes, a certificate that can be used.
use EtcdLeader::Test;
use EtcdLeader::Certificates;
use EtcdLeader::Http;

my $etcd = EtcdLeader::Etcd->new;
my ($port, $agent) = map { PostgreSQL::Test::Cluster::get_free_port() } 1, 2;
my $node = EtcdLeader::Instance->create('pg1', etcd => $etcd,
	settings => { ttl => 5, http_listen => "127.0.0.1:$port", http_agent_listen => "127.0.0.1:$agent" });
$node->wait_until_leader;
poll_ok(10, sub { http_code($port, '/leader') == 200 }, 'the server answers');

sub worker { return EtcdLeader::Http::worker_pid($node) }
sub server { return EtcdLeader::Http::server_pid(worker()) }

# Sets the soft limit of a process, which is the hard one without a value.
sub limit
{
	my ($pid, $name, $value) = @_;
	$value //= `prlimit --pid $pid --$name --noheadings --raw --output HARD` =~ s/\s//gr;
	system('prlimit', '--pid', $pid, "--$name=$value:") == 0 or die 'prlimit failed';
	return;
}

# No process can be started at a reload: the server continues, and the reload takes
# effect later.
{
	my ($worker, $server, $log) = (worker(), server(), $node->log_size);
	limit($worker, 'nproc', 1);
	$node->configure(elections => 'postgres,other');
	poll_ok(10, sub { $node->log_count('could not start the HTTP server of etcd_leader', $log) }, 'no process: the log says so');
	pause(2.2);
	is(http_code($port, '/leader'), 200, 'no process: the server continues to answer');
	is(server(), $server, 'no process: it is the same server');
	is($node->log_count('could not start the HTTP server of etcd_leader', $log), 1, 'no process: the log says so once');
	limit($worker, 'nproc');
	poll_is(10, sub { http_code($port, '/leader?election=other') }, 200, 'a process again: the reload takes effect');
	is(worker(), $worker, 'the worker is the same process');
}

# No descriptor for another connection: old connections make room.
{
	my $server = server();
	my $fds    = () = glob "/proc/$server/fd/*";
	limit($server, 'nofile', $fds + 12);
	my @idle = map { http_connect($port) } 1 .. 40;
	is(join(' ', map { http_code($port, '/leader', timeout => 2) } 1 .. 3), '200 200 200', 'no descriptor: another client is served');
	is(http_exchange($agent, '', timeout => 2), "up ready\n", 'no descriptor: an agent check is answered');
	is(server(), $server, 'no descriptor: the server is the same');
	limit($server, 'nofile');
}

# The certificate cannot be used at a reload that changes something else. Later it can,
# without another reload.
{
	my $ca = EtcdLeader::Certificates->new;
	my ($cert, $key) = $ca->sign('http', for => ['IP:127.0.0.1']);
	my $says = sub { my ($path) = @_; return (EtcdLeader::Http::tls_get($port, $path, $ca->ca))[0] };
	$node->configure(elections => undef, http_ssl_cert_file => $cert, http_ssl_key_file => $key);
	poll_is(10, sub { $says->('/leader?election=other') }, 404, 'TLS, and one election');
	my $log = $node->log_size;
	chmod 0644, $key;
	$node->configure(elections => 'postgres,other');
	poll_ok(10, sub { $node->log_count('private key file .* has group or world access', $log) }, 'a key that others can read: the log says so');
	is($says->('/leader'), 200, 'a key that others can read: the server continues');
	chmod 0600, $key;
	poll_is(10, sub { $says->('/leader?election=other') }, 200, 'the key can be used again: the whole reload takes effect');
}
done_testing();
