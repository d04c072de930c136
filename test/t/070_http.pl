# HTTP: every path on a leader, a candidate, a standby, and without an elector.
use EtcdLeader::Test;
use EtcdLeader::Http;
use JSON::PP;

my $etcd = EtcdLeader::Etcd->new;
my (%port, %nodes);
$port{$_} = PostgreSQL::Test::Cluster::get_free_port() for qw(pg1 pg2 standby);
for my $name (qw(pg1 pg2))
{
	$nodes{$name} = EtcdLeader::Instance->create($name, etcd => $etcd, init => { allows_streaming => 1 },
		settings => { ttl => 5, elections => 'postgres,other', http_listen => "127.0.0.1:$port{$name}" });
	$name eq 'pg1' ? $nodes{pg1}->wait_until_leader : $nodes{pg2}->wait_until_candidate;
}
my ($pg1, $pg2) = @nodes{qw(pg1 pg2)};
my $standby = $nodes{standby} = EtcdLeader::Instance->create_standby('standby', $pg1,
	settings => { node_name => 'standby', http_listen => "127.0.0.1:$port{standby}" });
$pg2->wait_until_sees('pg1');
$standby->wait_until_sees('pg1');
poll_ok(10, sub { http_code($port{$_}, '/liveness') == 200 }, "$_ serves") for sort keys %port;

# What each path says, in the order of the columns.
my @paths = qw(/leader / /primary /read-write /replica /read-only /health /liveness /readiness /metrics /status);
my %expected = (
	pg1     => '200 200 200 200 503 200 200 200 200 200 200',
	pg2     => '503 503 503 503 503 200 200 200 200 200 200',
	standby => '503 503 503 503 200 200 200 200 200 200 200');
sub codes { my ($port, %args) = @_; return join ' ', map { http_code($port, $_, %args) } @paths }

