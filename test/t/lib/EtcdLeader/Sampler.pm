# The question of exclusion: a process for each instance asks it again and
# again whether it leads, and notes when it asked.
#
# What a sample proves.  The clock (CLOCK_MONOTONIC, the same for all
# processes here) is read before and after the statement.  An answer "true
# under token T" says that there was one instant within [before, after] at
# which the instance led under T, and no more: where in between, nobody knows.
# So two answers from two instances prove nothing about each other while
# their brackets overlap; they are in a proven order only if one's `after` is
# less than the other's `before`.
#
# The definition of a proven overlap.  While A leads under token T, that is, its key's
# create revision, the key stands at the head of the queue, and T belongs to
# that key alone: all that A says under T belongs to one and the same leadership,
# from the first such instant to the last, whatever A says in between.  Two
# leaderships of different instances must not overlap, and the later leadership has the
# greater token.  With
#     first(T) = the least `after`  of the answers under T: the leadership had begun
#     last(T)  = the greatest `before` of them: the leadership was not yet over
# the leaderships T < U of two instances overlap, provably, exactly if
#     first(U) < last(T):
# U was there at an instant that is proven to be before one at which T was
# still believed.  The same token on two instances is an overlap by itself.
# Nothing that is merely possible is counted, so a failure is a failure.
package EtcdLeader::Sampler;

use strict;
use warnings;

use IO::Socket::INET;

use EtcdLeader::Util;
use PostgreSQL::Test::Utils;
use Test::More;

my $count = 0;

# The token is read before and after the question, since the answer and the
# token are two reads.
my $question = 'SELECT etcd_fencing_token($1), etcd_is_leader($1), etcd_fencing_token($1)';

