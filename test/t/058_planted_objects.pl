# A role that may create in the schema of the extension plants operators and
# functions before CREATE EXTENSION, which fit better than the objects of pg_catalog:
# nothing in the extension refers to them, and nothing that a superuser calls
# reaches them.  The queries of the check would reach them under a usual search_path.
use EtcdLeader::Test;
use EtcdLeader::Installation;
use EtcdLeader::SqlObjects;

my $etcd = EtcdLeader::Etcd->new;
my $node = EtcdLeader::Instance->create('pg1', etcd => $etcd, settings => { watched_prefixes => 'flags/' });
$node->wait_until_leader;

my %query = queries_of_check();
is(join(' ', sort keys %query), 'required schema version', 'the queries of the check');

# ---- the references of the extension -----------------------------------------

my $model      = model($node);
my @references = references($model);
my %count;
$count{ $_->{catalog} }++ for @references;
cmp_ok($count{$_} // 0, '>', 5, "references to $_ are found") for qw(pg_operator pg_proc pg_type pg_class);
is(join("\n", foreign_references($model)), '', 'each is of pg_catalog or of the extension');
note("$_->{object}: $_->{name}") for grep { $_->{schema} ne 'pg_catalog' } @references;
is(join(' ', string_bodies($model)), '', 'no body of a function is resolved when it is called');

# ---- traps --------------------------------------------------------------------

$node->value('CREATE ROLE mallory LOGIN');
$node->value($_) for 'CREATE ROLE fenced', "ALTER ROLE fenced SET etcd_leader.require_leadership_of = 'nothing'";

# A database in which the role has planted its traps.
sub trapped_database
{
	my ($name) = @_;
	$node->value("CREATE DATABASE $name");
	my $dbh = $node->connect_db($name);
	$dbh->do('GRANT CREATE ON SCHEMA public TO mallory');
	my $mallory = $node->connect_db($name, user => 'mallory');
	my $traps   = plant_traps($mallory, $model);
	cmp_ok($traps, '>', 1000, "$name: there are traps") and note($traps);
	ok(!eval { $dbh->do(q{SELECT 1::oid = 1::int4}); 1 } && $dbh->errstr =~ /sprung/, "$name: they work");
	return $dbh;
}

my $dbh = trapped_database('trapped');
$dbh->do('CREATE EXTENSION etcd_leader');
is(join("\n", foreign_references($dbh)), '', 'the extension does not refer to the traps');

# Everything is called: with exact types, as the names are planted, too.
my @calls = map { "SELECT * FROM $_" } @{ $model->selectcol_arrayref(q{SELECT relname FROM pg_class WHERE relkind = 'v' AND relname LIKE 'etcd%'}) };
cmp_ok(scalar(@calls), '>=', 5, 'views');
for my $function (@{ $model->selectall_arrayref(q{SELECT prokind, proname, proargtypes::regtype[]::text[] FROM pg_proc WHERE proname LIKE 'etcd%'}) })
{
	my ($kind, $name, $types) = @$function;
	my %value = (text => $name eq 'etcd_get' ? "'flags/'" : 'NULL', interval => "'10 ms'", bigint => '0', boolean => 'true');
	my $call = "$name(" . join(', ', map { "$value{$_}::$_" } @$types) . ')';
	push @calls, $kind eq 'p' ? "CALL $call" : "SELECT * FROM $call";
}
cmp_ok(scalar(@calls), '>=', 25, 'functions and procedures');
for my $call (@calls)
{
	my $error = eval { $dbh->do($call); 1 } ? '' : $dbh->errstr;
	unlike($error, qr/sprung|does not exist|not unique|permission/, $call) or diag($error);
	note($error) if $error;
}
is($dbh->selectrow_array(q{SELECT hint FROM etcd_leader_check('5 s'::interval) WHERE item OPERATOR(pg_catalog.=) 'schema'}),
	'Move the extension to a schema of its own by ALTER EXTENSION etcd_leader SET SCHEMA, or revoke CREATE on the schema.', 'the check warns');

# each operator of "version" has exactly the types of pg_catalog's
is(join(' ', grep { !eval { $dbh->selectall_arrayref($query{$_}); 1 } && $dbh->errstr =~ /sprung|not unique/ } sort keys %query), 'required schema',
	'under a usual search_path, the queries of the check spring them');

# ---- updates ------------------------------------------------------------------------

for my $from (@{ $node->dbh->selectcol_arrayref(q{SELECT source FROM pg_extension_update_paths('etcd_leader') WHERE target = '1.0' AND path IS NOT NULL}) })
{
	$dbh = trapped_database("update_from_$from");
	$dbh->do("CREATE EXTENSION etcd_leader VERSION '$from'");
	$dbh->do('ALTER EXTENSION etcd_leader UPDATE');
	is(join("\n", foreign_references($dbh)), '', "updated from $from: the extension does not refer to traps");
}
done_testing();
