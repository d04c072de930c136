# Measures one cluster for a long time.  In the first half it has load: pgbench, fenced
# writers, probes by HTTP, and a hand-over each minute.  In the second half it is at
# rest.  The memory, descriptors and connections of the extension's processes, the logs
# and etcd's data must not grow.  `growth` judges the measurements, `plots` draws them.
#
# Environment: CHAOS_SECONDS (7200), CHAOS_DATA, a directory for soak.csv.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../t/lib", "$FindBin::RealBin/lib";
use Chaos::History;
use EtcdLeader::Etcd;
use EtcdLeader::Hooks;
use EtcdLeader::Instance;
use EtcdLeader::Util;
use HTTP::Tiny;
use PostgreSQL::Test::Utils;
use Test::More;

my $seconds = $ENV{CHAOS_SECONDS} || 7200;
my $every   = 10;
EtcdLeader::Util::watchdog($seconds + 300);

my $etcd  = EtcdLeader::Etcd->new(members => 3);
my %port  = map { $_ => PostgreSQL::Test::Cluster::get_free_port() } qw(pg1 pg2 pg3);
my @nodes = map { EtcdLeader::Instance->create($_, etcd => $etcd, settings => { ttl => 5, http_listen => "127.0.0.1:$port{$_}" }) } qw(pg1 pg2 pg3);
my @listeners;
for my $node (@nodes)
{
	system_or_bail('pgbench', '-i', '-q', '-h', $node->host, '-p', $node->port, 'postgres');
	$node->value($_) for 'CREATE TABLE written (token bigint, n bigint)', 'INSERT INTO written VALUES (0, 0)', 'CREATE TABLE duty (token bigint)';
	write_hooks($node, 'elected all postgres ' . $node->value('SELECT current_user') . ' 1min "INSERT INTO public.duty VALUES (public.etcd_fencing_token())"');
	$node->configure(hooks_file => 'hooks.conf');
	$node->wait_until_candidate;
	push @listeners, $node->listen;
}

mkdir Chaos::History::dir();
my $file = Chaos::History::dir() . '/soak.csv';
open my $csv, '>', $file or die "cannot write $file: $!";
$csv->autoflush(1);
print $csv "seconds,phase,instance,what,process,value\n";

# ---- measurements --------------------------------------------------------------------

# name => pid of the extension's processes of an instance, and of two sessions.
sub processes
{
	my ($node) = @_;
	return map { ($_->{process} => $_->{pid}) } $node->rows(<<'SQL');
SELECT pid, replace(regexp_replace(backend_type, '^etcd_leader ', ''), ' ', '_') AS process FROM pg_stat_activity
 WHERE backend_type IN ('etcd_leader elector', 'etcd_leader notifier', 'etcd_leader http', 'etcd_leader hooks')
UNION ALL SELECT pid, application_name FROM pg_stat_activity WHERE application_name = 'writer'
UNION ALL SELECT pg_backend_pid(), 'reader'
SQL
}

# Memory in kB: resident; the same with its share of shared pages; private.
sub memory
{
	my ($pid) = @_;
	my $rollup = PostgreSQL::Test::Utils::slurp_file("/proc/$pid/smaps_rollup");
	my %kb = $rollup =~ /^(Rss|Pss|Anonymous):\s+(\d+) kB/mg;
	return (rss => $kb{Rss}, pss => $kb{Pss}, private => $kb{Anonymous});
}

