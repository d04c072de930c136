# Upgrades: a library and SQL objects of two versions, whichever is the older
# one, go on electing, and an error says what to do where they do not fit.
use EtcdLeader::Test;
use EtcdLeader::Documents;
use EtcdLeader::Installation;
use EtcdLeader::Session;
use EtcdLeader::SqlObjects;

my $etcd         = EtcdLeader::Etcd->new;
my $dir          = PostgreSQL::Test::Utils::tempdir('upgrade');
my $installation = EtcdLeader::Installation->new("$dir/installation");

# ---- three versions: 0.9 has a column less, 1.1 a column and a function more

my $script    = EtcdLeader::Installation::source('sql/etcd_leader--1.0.sql');
my $control   = EtcdLeader::Installation::source('etcd_leader.control');
my $functions = EtcdLeader::Installation::source('src/session/readers.c');

# What must be there, is replaced.
sub edit
{
	my ($text, $from, $to) = @_;
	my $at = index $text, $from;
	die "nothing to edit: $from" if $at < 0;
	substr($text, $at, length $from) = $to;
	return $text;
}

sub build_library
{
	my ($version, $source) = @_;
	EtcdLeader::Installation::write_file("$dir/sources/src/session/readers.c", $source);
	my $library = EtcdLeader::Installation::build("$dir/sources", $version ? "ETCD_LEADER_VERSION=$version" : ());
	rename $library, "$dir/library-$version" or die $!;
	return "$dir/library-$version";
}

sub for_version
{
	my ($version, $sql) = @_;
	return edit($sql, "check_version('1.0'", "check_version('$version'");
}

