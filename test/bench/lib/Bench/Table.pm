# A table of measurements: rows of samples, their statistics, and their presentation.  It is
# plain data, so that it can be written to a file as JSON.
#
#   name   => its name, among those of all tables
#   title  => the title
#   unit   => the unit of the samples
#   rows   => [ { name, x, samples => [[round, value], ...], goal, note } ... ]
#
# With x, which is a number, rows of the same name form a curve.  "ours" names our row at
# the same x.  Each other row has a "ratio": the median of the ratios of our sample to its
# sample, over all rounds that have both.  A row with an "ours" of its own is compared to that one.  Samples of one round are compared, because the
# load of the machine changes between rounds.  The interval behind it has the median of all
# such ratios with a confidence of 95 %.  "goal" of our row concerns its median, "goal"
# of the others their ratio.  With "growth" the table shows how each curve grows: the
# exponent of x in the power law that fits the medians best.
package Bench::Table;

use strict;
use warnings;

use Exporter 'import';

our @EXPORT_OK = qw(median lines csv markdown plot);

sub median
{
	my @sorted = sort { $a <=> $b } @_;
	my $n = @sorted;
	return if $n == 0;
	return $n % 2 ? $sorted[ $n / 2 ] : ($sorted[ $n / 2 - 1 ] + $sorted[ $n / 2 ]) / 2;
}

# The ratios of our samples to those of the row, of all rounds that have both, sorted.
sub ratios
{
	my ($ours, $row) = @_;
	my %value = map { $_->[0] => $_->[1] } @{ $row->{samples} };
	return sort { $a <=> $b } map { $_->[1] / $value{ $_->[0] } } grep { $value{ $_->[0] } } @{ $ours->{samples} };
}

# The interval in which the median lies with a confidence of 95 %, whatever the
# distribution is: of N sorted values the Kth from both ends, by the binomial distribution.
# Empty if there are fewer than 6 values.
sub interval
{
	my @sorted = @_;
	my $n = @sorted;
	my ($k, $weight, $sum) = (0, 0.5**$n, 0);
	while (($sum += $weight) <= 0.025)
	{
		$k++;
		$weight *= ($n - $k + 1) / $k;
	}
	return $k > 0 ? @sorted[ $k - 1, $n - $k ] : ();
}

# The exponent of x: the slope of the line of least squares through the logarithms.
sub exponent
{
	my ($table, $name) = @_;
	my @points = map { my $m = median(map { $_->[1] } @{ $_->{samples} }); defined $m && $m > 0 ? [ log $_->{x}, log $m ] : () }
	  grep { $_->{name} eq $name && $_->{x} } @{ $table->{rows} };
	my ($n, $x, $y, $xx, $xy) = (scalar @points, 0, 0, 0, 0);
	for (@points) { $x += $_->[0]; $y += $_->[1]; $xx += $_->[0]**2; $xy += $_->[0] * $_->[1] }
	my $divisor = $n * $xx - $x**2;
	return abs($divisor) > 1e-9 ? ($n * $xy - $x * $y) / $divisor : undef;
}

# Formats a number with three significant digits and without an exponent.
sub figure
{
	my ($value) = @_;
	return '' unless defined $value;
	my $size = abs $value;
	return sprintf($size >= 100 || $size == 0 ? '%.0f' : $size >= 10 ? '%.1f' : $size >= 1 ? '%.2f' : '%.3f', $value);
}