# Starts asking.  election => name (the first); interval => pause between two
# questions in seconds (0.0005; 0: as fast as it can); port => the question is
# GET /leader there, not SQL; at that host => (127.0.0.1).
sub new
{
	my ($class, $node, %args) = @_;
	my $file = $PostgreSQL::Test::Utils::log_path . '/'
	  . File::Basename::basename($0, '.pl') . '_' . $node->name . "_sampler" . ++$count . '.log';
	unlink $file;
	my $process = EtcdLeader::Util::Process->spawn(
		name => 'sampler of ' . $node->name,
		log  => $file,
		code => sub { ask($args{port} ? by_http($args{host} // '127.0.0.1', $args{port}) : by_sql($node, $args{election}), $args{interval} // 0.0005) });
	my $self = bless { process => $process, name => $node->name }, $class;
	poll(30, sub { length $process->output || !$process->alive });
	die "the sampler did not start" unless $process->alive;
	return $self;
}

# Ways to ask.  Each returns a function that dies if there is no connection,
# and else returns when it asked, whether the instance led, and the tokens that
# it read before and after that.
sub by_sql
{
	my ($node, $election) = @_;
	my ($dbh, $statement);
	return sub {
		my $before = now();
		my @answer = eval {
			if (!$dbh)
			{
				$dbh = $node->connect_db;
				$statement = $dbh->prepare($question);
				$statement->bind_param(1, $election);
				$before = now();
			}
			$statement->execute;
			$statement->fetchrow_array;
		};
		if ($@) { $dbh = undef; die $@; }
		my ($t1, $leads, $t2) = @answer;
		return ($before, $leads, $t1, $t2);
	};
}

sub by_http
{
	my ($host, $port) = @_;
	my $socket;
	return sub {
		$socket //= IO::Socket::INET->new(PeerAddr => $host, PeerPort => $port, Timeout => 1) // die 'no connection';
		local $SIG{PIPE} = 'IGNORE';
		my $before = now();
		my $answer = '';
		if (syswrite $socket, "GET /leader HTTP/1.1\r\nHost: sampler\r\n\r\n")
		{
			while ($answer !~ /\}\n\z/) { sysread($socket, $answer, 4096, length $answer) or last; }
		}
		my ($code) = $answer =~ m{^HTTP/1\.1 (\d+)};
		if ($answer !~ /\}\n\z/) { $socket = undef; die 'no answer'; }
		my ($token) = $answer =~ /"fencing_token":(\d+)/;
		return ($before, $code == 200, $token, $token);
	};
}

# In the child: asks until SIGTERM, and writes a line for each run of equal
# answers: "answer token n first_before first_after last_before last_after
# longest_gap", where answer is t, f or down (no connection), and the gap is
# the longest time in the run from one answer's `after` to the next's
# `after`, the step into the run included.
sub ask
{
	my ($asker, $interval) = @_;
	my $stop = 0;
	$SIG{TERM} = sub { $stop = 1 };
	my ($run, $previous_after);
	my $written = 0;
	my $write   = sub {
		my ($more) = @_;
		return unless $run;
		syswrite(STDOUT, join(' ', @{$run}{qw(answer token n b0 a0 b1 a1 gap)}) . "\n");
		$written = now();
		$run     = undef unless $more;
	};
	while (!$stop)
	{
		my ($answer, $token) = ('down', '-');
		my $before = now();
		eval {
			my ($asked, $leads, $t1, $t2) = $asker->();
			$before = $asked;
			$answer = $leads ? 't' : 'f';
			# The token that the answer belongs to.  Both and different: it
			# changed in between, and the answer may belong to either.
			$token = $t1 // $t2 // '?' if $leads;
			$token = '?' if $leads && defined $t1 && defined $t2 && $t1 != $t2;
			1;
		};
		my $after = now();
		$write->() if $run && ($run->{answer} ne $answer || $run->{token} ne $token);
		my $gap = $after - ($previous_after // $after);
		$run //= { answer => $answer, token => $token, n => 0, b0 => $before, a0 => $after, gap => 0 };
		$run->{n}++;
		@{$run}{qw(b1 a1)} = ($before, $after);
		$run->{gap} = $gap if $gap > $run->{gap};
		$previous_after = $after;
		# so that little is lost should this process be killed
		if ($after - $written > 0.2) { $write->(1); $run->{n} = 0; $run->{gap} = 0; }
		pause($answer eq 'down' ? 0.01 : $interval) if $interval || $answer eq 'down';
	}
	$write->();
	return;
}

# The runs so far, oldest first: answer, token, n, b0 a0 (first sample), b1 a1
# (last sample), gap.
sub runs
{
	my ($self) = @_;
	my @runs;
	for (split /\n/, $self->{process}->output)
	{
		my @f = split / /;
		next unless @f == 8 && $f[0] =~ /^(?:t|f|down)$/;
		my %run;
		@run{qw(answer token n b0 a0 b1 a1 gap)} = @f;
		my $last = $runs[-1];
		if ($last && $last->{answer} eq $run{answer} && $last->{token} eq $run{token})
		{
			$last->{n} += $run{n};
			@{$last}{qw(b1 a1)} = @run{qw(b1 a1)};
			$last->{gap} = $run{gap} if $run{gap} > $last->{gap};
		}
		else
		{
			push @runs, \%run;
		}
	}
	return @runs;
}

# Stops asking; the runs.
sub stop
{
	my ($self) = @_;
	$self->{process}->stop('TERM', 10);
	return $self->runs;
}

# Compares the runs of several instances, { name => [runs], ... }.  Returns
# texts, one for each proven fault; none: all is well as far as was seen.
#
# Somebody who takes away the key of a leader makes two lead until the leader
# notices: this breaks no promise.  $evicted, { token => seconds },
# has the tokens of such keys, and how long that may last.
sub faults
{
	my ($runs, $evicted) = @_;
	my (@faults, %leadership);
	for my $name (sort keys %$runs)
	{
		for my $run (grep { $_->{answer} eq 't' } @{ $runs->{$name} })
		{
			my $token = $run->{token};
			if ($token eq '?')
			{
				push @faults, "$name: true without a single token at $run->{b0}";
				next;
			}
			my $r = $leadership{$token}{$name} //= { name => $name, token => $token, first => $run->{a0}, last => $run->{b1} };
			$r->{first} = $run->{a0} if $run->{a0} < $r->{first};
			$r->{last}  = $run->{b1} if $run->{b1} > $r->{last};
		}
	}
	my @leaderships;
	for my $token (sort { $a <=> $b } keys %leadership)
	{
		my @holders = map { $leadership{$token}{$_} } sort keys %{ $leadership{$token} };
		push @faults, "token $token on " . join(' and ', map { $_->{name} } @holders) if @holders > 1;
		push @leaderships, @holders;
	}
	for my $i (0 .. $#leaderships)
	{
		for my $j ($i + 1 .. $#leaderships)
		{
			my ($t, $u) = @leaderships[ $i, $j ];
			next if $t->{token} == $u->{token};
			next if $t->{last} - $u->{first} < ($evicted->{ $t->{token} } // 0);
			# of one instance: its later leadership must not begin before the end of the earlier one, either
			push @faults,
			  sprintf('%s under %s at %.6f, but %s still under %s at %.6f (%.3f ms later)',
				$u->{name}, $u->{token}, $u->{first}, $t->{name}, $t->{token}, $t->{last}, 1000 * ($t->{last} - $u->{first}))
			  if $u->{first} < $t->{last};
		}
	}
	return @faults;
}

# Stops the samplers and tests: no two instances led at once (evicted => see
# faults()), each sampler had an answer, and none was blind for longer than
# max_gap seconds, its last ones included (3; more on a busy machine; without the
# time that the instance was down).
sub check_exclusion
{
	my ($samplers, $name, %args) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my (%runs, @blind);
	my $total   = 0;
	my $max_gap = EtcdLeader::Util::widened($args{max_gap} // 3, EtcdLeader::Util::busy_for(30));
	for my $sampler (@$samplers)
	{
		my $until = now();
		my @runs  = $sampler->stop;
		my $n     = 0;
		my $gap   = @runs ? $until - $runs[-1]{a1} : 0;
		for my $run (grep { $_->{answer} ne 'down' } @runs)
		{
			$n += $run->{n};
			$gap = $run->{gap} if $run->{gap} > $gap;
		}
		push @blind, sprintf('%s: %d answers, longest gap %.3f s', $sampler->{name}, $n, $gap)
		  if $n == 0 || $gap > $max_gap;
		$total += $n;
		push @{ $runs{ $sampler->{name} } }, @runs;
	}
	my @faults = faults(\%runs, $args{evicted});
	is(join("\n", @faults), '', "$name: no two lead at once ($total answers)");
	is(join("\n", @blind), '', "$name: the samplers saw it all");
	return %runs;
}

1;
