# Hooks of changes while their processes, the launcher, the elector, etcd and the whole
# server are killed.  Each change has its run, in order, or a run for a gap comes after
# it.  A table that a hook keeps has the same keys as etcd.  Then there are hundreds of
# changes a second, and hooks of an election begin as soon as without them.
#
# ETCD_LEADER_ROUNDS: the number of faults (20); ETCD_LEADER_SEED: the seed.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../t/lib";
use EtcdLeader::Documents;
use EtcdLeader::Etcd;
use EtcdLeader::Instance;
use EtcdLeader::Util;
use JSON::PP ();
use MIME::Base64;
use PostgreSQL::Test::Utils;
use Test::More;

my $rounds = $ENV{ETCD_LEADER_ROUNDS} || 20;
my $seed   = $ENV{ETCD_LEADER_SEED} || time;
srand $seed;
note("ETCD_LEADER_SEED=$seed");
watchdog(300 + 10 * $rounds);

my $etcd = EtcdLeader::Etcd->new;
my ($pg1, $pg2) = map { EtcdLeader::Instance->create($_, etcd => $etcd, settings => { watched_prefixes => 'fleet/', ttl => 6, max_hook_workers => 3 },
	conf => "max_worker_processes = 16\nlog_min_messages = warning\n") } qw(pg1 pg2);
$pg1->wait_until_leader;
$pg2->wait_until_candidate;

sub put_body { my ($key, $value) = @_; return { key => encode_base64($key, ''), value => encode_base64($value, '') } }

# ---- faults ---------------------------------------------------------------------

