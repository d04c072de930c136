# Copies of the server of Patroni's leader, with its name and its settings: none leads the
# election that follows Patroni.  What Patroni itself does to its servers is no copy.
use EtcdLeader::Test;
use EtcdLeader::Patroni;
use EtcdLeader::Session;

watchdog(300);

my $etcd     = EtcdLeader::Etcd->new;
my $cluster  = EtcdLeader::Patroni->new(etcd => $etcd, members => 2);
my $original = $cluster->primary;
my ($other)  = $cluster->others($original);
$original->wait_until_leader;
my $token = $original->token;

# Debian's etcd is older than is good for Patroni.
sub problems
{
	my ($node) = @_;
	return $node->value(q{SELECT coalesce(string_agg(problem, ' '), '') FROM etcd_leader_problems WHERE item <> 'version'});
}

# A base backup of the leader, on another port.
sub copy
{
	my ($name) = @_;
	my $copy = EtcdLeader::Instance->new($name);
	PostgreSQL::Test::Utils::system_or_bail('pg_basebackup', '-D', $copy->data_dir, '-h', $original->host, '-p', $original->port,
		'--checkpoint=fast', '--no-sync');
	$copy->append_conf('postgresql.conf', sprintf "port = %d\nlisten_addresses = ''\nunix_socket_directories = '%s'\n", $copy->port, $copy->host);
	return $copy;
}

sub never_leads
{
	my ($copy, $name, $problem) = @_;
	is($copy->value('SELECT pg_is_in_recovery()::int'), 0, "$name: it is a primary");
	is($copy->status->{node}, $original->name, "$name: with the name of Patroni's leader");
	my $sampler = $copy->sample;
	poll_ok(60, sub { $copy->trouble =~ $problem }, "$name: last_error says what it is") or diag $copy->trouble;
	pause(3);
	is_deeply([ grep { $_->{answer} eq 't' } $sampler->stop ], [], "$name: it never leads");
	is($original->token, $token, "$name: the original leads as before");
	return;
}

# ---- a copy that is started as it is -------------------------------------------------

my $copy = copy('copy');
$copy->start;
never_leads($copy, 'copy', qr/the data directory of this server is a copy of one of host/);
# the operator says that it is the member; then Patroni's keys decide
ok($copy->value('SELECT etcd_campaign()::int'), 'copy: etcd_campaign()');
poll_is(5, sub { problems($copy) }, '', 'copy: it is none any more');
fails($copy->dbh, 'SELECT etcd_campaign()', '55000', qr/Patroni decides who leads/, 'copy: once');
$copy->stop;

# ---- a copy that was a standby, and is promoted ------------------------------------------

my $promoted = copy('promoted');
$promoted->append_conf('standby.signal', '');
$promoted->start;
poll(20, sub { ($promoted->status->{state} // '') eq 'following' }) or die 'it does not follow';
my $sampler = $promoted->sample;
$promoted->promote;
poll(10, sub { !$promoted->value('SELECT pg_is_in_recovery()::int') }) or die 'no promotion';
never_leads($promoted, 'promoted', qr/has its member "${\$original->name}" on timeline 1, and this server is on timeline 2: is it a copy of that member/);
is_deeply([ grep { $_->{answer} eq 't' } $sampler->stop ], [], 'promoted: never since it began');
$promoted->stop;

# ---- what Patroni does -----------------------------------------------------------------------

sub leads
{
	my ($leader, $name) = @_;
	$leader->wait_until_leader;
	poll_is(5, sub { problems($leader) }, '', "$name: Patroni's leader leads, and nothing is wrong");
	is($leader->log_count('is it a copy|is a copy'), 0, "$name: it was never taken for a copy");
	return;
}

$cluster->restart($original);
leads($original, 'restart');
$cluster->switchover($other);
$cluster->wait_for_primary($other);
leads($other, 'switchover');
$cluster->wait_until_streaming;
$cluster->reinit($original);
$cluster->wait_until_streaming;
$cluster->switchover($original);
$cluster->wait_for_primary($original);
leads($original, 'switchover to a member that was made anew');
$cluster->wait_until_streaming;
$original->kill_all;
$cluster->wait_for_primary($other, [$original]);
leads($other, 'failover');
$original->start_patroni;
$cluster->wait_until_streaming;
$cluster->switchover($original);
$cluster->wait_for_primary($original);
leads($original, 'switchover to a member that was rewound');

done_testing();
