# CREATE EXTENSION works in a server that has not preloaded the library; the
# functions say what to do.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use EtcdLeader::Instance;
use EtcdLeader::Util;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = EtcdLeader::Instance->create('plain', preload => '');
is($node->value(q{SELECT count(*) FROM pg_extension WHERE extname = 'etcd_leader'}), 1, 'CREATE EXTENSION works');

# Every function of the extension, with NULL for what has no default.
my @functions = $node->rows(q{
	SELECT p.proname, p.oid::regprocedure::text AS signature, p.pronargs - p.pronargdefaults AS required
	FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
	JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid
	WHERE e.extname = 'etcd_leader' AND p.prokind = 'f' ORDER BY p.proname});
my %names = map { $_->{proname} => 1 } @functions;
is(join(' ', grep { !$names{$_} } qw(etcd_is_leader etcd_current_leader etcd_fencing_token etcd_wait_for_leadership
	etcd_wait_for_event etcd_resign etcd_campaign etcd_proclaim etcd_candidates etcd_leader_events)), '', 'all functions are there');
my $own = qr/^etcd_/;
for my $function (grep { $_->{proname} =~ $own } @functions)
{
	my $arguments = join ', ', ("'x'") x $function->{required};
	my ($state, $message) = $node->failure("SELECT * FROM $function->{proname}($arguments)");
	is($state, '55000', "$function->{signature}: ERROR 55000");
	like($message, qr/HINT:.*shared_preload_libraries/s, "$function->{signature}: the hint says what to do");
}
for my $view (qw(etcd_leader_status etcd_leader_stats))
{
	my ($state, $message) = $node->failure("SELECT * FROM $view");
	is($state, '55000', "$view: ERROR 55000");
	like($message, qr/HINT:.*shared_preload_libraries/s, "$view: the hint says what to do");
}
is($node->value('SELECT 1'), 1, 'the server goes on');
is($node->elector_pid, undef, 'there is no elector');

# It can be dropped, and moved to another schema.
$node->value('CREATE SCHEMA elsewhere');
$node->value('ALTER EXTENSION etcd_leader SET SCHEMA elsewhere');
is(($node->failure('SELECT elsewhere.etcd_is_leader()'))[0], '55000', 'it is relocatable');
is(($node->failure('SELECT * FROM elsewhere.etcd_leader_status'))[0], '55000', 'its views as well');
$node->value('DROP EXTENSION etcd_leader');
$node->value('CREATE EXTENSION etcd_leader SCHEMA elsewhere');

# Preloaded at the next start, it needs no more than that.
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'etcd_leader'\netcd_leader.endpoints = 'http://127.0.0.1:"
	  . PostgreSQL::Test::Cluster::get_free_port() . "'\n");
$node->restart;
is($node->value('SELECT elsewhere.etcd_is_leader()'), 0, 'preloaded: false while there is no etcd');
poll_ok(10, sub { $node->elector_pid }, 'preloaded: an elector runs');
is($node->value('SELECT count(*) FROM elsewhere.etcd_leader_status'), 1, 'preloaded: the status');

done_testing();