for my $name (sort keys %expected)
{
	is(codes($port{$name}, method => $_), $expected{$name}, "$name: $_") for qw(GET HEAD OPTIONS);
}
for my $method (qw(HEAD OPTIONS))
{
	my ($code, $headers, $body) = http_get($port{pg1}, '/leader', method => $method);
	is($body, '', "$method: no body");
	like($headers, qr/^Allow: GET, HEAD, OPTIONS\r$/m, "$method: what is allowed");
}
is(http_code($port{pg1}, '/leader', method => $_), 405, "$_ is not allowed") for qw(POST PUT DELETE TRACE FOO);
is(http_code($port{pg1}, $_), 404, "$_ is not there") for qw(/leader/ /LEADER /nothing /../etc/passwd //);
is(http_code($port{pg1}, '/leader?election=other'), $pg1->is_leader('other') ? 200 : 503, 'an election by its name');
is(http_code($port{pg1}, "$_?election=nope"), 404, "$_: no such election") for qw(/leader / /replica /health);
is(http_code($port{pg1}, '/leader?election=%70ostgres'), 200, 'a name in percent signs');
is(http_code($port{pg1}, "/leader?x=1&election=postgres"), 200, 'an argument among others');

# The body is the row of the view.
for my $node (@nodes{qw(pg1 pg2 standby)})
{
	my $name   = $node->name;
	$node->dbh->do(q{SET timezone = 'UTC'});
	my $view = decode_json($node->value('SELECT row_to_json(s) FROM etcd_leader_status s LIMIT 1'));
	my ($code, $headers, $body) = http_get($port{$name}, '/leader');
	my $json = decode_json($body);
	like($headers, qr{^Content-Type: application/json\r$}m, "$name: the type of the body");
	is(join(' ', sort keys %$json), join(' ', sort keys %$view), "$name: the body has the columns of the view");
	# these go on between the two looks
	delete @{$_}{qw(valid_for last_contact)} for $json, $view;
	is_deeply($json, $view, "$name: and its values");
}
{
	my $json = decode_json((http_get($port{pg1}, '/leader'))[2]);
	like($json->{valid_for}, qr/^00:00:0[0-5]\.\d{6}$/, 'valid_for is an interval');
	like($json->{last_contact}, qr/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?\+00:00$/, 'a time is in UTC');
}

# Metrics.
{
	my ($code, $headers, $body) = http_get($port{pg1}, '/metrics');
	like($headers, qr{^Content-Type: text/plain; version=0\.0\.4; charset=utf-8\r$}m, 'metrics: type');
	my %metric = $body =~ /^(\w+(?:\{[^}]*\})?) (\S+)$/mg;
	is($metric{'etcd_leader_is_leader{election="postgres"}'}, 1, 'metrics: is_leader');
	is($metric{'leader_election_master_status{name="postgres"}'}, 1, 'metrics: as client-go names it');
	is($metric{'etcd_leader_is_candidate{election="postgres"}'}, 1, 'metrics: is_candidate');
	is($metric{'etcd_leader_fencing_token{election="postgres"}'}, $pg1->token, 'metrics: fencing_token');
	cmp_ok($metric{'etcd_leader_valid_for_seconds{election="postgres"}'}, '>', 0, 'metrics: valid_for');
	is($metric{etcd_leader_connected}, 1, 'metrics: connected');
	cmp_ok(abs($metric{etcd_leader_last_contact_timestamp_seconds} - time), '<', 5, 'metrics: last_contact');
	is($metric{etcd_leader_elections_won_total}, $pg1->value('SELECT elections_won FROM etcd_leader_stats'), 'metrics: elections won');
	ok(exists $metric{qq{etcd_leader_elections_lost_total{reason="$_"}}}, "metrics: lost by $_")
	  for qw(resigned lease_expired key_deleted shutdown);
	cmp_ok($metric{etcd_leader_requests_total}, '>', 5, 'metrics: requests');
	ok(exists $metric{$_}, "metrics: $_") for qw(etcd_leader_request_failures_total etcd_leader_notifications_total);
	my $name = 'etcd_leader_request_duration_seconds';
	my @buckets = $body =~ /^${name}_bucket\{le="[^"]+"\} (\d+)$/mg;
	is_deeply(\@buckets, [ sort { $a <=> $b } @buckets ], 'metrics: the buckets increase');
	is($buckets[-1], $metric{"${name}_count"}, 'metrics: to the number of answers');
	cmp_ok($metric{"${name}_sum"}, '>', 0, 'metrics: and their sum');
	ok($metric{'etcd_leader_info{node="pg1",leader="pg1",cluster_id="' . $etcd->cluster_id . '",version="1.0"}'}, 'metrics: info');
is($metric{etcd_leader_ttl_seconds}, $pg1->value('SELECT extract(epoch FROM ttl)::int FROM etcd_leader_status LIMIT 1'), 'metrics: the TTL');
ok(exists $metric{"etcd_leader_$_"}, "metrics: $_")
  for qw(endpoint_switches_total request_timeouts_total statements_cancelled_total drains_total transactions_refused_total);
is($metric{"etcd_leader_notifiers_$_"}, 1, "metrics: notifiers $_") for qw(expected running);
is($metric{etcd_leader_commits_refused_total}, 0, 'metrics: no commit was refused');
ok(!exists $metric{etcd_leader_certificate_expires_seconds}, 'metrics: there is no certificate');

	my %other = (http_get($port{pg2}, '/metrics'))[2] =~ /^(\w+(?:\{[^}]*\})?) (\S+)$/mg;
	is($other{'etcd_leader_is_leader{election="postgres"}'}, 0, 'metrics of a candidate: is_leader');
	is($other{'etcd_leader_is_candidate{election="postgres"}'}, 1, 'metrics of a candidate: is_candidate');
	is($other{'etcd_leader_fencing_token{election="postgres"}'}, 0, 'metrics of a candidate: no token');
	my %observer = (http_get($port{standby}, '/metrics'))[2] =~ /^(\w+(?:\{[^}]*\})?) (\S+)$/mg;
	is($observer{'etcd_leader_is_candidate{election="postgres"}'}, 0, 'metrics of a standby: no candidate');
}

