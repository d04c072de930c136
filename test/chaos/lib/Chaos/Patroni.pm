# A Patroni cluster in the place of separate instances.  etcd_leader follows Patroni's
# leader key.  Patroni starts, promotes and demotes the servers.
package Chaos::Patroni;

use strict;
use warnings;

use Chaos::Clients;
use Chaos::Cluster;
use EtcdLeader::Patroni;
use EtcdLeader::Util;

use parent -norequire, 'Chaos::Cluster';

my $scope = 'chaos';

sub instance_names { my ($class, $number) = @_; return map { "n$_" } 0 .. $number - 1 }

# The kinds of faults of Chaos::Faults that are possible.  Commands like
# etcd_resign() are not, because Patroni chooses the leader.
sub kinds
{
	return qw(cut isolate slow slow_host lossy etcd_kill etcd_restart etcd_stop etcd_move etcd_compact etcd_defragment
	  pg_stop pg_kill pg_host_lost pg_stop_elector pg_kill_elector pg_end_elector patroni_kill patroni_stop switchover);
}

# The shortest TTL of Patroni's key.
sub ttl { return { EtcdLeader::Patroni::shortest_times() }->{ttl} }

# members, instances: their numbers; plan.
sub new
{
	my ($class, %args) = @_;
	my $self = bless { plan => $args{plan}, jobs => [], wanted => {}, began => {} }, $class;
	my @names = $class->instance_names($args{instances});
	my %address = (map({ ("etcd$_" => "10.1.1.$_") } 1 .. $args{members}), map({ ($names[$_] => '10.1.2.' . ($_ + 1)) } 0 .. $#names));
	$self->{network} = Chaos::Network->new(hosts => \%address, seed => $args{plan}{seed});
	$Chaos::Clients::election = "patroni:$scope";
	@Chaos::Clients::queue    = ("/service/$scope/leader", "/service/$scope/leader\0");
	$self->_start_etcd($args{members});
	$self->{patroni} = EtcdLeader::Patroni->new(etcd => $self->{etcd}, members => scalar @names, scope => $scope,
		hosts    => [ map { [ $self->{network}->host($_), $address{$_} ] } @names ],
		settings => { http_listen => '*:8010', watched_prefixes => $Chaos::Clients::watched });
	for my $node ($self->{patroni}->members)
	{
		bless $node, 'Chaos::Patroni::Member';
		$self->{instances}{ $node->name } = $node;
		$self->{wanted}{ $node->name }    = 1;
	}
	Chaos::Clients::create_tables($self->{patroni}->primary);
	return $self;
}

# There is no copy of an instance.
sub copy_node { return }
sub end_copy  { return }
sub is_busy   { my ($self) = @_; return $self->has_jobs }

# The member that the leader key names.
sub leading_instance
{
	my ($self) = @_;
	for my $i ($self->{etcd}->all)
	{
		my $answer = $self->{etcd}->post('/v3/kv/range', { key => EtcdLeader::Etcd::b64("/service/$scope/leader") }, $i, 0.3) or next;
		my $kv = $answer->{kvs}[0] or return;
		return MIME::Base64::decode_base64($kv->{value});
	}
	return;
}

sub switchover
{
	my ($self, $to) = @_;
	$self->in_background("switchover to $to", sub { $self->{patroni}->try_patronictl('switchover', $scope, '--candidate', $to, '--force') });
	return;
}

# Patroni may leave a server down until an operator acts.  Members have no keys in the queue.
sub is_complete { return 1 }

# The instances' tables are not compared, because Patroni's replication is asynchronous.
sub dump_tables
{
	my ($self, $history, $ledger) = @_;
	return $self->dump_ledger($history, $ledger);
}

sub stop
{
	my ($self) = @_;
	$self->{wanted} = {};
	$self->{patroni}->stop;
	return $self->stop_rest;
}

# ---------------------------------------------------------------------------
package Chaos::Patroni::Member;

use strict;
use warnings;

use parent -norequire, 'EtcdLeader::Patroni::Member';

# Does Patroni run?  Patroni starts the server.
sub alive { my ($self) = @_; return $self->{process}->alive }
sub start { my ($self) = @_; return $self->start_patroni }

sub pid       { my ($self) = @_; return $self->postmaster_pid }
sub processes { my ($self) = @_; return $self->pids }

# Processes of the server whose title has this text.
sub processes_like
{
	my ($self, $text) = @_;
	return grep {
		my $title = '';
		if (open my $fh, '<', "/proc/$_/cmdline") { local $/; $title = <$fh> // '' }
		index($title, 'postgres: ') == 0 && index($title, $text) >= 0
	} $self->pids;
}

1;
