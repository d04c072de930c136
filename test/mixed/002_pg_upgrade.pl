# pg_upgrade from an older PostgreSQL with the extension installed.  No server
# campaigns during the upgrade, and the new server campaigns afterwards.  Environment:
# OLD_CONFIG, the pg_config of the older release.
use EtcdLeader::Test;
use File::Basename qw(dirname);

my $etcd = EtcdLeader::Etcd->new;
my %conf = (etcd => $etcd, settings => { node_name => "pg1" });
my $old  = EtcdLeader::Instance->create('old', %conf, install_path => dirname(dirname($ENV{OLD_CONFIG})));
$old->wait_until_leader;
my $token = $old->token;
my $from  = $old->value('SELECT version()');
my $status = join ' ', sort keys %{ $old->status };
$old->value(q{CREATE ROLE app; ALTER ROLE app SET etcd_leader.require_leadership_of = 'postgres'; GRANT EXECUTE ON FUNCTION etcd_resign TO app});
$old->stop;

my $new = EtcdLeader::Instance->create('new', %conf, start => 0);
my $bin = `pg_config --bindir`;
chomp $bin;
my $revision = $etcd->post('/v3/kv/range', { key => 'eA==' })->{header}{revision};
my $upgraded = IPC::Run::run([
		"$bin/pg_upgrade", '--no-sync', '-d', $old->data_dir, '-D', $new->data_dir,
		'-b', dirname($ENV{OLD_CONFIG}), '-B', $bin, '-s', $new->host, '-p', $old->port, '-P', $new->port ],
	'<', \undef, '>&', \my $output);
ok($upgraded, 'pg_upgrade') or diag($output);
is($etcd->post('/v3/kv/range', { key => 'eA==' })->{header}{revision}, $revision, 'nobody campaigned meanwhile');

$new->start;
$new->wait_until_leader;
isnt($new->value('SELECT version()'), $from, 'the new PostgreSQL leads');
cmp_ok($new->token, '>', $token, 'the token is greater');
is(join(' ', sort keys %{ $new->status }), $status, 'the status is as before');
is($new->value(q{SELECT setconfig::text FROM pg_db_role_setting WHERE setrole = 'app'::regrole}), '{etcd_leader.require_leadership_of=postgres}',
	'the setting of a role is kept');
is($new->value(q{SELECT has_function_privilege('app', 'etcd_resign(text, boolean, interval)', 'EXECUTE')}), 1, 'the grants of a role are kept');
is($new->value('SELECT count(*) FROM etcd_candidates()'), 1, 'a function that waits works');
$new->stop;
is($new->log_count('was terminated by signal|PANIC'), 0, 'nothing has crashed');
done_testing();
