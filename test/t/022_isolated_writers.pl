# Sessions that are open and write in a loop, on the old leader and on the new
# leader, while the old leader is cut off from etcd, while its elector is frozen, and
# while it is killed: the old leader commits nothing after its deadline, nothing
# is lost or doubled, and tokens never go back in the order of commits.
use EtcdLeader::Test;
use EtcdLeader::Relay;
use Time::HiRes ();

my $ttl   = 3;
my $etcd  = EtcdLeader::Etcd->new;
my %relay = map { $_ => EtcdLeader::Relay->new($etcd->url(0)) } qw(pg1 pg2);
my @nodes = map {
	EtcdLeader::Instance->create(
		$_,
		endpoints => $relay{$_}->url,
		settings  => { ttl => $ttl, request_timeout => 900 },
		conf      => "track_commit_timestamp = on\nlog_min_messages = error\nlog_min_error_statement = panic\n")
} qw(pg1 pg2);
my %node = map { $_->name => $_ } @nodes;
$_->wait_until_candidate for @nodes;
$nodes[0]->wait_until_leader;

my %frozen;
END { kill 'CONT', $_ for keys %frozen }

for my $node (@nodes)
{
	$node->value($_)
	  for 'CREATE TABLE writes (writer text, n int, token bigint, pid int DEFAULT pg_backend_pid(), PRIMARY KEY (writer, n))',
	  'CREATE ROLE app LOGIN', q{ALTER ROLE app SET etcd_leader.require_leadership_of = 'postgres'}, 'GRANT ALL ON writes TO app';
}

# ---- writers ----------------------------------------------------------------------

# The steps of a transaction; a number is an idle moment, in seconds.
# The slow transactions are open when the deadline passes: they send nothing before
# they commit.
my %kinds = (
	function   => [ 'BEGIN', 'SELECT etcd_require_leader()', 'INSERT', 'COMMIT' ],
	slow       => [ 'BEGIN', 'SELECT etcd_require_leader()', 'INSERT', 2, 'COMMIT' ],
	slower     => [ 'BEGIN', 'SELECT etcd_require_leader()', 'INSERT', 2.6, 'COMMIT' ],
	single     => ['INSERT'],
	role       => [ 'BEGIN', 'INSERT', 'COMMIT' ],
	role_slow  => [ 'BEGIN', 'INSERT', 2.3, 'COMMIT' ],
	role_waits => [ 'BEGIN', 'SELECT 1', 0.1, 'INSERT', 0.1, 'COMMIT' ]);
my @quick = grep { !/slow/ } sort keys %kinds;
my %user = map { $_ => 'app' } grep { /^role/ } keys %kinds;

# In a child: writes for ever.  A line for each try: number, when it was
# begun, when it was over (seconds of the wall clock, as the server's commit
# timestamps), and "ok", an SQLSTATE, or "unknown" if the connection was lost.
sub write_for_ever
{
	my ($node, $kind) = @_;
	my $stop = 0;
	$SIG{TERM} = sub { $stop = 1 };
	my $writer = $node->name . "-$kind";
	my $token  = $user{$kind} ? 'etcd_fencing_token()' : 'etcd_require_leader()';
	my ($dbh, $n) = (undef, 0);
	while (!$stop)
	{
		if (!$dbh)
		{
			$dbh = eval { $node->connect_db('postgres', user => $user{$kind}) };
			if (!$dbh) { pause(0.05); next; }
			syswrite(STDOUT, "connected\n");
		}
		$n++;
		my $result = 'ok';
		my $began  = Time::HiRes::time();
		my $ok     = eval {
			for my $step (@{ $kinds{$kind} })
			{
				if ($step =~ /^[\d.]+$/) { pause($step) }
				elsif ($step eq 'INSERT') { $dbh->do("INSERT INTO writes SELECT '$writer', $n, $token") }
				else { $dbh->do($step) }
			}
			1;
		};
		my $over = Time::HiRes::time();
		if (!$ok)
		{
			$result = $dbh->state || '00000';
			my $alive = eval { $dbh->do('ROLLBACK') if $dbh->ping != 1; 1 };
			if (!$alive || $result =~ /^(?:08|57P|22000|00000)/)
			{
				$result = 'unknown';
				$dbh = undef;
			}
		}
		syswrite(STDOUT, sprintf("%d %.6f %.6f %s\n", $n, $began, $over, $result));
		pause($ok ? 0.002 : 0.02);
	}
	return;
}