sub judged
{
	my ($goal, $value) = @_;
	my ($sign, $bound) = ($goal // '') =~ /^([<>])= ([\d.]+)$/ or return '';
	my $met = defined $value && ($sign eq '<' ? $value <= $bound : $value >= $bound);
	return ($sign eq '<' ? '≤' : '≥') . " $bound, " . (!defined $value ? 'not measured' : $met ? 'met' : '**missed**');
}

# The lines of the table as lists of cells, the head first.
sub lines
{
	my ($table) = @_;
	my @rows   = @{ $table->{rows} };
	my $curves = grep { defined $_->{x} } @rows;
	my $reference = sub { my ($row) = @_; return $row->{ours} // $table->{ours} };
	my $compared = grep { defined $reference->($_) } @rows;
	my @lines  = [ '', ($curves ? $table->{x} : ()), 'n', 'median', 'min', 'max', ($table->{growth} ? 'exponent' : ()), ($compared ? 'ours ÷ this' : ()), 'goal' ];
	my %is_grown;
	for my $row (@rows)
	{
		my $exponent = $is_grown{ $row->{name} }++ ? undef : exponent($table, $row->{name});
		my @values = sort { $a <=> $b } map { $_->[1] } @{ $row->{samples} };
		my ($ours) = grep { defined $reference->($row) && $_->{name} eq $reference->($row) && ($_->{x} // '') eq ($row->{x} // '') } @rows;
		my @ratios = $ours && $ours != $row ? ratios($ours, $row) : ();
		my $ratio = median(@ratios);
		my $interval = join ' to ', map { figure($_) } interval(@ratios);
		push @lines, [
			$row->{name} . (@values && $row->{note} ? " ($row->{note})" : ''),
			($curves ? $row->{x} // '' : ()),
			scalar @values,
			(@values ? map { figure($_) } median(@values), @values[ 0, -1 ] : ($row->{note} // 'did not run', '', '')),
			($table->{growth} ? defined $exponent ? sprintf('%.2f', $exponent) : '' : ()),
			($compared ? figure($ratio) . ($interval && " ($interval)") : ()),
			judged($row->{goal}, $ours && $ours != $row ? $ratio : median(@values)),
		];
	}
	return @lines;
}

# The table as text for a terminal.
sub text
{
	my ($table) = @_;
	my @lines = lines($table);
	my @width;
	for my $line (@lines)
	{
		$line = [ map { s/\*\*|`//gr } @$line ];
		utf8::decode($_) for my @cells = @$line;
		for my $i (0 .. $#cells) { $width[$i] = length $cells[$i] if length $cells[$i] > ($width[$i] // 0) }
	}
	my $text = "$table->{title}, $table->{unit}\n" =~ s/`//gr;
	for my $line (@lines)
	{
		utf8::decode($_) for my @cells = @$line;
		my $shown = join '  ', map { $_ == 0 || $_ == $#cells ? sprintf('%-*s', $width[$_], $cells[$_]) : sprintf('%*s', $width[$_], $cells[$_]) } 0 .. $#cells;
		utf8::encode($shown);
		$text .= '  ' . ($shown =~ s/\s+$//r) . "\n";
	}
	return $text;
}

sub markdown
{
	my ($table) = @_;
	my ($head, @lines) = lines($table);
	return join '', map { "$_\n" }
	  '| ' . join(' | ', @$head) . ' |',
	  '|---|' . '---:|' x (@$head - 2) . '---|',
	  map { '| ' . join(' | ', @$_) . ' |' } @lines;
}

# The samples of tables.
sub csv
{
	my (@tables) = @_;
	my $quoted = sub { my ($s) = @_; $s =~ s/"/""/g; return qq{"$s"} };
	my $csv = "table,what,x,round,value\n";
	for my $table (@tables)
	{
		for my $row (@{ $table->{rows} })
		{
			$csv .= join(',', $table->{name}, $quoted->($row->{name}), $row->{x} // '', @$_) . "\n" for @{ $row->{samples} };
		}
	}
	return $csv;
}

# The script for gnuplot that draws the table into $file: a box plot (quartiles, whiskers,
# outliers) for each row, or a curve of medians, with minimum and maximum, for each name.
sub plot
{
	my ($table, $file) = @_;
	my @rows = grep { @{ $_->{samples} } } @{ $table->{rows} } or return;
	my $curves = grep { defined $_->{x} } @rows;
	my $label  = sub { my ($s) = @_; $s =~ s/[`'\\]//g; return "'$s'" };
	my @script = (
		'set encoding utf8',
		"set terminal svg noenhanced size 900,420 font 'sans-serif,13' background '#ffffff'",
		"set output '$file'",
		'set ylabel ' . $label->($table->{unit}),
		'set grid ytics lc "#dddddd"',
		($table->{linear} ? 'set yrange [0:*]' : 'set logscale y'));
	my ($data, @plots) = ('');
	if ($curves)
	{
		my (%of, @names);
		for my $row (@rows)
		{
			push @names, $row->{name} unless $of{ $row->{name} };
			my @values = sort { $a <=> $b } map { $_->[1] } @{ $row->{samples} };
			push @{ $of{ $row->{name} } }, join ' ', $row->{x}, median(@values), @values[ 0, -1 ];
		}
		for my $i (0 .. $#names)
		{
			$data .= join "\n", "\$d$i << EOD", @{ $of{ $names[$i] } }, "EOD\n";
			my $exponent = $table->{growth} ? exponent($table, $names[$i]) : undef;
			push @plots, "\$d$i using 1:2:3:4 with yerrorlines pt 7 title " . $label->($names[$i] . (defined $exponent ? sprintf(': exponent %.2f', $exponent) : ''));
		}
		my %x = map { $_->{x} => 1 } @rows;
		push @script, 'set logscale x', 'set xtics (' . join(', ', sort { $a <=> $b } keys %x) . ')',
		  'set xlabel ' . $label->($table->{x}), 'set key outside top center horizontal';
	}
	else
	{
		for my $i (0 .. $#rows)
		{
			$data .= join "\n", "\$d$i << EOD", (map { $_->[1] } @{ $rows[$i]{samples} }), "EOD\n";
			push @plots, "\$d$i using ($i):1 with boxplot notitle lc " . ($i + 1);
		}
		push @script, 'set style boxplot outliers pointtype 7', 'set style fill solid 0.3', 'set boxwidth 0.5', 'set pointsize 0.4',
		  'set bmargin 4', 'set xrange [-0.6:' . ($#rows + 0.6) . ']',
		  'set xtics (' . join(', ', map { '"' . wrapped($rows[$_]{name} =~ s/[`"\\]//gr) . qq{" $_} } 0 .. $#rows) . ')';
	}
	return $data . join("\n", @script, 'plot ' . join(', ', @plots)) . "\n";
}

# Breaks a name into lines of about twenty letters.
sub wrapped
{
	my ($name) = @_;
	my @lines = '';
	for my $word (split / /, $name)
	{
		push @lines, '' if length($lines[-1]) + length($word) > 20 && $lines[-1] ne '';
		$lines[-1] .= ($lines[-1] eq '' ? '' : ' ') . $word;
	}
	return join '\\n', @lines;
}

1;
