# Small things that every test uses: a clock, polling with a bound, and
# programs in the background that are held by their pid.
package EtcdLeader::Util;

use strict;
use warnings;

use Exporter 'import';
use POSIX ();
use Test::More;
use Time::HiRes ();

our @EXPORT = qw(cpu_seconds in_time now pause poll poll_ok poll_is wait_for_exit watchdog);

my @processors = ({ at => 0 });

# Seconds of the clock that all processes of this machine share and that
# nobody can step.
sub now
{
	my $now = Time::HiRes::clock_gettime(Time::HiRes::CLOCK_MONOTONIC());
	note_processors($now) if $now > $processors[-1]{at} + 0.1;
	return $now;
}

# The clock ticks of all processors so far, and the idle ticks.
# A host that gives its processors to other machines counts as busy.
sub note_processors
{
	my ($now) = @_;
	open my $fh, '<', '/proc/stat' or return;
	my (undef, @ticks) = split ' ', scalar <$fh>;
	my $all = 0;
	$all += $_ for @ticks[ 0 .. 7 ];
	push @processors, { at => $now, all => $all, idle => $ticks[3] };
	shift @processors if @processors > 3000;
	return;
}

# How busy the processors were in the last $seconds: from 0 to 1.
sub busy_for
{
	my ($seconds) = @_;
	my $now = now();
	note_processors($now);
	my ($from) = grep { $_->{at} <= $now - $seconds } reverse @processors;
	$from //= $processors[0];
	my $ticks = $processors[-1]{all} - ($from->{all} // $processors[-1]{all});
	return $ticks > 0 ? 1 - ($processors[-1]{idle} - $from->{idle}) / $ticks : 0;
}

# The bound for an operation that takes $bound seconds at most on a machine that is half
# idle: up to five times as much on a machine that is busy with other things.
sub widened
{
	my ($bound, $busy) = @_;
	return $bound * ($busy > 0.5 ? 1 + 8 * ($busy - 0.5) : 1);
}

# As a test: the operation that has just ended took less than $bound seconds.
sub in_time
{
	my ($took, $bound, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $busy = busy_for($took > 1 ? $took : 1);
	my $ok   = cmp_ok($took, '<', widened($bound, $busy), $name);
	diag(sprintf 'the bound is %.1f s, and the processors were busy for %.0f %%', $bound, 100 * $busy) unless $ok;
	return $ok;
}

# CPU seconds that a process has used with its threads, to a clock tick: proc(5),
# utime and stime.
sub cpu_seconds
{
	my ($pid) = @_;
	open my $fh, '<', "/proc/$pid/stat" or die "no process $pid";
	my @f = split / /, (<$fh> =~ /\) (.*)/)[0];
	return ($f[11] + $f[12]) / POSIX::sysconf(POSIX::_SC_CLK_TCK());
}

# Lets time pass.  Only for tests in which the time itself is the matter, and
# between two looks of a bounded poll.
sub pause
{
	my ($seconds) = @_;
	my $end = now() + $seconds;
	while ((my $left = $end - now()) > 0)
	{
		select(undef, undef, undef, $left);
	}
	return;
}

# Calls $look until it returns something true, at most $timeout seconds.
# Returns the result of the last call.
sub poll
{
	my ($timeout, $look) = @_;
	my $end = now() + $timeout;
	while (1)
	{
		my $late   = now() >= $end;
		my $answer = $look->();
		return $answer if $answer || $late;
		pause(0.02);
	}
}

# As poll(), for an expected result: waits longer while the processors are busy.
sub poll_longer
{
	my ($timeout, $look) = @_;
	my $answer = poll($timeout, $look);
	my $more   = $answer ? 0 : widened($timeout, busy_for($timeout)) - $timeout;
	return $more > 0 ? poll($more, $look) : $answer;
}

# poll_longer() as a test.
sub poll_ok
{
	my ($timeout, $look, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $began = now();
	my $answer = poll_longer($timeout, $look);
	ok($answer, $name) or diag(sprintf 'gave up after %.2f s', now() - $began);
	return $answer;
}

# Calls $look until its answer is $expected (undef counts as '(null)'), at
# most $timeout seconds; a test.  Returns how many seconds it took.
sub poll_is
{
	my ($timeout, $look, $expected, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $began = now();
	my $got;
	$expected //= '(null)';
	poll_longer($timeout, sub { $got = $look->() // '(null)'; return $got eq $expected; });
	my $took = now() - $began;
	is($got, $expected, $name) or diag(sprintf 'after %.2f s', $took);
	return $took;
}

# A test that hangs, fails: it ends after the given seconds, wherever it is.
sub watchdog
{
	my ($seconds) = @_;
	# not a safe signal of Perl's: the test may sit in a library that never
	# comes back to Perl
	my $action = POSIX::SigAction->new(sub { print STDERR "the test hangs\n"; exit 1; }, POSIX::SigSet->new);
	$action->safe(0);
	POSIX::sigaction(POSIX::SIGALRM(), $action);
	alarm $seconds;
	return;
}

# The longest file takes five minutes where thirty processes want the processors.
watchdog(600);

# Waits at most $timeout seconds for a process, ours or not, to be gone.
sub wait_for_exit
{
	my ($pid, $timeout) = @_;
	return poll_longer($timeout, sub {
		waitpid($pid, POSIX::WNOHANG());
		return !kill(0, $pid);
	});
}

# ---------------------------------------------------------------------------
# A program, or a piece of Perl, in the background.
package EtcdLeader::Util::Process;

use strict;
use warnings;

use POSIX ();

# pid => 1 of all that this process has started and not yet seen the end of
my %running;
my $owner = $$;

# A signal to the test must not skip the END blocks that clean up.
$SIG{$_} = sub { exit 130 }
  for grep { !defined $SIG{$_} || $SIG{$_} eq 'DEFAULT' } qw(INT TERM HUP);

# Starts it, with its output in a file.  Either
#   cmd => [program, arguments...], optionally env => {...}, or
#   code => sub {...}, run in the child, which ends without END blocks.
# log => file (appended to); stderr => another file (optional).
sub spawn
{
	my ($class, %args) = @_;
	my $self = bless { log => $args{log}, name => $args{name} // "@{$args{cmd} // ['code']}" }, $class;

	STDOUT->flush;
	my $pid = fork() // die "fork: $!";
	if ($pid == 0)
	{
		# __DIE__: since 19 PostgreSQL's library ends the test there
		$SIG{INT} = $SIG{TERM} = $SIG{HUP} = $SIG{ALRM} = $SIG{__DIE__} = 'DEFAULT';
		alarm 0;
		my $flags = POSIX::O_WRONLY() | POSIX::O_CREAT() | POSIX::O_APPEND();
		my $in    = POSIX::open('/dev/null', POSIX::O_RDONLY());
		my $out   = POSIX::open($args{log}, $flags, 0600);
		my $err   = $args{stderr} ? POSIX::open($args{stderr}, $flags, 0600) : $out;
		POSIX::dup2($in,  0);
		POSIX::dup2($out, 1);
		POSIX::dup2($err, 2);
		if ($args{code})
		{
			my $ok = eval { $args{code}->(); 1 };
			syswrite(STDERR, "died: $@") unless $ok;
			POSIX::_exit($ok ? 0 : 1);
		}
		my %env = %{ $args{env} // {} };
		$ENV{$_} = $env{$_} for keys %env;
		{ no warnings 'exec'; exec { $args{cmd}[0] } @{ $args{cmd} }; }
		syswrite(STDERR, "cannot execute $args{cmd}[0]: $!\n");
		POSIX::_exit(127);
	}
	$running{$pid} = 1;
	$self->{pid} = $pid;
	return $self;
}

sub pid { return $_[0]{pid} }

# Is it still there?  Remembers its exit status when it is not.
sub alive
{
	my ($self) = @_;
	return 0 if exists $self->{status};
	my $got = waitpid($self->{pid}, POSIX::WNOHANG());
	return 1 if $got == 0;
	$self->{status} = $got == $self->{pid} ? $? : -1;
	delete $running{ $self->{pid} };
	return 0;
}

# Its wait status; undef while it runs.
sub status { my ($self) = @_; return $self->alive ? undef : $self->{status} }

sub signal
{
	my ($self, $signal) = @_;
	return $self->alive ? kill($signal, $self->{pid}) : 0;
}

# Stops it.  The kernel tells one of its threads, which tells the others when a processor is
# free; until then they go on.  So this waits until all of them have stopped.
sub freeze
{
	my ($self) = @_;
	$self->signal('STOP') or return 0;
	EtcdLeader::Util::poll(10, sub {
		for my $stat (glob "/proc/$self->{pid}/task/*/stat")
		{
			open my $fh, '<', $stat or next;    # a thread that has ended
			(<$fh> // '') =~ /^.*\) [Tt] /s or return 0;
		}
		return 1;
	}) or die "$self->{name} does not stop";
	return 1;
}

sub thaw { return $_[0]->signal('CONT') }

# Waits for its end, at most $timeout seconds; true if it is gone.
sub wait
{
	my ($self, $timeout) = @_;
	return EtcdLeader::Util::poll($timeout, sub { !$self->alive });
}

# Sends a signal (TERM) and waits for the end; SIGKILL after $timeout (5) s.
sub stop
{
	my ($self, $signal, $timeout) = @_;
	$self->signal($signal // 'TERM');
	return 1 if $self->wait($timeout // 5);
	$self->signal('CONT');
	$self->signal('KILL');
	return $self->wait(5);
}

# The text of its log so far.
sub output
{
	my ($self) = @_;
	open my $fh, '<', $self->{log} or return '';
	local $/;
	return scalar(<$fh>) // '';
}

sub DESTROY
{
	my ($self) = @_;
	local ($?, $!, $@);
	return unless $$ == $owner && defined $self->{pid} && $running{ $self->{pid} };
	kill('CONT', $self->{pid});
	kill('KILL', $self->{pid});
	waitpid($self->{pid}, 0);
	delete $running{ $self->{pid} };
}

END
{
	my $status = $?;
	if ($$ == $owner)
	{
		for my $pid (keys %running)
		{
			kill('CONT', $pid);
			kill('KILL', $pid);
			waitpid($pid, 0);
		}
	}
	$? = $status;
}

1;
