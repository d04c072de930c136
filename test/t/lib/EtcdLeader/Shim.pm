# A world of its own for a server: clocks that the test steps or lets run at another
# rate, a resolver that it hangs, workers that it holds and a disk that it makes slow,
# by a library (shim.c) that is loaded before libc.
package EtcdLeader::Shim;

use strict;
use warnings;

use File::Basename qw(dirname);
use PostgreSQL::Test::Utils;

# Endpoints with a host of this domain are on this host, unless DNS hangs.
our $domain = 'hung.test';

my $library;
my $count = 0;

sub new
{
	my ($class) = @_;
	if (!$library)
	{
		my $source = dirname(__FILE__) . '/shim.c';
		my $made   = PostgreSQL::Test::Utils::tempdir() . '/shim.so';
		system('cc', '-shared', '-fPIC', '-O2', '-Wall', '-Werror', '-o', $made, $source, '-ldl') == 0
		  or die "cannot compile $source";
		$library = $made;
	}
	my $self = bless { wall => 0, boot => 0, hang => 0, hold => 0, sync => 0, sync_fails => 0, rate => 0 }, $class;
	$self->{file} = PostgreSQL::Test::Utils::tempdir() . '/control' . ++$count;
	open $self->{handle}, '+>', $self->{file} or die "$self->{file}: $!";
	$self->apply;
	# the output of the servers
	syswrite($self->{handle}, pack('q<', 0)) == 8 or die "$self->{file}: $!";
	return $self;
}

# Runs a piece of Perl: the servers that it starts live in this world.
sub around
{
	my ($self, $code) = @_;
	local $ENV{LD_PRELOAD}       = $library;
	local $ENV{ETCD_LEADER_SHIM} = $self->{file};
	return $code->();
}

# Somebody steps the wall clock, by $seconds.
sub step_wall { my ($self, $seconds) = @_; $self->{wall} += $seconds; return $self->apply }

# Its clocks run $percent % too fast; negative: too slow.  Call it before the server
# starts, because the clocks would jump.
sub run_fast { my ($self, $percent) = @_; $self->{rate} = $percent; return $self->apply }

# The host has slept for $seconds.
sub sleep_host
{
	my ($self, $seconds) = @_;
	$self->{wall} += $seconds;
	$self->{boot} += $seconds;
	return $self->apply;
}

# Lookups never answer any more; or they answer again, also the hanging lookups.
sub hang_dns { my ($self, $hang) = @_; $self->{hang} = $hang; return $self->apply }

# Background workers that begin wait, where the server drops a SIGHUP for them.
sub hold_workers { my ($self, $hold) = @_; $self->{hold} = $hold; return $self->apply }

# The disk is slow: each sync takes $seconds longer.  Or one of $number syncs in a process
# fails with EIO.  0 ends the fault.
sub slow_disk { my ($self, $seconds) = @_; $self->{sync} = $seconds; return $self->apply }

sub fail_disk { my ($self, $number) = @_; $self->{sync_fails} = $number; return $self->apply }

# How many syncs were late or failed.
sub syncs_struck
{
	my ($self) = @_;
	sysseek($self->{handle}, 56, 0);
	sysread($self->{handle}, my $number, 8) == 8 or die "$self->{file}: $!";
	return unpack 'q<', $number;
}

sub apply
{
	my ($self) = @_;
	sysseek($self->{handle}, 0, 0);
	syswrite($self->{handle}, pack('q<7', map { int } 1e9 * $self->{wall}, 1e9 * $self->{boot}, $self->{hang}, $self->{hold},
			1e9 * $self->{sync}, $self->{sync_fails}, 1e4 * $self->{rate})) == 56
	  or die "$self->{file}: $!";
	return;
}

1;
