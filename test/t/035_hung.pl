# etcd is gone, hung, slow beyond use, swallowed by the network, or has a name
# that nobody resolves: an instance that starts like that, and an instance that leads
# when it comes, stops, drops databases and answers queries as an instance
# without the extension, and neither its log nor its CPU shows retries.
use EtcdLeader::Test;
use EtcdLeader::Relay;
use EtcdLeader::Shim;
use List::Util qw(max min);

my $ttl       = 2;
my $etcd      = EtcdLeader::Etcd->new;
my $hung_etcd = EtcdLeader::Etcd->new;
my $shim      = EtcdLeader::Shim->new;
my %relay;

# What becomes of the way to etcd.
my %fault = (
	gone      => sub { $relay{gone}->stop },
	hung      => sub { $hung_etcd->freeze(0) },
	trickling => sub { $relay{trickling}->trickle },
	swallowed => sub { $relay{swallowed}->swallow },
	# and whoever had resolved it before has lost its connections
	'without DNS' => sub { $shim->hang_dns(1); $relay{'without DNS'}->stop },
);
my @kinds = sort keys %fault;
my %from;	# where the log of each begins, for what is asked of it
my $started;	# where that without DNS begins since the start

# Each kind has an instance; and an instance without the extension is for comparison.
my %node = map {
	my $kind = $_;
	(my $name = $kind) =~ s/ /_/g;
	$kind => $shim->around(sub {
		EtcdLeader::Instance->create($name, endpoints => 'http://127.0.0.1:1', start => 0,
			settings => { ttl => $ttl, elections => $name, notify_databases => 'postgres,app' });
	})
} @kinds;
my $plain = EtcdLeader::Instance->create('plain', preload => 0, start => 0);

sub start_all
{
	$started = $node{'without DNS'}->log_size // 0;
	for my $kind (@kinds)
	{
		$shim->around(sub { $node{$kind}->start });
	}
	$plain->start;
	return;
}

# Makes the way to etcd anew.
sub mend_all
{
	$hung_etcd->thaw(0);
	$hung_etcd->wait_until_serving;
	$shim->hang_dns(0);
	# keys of leases that could not be revoked
	$_->etcdctl('del', '', '--from-key') for $etcd, $hung_etcd;
	for my $kind (@kinds)
	{
		$relay{$kind}->stop if $relay{$kind};
		$relay{$kind} = EtcdLeader::Relay->new($etcd->url(0));
		my $url =
			$kind eq 'hung'        ? $hung_etcd->url(0)
		  # the first name is resolved while all is well, and for a while remembered
		  : $kind eq 'without DNS' ? join(',', map { "http://$_.$EtcdLeader::Shim::domain:" . $relay{$kind}->port } qw(one two))
		  :                          $relay{$kind}->url;
		$node{$kind}->append_conf('postgresql.conf', "etcd_leader.endpoints = '$url'\n");
	}
	return;
}

sub break_all { $fault{$_}->() for @kinds; return }

# Stops all of them at once: seconds that each took.
sub stop_all
{
	my ($mode) = @_;
	my %all = (plain => $plain, %node);
	my %stop;
	for my $name (sort keys %all)
	{
		my $node = $all{$name};
		$node->{el_dbh}->disconnect if $node->{el_dbh};
		$node->{el_dbh} = undef;
		$stop{$name} = EtcdLeader::Util::Process->spawn(
			log  => PostgreSQL::Test::Utils::tempdir() . '/stop',
			code => sub {
				my $began = now();
				system('pg_ctl', '-D', $node->data_dir, '-m', $mode, '-w', '-t', 60, '-s', 'stop') == 0 or die "not stopped\n";
				printf "took %f\n", now() - $began;
			});
	}
	my %took;
	for my $name (sort keys %all)
	{
		$stop{$name}->wait(70);
		($took{$name}) = $stop{$name}->output =~ /^took ([\d.]+)$/m;
		$all{$name}->_update_pid(0) if $took{$name};
	}
	return %took;
}

