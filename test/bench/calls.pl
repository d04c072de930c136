# The time of a call of the extension's functions, beside other functions that read a state.
#
#   make bench PARTS=calls      ROUNDS=5, CALLS=10000000
use FindBin;
use lib "$FindBin::RealBin/lib";
use EtcdLeader::Test;
use Bench;
use IPC::Run ();

my $calls = $ENV{CALLS} // 10_000_000;
my $bench = Bench->new(name => 'calls', title => 'What a call costs', text => <<'END');
`SELECT count(f()) FROM generate_series(1, N)`, on the leader and on the follower. Net of the loop: the time of a call is
the time of the statement less the time of a statement with a constant in the place of the call. The row of a table is read by its
primary key, as a function of SQL that is not inlined would: by a subquery for each row of the loop, a tenth as often. Then
the same statement by 1 to 64 backends at once, for some seconds: calls per second of all of them together.
END
my $rounds = Bench::rounds(5);

my $etcd = EtcdLeader::Etcd->new;
my ($leader, $follower) = map {
	EtcdLeader::Instance->create($_, etcd => $etcd, settings => { ttl => 10 }, conf => "jit = off\nautovacuum = off\nmax_connections = 100")
} qw(pg1 pg2);
$leader->wait_until_leader;
$follower->wait_until_sees('pg1');
$leader->value('CREATE TABLE leader (id int PRIMARY KEY, name text); ');
$leader->value(q{INSERT INTO leader SELECT i, 'pg1' FROM generate_series(0, 9) i});
$leader->value('VACUUM ANALYZE leader');

my $loop = 'a constant';
my %call = (
	$loop                          => 'i',
	'`etcd_is_leader()`'           => 'etcd_is_leader()',
	'`pg_is_in_recovery()`'        => 'pg_is_in_recovery()',
	'`pg_try_advisory_lock()`'     => 'pg_try_advisory_lock(1)',
	'a SELECT on a table row'      => '(SELECT name FROM leader WHERE id = i % 10)');
my ($ours, $theirs, $lock, $select) = ('`etcd_is_leader()`', '`pg_is_in_recovery()`', '`pg_try_advisory_lock()`', 'a SELECT on a table row');

sub statement
{
	my ($dbh, $call, $n) = @_;
	my $began = now();
	$dbh->selectall_arrayref("SELECT count($call{$call}) FROM generate_series(1, $n) i");
	my $took = now() - $began;
	$dbh->do('SELECT pg_advisory_unlock_all()') if $call eq $lock;
	return $took;
}

my $millions = $calls / 1e6;
for my $node ($leader, $follower)
{
	my $who  = $node->is_leader ? 'leader' : 'follower';
	my $dbh  = $node->connect_db;
	my @names = ($ours, $theirs, $loop, $lock, ($who eq 'leader' ? $select : ()));
	my $whole = $bench->table(name => "calls_$who", title => "A statement of $millions million calls on the $who", unit => 's', ours => $ours);
	my $net   = $bench->table(name => "calls_net_$who", title => "A call on the $who, net of the loop", unit => 'ns', linear => 1);
	my %whole = map { $_ => Bench::row($whole, $_, goal => $_ eq $theirs ? '<= 1.2' : undef) } grep { $_ ne $select } @names;
	my %net = map { $_ => Bench::row($net, $_) } grep { $_ ne $loop } @names;
	# a first run fills the caches
	statement($dbh, $_, $calls / 100) for @names;
	for my $round (1 .. $rounds)
	{
		my %took;
		for my $name (@names)
		{
			my $n = $name eq $select ? $calls / 10 : $calls;
			$took{$name} = statement($dbh, $name, $n) * $calls / $n;
			Bench::sample($whole{$name}, $round, $took{$name}) if $whole{$name};
		}
		Bench::sample($net{$_}, $round, 1e9 * ($took{$_} - $took{$loop}) / $calls) for keys %net;
		push @names, shift @names;
	}
}

# ---- many backends ---------------------------------------------------------------

my $seconds = 2;
my $batch   = 100_000;
my $many    = $bench->table(name => 'calls_many', title => 'Calls by many backends', unit => '10^6 calls per second', x => 'backends', ours => $ours, linear => 1);

sub throughput
{
	my ($name, $clients) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . '/call.sql';
	open(my $script, '>', $file) or die $!;
	print $script "SELECT count($call{$name}) FROM generate_series(1, $batch) i;\n";
	close $script;
	my ($out, $err);
	IPC::Run::run([ 'pgbench', '-h', $leader->host, '-p', $leader->port, '-n', '-c', $clients, '-T', $seconds, '-f', $file, 'postgres' ], '>', \$out, '2>', \$err)
	  or die $err;
	$out =~ /^tps = ([\d.]+)/m or die $out;
	return $1 * $batch / 1e6;
}

my @pairs;
for my $clients (1, 2, 4, 8, 16, 32, 64)
{
	for my $name ($ours, $theirs, $lock)
	{
		push @pairs, [ Bench::row($many, $name, x => $clients), sub { throughput($name, $clients) } ];
	}
}
$bench->in_turn(($rounds + 1) / 2, @pairs);
$many->{rows} = [ sort { $a->{name} cmp $b->{name} || $a->{x} <=> $b->{x} } @{ $many->{rows} } ];
$bench->finish;