my %writer;
for my $node (@nodes)
{
	for my $kind (sort keys %kinds)
	{
		my $name = $node->name . "-$kind";
		my $log  = "$PostgreSQL::Test::Utils::log_path/writer_$name.log";
		unlink $log;
		$writer{$name} = EtcdLeader::Util::Process->spawn(name => "writer $name", log => $log, code => sub { write_for_ever($node, $kind) });
	}
}

# The tries of a writer so far.
sub tries
{
	my ($name) = @_;
	return map { my @f = split / /; { n => $f[0], began => $f[1], over => $f[2], result => $f[3] } }
	  grep { /^\d+ \S+ \S+ \S+$/ } split /\n/, $writer{$name}->output;
}

sub connections { my ($name) = @_; return scalar(() = $writer{$name}->output =~ /^connected$/mg) }

# Waits until each quick kind of writer has committed on that instance since then.
sub wait_for_writes
{
	my ($node, $since, $what) = @_;
	for my $kind (@quick)
	{
		poll_ok(15, sub { grep { $_->{result} eq 'ok' && $_->{began} > $since } tries($node->name . "-$kind") }, "$what: commits of $kind on " . $node->name);
	}
	return;
}

# Waits until each quick kind of writer was refused on that instance since then.
sub wait_for_refusals
{
	my ($node, $since, $what) = @_;
	for my $kind (@quick)
	{
		poll_ok(15, sub { grep { $_->{result} eq '25006' && $_->{began} > $since } tries($node->name . "-$kind") }, "$what: $kind is refused on " . $node->name);
	}
	return;
}

wait_for_writes($nodes[0], 0, 'at first');
wait_for_refusals($nodes[1], 0, 'at first');

# ---- what befalls the leader --------------------------------------------------------

# [name, the fault, the end of the fault, does the server restart]
my @cases = (
	[ 'isolated', sub { $relay{ $_[0]->name }->freeze }, sub { $relay{ $_[0]->name }->thaw }, 0 ],
	[ 'elector frozen', sub { my $pid = $_[0]->elector_pid; kill 'STOP', $pid; $frozen{$pid} = 1 },
		sub { kill 'CONT', $_ for keys %frozen; %frozen = () }, 0 ],
	# it comes back, and finds nobody to ask whether it leads still
	[ 'isolated, elector killed', sub { $relay{ $_[0]->name }->freeze; kill 'KILL', $_[0]->elector_pid }, sub { $relay{ $_[0]->name }->thaw }, 1 ],
);

my %deadline;    # of a token: no commit under it after that
for my $case (@cases)
{
	my ($what, $break, $mend, $restarts) = @$case;
	my ($old) = grep { $_->is_leader } @nodes;
	my ($new) = grep { $_ != $old } @nodes;
	$new->wait_until_candidate;
	my $token = $old->token;
	wait_for_writes($old, Time::HiRes::time(), $what);
	my %connections = map { $_ => connections($_) } keys %writer;

	$break->($old);
	my $broken = Time::HiRes::time();
	# The keepalive that counted last was sent before.
	$deadline{$token} = $broken + 0.9 * $ttl;
	poll_ok($ttl + 7, sub { $new->is_leader }, "$what: the other one leads");
	my $elected = Time::HiRes::time();
	cmp_ok($new->token, '>', $token, "$what: under a greater token");
	wait_for_writes($new, $elected, $what);
	wait_for_refusals($old, $elected, $what);
	if (!$restarts)
	{
		is(join(' ', grep { connections($_) != $connections{$_} } sort keys %writer), '', "$what: the sessions are the same all the time");
		cmp_ok($old->value(q{SELECT count(*) FROM writes WHERE token = ? AND pg_xact_commit_timestamp(xmin) > to_timestamp(?)}, $token, $broken),
			'>', 0, "$what: which had committed after that, before the deadline");
	}
	$mend->($old);
	poll_ok(15, sub { my $l = $old->try_value('SELECT etcd_current_leader()'); defined $l && $l eq $new->name }, "$what: the old one knows");
	$old->wait_until_candidate;
}