my $watch = $etcd->background_etcdctl(qw(watch --prefix --rev=1 fleet/ -w json));
$pg1->value('CREATE TABLE effect (id bigserial, revision bigint)');
$pg1->value("$_;") for map { s/;\n?\z//r } split /;\n+(?=CREATE|SELECT etcd)/, document_block('doc/changes.md', 'keep');
$pg1->value(q{SELECT etcd_add_hook('list', 'change', $$INSERT INTO effect (revision) SELECT nullif(current_setting('etcd_leader.change_revision'), '')::bigint$$)});
my $writer = EtcdLeader::Util::Process->spawn(name => 'writer', log => "$PostgreSQL::Test::Utils::log_path/093_writer.log", code => sub {
	for (my $i = 1;; $i++)
	{
		$i % 5 ? $etcd->post('/v3/kv/put', put_body('fleet/' . $i % 40, "value $i")) : $etcd->post('/v3/kv/deleterange', { key => encode_base64('fleet/' . $i % 37, '') });
		pause(0.005);
	}
});

sub kill_process
{
	my ($type, $signal) = @_;
	my $pid = $pg1->try_value('SELECT pid FROM pg_stat_activity WHERE backend_type = ? LIMIT 1', "etcd_leader $type") or return;
	kill $signal, $pid;
	return;
}
my %fault = (
	hook      => sub { kill_process('hook', 'TERM') },
	hook9     => sub { kill_process('hook', 'KILL') },
	cancel    => sub { kill_process('hook', 'INT') },
	launcher  => sub { kill_process('hook launcher', 'TERM') },
	launcher9 => sub { kill_process('hook launcher', 'KILL') },
	notifier  => sub { kill_process('notifier', 'TERM') },
	elector   => sub { kill_process('elector', 'TERM') },
	touched   => sub { $pg1->try_value(q{UPDATE etcd_leader_hook SET enabled = true}) },
	off       => sub { $pg1->try_value(q{UPDATE etcd_leader_hook SET enabled = false}); pause(rand 0.3); $pg1->try_value(q{UPDATE etcd_leader_hook SET enabled = true}) },
	etcd      => sub { $etcd->kill(0); pause(rand 1); $etcd->start(0) },
	restart   => sub { $pg1->restart });
my @faults = (sort keys %fault, ('hook', 'cancel') x 4);
my %count;
for (1 .. $rounds)
{
	my $fault = $faults[ rand @faults ];
	$count{$fault}++;
	$fault{$fault}->();
	poll(60, sub { $pg1->try_value('SELECT true') }) or die 'the server does not come back';
	pause(rand 3);
}
$writer->stop;
note(join ', ', map { "$_ $count{$_}" } sort keys %count);
# the last fault may have disabled a hook
poll(10, sub { $pg1->try_value(q{UPDATE etcd_leader_hook SET enabled = true WHERE NOT enabled}) // 1 });
pause(1.5);
my ($end) = $etcd->etcdctl(qw(put fleet/end end -w json)) =~ /"revision":(\d+)/;
poll_is(90, sub { $pg1->try_value('SELECT max(revision) FROM effect') // 0 }, $end, 'the last change has its run');
my $fleet = sub { my ($from) = @_; return $pg1->try_value(qq{SELECT string_agg(key || '=' || value || '@' || rev, ' ' ORDER BY key COLLATE "C") FROM $from}) // '' };
poll_is(90, sub { $fleet->('(SELECT key, value, revision AS rev FROM fleet) x') }, $fleet->(q{(SELECT key, value, mod_revision AS rev FROM etcd_get('fleet/', true)) x}),
	'the table that a hook keeps equals the keys in etcd');

poll(30, sub { $watch->output =~ quotemeta encode_base64('fleet/end', '') }) or die 'etcdctl watch does not tell of the end';
my @reference;
for (split /\n/, $watch->output)
{
	my $answer = eval { JSON::PP::decode_json($_) } or next;
	push @reference, map { $_->{kv}{mod_revision} } @{ $answer->{Events} // [] };
}
my %place = map { $reference[$_] => $_ } 0 .. $#reference;
my ($gaps, $repeated, $last, $after_gap, @wrong) = (0, 0, -1, 1);
for ($pg1->rows('SELECT revision FROM effect ORDER BY id'))
{
	my $revision = $_->{revision};
	if (!defined $revision)
	{
		$gaps++;
		$after_gap = 1;
		next;
	}
	my $place = $place{$revision};
	push @wrong, "no change: $revision" if !defined $place;
	next if !defined $place;
	$repeated++ if $place == $last;
	push @wrong, "$place after $last" if $place < $last || (!$after_gap && $place > $last + 1);
	($last, $after_gap) = ($place, 0);
}
is_deeply([ @wrong[ 0 .. ($#wrong > 5 ? 5 : $#wrong) ] ], [], 'each change in order, or a gap');
note(sprintf '%d changes, %d runs for them, %d of them again, %d gaps', scalar @reference, $pg1->value('SELECT count(revision) FROM effect'), $repeated, $gaps);
is($pg1->value('SELECT count(*) FROM etcd_leader_hook_run WHERE status = $$running$$ AND ended_at IS NOT NULL'), 0, 'no running record has an end');
is($pg1->log_count('PANIC|TRAP|could not start hooks'), 0, 'the log is clean');

# ---- a flood ------------------------------------------------------------------------

$pg1->value('SELECT etcd_drop_hook(name) FROM etcd_leader_hook');
$pg1->value('DROP TABLE effect');
for my $pg ($pg1, $pg2)
{
	$pg->value($_) for 'CREATE TABLE begun (token bigint, at timestamptz)', 'CREATE TABLE effect (revision bigint)',
	  q{SELECT etcd_add_hook('on', 'elected', 'INSERT INTO begun VALUES (etcd_fencing_token(), clock_timestamp())')},
	  q{SELECT etcd_add_hook('list', 'change', $$INSERT INTO effect SELECT nullif(current_setting('etcd_leader.change_revision'), '')::bigint$$)};
}

# The milliseconds from the election of the other instance to its hook.
sub hook_after_hand_over
{
	my ($from, $to) = $pg1->is_leader ? ($pg1, $pg2) : ($pg2, $pg1);
	$from->wait_until_leader;
	$to->wait_until_candidate;
	pause(0.5);
	$from->value('SELECT etcd_resign()');
	$to->wait_until_leader;
	my $token = $to->token;
	return poll(20, sub {
		$to->value(q{SELECT 1000 * extract(epoch FROM b.at - e.at) FROM begun b JOIN etcd_leader_events() e ON e.fencing_token = b.token
			WHERE e.event = 'elected' AND b.token = ?}, $token);
	}) // die 'the hook does not run';
}
sub median { my @sorted = sort { $a <=> $b } @_; return $sorted[ $#sorted / 2 ] }
sub spread { my @sorted = sort { $a <=> $b } @_; return sprintf '%.1f ms (%.1f to %.1f)', median(@_), @sorted[ 0, -1 ] }

my $flood = EtcdLeader::Util::Process->spawn(name => 'flood', log => "$PostgreSQL::Test::Utils::log_path/093_flood.log", code => sub {
	for (my $n = 0;; $n += 20)
	{
		my $due = now() + 20 / 700;
		$etcd->post('/v3/kv/txn', { success => [ map { { request_put => put_body('fleet/' . ($n + $_), 'x' x 100) } } 1 .. 20 ] });
		pause($due - now()) if $due > now();
	}
});
my (@quiet, @busy, $ran, $seconds);
for (1 .. 10)
{
	kill 'STOP', $flood->pid;
	push @quiet, hook_after_hand_over();
	kill 'CONT', $flood->pid;
	my ($began, $before) = (now(), $pg1->value('SELECT count(*) FROM effect'));
	push @busy, hook_after_hand_over();
	$ran     += $pg1->value('SELECT count(*) FROM effect') - $before;
	$seconds += now() - $began;
}
$flood->stop;
diag(sprintf 'from the election to its hook: median %s without, %s with %.0f runs a second for changes', spread(@quiet), spread(@busy), $ran / $seconds);

# The launcher, the hook's process and its commit share the machine with the flood and
# its runs, which may use most of it.  A longer delay would show that the elected hook
# waits for these runs.
cmp_ok(median(@busy), '<', 100 + 5 * median(@quiet), 'a flood of changes delays no elected hook');
is($_->value(q{SELECT count(*) FROM etcd_leader_hook_run WHERE hook = 'list' AND status = 'failed'}), 0, $_->name . ': no run has failed') for $pg1, $pg2;

done_testing();
