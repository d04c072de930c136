# Many changes: ten writers put and delete keys.  Meanwhile members of etcd are killed
# and frozen, instances are cut off, stopped and killed, and etcd is compacted.  The
# events are compared with the output of `etcdctl watch`.  Then there is a flood of
# 2,000 changes a second, in which memory does not grow, and the log has no more lines.
#
# Each instance has a host of its own, in a network of the test.  When it is cut off,
# packets are dropped, and no connection is refused.
#
# ETCD_LEADER_ROUNDS: the least number of thousands of changes (20).  The flood lasts
# 3/5 of that in seconds, at least 15.  With 100, there are 100,000 changes and a minute.
use EtcdLeader::Namespace;
use EtcdLeader::Test;
use JSON::PP ();
use MIME::Base64;

my $rounds = $ENV{ETCD_LEADER_ROUNDS} // 20;
watchdog(240 + 15 * $rounds);
my $hosts = EtcdLeader::Namespace::make_hosts(2);
my $etcd  = EtcdLeader::Etcd->new(members => 3, hosts => [ map { [ undef, '10.1.0.254', '10.1.0.254' ] } 1 .. 3 ]);
my @nodes = map {
	EtcdLeader::Instance->create('pg' . ($_ + 1), etcd => $etcd, host => $hosts->[$_][0], settings => { watched_prefixes => 'w/', ttl => 6 })
} 0, 1;
my ($pg1, $pg2) = @nodes;
$_->wait_until_candidate for @nodes;
my $watch = $etcd->background_etcdctl(qw(watch --prefix --rev=1 w/ -w json));
for my $pg (@nodes)
{
	poll(20, sub { $pg->value(q{SELECT count(*) FROM etcd_leader_events() WHERE event = 'change'}) }) or die 'no gap at the beginning';
}

