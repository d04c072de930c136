# Servers that are no etcd, as the first endpoint: a problem, the
# other endpoint is used, no crash; and a leader that is led astray keeps its
# place.
use EtcdLeader::Test;
use EtcdLeader::Flood;

my $etcd = EtcdLeader::Etcd->new;
my $good = $etcd->url(0);

# An answer of HTTP 200 with a body.
sub http { return "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " . length($_[0]) . "\r\n\r\n$_[0]" }

my $header = '"header":{"cluster_id":"1","member_id":"1","revision":"1","raft_term":"1"}';

# name => [the bytes sent after a request, close afterwards?]
my %kinds = (
	'garbage'             => [ "\x00\xff\xfe garbage \x80\r\n\r\n" x 50, 1 ],
	'not JSON'            => [ http('<html>welcome to the printer</html>'), 0 ],
	'half a JSON'         => [ substr(http("{$header,\"kvs\":[{\"key\":\"cG9zdGdyZXMv\"}]}"), 0, -20), 1 ],
	'half a JSON, whole in length' => [ http("{$header,\"kvs\":[{\"ke"), 0 ],
	'10 MB'               => [ http('{"header":"' . 'x' x (10 * 1024 * 1024) . '"}'), 0 ],
	'10 MB without a length' => [ "HTTP/1.1 200 OK\r\n\r\n{\"a\":\"" . 'y' x (10 * 1024 * 1024), 1 ],
	'nothing'             => [ undef, 0 ],
	'a hang-up'           => [ '', 1 ],
	'other types'         => [ http('{"header":5,"kvs":{"key":true},"succeeded":"yes","ID":[],"TTL":{},"responses":7}'), 0 ],
	'no header'           => [ http('{}'), 0 ],
	'an array'            => [ http('[]'), 0 ],
	'deep nesting'        => [ http('[' x 200_000), 0 ],
	'numbers out of range' => [ http('{"header":{"cluster_id":"99999999999999999999","revision":"-1","raft_term":"1e9"}}'), 0 ],
	'another cluster with a lease' => [ http("{$header,\"ID\":\"1\",\"TTL\":\"600\",\"succeeded\":true}"), 0 ],
	'a redirect'          => [ "HTTP/1.1 307 Temporary Redirect\r\nLocation: $good/v3/kv/range\r\nContent-Length: 0\r\n\r\n", 0 ],
	'an error page'       => [ "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy", 0 ],
	'endless headers'     => [ "HTTP/1.1 200 OK\r\n" . "X-Padding: " . 'z' x 3_000_000 . "\r\n", 0 ],
);

# Starts a server of one kind; returns its URL and its process.
sub serve
{
	my ($what, $close) = @_;
	return EtcdLeader::Flood::serve_connections('hostile', sub {
		my ($client) = @_;
		while (sysread($client, my $request, 65536))
		{
			next unless defined $what;
			for (my $at = 0; $at < length $what;)
			{
				$at += syswrite($client, $what, 65536, $at) || return;
			}
			last if $close;
		}
	});
}

my $pg1 = EtcdLeader::Instance->create('pg1', etcd => $etcd, settings => { ttl => 5 });
$pg1->wait_until_leader;
my $pg2 = EtcdLeader::Instance->create('pg2', etcd => $etcd, settings => { ttl => 5 });
$pg2->wait_until_candidate;
my $elector = $pg1->elector_pid;
my $token   = $pg1->token;
my @samplers = map { $_->sample } $pg1, $pg2;
my $round   = 0;

for my $kind (sort keys %kinds)
{
	my ($url, $process) = serve(@{ $kinds{$kind} });

	# A leader is led there.  The endpoint in use is kept if it is listed, so
	# the good one gets its other name each time.
	(my $other = $good) =~ s/127\.0\.0\.1/localhost/;
	my $name  = ++$round % 2 ? $other : $good;
	my $began = now();
	$pg1->configure(endpoints => "$url,$name");
	poll_is(10, sub { $pg1->status->{endpoint} }, $name, "$kind: the other endpoint is used");
	note(sprintf '%s: after %.2f s', $kind, now() - $began);
	my $problem;
	poll_ok(15, sub { $problem = $pg1->value('SELECT max(problem) FROM etcd_leader_problems WHERE subject = ?', $url) }, "$kind: the endpoint has a problem")
	  and note("$kind: $problem");
	cmp_ok(length($problem // ''), '<', 1000, "$kind: which is not endless");
	unlike($problem // '', qr/[^\x20-\x7e]/, "$kind: and readable");
	is($pg1->token, $token, "$kind: it leads on, under its token");
	is($pg1->elector_pid, $elector, "$kind: the same elector runs");
	$process->stop('KILL');
}
EtcdLeader::Sampler::check_exclusion(\@samplers, 'led astray');

# Started with such a server as the first endpoint.
for my $kind ('garbage', 'nothing', '10 MB', 'another cluster with a lease')
{
	my ($url, $process) = serve(@{ $kinds{$kind} });
	$pg2->stop('fast');
	# one endpoint of two is not more than half of them
	$pg2->append_conf('postgresql.conf', "etcd_leader.endpoints = '$url,$good'\netcd_leader.cluster_id = '" . $etcd->cluster_id . "'\n");
	$pg2->start;
	my $began = now();
	poll_ok(20, sub { my $s = $pg2->status; $s && $s->{create_revision} }, "$kind at the start: it becomes a candidate");
	note(sprintf '%s at the start: after %.2f s', $kind, now() - $began);
	poll_ok(15, sub { $pg2->value('SELECT count(*) FROM etcd_leader_problems WHERE subject = ?', $url) }, "$kind at the start: a problem of the endpoint");
	# its key stands before its place is known
	poll_is(5, sub { $pg2->current_leader }, 'pg1', "$kind at the start: it names the leader");
	$process->stop('KILL');
}

# Nothing but such servers: it says so, and never leads.
my ($url1, $process1) = serve(@{ $kinds{'another cluster with a lease'} });
my ($url2, $process2) = serve(@{ $kinds{'nothing'} });
my $pg3 = EtcdLeader::Instance->create('pg3', endpoints => "$url1,$url2", settings => { ttl => 2 });
my $sampler = $pg3->sample;
poll_ok(10, sub { $pg3->status->{last_error} }, 'nothing but hostile servers: an entry in last_error');
pause(5);
is(scalar(grep { $_->{answer} ne 'f' } $sampler->stop), 0, 'and it never leads');
for my $node ($pg1, $pg2, $pg3)
{
	is($node->log_count('terminated by signal|PANIC|crash of another server process'), 0,
		$node->name . ': nothing has crashed');
}

done_testing();
