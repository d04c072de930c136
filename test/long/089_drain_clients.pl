# Clients behind HAProxy while the leadership is handed over again and again: with a
# drain no transaction that was fenced fails, and no session is closed; a client that
# tries again after 25006 sees no error.  Without a drain some fail, which shows that
# a drain matters for these clients.
#
# Environment: ROUNDS (50), hand-overs of each kind in each set-up.
use EtcdLeader::Test;
use FindBin;
use DBI;
use EtcdLeader::Session;
use JSON::PP ();

my $rounds = $ENV{ROUNDS} || 50;
watchdog(120 + 15 * $rounds);

my $etcd = EtcdLeader::Etcd->new;
my (%node, %http, %agent);
for my $name (qw(pg1 pg2))
{
	($http{$name}, $agent{$name}) = map { PostgreSQL::Test::Cluster::get_free_port() } 1 .. 2;
	my $node = $node{$name} = EtcdLeader::Instance->create($name, etcd => $etcd,
		conf     => "listen_addresses = '127.0.0.1'\n",
		settings => { ttl => 5, http_listen => "127.0.0.1:$http{$name}", http_agent_listen => "127.0.0.1:$agent{$name}" }, start => 0);
	$node->append_conf('pg_hba.conf', "host all all 127.0.0.1/32 trust\n");
	$node->start;
	$node->value($_) for 'CREATE EXTENSION etcd_leader', 'CREATE TABLE t (id bigserial, a text)', 'CREATE ROLE caller LOGIN', 'CREATE ROLE fenced LOGIN',
	  q{ALTER ROLE fenced SET etcd_leader.require_leadership_of = 'postgres'}, 'GRANT ALL ON t, t_id_seq TO caller, fenced';
	$node->wait_until_candidate;
}

# HAProxy, in both ways, with the addresses of this test.  Here it closes no session:
# a client that is refused looks for the leader itself.
my %bind = map { $_ => PostgreSQL::Test::Cluster::get_free_port() } 5000 .. 5002;
my $dir  = PostgreSQL::Test::Utils::tempdir('haproxy');
{
	my $config = slurp_file("$FindBin::RealBin/../../integrations/haproxy.cfg");
	$config =~ s/ on-marked-down shutdown-sessions//g;
	$config =~ s/bind \*:(\d+)/bind 127.0.0.1:$bind{$1}/g;
	$config =~ s/inter \d+m?s/inter 100ms/g;
	$config =~ s/^    server pg3 .*\n//gm;
	$config =~ s{server (pg\d) \S+ check port \d+}{"server $1 127.0.0.1:" . $node{$1}->port . " check port $http{$1}"}ge;
	$config =~ s{server (pg\d) 10\.\S+ check$}{"server $1 127.0.0.1:" . $node{$1}->port . " check agent-port $agent{$1}"}gem;
	append_to_file("$dir/haproxy.cfg", $config);
}
my $haproxy = EtcdLeader::Util::Process->spawn(
	name => 'haproxy', log => "$PostgreSQL::Test::Utils::log_path/089_haproxy.log",
	cmd  => [ 'haproxy', '-db', '-f', "$dir/haproxy.cfg" ]);

# ---- a client -------------------------------------------------------------------------

# What clients do in a transaction.  The first statement fences it.
my %transactions = (
	call    => [ 'caller', 'SELECT etcd_require_leader()', 'write', 'wait' ],
	token   => [ 'caller', 'SELECT etcd_require_leader()', 'write', 'wait', 'SELECT etcd_fencing_token()' ],
	late    => [ 'caller', 'SELECT etcd_require_leader()', 'wait', 'write' ],
	setting => [ 'fenced', 'SELECT 1', 'write', 'wait' ],
	setting_late => [ 'fenced', 'SELECT 1', 'wait', 'write', 'SELECT etcd_require_leader()' ]);

# Executes one transaction; returns undef, or its SQLSTATE, message and whether it was fenced.
sub transact
{
	my ($dbh, $what) = @_;
	my ($fenced, $ok) = (0, 0);
	my (undef, @steps) = @{ $transactions{$what} };
	$ok = eval {
		$dbh->begin_work;
		for my $step (@steps)
		{
			if    ($step eq 'wait')  { pause(0.001 + rand(0.2)) }
			elsif ($step eq 'write') { $dbh->do('INSERT INTO t (a) VALUES (?)', undef, $what) }
			elsif ($step =~ /token/) { defined $dbh->selectrow_array($step) or die "there is no token\n" }
			else                     { $dbh->selectrow_array($step) }
			$fenced = 1;
		}
		$dbh->commit;
		1;
	};
	return if $ok;
	my @error = ($dbh->state || '?', $dbh->errstr // $@, $fenced);
	# by the setting of its role it may read, and is fenced only if the instance led
	$error[2] = 0 if $error[1] =~ /did not lead .* when the transaction began|is handing over leadership/;
	eval { $dbh->rollback; 1 } or $error[0] = '08006';
	return @error;
}

# Works through HAProxy until SIGTERM, and writes down the results.
sub work
{
	my ($port, $what, $file) = @_;
	my ($dbh, $end);
	my %count = (what => $what, done => 0, retries => 0, most_retries => 0, connections => 0, failed => [], lost => [], gave_up => []);
	srand($$);
	local $SIG{TERM} = sub { $end = 1 };
	while (!$end)
	{
		for my $try (0 .. 100)
		{
			$count{connections}++ if !$dbh;
			# HAProxy closes a new connection while it knows no leader
			$dbh //= eval { DBI->connect("dbi:Pg:host=127.0.0.1;port=$port;dbname=postgres;user=$transactions{$what}[0]", undef, undef,
					{ RaiseError => 1, PrintError => 0, PrintWarn => 0, AutoCommit => 1 }) };
			my ($state, $message, $fenced) = $dbh ? transact($dbh, $what) : ('connect', 'no leader', 0);
			if (!defined $state) { $count{done}++; $count{most_retries} = $try if $try > $count{most_retries}; last }
			push @{ $count{failed} }, "$state $message" if $fenced;
			push @{ $count{lost} }, "$state $message"   if $state !~ /^(?:25006|connect)$/;
			push @{ $count{gave_up} }, "$state $message" if $try == 100;
			$count{retries}++;
			undef $dbh;
			pause(0.02);
		}
	}
	append_to_file($file, JSON::PP::encode_json(\%count));
	return;
}

