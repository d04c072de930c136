# Two servers under Patroni, on etcd's gateway.
package Bench::Patroni;

use strict;
use warnings;

use DBI;
use EtcdLeader::Util;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $clusters = 0;

# Returns when one server is the primary and the other streams from it.  The TTL is at least
# 5 s.  loop_wait and retry_timeout are the least that are possible with it.
sub new
{
	my ($class, $etcd, $ttl) = @_;
	grep { -x "$_/patroni" } split /:/, $ENV{PATH} or die "there is no patroni\n";
	chomp(my $bindir = `pg_config --bindir`);
	my $self = bless { dir => PostgreSQL::Test::Utils::tempdir_short(), nodes => [] }, $class;
	my $scope = 'bench' . ++$clusters;
	for my $name ('n0', 'n1')
	{
		my $port = PostgreSQL::Test::Cluster::get_free_port();
		my $rest = PostgreSQL::Test::Cluster::get_free_port();
		my $dir  = "$self->{dir}/$name";
		my $hosts = $etcd->url(0) =~ s{^http://}{}r;
		PostgreSQL::Test::Utils::append_to_file("$dir.yml", <<END);
scope: $scope
namespace: /patroni/
name: $name
restapi: {listen: '127.0.0.1:$rest', connect_address: '127.0.0.1:$rest'}
etcd3: {hosts: '$hosts'}
bootstrap:
  dcs:
    ttl: $ttl
    loop_wait: 1
    retry_timeout: 2
    maximum_lag_on_failover: 1048576
    postgresql: {use_pg_rewind: true, parameters: {wal_log_hints: 'on', fsync: 'off'}}
  initdb: [{encoding: UTF8}, {auth-host: trust}, {auth-local: trust}]
  pg_hba: ['host all all 127.0.0.1/32 trust', 'host replication all 127.0.0.1/32 trust', 'local all all trust']
postgresql:
  listen: 127.0.0.1:$port
  connect_address: 127.0.0.1:$port
  data_dir: $dir
  bin_dir: $bindir
  pgpass: $dir.pgpass
  authentication:
    superuser: {username: postgres, password: x}
    replication: {username: replicator, password: x}
    rewind: {username: rewinder, password: x}
  parameters: {unix_socket_directories: '$self->{dir}', shared_buffers: '8MB'}
END
		my $node = { port => $port, rest => $rest, dir => $dir };
		push @{ $self->{nodes} }, $node;
		$node->{process} = EtcdLeader::Util::Process->spawn(
			name => "patroni $name",
			log  => "$PostgreSQL::Test::Utils::log_path/patroni_$scope-$name.log",
			cmd  => [ 'patroni', "$dir.yml" ]);
		poll(90, sub { defined $self->in_recovery($node) && (@{ $self->{nodes} } == 1 ? !$self->in_recovery($node) : $self->streams) })
		  or die "patroni does not start $name\n";
	}
	return $self;
}

sub connect_db
{
	my ($self, $node) = @_;
	return $node->{dbh} //= DBI->connect("dbi:Pg:host=127.0.0.1;port=$node->{port};dbname=postgres;user=postgres;connect_timeout=2",
		undef, undef, { RaiseError => 1, PrintError => 0, AutoInactiveDestroy => 1 });
}

sub in_recovery
{
	my ($self, $node) = @_;
	my ($answer) = eval { $self->connect_db($node)->selectrow_array('SELECT pg_is_in_recovery()') };
	delete $node->{dbh} if $@;
	return $answer;
}

# The nodes that are not in recovery.
sub primaries
{
	my ($self) = @_;
	return grep { !($self->in_recovery($_) // 1) } @{ $self->{nodes} };
}

# (primary, standby); the standby streams if streams() is true.
sub roles
{
	my ($self) = @_;
	my @nodes = @{ $self->{nodes} };
	@nodes = reverse @nodes if $self->in_recovery($nodes[0]) // 1;
	return @nodes;
}

sub streams
{
	my ($self) = @_;
	my ($primary, $standby) = $self->roles;
	return 0 if ($self->in_recovery($primary) // 1) || !$self->in_recovery($standby);
	my ($n) = eval { $self->connect_db($primary)->selectrow_array(q{SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND application_name ~ '^n[01]$'}) };
	return $n;
}

# All processes of a node.
sub pids
{
	my ($self, $node) = @_;
	return ($node->{process}->pid, Bench::server_pids($node->{dir}));
}

sub stop
{
	my ($self) = @_;
	for my $node (@{ $self->{nodes} })
	{
		delete $node->{dbh};
		my @pids = eval { $self->pids($node) };
		$node->{process}->stop('KILL');
		kill 'KILL', @pids if @pids;
	}
	return;
}

sub DESTROY { local ($?, $!, $@); $_[0]->stop; return }

1;
