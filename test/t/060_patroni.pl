# A cluster of Patroni's, and an election that follows its leader key: the results
# of the functions, and that it goes where patronictl sends it, with no two
# that lead and no second lost after the promotion.
use EtcdLeader::Test;
use EtcdLeader::Patroni;
use EtcdLeader::Session;

watchdog(400);

my $etcd     = EtcdLeader::Etcd->new(members => 3);
my $cluster  = EtcdLeader::Patroni->new(etcd => $etcd, settings => { read_only_unless_leader_of => 'patroni:test1' });
my $election = $cluster->election;
my $first    = $cluster->primary;
my ($second, $third) = $cluster->others($first);

# True on the member that the key names, false on the others, who know its name.
sub leads
{
	my ($leader, $name) = @_;
	poll_is(10, sub { $leader->try_value('SELECT etcd_is_leader()::int') }, 1, "$name: " . $leader->name . ' leads')
	  < 10 or diag $cluster->explain;
	is($cluster->leader_key->{value}, $leader->name, "$name: Patroni's key names it");
	for my $other ($cluster->others($leader))
	{
		poll_is(10, sub { $other->try_value('SELECT etcd_current_leader()') }, $leader->name, "$name: " . $other->name . ' knows it');
		is($other->value('SELECT etcd_is_leader()::int'), 0, "$name: " . $other->name . ' does not lead');
	}
	return;
}

leads($first, 'start');

# ---- views and functions --------------------------------------------------------

my $key    = $cluster->leader_key;
my $status = $first->status;
is($status->{election},        $election,                'status: the election');
is($status->{state},           'leading',                'status: leading');
is($status->{role},            'leader',                 'status: the role');
is($status->{key},             $cluster->prefix . 'leader', 'status: the key');
is($status->{fencing_token},   $key->{create_revision}, 'the token is the create revision of the key');
is($status->{create_revision}, $key->{create_revision}, 'status: the create revision');
is($status->{lease_id},        $key->{lease_hex},       'status: the lease');
my ($granted) = $etcd->lease($key->{lease});
cmp_ok($status->{valid_s}, '<', $granted - 1, 'a second of the lease is left out');
cmp_ok($status->{valid_s}, '>', 0,            'the deadline is ahead');
is($second->status->{state}, 'following', 'status of a replica: following');
is($second->status->{role},  'observer',  'status of a replica: the role');
is($second->value(q{SELECT count(*) FROM etcd_leader_problems WHERE item <> 'version'}), 0, 'status of a replica: nothing is wrong');

my @candidates = $second->rows('SELECT * FROM etcd_candidates()');
is(join(' ', map { $_->{node} } @candidates[ 0 .. 0 ]), $first->name, 'etcd_candidates(): the leader comes first');
is(join(' ', sort map { $_->{node} } @candidates), 'n0 n1 n2', 'etcd_candidates(): the members');
is(join(' ', map { $_->{position} // '-' } @candidates),  '1 - -', 'etcd_candidates(): positions');
is(join(' ', map { $_->{is_leader} } @candidates), '1 0 0', 'etcd_candidates(): is_leader');
is(join(' ', map { $_->{node} } grep { $_->{is_self} } @candidates), $second->name, 'etcd_candidates(): is_self');
is($candidates[0]{create_revision}, $key->{create_revision}, 'etcd_candidates(): the token of the leader');
like($candidates[1]{key}, qr{^/service/test1/members/n\d$}, 'etcd_candidates(): the keys of members');

is($first->value('SELECT etcd_verify_leader()'), $key->{create_revision}, 'etcd_verify_leader()');
is($first->value('SELECT etcd_require_leader()'), $key->{create_revision}, 'etcd_require_leader()');
fails($second->dbh, 'SELECT etcd_verify_leader()', '25006', qr/./, 'etcd_verify_leader() on a replica');
for my $call ('etcd_resign()', 'etcd_campaign()', "etcd_proclaim('x')")
{
	fails($first->dbh, "SELECT $call", '55000', [ qr/Patroni decides who leads/, qr/patronictl switchover/ ], $call);
}

# ---- where patronictl sends it -----------------------------------------------------

my $samplers = $cluster->sample;

# Runs a command that makes another member the leader.
sub moves_to
{
	my ($new, $name, $command) = @_;
	my $old_token = $cluster->primary->token;
	my $watch = $new->watch_roles;
	poll(10, sub { $watch->output ne '' });
	$command->();
	$cluster->wait_for_primary($new);
	leads($new, $name);
	$watch->stop;
	my @seen = $watch->EtcdLeader::Patroni::Member::roles_seen;
	my ($promoted) = grep { @$_ == 3 && !$_->[1] } @seen;
	my ($leading)  = grep { @$_ == 3 && $_->[2] } @seen;
	# Patroni looks once a second whether its promotion has ended, and then tells the timeline
	in_time($leading->[0] - $promoted->[0], 2.5, sprintf '%s: true %.0f ms after the promotion', $name, 1000 * ($leading->[0] - $promoted->[0]));
	is(scalar(grep { @$_ == 3 && $_->[1] && $_->[2] } @seen), 0, "$name: never true in recovery");
	cmp_ok($new->token, '>', $old_token, "$name: a greater token");
	$cluster->wait_until_streaming;
	return;
}

# Users who are no superusers write where Patroni's leader is; Patroni itself is one.
$first->value($_) for 'CREATE ROLE app LOGIN', 'CREATE TABLE written (i int)', 'GRANT ALL ON written TO app';
succeeds($first->connect_db('postgres', user => 'app'), 'INSERT INTO written VALUES (1)', 'start: a user writes on the leader');
poll(10, sub { $second->try_value('SELECT count(*) FROM written') }) or die 'not replicated';
my $app = $second->connect_db('postgres', user => 'app');

my $after = $first->last_event;
moves_to($second, 'switchover', sub { $cluster->switchover($second) });
is($app->selectrow_array('SHOW default_transaction_read_only'), 'off', 'switchover: a session that began on the replica is not read-only');
succeeds($app, 'INSERT INTO written VALUES (2)', 'switchover: and writes');
moves_to($third,  'failover',   sub { $cluster->failover($third) });

my $token = $third->token;
$cluster->restart($third);
leads($third, 'restart');
is($third->token, $token, 'restart: the key stays, and with it the token');

$cluster->reinit($second);
$cluster->wait_until_streaming;
leads($third, 'reinit of a replica');

$cluster->pause_cluster;
pause(2);
leads($third, 'pause: the key is renewed');
is($third->token, $token, 'pause: the same token');
$cluster->resume_cluster;
$cluster->reload;
pause(1);
leads($third, 'reload');
is($third->token, $token, 'reload: the same token');

$samplers = { EtcdLeader::Sampler::check_exclusion($samplers, 'patronictl', max_gap => 2) };

# ---- events -------------------------------------------------------------------------

# n2 was elected, and restarted: these are the events since then
my @events = grep { ($_->{election} // '') eq $election } $third->events(0);
my ($end) = grep { ($events[$_]{reason} // '') eq 'shutdown' } reverse 0 .. $#events;
@events = @events[ $end + 1 .. $#events ] if defined $end;
is($events[-1]{event}, 'elected', 'events: elected is the last after the restart');
is($events[-1]{fencing_token}, $token, 'events: with the token');
ok(!(grep { $_->{event} eq 'unelected' } @events), 'events: renewals raise none');

done_testing();