# The page: self-contained, and text of etcd stays text in it.
{
	$pg2->value(q{SELECT etcd_proclaim('<b>"pg2"&''', 'postgres')});
	my $page;
	poll_ok(10, sub { $page = (http_get($port{pg1}, '/status'))[2]; $page =~ /pg2&#34;/ }, 'the page shows the queue');
	like($page, qr/This instance leads\./, 'the page: who leads');
	like($page, qr/&#60;b&#62;&#34;pg2&#34;&#38;&#39;/, 'the page: markup of others is text');
	like($page, qr/<td>elected<\/td>/, 'the page: events');
	unlike($page, qr/<script|src=|href=|url\(|https?:\/\/(?!127)/, 'the page needs nothing else');
	like($page, qr/http-equiv="refresh"/, 'the page refreshes itself');
	like((http_get($port{standby}, '/status'))[2], qr/in recovery/, 'the page of a standby');

	$etcd->etcdctl('put', 'other/foreign', "a\xff\xc3\xbc\xc3<");
	poll_ok(10, sub { (http_get($port{pg1}, '/status'))[2] =~ /a\?\xc3\xbc\?&#60;/ }, 'the page: bytes that are not UTF-8 are question marks');
	$etcd->etcdctl('put', 'other/foreign', "1gp\xe2\x80\xae\n");
	poll_ok(10, sub { (http_get($port{pg1}, '/status'))[2] =~ /1gp\\xe2\\x80\\xae\\x0a/ }, 'the page: hidden characters are shown');
	$etcd->etcdctl('del', 'other/foreign');
}

# A hand-over.
$pg1->value('SELECT etcd_resign()');
poll_ok(5, sub { http_code($port{pg2}, '/leader') == 200 && http_code($port{pg1}, '/leader') == 503 }, 'a hand-over changes the answers');

# Without the elector nobody leads, and the rest is served.
my $worker = EtcdLeader::Http::worker_pid($pg2);
kill 'STOP', $pg2->elector_pid;
poll_is(10, sub { codes($port{pg2}) }, $expected{pg2}, 'the elector is stopped: nobody leads after the deadline');
kill 'CONT', $pg2->elector_pid;
$pg2->value('SELECT pg_terminate_backend(?)', $pg2->elector_pid);
# another server starts soon
poll_ok(5, sub { (http_get($port{pg2}, '/leader'))[2] =~ /"state":"elector_not_running"/ }, 'the elector is gone: the body says so');
is(codes($port{pg2}), $expected{pg2}, 'the other addresses are served');
poll_ok(10, sub { $pg2->elector_pid }, 'the elector is back');
poll_ok(10, sub { (http_get($port{pg2}, '/leader'))[2] =~ /"connected":true/ }, 'the instance has contact');
is(EtcdLeader::Http::worker_pid($pg2), $worker, 'the worker stayed');

# Promotion.
$standby->promote;
poll_ok(10, sub { http_code($port{standby}, '/replica') == 503 }, 'promoted: no replica any more');

# The TCP ports at which the processes of an instance listen.
sub ports
{
	my ($node) = @_;
	my %of = map { my @field = split; ($field[3] // '') eq '0A' ? ($field[9] => hex $field[1] =~ s/.*://r) : () }
	  map { split /\n/, slurp_file($_) } '/proc/net/tcp', '/proc/net/tcp6';
	my @pids = ($node->{_pid}, map { @$_ } @{ $node->dbh->selectall_arrayref('SELECT pid FROM pg_stat_activity') });
	push @pids, map { EtcdLeader::Http::server_pid($_) // () } EtcdLeader::Http::worker_pid($node);
	my %ports = map { $_ => 1 } grep { $_ } map { $of{ (readlink($_) // '') =~ /^socket:\[(\d+)\]$/ ? $1 : '' } } map { glob "/proc/$_/fd/*" } @pids;
	return sort keys %ports;
}

# Off by default.
{
	my $quiet = EtcdLeader::Instance->create('quiet', etcd => $etcd);
	$quiet->wait_until_candidate;
	is($quiet->value('SHOW etcd_leader.http_listen') . $quiet->value('SHOW etcd_leader.http_agent_listen'), '', 'off by default');
	is(EtcdLeader::Http::worker_pid($quiet), undef, 'off: no worker');
	is(join(' ', ports($quiet)), '', 'off: no port');
	is(join(' ', ports($pg1)), $port{pg1}, 'on: this port alone');
	my $maps = join '', map { slurp_file("/proc/$_/maps") } $quiet->elector_pid, $quiet->value('SELECT pg_backend_pid()');
	unlike($maps, qr/etcd_leader_http|microhttpd/, 'off: no library');
	$maps = join '', map { slurp_file("/proc/$_/maps") } $pg1->elector_pid, $pg1->value('SELECT pg_backend_pid()');
	unlike($maps, qr/etcd_leader_http|microhttpd/, 'on: no library but in its processes');
}
done_testing();
