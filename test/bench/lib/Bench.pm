# A part of the bench: what it measures, in turn and round by round, and its
# tables, which go to the terminal and to a file for the report.
package Bench;

use strict;
use warnings;

use Bench::Table;
use EtcdLeader::Util;
use JSON::PP ();
use POSIX ();
use PostgreSQL::Test::Utils ();
use Test::More;

# The bound of a test does not hold for a bench.
watchdog(1200);
$| = 1;

#   name  => of its files
#   title => for people
#   text  => what is measured, and how
sub new
{
	my ($class, %args) = @_;
	return bless { %args, tables => [], problems => [] }, $class;
}

# How many rounds: ROUNDS, or else the part's own number.
sub rounds { my ($default) = @_; return $ENV{ROUNDS} || $default }

# Another table; see Bench::Table.
sub table
{
	my ($self, %args) = @_;
	my $table = { rows => [], %args };
	push @{ $self->{tables} }, $table;
	return $table;
}

# Another row of a table.
sub row
{
	my ($table, $name, %args) = @_;
	my $row = { name => $name, samples => [], %args };
	push @{ $table->{rows} }, $row;
	return $row;
}

sub sample { my ($row, $round, $value) = @_; push @{ $row->{samples} }, [ $round, $value ]; return }

# Runs each of the pairs [row or rows, code] in every round, another one first
# each time.  The code returns the samples, one for each row.  One that fails
# is left out from then on, and named; undef is no sample.
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

# Could the samples of two rows be those of the same thing?  The two-sided
# Mann-Whitney test, with the normal approximation, which is good from about 10
# samples each, and corrected for ties; and by how much the second ones are greater,
# as the median of all differences (Hodges and Lehmann).  (p, difference)
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

# What could not be measured, and why.
sub problem
{
	my ($self, $why) = @_;
	$why =~ s/\s+/ /g;
	$why =~ s/\s$//;
	diag("left out: $why");
	push @{ $self->{problems} }, $why;
	return;
}

# Calls code that makes a peer; undef, with a word about it, if that fails.
sub try
{
	my ($self, $name, $code) = @_;
	my $made = eval { $code->() };
	$self->problem("$name: $@") unless $made;
	return $made;
}

# The processes of a server, by its data directory: the postmaster, and those
# that it has started.
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

# Shows the tables and leaves them to the report.
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
