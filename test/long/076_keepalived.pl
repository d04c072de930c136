# keepalived with integrations/keepalived.conf, on two hosts with an instance each, in a
# network of the test.  The leader's host has the address, and the address moves when the
# leader changes.
#
# ETCD_LEADER_ROUNDS: the number of hand-overs (5).
use EtcdLeader::Namespace;
use EtcdLeader::Test;
use FindBin;
use EtcdLeader::Http;

my $rounds  = $ENV{ETCD_LEADER_ROUNDS} || 5;
my $address = '10.2.0.100';
watchdog(150 + 30 * $rounds);

my $hosts = EtcdLeader::Namespace::make_hosts(2);
my $etcd  = EtcdLeader::Etcd->new(hosts => [ [ undef, '10.1.0.254', '10.1.0.254' ] ]);
my @nodes = map {
	EtcdLeader::Instance->create("pg$_", etcd => $etcd, host => $hosts->[$_][0], settings => { ttl => 3, http_listen => '*:8010' })
} 0, 1;
$_->wait_until_candidate for @nodes;

# keepalived calls setgroups() before it runs the script, and does not run the script if
# the call fails.  A user namespace forbids it, so a shim makes it succeed.
my $dir  = PostgreSQL::Test::Utils::tempdir('keepalived');
my $shim = "$dir/setgroups.so";
append_to_file("$dir/setgroups.c", "#include <grp.h>\nint setgroups(size_t n, const gid_t *groups) { (void) n; (void) groups; return 0; }\n");
system($ENV{CC} // 'cc', qw(-shared -fPIC -o), $shim, "$dir/setgroups.c") == 0 or die 'no shim';

my $config = slurp_file("$FindBin::RealBin/../../integrations/keepalived.conf");
my @logs;
for my $i (0, 1)
{
	my $here = $config =~ s/interface eth0/interface in-peer$i/r =~ s/10\.0\.0\.100/$address/gr;
	append_to_file("$dir/$i.conf", $here);
	push @logs, "$PostgreSQL::Test::Utils::log_path/076_keepalived_$i.log";
	EtcdLeader::Namespace::run_as_root("( setsid nsenter --net=/proc/$hosts->[$i][0]/ns/net env LD_PRELOAD=$shim keepalived -n -l -f $dir/$i.conf"
		  . " -p $dir/$i.pid -r $dir/$i.vrrp -c $dir/$i.checkers -b $dir/$i.bfd >$logs[$i] 2>&1 & )");
}

END
{
	local $?;
	for my $file (grep { -e } map { ("$dir/$_.pid") } 0, 1)
	{
		my ($pid) = slurp_file($file) =~ /(\d+)/;
		kill 'TERM', $pid if $pid;
		wait_for_exit($pid, 10) if $pid;
	}
}

# The hosts that have the address now.
sub holders
{
	return grep { EtcdLeader::Namespace::run_as_root("nsenter --net=/proc/$hosts->[$_][0]/ns/net ip -o -4 addr show") =~ /\Q$address\E\// } 0, 1;
}

# The instance that answers a client at that address as the leader.
sub reached
{
	my ($code, $headers, $body) = http_get(8010, '/leader', host => $address);
	return $code == 200 && $body =~ /"node":"(\w+)"/ ? $1 : '';
}

sub leader { return (grep { $nodes[$_]->try_value('SELECT etcd_is_leader()') // 0 } 0, 1)[0] }

poll_is(30, sub { join ' ', holders() }, leader(), "the leader's host has the address") or diag(map { slurp_file($_) } @logs);
poll_is(10, \&reached, 'pg' . leader(), 'clients reach the leader at the address');
unlike(slurp_file($logs[0]), qr/Unknown keyword|setgroups/, 'keepalived understands the file, and runs its script');
my @took;
for my $round (1 .. $rounds)
{
	my $old   = leader();
	my $new   = 1 - $old;
	my $began = now();
	$nodes[$old]->value('SELECT etcd_resign()');
	poll_is(10, \&leader, $new, "round $round: a hand-over");
	poll_is(15, sub { join ' ', holders() }, $new, "round $round: the address moves");
	poll_is(10, \&reached, "pg$new", "round $round: clients reach the new leader");
	push @took, sprintf '%.1f', now() - $began;
	$nodes[$old]->wait_until_candidate;
}
my $old = leader();
EtcdLeader::Namespace::pull("etcd$old");
poll_is(20, sub { join ' ', holders() }, 1 - $old, 'cut off from etcd: the address moves');
poll_is(10, \&reached, 'pg' . (1 - $old), 'cut off from etcd: clients reach the new leader');
diag("seconds from a hand-over until clients get to the next leader: @took");
done_testing();
