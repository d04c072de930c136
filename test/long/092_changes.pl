# Many changes: puts and deletes of ten writers over members of etcd that
# are killed, instances that are stopped and crash, compared with what `etcdctl
# watch` tells; and 2,000 changes a second, during which hand-overs take no
# longer, memory does not grow, and the log is quiet.
#
# ETCD_LEADER_ROUNDS: so many thousand changes (20), and seconds of the flood
# are 3/5 of it, at least 15: with 100, 100,000 changes and a minute.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../t/lib";
use EtcdLeader::Etcd;
use EtcdLeader::Instance;
use EtcdLeader::Util;
use JSON::PP ();
use MIME::Base64;
use PostgreSQL::Test::Utils;
use Test::More;

my $rounds = $ENV{ETCD_LEADER_ROUNDS} // 20;
watchdog(120 + 15 * $rounds);
my $etcd   = EtcdLeader::Etcd->new(members => 3);
my @nodes  = map { EtcdLeader::Instance->create($_, etcd => $etcd, settings => { watched_prefixes => 'w/', ttl => 6 }) } qw(pg1 pg2);
my ($pg1, $pg2) = @nodes;
$_->wait_until_candidate for @nodes;
my $watch = $etcd->background_etcdctl(qw(watch --prefix --rev=1 w/ -w json));
for my $pg (@nodes)
{
	poll(20, sub { $pg->value(q{SELECT count(*) FROM etcd_leader_events() WHERE event = 'change'}) }) or die 'no gap at the beginning';
}

# What an instance has told: [revision, key, is it there?], or 'gap'.
my (%told, %after);
sub collect
{
	for my $pg (@nodes)
	{
		my @rows = eval { $pg->rows(q{SELECT seq, event, key, value IS NOT NULL AS stands, revision FROM etcd_leader_events(?)}, $after{ $pg->name } // 0) };
		for (@rows)
		{
			$after{ $pg->name } = $_->{seq};
			push @{ $told{ $pg->name } }, defined $_->{key} ? [ @$_{qw(revision key stands)} ] : 'gap' if $_->{event} eq 'change';
		}
	}
	return;
}

sub put_body { my ($key, $value) = @_; return { key => encode_base64($key, ''), value => encode_base64($value, '') } }

# A writer goes on to another member when one does not answer.
sub write_changes
{
	my ($number, $n) = @_;
	my $member = $number % 3;
	for my $i (1 .. $n)
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
my $began  = now();
my $faults = 0;
my @todo   = (
	sub { $etcd->kill(0) }, sub { $etcd->start(0) },
	sub { kill 'STOP', $pg1->elector_pid }, sub { kill 'CONT', $pg1->value(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'etcd_leader elector'}) },
	sub { $etcd->freeze(1) }, sub { $etcd->thaw(1) },
	sub { kill 'KILL', $pg2->elector_pid }, sub { },
	sub { $etcd->kill(2) }, sub { $etcd->start(2) });
my $next = now() + 2;
while (grep { $_->alive } @writers)
{
	collect();
	if (now() > $next && $faults < @todo)
	{
		$todo[ $faults++ ]->();
		$next = now() + 2;
	}
	pause(0.2);
}
$todo[ $faults++ ]->() while $faults < @todo;
note(sprintf '%d changes in %.0f s, %d faults', 10 * $per_writer, now() - $began, $faults / 2);
$etcd->etcdctl('put', 'w/end', 'end');
poll(60, sub { collect(); return !grep { my $t = $told{ $_->name }; !($t && ref $t->[-1] && $t->[-1][1] eq 'w/end') } @nodes });
my $end = quotemeta encode_base64('w/end', '');
poll(60, sub { $watch->output =~ $end });
my @reference;
for (split /\n/, $watch->output)
{
	my $answer = eval { JSON::PP::decode_json($_) } or next;
	push @reference, map { [ $_->{kv}{mod_revision}, decode_base64($_->{kv}{key}), ($_->{type} // 0) eq '1' || ($_->{type} // '') eq 'DELETE' ? 0 : 1 ] } @{ $answer->{Events} // [] };
}
cmp_ok(scalar(@reference), '>=', 5 * $per_writer, 'etcdctl watch has told of changes');
my %place = map { ("$reference[$_][0] $reference[$_][1]" => $_) } 0 .. $#reference;
is(scalar(keys %place), scalar @reference, 'each once');
for my $pg (@nodes)
{
	my @told = @{ $told{ $pg->name } };
	my ($gaps, $last, @wrong) = (0);
	for my $change (@told)
	{
		if (!ref $change)
		{
			$gaps++;
			undef $last;
			next;
		}
		my $place = $place{"$change->[0] $change->[1]"};
		push @wrong, "no change: @$change" if !defined $place;
		push @wrong, "deletion: @$change" if defined $place && $change->[2] ne $reference[$place][2];
		push @wrong, "$place after $last" if defined $place && defined $last && $place != $last + 1;
		$last = $place;
	}
	is_deeply([ @wrong[ 0 .. ($#wrong > 5 ? 5 : $#wrong) ] ], [], $pg->name . ': each once and in order, or a gap')
	  or note(scalar @wrong);
	is($told[-1][1], 'w/end', $pg->name . ': up to the end');
	note($pg->name . ': ' . @told . " changes, $gaps gaps");
}

# ---- a flood ------------------------------------------------------------------

sub resident_kb { my ($pg) = @_; return slurp_file('/proc/' . $pg->elector_pid . '/status') =~ /VmRSS:\s+(\d+)/ ? $1 : die }

# Milliseconds from a resignation until the other instance leads.
sub hand_over
{
	my ($from, $to) = $pg1->is_leader ? ($pg1, $pg2) : ($pg2, $pg1);
	$from->wait_until_leader;
	my $dbh = $to->connect_db;
	$dbh->do(q{SELECT etcd_wait_for_leadership('20 s')}, { pg_async => DBD::Pg::PG_ASYNC() });
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
cmp_ok($flooded / $took, '>', 1500, 'as many changes a second as were meant');
note(sprintf 'hand-over: median %.1f ms (%.1f to %.1f) without, %.1f ms (%.1f to %.1f) with the flood',
	median(@quiet), (sort { $a <=> $b } @quiet)[ 0, -1 ], median(@busy), (sort { $a <=> $b } @busy)[ 0, -1 ]);
cmp_ok(median(@busy), '<', median(@quiet) + 100, 'a flood delays no hand-over');
for my $pg (@nodes)
{
	my $name = $pg->name;
	my $grown = resident_kb($pg) - $memory{$name};
	cmp_ok($grown, '<', 32 * 1024, "$name: memory is bounded") or diag($grown);
	my $lines = () = substr(slurp_file($pg->logfile), $log{$name}) =~ /^.*(?:LOG|WARNING|ERROR):  .*$/mg;
	cmp_ok($lines, '<', 11 * 4 + 10, "$name: the log has the hand-overs alone");
	poll_ok(20, sub { $pg->value(q{SELECT bool_and(connected) FROM etcd_leader_status}) }, "$name: connected");
}
done_testing();
