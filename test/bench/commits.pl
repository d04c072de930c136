# The cost of the fence for a transaction: pgbench with one client, and with 64.
#
#   make bench PARTS=commits      ROUNDS=20
use FindBin;
use lib "$FindBin::RealBin/lib";
use EtcdLeader::Test;
use Bench;
use IPC::Run ();

my $bench = Bench->new(name => 'commits', title => 'Commits', text => <<'END');
pgbench's "simple update" (`-N`), prepared statements, one client or 64, `fsync = off` so that no disk hides the differences, a
second of each way in turn (three with 64 clients).
END
my $rounds = Bench::rounds(20);

# Without waits for the disk, which would hide the cost of the fence.
my $conf = "fsync = off\nautovacuum = off\ncheckpoint_timeout = 1h\nmax_wal_size = 8GB\nshared_buffers = 256MB\nmax_connections = 100\n";

my $etcd   = EtcdLeader::Etcd->new;
my $loaded = EtcdLeader::Instance->create('loaded', etcd => $etcd, conf => $conf);
my $plain  = EtcdLeader::Instance->create('plain', preload => '', extension => 0, conf => $conf);
$loaded->wait_until_leader;

# The output of pgbench.
sub pgbench
{
	my ($node, @arguments) = @_;
	my ($out, $err);
	IPC::Run::run([ 'pgbench', '-h', $node->host, '-p', $node->port, @arguments, 'postgres' ],
		'>', \$out, '2>', \$err)
	  or die $err;
	return $out;
}

for my $node ($loaded, $plain)
{
	$node->value('CREATE ROLE app LOGIN SUPERUSER');
	$node->value('CREATE ROLE fenced LOGIN SUPERUSER');
	pgbench($node, '-i', '-q', '-s', 10);
}
$loaded->value(q{ALTER ROLE fenced SET etcd_leader.require_leadership_of = 'postgres'});

# pgbench's own "simple update" (-N), with a call at its beginning.
sub script
{
	my ($name, $call) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . "/$name.sql";
	open(my $out, '>', $file) or die $!;
	print $out <<~END;
		\\set aid random(1, 100000 * :scale)
		\\set bid random(1, 1 * :scale)
		\\set tid random(1, 10 * :scale)
		\\set delta random(-5000, 5000)
		BEGIN;
		SELECT $call;
		UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
		SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
		INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);
		END;
		END
	close $out;
	return ('-f', $file, '-s', 10);
}

# name => [instance, role, arguments]
my %ways = (
	'not loaded'            => [ $plain,  'app',    '-N' ],
	'loaded, not used'      => [ $loaded, 'app',    '-N' ],
	'require_leadership_of'    => [ $loaded, 'fenced', '-N' ],
	'pg_is_in_recovery()'   => [ $loaded, 'app',    script('recovery', 'pg_is_in_recovery()') ],
	'etcd_require_leader()' => [ $loaded, 'app',    script('fence',    'etcd_require_leader()') ],
);

sub transactions_per_second
{
	my ($clients, $node, $role, @arguments) = @_;
	my $out = pgbench($node, '-n', '-M', 'prepared', '-c', $clients, '-T', $clients > 1 ? 3 : 1, '-U', $role, @arguments);
	$out =~ /^tps = ([\d.]+)/m or die $out;
	return $1;
}

# our row, the row to compare, clients
for (
	[ 'require_leadership_of',    'loaded, not used',    1 ],
	[ 'etcd_require_leader()', 'pg_is_in_recovery()', 1 ],
	[ 'loaded, not used',      'not loaded',          1 ],
	[ 'require_leadership_of',    'loaded, not used',    64 ],
	[ 'etcd_require_leader()', 'pg_is_in_recovery()', 64 ])
{
	my ($ours, $theirs, $clients) = @$_;
	my $of_all = $clients > 1 ? " with $clients clients" : '';
	my $table = $bench->table(
		name => 'commits_' . "$ours$of_all" =~ s/\W+/_/gr =~ s/_$//r, title => "`$ours`$of_all", unit => 'transactions per second',
		ours => $ours, linear => 1);
	$bench->in_turn($rounds,
		map { my $name = $_; [ Bench::row($table, $name, goal => $name eq $theirs ? '>= 0.985' : undef),
			  sub { transactions_per_second($clients, @{ $ways{$name} }) } ] }
		  $ours, $theirs);
}
$bench->finish;