# The SQL script's part about the statistics, up to the next part.
sub stats_part
{
	my ($sql) = @_;
	my ($part) = $sql =~ /^(CREATE FUNCTION etcd_leader_stats\(.*?)^--$/ms or die;
	return $part;
}

sub update_script
{
	my ($version, $part) = @_;
	my ($check) = $script =~ /^(CREATE FUNCTION etcd_leader_check_version.*?^DROP FUNCTION [^\n]*\n)/ms or die;
	return for_version($version, $check)
	  . join('', map { "DROP VIEW etcd_leader_$_;\nDROP FUNCTION etcd_leader_$_();\n" } qw(stats losses)) . "DROP FUNCTION etcd_leader_stats_reset();\n"
	  . "${part}REVOKE ALL ON FUNCTION etcd_leader_stats_reset() FROM PUBLIC;\n";
}

EtcdLeader::Installation::copy_sources("$dir/sources");
my %library = ('' => build_library('', $functions));

my $last_column = "\tOUT stats_reset timestamp with time zone)";
my $older       = for_version('0.9', $script);
$older = edit($older, ",\n$last_column", ')');
$older =~ s/^COMMENT ON COLUMN etcd_leader_stats.stats_reset .*\n//m or die;
$library{'0.9'} = build_library('0.9', edit(edit($functions, 'INT4OID, TEXTOID, TIMESTAMPTZOID', 'INT4OID, TEXTOID'),
		"\trow_add_time(&row, stats_reset_at());\n", ''));

my $function = "CREATE FUNCTION etcd_leader_more() RETURNS integer AS 'MODULE_PATHNAME', 'etcd_leader_more' LANGUAGE C;\n";
my $newer = edit(for_version('1.1', $script), $last_column, edit($last_column, ')', ",\n\tOUT more bigint)")) . $function;
$library{'1.1'} = build_library('1.1', edit(edit($functions, 'INT4OID, TEXTOID, TIMESTAMPTZOID', 'INT4OID, TEXTOID, TIMESTAMPTZOID, INT8OID'),
		"\trow_add_time(&row, stats_reset_at());\n", "\trow_add_time(&row, stats_reset_at());\n\trow_add_value(&row, Int64GetDatum(11));\n")
	  . "PG_FUNCTION_INFO_V1(etcd_leader_more);\nDatum etcd_leader_more(PG_FUNCTION_ARGS) { PG_RETURN_INT32(11); }\n");

$installation->put_extension_file('etcd_leader--0.9.sql',      $older);
$installation->put_extension_file('etcd_leader--0.9--1.0.sql', update_script('1.0', stats_part($script)));
$installation->put_extension_file('etcd_leader--1.1.sql',      $newer);
$installation->put_extension_file('etcd_leader--1.0--1.1.sql', update_script('1.1', stats_part($newer) . $function));

# As installing a package does.
sub install
{
	my ($version) = @_;
	$installation->put_library($library{ $version eq '1.0' ? '' : $version });
	$installation->put_extension_file('etcd_leader.control', edit($control, "'1.0'", "'$version'"));
	return;
}

# ---- checks -----------------------------------------------------------------

install('0.9');
my $node = EtcdLeader::Instance->create('pg1', etcd => $etcd, install_path => $installation->path,
	settings => { node_name => 'pg1', candidate => 'always' });

sub version
{
	my ($dbh) = @_;
	return scalar $dbh->selectrow_array(q{SELECT extversion FROM pg_extension WHERE extname = 'etcd_leader'});
}

# The library is too old for a script.
sub too_old
{
	my ($dbh, $statement, $library, $script, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $before = version($dbh);
	fails($dbh, $statement, '55000', [
			qr/ERROR:  the etcd_leader library that is loaded is version \Q$library\E, but the script requires version \Q$script\E$/m,
			qr/^HINT:  Make sure that etcd_leader \Q$script\E is installed, and restart the server to load its library\.$/m ], $name);
	is(version($dbh), $before, "$name: the extension is as before");
	return;
}

# What fills in a row does not fit.
sub other_columns
{
	my ($dbh, $query, $function, $library, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	fails($dbh, $query, '55000', [
			qr/ERROR:  SQL objects of extension "etcd_leader" do not match the loaded library$/m,
			qr/^DETAIL:  The library, of version \Q$library\E, fills in other columns than "\Q$function\E" returns\.$/m,
			qr/^HINT:  If the library is the newer one, run ALTER EXTENSION etcd_leader UPDATE\. Otherwise restart the server/m ], $name);
	return;
}

# It leads, by the elector that was started last.
my $elector;
sub leads
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($node->is_leader, 1, "$name: it leads");
	is($node->row(q{SELECT state FROM etcd_leader_status})->{state}, 'leading', "$name: and its status says so");
	is($node->elector_pid, $elector, "$name: nothing has crashed") if $elector;
	return;
}

sub restart
{
	$node->restart;
	$node->wait_until_leader;
	$elector = $node->elector_pid;
	return;
}

sub stats_columns
{
	return scalar keys %{ $node->row('SELECT * FROM etcd_leader_stats') };
}

# ---- 0.9 to 1.0 -------------------------------------------------------------

$node->wait_until_leader;
$elector = $node->elector_pid;
is(version($node->dbh), '0.9', 'the old version is there');
my $columns = stats_columns();
cmp_ok($columns, '>', 0, 'and works');
my $token = $node->token;
$node->value('CREATE DATABASE other');
my $other = $node->connect_db('other');

install('1.0');
too_old($node->connect_db, 'ALTER EXTENSION etcd_leader UPDATE', '0.9', '1.0', 'old library, update');
too_old($other, 'CREATE EXTENSION etcd_leader', '0.9', '1.0', 'old library, new script');
is($other->selectrow_array(q{SELECT count(*) FROM pg_proc WHERE proname LIKE 'etcd%'}), 0, 'it has left nothing');
succeeds($other, q{CREATE EXTENSION etcd_leader VERSION '0.9'}, 'old library, old script');
is(stats_columns(), $columns, 'old library, old SQL: the statistics');
leads('old library');
is($node->token, $token, 'old library: as it did before');
$other->do('DROP EXTENSION etcd_leader');
$other->disconnect;

restart();
leads('new library, old SQL');
other_columns($node->dbh, $_, 'etcd_leader_stats', '1.0', "new library, old SQL: $_")
  for 'SELECT * FROM etcd_leader_stats', 'SELECT requests FROM etcd_leader_stats()';
leads('new library, old SQL, after the errors');

my $member = q{SELECT pg_describe_object(classid, objid, objsubid) FROM pg_depend
	WHERE deptype = 'e' AND refclassid = 'pg_extension'::regclass
	  AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'etcd_leader') ORDER BY 1};
succeeds($node->dbh, document_block('doc/operations.md', 'update'), 'new library: update');
is(version($node->dbh), '1.0', 'new library: updated');
is(stats_columns(), $columns + 1, 'new library, new SQL: the statistics');
leads('new library, new SQL');
my $updated = join "\n", map { $_->{pg_describe_object} } $node->rows($member);
$other = $node->connect_db('other');
succeeds($other, 'CREATE EXTENSION etcd_leader', 'new library, new script');
is(join("\n", @{ $other->selectcol_arrayref($member) }), $updated, 'updated and created are the same');
unlike($updated, qr/check_version/, 'the check itself is no part of the extension');
$other->do('DROP EXTENSION etcd_leader');

# The script of an update reaches no objects that others have planted.
{
	$node->value($_) for 'CREATE DATABASE planted', 'CREATE ROLE mallory LOGIN';
	my $dbh = $node->connect_db('planted');
	$dbh->do($_) for 'GRANT CREATE ON SCHEMA public TO mallory', q{CREATE EXTENSION etcd_leader VERSION '0.9'};
	cmp_ok(plant_traps($node->connect_db('planted', user => 'mallory'), model($node)), '>', 1000, 'traps are planted before the update');
	$dbh->do('ALTER EXTENSION etcd_leader UPDATE');
	is(join("\n", foreign_references($dbh)), '', 'an updated extension does not refer to them');
	$dbh->disconnect;
	$node->value('DROP DATABASE planted');
}

# ---- every function that returns rows looks at its columns ------------------

my @functions = $node->rows(q{
	SELECT p.proname AS name, array_to_string(ARRAY(SELECT format_type(t, NULL) FROM unnest(p.proargtypes) t), ', ') AS arguments,
	       CASE WHEN p.prorettype = 'record'::regtype THEN
	           ARRAY(SELECT format_type(t, NULL) FROM unnest(p.proallargtypes, p.proargmodes) WITH ORDINALITY u(t, mode, i)
	                 WHERE mode IN ('o', 't') ORDER BY i)
	       ELSE ARRAY(SELECT format_type(a.atttypid, NULL) FROM pg_attribute a JOIN pg_type t ON a.attrelid = t.typrelid
	                  WHERE t.oid = p.prorettype AND a.attnum > 0 ORDER BY a.attnum) END AS columns
	FROM pg_proc p WHERE p.proname LIKE 'etcd%' AND p.proretset AND p.prolang = (SELECT oid FROM pg_language WHERE lanname = 'c') ORDER BY p.proname});
is(join(' ', map { $_->{name} } @functions),
	'etcd_candidates etcd_get etcd_leader_check etcd_leader_endpoints etcd_leader_events etcd_leader_hooks etcd_leader_hooks_file '
	  . 'etcd_leader_losses etcd_leader_problems etcd_leader_stats etcd_leader_status etcd_wait_for_event', 'functions that return rows');
for my $f (@functions)
{
	my @columns = @{ $f->{columns} };
	my $call = 'SELECT * FROM another(' . join(', ', ('NULL') x (() = $f->{arguments} =~ /\w+/g)) . ')';
	my $create = sub {
		my @types = @_;
		my $i = 0;
		$node->dbh->do("CREATE FUNCTION another($f->{arguments}) RETURNS TABLE (" . join(', ', map { "c" . ++$i . " $_" } @types)
			  . ") AS '\$libdir/etcd_leader', '$f->{name}' LANGUAGE C");
	};
	my %mistakes = (
		'a column less'     => [ @columns[ 0 .. $#columns - 1 ] ],
		'a column more'     => [ @columns, 'text' ],
		'another last type' => [ @columns[ 0 .. $#columns - 1 ], 'smallint' ]);
	# a table of one column is no row
	delete $mistakes{'a column less'} if @columns == 2;
	for my $mistake (sort keys %mistakes)
	{
		$node->dbh->do('BEGIN');
		$create->(@{ $mistakes{$mistake} });
		other_columns($node->dbh, $call, 'another', '1.0', "$f->{name}, $mistake");
		$node->dbh->do('ROLLBACK');
	}
	# one session waits, the other wants a key
	next if $f->{name} eq 'etcd_wait_for_event' || $f->{name} eq 'etcd_get';
	$node->dbh->do('BEGIN');
	$create->(@columns);
	succeeds($node->dbh, $call, "$f->{name}, the right columns");
	$node->dbh->do('ROLLBACK');
}
leads('other columns');

# ---- 1.0 to 1.1, which is only half installed, and back ---------------------

# What users have made with the functions of 1.0 goes on.
$node->value($_) for q{CREATE VIEW gated AS SELECT 'due' AS job WHERE etcd_is_leader()},
  'CREATE TABLE work (token bigint DEFAULT etcd_require_leader(), seq bigint)',
  'CREATE FUNCTION work() RETURNS void BEGIN ATOMIC INSERT INTO work(seq) SELECT max(seq) FROM etcd_leader_events(); END',
  'CREATE ROLE writer', q{ALTER ROLE writer SET etcd_leader.require_leadership_of = 'postgres'}, 'GRANT EXECUTE ON FUNCTION etcd_candidates TO writer';

# Works with the data on that server, which has so many rows of work then.
sub works
{
	my ($server, $rows, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($server->value('SELECT job FROM gated'), 'due', "$name: a view");
	$server->value('SELECT work()');
	is($server->value(q{SELECT count(*) || ' ' || (max(token) = etcd_fencing_token()) FROM work WHERE seq > 0}), "$rows true", "$name: a table, and a function");
	is($server->value(q{SELECT has_function_privilege('writer', 'etcd_candidates(text)', 'EXECUTE')}), 1, "$name: a privilege");
	is($server->value(q{SELECT setconfig[1] FROM pg_db_role_setting WHERE setrole = 'writer'::regrole}), 'etcd_leader.require_leadership_of=postgres', "$name: a setting");
	return;
}
works($node, 1, '1.0');

install('1.1');
$installation->put_library($library{''});
too_old($node->dbh, 'ALTER EXTENSION etcd_leader UPDATE', '1.0', '1.1', 'half installed');
restart();
too_old($node->dbh, 'ALTER EXTENSION etcd_leader UPDATE', '1.0', '1.1', 'half installed, restarted');
leads('half installed');

# A server that did not preload the library loads the present one.
my $plain = EtcdLeader::Instance->create('plain', preload => '', extension => 0, install_path => $installation->path);
too_old($plain->dbh, 'CREATE EXTENSION etcd_leader', '1.0', '1.1', 'half installed, not preloaded');
install('1.1');
succeeds($plain->connect_db, 'CREATE EXTENSION etcd_leader', 'not preloaded');
is(version($plain->dbh), '1.1', 'not preloaded: the version');
$plain->stop;

restart();
succeeds($node->dbh, 'ALTER EXTENSION etcd_leader UPDATE', 'the next version');
is(stats_columns(), $columns + 2, 'the next version: the statistics');
is($node->value('SELECT etcd_leader_more()'), 11, 'the next version: the function');
works($node, 2, 'the next version');
leads('the next version');

install('1.0');
restart();
leads('older library, newer SQL');
other_columns($node->dbh, 'SELECT * FROM etcd_leader_stats', 'etcd_leader_stats', '1.0', 'older library, newer SQL');
fails($node->dbh, 'SELECT etcd_leader_more()', '42883', qr/could not find function "etcd_leader_more"/, 'older library, newer SQL: a function');
leads('older library, newer SQL, after the errors');

# ---- pg_upgrade: no script runs, the library is the new one ------------------

$node->stop;
install('1.1');
my $new = EtcdLeader::Instance->create('new', etcd => $etcd, install_path => $installation->path,
	settings => { node_name => 'pg1' }, start => 0);
my $upgrade = IPC::Run::run([
		$installation->bindir . '/pg_upgrade', '--no-sync', '-d', $node->data_dir, '-D', $new->data_dir,
		'-b', $installation->bindir, '-B', $installation->bindir, '-s', $new->host, '-p', $node->port, '-P', $new->port ],
	'<', \undef, '>&', \my $output);
ok($upgrade, 'pg_upgrade') or diag($output);
$new->start;
$new->wait_until_leader;
is(version($new->dbh), '1.1', 'pg_upgrade: the extension is there');
is($new->value('SELECT etcd_leader_more()'), 11, 'pg_upgrade: and works');
works($new, 3, 'pg_upgrade');
is($new->status->{state}, 'leading', 'pg_upgrade: its status');
$new->stop;

for my $server ($node, $plain, $new)
{
	is($server->log_count('was terminated by signal|PANIC'), 0, $server->name . ': nothing has crashed');
}
done_testing();
