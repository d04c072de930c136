# doc/clients.md as it stands: a consumer of NOTIFY that follows the leader over hand-overs
# and a stop of a server; what vip-manager would be told.
use EtcdLeader::Test;
use EtcdLeader::Documents;
use EtcdLeader::Http;

my $page = 'doc/clients.md';
my $etcd = EtcdLeader::Etcd->new;
my (%node, %http);
for my $name (qw(pg1 pg2))
{
	$http{$name} = PostgreSQL::Test::Cluster::get_free_port();
	my $node = $node{$name} = EtcdLeader::Instance->create($name, etcd => $etcd, extension => 'README',
		settings => { ttl => 3, read_only_unless_leader_of => 'postgres', http_listen => "127.0.0.1:$http{$name}" });
	$node->value($_) for 'CREATE ROLE app LOGIN', 'CREATE TABLE queue (job text)', 'GRANT ALL ON queue TO app';
	$node->wait_until_candidate;
}
sub leader { my ($leader) = grep { $_->try_value('SELECT etcd_is_leader()') } values %node; return $leader }
my $old = leader();
my ($new) = grep { $_ != $old } values %node;

# ---- a consumer --------------------------------------------------------------------------

# a notification wakes it, and no time-out
my $servers = 'host=' . join(',', map { $_->host } $old, $new) . ' port=' . join(',', map { $_->port } $old, $new) . ' dbname=postgres';
my $code = document_block($page, 'consumer') =~ s/host=pg1,pg2,pg3 dbname=shop/$servers/r =~ s/\[\], 60\)/[], 3600)/r . <<'PYTHON';

def work(cursor):
    cursor.execute("DELETE FROM queue RETURNING job, (SELECT setting FROM pg_settings WHERE name = 'cluster_name')")
    for row in cursor.fetchall():
        print(*row, flush=True)
    cursor.execute("SHOW cluster_name")
    print("looked on", cursor.fetchone()[0], flush=True)

consume(work)
PYTHON
my $consumer = EtcdLeader::Util::Process->spawn(name => 'consumer', log => "$PostgreSQL::Test::Utils::log_path/101_consumer.log", cmd => [ 'python3', '-c', $code ]);
my $jobs = 0;

# A producer puts a job into the queue of the leader, and the consumer has it.
sub consumed
{
	my ($leader, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $job = 'job' . ++$jobs;
	$leader->value("INSERT INTO queue VALUES ('$job')");
	$leader->value('NOTIFY jobs');
	poll_ok(20, sub { $consumer->output =~ /^$job \Q@{[ $leader->name ]}\E$/m }, $what) or diag($consumer->output);
	return;
}

poll_ok(20, sub { $consumer->output =~ /^looked on/m }, 'the consumer looks at first');
consumed($old, 'a job on the leader');
consumed($old, 'the next job on the same leader');
$old->value('SELECT etcd_resign()');
$new->wait_until_leader;
consumed($new, 'after a hand-over: a job on the next leader');
poll_is(10, sub { $old->value(q{SELECT count(*) FROM pg_stat_activity WHERE usename = 'app'}) }, 0, 'the consumer has left the old leader');
$old->wait_until_candidate;
$new->stop;
$old->wait_until_leader;
consumed($old, 'after a stop of the leader: a job on the next leader');
$new->start;
$new->wait_until_candidate;
$consumer->stop;

# ---- vip-manager -------------------------------------------------------------------------

{
	my %setting = document_block($page, 'vip_manager') =~ /^(\S+): (.*)$/mg;
	my ($port, $path, $value) = (@setting{qw(dcs-endpoints trigger-key)}, $setting{'trigger-value'} =~ tr/"//dr);
	like($port, qr{^\["http://127\.0\.0\.1:\d+"\]$}, 'vip-manager asks the server beside it');
	my $has_address = sub { my ($node) = @_; return http_code($http{ $node->name }, $path) == $value ? 1 : 0 };
	is($has_address->($old), 1, "vip-manager: the leader's host has the address");
	is($has_address->($new), 0, 'vip-manager: the other host does not');
	$old->value('SELECT etcd_resign()');
	$new->wait_until_leader;
	poll_is(5, sub { $has_address->($new) }, 1, 'vip-manager: after a hand-over the address moves');
	is($has_address->($old), 0, 'vip-manager: and leaves the old host');
}
done_testing();
