# A network of the test's own: `use EtcdLeader::Namespace;` first of all runs
# the test again in namespaces in which it may do what root may with networks,
# names and mounts, and nothing outside of them is touched.  No privileges are
# needed.  The test itself keeps its user, since servers do not run as root.
package EtcdLeader::Namespace;

use strict;
use warnings;

use File::Temp ();
use POSIX ();

my $dir;
my $root;
my $commands = 0;
my %began;			# hosts and processes on them: when they began, by their pid

sub import
{
	return if $root;
	$dir = $ENV{ETCD_LEADER_NAMESPACE};
	if (defined $dir)
	{
		open $root, '>&=', 9 or die "no way to root: $!";
		return;
	}
	if (system('unshare', '--user', '--map-root-user', '--net', '--mount', '--uts', 'true') != 0)
	{
		die "This test needs a network of its own, and the kernel does not let this user make one.  These forbid user namespaces:\n"
		  . "sysctl user.max_user_namespaces=0, kernel.unprivileged_userns_clone=0 (Debian), kernel.apparmor_restrict_unprivileged_userns=1 (Ubuntu),\n"
		  . "and containers without CAP_SYS_ADMIN.\n";
	}
	$dir = File::Temp::tempdir('ns_XXXX', DIR => $ENV{TESTDATADIR} // $ENV{TMPDIR} // '/tmp');
	open my $fh, '>', "$dir/resolv.conf" or die "cannot write: $!";
	print $fh "nameserver 127.0.0.1\noptions timeout:1 attempts:2\n";
	close $fh;
	POSIX::mkfifo("$dir/root", 0600) or die "mkfifo: $!";
	my ($uid, $gid) = ($>, (split / /, $))[0]);
	# Root's shell runs what run_as_root() writes; it ends with the test, which
	# holds the other end of the pipe.  Port 53 is for everybody here.
	my $script = <<"SH";
set -e
mount --bind '$dir/resolv.conf' /etc/resolv.conf
ip link set lo up
echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start
sh <'$dir/root' &
exec unshare --user --map-user=$uid --map-group=$gid -- "\$@" 9>'$dir/root'
SH
	$ENV{ETCD_LEADER_NAMESPACE} = $dir;
	exec 'unshare', '--user', '--map-root-user', '--net', '--mount', '--uts', '--', 'sh', '-c', $script, 'sh',
	  $^X, (map { "-I$_" } @INC), $0, @ARGV;
	die "cannot execute unshare: $!";
}

# Makes a network: a bridge of that name, in which the test itself has this
# address, such as 10.1.0.254/24 (none).
sub make_network
{
	my ($name, $address) = @_;
	run_as_root("ip link add $name type bridge" . ($address ? " && ip addr add $address dev $name" : '') . " && ip link set $name up");
	return;
}

# Puts the cable of an interface into a network, and pulls it out again: packets
# are then lost, and nothing is refused.
sub plug { my ($interface, $network) = @_; run_as_root("ip link set $interface master $network"); return }
sub pull { my ($interface) = @_; run_as_root("ip link set $interface nomaster"); return }