sub check_stop
{
	my ($mode, $what) = @_;
	my %took = stop_all($mode);
	for my $kind (@kinds)
	{
		in_time(($took{$kind} // 99) - $took{plain}, 1, "$kind, $what: a $mode stop takes less than a second more than without the extension");
	}
	note(sprintf '%s stop, %s: %s', $mode, $what, join ', ', map { sprintf '%s %.2f s', $_, $took{$_} // -1 } 'plain', @kinds);
	return;
}

# The CPU seconds of 10^6 calls of etcd_is_leader(), and of 10^6 calls of a
# function of PostgreSQL in between: other programs make both dearer.
sub cost_of_reading
{
	my ($node) = @_;
	my $pid = $node->value('SELECT pg_backend_pid()');
	my %cost = ('etcd_is_leader()' => 0, 'pg_backend_pid()' => 0);
	for my $round (1 .. 4)
	{
		for my $call (sort keys %cost)
		{
			my $before = cpu_seconds($pid);
			$node->value('SELECT count(' . join(' AND ', ("$call IS NOT NULL") x 100) . ') FROM generate_series(1, 5000)');
			$cost{$call} += (cpu_seconds($pid) - $before) / 2;
		}
	}
	# at least a clock tick
	return map { max($_, 0.01) } @cost{sort keys %cost};
}

# The last lines that the loss of contact brings, where there are two endpoints.  On a busy
# machine an endpoint may have had a problem before, which is over.
sub wait_until_told
{
	my ($what) = @_;
	my $lines = sub { return $node{'without DNS'}->log_count($_[0] . ': +etcd at "http://\w+\.\S+ cannot be used', $started) };
	poll_is(5, sub { $lines->('WARNING') - $lines->('over') }, 2, "without DNS, $what: the log has both endpoints");
	return;
}

# A line of the elector, but for those about notifiers, which a busy machine starts late.
my $elector_line = 'etcd_leader elector .*(?:LOG|WARNING|ERROR|FATAL):(?!.*notifiers run)';

# The instances are without etcd; and were for so long that there is nothing
# new to say about it.
sub check_life
{
	my ($what, $cost, $from) = @_;
	my %log = map { $_ => $node{$_}->log_size } @kinds;
	my %cpu = map { $_ => cpu_seconds($node{$_}->elector_pid) } @kinds;
	my (%slowest, %looked);
	my $began = now();
	while (now() < $began + 2.5 * $ttl)
	{
		for my $kind (@kinds)
		{
			my $at = now();
			my $row = $node{$kind}->row('SELECT etcd_is_leader() AS leads, etcd_current_leader() AS leader, etcd_fencing_token() AS token, connected,
				requests, (SELECT count(*) FROM etcd_leader_events()) FROM etcd_leader_status, etcd_leader_stats');
			$slowest{$kind} = max($slowest{$kind} // 0, now() - $at);
			# nothing of it is silently well
			is_deeply([ @{$row}{qw(leads leader token connected)} ], [ 0, undef, undef, 0 ], "$kind, $what: no leader, no contact")
			  unless $looked{$kind}++;
		}
		my $at = now();
		$plain->value('SELECT count(*) FROM pg_stat_activity');
		$slowest{plain} = max($slowest{plain} // 0, now() - $at);
		pause(0.05);
	}
	my $window = now() - $began;
	for my $kind (@kinds)
	{
		my $node = $node{$kind};
		my $cpu  = cpu_seconds($node->elector_pid) - $cpu{$kind};
		in_time($slowest{$kind}, 0.3 + $slowest{plain}, "$kind, $what: no reader waits");
		cmp_ok($cpu / $window, '<', 0.03, "$kind, $what: no CPU is burnt");
		is($node->log_count($elector_line, $log{$kind}), 0, "$kind, $what: the log has no word more");
		# contact, leadership, the leader; and where there are two endpoints, the failure of
		# each, and of most of them
		cmp_ok($node->log_count($elector_line, $from->{$kind}), '<=', $kind eq 'without DNS' ? 6 : 3,
			"$kind, $what: and a line for each change")
		  or diag(substr(PostgreSQL::Test::Utils::slurp_file($node->logfile), $from->{$kind}));
		isnt($node->status->{last_error} // '', '', "$kind, $what: the status says why");
		my ($now, $control) = cost_of_reading($node);
		my ($before, $control_before) = @{ $cost->{$kind} };
		cmp_ok($now / $before, '<', 2 * max(1, $control / $control_before), "$kind, $what: etcd_is_leader() costs what it costs");
		note(sprintf '%s, %s: CPU %.2f %%, slowest readers %.0f ms (%.0f without the extension), 10^6 calls %.0f ms (%.0f before), %.0f ms (%.0f before) of pg_backend_pid(); %s',
			$kind, $what, 100 * $cpu / $window, 1000 * $slowest{$kind}, 1000 * $slowest{plain}, map({ 1000 * $_ } $now, $before, $control, $control_before),
			$node->status->{last_error});
	}
	return;
}

# A statement on the database "other", which nobody notifies, and on "app".
sub check_ddl
{
	my ($what) = @_;
	my %most;
	for my $sql ('CREATE DATABASE "copy of %s" TEMPLATE %s', 'ALTER DATABASE %s RENAME TO "no %s"', 'DROP DATABASE %s')
	{
		for my $kind (@kinds)
		{
			my $node = $node{$kind};
			poll(10, sub { $node->notifier_pid('app') }) or die "no notifier: $kind";
			my %took;
			for my $database (qw(other app))
			{
				my $began = now();
				$node->value($sql =~ s/%s/$database/gr);
				$took{$database} = now() - $began;
				$node->value("ALTER DATABASE \"no $database\" RENAME TO $database") if $sql =~ /RENAME/;
			}
			my $more = $took{app} - $took{other};
			in_time($more, 1, "$kind, $what: " . sprintf($sql, 'app', 'app') . ' takes less than a second more');
			$most{$sql} = max($most{$sql} // 0, $more);
		}
	}
	note(sprintf '%s: %.0f ms more for %s', $what, 1000 * $most{$_}, $_) for sort keys %most;
	return;
}

sub make_databases
{
	for my $node (values %node)
	{
		$node->value("CREATE DATABASE $_ STRATEGY file_copy") for qw(app other);
	}
	return;
}

# ---- it comes while they lead ------------------------------------------------------

mend_all();
start_all();
$_->value('CREATE EXTENSION etcd_leader') for values %node;
make_databases();
$node{$_}->wait_until_leader for @kinds;
my %cost = map { $_ => [ cost_of_reading($node{$_}) ] } @kinds;
%from = map { $_ => $node{$_}->log_size } @kinds;
break_all();
for my $kind (@kinds)
{
	poll_is($ttl + 2, sub { ($node{$kind}->status->{connected} // 9) . ($node{$kind}->current_leader // 'none') }, '0none',
		"$kind, when it led: it has lost contact");
	# the last line about it
	poll_ok(5, sub { $node{$kind}->log_count('has no known leader', $from{$kind}) }, "$kind, when it led: the log says that nobody leads");
}
wait_until_told('when it led');
check_life('when it led', \%cost, \%from);
check_ddl('when it led');
# "app" of the next round
make_databases();
$_->value('DROP DATABASE "copy of app"') for values %node;
$_->value('DROP DATABASE "copy of other"') for values %node;
check_stop('fast', 'when it led');

# ---- they start like that ------------------------------------------------------------

%from = map { $_ => $node{$_}->log_size } @kinds;
start_all();
for my $kind (@kinds)
{
	poll_ok($ttl + 2, sub { $node{$kind}->status->{last_error} }, "$kind, at the start: it has noticed");
	poll_ok(5, sub { $node{$kind}->log_count('WARNING:  no contact with etcd', $from{$kind}) }, "$kind, at the start: the log says so");
}
wait_until_told('at the start');
check_life('at the start', \%cost, \%from);
check_ddl('at the start');
check_stop('smart', 'at the start');
start_all();
poll($ttl + 2, sub { $_->status->{last_error} }) || die for values %node;
check_stop('fast', 'at the start');

# ---- they are stopped at the moment at which it comes -------------------------------

# The revocation at shutdown has the time of a request, if that is not too long.
$_->append_conf('postgresql.conf', "etcd_leader.ttl = 10\n") for values %node;
for my $mode (qw(fast smart))
{
	mend_all();
	start_all();
	$node{$_}->wait_until_leader for @kinds;
	break_all();
	check_stop($mode, 'while it leads');
}
mend_all();

# ---- one name of two hangs ----------------------------------------------------------

$node{'without DNS'}->append_conf('postgresql.conf',
	"etcd_leader.endpoints = 'http://three.$EtcdLeader::Shim::domain:2379," . $etcd->url(0) . "'\n"
	  . "etcd_leader.cluster_id = '" . $etcd->cluster_id . "'\n");
$shim->hang_dns(1);
start_all();
$node{$_}->wait_until_leader for @kinds;
my $elector = $node{'without DNS'}->elector_pid;
is($node{'without DNS'}->status->{endpoint}, $etcd->url(0), 'the first endpoint has a name that hangs: the second one serves');

# A check has the elector look the name up; the session has no thread, and waits no longer
# than its time-out.
{
	my $node = $node{'without DNS'};
	my $session = $node->connect_db('postgres');
	my ($pid) = $session->selectrow_array('SELECT pg_backend_pid()');
	my $rows = sub { my ($timeout) = @_; return $session->selectall_arrayref("SELECT subject, problem FROM etcd_leader_check('$timeout')") };
	my $began = now();
	$rows->('400 ms') for 1 .. 4;
	in_time(now() - $began - 1.6, 1, 'four checks with a name that hangs end in time');
	is(scalar(my @threads = glob "/proc/$pid/task/*"), 1, 'the session has no thread');
	poll_ok(15, sub { grep { ($_->[0] // '') =~ /three/ } @{ $rows->('5 s') } }, 'the check has the endpoint');
	is($node->value('SELECT pg_terminate_backend(?, 5000)', $pid), 1, 'the session is terminated as quickly as ever');
	$session->{InactiveDestroy} = 1;
	is($node->elector_pid, $elector, 'the elector goes on');
}
check_stop('fast', 'with a name that hangs');
mend_all();

done_testing();
