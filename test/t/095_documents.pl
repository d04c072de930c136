# The documents agree with the code, in both directions: functions, columns,
# settings, problems, events, reasons, states, metrics, SQLSTATEs, paths of HTTP.
# Every link leads somewhere, and every block of code is run or is an example.
use EtcdLeader::Test;
use EtcdLeader::Documents;
use EtcdLeader::Http;

my $top   = documents_top();
my @pages = document_pages();
my %text  = map { $_ => document($_) } @pages;
my $reference = $text{'doc/reference.md'};
my ($code, $headers) = map { join '', map { slurp_file($_) } glob } "$top/src/*.c $top/src/*/*.c $top/http/*.c", "$top/src/*/*.h";

# Compares two sets of words; names the words that only one set has.
sub same
{
	my ($documented, $real, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my (%documented, %real);
	@documented{@$documented} = ();
	@real{@$real} = ();
	my @missing = sort grep { !exists $documented{$_} } keys %real;
	my @wrong   = sort grep { !exists $real{$_} } keys %documented;
	ok(%real && !@missing && !@wrong, $name) or diag("not documented: @missing\ndocumented, and not there: @wrong");
	return;
}

# The text below a heading, up to the next one of its level or a higher one.
sub section
{
	my ($page, $heading) = @_;
	my ($marks, $rest) = $text{$page} =~ /^(#+) \Q$heading\E\n(.*)/ms or die "$page has no section $heading";
	my $level = length $marks;
	return $rest =~ s/^#{1,$level} .*//msr;
}

# Rows of a table whose first line has these heads, as lists of cells.
sub table_rows
{
	my ($section, @heads) = @_;
	my $head = join ' \| ', map { quotemeta } @heads;
	my ($rows) = $section =~ /^\| $head \|\n\|[-|]+\|\n((?:\|.*\n)+)/m or die "no table: @heads";
	return map { [ map { s/^\s+|\s+$//gr } split /(?<!\\)\|/, s/^\||\|$//gr ] } split /\n/, $rows;
}

# The first cells of a table, each one name in `backquotes`.
sub table_names
{
	my ($section, @heads) = @_;
	return map { $_->[0] =~ /^`(.*)`$/ ? $1 : "not a name: $_->[0]" } table_rows($section, @heads);
}

my $etcd = EtcdLeader::Etcd->new;
my $port = PostgreSQL::Test::Cluster::get_free_port();
my $node = EtcdLeader::Instance->create('pg1', etcd => $etcd, extension => 'README', settings => { elections => 'shop', http_listen => "127.0.0.1:$port" });
$node->wait_until_leader;

# ---- SQL ---------------------------------------------------------------------------

my $members = q{SELECT objid FROM pg_depend WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
	AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'etcd_leader') AND classid = };

# A function has a heading, and below it its signature.
my (%documented, %section);
for my $page (grep { m{^doc/} } @pages)
{
	while ($text{$page} =~ /^### (\w+)\n\n`(?:CALL )?(\g1\([^`]*\))`(?: → `([^`]*)`)?\n(.*?)(?=^#|\z)/msg)
	{
		$documented{ $2 . (defined $3 ? " → $3" : '') } = 1;
		$section{$1} = $4;
	}
}
my @functions = $node->rows(qq{SELECT proname AS name, proname || '(' || pg_get_function_arguments(oid) || ')' AS signature,
	pg_get_function_result(oid) AS result, prokind, provolatile, proparallel, obj_description(oid, 'pg_proc') AS comment,
	has_function_privilege('public', oid, 'EXECUTE') AS public
	FROM pg_proc WHERE oid IN ($members 'pg_proc'::regclass) ORDER BY 1});
my (@signatures, @revoked);
for my $function (@functions)
{
	my $name      = $function->{name};
	my $signature = $function->{signature};
	$signature =~ s/::(?:text|interval|bigint|boolean|name)\b//g;
	$signature =~ s/\bIN (?=\w)//g;
	$signature =~ s/'00:00:05'/'5 s'/;
	$signature =~ s/'00:00:10'/'10 s'/;
	$signature =~ s/'00:01:00'/'1 min'/;
	# a view's function has the columns of the view
	$signature =~ s/\(OUT .*\)/()/s;
	# a function that returns a table has the columns of its result
	push @signatures, $signature . ($function->{prokind} eq 'p' ? '' : " → $function->{result}");
	push @revoked, $name unless $function->{public};
	ok($function->{comment}, "$name has a comment");
	next unless defined $section{$name};
	if ($function->{prokind} eq 'f')
	{
		my $properties = { i => 'IMMUTABLE', s => 'STABLE', v => 'VOLATILE' }->{ $function->{provolatile} }
		  . ', PARALLEL ' . { s => 'SAFE', r => 'RESTRICTED', u => 'UNSAFE' }->{ $function->{proparallel} };
		like($section{$name} =~ s/\n/ /gr, qr/\b\Q$properties\E\./, "$name: the reference says $properties");
	}
	# what every function raises stands before all of them
	my ($of_document, $of_comment) = map {
		my %states = map { $_ => 1 } /\b(?=[0-9A-F]{5}\b)(?=\d|0A)[0-9A-F]{5}\b/g;
		delete @states{qw(42704 55000 57014)};
		join ' ', sort keys %states
	} $section{$name}, $function->{comment} // '';
	is($of_document, $of_comment, "$name: reference and comment name the same SQLSTATEs");
}
same([ keys %documented ], \@signatures, 'functions and procedures: names, parameters, defaults, results');
my ($privileges) = section('doc/reference.md', 'Privileges') =~ /(^`etcd_resign`.*?are revoked)/ms;
same([ $privileges =~ /`(\w+)`/g ], \@revoked, 'functions that are revoked from PUBLIC');

# Views, tables and types have a heading, and a table of their columns.
my %short = ('timestamp with time zone' => 'timestamptz');
my @relations = ($node->rows(qq{SELECT c.oid, relname AS name, relkind AS kind, obj_description(c.oid, 'pg_class') AS comment
	FROM pg_class c WHERE c.oid IN ($members 'pg_class'::regclass) AND relkind IN ('v', 'r') ORDER BY 1}),
	$node->rows(qq{SELECT oid, typname AS name, 'c' AS kind, obj_description(oid, 'pg_type') AS comment
	FROM pg_type WHERE oid IN ($members 'pg_type'::regclass) AND EXISTS (SELECT 1 FROM pg_class AS c WHERE c.oid = typrelid AND relkind = 'c') ORDER BY 2}));
for my $relation (@relations)
{
	my $name = $relation->{name};
	my ($heading) = $name eq 'etcd_leader_event' ? 'Events' : ({ v => 'View', r => 'Table', c => 'Type' }->{ $relation->{kind} } . " $name");
	my ($page) = grep { $text{$_} =~ /^#+ \Q$heading\E$/m } @pages;
	ok($page, "$name has a heading '$heading'") or next;
	my @columns = $node->rows($relation->{kind} eq 'c'
		? q{SELECT attname AS name, format_type(atttypid, NULL) AS type, 1 AS comment FROM pg_attribute
			WHERE attrelid = (SELECT typrelid FROM pg_type WHERE oid = ?) AND attnum > 0 ORDER BY attnum}
		: q{SELECT attname AS name, format_type(atttypid, NULL) AS type, col_description(attrelid, attnum) AS comment FROM pg_attribute
			WHERE attrelid = ? AND attnum > 0 AND NOT attisdropped ORDER BY attnum}, $relation->{oid});
	is(join("\n", map { "$_->[0] $_->[1]" } table_rows(section($page, $heading), qw(column type meaning))),
		join("\n", map { "`$_->{name}` " . ($short{ $_->{type} } // $_->{type}) } @columns), "$name: its columns, their types and order");
	ok($relation->{comment}, "$name has a comment");
	is(join(' ', map { $_->{name} } grep { !$_->{comment} } @columns), '', "$name: each column has a comment");
}
for my $function (grep { defined $_->{result} && $_->{result} =~ /^TABLE/ } @functions)
{
	same([ table_names($section{ $function->{name} }, qw(column meaning)) ], [ $function->{result} =~ /(?:TABLE\(|, )"?(\w+)"? /g ],
		"$function->{name}: its columns");
}

# ---- settings -------------------------------------------------------------------------

{
	my (%line, @real, %expected);
	$line{$1} = $2 while $reference =~ /^### (etcd_leader\.\w+)\n\n(.*)$/mg;
	my %change = (sighup => 'reload', postmaster => 'restart', superuser => 'superuser', user => 'any user');
	for my $setting ($node->rows(q{SELECT *, enumvals::text[] AS allowed FROM pg_settings WHERE name LIKE 'etcd\_leader.%' ORDER BY name}))
	{
		my $type = $setting->{vartype};
		push @real, $setting->{name};
		my $default = $type eq 'string' || $setting->{boot_val} eq '' ? "'$setting->{boot_val}'" : $setting->{boot_val};
		my $range = $type eq 'integer' ? " · $setting->{min_val} to $setting->{max_val}"
		  : $type eq 'enum' ? ' · one of ' . join(', ', map { length ? "`$_`" : "`''`" } @{ $setting->{allowed} }) : '';
		my $unit = $setting->{unit} ? " $setting->{unit}" : '';
		is($line{ $setting->{name} }, "`$type` · default `$default`$unit$range · $change{ $setting->{context} }",
			"$setting->{name}: type, default, range, when it changes");
		$expected{ $setting->{name} =~ s/^etcd_leader\.//r } = "`$default`$unit | $setting->{short_desc}";
		like($setting->{short_desc}, qr/^[A-Z].*\.$/, "$setting->{name}: its description is a sentence");
	}
	same([ keys %line ], \@real, 'settings');
	my %row = section('doc/reference.md', 'Settings') =~ /^\| \[`(\w+)`\]\(#etcd_leader\1\) \| (.*) \|$/mg;
	is_deeply(\%row, \%expected, 'the table of all settings');
	my @named = map { $text{$_} =~ /`(etcd_leader\.\w+)`/g } @pages;
	my %known = map { $_ => 1 } @real, qw(etcd_leader.control etcd_leader.c etcd_leader.h etcd_leader.so);
	my %columns = map { $_ => 1 } 'etcd_leader_stats.stats_reset';
	is(join(' ', grep { !$known{$_} } @named), '', 'no page names a setting that is not there');
}

# ---- words ------------------------------------------------------------------------------

# The strings in the body of a function of C.
sub strings_of
{
	my ($function) = @_;
	my ($body) = $code =~ /^\Q$function\E\(.*?\)\n\{(.*?)^\}/ms or die "there is no $function()";
	return $body =~ /"([^"]+)"/g;
}
same([ table_names(section('doc/reference.md', 'States'), qw(state meaning)) ],
	[ grep({ $_ ne 'unused' } strings_of('election_state_name')), $code =~ /row->state = "(.*)";/g ], 'states');
same([ table_names(section('doc/reference.md', 'Events'), qw(event when reason)) ],
	[ strings_of('election_event_name'), $headers =~ /define EVENT_CHANGE_NAME\s+"(.*)"/ ], 'events');
my @reasons = table_names(section('doc/reference.md', 'Events'), qw(reason meaning));
same([ grep { my $reason = $_; grep { $_ eq $reason } strings_of('election_reason_name') } @reasons ], [ strings_of('election_reason_name') ], 'reasons');
is(join(' ', grep { "$code$headers" !~ /"\Q$_\E"/ } @reasons), '', 'no reason that is not in the code');

# the list of problems: the items before the first warning are errors
{
	my ($enum) = "$code$headers" =~ /^typedef enum ProblemItem\n\{(.*?)^\} ProblemItem;/ms or die 'there is no ProblemItem';
	my ($first) = "$code$headers" =~ /define PROBLEM_FIRST_WARNING\s+(\w+)/ or die 'there is no PROBLEM_FIRST_WARNING';
	my ($names) = $code =~ /^problem_item_name\(.*?\)\n\{(.*?)^\}/ms or die 'there is no problem_item_name()';
	my %name = $names =~ /\[(PROBLEM_\w+)\] = "(.*?)"/g;
	my (@real, $severity);
	$severity = 'error';
	for my $item ($enum =~ /^\s+(PROBLEM_\w+)/mg)
	{
		$severity = 'warning' if $item eq $first;
		push @real, ($name{$item} // "no name of $item") . " $severity";
	}
	my @rows = table_rows(section('doc/reference.md', 'View etcd_leader_problems'), qw(item severity subject meaning));
	is(join("\n", map { "$_->[0] $_->[1]" =~ s/`//gr } @rows), join("\n", @real), 'problems, their severity and order');
	is(scalar(grep { $_->[3] eq '' } @rows), 0, 'each of them has a meaning');
	@rows = table_rows(section('doc/operations.md', 'Problems'), 'problem', 'what it means', 'what to do');
	is(join("\n", map { $_->[0] =~ s/`//gr } @rows), join("\n", map { s/ \w+$//r } @real), 'problems for administrators, in the same order');
	is(scalar(grep { $_->[1] eq '' || $_->[2] eq '' } @rows), 0, 'each of them has what it means and what to do');
	my @named = map { $text{$_} =~ /\[problems?\]\([^)]*\) `([^`]*)`/g } @pages;
	my %known = map { (s/ \w+$//r) => 1 } @real;
	is(join(' ', grep { !$known{$_} } @named), '', 'no page names a problem that is not there');
}

my %sqlstate;
{
	my $sharedir = `pg_config --sharedir` =~ s/\n//r;
	my %macro = map { /^(\w{5})\s+\w\s+(ERRCODE_\w+)\s+(\w+)/ ? ($2 => [ $1, $3 ]) : () } split /\n/, slurp_file("$sharedir/errcodes.txt");
	my @raised = map { join ' ', @{ $macro{$_} } } map { /ERRCODE_\w+/g } $code =~ /errcode\(([^()]*)\)/g;
	my @rows = table_rows(section('doc/reference.md', 'SQLSTATEs'), qw(SQLSTATE condition when));
	same([ map { ($_->[0] =~ s/`//gr) . " $_->[1]" } @rows ], \@raised, 'SQLSTATEs and their names');
}

# ---- HTTP ---------------------------------------------------------------------------------

{
	poll_ok(10, sub { http_code($port, '/health') == 200 }, 'HTTP is served');
	# a metric of each problem has a sample if there is one
	my $served = '';
	$node->configure(read_only_unless_leader_of => 'nothing');
	poll_ok(10, sub { ($served = (http_get($port, '/metrics'))[2]) =~ /^etcd_leader_problem\{item="settings",subject="etcd_leader\.read_only_unless_leader_of",severity="warning"\} 1$/m },
		'a problem has a sample');
	$node->configure(read_only_unless_leader_of => '');
	my %labels;
	while ($served =~ /^(\w+?)(?:_bucket|_sum|_count)?(?:\{([^}]*)\})? \S+$/mg)
	{
		my ($name, $labels) = ($1, $2 // '');
		$labels{$name} //= join ',', grep { $_ ne 'le' } $labels =~ /(\w+)="/g;
	}
	my %type = $served =~ /^# TYPE (\w+) (\w+)$/mg;
	same([ map { ($_->[0] =~ s/`//gr) . " $_->[1]" } table_rows(section('doc/reference.md', 'Metrics'), qw(metric type meaning)) ],
		[ map { $_ . ($labels{$_} ? "{$labels{$_}}" : '') . " $type{$_}" } keys %type ], 'metrics, their labels and types');
	my ($routes) = $code =~ /routes\[\] = \{(.*?)\n\}/s;
	same([ section('doc/http.md', 'Paths') =~ /^\| (`.*?) \|/mg ? map { /`(.*?)`/g } section('doc/http.md', 'Paths') =~ /^\| (`.*?) \|/mg : () ],
		[ $routes =~ /\{"(.*?)"/g ], 'paths of HTTP');
}

# ---- what is stable ------------------------------------------------------------------------

# Each name that the extension shows is there once; the tables of the reference agree with
# the code, as is checked above.
{
	my %stable = map { ($_->[0] => [ $_->[1] =~ /`([^`]*)`/g ]) } table_rows($text{'doc/stable.md'}, qw(what names));
	my $names = sub { return [ map { $_->{name} } @_ ] };
	my %real = (functions => $names->(grep { $_->{prokind} eq 'f' } @functions), procedures => $names->(grep { $_->{prokind} eq 'p' } @functions),
		'views, with their columns' => $names->(grep { $_->{kind} eq 'v' } @relations), 'types, with their attributes' => $names->(grep { $_->{kind} eq 'c' } @relations),
		'settings, each after `etcd_leader.`' => [ $reference =~ /^### etcd_leader\.(\w+)$/mg ],
		events => [ table_names(section('doc/reference.md', 'Events'), qw(event when reason)) ], 'reasons of events' => \@reasons,
		states => [ table_names(section('doc/reference.md', 'States'), qw(state meaning)) ],
		'items of problems' => [ table_names(section('doc/reference.md', 'View etcd_leader_problems'), qw(item severity subject meaning)) ],
		'metrics, with their labels' => [ map { s/\{.*//r } table_names(section('doc/reference.md', 'Metrics'), qw(metric type meaning)) ],
		'paths of HTTP' => [ map { /`(.*?)`/g } section('doc/http.md', 'Paths') =~ /^\| (`.*?) \|/mg ]);
	same([ keys %stable ], [ keys %real ], 'what is stable');
	for my $what (sort keys %real)
	{
		same($stable{$what}, $real{$what}, "stable: $what");
		is(scalar @{ $stable{$what} }, scalar @{ $real{$what} }, "stable: $what, each once");
	}
}

# ---- README, links and blocks ----------------------------------------------------------------

cmp_ok(scalar(() = $text{'README.md'} =~ /\n/g), '<=', 205, 'README has at most 205 lines');

# The links of the sources, and of the installed documents.
{
	is(scalar `$top/test/links $top @pages`, '', 'every link leads somewhere');
	my $installed = PostgreSQL::Test::Utils::tempdir();
	my $pg_config = $ENV{PG_CONFIG} || 'pg_config';
	is(system("make -s -C $top install-documents PG_CONFIG='$pg_config' DOCUMENTS=$installed"), 0, 'the documents are installed');
	my @there = map { s{^\Q$installed\E/}{}r } sort glob("$installed/*.md $installed/*/*.md");
	same(\@there, [ grep { m{^(?:README|SECURITY|CHANGELOG)\.md$|^doc/[^/]+$} } @pages ], 'the pages for users are installed, and no others');
	is(scalar `$top/test/links $installed @there`, '', 'every link of what is installed leads to what is installed');
}

# Every block of these pages is run by a test, but for these.
my %not_here = (
	'doc/operations.md' => qr/^(?:systemctl |spec:)/,	# a test has no systemd and no Kubernetes
	'doc/secured_etcd.md' => qr/^systemctl /,
	'doc/clients.md'    => qr/^Host=/);			# Npgsql is not in Debian
for my $page (sort keys %not_here)
{
	is(join(', ', map { "line $_->{line}" } grep { $_->{example} && $_->{text} !~ $not_here{$page} } document_blocks($page)), '', "$page: every block is run");
}

for my $page (@pages)
{
	my @unknown;
	for my $block (document_blocks($page))
	{
		next if $block->{example};
		my $by = $block->{test} // '';
		my $reads = $by && -f "$top/$by" && slurp_file("$top/$by");
		my $name = $block->{name} && $block->{name} =~ s/\.out$//r;
		my $is_read = $reads && ($reads =~ /\b\Q$name\E\b/ || $by eq 'test/t/096_tutorial.pl') && $reads =~ /\Q$page\E/;
		push @unknown, "line $block->{line}" unless $is_read;
	}
	is(join(', ', @unknown), '', "$page: every block of code is run by the test that its comment names, or is an example");
}

# ---- the short blocks of the pages -------------------------------------------------------------

{
	# each by the role that uses it
	my %role = (anybody => '', watcher => 'IN ROLE pg_monitor', operator => '');
	$node->value("CREATE ROLE $_ LOGIN $role{$_}") for keys %role;
	my ($anybody, $watcher, $operator) = map { $node->connect_db('postgres', user => $_) } qw(anybody watcher operator);

	# README's first query; its block is also of another test
	my ($success, $shown) = map { my $name = $_; map { $_->{text} } grep { ($_->{name} // '') eq $name } document_blocks('README.md') } 'success', 'success.out';
	my $printed = '';
	IPC::Run::run([ 'psql', '-Xq', '-P', 'footer=off', '-d', $node->connstr('postgres') . ' user=anybody', '-c', $success ], '>', \$printed);
	is($printed =~ s/ +$//mgr =~ s/\n+\z/\n/r, $shown, 'README: the installation works for an ordinary role');

	my $peer = EtcdLeader::Instance->create('pg2', etcd => $etcd, settings => { elections => 'shop' });
	$peer->wait_until_candidate;
	$node->value($_) for 'CREATE ROLE app', 'ALTER ROLE app SET etcd_leader.require_leadership_of = $$shop$$';
	my ($resign, $campaign) = map { document_block('doc/operations.md', $_) } qw(resign campaign);
	ok(!eval { $operator->do($resign) }, 'not everybody may resign');
	$node->value(document_block('doc/reference.md', 'grant'));

	my $rows = sub { my ($dbh, $query) = @_; return scalar @{ $dbh->selectall_arrayref($query) } };
	# a machine that is busy answers slowly
	my $problems = sub { return join "\n", map { "$_->{item}: $_->{problem}" } grep { $_->{item} ne 'ttl' } @{ $anybody->selectall_arrayref(document_block('doc/operations.md', 'monitor'), { Slice => {} }) } };
	poll_is(10, $problems, '', 'monitoring: all is well');
	is($rows->($watcher, document_block('doc/runbook.md', 'runbook')), 1, 'a row for the election');

	is(($anybody->selectrow_array(document_block('doc/operations.md', 'who_leads')))[1], 'pg1', 'the leader, which is restarted last');
	cmp_ok($rows->($anybody, document_block('doc/runbook.md', 'events')), '>', 0, 'events');

	# a hand-over to a named node, as the page prints it
	my $third = EtcdLeader::Instance->create('pg3', etcd => $etcd, settings => { elections => 'shop' });
	$third->wait_until_candidate;
	for my $block (qw(queue transfer))
	{
		my $printed = '';
		IPC::Run::run([ 'psql', '-Xq', '-P', 'footer=off', '-d', $node->connstr('postgres') . ' user=operator', '-c', document_block('doc/operations.md', $block) ], '>', \$printed);
		is($printed =~ s/ +$//mgr =~ s/\n+\z/\n/r, document_block('doc/operations.md', "$block.out"), "maintenance: $block");
	}
	is($third->is_leader, 1, 'maintenance: pg3 leads');
	$third->stop;
	$peer->value('SELECT etcd_resign()') if poll(10, sub { $peer->is_leader || $node->is_leader }) && $peer->is_leader;
	$node->wait_until_leader('shop');

	my $preferred = document_block('doc/operations.md', 'preferred');
	$node->append_conf('postgresql.conf', $preferred);
	$node->reload;
	poll_is(10, sub { $node->value(q{SELECT current_setting('etcd_leader.preferred_nodes') || ' ' || current_setting('etcd_leader.preferred_delay')}) },
		'pg1, pg2 30s', 'preferred nodes');
	$node->configure(preferred_nodes => '');

	my $elector = $node->elector_pid;
	$node->value(document_block('doc/operations.md', 'restart_elector'));
	poll_ok(10, sub { ($node->elector_pid // $elector) != $elector }, 'backup: another elector runs');
	$peer->wait_until_leader('shop');
	$node->wait_until_candidate('shop');
	$peer->value('SELECT etcd_resign()');
	$node->wait_until_leader('shop');

	$operator->do($resign);
	poll_ok(10, sub { $peer->is_leader }, 'maintenance: the other instance leads');
	is($node->status->{state}, 'resigned', 'maintenance: this one stays out');
	$operator->do($campaign);
	poll_is(10, sub { $node->status->{state} }, 'waiting', 'maintenance: it is back');
	$peer->value('SELECT etcd_resign()');
	$node->wait_until_leader('shop');
	$operator->do(document_block('doc/operations.md', 'drain'));
	poll_ok(10, sub { $peer->is_leader }, 'maintenance with a drain: the other instance leads');
	$operator->do($campaign);
	poll_is(10, sub { $node->status->{state} }, 'waiting', 'maintenance with a drain: it is back');
	$etcd->stop(0);
	poll_ok(20, sub { $problems->() =~ /^contact: /m }, 'monitoring: etcd is away');
	$etcd->start(0);
	$node->value($_) for map { "$_;" } split /;\n/, document_block('doc/operations.md', 'remove');
	is($node->value(q{SELECT count(*) FROM pg_extension WHERE extname = 'etcd_leader'}), 0, 'it is removed');
	is($node->value(q{SELECT count(*) FROM pg_db_role_setting}), 0, 'and so is the fence');
}

done_testing();