sub measure
{
	my ($note) = @_;
	for my $node (@nodes)
	{
		my $name    = $node->name;
		my %pid     = processes($node);
		for my $process (sort keys %pid)
		{
			my $pid  = $pid{$process};
			# the process may have ended meanwhile
			my %memory = eval { memory($pid) } or next;
			$note->($name, $_, $process, $memory{$_}) for sort keys %memory;
			$note->($name, 'descriptors', $process, scalar(() = glob "/proc/$pid/fd/*"));
			$note->($name, 'connections', $process, scalar($node->tcp_connections($pid)));
		}
		$note->($name, 'log', 'server', $node->log_size);
	}
	$note->('etcd', 'token', 'etcd', ($etcd->candidates('postgres'))[0]{create_revision} // 0);
	$note->('etcd', 'leases', 'etcd', scalar(() = $etcd->leases));
	my %metric = (
		database => 'etcd_mvcc_db_total_size_in_use_in_bytes', file => 'etcd_mvcc_db_total_size_in_bytes', watchers => 'etcd_debugging_mvcc_watcher_total',
		keys => 'etcd_debugging_mvcc_keys_total', rss => 'process_resident_memory_bytes', descriptors => 'process_open_fds');
	for my $i ($etcd->all)
	{
		for my $what (sort keys %metric)
		{
			# a late answer of a member is no failure here
			my $value = eval { $etcd->metric($metric{$what}, $i) } // next;
			$note->("etcd$i", $what, 'etcd', $what eq 'rss' ? $value / 1024 : $value);
		}
	}
	return;
}

# ---- load --------------------------------------------------------------------------------

# Executes one transaction after the other, fenced if the instance leads.
sub write_for_ever
{
	my ($node) = @_;
	my $dbh = $node->connect_db;
	$dbh->do("SET application_name = 'writer'");
	while (1)
	{
		eval {
			$dbh->begin_work;
			my ($token) = $dbh->selectrow_array('SELECT CASE WHEN etcd_is_leader() THEN etcd_require_leader() END');
			$dbh->do('UPDATE written SET token = ?, n = n + 1', undef, $token);
			$dbh->commit;
			1;
		} or $dbh->rollback;
		pause(0.1);
	}
	return;
}

sub probe_for_ever
{
	my (@ports) = @_;
	while (1)
	{
		for my $port (@ports) { HTTP::Tiny->new(timeout => 2, http_proxy => undef)->get("http://127.0.0.1:$port/$_") for qw(leader metrics) }
		pause(1);
	}
	return;
}

sub start_load
{
	my ($duration) = @_;
	my $spawn = sub { return EtcdLeader::Util::Process->spawn(log => "$PostgreSQL::Test::Utils::log_path/load_$_[0].log", @_[ 1 .. $#_ ]) };
	my @load = $spawn->('probe', code => sub { probe_for_ever(values %port) });
	for my $node (@nodes)
	{
		push @load, $spawn->('writer_' . $node->name, code => sub { write_for_ever($node) }),
		  $spawn->('pgbench_' . $node->name, cmd => [ 'pgbench', '-h', $node->host, '-p', $node->port, '-n', '-c', 2, '-R', 50, '-T', int($duration), 'postgres' ]);
	}
	return @load;
}

# Makes the leader resign; true when another instance leads.
sub hand_over
{
	my ($leader) = grep { $_->is_leader } @nodes;
	return $leader && $leader->value('SELECT etcd_resign()') && poll(10, sub { grep { $_ != $leader && $_->is_leader } @nodes });
}

# ---- the run -----------------------------------------------------------------------------

my $began = now();
my ($asked, $handed_over) = (0, 0);
for my $phase (qw(load rest))
{
	my $start = now();
	my @load  = $phase eq 'load' ? start_load($seconds / 2) : ();
	my ($next, $next_hand_over) = ($start, $start + 30);
	while (now() - $start < $seconds / 2)
	{
		measure(sub { printf $csv "%.1f,%s,%s,%s,%s,%d\n", now() - $began, $phase, @_ });
		if (@load && now() >= $next_hand_over)
		{
			$asked++;
			$handed_over++ if hand_over();
			$next_hand_over += 60;
		}
		$next += $every;
		pause($next - now());
	}
	$_->stop for @load;
}
cmp_ok($handed_over, '>', 0, "there were $handed_over hand-overs");
is($handed_over, $asked, 'no hand-over has failed');
my $report = `python3 '$FindBin::RealBin/growth' '$file' 2>&1`;
# in a shorter run a single page is a large growth in an hour
is($?, 0, 'no resource grows') or diag($report) if $seconds >= 3600;
note($report);
done_testing();
