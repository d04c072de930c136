# The effect of a flood of changes of other keys on hand-overs, memory and the log.
#
#   make bench PARTS=changes      ROUNDS=40
use FindBin;
use lib "$FindBin::RealBin/lib";
use EtcdLeader::Test;
use Bench;
use Bench::Peers;
use JSON::PP ();

my $per_second = 2000;
my $bench = Bench->new(name => 'changes', title => 'Changes of other keys', text => <<'END');
Two instances on one etcd, with a watched prefix and one database for NOTIFY. The time begins with the call of `etcd_resign()` on the leader and
ends when `etcd_is_leader()` is true on the other instance. In turn: while nobody writes to etcd; while there are 2,000 puts a second (each a request of its own,
with a value of 100 bytes, to one of 1,000 keys) below an unwatched prefix; and while there are 2,000 a second below the watched prefix. etcd is on the same two
cores, and slower when it takes 2,000 puts a second, whoever watches them: the cost of the changes is the difference between the last
two. Do times differ by more than the noise? The test is the two-sided Mann-Whitney test (p), and the median of all differences. Then a
minute with puts below the watched prefix: the cost of a change, the memory of the electors before and after all this, and the lines in the logs.
END
my $rounds = Bench::rounds(40);

my $etcd  = EtcdLeader::Etcd->new;
my @nodes = map { EtcdLeader::Instance->create($_, etcd => $etcd, settings => { ttl => 10, watched_prefixes => 'watched/' }) } qw(pg1 pg2);
$nodes[0]->wait_until_leader;
$nodes[1]->wait_until_candidate;
my $settle = 0.15;

# ---- the writer ----------------------------------------------------------------

