# Two hundred sessions that wait at once: cancelled, terminated, woken by a
# hand-over.  A full mailbox while etcd is frozen: a session that gives up frees its
# place, the others are answered when etcd is back, and a resignation gets
# through.  A killed one costs nobody else anything but the crash restart.
use EtcdLeader::Test;
use EtcdLeader::Session;

# No request times out while etcd is frozen, and no lease expires.
my $etcd  = EtcdLeader::Etcd->new;
my @nodes = map {
	EtcdLeader::Instance->create($_, etcd => $etcd, conf => "max_connections = 260\nlog_line_prefix = '%m [%p] %b %e %q%a '\n",
		settings => { elections => 'postgres, other', ttl => 60, request_timeout => 20000 })
} qw(pg1 pg2);
my ($pg1, $pg2) = @nodes;
for my $election ('postgres', 'other') { $_->wait_until_candidate($election) for @nodes }

# pg1 leads one election, and pg2, where the waiters are, leads the other.
for ([ $pg1, 'postgres' ], [ $pg2, 'other' ])
{
	my ($node, $election) = @$_;
	my ($rest) = grep { $_ != $node } @nodes;
	poll(20, sub { $_->is_leader($election) && return 1 for @nodes; 0 }) or die "nobody leads $election";
	$rest->value('SELECT etcd_resign(?)', $election) if $rest->is_leader($election);
	$node->wait_until_leader($election);
	$rest->wait_until_sees($node->name, $election);
	$rest->wait_until_candidate($election);
}

# Sessions that have started a statement, and do wait in it.
sub start_all
{
	my ($node, $n, $sql) = @_;
	my @dbhs = map { $node->connect_db } 1 .. $n;
	# of a lost connection the driver does not know it any more
	$_->{private_pid} = $_->{pg_pid} for @dbhs;
	start_statement($_, $sql) for @dbhs;
	return @dbhs;
}

# How many sessions wait in the extension's functions.
sub count_waiting
{
	my ($node) = @_;
	return $node->value(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'
		AND state = 'active' AND wait_event_type = 'Extension'});
}

sub all_wait
{
	my ($node, $n, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return poll_is(30, sub { count_waiting($node) }, $n, $name);
}

# Cancels or terminates them; how they end.
sub end_all
{
	my ($node, $function, @dbhs) = @_;
	$node->value("SELECT count($function(pid)) FROM unnest(?::int[]) AS pid", [ map { $_->{pg_pid} } @dbhs ]);
	return outcomes($node, @dbhs);
}

# How the statements end, as "result x how often".  If an error ends the session,
# its SQLSTATE is not in the driver, but in the server's log.
sub outcomes
{
	my ($node, @dbhs) = @_;
	my %n;
	for my $dbh (@dbhs)
	{
		my $end = eval { outcome($dbh, 20) } // "lost $@";
		if ($end =~ /^(?:08|lost)/)
		{
			my $log = PostgreSQL::Test::Utils::slurp_file($node->logfile);
			$end = $log =~ /\[$dbh->{private_pid}\] client backend (\S+) .*FATAL:  terminating connection/ ? $1 : 'lost';
		}
		$n{ $end =~ s/^([0-9A-Z]{5}) .*/$1/sr }++;
	}
	return join ', ', map { "$_ x $n{$_}" } sort keys %n;
}

# ---- waiting for leadership and for events ----------------------------------------
{
	my @samplers = map { $_->[0]->sample(election => $_->[1]) } ([ $pg1, 'postgres' ], [ $pg2, 'other' ]);
	my %token    = (postgres => $pg1->token('postgres'), other => $pg2->token('other'));
	my %mark     = map { $_->name => $_->last_event } @nodes;
	my $elector  = $pg2->elector_pid;

	my @leadership = start_all($pg2, 100, 'SELECT 1 / etcd_wait_for_leadership()::int');
	my @event      = start_all($pg2, 100, 'SELECT 1 / (count(*) > 0)::int FROM etcd_wait_for_event()');
	all_wait($pg2, 200, '200 sessions wait');

	for my $kind ([ 'etcd_wait_for_leadership', \@leadership ], [ 'etcd_wait_for_event', \@event ])
	{
		my ($function, $dbhs) = @$kind;
		my @cancelled  = splice @$dbhs, 0, 30;
		my @terminated = splice @$dbhs, 0, 30;
		my $began      = now();
		is(end_all($pg2, 'pg_cancel_backend', @cancelled), '57014 x 30', "$function: cancelled");
		is(scalar(grep { $_->ping == 1 } @cancelled), 30, "$function: the cancelled sessions are usable");
		is(end_all($pg2, 'pg_terminate_backend', @terminated), '57P01 x 30', "$function: terminated");
		in_time(now() - $began, 5, "$function: soon") and note(sprintf '%.0f ms', 1000 * (now() - $began));
	}
	all_wait($pg2, 80, 'the others go on waiting');

	# some waiters whose wait will not succeed
	my @late = start_all($pg2, 20, q{SELECT 1 / (NOT etcd_wait_for_leadership(timeout => '300 ms'))::int});
	push @late, start_all($pg2, 20, q{SELECT 1 / (count(*) = 0)::int FROM etcd_wait_for_event(NULL, '300 ms')});
	is(outcomes($pg2, @late), 'done x 40', 'who has a timeout ends at it, with nothing');

	for ([ $pg1, 'postgres' ], [ $pg2, 'other' ])
	{
		my ($node, $election) = @$_;
		is_deeply([ $node->events($mark{ $node->name }) ], [], $node->name . ': there was no event meanwhile');
		is($node->token($election), $token{$election}, $node->name . " leads $election under the same token");
	}
	is_deeply([ map { { map { ($_->{answer} => 1) } $_->stop } } @samplers ], [ { t => 1 }, { t => 1 } ], 'the leader led all the time');

	my $began = now();
	$pg1->value('SELECT etcd_resign()');
	is(outcomes($pg2, @leadership, @event), 'done x 80', 'the rest is woken by a hand-over');
	in_time(now() - $began, 5, 'soon') and note(sprintf '%.0f ms', 1000 * (now() - $began));
	is(count_waiting($pg2), 0, 'nobody is left waiting');
	is($pg2->elector_pid, $elector, 'the elector is the same');
}
$pg2->wait_until_leader;
$_->wait_until_candidate for @nodes;

# ---- the mailbox ---------------------------------------------------------------------

# It has 16 places; more than that ask at once.
my %ask = (
	etcd_verify_leader => 'SELECT etcd_verify_leader(NULL, NULL)',
	etcd_candidates    => 'SELECT 1 / (count(*) > 0)::int FROM etcd_candidates()',
	etcd_proclaim      => q{SELECT etcd_proclaim('pg2')},
	etcd_campaign      => q{SELECT etcd_campaign('other')},
);

# Requests of all kinds are answered: no place is lost.
sub mailbox_works
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $began = now();
	my @dbhs  = map { start_all($pg2, 10, $ask{$_}) } sort keys %ask;
	my $n = @dbhs;
	is(outcomes($pg2, @dbhs), "done x $n", "$name: $n requests at once are answered");
	in_time(now() - $began, 5, "$name: soon") and note(sprintf '%s: %.0f ms', $name, 1000 * (now() - $began));
	return;
}

