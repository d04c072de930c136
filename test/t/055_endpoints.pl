# The view of the endpoints: what each is, and why one cannot be used.
use EtcdLeader::Test;

my $etcd  = EtcdLeader::Etcd->new(members => 3);
my $other = EtcdLeader::Etcd->new;
my $dead  = 'http://127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port();
my $name  = 'http://no-such-host.invalid:2379';
my $pg    = EtcdLeader::Instance->create('pg1', endpoints => join(',', (map { $etcd->url($_) } $etcd->all), $other->url(0)));
$pg->wait_until_leader;

sub endpoint { my ($url) = @_; return $pg->row('SELECT * FROM etcd_leader_endpoints WHERE url = ?', $url) }
sub column   { my ($url, $column) = @_; return $pg->value("SELECT $column FROM etcd_leader_endpoints WHERE url = ?", $url) // 'NULL' }

# Each member, as etcd describes it.
my %member_of  = map { my $m = $_; map { $_ => $m->{name} } @{ $m->{clientURLs} } } @{ $etcd->post('/v3/cluster/member/list', {})->{members} };
my $cluster_id = $etcd->cluster_id;
my $version    = $etcd->post('/v3/maintenance/status', {})->{version};
for my $i ($etcd->all)
{
	my $url = $etcd->url($i);
	poll_ok(10, sub { column($url, 'version IS NOT NULL AND member_name IS NOT NULL') }, "member $i has answered");
	my $row = endpoint($url);
	is($row->{version},     $version,          "member $i: version");
	is($row->{cluster_id},  $cluster_id,       "member $i: cluster");
	is($row->{member_name}, $member_of{$url}, "member $i: name");
	is($row->{last_error},  undef,             "member $i: no error");
	ok(column($url, q{last_contact BETWEEN now() - interval '1 min' AND clock_timestamp()}), "member $i: last contact");
	ok(column($url, 'latency_ms > 0 AND latency_ms < 5000'), "member $i: latency");
}
is($pg->value('SELECT string_agg(url, $$,$$) FROM etcd_leader_endpoints WHERE in_use'), $pg->status->{endpoint}, 'one is in use, that of the status');
is($pg->value('SELECT string_agg(url, $$,$$) FROM etcd_leader_endpoints'), join(',', (map { $etcd->url($_) } $etcd->all), $other->url(0)), 'they are in the order of the setting');

# What cannot be used.
my $foreign = endpoint($other->url(0));
is($foreign->{cluster_id}, $other->cluster_id, 'another cluster: its ID');
like($foreign->{last_error}, qr/\Q${\$other->url(0)}\E" is of cluster ${\$other->cluster_id}, etcd at ".*" of cluster $cluster_id/, 'and why it is not used');
is($foreign->{in_use}, 0, 'it is not in use');

$pg->configure(endpoints => join(',', (map { $etcd->url($_) } $etcd->all), $dead, $name));
poll_ok(10, sub { column($dead, 'last_error') =~ /connect/i }, 'a port that nobody listens on: the error') or diag(column($dead, 'last_error'));
poll_ok(15, sub { $pg->log_count(qr/WARNING:  etcd at "\Q$dead\E" cannot be used/) }, 'and the log tells of it');
poll_ok(10, sub { $pg->value('SELECT hint FROM etcd_leader_problems WHERE subject = ?', $dead) =~ /No member of the cluster announces this URL any more\. Remove it from the settings\. The members announce http:\S+, http:\S+, http:\S+\.$/ },
	'with the URLs that the members announce');
poll_ok(10, sub { column($name, 'last_error') =~ /no-such-host/ }, 'a name that does not exist: the error') or diag(column($name, 'last_error'));
my $never = endpoint($dead);
is(join(',', map { $never->{$_} // 'NULL' } qw(version cluster_id member_name last_contact latency_ms)), 'NULL,NULL,NULL,NULL,NULL', 'it has told nothing');
is($pg->value('SELECT count(*) FROM etcd_leader_endpoints WHERE url = ?', $other->url(0)), 0, 'an endpoint that was removed has no row');

# A spare member dies, and comes back.
my ($spare) = grep { $etcd->url($_) ne $pg->status->{endpoint} } $etcd->all;
$etcd->kill($spare);
$pg->reload;
poll_ok(10, sub { column($etcd->url($spare), 'last_error') =~ /connect/i }, 'a spare member that died: the error');
is(column($etcd->url($spare), 'version'), $version, 'what it told before stays');
$etcd->start($spare);
$etcd->wait_until_serving;
poll_is(30, sub { column($etcd->url($spare), 'last_error') }, 'NULL', 'it is back: no error, without a reload');

# The one in use dies.
my $used  = $pg->status->{endpoint};
my ($i)   = grep { $etcd->url($_) eq $used } $etcd->all;
$etcd->kill($i);
poll_ok(20, sub { $pg->value('SELECT count(*) FROM etcd_leader_endpoints WHERE in_use AND url <> ?', $used) == 1 }, 'another one is in use');
$etcd->start($i);
$etcd->wait_until_serving;

# A member that is not in the settings.
$pg->configure(endpoints => $etcd->url(0));
poll_is(20, sub { $pg->value('SELECT count(*) FROM etcd_leader_endpoints WHERE member_name IS NOT NULL AND last_error IS NULL') }, 3, 'learned members have rows');

# Without an elector no endpoint is in use.
$pg->stop;
$pg->append_conf('postgresql.conf', 'max_worker_processes = 0');
$pg->start;
is($pg->value('SELECT count(*) FROM etcd_leader_endpoints'), 0, 'without an elector there is no endpoint');
done_testing();