# Makes a host: a network of its own in the network of the test, with these
# interfaces: [its name here, its address there, ...].  They are in no network
# here yet.  Returns what names it to EtcdLeader::Namespace::Process.
sub make_host
{
	my (@interfaces) = @_;
	my $file = "$dir/" . ++$commands . '.host';
	my $pid;
	run_as_root("unshare --net sh -c 'echo \$\$ >$file; exec sleep infinity' &");
	EtcdLeader::Util::poll(10, sub { open my $fh, '<', $file or return; return ($pid) = (<$fh> // '') =~ /^(\d+)$/ }) or die 'no host';
	my $enter = "nsenter --net=/proc/$pid/ns/net";
	for (@interfaces)
	{
		my ($name, $address) = @$_;
		run_as_root("ip link add $name type veth peer name in-$name && ip link set $name up && ip link set in-$name netns $pid"
			  . " && $enter ip addr add $address dev in-$name && $enter ip link set in-$name up");
	}
	run_as_root("$enter ip link set lo up");
	$began{$pid} = began_at($pid);
	return $pid;
}

# Makes hosts, each with a cable to the network of etcd, "etcd0", "etcd1", ...,
# and a cable to the network of all others, "peer0", ...  The test, and etcd with it, is at
# 10.1.0.254 and 10.2.0.254.  Returns [host, its address among the peers] of each.
sub make_hosts
{
	my ($n) = @_;
	my @hosts;
	make_network('etcds', '10.1.0.254/24');
	make_network('peers', '10.2.0.254/24');
	for my $i (0 .. $n - 1)
	{
		my ($to_etcd, $to_peers) = map { "$_." . ($i + 1) } '10.1.0', '10.2.0';
		push @hosts, [ make_host([ "etcd$i", "$to_etcd/24" ], [ "peer$i", "$to_peers/24" ]), $to_peers ];
		plug("$_$i", "${_}s") for qw(etcd peer);
	}
	return \@hosts;
}

# Not TERM: an etcd that has no quorum does not end by it.
END { kill 'KILL', grep { is_still($_, $began{$_}) } keys %began }

# When the kernel says that a process has begun; undef if it is not there, or dead.
# Its pid alone is no name: numbers come again, within minutes on a busy machine.
sub began_at
{
	my ($pid) = @_;
	open my $fh, '<', "/proc/$pid/stat" or return;
	my ($state, @fields) = split ' ', ((<$fh> // '') =~ /\) (.*)/)[0] // 'Z';
	return $state eq 'Z' ? undef : $fields[18];
}

sub is_still { my ($pid, $began) = @_; my $now = began_at($pid); return defined $now && defined $began && $now == $began ? 1 : 0 }

# Runs a command of the shell as root of these namespaces; dies if it fails.
# Returns its output.
sub run_as_root
{
	my ($command) = @_;
	my $out = "$dir/" . ++$commands;
	syswrite($root, "( $command ) >$out.out 2>&1 </dev/null; echo \$? >$out.new; mv $out.new $out.status\n");
	for (1 .. 1000)
	{
		last if -e "$out.status";
		select undef, undef, undef, 0.01;
	}
	my ($output, $status) = map { open my $f, '<', "$out.$_" or die "no answer to: $command"; local $/; scalar <$f> } qw(out status);
	die "$command: $output" if $status != 0;
	return $output;
}

# ---------------------------------------------------------------------------
# A program on such a host, as EtcdLeader::Util::Process is one here; it is no
# child of the test.
package EtcdLeader::Namespace::Process;

use strict;
use warnings;

use EtcdLeader::Util;
use parent -norequire, 'EtcdLeader::Util::Process';

# host => what make_host() returned; cmd and log as for the others.
sub spawn
{
	my ($class, %args) = @_;
	my $command = join ' ', map { my $a = $_; $a =~ s/'/'\\''/g; "'$a'" } @{ $args{cmd} };
	my $file = "$dir/" . ++$commands . '.pid';
	# only root may enter a network, and the program is to run as the test's user
	EtcdLeader::Namespace::run_as_root(
		"( setsid nsenter --net=/proc/$args{host}/ns/net nsenter --user=/proc/$$/ns/user --preserve-credentials"
		  . " sh -c 'echo \$\$ >$file; exec \"\$@\"' sh $command >>'$args{log}' 2>&1 & )");
	my $pid;
	poll(10, sub { open my $fh, '<', $file or return; return ($pid) = (<$fh> // '') =~ /(\d+)/ }) or die "no process: $command";
	$began{$pid} = EtcdLeader::Namespace::began_at($pid);
	return bless { pid => $pid, began => $began{$pid}, log => $args{log}, name => $args{name} }, $class;
}

sub alive
{
	my ($self) = @_;
	return EtcdLeader::Namespace::is_still(@$self{qw(pid began)});
}

1;
