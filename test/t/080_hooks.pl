# Hooks: when they run, as whom, under which token, and what the views tell.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use EtcdLeader::Documents;
use EtcdLeader::Etcd;
use EtcdLeader::Hooks;
use EtcdLeader::Instance;
use EtcdLeader::Session;
use EtcdLeader::Util;
use PostgreSQL::Test::Utils;
use Test::More;

my $etcd = EtcdLeader::Etcd->new;
my @lines = (
	q{elected   postgres postgres app 10s "INSERT INTO public.effect (what, token) VALUES ('on', public.etcd_fencing_token())"},
	q{unelected postgres postgres app 10s "INSERT INTO public.effect (what, token) SELECT 'off', nullif(current_setting('etcd_leader.hook_token'), '')::bigint FROM pg_sleep(0.3)"});
my ($pg1, $pg2) = map { create_with_hooks($_, \@lines, etcd => $etcd, sql => [
	'CREATE ROLE app LOGIN', 'CREATE TABLE effect (id serial, what text, token bigint, who name DEFAULT session_user)', 'GRANT ALL ON ALL TABLES IN SCHEMA public TO app', 'GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO app' ]) } qw(pg1 pg2);

sub effects { return join ' ', map { "$_->{what}-" . ($_->{token} // '') } $_[0]->rows('SELECT what, token FROM effect ORDER BY id') }

# ---- elected and unelected ------------------------------------------------

$pg1->wait_until_leader;
$pg2->wait_until_candidate;
my $token1 = $pg1->token;
poll_is(10, sub { last_run($pg1, 1) }, "$token1 succeeded", 'an elected hook runs where this instance leads');
is($pg1->value('SELECT who FROM effect LIMIT 1'), 'app', 'as its role');
poll_is(10, sub { last_run($pg2, 2) }, '- succeeded', 'a start without leading: the unelected hook runs');
poll_is(10, sub { effects($pg2) }, 'off-', 'once');
is(last_run($pg2, 1), '', 'the follower has not run the elected hook');

done_testing();
