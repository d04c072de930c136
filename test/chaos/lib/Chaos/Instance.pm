# A PostgreSQL instance on a host of its own, with a disk of its own.  Clients connect
# to its Unix socket, so no fault of the network affects them.
package Chaos::Instance;

use strict;
use warnings;

use parent -norequire, 'EtcdLeader::Instance';

use EtcdLeader::Instance;
use EtcdLeader::Namespace;
use EtcdLeader::Shim;
use EtcdLeader::Util;

my $disk_size = '160m';

# The arguments of EtcdLeader::Instance->create(), and host => the host, as from
# Chaos::Network->host().
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

# Kills processes that have outlived their postmaster for 10 s, as systemd does.  With
# them no server can start, and the launcher of pg_cron 1.4 does not always notice the
# death.  The extension's processes have to end by themselves.
sub kill_orphans
{
	my ($self) = @_;
	my %orphans = map { $_ => $self->{el_orphans}{$_} // now() } $self->processes;
	delete @orphans{ $self->processes_like('etcd_leader ') };
	kill 'KILL', grep { now() - $orphans{$_} > 10 } keys %orphans;
	$self->{el_orphans} = \%orphans;
	return;
}

# Starts the postmaster, and does not wait.  In the namespace that has the hosts it would
# run as root, so it gets a user namespace of its own.
sub start
{
	my ($self) = @_;
	$self->kill_orphans;
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

# Does it accept connections?
sub serves { my ($self) = @_; return $self->alive && defined $self->try_value('SELECT 1') }

# All processes of the server.  Their titles have its cluster_name, which is unique on
# this machine; before that their command line is the postmaster's.  (Of processes in
# another user namespace only the titles are visible.)
sub processes { my ($self) = @_; return $self->processes_like('') }

# The processes of the server whose title has this text.
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

sub shim { my ($self) = @_; return $self->{el_shim} }

# How many percent its clock runs too fast, to about one percent: the server measures a
# second.
sub clock_percent
{
	my ($self) = @_;
	my $before = now();
	my $plan   = join "\n", map { values %$_ } $self->rows('EXPLAIN ANALYZE SELECT pg_sleep(1)');
	my $took   = now() - $before;
	my ($ms)   = $plan =~ /Execution Time: ([\d.]+) ms/ or die "no time: $plan";
	return 100 * ($ms / 1000 / $took - 1);
}

sub disk { my ($self) = @_; return $self->{_basedir} }

# Shuts the server down (fast).  After that many seconds it kills the remaining
# processes, and returns their pids.
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

# PostgreSQL::Test::Cluster has not started the server, and must not stop it.
sub teardown_node { return }

1;
