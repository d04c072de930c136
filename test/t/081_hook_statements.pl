# The statements of a hook, and its role: statements as psql sends them; settings of the
# owner of the database or of the role against it; databases and roles that cannot.
use EtcdLeader::Test;
use EtcdLeader::Hooks;
use EtcdLeader::Session;

my $etcd = EtcdLeader::Etcd->new;
my $node = create_with_hooks('pg1', [], etcd => $etcd, settings => { hooks_max_workers => 16 }, conf => "log_min_messages = warning\nmax_worker_processes = 40\n",
	sql => [ 'CREATE TABLE t (line int, i int)', 'CREATE ROLE boss LOGIN SUPERUSER', 'CREATE ROLE owner LOGIN', 'CREATE ROLE app LOGIN', 'GRANT ALL ON t TO app',
	  q{CREATE PROCEDURE two() LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.t VALUES (20, 1); COMMIT; INSERT INTO public.t VALUES (20, 2); ROLLBACK; INSERT INTO public.t VALUES (20, 3); END $$},
	  'CREATE TABLE r (i int)', 'CREATE RULE r AS ON INSERT TO r DO ALSO INSERT INTO t VALUES (31, NEW.i)' ]);
$node->wait_until_leader;

# The file with these hooks, and how their first runs end: "status: message" of each line.
sub ends_of
{
	my (@hooks) = @_;
	reload_hooks($node, @hooks);
	return map { my $line = $_;
		my $hook = poll(20, sub { my $h = hook($node, $line); $h->{ended_at} && $h->{status} ne 'cancelled' ? $h : undef }) // { status => 'it does not end' };
		join ': ', grep { defined } @{$hook}{qw(status message)} } 1 .. @hooks;
}

# ---- statements ---------------------------------------------------------------

