# The objects to which the SQL objects of the extension refer, read from the trees that
# PostgreSQL stores; and objects that somebody plants to be referred to instead.
package EtcdLeader::SqlObjects;

use strict;
use warnings;

use Exporter 'import';

use EtcdLeader::Installation;

our @EXPORT = qw(foreign_references model plant_traps queries_of_check references string_bodies);

# In which catalog an OID of a tree is, by the name of its field.
my @catalogs = (
	[ qr/^(?:opno|eqop|sortop|opnos)$/                   => 'pg_operator' ],
	[ qr/^(?:funcid|opfuncid|aggfnoid|winfnoid|hashfuncid|negfuncid|elemfuncid|inRangeStartFunc|startInRangeFunc|endInRangeFunc)$/ => 'pg_proc' ],
	[ qr/^(?:relid|resorigtbl)$/                                    => 'pg_class' ],
	[ qr/(?:collid|collation|Collations|Collation)$/                => 'pg_collation' ],
	[ qr/(?:type|typeid|typeId|Types|argtypes|typid)$/              => 'pg_type' ]);

# Fields that hold numbers of another kind.
my $other_numbers = qr/location|_len$|^(?:colTypmods|consttypmod|vartypmod|resulttypmod|paramtypmod|funccoltypmods|rellockmode|requiredPerms|varattno|resno|ressortgroupref|queryId|list_(?:start|end)|selectedCols|constvalue)$/;

# The queries of etcd_leader_check(), by name, as they stand in its source.
sub queries_of_check
{
	my $source = EtcdLeader::Installation::source('src/check/catalogs.c');
	my %query;
	while ($source =~ /^static const char (\w+)_query\[\] =\n((?:\t".*"\n?)+);/mg)
	{
		my ($name, $text) = ($1, $2);
		$query{$name} = join '', $text =~ /^\t"(.*)"$/mg;
	}
	return %query;
}

# A database with the extension, and with the queries of the check as views of the
# extension, so that their trees show what they use.
sub model
{
	my ($node) = @_;
	my %query = queries_of_check();
	$node->value('CREATE DATABASE model');
	my $dbh = $node->connect_db('model');
	$dbh->do('CREATE EXTENSION etcd_leader');
	for my $name (sort keys %query)
	{
		$dbh->do("CREATE VIEW check_$name AS $query{$name}");
		$dbh->do("ALTER EXTENSION etcd_leader ADD VIEW check_$name");
	}
	return $dbh;
}

# Every reference of the stored trees and of pg_depend, as rows of object,
# catalog, oid, name; each once.
sub references
{
	my ($dbh) = @_;
	return _safely($dbh, \&_references);
}

# Looks by names of pg_catalog alone: there may be traps.
sub _safely
{
	my ($dbh, $look) = @_;
	$dbh->do('SET search_path = pg_catalog');
	my @result = $look->($dbh);
	$dbh->do('RESET search_path');
	return @result;
}

