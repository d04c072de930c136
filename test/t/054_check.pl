# etcd_leader_check(): a good set-up has no row, and each mistake has a row that names
# it, with the remedy.  The elector tries everything anew for it.  The function never exceeds
# its timeout, and shows no secret.
use EtcdLeader::Test;
use DBI ();
use DBD::Pg ();
use EtcdLeader::Certificates;
use EtcdLeader::Documents;
use EtcdLeader::Relay;

my $ca = EtcdLeader::Certificates->new;
my ($server_cert, $server_key) = $ca->sign('server', for => ['IP:127.0.0.1'], days => 400);
my ($good_cert,   $good_key)   = $ca->sign('good',   days => 400);
my ($short_cert,  $short_key)  = $ca->sign('short',  days => 7);
my $other_ca = EtcdLeader::Certificates->new;
my $second   = 'http://127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port();
my $closed   = 'http://127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port();
my $etcd     = EtcdLeader::Etcd->new(
	listen => [$second],
	flags  => ['--bcrypt-cost=4'],
	tls    => [ '--cert-file' => $server_cert, '--key-file' => $server_key, '--trusted-ca-file' => $ca->ca, '--client-cert-auth' ]);
my $alias   = 'http://127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port();
my $foreign = EtcdLeader::Etcd->new(listen => [$alias]);
my $url     = $etcd->endpoints;
my $tls     = $etcd->tls_endpoints;
my $id      = $etcd->cluster_id;

my $node = EtcdLeader::Instance->create('pg1', endpoints => "$url,$second", settings => { ttl => 3, watched_prefixes => 'flags/' });
$node->wait_until_leader;
my $dir    = PostgreSQL::Test::Utils::tempdir('check');
append_to_file("$dir/both", slurp_file($_->ca)) for $ca, $other_ca;
my $secret = 'a-secret-word';

# Sets settings, and waits until this session has them.
sub set
{
	my (%settings) = @_;
	$node->configure(%settings);
	my ($name) = sort keys %settings;
	poll(5, sub { $node->value("SELECT current_setting('etcd_leader.$name')") eq $settings{$name} }) or die "$name is not set";
	return;
}

my $all_rows = '';

