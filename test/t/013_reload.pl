# Settings that change while the server runs: each takes effect by a reload,
# and costs no leadership that it need not cost.
use EtcdLeader::Test;
use EtcdLeader::Relay;

my $etcd  = EtcdLeader::Etcd->new(members => 3);
my @nodes = map {
	EtcdLeader::Instance->create($_, etcd => $etcd, settings => { ttl => 5 },
		conf => "max_worker_processes = 16\n")
} qw(pg1 pg2);
my ($pg1, $pg2) = @nodes;
$_->wait_until_candidate for @nodes;
$pg1->wait_until_leader;
$_->wait_until_sees('pg1') for @nodes;
my @samplers = map { $_->sample(election => 'postgres') } @nodes;
my %elector  = map { $_->name => $_->elector_pid } @nodes;
my $token    = $pg1->token;

# Settings of the key that stands first.
sub first_key { return ($etcd->candidates($_[0] // 'postgres'))[0] }

# ttl: a lease with the new TTL, the same place
{
	for my $ttl (12, 3, 5)
	{
		$_->configure(ttl => $ttl) for @nodes;
		poll_is(15, sub { my $key = first_key(); ($etcd->lease($key->{lease}))[0] }, $ttl, "ttl $ttl: the lease is granted for it");
		is(first_key()->{create_revision}, $token, "ttl $ttl: the create revision is the same");
		poll_ok(5, sub { my $v = $pg1->status->{valid_s}; $v && $v > $ttl * 0.5 && $v <= $ttl * 0.9 }, "ttl $ttl: valid for as long")
		  or diag($pg1->explain_status);
		is($pg1->token, $token, "ttl $ttl: the token is the same");
	}
	poll_is(20, sub { scalar(my @l = $etcd->leases) }, 2, 'the old leases are revoked, or expire');
}

# safety_margin: less is believed
{
	$pg1->configure(safety_margin => 2000);
	poll_ok(5, sub { my $v = $pg1->status->{valid_s}; $v && $v <= 3 }, 'safety_margin: valid for less');
	$pg1->configure(safety_margin => undef);
	poll_ok(5, sub { my $v = $pg1->status->{valid_s}; $v && $v > 3 }, 'safety_margin: and for more again');
	is($pg1->token, $token, 'safety_margin: the token is the same');
}

# node_name: a new value of the same key
{
	my $mark = $pg2->last_event;
	$pg1->configure(node_name => 'renamed');
	poll_is(10, sub { $pg2->current_leader }, 'renamed', 'node_name: the other one sees it');
	is(first_key()->{value}, 'renamed', 'node_name: it is the value of the key');
	is(first_key()->{create_revision}, $token, 'node_name: of the same key');
	# whose answer may come after the event of the other instance
	poll_is(5, sub { $pg1->current_leader }, 'renamed', 'node_name: itself as well');
	is($pg1->status->{node}, 'renamed', 'node_name: the status');
	is($pg1->token, $token, 'node_name: the token is the same');
	poll_ok(5, sub { grep { EtcdLeader::Listener::summarize($_) eq 'leader postgres renamed proclaimed' } $pg2->events($mark) },
		'node_name: the other one tells');
	$pg1->configure(node_name => undef);
	poll_is(10, sub { $pg2->current_leader }, 'pg1', 'node_name: back to cluster_name');
}

# endpoints: to another member, without losing the place; few connections are left
{
	for my $i (1, 2, 0)
	{
		# a host and a port are a URL, too
		$_->configure(endpoints => $i == 2 ? $etcd->url($i) =~ s{^http://}{}r : $etcd->url($i)) for @nodes;
		poll_is(10, sub { $pg1->status->{endpoint} }, $etcd->url($i), "endpoints: member $i is used");
		# the watch and the requests; for the status of the others, a connection each.  A member
		# that is late on a busy machine is left for another one, which the status tells
		my $port;
		poll_ok(10, sub { ($port) = $pg1->status->{endpoint} =~ /:(\d+)$/; 2 <= grep { $_ eq $port } $pg1->tcp_connections($elector{pg1}) },
			"endpoints: requests and watch go to member $i, or to one that is used instead")
		  or diag("in use: $port; connections: " . join ' ', $pg1->tcp_connections($elector{pg1}));
		# requests that overlap use more for a moment
		poll_ok(10, sub { scalar(my @few = $pg1->tcp_connections($elector{pg1})) <= 5 }, 'endpoints: and the connections are few');
		is($pg1->token, $token, "endpoints: the token is the same on member $i");
	}
	# a database that does not exist, beside one that exists
	my $closed = 'http://127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port();
	$pg1->configure(endpoints => "$closed," . $etcd->url(1));
	poll_is(10, sub { $pg1->status->{endpoint} }, $etcd->url(1), 'endpoints: the one that answers is used');
	is($pg1->token, $token, 'endpoints: the token is the same');
	poll_ok(15, sub { $pg1->value('SELECT count(*) FROM etcd_leader_problems WHERE subject = ?', $closed) }, 'endpoints: the other is a problem');
	# all members; the one in use is stopped
	$_->configure(endpoints => $etcd->endpoints) for @nodes;
	poll_ok(5, sub { ($pg1->value('SHOW etcd_leader.endpoints')) eq $etcd->endpoints }, 'endpoints: all members are listed');
	my ($used) = grep { $etcd->url($_) eq $pg1->status->{endpoint} } $etcd->all;
	$etcd->stop($used);
	poll_ok(10, sub { my $s = $pg1->status; $s->{endpoint} ne $etcd->url($used) && $s->{connected} }, 'a stopped member: another is used');
	is($pg1->token, $token, 'a stopped member: the token is the same');
	$etcd->start($used);
}

# elections: added and dropped
{
	$_->configure(elections => 'postgres, jobs') for @nodes;
	poll_ok(10, sub { grep { $_->try_value(q{SELECT etcd_is_leader('jobs')}) } @nodes }, 'elections: a new one gets a leader');
	poll_ok(10, sub { scalar(my @c = $etcd->candidates('jobs')) == 2 }, 'elections: and two candidates');
	is($pg1->token, $token, 'elections: the first one is not touched');
	is($pg1->value('SELECT count(*) FROM etcd_leader_status'), 2, 'elections: a row for each');

	my ($holder) = grep { $_->is_leader('jobs') } @nodes;
	my ($other)  = grep { $_ != $holder } @nodes;
	my $mark     = $holder->last_event;
	$holder->configure(elections => 'postgres');
	$other->wait_until_leader('jobs', 5);
	ok(1, 'elections: dropped by its leader, the other one leads');
	is(($holder->failure(q{SELECT etcd_is_leader('jobs')}))[0], '42704', 'elections: a dropped name is unknown');
	is($holder->value('SELECT count(*) FROM etcd_leader_status'), 1, 'elections: a row less');
	poll_ok(5, sub { grep { EtcdLeader::Listener::summarize($_) eq 'unelected jobs - dropped' } $holder->events($mark) },
		'elections: it tells why');
	$other->configure(elections => 'postgres');
	poll_is(10, sub { scalar(my @c = $etcd->candidates('jobs')) }, 0, 'elections: no key is left behind');

	# as many as fit, and all others instead of them
	$_->configure(elections => join(',', 'postgres', map { "a$_" } 1 .. 31)) for @nodes;
	poll_ok(10, sub { $pg1->status('a31') && $pg1->status('a31')->{create_revision} }, 'elections: 32 of them');
	$_->configure(elections => join(',', 'postgres', 'd', map { "b$_" } 1 .. 30)) for @nodes;
	poll_ok(10, sub { my $s = $pg1->status('b30'); $s && $s->{create_revision} }, 'elections: and others instead');
	poll_is(10, sub { join ' ', map { $_->{key} } map { $etcd->candidates("a$_") } 1 .. 31 }, '', 'elections: no key is left behind');
	# the first election has changed, and so has the default
	$_->configure(elections => 'd,postgres') for @nodes;
	poll_ok(10, sub { $pg1->value('SELECT election FROM etcd_leader_status ORDER BY election LIMIT 1') eq 'd'
			&& $pg1->value('SELECT count(*) FROM etcd_leader_status') == 2 }, 'elections: another order');
	poll_is(5, sub { $pg1->value('SELECT etcd_is_leader()') }, $pg1->is_leader('d'), 'elections: the default is the first one');
	is($pg1->token('postgres'), $token, 'elections: the token of one that stayed is the same');
	$_->configure(elections => undef) for @nodes;
	poll_is(10, sub { $pg1->value('SELECT etcd_fencing_token()') }, $token, 'elections: back to the default');
	poll_is(5, sub { $pg2->value('SHOW etcd_leader.elections') }, 'postgres', 'elections: the other one as well');
}

# candidate: never, and primary again
{
	my $mark = $pg1->last_event;
	my $new  = $pg2->status->{create_revision};
	$pg1->configure(candidate => 'never');
	poll_ok(3, sub { $pg2->is_leader }, 'candidate = never: the next one leads');
	is($pg2->token, $new, 'candidate = never: under its own token');
	is($pg1->is_leader, 0, 'candidate = never: the old one does not lead');
	poll_is(5, sub { $pg1->status->{role} }, 'observer', 'candidate = never: it observes');
	# the next one leads at the watch's event, which can come before the answer to this one
	poll_is(5, sub { $pg1->status->{state} }, 'observing', 'candidate = never: the state');
	poll_is(5, sub { $pg1->current_leader }, 'pg2', 'candidate = never: and names the leader');
	is(join(' ', map { $_->{value} } $etcd->candidates('postgres')), 'pg2', 'candidate = never: its key is gone');
	is_deeply([ map { EtcdLeader::Listener::summarize($_) } grep { $_->{event} eq 'unelected' && $_->{election} eq 'postgres' } $pg1->events($mark) ],
		['unelected postgres - not_eligible'], 'candidate = never: it tells why');
	my ($state, $message) = $pg1->failure('SELECT etcd_campaign()');
	is($state, '55000', 'candidate = never: etcd_campaign() is refused');
	like($message, qr/never/, 'candidate = never: and says why');
	is($pg1->value('SELECT etcd_resign()'), 0, 'candidate = never: etcd_resign() says false');
	$pg1->configure(candidate => 'always');
	$pg1->wait_until_candidate;
	is($pg1->is_leader, 0, 'candidate = always: it queues');
	$pg1->configure(candidate => 'primary');
	poll_is(5, sub { $pg1->value('SHOW etcd_leader.candidate') }, 'primary', 'candidate = primary');
	is(join(' ', map { $_->{value} } $etcd->candidates('postgres')), 'pg2 pg1', 'candidate = primary: it stays in the queue');
}

# databases and channel
{
	$pg1->value('CREATE DATABASE app');
	my $in_app = $pg1->listen('app');
	my $here   = $pg1->listen('postgres');
	my $moved  = $pg1->listen('app', 'who_leads');
	$pg1->configure(notify_databases => 'app,postgres');
	poll_ok(10, sub { $pg1->notifier_pid('app') }, 'databases: one more has a notifier');
	my $mark = $pg1->last_event;
	$pg2->value('SELECT etcd_resign()');
	ok($in_app->wait_for(sub { $_[0]->{event} eq 'elected' }), 'databases: it is told');
	ok($here->wait_for(sub { $_[0]->{event} eq 'elected' }), 'databases: the other one as well');
	is((grep { $_->{seq} <= $mark } $in_app->notifications) + 0, 0, 'databases: the new one is told nothing old');

	$pg2->wait_until_candidate;
	my $heard = () = $in_app->notifications;
	$pg1->configure(notify_channel => 'who_leads');
	poll_is(5, sub { $pg1->value('SHOW etcd_leader.notify_channel') }, 'who_leads', 'channel: another');
	$pg1->value('SELECT etcd_resign()');
	ok($moved->wait_for(sub { $_[0]->{event} eq 'unelected' }), 'channel: the new one is told');
	is(scalar(my @now = $in_app->notifications), $heard, 'channel: the old one is not');
	$_->stop for $in_app, $here, $moved;
}

# ttl, raised without contact: the time-outs follow it, and there is contact
{
	my $relay = EtcdLeader::Relay->new($etcd->url(0));
	my $far   = EtcdLeader::Instance->create('far', etcd => $etcd, settings => { ttl => 2, endpoints => $relay->url, elections => 'far' });
	$far->wait_until_leader('far');
	my $pid = $far->elector_pid;
	$relay->delay;
	poll_ok(10, sub { my $s = $far->status; !$s->{connected} && !$far->is_leader('far') }, 'ttl without contact: the link is too slow for it')
	  or diag($far->explain_status);
	is($far->status->{ttl}, '00:00:02', 'ttl without contact: of the settings');
	$far->configure(ttl => 10);
	poll_ok(10, sub { $far->is_leader('far') }, 'ttl without contact: raised, it leads') or diag($far->explain_status);
	is($far->status->{ttl}, '00:00:10', 'ttl without contact: the new one is in force');
	is($far->elector_pid, $pid, 'ttl without contact: with the same elector');
	$relay->stop;
}

is($_->elector_pid, $elector{ $_->name }, $_->name . ': all that with the same elector') for @nodes;
EtcdLeader::Sampler::check_exclusion(\@samplers, 'while settings change');
done_testing();