sub _references
{
	my ($dbh) = @_;
	my $members = q{SELECT classid, objid FROM pg_depend WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
		AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'etcd_leader')};
	my $trees = $dbh->selectall_arrayref(qq{
		SELECT r.ev_class::regclass::text, r.ev_action::text FROM pg_rewrite r
			WHERE ('pg_class'::regclass::oid, r.ev_class) IN ($members)
		UNION ALL
		SELECT p.oid::regprocedure::text, concat_ws(' ', p.prosqlbody::text, p.proargdefaults::text) FROM pg_proc p
			WHERE ('pg_proc'::regclass::oid, p.oid) IN ($members)});
	my %seen;
	for my $tree (@$trees)
	{
		my ($object, $text) = @$tree;
		$text //= '';
		while ($text =~ /:(\w+) (\((?:o|i) [-\d ]+\)|\d+)(?=[ )}])/g)
		{
			my ($field, $value) = ($1, $2);
			next if $field =~ $other_numbers;
			my ($catalog) = map { $_->[1] } grep { $field =~ $_->[0] } @catalogs;
			# the least OID is 16; less is a kind of a join, of a test or of a sub-select
			for my $oid (grep { $_ >= 16 } $value =~ /\d+/g)
			{
				# a field that no release had when this was written
				die "$object: is $field $oid of a tree an OID?\n" if !$catalog && $oid >= 10000;
				$seen{"$object|$catalog|$oid"} = [ $object, $catalog, $oid ] if $catalog;
			}
		}
	}
	my $depends = $dbh->selectall_arrayref(qq{
		SELECT pg_describe_object(d.classid, d.objid, 0), d.refclassid::regclass::text, d.refobjid FROM pg_depend d
			WHERE (d.classid, d.objid) IN ($members) AND d.deptype IN ('n', 'a')
				AND d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_type'::regclass, 'pg_class'::regclass)});
	$seen{ join '|', @$_ } = $_ for @$depends;
	my %schema = (pg_proc => 'pronamespace', pg_operator => 'oprnamespace', pg_class => 'relnamespace', pg_type => 'typnamespace', pg_collation => 'collnamespace');
	my @rows;
	for my $reference (sort { "@$a" cmp "@$b" } values %seen)
	{
		my ($object, $catalog, $oid) = @$reference;
		my $found = $dbh->selectrow_arrayref(qq{
			SELECT n.nspname, pg_describe_object('$catalog'::regclass, c.oid, 0),
				-- a row type and an array belong to their table or element type
				EXISTS (SELECT FROM ($members) AS m WHERE (m.classid, m.objid) = ('$catalog'::regclass, c.oid)
					OR '$catalog' = 'pg_type' AND (m.classid, m.objid) =
						('pg_class'::regclass, (SELECT typrelid FROM pg_type WHERE oid = c.oid)))
			FROM pg_catalog.$catalog c JOIN pg_namespace n ON n.oid = c.$schema{$catalog} WHERE c.oid = ?}, {}, $oid);
		die "$object refers to $catalog $oid, which does not exist\n" unless $found;
		my ($schema, $name, $is_member) = @$found;
		push @rows, { object => $object, catalog => $catalog, oid => $oid, schema => $schema, name => $name, is_member => $is_member };
	}
	return @rows;
}

# Those that are neither of pg_catalog nor of the extension, as text.
sub foreign_references
{
	my ($dbh) = @_;
	return map { "$_->{object}: $_->{name} of $_->{schema}" } grep { !$_->{is_member} && $_->{schema} ne 'pg_catalog' } references($dbh);
}

# Functions whose bodies are text, which is resolved when they are called.
sub string_bodies
{
	my ($dbh) = @_;
	return _safely($dbh, sub { @{ $dbh->selectcol_arrayref(q{
		SELECT p.oid::regprocedure::text FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid JOIN pg_language l ON l.oid = p.prolang
		WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e' AND d.refclassid = 'pg_extension'::regclass
			AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'etcd_leader') AND l.lanname <> 'c' AND p.prosqlbody IS NULL}) } });
}

