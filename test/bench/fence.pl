# The cost of the fence for a transaction, as counts, which the load of a machine does not
# change: the instructions that the backend executes, and its system calls.
#
#   make bench PARTS=fence      ROUNDS=3
use FindBin;
use lib "$FindBin::RealBin/lib";
use EtcdLeader::Test;
use Bench;
use List::Util qw(sum0);

my $bench = Bench->new(name => 'fence', title => 'The fence, counted', text => <<'END');
A transaction of four messages: `BEGIN`, a call or a constant, an `INSERT` of one row, `COMMIT`, the second and third of them prepared. Instructions are those that valgrind's
callgrind counts in the backend: a session with 600 transactions less a session with 100 of them, divided by 500.
System calls are counted by strace in the same way, in a server without valgrind; those that wait for the client, read
from it and answer it are left out. Neither depends on the load of the machine.
The figure of `etcd_require_leader()` has what PostgreSQL does for an argument and for a result of type bigint, some 500 instructions, and so misses the goal.
END
my $rounds = Bench::rounds(3);
my ($few, $many) = (100, 600);

my $conf = "fsync = off\nautovacuum = off\ncheckpoint_timeout = 1h\nmax_wal_size = 8GB\nsynchronous_commit = off\nwal_writer_delay = 10s\n";
my $etcd = EtcdLeader::Etcd->new;
my $node = EtcdLeader::Instance->create('pg1', etcd => $etcd, settings => { ttl => 60 }, conf => $conf);
$node->wait_until_leader;
for my $role (qw(loose fence))
{
	$node->value("CREATE ROLE $role LOGIN SUPERUSER");
	$node->value("CREATE TABLE ${role}_t (a int)");
}
$node->value(q{ALTER ROLE fence SET etcd_leader.require_leadership_of = 'postgres'});

# the role, and what the transaction calls
my %ways = (
	'not used'              => [ 'loose', '1' ],
	'require_leadership_of'    => [ 'fence', '1' ],
	'pg_is_in_recovery()'   => [ 'loose', 'pg_is_in_recovery()' ],
	'etcd_require_leader()' => [ 'loose', 'etcd_require_leader()' ]);
my @pairs = ([ 'require_leadership_of', 'not used' ], [ 'etcd_require_leader()', 'pg_is_in_recovery()' ]);

sub transactions
{
	my ($dbh, $way, $n) = @_;
	my ($role, $call) = @{ $ways{$way} };
	my @prepared = map { $dbh->prepare($_, { pg_prepare_now => 1 }) } "SELECT $call, ?::int", "INSERT INTO ${role}_t VALUES (?)";
	for (1 .. $n)
	{
		$dbh->do('BEGIN');
		for my $statement (@prepared)
		{
			$statement->execute(1);
			$statement->finish;
		}
		$dbh->do('COMMIT');
	}
	return;
}

# What `count` finds for one transaction; it is called with the way and a number of them.
sub for_each
{
	my ($way, $count) = @_;
	return ($count->($way, $many) - $count->($way, $few)) / ($many - $few);
}

# ---- system calls -----------------------------------------------------------------

sub system_calls
{
	my ($way, $n) = @_;
	my $dbh  = $node->connect_db('postgres', user => $ways{$way}[0]);
	my $file = PostgreSQL::Test::Utils::tempdir() . '/calls';
	my ($pid) = $dbh->selectrow_array('SELECT pg_backend_pid()');
	my $strace = fork // die $!;
	if ($strace == 0)
	{
		open STDERR, '>', "$file.err" or die $!;
		exec 'strace', '-c', '-o', $file, '-p', $pid or die $!;
	}
	poll(10, sub { -s "$file.err" }) or die 'strace does not begin';
	transactions($dbh, $way, $n);
	kill 'INT', $strace;
	waitpid $strace, 0;
	$dbh->disconnect;
	my %calls = reverse PostgreSQL::Test::Utils::slurp_file($file) =~ /^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$/mg or die 'strace counted nothing';
	delete @calls{qw(total recvfrom sendto epoll_wait)};
	return sum0(values %calls);
}

my %kinds = (calls => [ 'system calls', '<= 0.2' ], instructions => [ 'instructions', '<= 1500' ]);

# Compares both sides of each pair by one of the kinds.
sub compare
{
	my ($kind, $count) = @_;
	my ($unit, $goal) = @{ $kinds{$kind} };
	my $all  = $bench->table(name => "fence_$kind", title => "The $unit of a transaction", unit => $unit, linear => 1);
	my $more = $bench->table(name => "fence_more_$kind", title => "What the fence adds: $unit", unit => $unit, linear => 1);
	for my $pair (@pairs)
	{
		my ($ours, $theirs) = @$pair;
		$bench->in_turn($rounds, [ [ Bench::row($all, $ours), Bench::row($all, $theirs), Bench::row($more, "`$ours` more than `$theirs`", goal => $goal) ],
			sub { my ($with, $without) = map { for_each($_, $count) } $ours, $theirs; return ($with, $without, $with - $without) } ]);
	}
	return;
}
compare('calls', \&system_calls);

# ---- instructions -------------------------------------------------------------------

my $dir     = PostgreSQL::Test::Utils::tempdir();
my $wrapper = "$dir/postgres";
my $bindir  = `pg_config --bindir`;
chomp $bindir;
open(my $out, '>', $wrapper) or die $!;
print $out "#!/bin/sh\nexec valgrind --tool=callgrind --trace-children=yes --callgrind-out-file=$dir/%p.out --log-file=$dir/%p.log $bindir/postgres \"\$@\"\n";
close $out;
chmod 0755, $wrapper;
$node->stop;
PostgreSQL::Test::Utils::system_or_bail('pg_ctl', '-w', '-t', 300, '-p', $wrapper, '-D', $node->data_dir, '-l', $node->logfile, 'start');
poll(300, sub { eval { $node->value('SELECT etcd_is_leader()') } }) or die 'it does not lead under valgrind';

sub instructions
{
	my ($way, $n) = @_;
	my $dbh = $node->connect_db('postgres', user => $ways{$way}[0]);
	my ($pid) = $dbh->selectrow_array('SELECT pg_backend_pid()');
	transactions($dbh, $way, $n);
	$dbh->disconnect;
	my $sum;
	poll(60, sub { -e "$dir/$pid.out" && (($sum) = PostgreSQL::Test::Utils::slurp_file("$dir/$pid.out") =~ /^(?:totals|summary): (\d+)/m) })
	  or die 'callgrind counted nothing';
	return $sum;
}

compare('instructions', \&instructions);
PostgreSQL::Test::Utils::system_or_bail('pg_ctl', '-w', '-t', 300, '-m', 'fast', '-D', $node->data_dir, 'stop');
$bench->finish;