my $T  = 'INSERT INTO public.t VALUES';
my $ok = qr/^succeeded$/;
my @cases = (
	[ 'one statement', "$T (1, 1)", $ok, '1' ],
	[ 'several', "$T (2, 1); ; $T (2, 2) -- the end", $ok, '1 2' ],
	[ 'several, and one fails', "$T (3, 1); SELECT 1/0; $T (3, 3)", qr/^failed: division by zero/, '1' ],
	[ 'a block', "BEGIN; $T (4, 1); $T (4, 2); COMMIT; $T (4, 3)", $ok, '1 2 3' ],
	[ 'a block that fails', "BEGIN; $T (5, 1); SELECT 1/0; COMMIT", qr/^failed: division/, '' ],
	[ 'a block that is rolled back', "BEGIN; $T (6, 1); ROLLBACK; $T (6, 2)", $ok, '2' ],
	[ 'savepoints', "BEGIN; $T (7, 1); SAVEPOINT s; $T (7, 2); ROLLBACK TO s; COMMIT", $ok, '1' ],
	[ 'a block without an end', "BEGIN; $T (8, 1)", qr/^failed: the command ended within a transaction block/, '' ],
	[ 'settings of the session', q{SET work_mem = '3MB'; INSERT INTO public.t SELECT 9, (current_setting('work_mem') = '3MB')::int}, $ok, '1' ],
	[ 'VACUUM', "CREATE TABLE public.v (); VACUUM FULL public.v; DROP TABLE public.v", $ok, '' ],
	[ 'CREATE INDEX CONCURRENTLY', 'CREATE TABLE public.c (i int); CREATE INDEX CONCURRENTLY c_i ON public.c (i); DROP TABLE public.c', $ok, '' ],
	[ 'DO that commits', "DO \$\$ BEGIN $T (12, 1); COMMIT; PERFORM 1/0; END \$\$", qr/^failed: division/, '1' ],
	[ 'ALTER SYSTEM', q{ALTER SYSTEM SET deadlock_timeout = '777ms'}, $ok, '' ],
	[ 'a cursor', "BEGIN; DECLARE c CURSOR FOR SELECT 1; FETCH ALL FROM c; $T (14, 5); COMMIT", $ok, '5' ],
	[ 'a prepared statement', "PREPARE p(int) AS $T (15, \$1); EXECUTE p(7)", $ok, '7' ],
	[ 'temporary tables', 'CREATE TEMP TABLE x AS SELECT 16, 4 AS i; INSERT INTO public.t TABLE pg_temp.x', $ok, '4' ],
	[ 'NOTIFY', 'NOTIFY somewhere', $ok, '' ],
	[ 'LISTEN', 'LISTEN somewhere', qr/^failed: cannot execute LISTEN within a background process/, '' ],
	[ 'COPY TO STDOUT', "$T (19, 1); COPY public.t TO STDOUT", qr/^failed: COPY FROM STDIN and COPY TO STDOUT are not possible in a hook/, '1' ],
	[ 'CALL that commits', 'CALL public.two()', $ok, '1 3' ],
	[ 'COPY FROM PROGRAM', q{COPY public.t FROM PROGRAM 'printf "21\\t8\\n"'} =~ s/"/""/gr, $ok, '8' ],
	[ 'PREPARE TRANSACTION', "BEGIN; $T (22, 1); PREPARE TRANSACTION 'x'", qr/^failed: cannot PREPARE a transaction that requires leadership/, '' ],
	[ 'no SQL', 'SELEC 1', qr/^failed: syntax error at or near "SELEC"/, '' ],
	[ 'a message of 10 kB', q{DO $$ BEGIN RAISE '%', repeat('ü', 5000); END $$}, qr/^failed: (?:\xc3\xbc){511}$/, '' ],
	[ 'its own timeout', q{SET statement_timeout = '100ms'; SELECT pg_sleep(10)}, qr/^failed: canceling statement due to statement timeout/, '' ],
	[ 'no timeout of its own', 'SET statement_timeout = 0; SELECT pg_sleep(10)', qr/^failed: canceling statement due to statement timeout/, '', '1s' ],
	[ 'a timeout for all statements', "SELECT pg_sleep(0.7); SELECT pg_sleep(0.7); $T (27, 1)", qr/^failed: canceling statement due to statement timeout/, '', '1s' ],
	[ 'somebody else', 'RESET SESSION AUTHORIZATION; RESET ROLE; SET SESSION AUTHORIZATION boss', qr/^failed: permission denied to set session authorization/, '', '20s', 'app' ],
	[ 'what the role may not', 'SELECT * FROM pg_authid', qr/^failed: permission denied for table pg_authid/, '', '20s', 'app' ],
	[ 'DROP of its own database', 'DROP DATABASE postgres', qr/^failed: cannot drop the currently open database/, '' ],
	[ 'a rule that makes two of one', 'INSERT INTO public.r VALUES (6)', $ok, '6' ]);
my @ends = ends_of(map { my ($what, $command, undef, undef, $timeout, $role) = @$_; join ' ', 'elected postgres postgres', $role // 'boss', $timeout // '20s', qq{"$command"} } @cases);
for my $i (0 .. $#cases)
{
	my ($what, undef, $result, $rows) = @{ $cases[$i] };
	like($ends[$i], $result, "$what: how it ends");
	# a hook that fails runs again
	is($node->value('SELECT string_agg(DISTINCT i::text, $$ $$ ORDER BY i::text) FROM t WHERE line = ?', $i + 1) // '', $rows, "$what: its rows");
}

# ---- settings against a hook of a superuser -------------------------------------------

$node->value('CREATE DATABASE app OWNER owner');
my $app = $node->connect_db('app', user => 'owner');
$app->do($_) for 'CREATE TABLE public.done (what text)', 'CREATE SCHEMA evil',
  # what an unqualified name would call
  q{CREATE FUNCTION evil.now() RETURNS timestamptz LANGUAGE sql AS $$ INSERT INTO public.done VALUES ('evil ' || session_user); SELECT pg_catalog.clock_timestamp() $$},
  q{CREATE FUNCTION evil.etcd_fencing_token() RETURNS bigint LANGUAGE sql AS $$ INSERT INTO public.done VALUES ('evil'); SELECT 1::bigint $$};
my %attack = (
	search_path => 'evil, public, pg_catalog', client_encoding => 'LATIN1', role => 'owner', session_authorization => 'owner', exit_on_error => 'on', standard_conforming_strings => 'off',
	default_transaction_read_only => 'on', transaction_read_only => 'on', default_transaction_isolation => 'serializable', statement_timeout => '1ms', lock_timeout => '1ms',
	idle_in_transaction_session_timeout => '1ms', synchronous_commit => 'remote_apply', max_parallel_workers_per_gather => '4', row_security => 'off',
	'etcd_leader.require_leadership_of' => 'nowhere', 'etcd_leader.hook_fencing_token' => '99', 'etcd_leader.hook_election' => 'forged');
my $command = q{DO $$ BEGIN PERFORM pg_sleep(0.02); PERFORM 1 / 0; EXCEPTION WHEN division_by_zero THEN NULL; END $$; INSERT INTO public.done SELECT pg_catalog.format('%s %s %s %s %s %s', session_user, current_user, now() IS NOT NULL, 'a\b', pg_catalog.current_setting('etcd_leader.hook_fencing_token'), pg_catalog.current_setting('etcd_leader.hook_election'))};
my $told = join ' ', $node->token, 'postgres';
for my $scope ('DATABASE app', 'ROLE boss', 'ROLE boss IN DATABASE app')
{
	for my $name (sort keys %attack)
	{
		my $dbh = $scope =~ /^DATABASE/ ? $app : $node->dbh;
		my $refused = eval { $dbh->do("ALTER $scope SET $name = " . ($name eq 'search_path' ? $attack{$name} : "'$attack{$name}'")); 1 } ? '' : $dbh->errstr;
		like($refused, qr/^$|permission denied|cannot be (changed|set)|not supported/, "$scope: $name is set, or may not be") if $refused;
		$app->do('TRUNCATE public.done');
		my ($end) = ends_of(qq{elected postgres app boss 20s "/* $scope $name */ $command"});
		is($end, 'succeeded', "$scope SET $name: the hook runs");
		is(join(' | ', @{ $app->selectcol_arrayref('SELECT what FROM public.done') }), "boss boss t a\\b $told", "$scope SET $name: as if it were not set");
		# PostgreSQL 17 and newer reset a few of them by RESET ALL only, and not for all who may set them
		$node->value("ALTER $scope RESET ALL");
	}
}
# All settings that a database or a role can have, at once; and parameters of libraries
# that are loaded later, or never.
my @settings = $node->rows(q{SELECT name, setting, vartype, context, min_val, max_val, enumvals FROM pg_settings WHERE context IN ('user', 'superuser')});
my %placeholder = ('plpgsql.check_asserts' => 'off', 'plpgsql.variable_conflict' => 'use_column', 'evil.parameter' => 'evil');

# Gives a setting another value in that scope.  The value; undef: there is none.
sub alter
{
	my ($dbh, $scope, $setting) = @_;
	my %is   = %$setting;
	my @other = $is{vartype} eq 'bool' ? ($is{setting} eq 'on' ? 'off' : 'on') : $is{vartype} eq 'enum' ? @{ $is{enumvals} } :
	  $is{vartype} eq 'string' ? ('evil', 'POSIX', 'SQL, DMY', 'Asia/Tokyo', 'pg_catalog.english', 'India', 'LATIN1', 'pg_catalog, evil', 'view', 'all', 'error') : ($is{setting} + 1, $is{setting} - 1, $is{min_val}, $is{max_val});
	for my $value (grep { $_ ne $is{setting} } @other)
	{
		return $value if eval { $dbh->do("ALTER $scope SET $is{name} = " . ($is{name} eq 'search_path' ? $value : $dbh->quote($value))); 1 };
	}
	return;
}
my $show = q{TRUNCATE public.found; INSERT INTO public.found SELECT name, setting, reset_val FROM pg_settings UNION ALL SELECT 'date', ('02/03/2026'::date - '2026-01-01'::date)::text, '' UNION ALL SELECT 'evil.parameter', coalesce(current_setting('evil.parameter', true), ''), ''; }
  . q{DO $$ BEGIN ASSERT false; EXCEPTION WHEN assert_failure THEN INSERT INTO public.found VALUES ('plpgsql.check_asserts', 'on', ''); END $$; }
  . q{DO $$ DECLARE name text := 'ambiguous'; BEGIN PERFORM count(*) FROM public.found WHERE name = 'x'; EXCEPTION WHEN ambiguous_column THEN INSERT INTO public.found VALUES ('plpgsql.variable_conflict', 'error', ''); END $$};
$app->do('CREATE TABLE public.found (name text, setting text, reset_val text)');
sub found
{
	my ($what) = @_;
	my ($end) = ends_of(qq{elected postgres app boss 20s "/* $what */ $show"});
	is($end, 'succeeded', "$what: the hook runs");
	return { map { ($_->[0] => "$_->[1] / $_->[2]") } @{ $app->selectall_arrayref('SELECT * FROM public.found') } };
}
my $expected = found('no settings');
cmp_ok(scalar(keys %$expected), '>', @settings, 'the hook sees all of the settings');
for my $scope ('DATABASE app', 'ROLE boss', 'ROLE boss IN DATABASE app', 'ROLE ALL')
{
	# the owner alters what he may, and a superuser the rest
	my ($superuser, $owner) = ($node->connect_db, $node->connect_db('app', user => 'owner'));
	my @unset = sort grep { my $name = $_;
		my ($setting) = grep { $_->{name} eq $name } @settings;
		!defined alter($scope =~ /^DATABASE/ && $setting->{context} eq 'user' ? $owner : $superuser, $scope, $setting) } map { $_->{name} } @settings;
	$superuser->do("ALTER $scope SET $_ = '$placeholder{$_}'") for sort keys %placeholder;
	cmp_ok(scalar(@unset), '<=', 5, "$scope: all settings but a few are altered") or diag("@unset");
	note("not altered: @unset");
	is_deeply(found("all of $scope"), $expected, "$scope: none is in effect");
	$superuser->do("ALTER $scope RESET ALL");
}
# a hook that sets one itself
my ($own_end) = ends_of(q{elected postgres app boss 20s "SET DateStyle = 'SQL, DMY'; TRUNCATE public.done; INSERT INTO public.done SELECT current_setting('DateStyle'); RESET DateStyle; INSERT INTO public.done SELECT current_setting('DateStyle')"});
is(join(' | ', $own_end, @{ $app->selectcol_arrayref('SELECT what FROM public.done') }), 'succeeded | SQL, DMY | ' . $node->value('SHOW DateStyle'), 'a hook sets one itself, and RESET returns to the value of the server');

# a hook that is not fenced, in a database that requires leadership
$node->value(q{ALTER ROLE boss SET etcd_leader.require_leadership_of = 'postgres'});
reload_hooks($node, 'unelected postgres app boss 20s "INSERT INTO public.done VALUES (\'off\')"');
$node->value('SELECT etcd_resign(rejoin => false)');
poll_is(10, sub { hook($node, 1)->{status} }, 'succeeded', 'require_leadership_of of the role does not stop an unelected hook') or diag(hook($node, 1)->{message});
$node->value('ALTER ROLE boss RESET ALL');
$node->value('SELECT etcd_campaign()');
$node->wait_until_leader;

# ---- databases and roles that cannot ------------------------------------------------------

$node->value($_) for 'CREATE ROLE closed NOLOGIN', 'CREATE DATABASE closed ALLOW_CONNECTIONS false';
my $offset = $node->log_size;
is_deeply([ ends_of('elected postgres postgres nobody_here 20s "SELECT 1"', 'elected postgres postgres closed 20s "SELECT 1"', 'elected postgres nowhere boss 20s "SELECT 1"',
			'elected postgres closed boss 20s "SELECT 1"', 'elected postgres postgres boss 20s "SELECT 1"') ],
	[ 'failed: role "nobody_here" does not exist', 'failed: role "closed" is not permitted to log in', 'failed: database "nowhere" does not exist',
		'failed: database "closed" is not currently accepting connections', 'succeeded' ], 'a database or role that cannot fails its run');
is(hook($node, 1)->{sqlstate}, '28000', 'with its SQLSTATE');
poll(10, sub { hook($node, 1)->{failures} >= 2 }) or die 'it is not tried again';
is($node->log_count('FATAL:  role "nobody_here" does not exist', $offset), 1, 'the log says so once');
is($node->log_count('CONTEXT:  hook in line 1 of the hooks file, event "elected"', $offset), 1, 'and of which hook');
$node->value('ALTER ROLE closed LOGIN');
poll_is(15, sub { hook($node, 2)->{status} }, 'succeeded', 'as soon as the role can, it runs');

$node->value(q{CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0});
is_deeply([ ends_of(q{elected postgres latin boss 20s "DO $$ BEGIN RAISE 'trüb' USING DETAIL = 'süß'; END $$"}) ], ["failed: tr\xc3\xbcb\nDETAIL:  s\xc3\xbc\xc3\x9f"], 'a message of a database in another encoding');

# ---- what a database cannot hold any more --------------------------------------------------

is($node->value(q{SELECT count(*) FROM pg_depend JOIN pg_class c ON c.oid = objid WHERE classid = 'pg_class'::regclass AND deptype = 'e' AND relkind IN ('r', 'p', 'S', 'm', 'f')}), 0,
	'the extension has no table: nothing to dump, publish, trigger or shadow');

is($node->log_count('was terminated by signal|PANIC|TRAP'), 0, 'nothing has crashed');
# ---- a drain waits for no run that has ended, however that was ------------------

reload_hooks($node);
$node->wait_until_leader;
my $began = now();
ok($node->value(q{SELECT etcd_resign(rejoin => false, drain => '20 s')}), 'a drain after hooks that failed');
in_time(now() - $began, 1, 'is at once');
done_testing();