# Puts keys below the prefix of the last order, over several connections at a time.
# Answers each order with the number of puts that were answered before it.
sub write_puts
{
	my ($orders, $answers) = @_;
	my @connections = map { Bench::Connection->new($etcd) } 1 .. 8;
	my ($prefix, $n, $sent, $began) = ('', 0, 0, 0);
	my $value = EtcdLeader::Etcd::b64('v' x 100);
	while (1)
	{
		my $readable = '';
		vec($readable, fileno $orders, 1) = 1;
		if (select($readable, undef, undef, $prefix eq '' ? undef : 0) > 0)
		{
			sysread($orders, my $order, 100) or return;
			syswrite $answers, "$sent\n";
			($prefix, $sent, $began) = ($order =~ s/\n//r, 0, now());
			next;
		}
		for my $connection (@connections)
		{
			my $key = EtcdLeader::Etcd::b64($prefix . $n++ % 1000);
			$connection->send_request('/v3/kv/put', qq({"key":"$key","value":"$value"}));
		}
		$_->answer for @connections;
		$sent += @connections;
		my $ahead = $sent / $per_second - (now() - $began);
		pause($ahead) if $ahead > 0;
	}
}

pipe(my $orders_out, my $orders) or die $!;
pipe(my $answers, my $answers_out) or die $!;
my $writer = EtcdLeader::Util::Process->spawn(name => 'writer', log => PostgreSQL::Test::Utils::tempdir() . '/writer',
	code => sub { close $orders; write_puts($orders_out, $answers_out) });

# Sets the prefix of the writer ('': none); returns the number of puts since the last call.
sub write_below { my ($prefix) = @_; syswrite $orders, "$prefix\n"; return scalar <$answers> }

# ---- hand-overs ------------------------------------------------------------------

# The milliseconds of a hand-over, and the puts a second meanwhile.
sub hand_over
{
	my ($prefix) = @_;
	my ($old, $new) = $nodes[0]->is_leader ? @nodes : reverse @nodes;
	$new->wait_until_candidate;
	my ($waiter, $resigner) = map { $_->connect_db } $new, $old;
	write_below($prefix);
	my $wrote = now();
	my $waits = $waiter->prepare(q{SELECT etcd_wait_for_leadership(timeout => '10 s') AND etcd_is_leader()}, { pg_async => DBD::Pg::PG_ASYNC() });
	$waits->execute;
	pause($settle);
	my $began = now();
	$resigner->do('SELECT etcd_resign()', { pg_async => DBD::Pg::PG_ASYNC() });
	$waiter->pg_result;
	my $ended = now();
	die "it does not lead\n" if !($waits->fetchrow_array)[0];
	$resigner->pg_result;
	my $puts = write_below('') / (now() - $wrote);
	poll(10, sub { Bench::Peers::queued($etcd, 'postgres') == 2 }) or die "no second candidate\n";
	return (1000 * ($ended - $began), $prefix eq '' ? () : $puts);
}

sub resident_mb { my ($pg) = @_; return (PostgreSQL::Test::Utils::slurp_file('/proc/' . $pg->elector_pid . '/status') =~ /^RssAnon:\s+(\d+)/m)[0] / 1024 }

hand_over($_) for '', 'other/', 'watched/';
my %before = map { ($_->name => [ resident_mb($_), $_->log_size ]) } @nodes;
my $table  = $bench->table(name => 'changes_hand_over', title => 'A hand-over', unit => 'ms', ours => 'puts below the watched prefix');
my $rate   = $bench->table(name => 'changes_rate', title => 'Puts that etcd took meanwhile', unit => 'puts/s', linear => 1);
my ($none, $other, $watched) = map { Bench::row($table, $_) } 'no puts', 'puts below another prefix', 'puts below the watched prefix';
my ($other_rate, $watched_rate) = map { Bench::row($rate, $_) } 'below another prefix', 'below the watched prefix';
$bench->in_turn($rounds,
	[ $none, sub { hand_over('') } ],
	[ [ $other, $other_rate ], sub { hand_over('other/') } ],
	[ [ $watched, $watched_rate ], sub { hand_over('watched/') } ]);
my $p     = $bench->table(name => 'changes_hand_over_p', title => 'Do the times differ by more than the noise?', unit => 'p', linear => 1);
my $shift = $bench->table(name => 'changes_hand_over_difference', title => 'By how much a hand-over takes longer with puts below the watched prefix', unit => 'ms', linear => 1);
for my $pair ([ 'than with puts below another prefix', $other ], [ 'than without puts', $none ])
{
	my ($name, $row) = @$pair;
	my @found = Bench::compare($row, $watched);
	Bench::sample(Bench::row($p,     $name), 1, $found[0]);
	Bench::sample(Bench::row($shift, $name), 1, $found[1]);
}

# ---- a minute of the flood ------------------------------------------------------------

my $seconds = 60;
my $seen    = sub { my ($pg) = @_; return $pg->value(q{SELECT coalesce(max(revision), 0) FROM etcd_leader_events(?)}, $pg->last_event - 1) };
my %process = map { my $pg = $_; map { ($pg->name . ", $_" => $pg->value('SELECT pid FROM pg_stat_activity WHERE backend_type = ?', "etcd_leader $_")) } qw(elector notifier) } @nodes;
my %cpu = map { ($_ => cpu_seconds($process{$_})) } keys %process;
write_below('watched/');
pause($seconds);
my $puts = write_below('');
my $cpu  = $bench->table(name => 'changes_cpu', title => 'Time of the processor that a change takes', unit => 'µs', linear => 1);
Bench::sample(Bench::row($cpu, $_), 1, 1e6 * (cpu_seconds($process{$_}) - $cpu{$_}) / $puts) for sort keys %process;
Bench::sample(Bench::row($rate, 'below the watched prefix, for a minute'), 1, $puts / $seconds);
my $revision = ($etcd->post('/v3/kv/range', { key => EtcdLeader::Etcd::b64('watched/0') }) // die "no answer\n")->{header}{revision};
my $memory = $bench->table(name => 'changes_memory', title => 'Private memory of the elector', unit => 'MB', linear => 1);
my $lines  = $bench->table(name => 'changes_log', title => 'Lines in the log that are not of a hand-over', unit => 'lines', linear => 1);
for my $pg (@nodes)
{
	my $name = $pg->name;
	poll(30, sub { $seen->($pg) >= $revision }) or $bench->problem("$name: the changes do not come");
	Bench::sample(Bench::row($memory, "$name, before"), 1, $before{$name}[0]);
	Bench::sample(Bench::row($memory, "$name, after"),  1, resident_mb($pg));
	my @lines = grep { !/leader of election|elected leader|The (?:fencing token|reason) is/ }
	  split /\n/, substr PostgreSQL::Test::Utils::slurp_file($pg->logfile), $before{$name}[1];
	Bench::sample(Bench::row($lines, $name), 1, scalar @lines);
}
$bench->finish;
