# What the fence costs: pgbench with one client, with and without in turn,
# round by round; the ratio is the median of the rounds' ratios.
#
#   make bench, or: test/run bench/fence.pl
#
# Environment: FENCE_ROUNDS (60), FENCE_SECONDS (1) of each way in a round.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../t/lib";
use EtcdLeader::Etcd;
use EtcdLeader::Instance;
use EtcdLeader::Util;
use IPC::Run ();
use PostgreSQL::Test::Utils ();
use Test::More;

$| = 1;
my $rounds  = $ENV{FENCE_ROUNDS}  // 60;
my $seconds = $ENV{FENCE_SECONDS} // 1;

# Without a disk to wait for, what a transaction costs beside it is not hidden.
my $conf = "fsync = off\nautovacuum = off\ncheckpoint_timeout = 1h\nmax_wal_size = 8GB\nshared_buffers = 256MB\n";

my $etcd   = EtcdLeader::Etcd->new;
my $loaded = EtcdLeader::Instance->create('loaded', etcd => $etcd, conf => $conf);
my $plain  = EtcdLeader::Instance->create('plain', preload => '', extension => 0, conf => $conf);
$loaded->wait_until_leader;

# What it printed.
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
$loaded->value(q{ALTER ROLE fenced SET etcd_leader.require_leadership = 'postgres'});

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
	'require_leadership'    => [ $loaded, 'fenced', '-N' ],
	'pg_is_in_recovery()'   => [ $loaded, 'app',    script('recovery', 'pg_is_in_recovery()') ],
	'etcd_require_leader()' => [ $loaded, 'app',    script('fence',    'etcd_require_leader()') ],
);

sub transactions_per_second
{
	my ($node, $role, @arguments) = @{ $_[0] };
	my $out = pgbench($node, '-n', '-M', 'prepared', '-c', 1, '-T', $seconds, '-U', $role, @arguments);
	$out =~ /^tps = ([\d.]+)/m or die $out;
	return $1;
}

sub median
{
	my @sorted = sort { $a <=> $b } @_;
	my $n = @sorted;
	return $n % 2 ? $sorted[ $n / 2 ] : ($sorted[ $n / 2 - 1 ] + $sorted[ $n / 2 ]) / 2;
}

for (
	[ 'loaded, not used',      'not loaded',          0.97 ],
	[ 'require_leadership',    'loaded, not used',    0.98 ],
	[ 'etcd_require_leader()', 'pg_is_in_recovery()', 0.95 ])
{
	my ($ours, $theirs, $least) = @$_;
	my (%tps, @ratios);
	for my $round (1 .. $rounds)
	{
		# what else the machine does changes within seconds: one right after the other
		my %now = map { $_ => transactions_per_second($ways{$_}) } $round % 2 ? ($ours, $theirs) : ($theirs, $ours);
		push @{ $tps{$_} }, $now{$_} for $ours, $theirs;
		push @ratios, $now{$ours} / $now{$theirs};
	}
	for my $name ($ours, $theirs)
	{
		my @sorted = sort { $a <=> $b } @{ $tps{$name} };
		diag(sprintf '%-24s median %6.0f, min %6.0f, max %6.0f transactions/s (n = %d)',
			$name, median(@sorted), $sorted[0], $sorted[-1], scalar @sorted);
	}
	@ratios = sort { $a <=> $b } @ratios;
	diag(sprintf '%-52s median %.3f, quartiles %.3f and %.3f', "$ours / $theirs",
		median(@ratios), $ratios[ @ratios / 4 ], $ratios[ 3 * @ratios / 4 ]);
	cmp_ok(median(@ratios), '>=', $least, "$ours against $theirs");
}

done_testing();
