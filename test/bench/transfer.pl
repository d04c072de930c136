# The time of a transfer, from the command until the named node leads.
#
#   make bench PARTS=transfer      ROUNDS=50
use FindBin;
use lib "$FindBin::RealBin/lib";
use EtcdLeader::Test;
use Bench;
use EtcdLeader::Patroni;
use POSIX ();

my $bench = Bench->new(name => 'transfer', title => 'Transfer', text => <<'END');
Four candidates on one etcd. The time begins with the call of `etcd_transfer()` on the leader, to the next candidate in the queue or to the last,
and ends when `etcd_is_leader()` is true on the target; likewise for `etcd_resign()` and the next candidate. Three members of Patroni on the
same etcd: from the call of `patronictl switchover` until `pg_is_in_recovery()` is false on the named candidate.
END
my $rounds = Bench::rounds(50);

my $etcd    = EtcdLeader::Etcd->new;
my %nodes   = map { $_ => EtcdLeader::Instance->create($_, etcd => $etcd, settings => { ttl => 10 }) } map { "pg$_" } 1 .. 4;
my $cluster = EtcdLeader::Patroni->new(etcd => $etcd);

# The milliseconds until $see->(connection to the next leader) returns.
sub measure
{
	my ($new, $see, $do) = @_;
	pipe(my $read, my $write) or die $!;
	my $pid = fork // die $!;
	if ($pid == 0)
	{
		$write->autoflush(1);
		eval {
			my $dbh = $new->connect_db;
			print $write "ready\n";
			print $write ($see->($dbh) ? now() : ''), "\n";
			1;
		} or print STDERR $@;
		POSIX::_exit(0);
	}
	close $write;
	<$read>;
	pause(0.15);
	my $began = now();
	$do->();
	chomp(my $ended = <$read>);
	waitpid $pid, 0;
	return length $ended ? 1000 * ($ended - $began) : undef;
}

sub queue
{
	poll(20, sub { my @q = $etcd->candidates('postgres'); @q == 4 && $nodes{ $q[0]{value} }->is_leader }) or die "they do not settle\n";
	my @order = map { $nodes{ $_->{value} } } $etcd->candidates('postgres');
	$_->wait_until_candidate for @order;
	return @order;
}

sub leads { return $_[0]->selectrow_array("SELECT etcd_wait_for_leadership(timeout => '10 s') AND etcd_is_leader()") }

sub transfer
{
	my ($place) = @_;
	my @order = queue();
	my $to  = $order[$place]->name;
	my $dbh = $order[0]->dbh;
	return measure($order[$place], \&leads, sub { $dbh->selectrow_array('SELECT etcd_transfer(?)', {}, $to) });
}

sub resign
{
	my @order = queue();
	my $dbh   = $order[0]->dbh;
	return measure($order[1], \&leads, sub { $dbh->selectrow_array('SELECT etcd_resign()') });
}

sub switchover
{
	$cluster->wait_until_streaming;
	my $old = $cluster->wait_for_primary;
	my ($new) = $cluster->others($old);
	return measure($new,
		sub { my ($dbh) = @_; 1 while $dbh->selectrow_array('SELECT pg_is_in_recovery()'); return 1 },
		sub { $cluster->switchover($new) });
}

my $table = $bench->table(name => 'transfer', title => 'Transfer', unit => 'ms');
$bench->in_turn($rounds,
	[ Bench::row($table, 'etcd_transfer() to the next in the queue → etcd_is_leader()'), sub { transfer(1) } ],
	[ Bench::row($table, 'etcd_transfer() to the last of four → etcd_is_leader()'), sub { transfer(3) } ],
	[ Bench::row($table, 'etcd_resign() → etcd_is_leader()'), \&resign ],
	[ Bench::row($table, 'patronictl switchover → promoted'), \&switchover ]);
$cluster->stop;
$bench->finish;
