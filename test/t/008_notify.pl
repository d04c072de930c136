# NOTIFY in two databases: each event once and in order, over kills of the
# notifier; a listed database that does not exist costs a WARNING, and not the
# others.  LISTEN from psql and from a program.
use EtcdLeader::Test;
use FindBin;
use EtcdLeader::Documents;
use IPC::Run;
use JSON::PP ();

# Alone in the queue, it is elected again: waits for that, and for its event,
# which comes after the state.
sub elected_again
{
	my ($pg) = @_;
	return poll(10, sub {
		my $token = $pg->token or return;
		return grep { $_->{event} eq 'elected' && $_->{fencing_token} == $token } $pg->events;
	});
}

# Waits until a listener has heard of all that has happened.
sub told_all
{
	my ($pg, $listener) = @_;
	my $newest = $pg->last_event;
	poll(10, sub { grep { $_->{seq} == $newest } $listener->notifications }) or die 'the last event does not arrive';
	return;
}

my $etcd = EtcdLeader::Etcd->new;
my $pg1  = EtcdLeader::Instance->create('pg1', etcd => $etcd, extension => 'README', settings => { ttl => 20 }, conf => "max_worker_processes = 16\n");
$pg1->wait_until_leader;
$pg1->value('CREATE DATABASE app');
my $offset = $pg1->log_size;
$pg1->configure(notify_databases => 'postgres, missing, app');
poll_ok(10, sub { $pg1->notifier_pid('app') && $pg1->notifier_pid('postgres') }, 'a notifier in each database that exists');
my $notifiers = q{SELECT notifiers_running || ' of ' || notifiers_expected FROM etcd_leader_stats};
poll_is(10, sub { $pg1->value($notifiers) }, '2 of 3', 'the statistics know that one is missing');

my %listeners = map { $_ => $pg1->listen($_) } qw(postgres app);
# so that both have heard something before the first kill
my $mark = $pg1->last_event;
$pg1->value('SELECT etcd_resign()');
for (qw(postgres app))
{
	ok($listeners{$_}->wait_for(sub { $_[0]->{event} eq 'elected' && $_[0]->{seq} > $mark }), "$_ is told");
}

# Resignations: alone in the queue, it is elected again each time.  The
# notifiers are killed in turn, at any moment of it.
my $kills = 0;
for my $round (1 .. 20)
{
	my $pid;
	if ($round % 3 == 0)
	{
		my $dbname = $round % 2 ? 'app' : 'postgres';
		$pid = poll(30, sub { $pg1->notifier_pid($dbname) }) or die "no notifier in $dbname";
	}
	$pg1->value('SELECT etcd_resign()');
	if ($pid)
	{
		pause(rand 0.01);
		$kills++ if $pg1->value('SELECT pg_terminate_backend(?)', $pid);
	}
	elected_again($pg1) or die 'not elected again';
}
is($kills, 6, 'notifiers were killed');
my $last = $pg1->last_event;
cmp_ok($last, '>=', $mark + 2 * 21, 'many events');
cmp_ok($last, '<', 2**53, 'a double holds their numbers');
is($pg1->log_count('events were not announced'), 0, 'no event was missed');
for my $dbname (qw(postgres app))
{
	poll_ok(30, sub { grep { $_->{seq} == $last } $listeners{$dbname}->notifications }, "$dbname: the last event arrives");
	my @told = grep { $_->{seq} > $mark } $listeners{$dbname}->notifications;
	is(join(' ', map { $_->{seq} } @told), join(' ', $mark + 1 .. $last), "$dbname: each event once and in order");
	is(scalar(grep { $_->{event} eq 'elected' } @told), 21, "$dbname: each election");
	is(scalar(grep { $_->{event} eq 'unelected' && $_->{reason} eq 'resigned' } @told), 21, "$dbname: each resignation");
	my %pids = map { $_->{pid} => 1 } @told;
	cmp_ok(scalar(keys %pids), '>', 1, "$dbname: over several notifiers");
}

# Both are killed, and meanwhile something happens that neither can announce.
my @pids = map { $pg1->notifier_pid($_) } qw(postgres app);
$mark = $pg1->last_event;
kill 'STOP', @pids;
$pg1->value('SELECT etcd_resign()');
elected_again($pg1) or die 'not elected again';
$pg1->value('SELECT pg_terminate_backend(?)', $_) for @pids;
kill 'CONT', @pids;
$last = $pg1->last_event;
for my $dbname (qw(postgres app))
{
	poll_ok(30, sub { grep { $_->{seq} == $last } $listeners{$dbname}->notifications }, "$dbname: told by the next notifier");
	is(join(' ', map { $_->{seq} } grep { $_->{seq} > $mark } $listeners{$dbname}->notifications),
		join(' ', $mark + 1 .. $last), "$dbname: once and in order");
}

is($pg1->log_count('WARNING:.*"missing"', $offset), 1, 'the missing database costs one WARNING');
$pg1->value('SELECT pg_reload_conf()');
$pg1->value('SELECT etcd_resign()');
elected_again($pg1) or die 'not elected again';
is($pg1->log_count('WARNING:.*"missing"', $offset), 1, 'no event is announced twice');
is($pg1->log_count('FATAL:.*"missing"', $offset) <= 2, 1, 'the log has no other messages');

# The counters know.
my $stats = $pg1->row('SELECT notifications_sent, notifications_failed FROM etcd_leader_stats');
cmp_ok($stats->{notifications_sent}, '>=', 2 * 42, 'notifications are counted');

