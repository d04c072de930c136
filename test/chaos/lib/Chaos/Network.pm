# The network of a chaos run.  Each host is a network namespace.  Between them the
# program network.c loses and delays packets by rules.  The test is a host, too, and no
# fault hits that host.
package Chaos::Network;

use strict;
use warnings;

use EtcdLeader::Namespace;
use EtcdLeader::Util;
use File::Basename qw(dirname);
use POSIX ();
use PostgreSQL::Test::Utils;

my $source = dirname(__FILE__) . '/../../network.c';

# hosts => { name => address }; seed => for the random numbers of network.c.
sub new
{
	my ($class, %args) = @_;
	my $dir  = PostgreSQL::Test::Utils::tempdir('network');
	my $self = bless { addresses => { %{ $args{hosts} } }, rules => 0, log => "$PostgreSQL::Test::Utils::log_path/network.log" }, $class;
	system('cc', '-O2', '-Wall', '-o', "$dir/network", $source) == 0 or die "cannot compile $source";

	my @interfaces;
	my $number = 0;
	for my $name (sort keys %{ $args{hosts} })
	{
		my $interface = 'host' . ++$number;
		$self->{hosts}{$name} = EtcdLeader::Namespace::make_host([ $interface, "$args{hosts}{$name}/16" ]);
		EtcdLeader::Namespace::run_as_root("ip link set $interface up");
		push @interfaces, "$interface=$args{hosts}{$name}";
	}
	EtcdLeader::Namespace::run_as_root('ip link add test type veth peer name in-test && ip addr add 10.1.255.254/16 dev in-test'
		  . ' && ip link set in-test up && ip link set test up');
	push @interfaces, 'test=10.1.255.254';

	POSIX::mkfifo("$dir/orders", 0600) or die "mkfifo: $!";
	EtcdLeader::Namespace::run_as_root("( setsid '$dir/network' $args{seed} @interfaces <'$dir/orders' >'$self->{log}' 2>&1 & )");
	open $self->{orders}, '>', "$dir/orders" or die "cannot write orders: $!";
	$self->{orders}->autoflush(1);
	$self->_wait_for_answers(1);
	return $self;
}

# The host for EtcdLeader::Namespace, and its address.
sub host    { my ($self, $name) = @_; return $self->{hosts}{$name} }
sub address { my ($self, $name) = @_; return $self->{addresses}{$name} }

# Adds a rule for packets from one host to another.  port => 0: all; loss => 0 to 1;
# delay, jitter => seconds.  Returns the number of the rule, for remove().
sub add
{
	my ($self, $from, $to, %rule) = @_;
	my $id = ++$self->{rules};
	$self->_order(sprintf 'set %d %s %s %d %d %d %d', $id, $self->address($from), $self->address($to), $rule{port} // 0,
		1000 * ($rule{loss} // 0), 1e6 * ($rule{delay} // 0), 1e6 * ($rule{jitter} // 0));
	return $id;
}

sub remove { my ($self, $id) = @_; return $self->_order("del $id") }

sub _order
{
	my ($self, $order) = @_;
	my $before = $self->{answered};
	syswrite($self->{orders}, "$order\n") or die "the network is gone: $!";
	$self->_wait_for_answers($before + 1);
	return;
}

sub _wait_for_answers
{
	my ($self, $number) = @_;
	poll(10, sub { ($self->{answered} = (-s $self->{log} // 0) / length "ok\n") >= $number })
	  or die 'the network does not answer: ' . PostgreSQL::Test::Utils::slurp_file($self->{log});
	return;
}

# The program ends at the end of its orders.
sub stop { my ($self) = @_; close $self->{orders}; return }

1;
