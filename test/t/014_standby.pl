# A standby: with candidate = primary it observes, and campaigns within a
# second of its promotion, without a restart; with always it campaigns while
# it is in recovery.
use EtcdLeader::Test;
use EtcdLeader::Session;

my $etcd    = EtcdLeader::Etcd->new;
my $primary = EtcdLeader::Instance->create('primary', etcd => $etcd, init => { allows_streaming => 1 },
	conf => "max_connections = 40\n");
$primary->wait_until_leader;
# promoted beside a primary that lives, it shall wait
my $standby = EtcdLeader::Instance->create_standby('standby', $primary, settings => { second_primary => 'wait' });
$primary->wait_for_catchup($standby);
my $elector = poll(10, sub { $standby->elector_pid });
ok($elector, 'an elector runs on the standby');

# It observes.
poll_is(10, sub { $standby->current_leader }, 'primary', 'the standby names the leader');
my $s = $standby->status;
is($s->{role}, 'observer', 'its role');
is($s->{state}, 'observing', 'its state');
is($s->{is_leader}, 0, 'the standby does not lead');
is($s->{key}, undef, 'the standby has no key');
is($s->{leader}, 'primary', 'the status names the leader');
is($s->{fencing_token}, $primary->token, 'the standby knows the token of the leader');
is($s->{connected}, 1, 'the standby is connected');
is(scalar(my @keys = $etcd->candidates('postgres')), 1, 'only the primary is in the queue');
is($standby->value(q{SELECT notifiers_running || ' of ' || notifiers_expected FROM etcd_leader_stats}), '0 of 0',
	'the statistics: no notifier, and none is missing');
is($standby->value('SELECT is_leader FROM etcd_candidates()'), 1, 'etcd_candidates() works there');
is($standby->token, undef, 'the standby has no token of its own');
my ($state, $message) = $standby->failure('SELECT etcd_campaign()');
is($state, '55000', 'etcd_campaign() is refused');
like($message, qr/recovery/, 'the error says that the server is in recovery');
is($standby->value('SELECT etcd_resign()'), 0, 'etcd_resign() says false');

# Its waiting functions.
my $began = now();
is($standby->value(q{SELECT etcd_wait_for_leadership(timeout => '300 ms')}), 0, 'etcd_wait_for_leadership() ends at its timeout');
my $took = now() - $began;
cmp_ok($took, '>=', 0.3, 'the standby does not campaign before its promotion');
in_time($took - 0.3, 1.2, 'and the wait ends then');
{
	my $dbh = $standby->connect_db;
	my $mark = $standby->last_event;
	my $statement = $dbh->prepare(q{SELECT event, coalesce(leader, '-'), reason FROM etcd_wait_for_event(?, '20 s')},
		{ pg_async => DBD::Pg::PG_ASYNC() });
	$statement->execute($mark);
	$primary->value('SELECT etcd_resign()');
	poll_ok(10, sub { $dbh->pg_ready }, 'etcd_wait_for_event() returns when something happens');
	$dbh->pg_result;
	my $row = $statement->fetchrow_arrayref;
	is($row->[0], 'leader', 'the promoted server announces that it is elected');
	poll_is(5, sub { $standby->current_leader }, 'primary', 'the promoted server leads again');
	is($standby->value(q{SELECT event FROM etcd_wait_for_event(?, '20 s') ORDER BY seq LIMIT 1}, $mark), 'leader',
		'events that are there already are returned at once');
}

# candidate = always: it campaigns in recovery
$standby->configure_conf(candidate => 'always');
$standby->wait_until_candidate;
is($standby->status->{role}, 'candidate', 'candidate = always: it is in the queue');
is($standby->value('SELECT pg_is_in_recovery()'), 1, 'candidate = always: in recovery');
my @samplers = map { $_->sample } $primary, $standby;
my $token = $primary->token;
$primary->value('SELECT etcd_resign()');
$standby->wait_until_leader(undef, 5);
ok($standby->is_leader, 'candidate = always: it leads');
cmp_ok($standby->token, '>', $token, 'candidate = always: under a greater token');
poll_is(5, sub { $primary->current_leader }, 'standby', 'candidate = always: the primary names it');
is($standby->value(q{SELECT etcd_wait_for_leadership(timeout => '1 s')}), 1, 'candidate = always: etcd_wait_for_leadership() says true');