# psql.
{
	my ($in, $out, $err) = ('', '', '');
	my $psql = IPC::Run::start([ 'psql', '-XAtq', '-d', $pg1->connstr('app') ], '<', \$in, '>', \$out, '2>', \$err,
		IPC::Run::timeout(60));
	$in .= "LISTEN etcd_leader;\n\\echo listening\n";
	$psql->pump until $out =~ /listening/;
	$mark = $pg1->last_event;
	$pg1->value('SELECT etcd_resign()');
	elected_again($pg1) or die 'not elected again';
	# psql prints notifications after each command
	my $heard = poll(10, sub {
		$in .= "SELECT 1;\n";
		$psql->pump_nb;
		return $out =~ /"event":\s*"elected"/;
	});
	ok($heard, 'psql prints the notification') or diag("$out$err");
	like($out, qr/Asynchronous notification "etcd_leader" with payload "\{"seq":\s*\d+,/, 'the log has a message of the extension');
	$in .= "\\q\n";
	$psql->finish;
}

# The program of README, run by an ordinary role.
{
	$pg1->value('CREATE ROLE app LOGIN');
	my $script = document_block('README.md', 'listen');
	my $connstr = $pg1->connstr('postgres') . ' user=app';
	$script =~ s/"dbname=postgres"/"$connstr"/ or die 'no connection to replace';
	# it hears nothing of before
	told_all($pg1, $listeners{postgres});
	my $program = EtcdLeader::Util::Process->spawn(
		log => $PostgreSQL::Test::Utils::log_path . '/008_notify_psycopg2.log',
		cmd => [ 'python3', '-c', $script ]);
	poll_ok(10, sub { $program->output =~ /^leads: True$/m }, 'a program listens, and reads the state');
	$pg1->value('SELECT etcd_resign()');
	elected_again($pg1) or die 'not elected again';
	poll_ok(10, sub { $program->output =~ /^elected/m }, 'the program receives the event');
	# whether nobody is seen to lead in between is a matter of time
	(my $output = $program->output) =~ s/^leader None None\n//m;
	is($output, "leads: True\nunelected None resigned\nelected pg1 None\n", 'the program prints the event');
	$program->stop;
}

# A listener in a database that is not listed hears nothing; a listed one goes on.
told_all($pg1, $listeners{postgres});
$pg1->configure(notify_databases => 'app');
poll_is(10, sub { $pg1->notifier_pid('postgres') }, undef, 'the notifier of a dropped database ends');
my $before = scalar(my @heard = $listeners{postgres}->notifications);
$mark = $pg1->last_event;
$pg1->value('SELECT etcd_resign()');
elected_again($pg1) or die 'not elected again';
ok($listeners{app}->wait_for(sub { $_[0]->{seq} > $mark && $_[0]->{event} eq 'elected' }), 'app is still told');
is(scalar(@heard = $listeners{postgres}->notifications), $before, 'postgres is not');

# The database that was missing is made, and listed again: it is served.
$pg1->value('CREATE DATABASE missing');
$pg1->configure(notify_databases => 'app, missing');
poll_ok(30, sub { $pg1->notifier_pid('missing') }, 'a database made later gets its notifier');
poll_is(10, sub { $pg1->value($notifiers) }, '2 of 2', 'the statistics know that none is missing');
my $late = $pg1->listen('missing');
$pg1->value('SELECT etcd_resign()');
ok($late->wait_for(sub { $_[0]->{event} eq 'elected' }), 'the session receives the event');

# Databases can be dropped quickly although a notifier sits in them.
$late->stop;
$pg1->configure(notify_databases => 'app');
poll_is(10, sub { $pg1->notifier_pid('missing') }, undef, 'its notifier ends when it is not listed');
my $began = now();
$pg1->value('DROP DATABASE missing');
# with a session there it would fail after 5 s
in_time(now() - $began, 4, 'the database can be dropped at once');

# What PostgreSQL says about an error gets to the log, too.
{
	my $library = PostgreSQL::Test::Utils::tempdir() . '/failing_notifier';
	my ($headers) = split /\n/, `pg_config --includedir-server`;
	PostgreSQL::Test::Utils::system_or_bail('cc', '-shared', '-fPIC', '-O2', "-I$headers", '-o', "$library.so",
		"$FindBin::RealBin/lib/EtcdLeader/failing_notifier.c");
	my $failing = EtcdLeader::Instance->create('failing', etcd => $etcd, preload => "etcd_leader, $library");
	poll_ok(20, sub {
		slurp_file($failing->logfile) =~ /WARNING:  could not announce events in database "postgres": no commit, for a test
.*DETAIL:  This is a test\.
.*HINT:  Unload the library\. It will be tried again until it succeeds\.
.*CONTEXT:  commit of a notifier/ }, 'an error of a notifier: with its detail, hint and context');
	$failing->stop('immediate');
}

# In an ordinary shutdown a notifier ends without a message.  The notifiers of
# databases that are no longer listed have also ended without a message.
ok($pg1->notifier_pid('app'), 'a notifier runs');
$offset = $pg1->log_size;
$pg1->stop('fast');
is($pg1->log_count('notifier', $offset), 0, 'the notifier ends without a message') or diag(PostgreSQL::Test::Utils::slurp_file($pg1->logfile, $offset));
is($pg1->log_count('FATAL:.*terminating background worker'), 0, 'all notifiers ended without a message');

done_testing();
