# A PostgreSQL instance on a host of its own, with a disk of its own.  Clients
# reach it by its Unix socket, which is a file: no fault of the network comes
# between them.
package Chaos::Instance;

use strict;
use warnings;

use parent -norequire, 'EtcdLeader::Instance';

use EtcdLeader::Instance;
use EtcdLeader::Namespace;
use EtcdLeader::Shim;
use EtcdLeader::Util;

my $disk_size = '160m';

# As EtcdLeader::Instance->create(), and host => what names the host;
# disk => 0: on the disk of the test.
sub create
{
	my ($class, $name, %args) = @_;
	my $self = $class->SUPER::create($name, %args, start => 0,
		init => { extra => ['--wal-segsize=1'], %{ $args{init} // {} } });
	$self->live_on($args{host});
	return $self;
}

sub new
{
	my ($class, @args) = @_;
	my $self = $class->SUPER::new(@args);
	EtcdLeader::Namespace::run_as_root("mount -t tmpfs -o size=$disk_size,mode=0700 disk '$self->{_basedir}'");
	return $self;
}

sub live_on
{
	my ($self, $host) = @_;
	$self->{el_host} = $host;
	$self->{el_shim} = EtcdLeader::Shim->new;
	return;
}

# Starts the postmaster, and waits for nothing.  It is nobody's child here, and
# not root, which it is in the namespace that has the hosts.
sub start
{
	my ($self) = @_;
	my ($uid, $gid) = ($>, (split / /, $))[0]);
	my $bindir = $self->{_install_path} ? "$self->{_install_path}/bin" : $self->config_data('--bindir');
	my @world;
	$self->{el_shim}->around(sub { @world = map { "$_=$ENV{$_}" } qw(LD_PRELOAD ETCD_LEADER_SHIM) });
	$self->{el_process} = EtcdLeader::Namespace::Process->spawn(
		host => $self->{el_host},
		name => $self->name,
		log  => $self->logfile,
		cmd  => [ 'unshare', '--user', "--map-user=$uid", "--map-group=$gid", '--', 'env', @world,
			"$bindir/postgres", '-D', $self->data_dir, '-c', 'cluster_name=' . $self->cluster_name ]);
	return;
}

sub alive { my ($self) = @_; return $self->{el_process} && $self->{el_process}->alive }

sub pid { my ($self) = @_; return $self->{el_process} ? $self->{el_process}->pid : undef }

# Does it take connections?
sub serves { my ($self) = @_; return $self->alive && defined $self->try_value('SELECT 1') }

# All processes of the server: those whose title has its cluster_name, which no
# other server of this machine has, or which are as the postmaster began them.
# (More than titles nobody may see of processes in another user namespace.)
sub processes { my ($self) = @_; return $self->processes_like('') }

# Those whose title has this text, too.
sub processes_like
{
	my ($self, $text) = @_;
	my ($dir, $name) = ($self->data_dir, $self->cluster_name);
	return grep {
		my $title = '';
		if (open my $fh, '<', "/proc/$_/cmdline") { local $/; $title = <$fh> // '' }
		$title =~ /^postgres: \Q$name\E[: ]|postgres(?:\.bin)?\0-D\0\Q$dir\E\0/ && index($title, $text) >= 0
	} map { m{(\d+)} } glob '/proc/[0-9]*';
}

sub cluster_name { my ($self) = @_; my ($run) = $PostgreSQL::Test::Utils::tmp_check =~ m{([^/]+)/tmp_check}; return $self->name . "-$run" }

sub clock { my ($self) = @_; return $self->{el_shim} }

sub disk { my ($self) = @_; return $self->{_basedir} }

# Its end, as an operator ends it (fast), in at most that many seconds; the
# pids that were left after that, and are killed.
sub end
{
	my ($self, $timeout) = @_;
	my $pid = $self->pid or return;
	kill 'INT', $pid if $self->alive;
	poll($timeout, sub { !$self->processes });
	my @left = $self->processes;
	kill 'KILL', @left if @left;
	return @left;
}

sub release_disk
{
	my ($self) = @_;
	EtcdLeader::Namespace::run_as_root("umount -l '$self->{_basedir}'");
	return;
}

# PostgreSQL::Test::Cluster's own ways to start and stop it are not used.
sub teardown_node { return }

1;