# ... and back: it leaves the queue
my $mark = $standby->last_event;
$standby->configure_conf(candidate => 'primary');
$primary->wait_until_leader(undef, 5);
poll_is(5, sub { $standby->status->{role} }, 'observer', 'candidate = primary: it observes again');
is_deeply([ map { EtcdLeader::Listener::summarize($_) } grep { $_->{event} eq 'unelected' } $standby->events($mark) ],
	['unelected postgres - not_eligible'], 'candidate = primary: it tells why');

# Promotion: it campaigns within a second, without a restart, and NOTIFYs.
my $mark_before = $standby->last_event;
$primary->value('CREATE TABLE promoted (token bigint)');
$primary->wait_for_catchup($standby);
my $waiting = $standby->connect_db;
start_statement($waiting, q{DO $$ DECLARE l boolean; BEGIN CALL etcd_await_leadership(leads => l); COMMIT; INSERT INTO promoted VALUES (etcd_require_leader()); END $$});
waits_in($standby, $waiting, qr/^Extension/);
$standby->value('SELECT pg_promote(wait => false)');
my $promoted;
poll(30, sub { !$standby->value('SELECT pg_is_in_recovery()') }) or die 'not promoted';
$promoted = now();
poll_ok(5, sub { $standby->status->{create_revision} }, 'promoted: its key stands');
$took = now() - $promoted;
in_time($took, 1, 'promoted: within a second');
note(sprintf 'promoted: after %.0f ms', 1000 * $took);
is($standby->elector_pid, $elector, 'promoted: by the same elector');
is($standby->is_leader, 0, 'promoted: it waits for its turn');
poll_ok(10, sub { $standby->notifier_pid }, 'promoted: a notifier runs');
poll_is(10, sub { $standby->value(q{SELECT notifiers_running || ' of ' || notifiers_expected FROM etcd_leader_stats}) }, '1 of 1',
	'promoted: the statistics know');
my $listener = $standby->listen;
$primary->stop('fast');
poll_ok(5, sub { $standby->is_leader }, 'promoted: it leads when the old primary goes');
ok($listener->wait_for(sub { $_[0]->{event} eq 'elected' }), 'promoted: and tells');
is(outcome($waiting), 'done', 'promoted: etcd_await_leadership, called in recovery, returns');
is($standby->value('SELECT token FROM promoted'), $standby->token, 'promoted: and the block it is in goes on to write');
my @told = map { $_->{seq} } $listener->notifications;
is(join(' ', @told), join(' ', $told[0] .. $standby->last_event), 'promoted: each event once');

EtcdLeader::Sampler::check_exclusion(\@samplers, 'primary and standby');

# A drain in recovery waits for transactions that a call has fenced, and goes on over a promotion.
my $second = EtcdLeader::Instance->create_standby('second', $standby, settings => { node_name => 'second', candidate => 'always' });
$second->wait_until_candidate;
$standby->value('SELECT etcd_resign()');
$second->wait_until_leader(undef, 5);
$standby->wait_until_candidate;
my ($fenced, $caller) = map { $second->connect_db } 1 .. 2;
$fenced->begin_work;
$fenced->selectrow_array('SELECT etcd_require_leader()');
start_statement($caller, q{SELECT etcd_resign(drain => '60 s')});
poll_is(5, sub { $second->status->{state} }, 'draining', 'candidate = always: it drains');
$second->promote;
poll(30, sub { !$second->value('SELECT pg_is_in_recovery()') }) or die 'not promoted';
pause(1.5);
is($second->status->{state}, 'draining', 'promoted: it drains');
ok(eval { $fenced->commit; 1 }, 'promoted: the fenced transaction commits');
is(outcome($caller), 'done', 'promoted: then it hands over');
$standby->wait_until_leader(undef, 5);
done_testing();