# ---- hand-overs ------------------------------------------------------------------------

sub leader { my ($leader) = grep { $_->is_leader } values %node; return $leader }

# Hands over $times times in this way, with 20 clients; returns the sums of their
# counts, and how long the calls took.
sub hand_over
{
	my ($port, $way, $drain, $times) = @_;
	my @whats = sort keys %transactions;
	my @files = map { PostgreSQL::Test::Utils::tempdir('client') . '/counts' } 1 .. 20;
	my @clients = map { my $n = $_; EtcdLeader::Util::Process->spawn(name => "client $n", log => "$PostgreSQL::Test::Utils::log_path/089_client.log",
			code => sub { work($port, $whats[ $n % @whats ], $files[$n]) }) } 0 .. 19;
	pause(1);
	my @took;
	for (1 .. $times)
	{
		my $old;
		poll(10, sub { $old = leader() }) or die 'nobody leads';
		my ($new) = grep { $_ != $old } values %node;
		poll(10, sub { $etcd->candidates('postgres') == 2 }) or die 'not both are in the queue';
		my $began = now();
		$old->value($way eq 'resign' ? "SELECT etcd_resign('postgres', true, $drain)" : "SELECT etcd_transfer('@{[ $new->name ]}', 'postgres', '5 s', $drain)");
		push @took, now() - $began;
		poll(10, sub { $new->is_leader }) or die 'the other does not lead';
		# the next hand-over finds clients at work, on a busy host, too
		my $commits = sub { $new->value('SELECT count(*) FROM t') };
		my $enough  = $commits->() + 20;
		poll(30, sub { $commits->() >= $enough }) or die "the clients do not work at the new leader";
	}
	$_->stop('TERM', 10) for @clients;
	my %sum = (took => [ sort { $a <=> $b } @took ]);
	for my $count (map { JSON::PP::decode_json(slurp_file($_)) } @files)
	{
		$sum{$_} += $count->{$_} for qw(done retries connections);
		push @{ $sum{$_} }, @{ $count->{$_} } for qw(failed lost gave_up);
		$sum{most_retries} = $count->{most_retries} if $count->{most_retries} > ($sum{most_retries} // 0);
	}
	return \%sum;
}

for my $proxy ([ '404', $bind{5000} ], [ 'agent', $bind{5002} ])
{
	my ($by, $port) = @$proxy;
	for my $way (qw(resign transfer))
	{
		my $with = hand_over($port, $way, q{interval '5 s'}, $rounds);
		my $name = "$way with a drain, HAProxy by $by";
		note(sprintf '%s: %d hand-overs, %d transactions, %d refused before they were fenced, at most %d tries; %.0f ms median, %.0f ms at most', $name,
			$rounds, @$with{qw(done retries)}, 1 + $with->{most_retries}, map { 1000 * $with->{took}[$_] } $rounds / 2, -1);
		is_deeply($with->{failed},  [], "$name: no transaction that was fenced fails");
		is_deeply($with->{lost},    [], "$name: no session is closed");
		is_deeply($with->{gave_up}, [], "$name: with a retry no client sees an error");
		in_time($with->{took}[-1], 3, "$name: it does not take all of its time");
	}
	my $without = hand_over($port, 'resign', 'NULL', $rounds);
	note(sprintf '%d hand-overs without a drain, HAProxy by %s: of %d transactions %d failed that were fenced', $rounds, $by, $without->{done}, scalar @{ $without->{failed} });
	cmp_ok(scalar @{ $without->{failed} }, '>', $rounds, "without a drain, HAProxy by $by: transactions that were fenced fail");
}
$haproxy->stop;

# ---- how soon a drain ends after the last fenced transaction ------------------------------

my @took;
for (1 .. $rounds)
{
	my $old;
	poll(10, sub { $old = leader() }) or die 'nobody leads';
	poll(10, sub { $etcd->candidates('postgres') == 2 }) or die 'not both are in the queue';
	my ($fenced, $caller) = map { $old->connect_db } 1 .. 2;
	$fenced->begin_work;
	$fenced->selectrow_array('SELECT etcd_require_leader()');
	EtcdLeader::Session::start_statement($caller, q{SELECT etcd_resign(drain => '10 s')});
	poll(5, sub { !$old->is_leader }) or die 'it does not drain';
	pause(0.05 + rand(0.05));
	$fenced->commit;
	my $ended = now();
	is(EtcdLeader::Session::outcome($caller), 'done', 'it hands over');
	push @took, now() - $ended;
}
@took = sort { $a <=> $b } @took;
note(sprintf 'a drain ends %.1f ms after the last fenced transaction (median of %d), %.1f ms at most', 1000 * $took[ @took / 2 ], scalar @took, 1000 * $took[-1]);
in_time($took[ @took / 2 ], 0.05, 'a drain ends within 50 ms after the last fenced transaction');
done_testing();