# Killed and not isolated: it goes on under the same token.
{
	my ($leader) = grep { $_->is_leader } @nodes;
	# so that the lease outlasts the restart
	$_->configure(ttl => 20) for @nodes;
	poll(10, sub { my ($key) = $etcd->candidates('postgres'); $key && ($etcd->lease($key->{lease}))[0] == 20 }) or die 'the TTL is not longer';
	# While a message that changes leases is not answered, the elector remembers nothing.
	pause(1);
	my $token    = $leader->token;
	my $killed   = Time::HiRes::time();
	kill 'KILL', $leader->elector_pid;
	wait_for_writes($leader, $killed + 0.5, 'elector killed');
	is($leader->token, $token, 'elector killed: under the same token');
}

# ---- the account ---------------------------------------------------------------------
$_->signal('TERM') for values %writer;
$_->wait(10) or die 'a writer does not stop' for values %writer;

my (@rows, %row);
for my $node (@nodes)
{
	for my $row ($node->rows(q{SELECT writer, n, token, extract(epoch FROM pg_xact_commit_timestamp(xmin)) AS at FROM writes}))
	{
		push @rows, { %$row, node => $node->name };
		push @{ $row{ $row->{writer} }{ $row->{n} } }, $row;
	}
}
my (@lost, @undead, %results);
for my $name (sort keys %writer)
{
	for my $try (tries($name))
	{
		my $there = @{ delete $row{$name}{ $try->{n} } // [] };
		$results{ $try->{result} }++;
		push @lost,   "$name $try->{n}" if $try->{result} eq 'ok' && $there != 1;
		push @undead, "$name $try->{n} ($try->{result})" if $try->{result} !~ /^(?:ok|unknown)$/ && $there;
	}
}
note(join ', ', map { "$results{$_} $_" } sort keys %results);
is(join(', ', @lost),   '', 'what was reported as done is there, once');
is(join(', ', @undead), '', 'what was refused is not');
is(join(', ', map { my $w = $_; map { "$w $_" } keys %{ $row{$w} } } sort keys %row), '', 'and nothing that nobody has tried');
is(join(' ', grep { !/^(?:ok|unknown|25006)$/ } sort keys %results), '', 'refused with 25006, and nothing else');
cmp_ok($results{ok}, '>', 500, 'enough was written');
cmp_ok($results{25006}, '>', 100, 'and enough refused');
for my $kind (grep { /slow/ } sort keys %kinds)
{
	ok((grep { my $name = $_->name . "-$kind"; grep { $_->{result} eq '25006' && $_->{over} - $_->{began} > 1.5 } tries($name) } @nodes),
		"also at the end of what was idle meanwhile: $kind");
}
is(scalar(grep { !defined $_->{token} } @rows), 0, 'each row has a token');

# In the order of commits, which the servers have noted by one and the same clock.
my ($highest, @back, %holder) = (0);
for my $row (sort { $a->{at} <=> $b->{at} } @rows)
{
	push @back, "$row->{writer} $row->{n}: $row->{token} after $highest" if $row->{token} < $highest;
	$highest = $row->{token} if $row->{token} > $highest;
	$holder{ $row->{token} }{ $row->{node} }++;
}
is(join(', ', @back), '', 'tokens never go back in the order of commits');
is(join(', ', grep { keys %{ $holder{$_} } > 1 } sort keys %holder), '', 'no token is that of two');
is(scalar(keys %holder), 1 + @cases, 'a token for each leadership');
note(join ', ', map { my $t = $_; "token $t: " . join ' ', map { "$holder{$t}{$_} on $_" } keys %{ $holder{$t} } } sort { $a <=> $b } keys %holder);
for my $token (sort { $a <=> $b } keys %deadline)
{
	my ($last) = sort { $b <=> $a } map { $_->{at} } grep { $_->{token} == $token } @rows;
	# 0.05 s from the last look to the commit timestamp, on a busy machine
	cmp_ok($last, '<=', $deadline{$token} + 0.05, "no commit under token $token after its deadline");
	note(sprintf 'token %d: the last commit %.3f s before the latest possible deadline', $token, $deadline{$token} - $last);
}

done_testing();