# The rows as texts "item|subject|severity|problem|hint".
sub check
{
	my (@arguments) = @_;
	my @rows = map { my $row = $_; join '|', map { $row->{$_} // '' } qw(item subject severity problem hint) }
	  $node->rows('SELECT * FROM etcd_leader_check(' . join(', ', map { "'$_'" } @arguments) . ')');
	$all_rows .= join '', map { "$_\n" } @rows;
	return @rows;
}

# A check has a row like that, as soon as the elector has the settings.
sub has_row
{
	my ($what, $pattern) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @rows;
	poll_ok(15, sub { @rows = check(); grep { /^$pattern/ } @rows }, $what) or diag("no row like $pattern:\n" . join "\n", @rows);
	return;
}

# What is wrong is over.  Slow answers are no matter of this test.
sub is_fine
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	poll_is(20, sub { join "\n", grep { !/^ttl\|latency\|/ } check() }, '', $what);
	return;
}

# An endpoint cannot be used: its own problem, or the lack of contact.
my $fails = qr/(?:endpoint|contact)\|[^|]*\|(?:warning|error)\|(?:etcd at "[^"]+" cannot be used|no contact with etcd, so this instance cannot become or stay leader): /;

# ---- a good set-up ----
{
	is_fine('a good set-up has no row');
	is(scalar(my @keys = $etcd->keys('postgres/etcd_leader')), 0, 'no key is written');
	my $revision = $etcd->post('/v3/kv/range', { key => 'eA==' })->{header}{revision};
	check();
	is($etcd->post('/v3/kv/range', { key => 'eA==' })->{header}{revision}, $revision, 'and etcd has no new revision');
	set(protocol => 'json');
	is_fine('in JSON');
	set(protocol => 'grpc');
}

# ---- who may ----
{
	$node->value('CREATE ROLE watcher LOGIN; GRANT pg_monitor TO watcher; CREATE ROLE anybody LOGIN');
	my $watcher = $node->connect_db('postgres', user => 'watcher');
	my $rows = sub { return $watcher->selectrow_array("SELECT count(*) FROM etcd_leader_check() WHERE item <> 'ttl'") };
	poll_is(10, $rows, 0, 'a member of pg_monitor may check');
	is($watcher->selectrow_array('SELECT count(*) FROM etcd_candidates()'), 1, 'and read the queue');
	my $anybody = $node->connect_db('postgres', user => 'anybody');
	is(($node->failure("SELECT * FROM $_('1 s')", $anybody))[0], '42501', "$_: others may not") for 'etcd_leader_check';
	is($anybody->selectrow_array("SELECT count(*) FROM etcd_leader_problems WHERE item <> 'ttl'"), 0, 'but read the list');
	$watcher->do('SET search_path = pg_temp, public');
	$watcher->do('CREATE TEMP VIEW pg_extension AS SELECT 1 / 0 AS extversion');
	poll_is(10, $rows, 0, 'search_path does not matter');
	$_->disconnect for $watcher, $anybody;
}

# ---- endpoints and clusters ----
{
	set(endpoints => "$url,$second,$closed");
	has_row('a dead endpoint', qr/endpoint\|$closed\|warning\|etcd at "$closed" cannot be used: could not connect to etcd at "$closed": Connection refused\|/);
	has_row('one more failure costs the majority', qr/majority\|\|warning\|1 of 3 endpoints cannot be used, and etcd needs most of its members\|Mend/);

	# one server in three spellings is one endpoint
	my ($port) = $url =~ /:(\d+)$/;
	set(endpoints => "$url,http://127.1:$port,http://[::ffff:7f00:1]:$port/,$url");
	is_fine('an endpoint in several spellings');

	my $spare = $foreign->endpoints;
	my $spare_id = $foreign->cluster_id;
	set(endpoints => "$url,$second,$spare");
	has_row('a foreign endpoint', qr/cluster\|\Q$spare\E\|error\|etcd at "\Q$spare\E" is not used, as it belongs to another cluster: etcd at "\Q$spare\E" is of cluster $spare_id, etcd at "\S+" of cluster $id\|The endpoints must name members of one cluster/);
	set(endpoints => "$spare,$url");
	has_row('two clusters: the one in use', qr/cluster\|\Q$spare\E\|error\|.* is of cluster/);
	has_row('and none after a restart', qr/cluster\|\|error\|1 of 2 endpoints belong to the etcd cluster in use, and more than half must: after a restart, this instance would not lead\|Mend the other endpoints/);
	# the members announce another endpoint: this one was removed from the cluster, or never was in it
	set(endpoints => "$spare,$alias,$closed");
	has_row('an endpoint that no member announces', qr/endpoint\|$closed\|warning\|.*Connection refused\|[^|]*No member of the cluster announces this URL any more\. Remove it from the settings\. The members announce \Q$spare\E\./);
	set(endpoints => "$url,$second");
	is_fine('mended: no row');
}

# ---- TLS ----
{
	set(endpoints => $url =~ s/http/https/r);
	has_row('https to plain HTTP', qr/${fails}no TLS connection to etcd.*\|.*speaks http/);
	set(endpoints => $tls, ssl_ca_file => $other_ca->ca);
	has_row('another authority', qr/${fails}the certificate of etcd at "\Q$tls\E" is not valid/);
	set(ssl_ca_file => $ca->ca);
	has_row('no client certificate', qr/${fails}etcd at "\Q$tls\E" requires a client certificate.*\|Set "etcd_leader\.ssl_cert_file"/);
	set(ssl_cert_file => $short_cert, ssl_key_file => $short_key);
	has_row('a certificate for a week', qr/expiry\|\Q$short_cert\E\|warning\|the certificate in "\Q$short_cert\E" expires in [67] days\|Renew/);
	poll_ok(15, sub { !grep { /^(endpoint|contact)\|/ } check() }, 'TLS');
	chmod 0640, $short_key or die;
	has_row('a key that others can read', qr/file\|etcd_leader\.ssl_key_file\|error\|file "\Q$short_key\E" \("etcd_leader\.ssl_key_file"\) has group or world access/);
	chmod 0600, $short_key or die;

	# a fault of a client's certificate: both rows name it, with one hint
	my ($foreign_cert, $foreign_key) = $other_ca->sign('foreign');
	for my $case (
		[ 'not yet valid', [ $ca->sign('early', between => [ 86400, 172800 ]) ], 'the certificate is not valid before 2', 'Correct the clock' ],
		[ 'none of a client', [ $ca->sign('serving', usage => 'serverAuth') ], 'the certificate is not one for TLS clients', 'Make the certificate anew, with clientAuth' ],
		[ 'with a key of another', [ $good_cert, $short_key ], 'the private key does not belong to the certificate', 'Set "etcd_leader.ssl_key_file" to the key' ],
		[ 'expired', [ $ca->sign('expired', between => [ -172800, -86400 ]) ], 'the certificate has expired, at 2', 'Renew the certificate' ])
	{
		my ($what, $files, $fault, $hint) = @$case;
		my $own = $what eq 'expired' ? qr/the certificate in "\Q$files->[0]\E" has expired/ : qr/\Q$fault\E/;
		set(ssl_cert_file => $files->[0], ssl_key_file => $files->[1]);
		has_row("$what: the certificate", qr/certificate\|\Q$files->[0]\E\|error\|$own.*\|\Q$hint\E/);
		has_row("$what: the endpoint", qr/$fails.*(?:client certificate|could not use the files of ).*: \Q$fault\E.*\|\Q$hint\E/);
	}
	set(ssl_cert_file => $foreign_cert, ssl_key_file => $foreign_key);
	has_row('of another authority: refused', qr/${fails}etcd at .* does not accept the client certificate \(alert [a-z ]+\): no authority in "etcd_leader\.ssl_ca_file" has signed it\|Have the certificate signed/);
	ok((!grep { /^certificate\|/ } check()), 'that may be as it should');
	set(ssl_ca_file => "$dir/both");
	has_row('no fault is seen', qr/${fails}etcd at .* does not accept the client certificate .*: this host finds no fault in it\|Check the authorities/);
	set(ssl_ca_file => $ca->ca, ssl_cert_file => $good_cert, ssl_key_file => $good_key);
	is_fine('a good one');

	# a fault of a server's certificate
	set(endpoints => $etcd->tls_endpoints('localhost'));
	has_row('another name', qr/${fails}the certificate of etcd at "\S+" is not valid for "localhost": it names IP Address:127\.0\.0\.1\|Add the host to the certificate's subjectAltName/);
	set(endpoints => $tls =~ s/https/http/r);
	has_row('http to a port for TLS', qr/$fails.*closed the connection without an answer\|If it is a port for TLS/);
	set(endpoints => $tls);
	for my $case (
		[ 'expired', { between => [ -172800, -86400 ] }, qr/certificate has expired(?: \(\d+\))?\|Renew the certificate of this member of etcd/ ],
		[ 'not yet valid', { between => [ 86400, 172800 ] }, qr/certificate is not yet valid[^|]*\|Correct the clock/ ])
	{
		my ($what, $args, $pattern) = @$case;
		$ca->sign('server', %$args);
		has_row("etcd's own is $what", qr/${fails}the certificate of etcd at "\Q$tls\E" is not valid: .*$pattern/);
	}
	$ca->sign('server', days => 10);
	for my $protocol (qw(json grpc))
	{
		set(protocol => $protocol);
		has_row("etcd's own expires soon, by $protocol", qr/expiry\|\Q$tls\E\|warning\|the certificate of etcd at "\Q$tls\E" expires in (9|10) days\|Renew/);
	}
	$ca->sign('server', days => 400);
	set(endpoints => "$url,$second", ssl_cert_file => '', ssl_key_file => '', ssl_ca_file => '');
	is_fine('without TLS again');
}

# ---- the schema ----
{
	my $row = sub { return join "\n", grep { /^schema\|/ } check() };
	my $hint = 'Move the extension to a schema of its own by ALTER EXTENSION etcd_leader SET SCHEMA, or revoke CREATE on the schema.';
	my $what = 'may create functions in the schema, and calls that mean those of the extension can reach these';
	$node->value('GRANT CREATE ON SCHEMA public TO PUBLIC');
	is($row->(), "schema|public|warning|PUBLIC $what|$hint", 'all may create');
	$node->value($_) for 'REVOKE CREATE ON SCHEMA public FROM PUBLIC', 'CREATE ROLE builder', 'GRANT CREATE ON SCHEMA public TO builder',
	  'CREATE ROLE mason IN ROLE builder', 'CREATE ROLE boss SUPERUSER IN ROLE builder';
	is($row->(), "schema|public|warning|builder, mason $what|$hint", 'roles, also those that inherit it');
	$node->value($_) for 'REVOKE CREATE ON SCHEMA public FROM builder', 'CREATE SCHEMA "the schema" AUTHORIZATION builder', 'ALTER EXTENSION etcd_leader SET SCHEMA "the schema"',
	  'SET search_path = "the schema"';
	is($row->(), "schema|the schema|warning|builder, mason $what|$hint", 'an owner who is no superuser');
	$node->value('ALTER SCHEMA "the schema" OWNER TO CURRENT_USER');
	is($row->(), 'schema|the schema|warning|only superusers and owners may use the schema: for all others the functions do not exist|'
		  . 'Run: GRANT USAGE ON SCHEMA "the schema" TO PUBLIC', 'nobody may use it');
	$node->value($_) for (map { "CREATE ROLE user$_; GRANT CREATE, USAGE ON SCHEMA \"the schema\" TO user$_" } 1 .. 7);
	is($row->(), "schema|the schema|warning|user1, user2, user3, user4, user5, ... $what|$hint", 'many roles');
	$node->value($_) for 'ALTER EXTENSION etcd_leader SET SCHEMA public', 'RESET search_path', 'DROP SCHEMA "the schema"',
	  'DROP ROLE boss, mason, builder, user1, user2, user3, user4, user5, user6, user7';
	is($row->(), '', 'a schema in which nobody may create');
}

# ---- settings of PostgreSQL ----
{
	set(notify_databases => 'postgres,nowhere');
	has_row('a database that does not exist', qr/database\|nowhere\|error\|database "nowhere" does not exist\|Create it/);
	has_row('its notifier does not run', qr/workers\|notifiers\|warning\|1 of 2 notifiers run\|/);
	set(notify_databases => 'postgres');

	$node->value(q{CREATE ROLE app; ALTER ROLE app SET etcd_leader.require_leadership_of = 'ledger';
		ALTER ROLE app IN DATABASE template1 SET etcd_leader.require_leadership_of = 'postgres'});
	has_row('a role with an unknown election', qr/require_leadership_of\|role app\|error\|election "ledger" is not in etcd_leader\.elections.*\|Correct/);
	is(scalar(grep { /^require_leadership_of\|/ } check()), 1, 'and not with a known one');
	$node->value('DROP ROLE app');

	set(node_name => '15/main');
	has_row('a name that a distribution gives', qr{common_name\|15/main\|warning\|.*\|Set "etcd_leader\.node_name"});
	set(node_name => 'pg1');

	append_to_file("$dir/hooks.conf", "elected nowhere\n");
	chmod 0600, "$dir/hooks.conf" or die;
	set(hooks_file => "$dir/hooks.conf");
	has_row('a hooks file with a mistake', qr/hooks_file\|\|error\|the file of hooks has a mistake, and is not in force\|The view etcd_leader_hooks_file has the error/);
	set(hooks_file => '');
	is_fine('all corrected');
}

# ---- users of etcd ----
{
	append_to_file("$dir/$_", "$secret-$_\n") for qw(pg pg-wrong);
	chmod 0600, "$dir/$_" or die for qw(pg pg-wrong);
	$etcd->etcdctl(qw(user add root:geheim));
	$etcd->etcdctl(qw(user grant-role root root));
	$etcd->etcdctl('user', 'add', "pg:$secret-pg");
	$etcd->etcdctl(qw(role add postgres));
	$etcd->etcdctl(qw(user grant-role pg postgres));
	$etcd->etcdctl(qw(auth enable));
	$etcd->use_credentials('root', 'geheim');
	has_row('etcd wants a user', qr/[^|]+\|[^|]*\|error\|.*user name is empty.*\|.*"etcd_leader\.username"/);
	set(username => 'pg', password_file => "$dir/pg-wrong");
	has_row('a wrong password', qr/user\|pg\|error\|.*authentication failed.*\|Check "etcd_leader\.username"/);
	set(password_file => "$dir/pg");
	has_row('no rights', qr/rights\|postgres\|error\|etcd's user may not read and write keys that begin with "postgres\/"\|.*etcdctl role grant-permission ROLE --prefix=true readwrite postgres\/$/);
	has_row('nor to read', qr/rights\|flags\/\|error\|etcd's user may not read keys .*grant-permission ROLE --prefix=true read flags\/$/);
	ok((!grep { /^user\|/ } check()), 'the user is right');
	my @hints = map { (split /\|/)[4] } grep { /^rights\|/ } check();
	$etcd->etcdctl(qw(role grant-permission postgres --prefix=true read postgres/));
	has_row('rights to read alone', qr/rights\|postgres\|error\|/);
	# as the hint says
	for my $hint (@hints)
	{
		my ($command) = $hint =~ /run: etcdctl (.*)$/ or die $hint;
		$etcd->etcdctl(split / /, $command =~ s/ROLE/postgres/r);
	}
	is_fine('the hints are followed');
	chmod 0644, "$dir/pg" or die;
	has_row('a password that others can read', qr/file\|etcd_leader\.password_file\|error\|.*group or world access/);
	chmod 0600, "$dir/pg" or die;
}

# ---- alarms ----
{
	$etcd->etcdctl(qw(auth disable));
	delete $etcd->{credentials};
	set(username => '', password_file => '');
	is_fine('no alarm yet');
	my $status = $etcd->post('/v3/maintenance/status', {});
	my $alarm  = sub { my ($action, $kind) = @_; return $etcd->post('/v3/maintenance/alarm', { action => $action, memberID => $status->{header}{member_id}, alarm => $kind }) };
	$alarm->(ACTIVATE => 'NOSPACE');
	has_row('an alarm', qr/alarm\|\Q$url\E\|error\|etcd at "\Q$url\E" reports: .*NOSPACE.*\|Compact and defragment etcd/);
	ok((!grep { /^(contact|rights)\|/ } check()), 'it is no lack of contact, nor of rights');
	$etcd->etcdctl(qw(alarm disarm));
	is_fine('disarmed');
	$alarm->(ACTIVATE => 'CORRUPT');
	has_row('another alarm', qr/alarm\|\Q$url\E\|error\|.*CORRUPT.*\|Remove the member whose data differ/);
	$alarm->(DEACTIVATE => 'CORRUPT');
	is_fine('the alarm is over');
}

# ---- versions of etcd, as a relay changes them ----
{
	my $version = $etcd->post('/v3/maintenance/status', {})->{version};
	for my $case ([ '3.3.99', 'is older than 3\.4, which etcd_leader needs' ], [ '3.5.02', 'may corrupt its data when a member is killed' ])
	{
		my ($told, $fault) = @$case;
		my $relay = EtcdLeader::Relay->new($url, replace => [ $version, $told ]);
		set(endpoints => join ',', $url, $relay->url);
		has_row("version $told", qr/version\|\Q${\$relay->url}\E\|warning\|etcd at "\S+" has version $told, which $fault\|Update etcd/);
		set(endpoints => "$url,$second");
		$relay->stop;
	}
	is_fine('one version');
}

# ---- a key that is no candidate's ----
{
	$etcd->etcdctl(qw(put shop/lock x));
	set(elections => 'postgres,shop');
	has_row('a foreign key is the first one', qr/queue\|shop\|error\|the first key of election "shop", "shop\/lock", has no lease, so no instance can lead while it exists\|.*etcdctl del/);
	ok((!grep { /^queue\|postgres\|/ } check()), 'not of the other election');
	isnt($node->current_leader('shop'), 'pg1', 'it does not lead');
	$etcd->etcdctl(qw(del shop/lock));
	is_fine('it is deleted');
	$node->wait_until_leader('shop');
	set(elections => 'postgres');
}

# ---- etcd hangs ----
{
	$etcd->freeze(0);
	for my $timeout ('300 ms', '2 s', '0')
	{
		my $start = now();
		my @rows = check($timeout);
		my $took = now() - $start;
		my $most = { '300 ms' => 0.3, '2 s' => 2, '0' => 0 }->{$timeout};
		in_time($took - $most, 0.5, "etcd hangs: the check ends within $timeout");
		ok((grep { /^elector\|\|error\|the elector has not tried everything within the time-out.*\|Call etcd_leader_check\(\) with a longer/ } @rows), 'and says that it knows no better')
		  or diag(explain(\@rows))
		  if $timeout ne '2 s';
	}
	has_row('and then, what is wrong', qr/${fails}(no answer from etcd|could not connect to etcd)/);
	my $dbh = $node->connect_db;
	set(request_timeout => '20s');
	$dbh->do("SET statement_timeout = '300 ms'");
	my $start = now();
	is(($node->failure("SELECT * FROM etcd_leader_check('1 min')", $dbh))[0], '57014', 'it can be cancelled');
	in_time(now() - $start, 1, 'at once');
	$dbh->do('RESET statement_timeout');
	$etcd->thaw(0);
	$node->configure(request_timeout => -1);
	is_fine('and called again');
	my $fds = sub { my @fds = glob "/proc/$dbh->{pg_pid}/fd/*"; return scalar @fds };
	$dbh->do('SELECT * FROM etcd_leader_check()');
	my $n = $fds->();
	$dbh->do('SELECT * FROM etcd_leader_check()') for 1 .. 10;
	is($n > 3 && $fds->(), $n, 'no descriptor stays open');
	is(scalar(my @threads = glob "/proc/$dbh->{pg_pid}/task/*"), 1, 'the session has no thread');
	$dbh->disconnect;
}

# ---- many at once ----
{
	my @sessions = map { $node->connect_db } 1 .. 20;
	$_->do(q{SELECT count(*) FROM etcd_leader_check('10 s')}, { pg_async => DBD::Pg::PG_ASYNC() }) for @sessions;
	in_time(do { my $start = now(); $_->pg_result for @sessions; now() - $start }, 5, 'twenty sessions check at once');
	ok($node->value(q{SELECT etcd_verify_leader(NULL, '5 s')}), 'and the elector serves others');
	$_->disconnect for @sessions;
}

# ---- without the elector ----
{
	my $pid = $node->elector_pid;
	kill 'STOP', $pid;
	my @rows = check('1 s');
	kill 'CONT', $pid;
	ok((grep { /^elector\|\|error\|the elector has not tried everything/ } @rows), 'a stopped elector: the check says so') or diag(explain(\@rows));
}

# ---- the line of the documentation ----
{
	my $line = EtcdLeader::Documents::document_block('doc/operations.md', 'check');
	my $run = sub {
		local %ENV = (%ENV, PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => 'postgres', PGUSER => 'watcher');
		my ($out, $err) = ('', '');
		IPC::Run::run([ 'sh', '-c', $line ], '<', \undef, '>', \$out, '2>', \$err);
		return ($? >> 8, $out, $err);
	};
	is_fine('before the command');
	my ($status, $out, $err) = $run->();
	is("$status $out$err", '0 ', 'psql exits with 0 if all is well');
	set(notify_databases => 'postgres,nowhere');
	($status, $out, $err) = $run->();
	is($status, 1, 'and with 1 if there is an error');
	like($out, qr/^database\|nowhere\|error\|/m, 'which it tells');
	set(notify_databases => 'postgres');
}

# ---- a duplicate name ----
{
	my $twin = EtcdLeader::Instance->create('twin', endpoints => $url, settings => { ttl => 3, node_name => 'pg1' });
	has_row('another candidate has the name', qr/node_name\|postgres\|error\|another candidate of election "postgres" is also named "pg1".*\|Give each instance its own "etcd_leader\.node_name"/);
	$twin->stop('fast');
}

# ---- preloaded after others; another version of the objects; a session by TLS ----
{
	$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_stat_statements,etcd_leader'\n"
		  . "listen_addresses = '127.0.0.1'\nssl = on\nssl_cert_file = '$server_cert'\nssl_key_file = '$server_key'\n");
	set(endpoints => $tls, ssl_ca_file => $ca->ca, ssl_cert_file => $good_cert, ssl_key_file => $good_key);
	$node->value("UPDATE pg_extension SET extversion = '0.9' WHERE extname = 'etcd_leader'");
	$node->restart;
	has_row('not first', qr/preload\|\|warning\|etcd_leader is not the first library in "shared_preload_libraries"\|Put etcd_leader first/);
	my $dbh = DBI->connect('dbi:Pg:host=127.0.0.1;sslmode=require;dbname=postgres;port=' . $node->port, scalar getpwuid($<), undef,
		{ RaiseError => 1, PrintError => 0, AutoInactiveDestroy => 1 });
	is($dbh->selectrow_array('SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()'), 1, 'a session by TLS');
	is($dbh->selectrow_array("SELECT count(*) FROM etcd_leader_check() WHERE item = 'preload'"), 1, 'may check') for 1 .. 3;
	$dbh->disconnect;
	has_row('SQL objects of another version', qr/sql_version\|\|warning\|the library has version 1\.0, and the SQL objects 0\.9\|.*ALTER EXTENSION/);
}

unlike($all_rows, qr/\Q$secret\E/, 'no row has had a secret');
unlike($all_rows, qr/PRIVATE KEY/, 'nor a key');
done_testing();
