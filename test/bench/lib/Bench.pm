# A part of the bench.  It runs its measurements in turn, in rounds, prints its tables, and
# writes them to a file for the report.
package Bench;

use strict;
use warnings;

use Bench::Table;
use EtcdLeader::Util;
use JSON::PP ();
use POSIX ();
use PostgreSQL::Test::Utils ();
use Test::More;

# A bench has no time limit, unlike a test.
watchdog(1200);
$| = 1;

#   name  => the name of its files
#   title => the heading of its section
#   text  => a description of the measurement
sub new
{
	my ($class, %args) = @_;
	return bless { %args, tables => [], problems => [] }, $class;
}

# The number of rounds: ROUNDS, or the default of the part.
sub rounds { my ($default) = @_; return $ENV{ROUNDS} || $default }

# Adds a table; see Bench::Table.
sub table
{
	my ($self, %args) = @_;
	my $table = { rows => [], %args };
	push @{ $self->{tables} }, $table;
	return $table;
}

# Adds a row to a table.
sub row
{
	my ($table, $name, %args) = @_;
	my $row = { name => $name, samples => [], %args };
	push @{ $table->{rows} }, $row;
	return $row;
}

sub sample { my ($row, $round, $value) = @_; push @{ $row->{samples} }, [ $round, $value ]; return }

# Runs each of the pairs [row or rows, code] in every round, each time beginning with
# another one.  The code returns a sample for each row; undef is no sample.  A pair that
# fails is reported, and left out from then on.
sub in_turn
{
	my ($self, $rounds, @pairs) = @_;
	for my $round (1 .. $rounds)
	{
		for my $pair (@pairs)
		{
			my ($rows, $code) = @$pair;
			my @rows = ref $rows eq 'ARRAY' ? @$rows : $rows;
			my @values;
			if (!eval { @values = $code->($round); 1 })
			{
				$self->problem("$rows[0]{name}: $@");
				$_->{note} = 'failed' for @rows;
				$pair = undef;
				next;
			}
			for my $i (0 .. $#rows) { sample($rows[$i], $round, $values[$i]) if defined $values[$i] }
		}
		@pairs = grep { $_ } @pairs;
		push @pairs, shift @pairs;
	}
	return;
}

# Compares the samples of two rows, and returns (p, difference).  p is that of the two-sided
# Mann-Whitney test, with a correction for ties and the normal approximation, which needs
# about 10 samples of each.  The difference is the median of all differences (Hodges and
# Lehmann); it is positive if the second row is greater.
sub compare
{
	my ($first, $second) = @_;
	my @a = map { $_->[1] } @{ $first->{samples} };
	my @b = map { $_->[1] } @{ $second->{samples} };
	my ($u, $ties, %times) = (0, 0);
	$times{$_}++ for @a, @b;
	$ties += $_**3 - $_ for values %times;
	for my $x (@a) { $u += $x < $_ ? 1 : $x == $_ ? 0.5 : 0 for @b }
	my ($n, $m, $all) = (scalar @a, scalar @b, @a + @b);
	my $spread = sqrt($n * $m / 12 * ($all + 1 - $ties / ($all * ($all - 1))));
	my $z = $spread > 0 ? (abs($u - $n * $m / 2) - 0.5) / $spread : 0;
	my @differences = sort { $a <=> $b } map { my $x = $_; map { $_ - $x } @b } @a;
	my $middle = ($differences[ $#differences / 2 ] + $differences[ @differences / 2 ]) / 2;
	return ($z > 0 ? POSIX::erfc($z / sqrt 2) : 1, $middle);
}

# Reports a measurement that is not possible, and the reason.
sub problem
{
	my ($self, $why) = @_;
	$why =~ s/\s+/ /g;
	$why =~ s/\s$//;
	diag("left out: $why");
	push @{ $self->{problems} }, $why;
	return;
}

# Calls code that makes a peer.  If it fails, reports that and returns undef.
sub try
{
	my ($self, $name, $code) = @_;
	my $made = eval { $code->() };
	$self->problem("$name: $@") unless $made;
	return $made;
}

# The private memory of a process, in MB.
sub memory
{
	my ($pid) = @_;
	my $sum = 0;
	$sum += $_ / 1024 for PostgreSQL::Test::Utils::slurp_file("/proc/$pid/smaps_rollup") =~ /^Private_\w+:\s+(\d+) kB/mg;
	return $sum;
}

# The processes of a server with that data directory: the postmaster and its children.
sub server_pids
{
	my ($data_dir) = @_;
	my ($postmaster) = PostgreSQL::Test::Utils::slurp_file("$data_dir/postmaster.pid") =~ /^(\d+)/;
	my @children;
	for my $file (glob '/proc/[0-9]*/stat')
	{
		open(my $in, '<', $file) or next;
		my ($child, $parent) = (<$in> // '') =~ /^(\d+) \(.*\) \S (\d+)/s or next;
		push @children, $child if $parent == $postmaster;
	}
	return ($postmaster, @children);
}

# Prints the tables, and writes them for the report.
sub finish
{
	my ($self) = @_;
	diag("\n" . Bench::Table::text($_)) for @{ $self->{tables} };
	if ($ENV{BENCH_RESULTS})
	{
		open(my $out, '>', "$ENV{BENCH_RESULTS}/$self->{name}.json") or die "$ENV{BENCH_RESULTS}: $!";
		print $out JSON::PP->new->canonical->pretty->encode({%$self});
		close $out or die $!;
	}
	pass("$self->{name}: measured");
	done_testing();
	return;
}

1;