# The events of an instance: [revision, key, does it exist?], or a gap with the fault before it.
my (%told, %after);
my $fault = 'the start';
sub collect
{
	for my $pg (@nodes)
	{
		my @rows = eval { $pg->rows(q{SELECT seq, event, key, value IS NOT NULL AS stands, revision FROM etcd_leader_events(?)}, $after{ $pg->name } // 0) };
		for (@rows)
		{
			$after{ $pg->name } = $_->{seq};
			push @{ $told{ $pg->name } }, defined $_->{key} ? [ @$_{qw(revision key stands)} ] : "gap: $fault" if $_->{event} eq 'change';
		}
	}
	return;
}

sub put_body { my ($key, $value) = @_; return { key => encode_base64($key, ''), value => encode_base64($value, '') } }

# A writer changes to another member when its member does not answer.  It writes at least n
# changes, and goes on until there were enough faults.
my $enough = "$PostgreSQL::Test::Utils::tmp_check/enough";

sub write_changes
{
	my ($number, $n) = @_;
	my $member = $number % 3;
	for (my $i = 1; $i <= $n || !-e $enough; $i++)
	{
		my $key = "w/$number/" . $i % 50;
		my $ok;
		while (!$ok)
		{
			$ok = $i % 7 ? $etcd->post('/v3/kv/put', put_body($key, "value $i"), $member)
			  : $etcd->post('/v3/kv/deleterange', { key => encode_base64("w/$number/" . ($i - 1) % 50, '') }, $member);
			next if $ok;
			$member = ($member + 1) % 3;
			pause(0.05);
		}
	}
	return;
}

my $per_writer = 100 * $rounds;
my @writers    = map { my $n = $_; EtcdLeader::Util::Process->spawn(name => "writer $n",
		log => "$PostgreSQL::Test::Utils::log_path/092_writer_$n.log", code => sub { write_changes($n, $per_writer) }) } 0 .. 9;
my $began = now();

# Signals the elector if there is one.  The server may be in recovery after a crash.
sub signal_elector { my ($signal, $pg) = @_; return poll(20, sub { my $pid = eval { $pg->elector_pid }; $pid && kill $signal, $pid }) }

# Compacts revisions that etcdctl and pg1 have received, and an instance that is cut off has not.
sub compact
{
	my $revision = ($etcd->post('/v3/kv/range', { key => put_body('w/', '')->{key} }, 1) // return)->{header}{revision};
	poll(10, sub { ($watch->output =~ /.*"mod_revision":(\d+)/s ? $1 : 0) >= $revision }) or return;
	poll(10, sub { collect(); my $last = $told{pg1}[-1]; return ref $last && $last->[0] >= $revision }) or return;
	return $etcd->etcdctl('compact', $revision);
}

# name of the fault, its begin, its end, and the seconds between
my ($cut, $mend) = (\&EtcdLeader::Namespace::pull, sub { EtcdLeader::Namespace::plug($_[0], 'etcds') });
my @faults = (
	[ 'member 0 is killed', sub { $etcd->kill(0) }, sub { $etcd->start(0) }, 2 ],
	[ 'pg1 is cut off', sub { $cut->('etcd0') }, sub { $mend->('etcd0') }, 1 ],
	[ 'pg1 is cut off for longer than its TTL', sub { $cut->('etcd0') }, sub { $mend->('etcd0') }, 8 ],
	[ 'the elector of pg1 is stopped', sub { signal_elector('STOP', $pg1) }, sub { signal_elector('CONT', $pg1) }, 2 ],
	[ 'member 1 is frozen', sub { $etcd->freeze(1) }, sub { $etcd->thaw(1) }, 2 ],
	[ 'pg2 crashes', sub { signal_elector('KILL', $pg2) }, sub { }, 2 ],
	[ 'pg2 is cut off', sub { $cut->('etcd1') }, sub { $mend->('etcd1') }, 3 ],
	[ 'member 2 is killed', sub { $etcd->kill(2) }, sub { $etcd->start(2) }, 2 ],
	[ 'a compaction while pg2 is cut off', sub { $cut->('etcd1'); pause(1); compact() }, sub { $mend->('etcd1') }, 5 ],
	[ 'all are cut off', sub { $cut->("etcd$_") for 0, 1 }, sub { $mend->("etcd$_") for 0, 1 }, 4 ]);
my ($begun, $ended, $next) = (0, 0, now() + 2);
while (grep { $_->alive } @writers)
{
	collect();
	pause(0.2);
	next if now() < $next;
	my ($name, $begin, $end, $s) = @{ $faults[ $ended % @faults ] };
	if ($begun == $ended) { $fault = $name; $begin->(); $begun++; $next = now() + $s }
	else                  { $fault = "after: $name"; $end->(); $ended++; $next = now() + 2 }
	append_to_file($enough, '') if $ended == @faults;
}
$faults[ $ended++ % @faults ][2]->() if $begun > $ended;
my $written_in = now() - $began;
# Puts one last change after the other, because a gap may replace the first.
my $ends = sub { my ($pg) = @_; my $t = $told{ $pg->name }; return $t && ref $t->[-1] && $t->[-1][1] eq 'w/end' };
poll(60, sub {
	$etcd->etcdctl('put', 'w/end', 'end');
	pause(0.5);
	collect();
	return !grep { !$ends->($_) } @nodes;
});
my ($newest) = sort { $b <=> $a } map { $ends->($_) ? $told{ $_->name }[-1][0] : 0 } @nodes;
poll(60, sub { $watch->output =~ /"mod_revision":$newest\b/ });
my @reference;
for (split /\n/, $watch->output)
{
	my $answer = eval { JSON::PP::decode_json($_) } or next;
	push @reference, map { [ $_->{kv}{mod_revision}, decode_base64($_->{kv}{key}), ($_->{type} // 0) eq '1' || ($_->{type} // '') eq 'DELETE' ? 0 : 1 ] } @{ $answer->{Events} // [] };
}
note(sprintf '%d changes in %.0f s on 2 instances, %d faults', scalar(@reference), $written_in, $ended);
cmp_ok(scalar(@reference), '>=', 10 * $per_writer, 'etcdctl watch has the changes');
my %place = map { ("$reference[$_][0] $reference[$_][1]" => $_) } 0 .. $#reference;
is(scalar(keys %place), scalar @reference, 'etcdctl watch has each change once');
# there may be a gap at the beginning, and one for each of these faults
my %loses = (pg1 => qr/(?!)/, pg2 => qr/^pg2 crashes|^a compaction/);
for my $pg (@nodes)
{
	my @told = @{ $told{ $pg->name } };
	my ($last, @gaps, @wrong);
	for my $change (@told)
	{
		if (!ref $change)
		{
			push @gaps, $change;
			undef $last;
			next;
		}
		my $place = $place{"$change->[0] $change->[1]"};
		push @wrong, "no change: @$change" if !defined $place;
		push @wrong, "deletion: @$change" if defined $place && $change->[2] ne $reference[$place][2];
		push @wrong, "$place after $last" if defined $place && defined $last && $place != $last + 1;
		$last = $place;
	}
	is_deeply([ @wrong[ 0 .. ($#wrong > 5 ? 5 : $#wrong) ] ], [], $pg->name . ': each change is announced once and in order, or a gap')
	  or note(scalar @wrong);
	ok($ends->($pg), $pg->name . ': the last change is announced');
	my $reasons = 1 + grep { $faults[ $_ % @faults ][0] =~ $loses{ $pg->name } } 0 .. $ended - 1;
	cmp_ok(scalar(@gaps), '<=', $reasons, $pg->name . ': no gap without a reason') or diag(join "\n", @gaps);
	note($pg->name . ': ' . (@told - @gaps) . ' changes, ' . @gaps . " gaps, at most $reasons with a reason");
}

# ---- a flood ------------------------------------------------------------------

sub resident_kb { my ($pg) = @_; return slurp_file('/proc/' . $pg->elector_pid . '/status') =~ /VmRSS:\s+(\d+)/ ? $1 : die }

# The milliseconds from a resignation until the other instance leads.
sub hand_over
{
	my ($from, $to) = $pg1->is_leader ? ($pg1, $pg2) : ($pg2, $pg1);
	$from->wait_until_leader;
	my $dbh = $to->connect_db;
	$dbh->do(q{SELECT etcd_wait_for_leadership(timeout => '20 s')}, { pg_async => DBD::Pg::PG_ASYNC() });
	pause(0.2);
	my $start = now();
	$from->value('SELECT etcd_resign()');
	$dbh->pg_result;
	return 1000 * (now() - $start);
}

sub median { my @sorted = sort { $a <=> $b } @_; return $sorted[ $#sorted / 2 ] }

my $seconds = $rounds > 25 ? 0.6 * $rounds : 15;
my @quiet   = map { hand_over() } 1 .. 11;
my $flood   = EtcdLeader::Util::Process->spawn(name => 'flood', log => "$PostgreSQL::Test::Utils::log_path/092_flood.log",
	code => sub {
		my ($start, $n) = (now(), 0);
		while (now() < $start + $seconds)
		{
			$etcd->post('/v3/kv/txn', { success => [ map { { request_put => put_body('w/' . ($n + $_), 'x' x 100) } } 1 .. 100 ] }) and $n += 100;
			my $ahead = $n / 2000 - (now() - $start);
			pause($ahead) if $ahead > 0;
		}
		syswrite STDOUT, sprintf("%d in %.1f s\n", $n, now() - $start);
	});
pause(2);
my %memory = map { ($_->name => resident_kb($_)) } @nodes;
my %log    = map { ($_->name => $_->log_size) } @nodes;
my @busy   = map { hand_over() } 1 .. 11;
ok($flood->alive, 'the flood lasts as long as the hand-overs');
$flood->wait($seconds + 30);
my ($flooded, $took) = $flood->output =~ /^(\d+) in (\S+) s$/ or die 'the flood: ' . $flood->output;
note("flood: $flooded changes in $took s");
cmp_ok($flooded / $took, '>', 1000, 'the flood has enough changes in a second');
note(sprintf 'hand-over: median %.1f ms (%.1f to %.1f) without, %.1f ms (%.1f to %.1f) with the flood',
	median(@quiet), (sort { $a <=> $b } @quiet)[ 0, -1 ], median(@busy), (sort { $a <=> $b } @busy)[ 0, -1 ]);
cmp_ok(median(@busy), '<', median(@quiet) + 100, 'a flood delays no hand-over');
for my $pg (@nodes)
{
	my $name = $pg->name;
	my $grown = resident_kb($pg) - $memory{$name};
	cmp_ok($grown, '<', 32 * 1024, "$name: memory is bounded") or diag($grown);
	my $lines = () = substr(slurp_file($pg->logfile), $log{$name}) =~ /^.*(?:LOG|WARNING|ERROR):  .*$/mg;
	cmp_ok($lines, '<', 11 * 4 + 10, "$name: the log has only lines of the hand-overs");
	poll_ok(20, sub { $pg->value(q{SELECT bool_and(connected) FROM etcd_leader_status}) }, "$name: connected");
}
done_testing();