# Plants traps in the schema public, by the connection of a role that may create
# there: each operator and function that the extension refers to in another
# database, $model, with the types that occur in its trees in every combination;
# and functions that have the names of the extension's, but not its signatures.
# Each of them fails with "sprung".  Returns how many there are.
sub plant_traps
{
	my ($dbh, $model) = @_;
	my @references = references($model);
	my %named = map { my $catalog = $_; $catalog => join ',', map { $_->{oid} } grep { $_->{catalog} eq $catalog && $_->{schema} eq 'pg_catalog' } @references }
	  qw(pg_operator pg_proc pg_type);
	my $own = join ',', map { $dbh->quote($_) } @{ $model->selectcol_arrayref(q{
		SELECT p.proname || '(' || array_to_string(ARRAY(SELECT t::regtype FROM unnest(p.proargtypes) AS t), ', ') || ')' FROM pg_catalog.pg_proc p
		WHERE p.proname LIKE 'etcd%'}) };
	$dbh->do('SET search_path = pg_catalog');
	$dbh->do(qq{
DO \$do\$
DECLARE
  -- the types of the trees, but for types that no column has; and the types that a literal can become
  types regtype[] := ARRAY(SELECT DISTINCT t FROM (SELECT oid::regtype AS t FROM pg_type WHERE oid IN ($named{pg_type}) AND typtype = 'b'
    UNION SELECT unnest(ARRAY['text', 'name', 'varchar', 'int4', 'int8', 'oid', 'bool', 'interval', 'text[]']::regtype[])) AS a);
  own text[] := ARRAY[$own];
  few regtype[] := '{text,name,int4,bool,text[]}';
  result regtype;
  a regtype;
  b regtype;
  o record;
  combination text;
BEGIN
  FOR result IN SELECT DISTINCT oprresult::regtype FROM pg_operator WHERE oid IN ($named{pg_operator}) LOOP
    FOREACH a IN ARRAY types LOOP
      FOREACH b IN ARRAY types LOOP
        EXECUTE format('CREATE FUNCTION public.trap_%s(%s, %s) RETURNS %s LANGUAGE plpgsql AS \$\$BEGIN RAISE ''sprung: operator''; END\$\$',
          result::oid, a, b, result);
      END LOOP;
    END LOOP;
  END LOOP;
  FOR o IN SELECT DISTINCT oprname, min(oprresult)::oid AS result FROM pg_operator WHERE oid IN ($named{pg_operator}) GROUP BY 1 LOOP
    FOREACH a IN ARRAY types LOOP
      FOREACH b IN ARRAY types LOOP
        EXECUTE format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.trap_%s)', o.oprname, a, b, o.result);
      END LOOP;
    END LOOP;
  END LOOP;
  FOR o IN SELECT DISTINCT proname, CASE WHEN provariadic = 0 THEN pronargs ELSE 3 END AS nargs, proretset,
      CASE WHEN prorettype::regtype::text LIKE 'any%' THEN 'text' ELSE prorettype::regtype::text END AS result
      FROM pg_proc WHERE oid IN ($named{pg_proc})
    UNION SELECT split_part(signature, '(', 1), n, false, 'text' FROM unnest(own) AS signature, generate_series(0, 2) AS n LOOP
    FOR i IN CASE WHEN o.nargs = 3 THEN 1 ELSE o.nargs END .. o.nargs LOOP
      FOR combination IN
        SELECT '' WHERE i = 0
        UNION ALL SELECT format('%s', x) FROM unnest(types) AS x WHERE i = 1
        UNION ALL SELECT format('%s, %s', x, y) FROM unnest(types) AS x, unnest(types) AS y WHERE i = 2
        UNION ALL SELECT format('%s, %s, %s', x, y, z) FROM unnest(few) AS x, unnest(few) AS y, unnest(few) AS z WHERE i = 3
      LOOP
        CONTINUE WHEN format('%s(%s)', o.proname, combination) = ANY (own);
        EXECUTE format('CREATE OR REPLACE FUNCTION public.%I(%s) RETURNS %s %s LANGUAGE plpgsql AS \$\$BEGIN RAISE ''sprung: function''; END\$\$',
          o.proname, combination, CASE WHEN o.proretset THEN 'SETOF' ELSE '' END, o.result);
      END LOOP;
    END LOOP;
  END LOOP;
END \$do\$});
	return $dbh->selectrow_array(q{SELECT (SELECT count(*) FROM pg_catalog.pg_operator WHERE oprnamespace = 'public'::regnamespace)
		+ (SELECT count(*) FROM pg_catalog.pg_proc WHERE pronamespace = 'public'::regnamespace)});
}

1;
