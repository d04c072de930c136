# HTTP over hand-overs and kills: never two leaders, 503 in time where the
# elector hangs; and HAProxy, set up as integrations/haproxy.cfg says, follows.
use EtcdLeader::Test;
use FindBin;
use EtcdLeader::Http;

my $etcd  = EtcdLeader::Etcd->new;
my @names = qw(pg1 pg2 pg3);
my (%http, %agent, %node);
for my $name (@names)
{
	($http{$name}, $agent{$name}) = map { PostgreSQL::Test::Cluster::get_free_port() } 1 .. 2;
	$node{$name} = EtcdLeader::Instance->create($name, etcd => $etcd,
		conf     => "listen_addresses = '127.0.0.1'\n",
		settings => { ttl => 3, http_listen => "127.0.0.1:$http{$name}", http_agent_listen => "127.0.0.1:$agent{$name}" }, start => 0);
	$node{$name}->append_conf('pg_hba.conf', "host all all 127.0.0.1/32 trust\n");
	$node{$name}->start;
	$node{$name}->value('CREATE EXTENSION etcd_leader');
	$name eq 'pg1' ? $node{$name}->wait_until_leader : $node{$name}->wait_until_candidate;
}

# HAProxy, with the addresses of this test.
my %bind = map { $_ => PostgreSQL::Test::Cluster::get_free_port() } 5000 .. 5002;
my $dir  = PostgreSQL::Test::Utils::tempdir('haproxy');
{
	my $config = slurp_file("$FindBin::RealBin/../../integrations/haproxy.cfg");
	$config =~ s/bind \*:(\d+)/bind 127.0.0.1:$bind{$1}/g;
	$config =~ s/inter \d+m?s/inter 100ms/g;
	# here each instance has ports of its own
	$config =~ s{server (pg\d) \S+ check port \d+}{"server $1 127.0.0.1:" . $node{$1}->port . " check port $http{$1}"}ge;
	$config =~ s{server (pg\d) 10\.\S+ check$}{"server $1 127.0.0.1:" . $node{$1}->port . " check agent-port $agent{$1}"}gem;
	unlike($config, qr/10\.0\.0\./, 'the addresses of the example are replaced');
	append_to_file("$dir/haproxy.cfg", $config);
}
my $haproxy = EtcdLeader::Util::Process->spawn(
	name => 'haproxy', log => "$PostgreSQL::Test::Utils::log_path/073_haproxy.log",
	cmd  => [ 'haproxy', '-db', '-f', "$dir/haproxy.cfg" ]);

# The name of the instance that a client of HAProxy gets to.  With a time-out, as
# integrations/haproxy.cfg says.
sub reached
{
	my ($port) = @_;
	my $dbh = eval { DBI->connect("dbi:Pg:host=127.0.0.1;port=$port;dbname=postgres;connect_timeout=2", undef, undef, { RaiseError => 1, PrintError => 0 }) };
	return $dbh ? eval { $dbh->selectrow_array(q{SELECT current_setting('cluster_name')}) } // '' : '';
}

poll_is(10, sub { reached($bind{5000}) }, 'pg1', 'haproxy: the leader by httpchk') or diag($haproxy->output);
poll_is(10, sub { reached($bind{5002}) }, 'pg1', 'haproxy: the leader by agent-check');
like(reached($bind{5001}), qr/^pg[123]$/, 'haproxy: any instance');

my @samplers = map { $node{$_}->sample(port => $http{$_}, interval => 0.001) } @names;

# A session by HAProxy; it ends when its server is deposed.
my $session = DBI->connect("dbi:Pg:host=127.0.0.1;port=$bind{5000};dbname=postgres", undef, undef, { RaiseError => 1, PrintError => 0 });
is($session->selectrow_array(q{SELECT current_setting('cluster_name')}), 'pg1', 'a session on the leader');

sub leader { my @leaders = grep { ($_->try_value('SELECT etcd_is_leader()') // 0) } values %node; return $leaders[0] }

for my $round (1 .. 3)
{
	my $old   = leader();
	my $began = now();
	$old->value('SELECT etcd_resign()');
	my $new;
	poll_ok(5, sub { $new = leader() }, "round $round: another leads");
	my $name = $new->name;
	poll_is(5, sub { reached($bind{5000}) }, $name, "round $round: haproxy follows by httpchk");
	poll_is(5, sub { reached($bind{5002}) }, $name, "round $round: haproxy follows by agent-check");
	in_time(now() - $began, 3, "round $round: in time");
	poll_ok(5, sub { !eval { $session->selectrow_array('SELECT 1') } }, 'the session on the old leader has ended') if $round == 1;
	$old->wait_until_candidate;
}

# A killed server, twice.
for my $round (1 .. 2)
{
	my $old = leader();
	my $name = $old->name;
	my $pid  = $old->{_pid};
	my $http = EtcdLeader::Http::server_pid(EtcdLeader::Http::worker_pid($old));
	$old->kill9;
	ok(wait_for_exit($http, 2), "kill $round: its HTTP server ends with it");
	poll_ok(10, sub { my $new = leader(); $new && $new->name ne $name }, "kill $round: another leads");
	poll_is(5, sub { reached($bind{5000}) }, leader()->name, "kill $round: haproxy follows");
	wait_for_exit($pid, 10);
	poll(20, sub { $old->start(fail_ok => 1) }) or die 'the killed server does not start again';
	$old->wait_until_candidate;
	poll_ok(10, sub { http_code($http{$name}, '/leader') == 503 }, "kill $round: it serves again");
}

# The elector hangs: 503 when the deadline comes, with nobody's help.
for my $round (1 .. 2)
{
	my $old  = leader();
	my $port = $http{ $old->name };
	my $pid  = $old->elector_pid;
	kill 'STOP', $pid;
	my $began = now();
	my ($code, undef, $body) = http_get($port, '/leader');
	my $asked = now();
	my ($seconds) = $body =~ /"valid_for":"00:00:([\d.]+)"/;
	is($code, 200, "hung $round: it leads for a while");
	my $deadline = $asked + $seconds;
	my ($last, $longest) = (0, 0);
	while (now() < $deadline + 0.5)
	{
		my $before = now();
		$last    = $before if http_code($port, '/leader') == 200;
		$longest = now() - $before if $longest < now() - $before;
	}
	cmp_ok($last, '>', $began + $seconds - 0.3 - $longest, "hung $round: until the deadline");
	cmp_ok($last, '<', $deadline + 0.05, "hung $round: and not longer than 50 ms after it") or diag($last - $deadline);
	note(sprintf 'last 200 %.1f ms before the deadline', 1000 * ($deadline - $last));
	poll_ok(10, sub { my $new = leader(); $new && $new != $old }, "hung $round: another leads");
	kill 'CONT', $pid;
	$old->wait_until_candidate;
}

EtcdLeader::Sampler::check_exclusion(\@samplers, 'HTTP', max_gap => 2);
$haproxy->stop;
done_testing();
