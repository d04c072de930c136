# The postmaster is killed, and backends that never wait live on: they see
# false before anybody else leads, and cannot commit a transaction that requires leadership.
# How soon another instance leads, after that and after an immediate stop.
use EtcdLeader::Test;
use DBD::Pg ();

my $ttl   = 15;
my $etcd  = EtcdLeader::Etcd->new;
my %nodes = map { $_ => EtcdLeader::Instance->create($_, etcd => $etcd, settings => { ttl => $ttl }) } qw(pg1 pg2);
$_->wait_until_candidate for values %nodes;

# The leader, and the candidate behind it.
sub places
{
	$_->wait_until_candidate for values %nodes;
	my ($first, $second) = map { $nodes{ $_->{value} } } $etcd->candidates('postgres');
	$first->wait_until_leader;
	return ($first, $second);
}

sub start_again
{
	my ($node, $pid) = @_;
	wait_for_exit($pid, 10) if $pid;
	# all processes of the old server must be gone before it can start
	poll(30, sub { $node->start(fail_ok => 1) }) or die 'the killed server does not start again';
	return;
}

# Waits in a process of its own until the node leads: that moment, of now().
sub when_it_leads
{
	my ($node) = @_;
	my $log = PostgreSQL::Test::Utils::tempdir() . '/leads';
	my $process = EtcdLeader::Util::Process->spawn(
		log  => $log,
		code => sub {
			my $dbh = $node->connect_db;
			print "ready\n";
			my ($leads) = $dbh->selectrow_array('SELECT etcd_wait_for_leadership(timeout => ?)', undef, '20 s');
			print 'leads ', ($leads ? now() : 'never'), "\n";
		});
	poll(10, sub { $process->output =~ /ready/ }) or die 'cannot connect';
	return sub {
		poll(25, sub { $process->output =~ /leads/ });
		return $process->output =~ /^leads ([\d.]+)$/m ? $1 : undef;
	};
}

# ---- how soon ---------------------------------------------------------------------

my %took;
for my $round (1 .. 3)
{
	for my $death ('immediate stop', 'postmaster killed')
	{
		my ($leader, $next) = places();
		my $led   = when_it_leads($next);
		my $pid   = $leader->{_pid};
		my $began = now();
		$death eq 'immediate stop' ? $leader->stop('immediate') : $leader->kill9;
		my $at = $led->();
		ok($at, "$death: the next one leads") or next;
		push @{ $took{$death} }, $at - $began;
		$death eq 'immediate stop' ? $leader->start : start_again($leader, $pid);
	}
}
for my $death (sort keys %took)
{
	my @sorted = sort { $a <=> $b } @{ $took{$death} };
	diag(sprintf '%s: the next one leads after %s ms', $death, join ', ', map { sprintf '%.0f', 1000 * $_ } @sorted);
	# the middle one: an immediate stop itself takes its time on a busy machine; a renewal comes each 5 s
	in_time($sorted[1], 0.6, "$death: the successor does not wait for a renewal");
}

# ---- orphans ------------------------------------------------------------------------

$nodes{$_}->value('CREATE TABLE kept (what text)') for sort keys %nodes;
$nodes{$_}->value(q{
	CREATE FUNCTION busy(seconds float) RETURNS void LANGUAGE plpgsql AS $$
	DECLARE began timestamptz := clock_timestamp();
	BEGIN
		WHILE clock_timestamp() < began + seconds * interval '1 s' LOOP END LOOP;
	END $$}) for sort keys %nodes;
# until when, as seconds since the call, it was true; and the last answer
$nodes{$_}->value(q{
	CREATE FUNCTION watch(seconds float, OUT true_until float, OUT at_last bool) LANGUAGE plpgsql AS $$
	DECLARE began timestamptz := clock_timestamp(); at timestamptz;
	BEGIN
		LOOP
			at := clock_timestamp();
			at_last := etcd_is_leader();
			IF at_last THEN true_until := extract(epoch FROM at - began); END IF;
			EXIT WHEN at > began + seconds * interval '1 s';
		END LOOP;
	END $$}) for sort keys %nodes;

for my $cancel ('on', 'off')
{
	my ($leader, $next) = places();
	$leader->configure(cancel_on_loss => $cancel);
	poll(10, sub { $leader->value('SHOW etcd_leader.cancel_on_loss') eq $cancel }) or die;
	my $watcher = $leader->connect_db;
	my $writer  = $leader->connect_db;
	my $plain   = $leader->connect_db;
	my $led     = when_it_leads($next);

	my $watched = $watcher->prepare('SELECT true_until, at_last FROM watch(2)', { pg_async => DBD::Pg::PG_ASYNC() });
	my $watch_began = now();
	$watched->execute;
	# in one message each: an orphan dies when it waits for its client
	my $fenced = q{BEGIN; SELECT etcd_require_leader(); INSERT INTO kept VALUES ('fenced'); SELECT busy(1.5); COMMIT};
	my $free  = q{BEGIN; INSERT INTO kept VALUES ('not fenced'); SELECT busy(1.5); COMMIT};
	$writer->do($fenced, { pg_async => DBD::Pg::PG_ASYNC() });
	$plain->do($free, { pg_async => DBD::Pg::PG_ASYNC() });
	pause(0.3);
	my $pid = $leader->{_pid};
	$leader->kill9;
	my $led_at = $led->();
	ok($led_at, "cancel_on_loss $cancel: the next one leads");

	# not asked again: behind its answer an orphan closes the connection
	my %ready;
	poll(10, sub { $ready{$_} ||= $_->pg_ready for $watcher, $writer, $plain; return 3 == grep { $_ } values %ready });
	$watcher->pg_result;
	my ($true_until, $at_last) = $watched->fetchrow_array;
	is($at_last, 0, "cancel_on_loss $cancel: an orphan sees false");
	cmp_ok($watch_began + $true_until, '<', $led_at, "cancel_on_loss $cancel: before the next one leads");
	ok(!eval { $writer->pg_result; 1 }, "cancel_on_loss $cancel: an orphan does not commit what requires leadership");
	is($writer->state, '25006', "cancel_on_loss $cancel: and is told so");
	ok(eval { $plain->pg_result; 1 }, "cancel_on_loss $cancel: what requires nothing is committed") or diag($plain->errstr);
	$_->{InactiveDestroy} = 1 for $watcher, $writer, $plain;
	start_again($leader, $pid);
	is($leader->value(q{SELECT string_agg(what, ', ' ORDER BY what) FROM kept}), 'not fenced', "cancel_on_loss $cancel: as the table shows");
	$leader->value('DELETE FROM kept');
}

done_testing();
