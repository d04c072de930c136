# A server that sends frames without end, beside a good endpoint: the elector uses the
# good endpoint, leaves the processor to others, and a fast stop is fast.
use EtcdLeader::Test;
use EtcdLeader::Flood;

my $etcd = EtcdLeader::Etcd->new;
my $good = $etcd->url(0);
(my $other = $good) =~ s/127\.0\.0\.1/localhost/;

my $pg = EtcdLeader::Instance->create('pg', etcd => $etcd, settings => { ttl => 5 });
$pg->wait_until_leader;
my $token   = $pg->token;
my $elector = $pg->elector_pid;
my $round   = 0;

# A leader is led there.  The endpoint in use is kept if it is listed, so the good
# one gets its other name each time.
for my $kind (sort keys %EtcdLeader::Flood::kinds)
{
	my ($url, $process) = EtcdLeader::Flood::serve($kind);
	my $name  = ++$round % 2 ? $other : $good;
	my $began = now();
	$pg->configure(endpoints => "$url,$name");
	poll_is(10, sub { $pg->status->{endpoint} }, $name, "$kind: the other endpoint is used");
	note(sprintf '%s: after %.2f s: %s', $kind, now() - $began, $pg->status->{last_error} // '');
	$process->stop('KILL');
}
is($pg->token, $token, 'it has led all the time');
is($pg->elector_pid, $elector, 'the same elector runs');

# A check ends in time.
for my $kind ('WINDOW_UPDATE of the connection', 'DATA of length 0', 'an extension of a chunk in HTTP/1')
{
	my ($url, $process) = EtcdLeader::Flood::serve($kind);
	$pg->configure(endpoints => "$url,$good");
	poll_is(5, sub { $pg->value('SHOW etcd_leader.endpoints') }, "$url,$good", "$kind: the session knows the endpoints");
	my $dbh = $pg->dbh;
	$dbh->do(q(SET statement_timeout = '5s'));
	my $row;
	poll_ok(10, sub { $row = $dbh->selectrow_hashref(q(SELECT * FROM etcd_leader_check() WHERE item = 'endpoint' AND subject = ?), undef, $url) }, "$kind: the check ends");
	# how much comes of an extension in the time of a request depends on the host
	like($row->{problem} // '', $kind =~ /extension/ ? qr/flood|no answer/ : qr/flood/, "$kind: and says why the endpoint is of no use");
	like($row->{hint} // '', qr/endpoint of etcd/, "$kind: with a hint");
	$process->stop('KILL');
}

# Nothing but such a server: a fast stop does not wait for it.
my ($url, $process) = EtcdLeader::Flood::serve('RST_STREAM');
$pg->configure(endpoints => $url);
poll_ok(10, sub { ($pg->status->{last_error} // '') =~ /flood/ }, 'nothing but a flood: last_error says so');
my $began = now();
$pg->stop('fast');
in_time(now() - $began, 3, 'nothing but a flood: a fast stop is fast');
$process->stop('KILL');

done_testing();