# out of one, so that entering it takes etcd
is($pg2->value(q{SELECT etcd_resign('other', false)}), 1, 'pg2 leaves one election');
my $token = $pg2->token;

for my $order ([qw(etcd_verify_leader etcd_candidates etcd_proclaim etcd_campaign)],
	[qw(etcd_campaign etcd_proclaim etcd_candidates etcd_verify_leader)])
{
	my $name = "$order->[0] first";
	$pg2->value(q{SELECT etcd_resign('other', false)});
	$etcd->freeze(0);
	my %asking = map { $_ => [ start_all($pg2, 24, $ask{$_}) ] } @$order;
	all_wait($pg2, 96, "$name: 96 sessions wait for etcd or for a place");

	my $began = now();
	for my $function (@$order)
	{
		my $dbhs = $asking{$function};
		is(end_all($pg2, 'pg_cancel_backend', splice @$dbhs, 0, 8), '57014 x 8', "$name: $function is cancelled");
		is(end_all($pg2, 'pg_terminate_backend', splice @$dbhs, 0, 8), '57P01 x 8', "$name: $function is terminated");
	}
	in_time(now() - $began, 5, "$name: soon");
	# a place that becomes free wakes some of them, which wait again
	all_wait($pg2, 32, "$name: the others go on waiting");

	$etcd->thaw(0);
	$began = now();
	is(outcomes($pg2, map { @{ $asking{$_} } } @$order), 'done x 32', "$name: the others are answered when etcd is back");
	in_time(now() - $began, 5, "$name: soon") and note(sprintf '%.0f ms', 1000 * (now() - $began));
	mailbox_works($name);
	is($pg2->token, $token, "$name: pg2 leads under the same token");
}

# Requests that verify leave room for a resignation.
{
	$etcd->freeze(0);
	my @verifying = start_all($pg2, 60, $ask{etcd_verify_leader});
	all_wait($pg2, 60, '60 sessions verify');
	my $began     = now();
	my ($resigns) = start_all($pg2, 1, 'SELECT 1 / etcd_resign()::int');
	poll_is(5, sub { $pg2->is_leader }, 0, 'a resignation is heard behind all of them');
	note(sprintf '%.0f ms', 1000 * (now() - $began));
	$etcd->thaw(0);
	is(outcome($resigns), 'done', 'the resignations are done when etcd is back');
	is(outcomes($pg2, @verifying), '25006 x 60', 'the waiting sessions get an error: the instance does not lead');
	$pg1->wait_until_leader;
	$pg2->wait_until_candidate;
	mailbox_works('after the resignation') if is($pg1->value('SELECT etcd_resign()'), 1, 'pg1 gives it back') && poll(20, sub { $pg2->is_leader });
}

# One is killed while it waits for an answer: a crash restart.  The elector
# resumes, under the same token, and the mailbox is empty.  (Not while it is
# entering an election: etcd may execute its request later.)
{
	$token = $pg2->token;
	my $seen    = $pg1->last_event;
	my $offset  = $pg2->log_size;
	my $elector = $pg2->elector_pid;
	delete $ask{etcd_campaign};
	$etcd->freeze(0);
	my @asking = map { start_all($pg2, 12, $ask{$_}) } sort keys %ask;
	all_wait($pg2, 36, '36 sessions wait');
	my $killed = shift @asking;
	kill 'KILL', $killed->{private_pid};
	is(outcomes($pg2, @asking), 'lost x 35', 'one is killed: the others lose their connections');
	$etcd->thaw(0);
	poll_ok(30, sub { $pg2->try_value('SELECT etcd_is_leader()') }, 'one is killed: pg2 leads again');
	is($pg2->token, $token, 'one is killed: under the same token');
	isnt($pg2->elector_pid, $elector, 'one is killed: by a new elector');
	is($pg2->log_count('resuming the lease', $offset), 1, 'one is killed: which has resumed the lease');
	is_deeply([ grep { $_->{event} eq 'leader' } $pg1->events($seen) ], [], 'one is killed: the other instance has seen no change');
	mailbox_works('one is killed');
}

done_testing();
