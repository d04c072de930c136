# Hooks: when they run, as whom, under which token, and what is recorded.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use EtcdLeader::Documents;
use EtcdLeader::Etcd;
use EtcdLeader::Instance;
use EtcdLeader::Session;
use EtcdLeader::Util;
use PostgreSQL::Test::Utils;
use Test::More;

my $etcd  = EtcdLeader::Etcd->new;
my %node  = map { $_ => EtcdLeader::Instance->create($_, etcd => $etcd, conf => "max_worker_processes = 16\n") } qw(pg1 pg2);
my ($pg1, $pg2) = @node{qw(pg1 pg2)};
$pg1->wait_until_leader;
$pg2->wait_until_candidate;
$_->value('CREATE TABLE effect (id serial, what text, token bigint, who name DEFAULT current_user)') for $pg1, $pg2;

# The runs of a hook, as "event token status".
sub runs
{
	my ($node, $hook) = @_;
	return join ', ', map { join ' ', $_->{event}, $_->{fencing_token} // '-', $_->{status} }
	  $node->rows('SELECT * FROM etcd_leader_hook_run WHERE hook = ? ORDER BY started_at', $hook);
}

sub last_run { return (split /, /, runs(@_))[-1] // '' }

sub effects { return join ' ', map { $_->{what} } $_[0]->rows('SELECT what FROM effect ORDER BY id') }

# ---- elected and unelected ------------------------------------------------

for my $node ($pg1, $pg2)
{
	$node->value(q{SELECT etcd_add_hook('on', 'elected', 'INSERT INTO effect (what, token) VALUES (''on'', etcd_fencing_token())')});
	$node->value(q{SELECT etcd_add_hook('off', 'unelected', 'INSERT INTO effect (what) SELECT ''off'' FROM pg_sleep(0.3)')});
}
my $token1 = $pg1->token;
poll_is(10, sub { runs($pg1, 'on') }, "elected $token1 succeeded", 'an elected hook runs where this instance leads already');
is(runs($pg1, 'off'), '', 'an unelected one has nothing to do');
is(runs($pg2, 'on'), '', 'the follower has not run the hook');
is(runs($pg2, 'off'), '', 'whose start is long over');
is($pg1->value('SELECT token FROM effect'), $token1, 'the hook has seen the token');

$pg1->value('SELECT etcd_resign()');
$pg2->wait_until_leader;
my $token2 = $pg2->token;
poll_is(10, sub { runs($pg2, 'on') }, "elected $token2 succeeded", 'the next leader runs its own');
poll_is(10, sub { runs($pg1, 'off') }, "unelected $token1 succeeded", 'the old leader runs its unelected hook, with the token that it lost');
is(effects($pg1), 'on off', 'the effects on the old leader');
is(effects($pg2), 'on', 'the hook has run on the new leader');
my $run = $pg2->row(q{SELECT *, ended_at >= started_at AS sane FROM etcd_leader_hook_run});
is_deeply([ @{$run}{qw(hook election event status message sane)} ], [ 'on', 'postgres', 'elected', 'succeeded', undef, 1 ], 'what is recorded');

# Alone in the queue, an instance loses and wins in an instant: both hooks run,
# and the elected one waits for the other.
$pg1->value('SELECT etcd_resign(rejoin => false)');
for my $round (1 .. 3)
{
	my $token = $pg2->token;
	$pg2->value('SELECT etcd_resign()');
	poll(10, sub { ($pg2->token // 0) > $token }) or die 'not elected again';
	my $next = $pg2->token;
	poll_ok(10, sub { runs($pg2, 'on') =~ /elected $next succeeded$/ }, "resignation $round: the elected hook has run");
	like(runs($pg2, 'off'), qr/unelected $token succeeded$/, "resignation $round: and the unelected one");
}
is(effects($pg2), 'on off on off on off on', 'the hooks ran in the order of the events');

# ---- a start without leading ------------------------------------------------

# The records stay: a hook whose run is not recorded is run again, at a moment that the test does not choose.
$pg1->value('TRUNCATE effect');
$pg1->restart;
poll_is(10, sub { last_run($pg1, 'off') }, 'unelected - succeeded', 'the server starts without leading: its unelected hook runs');
$pg1->wait_until_candidate;
is(effects($pg1), 'off', 'the hook ran once');
$pg1->value('SELECT etcd_resign(rejoin => false)');
$pg2->restart;
$pg2->wait_until_leader;
my $token3 = $pg2->token;
poll_is(10, sub { last_run($pg2, 'on') }, "elected $token3 succeeded", 'one that leads runs the other');

# ---- failure ------------------------------------------------------------------

my $offset = $pg2->log_size;
$pg2->value(q{SELECT etcd_add_hook('fails', 'elected', 'INSERT INTO effect (what) VALUES (''undone''); SELECT 1/0')});
poll_ok(10, sub { runs($pg2, 'fails') =~ /^elected $token3 failed, elected $token3 failed/ }, 'a hook that fails is tried again');
is($pg2->value(q{SELECT DISTINCT message FROM etcd_leader_hook_run WHERE hook = 'fails' AND status = 'failed'}), 'division by zero', 'its message');
is($pg2->log_count('WARNING:  hook "fails" in database "postgres" failed: division by zero', $offset), 1, 'the log says so once');
$pg2->value(q{SELECT etcd_drop_hook('fails')});
is(runs($pg2, 'fails'), '', 'a hook takes the records of its runs along');

# ---- timeout and cancellation ----------------------------------------------------

$pg2->value(q{SELECT etcd_add_hook('slow', 'elected', 'SELECT pg_sleep(60)', timeout => '1 s')});
poll_is(10, sub { $pg2->value(q{SELECT message FROM etcd_leader_hook_run WHERE hook = 'slow' AND status = 'failed' LIMIT 1}) },
	'canceling statement due to statement timeout', 'a run ends at its timeout');
$pg2->value(q{SELECT etcd_drop_hook('slow')});

$pg2->value(q{SELECT etcd_add_hook('hangs', 'elected', 'INSERT INTO effect (what) VALUES (''never''); INSERT INTO effect (what) SELECT ''late'' FROM pg_sleep(60)')});
poll_ok(10, sub { runs($pg2, 'hangs') eq "elected $token3 running" }, 'a hook that hangs runs');
my $began = now();
$pg2->value('SELECT etcd_resign(rejoin => false)');
poll_is(10, sub { runs($pg2, 'hangs') }, "elected $token3 cancelled", 'a loss cancels it');
cmp_ok(now() - $began, '<', 5, 'soon');
like($pg2->value(q{SELECT message FROM etcd_leader_hook_run WHERE hook = 'hangs'}), qr/does not lead election "postgres" any more/, 'the message says why');
unlike(effects($pg2), qr/late/, 'its statement is rolled back');
poll_ok(10, sub { runs($pg2, 'off') =~ /unelected $token3 succeeded$/ }, 'the unelected hook runs');
is($pg2->value(q{SELECT max(r.started_at) FILTER (WHERE r.hook = 'off') > max(r.ended_at) FILTER (WHERE r.hook = 'hangs')
	FROM etcd_leader_hook_run r WHERE fencing_token = ?}, $token3), 1, 'the next hook began after the first one had ended');
$pg2->value(q{SELECT etcd_drop_hook('hangs')});

# One that waits for the loss, and writes at once.
$pg2->value('SELECT etcd_campaign()');
$pg2->wait_until_leader;
my $lost = $pg2->token;
$pg2->value(q{SELECT etcd_add_hook('late', 'elected', 'DO $$ BEGIN WHILE etcd_is_leader() LOOP PERFORM pg_sleep(0.005); END LOOP; INSERT INTO effect (what) VALUES (''late''); END $$')});
poll(10, sub { runs($pg2, 'late') eq "elected $lost running" }) or die 'it does not run';
$pg2->value('SELECT etcd_resign(rejoin => false)');
poll_is(10, sub { runs($pg2, 'late') }, "elected $lost cancelled", 'one that writes as soon as leadership is lost');
unlike(effects($pg2), qr/late/, 'commits nothing');
$pg2->value(q{SELECT etcd_drop_hook('late')});

# ---- as doc/hooks.md has them --------------------------------------------------------

$pg2->value('SELECT etcd_campaign()');
$pg2->wait_until_leader;
$pg2->value('CREATE TABLE duty (who text, token bigint)');
$pg2->value('CREATE TABLE opening (token bigint PRIMARY KEY)');
$pg2->value(document_block('doc/hooks.md', $_)) for 'first', 'idempotent';
my $token4 = $pg2->token;
poll_is(10, sub { $pg2->value('SELECT who || token FROM duty') }, "pg2$token4", 'the first hook of the document');
poll_is(10, sub { $pg2->value('SELECT token FROM opening') }, $token4, 'the one that stores the token');
$pg2->value(q{DELETE FROM etcd_leader_hook_run WHERE hook = 'opening'});
$pg2->value(q{UPDATE etcd_leader_hook SET enabled = enabled});
poll_is(10, sub { runs($pg2, 'opening') }, "elected $token4 succeeded", 'run again under the same token');
is($pg2->value('SELECT count(*) FROM opening'), 1, 'the hook has done nothing twice');

done_testing();
