# etcd_leader_check(): each row is ok in a good set-up, and each mistake has a row
# that names it, with the remedy.  The function never exceeds its timeout, needs no
# contact of the elector, and shows no secret.
use EtcdLeader::Test;
use DBI ();
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

# The rows as texts "item|subject|status|detail|hint".
sub check
{
	my (@arguments) = @_;
	my @rows = map { my $row = $_; join '|', map { $row->{$_} // '' } qw(item subject status detail hint) }
	  $node->rows('SELECT * FROM etcd_leader_check(' . join(', ', map { "'$_'" } @arguments) . ')');
	$all_rows .= join '', map { "$_\n" } @rows;
	return @rows;
}

# One of the rows is like that.
sub has_row
{
	my ($what, $pattern, @rows) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok((grep { $_ =~ /^$pattern/ } @rows) > 0, $what) or diag("no row like $pattern:\n" . join "\n", @rows);
	return;
}

sub complaints { return join "\n", grep { !/^[^|]*\|[^|]*\|ok\|/ } @_ }

# ---- a good set-up ----
{
	my @rows = check();
	is(complaints(@rows), '', 'a good set-up: all is ok');
	is(join(',', map { /^([^|]*)/ } @rows), 'endpoint,endpoint,cluster,quorum,rights,rights,queue,alarm,version,database,ttl,'
		  . 'preload,sql version,schema create,schema usage,elector,node_name,workers', 'what is checked');
	has_row('an endpoint', qr/endpoint\|\Q$url\E\|ok\|etcd 3\.[0-9.]+, grpc, member [0-9a-f]+ of cluster $id, [0-9.]+ ms\|$/, @rows);
	has_row('its cluster', qr/cluster\|$id\|ok\|2 of 2 endpoints/, @rows);
	is(scalar(grep { /,|\|/ && /\|$/ } @rows), scalar(@rows), 'what is ok has no hint');
	is(scalar(my @keys = $etcd->keys('postgres/etcd_leader')), 0, 'no key is written');
	my $revision = $etcd->post('/v3/kv/range', { key => 'eA==' })->{header}{revision};
	check();
	is($etcd->post('/v3/kv/range', { key => 'eA==' })->{header}{revision}, $revision, 'and etcd has no new revision');
	set(protocol => 'json');
	has_row('in JSON', qr/endpoint\|\Q$url\E\|ok\|etcd 3\.[0-9.]+, json, /, check());
	set(protocol => 'grpc');
}

# ---- who may ----
{
	$node->value('CREATE ROLE watcher LOGIN; GRANT pg_monitor TO watcher; CREATE ROLE anybody LOGIN');
	my $watcher = $node->connect_db('postgres', user => 'watcher');
	# an answer that takes long is a warning
	my $passed = sub { $watcher->selectrow_array("SELECT count(*) FROM etcd_leader_check() WHERE status = 'ok' AND item <> 'elector'") };
	poll_is(10, $passed, 17, 'a member of pg_monitor may check');
	is($watcher->selectrow_array('SELECT count(*) FROM etcd_candidates()'), 1, 'and read the queue');
	my $anybody = $node->connect_db('postgres', user => 'anybody');
	is(($node->failure("SELECT * FROM $_('1 s')", $anybody))[0], '42501', "$_: others may not") for qw(etcd_leader_check etcd_leader_check_server);
	$watcher->do('SET search_path = pg_temp, public');
	$watcher->do('CREATE TEMP VIEW pg_settings AS SELECT 1 / 0 AS setting, NULL::text AS name');
	poll_is(10, $passed, 17, 'search_path does not matter');
	$_->disconnect for $watcher, $anybody;
}

# ---- endpoints and clusters ----
{
	set(endpoints => "$url,$closed");
	my @rows = check();
	has_row('a dead endpoint', qr/endpoint\|$closed\|error\|could not connect to etcd at "$closed": Connection refused\|Check that etcd runs there/, @rows);
	has_row('half of them is not enough', qr/cluster\|\Q$url\E\|error\|/, @rows);
	set(endpoints => "$url,$second,$closed");
	@rows = check();
	has_row('more than half', qr/cluster\|$id\|ok\|2 of 3 endpoints/, @rows);
	has_row('the rest is checked', qr/rights\|postgres\|ok/, @rows);

	# one server in three spellings is one endpoint
	my ($port) = $url =~ /:(\d+)$/;
	set(endpoints => "$url,http://127.1:$port,http://[::ffff:7f00:1]:$port/,$url");
	@rows = check();
	is(scalar(grep { /^endpoint\|/ } @rows), 1, 'an endpoint in several spellings: one row') or diag(join "\n", @rows);
	has_row('and one member of the majority', qr/cluster\|$id\|ok\|1 of 1 endpoints/, @rows);

	my $spare = $foreign->endpoints;
	my $spare_id = $foreign->cluster_id;
	# the members announce another endpoint: this one was removed from the cluster, or never was in it
	set(endpoints => "$spare,$alias,$closed");
	has_row('an endpoint that no member announces', qr/endpoint\|$closed\|error\|could not connect to etcd at "$closed": Connection refused\|No member of the cluster announces this URL any more\. Remove it from the settings\. The members announce \Q$spare\E\./, check());
	set(endpoints => "$spare,$url,$second");
	@rows = check();
	has_row('a foreign endpoint', qr/cluster\|\Q$spare\E\|error\|etcd at "\Q$spare\E" is of cluster $spare_id, etcd at "\S+" of cluster $id\|The endpoints must name members of one cluster/, @rows);
	has_row('and the cluster that is used', qr/cluster\|$id\|ok\|2 of 3/, @rows);
	set(endpoints => "$spare,$url");
	@rows = check();
	has_row('two clusters: none may be used', qr/cluster\|\Q$_\E\|error\|.* is of cluster/, @rows) for $spare, $url;
	has_row('so nobody is asked for a quorum', qr/quorum\|\|unknown\|no endpoint has answered that may be asked/, @rows);
	set(endpoints => "$url,$second");
	is(complaints(grep { !/^(elector|ttl)\|/ } check()), '', 'mended: all is ok');
}

# ---- TLS ----
{
	set(endpoints => $url =~ s/http/https/r);
	my @rows = check();
	has_row('https to plain HTTP', qr/endpoint\|\S+\|error\|no TLS connection to etcd.*\|.*speaks http/, @rows);
	has_row('no quorum is known', qr/quorum\|\|unknown\|/, @rows);
	set(endpoints => $tls, ssl_ca_file => $other_ca->ca);
	has_row('another authority', qr/endpoint\|\S+\|error\|the certificate of etcd at "\Q$tls\E" is not valid/, check());
	set(ssl_ca_file => $ca->ca);
	has_row('no client certificate', qr/endpoint\|\S+\|error\|etcd at "\Q$tls\E" requires a client certificate.*\|Set "etcd_leader\.ssl_cert_file"/, check());
	set(ssl_cert_file => $short_cert, ssl_key_file => $short_key);
	@rows = check();
	has_row('TLS', qr/endpoint\|\Q$tls\E\|ok\|/, @rows);
	has_row('a certificate for a week', qr/certificate\|\Q$short_cert\E\|warning\|the certificate is valid for [67] more days\|Renew/, @rows);
	chmod 0640, $short_key or die;
	has_row('a key that others can read', qr/file\|etcd_leader\.ssl_key_file\|error\|file "\Q$short_key\E" has group or world access/, check());
	chmod 0600, $short_key or die;

	# a fault of a client's certificate: both rows name it, with one hint
	my ($foreign_cert, $foreign_key) = $other_ca->sign('foreign');
	for my $case (
		[ 'expired', [ $ca->sign('expired', between => [ -172800, -86400 ]) ], 'the certificate has expired, at 2', 'Renew the certificate' ],
		[ 'not yet valid', [ $ca->sign('early', between => [ 86400, 172800 ]) ], 'the certificate is not valid before 2', 'Correct the clock' ],
		[ 'none of a client', [ $ca->sign('serving', usage => 'serverAuth') ], 'the certificate is not one for TLS clients', 'Make the certificate anew, with clientAuth' ],
		[ 'with a key of another', [ $good_cert, $short_key ], 'the private key does not belong to the certificate', 'Set "etcd_leader.ssl_key_file" to the key' ])
	{
		my ($what, $files, $fault, $hint) = @$case;
		set(ssl_cert_file => $files->[0], ssl_key_file => $files->[1]);
		@rows = check();
		has_row("$what: the certificate", qr/certificate\|\Q$files->[0]\E\|error\|\Q$fault\E.*\|\Q$hint\E/, @rows);
		has_row("$what: the endpoint", qr/endpoint\|\Q$tls\E\|error\|.*client certificate.*: \Q$fault\E.*\|\Q$hint\E|endpoint\|\Q$tls\E\|error\|could not use the files of .*: \Q$fault\E.*\|\Q$hint\E/, @rows);
	}
	set(ssl_cert_file => $foreign_cert, ssl_key_file => $foreign_key);
	@rows = check();
	has_row('of another authority: that may be as it should', qr/certificate\|\Q$foreign_cert\E\|warning\|the certificate is valid for/, @rows);
	has_row('of another authority: refused', qr/endpoint\|\S+\|error\|.* does not accept the client certificate \(alert [a-z ]+\): no authority in "etcd_leader\.ssl_ca_file" has signed it\|Have the certificate signed/, @rows);
	set(ssl_ca_file => "$dir/both", ssl_cert_file => $foreign_cert);
	has_row('no fault is seen', qr/endpoint\|\S+\|error\|.* does not accept the client certificate .*: this host finds no fault in it\|Check the authorities/, check());
	set(ssl_ca_file => $ca->ca,
		ssl_cert_file => $good_cert, ssl_key_file => $good_key);
	@rows = check();
	has_row('a good one', qr/certificate\|\Q$good_cert\E\|ok\|the certificate is valid for (399|400) more days\|$/, @rows);
	has_row("etcd's own", qr/certificate\|\Q$tls\E\|ok\|the certificate is valid for (399|400) more days\|$/, @rows);

	# a fault of a server's certificate
	set(endpoints => $etcd->tls_endpoints('localhost'));
	has_row('another name', qr/endpoint\|\S+\|error\|the certificate of etcd at "\S+" is not valid for "localhost": it names IP Address:127\.0\.0\.1\|Add the host to the certificate's subjectAltName/, check());
	set(endpoints => $tls =~ s/https/http/r);
	has_row('http to a port for TLS', qr/endpoint\|\S+\|error\|.* closed the connection without an answer\|If it is a port for TLS/, check());
	set(endpoints => $tls);
	for my $case (
		[ 'expired', { between => [ -172800, -86400 ] }, qr/certificate has expired\|Renew the certificate of this member of etcd/ ],
		[ 'not yet valid', { between => [ 86400, 172800 ] }, qr/certificate is not yet valid\|Correct the clock/ ])
	{
		my ($what, $args, $pattern) = @$case;
		$ca->sign('server', %$args);
		has_row("etcd's own is $what", qr/endpoint\|\S+\|error\|the certificate of etcd at "\Q$tls\E" is not valid: .*$pattern/, check());
	}
	$ca->sign('server', days => 10);
	for my $protocol (qw(json grpc))
	{
		set(protocol => $protocol);
		has_row("etcd's own expires soon, by $protocol", qr/certificate\|\Q$tls\E\|warning\|the certificate is valid for (9|10) more days\|Renew/, check());
	}
	$ca->sign('server', days => 400);
	set(protocol => 'grpc');
	has_row('its key', qr/file\|etcd_leader\.ssl_key_file\|ok\|/, @rows);
	set(endpoints => "$url,$second", ssl_cert_file => '', ssl_key_file => '', ssl_ca_file => '');
}

# ---- the schema ----
{
	my $row = sub { my ($name, @rows) = @_; return join "\n", grep { /^schema $name\|/ } @rows };
	is($row->(create => check()), 'schema create|public|ok|only superusers and owners may create in the schema|', 'who may create');
	is($row->(usage => check()), 'schema usage|public|ok|PUBLIC may use the schema|', 'who may use it');
	$node->value('GRANT CREATE ON SCHEMA public TO PUBLIC');
	my $hint = 'Move the extension to a schema of its own by ALTER EXTENSION etcd_leader SET SCHEMA, or revoke CREATE on the schema.';
	my $what = 'may create functions in the schema, and calls that mean those of the extension can reach these';
	is($row->(create => check()), "schema create|public|warning|PUBLIC $what|$hint", 'all may create');
	$node->value($_) for 'REVOKE CREATE ON SCHEMA public FROM PUBLIC', 'CREATE ROLE builder', 'GRANT CREATE ON SCHEMA public TO builder',
	  'CREATE ROLE mason IN ROLE builder', 'CREATE ROLE boss SUPERUSER IN ROLE builder';
	is($row->(create => check()), "schema create|public|warning|builder, mason $what|$hint", 'roles, also those that inherit it');
	$node->value($_) for 'REVOKE CREATE ON SCHEMA public FROM builder', 'CREATE SCHEMA "the schema" AUTHORIZATION builder', 'ALTER EXTENSION etcd_leader SET SCHEMA "the schema"',
	  'SET search_path = "the schema"';
	my @rows = check();
	is($row->(create => @rows), "schema create|the schema|warning|builder, mason $what|$hint", 'an owner who is no superuser');
	is($row->(usage => @rows), 'schema usage|the schema|ok|builder, mason may use the schema|', 'roles may use it');
	$node->value('ALTER SCHEMA "the schema" OWNER TO CURRENT_USER');
	@rows = check();
	is($row->(create => @rows), 'schema create|the schema|ok|only superusers and owners may create in the schema|', 'a schema of its own');
	is($row->(usage => @rows), 'schema usage|the schema|warning|only superusers and owners may use the schema: for all others the functions do not exist|'
		  . 'Run: GRANT USAGE ON SCHEMA "the schema" TO PUBLIC', 'nobody may use it');
	$node->value($_) for (map { "CREATE ROLE user$_; GRANT USAGE ON SCHEMA \"the schema\" TO user$_" } 1 .. 7);
	is($row->(usage => check()), 'schema usage|the schema|ok|user1, user2, user3, user4, user5, ... may use the schema|', 'many roles');
	$node->value($_) for 'ALTER EXTENSION etcd_leader SET SCHEMA public', 'RESET search_path', 'DROP SCHEMA "the schema"',
	  'DROP ROLE boss, mason, builder, user1, user2, user3, user4, user5, user6, user7';
}

# ---- settings of PostgreSQL ----
{
	set(databases => 'postgres,nowhere');
	my @rows = check();
	has_row('a database that does not exist', qr/database\|nowhere\|error\|the database does not exist\|Create it/, @rows);
	has_row('and one that does', qr/database\|postgres\|ok\|/, @rows);
	poll_ok(10, sub { grep { /^workers\|notifiers\|warning\|1 of 2/ } check() }, 'its notifier does not run');
	set(databases => 'postgres');

	$node->value(q{CREATE ROLE app; ALTER ROLE app SET etcd_leader.require_leadership = 'ledger';
		ALTER ROLE app IN DATABASE template1 SET etcd_leader.require_leadership = 'postgres'});
	@rows = check();
	has_row('a role with an unknown election', qr/require_leadership\|role app\|error\|election "ledger" is not in etcd_leader\.elections.*\|Correct/, @rows);
	has_row('and with a known one', qr/require_leadership\|role app in database template1\|ok\|/, @rows);
	$node->value('DROP ROLE app');

	set(node_name => '15/main');
	poll_ok(5, sub { grep { m{^node_name\|15/main\|warning\|.*\|Set etcd_leader\.node_name} } check() }, 'a name that a distribution gives');
	set(node_name => 'pg1');

	append_to_file("$dir/hooks.conf", "elected nowhere\n");
	chmod 0600, "$dir/hooks.conf" or die;
	set(hooks_file => "$dir/hooks.conf");
	poll_ok(5, sub { grep { /^hooks file\|[^|]*\|error\|line 1 of hooks file/ } check() }, 'a hooks file with a mistake');
	set(hooks_file => '');
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
	has_row('etcd wants a user', qr/(rights|endpoint)\|[^|]*\|error\|.*user name is empty.*\|.*"etcd_leader\.username"/, check());
	set(username => 'pg', password_file => "$dir/pg-wrong");
	has_row('a wrong password', qr/(rights|endpoint)\|[^|]*\|error\|.*authentication failed/, check());
	set(password_file => "$dir/pg");
	my @rows = check();
	has_row('no rights', qr/rights\|postgres\|error\|etcd's user may not read and write keys that begin with "postgres\/"\|.*etcdctl role grant-permission ROLE --prefix=true readwrite postgres\/$/, @rows);
	has_row('nor to read', qr/rights\|flags\/\|error\|etcd's user may not read keys .*grant-permission ROLE --prefix=true read flags\/$/, @rows);
	has_row('but a quorum', qr/quorum\|\|ok\|/, @rows);
	$etcd->etcdctl(qw(role grant-permission postgres --prefix=true read postgres/));
	has_row('rights to read alone', qr/rights\|postgres\|error\|/, check());
	# as the hint says
	for my $hint (map { (split /\|/)[4] } grep { /^rights\|/ } @rows)
	{
		my ($command) = $hint =~ /run: etcdctl (.*)$/ or die $hint;
		$etcd->etcdctl(split / /, $command =~ s/ROLE/postgres/r);
	}
	@rows = check();
	has_row('the hints are followed', qr/rights\|$_\|ok\|/, @rows) for qw(postgres flags\/);
	chmod 0644, "$dir/pg" or die;
	has_row('a password that others can read', qr/file\|etcd_leader\.password_file\|error\|.*group or world access/, check());
	chmod 0600, "$dir/pg" or die;
}

# ---- alarms ----
{
	$etcd->etcdctl(qw(auth disable));
	delete $etcd->{credentials};
	set(username => '', password_file => '');
	poll(10, sub { !complaints(grep { /^rights\|/ } check()) });
	is(complaints(grep { /^(alarm|quorum|rights|endpoint)\|/ } check()), '', 'no alarm yet');
	my $status = $etcd->post('/v3/maintenance/status', {});
	$etcd->post('/v3/maintenance/alarm', { action => 'ACTIVATE', memberID => $status->{header}{member_id}, alarm => 'NOSPACE' });
	my @rows = check();
	has_row('an alarm', qr/alarm\|\Q$url\E\|error\|.*NOSPACE.*\|Compact and defragment etcd/, @rows);
	has_row('it is no lack of a quorum', qr/quorum\|\|ok\|/, @rows);
	has_row('and nothing is known of rights to write', qr/rights\|postgres\|unknown\|.*space exceeded/, @rows);
	$etcd->etcdctl(qw(alarm disarm));
	has_row('disarmed', qr/alarm\|\|ok\|/, check());
	$etcd->post('/v3/maintenance/alarm', { action => 'ACTIVATE', memberID => $status->{header}{member_id}, alarm => 'CORRUPT' });
	has_row('another alarm', qr/alarm\|\Q$url\E\|error\|.*CORRUPT.*\|Remove the member whose data differ/, check());
	$etcd->post('/v3/maintenance/alarm', { action => 'DEACTIVATE', memberID => $status->{header}{member_id}, alarm => 'CORRUPT' });
	poll_is(20, sub { complaints(grep { /^(alarm|quorum|rights|endpoint|elector)\|/ } check()) }, '', 'the alarm is over');
}

# ---- versions of etcd, as a relay changes them ----
{
	my $version = $etcd->post('/v3/maintenance/status', {})->{version};
	for my $case (
		[ '3.3.99', qr/version\|%s\|warning\|etcd 3\.3\.99 is older than 3\.4, which etcd_leader needs\|Update etcd/ ],
		[ '3.5.02', qr/version\|%s\|warning\|etcd 3\.5\.02 may corrupt its data when a member is killed\|Update etcd/ ],
		[ '3.9.99', qr/version\|%s\|warning\|etcd 3\.9\.99, while another endpoint has \Q$version\E\|Finish the upgrade/ ])
	{
		my ($told, $pattern) = @$case;
		my $relay = EtcdLeader::Relay->new($url, replace => [ $version, $told ]);
		set(endpoints => join ',', $url, $relay->url);
		has_row("version $told", $pattern =~ s/%s/\Q${\$relay->url}\E/r, check());
		$relay->stop;
	}
	set(endpoints => "$url,$second");
	has_row('one version', qr/version\|\|ok\|etcd \Q$version\E\|$/, check());
}

# ---- a key that is no candidate's ----
{
	$etcd->etcdctl(qw(put shop/lock x));
	set(elections => 'postgres,shop');
	my @rows = check();
	has_row('a foreign key is the first one', qr/queue\|shop\|error\|the first key, "shop\/lock", has no lease, so no instance can lead while it exists\|.*etcdctl del/, @rows);
	has_row('not of the other election', qr/queue\|postgres\|ok\|the first key is "postgres\/[^"]+"\|$/, @rows);
	isnt($node->current_leader('shop'), 'pg1', 'it does not lead');
	$etcd->etcdctl(qw(del shop/lock));
	poll_ok(20, sub { grep { m{^queue\|shop\|ok\|the first key is "shop/[^"]+"} } check() }, 'it is deleted: an instance leads');
	set(elections => 'postgres');
}

# ---- etcd hangs ----
{
	my ($before) = $node->value('SELECT count(*) FROM pg_stat_activity');
	$etcd->freeze(0);
	for my $timeout ('300 ms', '2 s', '0')
	{
		my $start = now();
		my @rows = check($timeout);
		my $took = now() - $start;
		my $most = { '300 ms' => 0.3, '2 s' => 2, '0' => 0 }->{$timeout};
		in_time($took - $most, 0.5, "etcd hangs: the check ends within $timeout");
		has_row('and says so', qr/endpoint\|\Q$url\E\|(error\|no answer from etcd|unknown\|no answer within)/, @rows);
		has_row('of a quorum, nothing is known', qr/quorum\|\|unknown\|/, @rows);
	}
	# it hangs for longer than the elector waits, and then answers
	my $thaw = EtcdLeader::Util::Process->spawn(name => 'thaw', log => "$dir/thaw", cmd => [ 'sh', '-c', 'sleep 0.8; kill -CONT ' . $etcd->pid(0) ]);
	has_row('a late answer', qr/endpoint\|\Q$url\E\|warning\|etcd 3.*\|The time-out of requests is 333 ms/, check('6 s'));
	$thaw->wait(5);
	$etcd->freeze(0);
	my $dbh = $node->connect_db;
	set(request_timeout => '20s');
	$dbh->do("SET statement_timeout = '300 ms'");
	my $start = now();
	is(($node->failure("SELECT * FROM etcd_leader_check('1 min')", $dbh))[0], '57014', 'it can be cancelled');
	in_time(now() - $start, 1, 'at once');
	$dbh->do('RESET statement_timeout');
	$etcd->thaw(0);
	$node->configure(request_timeout => -1);
	is($dbh->selectrow_array("SELECT count(*) FROM etcd_leader_check() WHERE item = 'endpoint' AND status = 'ok'"), 2, 'and called again');
	# no descriptors stay behind
	my $fds = sub { my @fds = glob "/proc/$dbh->{pg_pid}/fd/*"; return scalar @fds };
	my $n = $fds->();
	$dbh->do('SELECT * FROM etcd_leader_check()') for 1 .. 10;
	is($n > 3 && $fds->(), $n, 'no descriptor stays open');
	$dbh->disconnect;
}

# ---- without the elector ----
{
	my $pid = $node->elector_pid;
	kill 'STOP', $pid;
	my @rows = check();
	has_row('a stopped elector does not matter', qr/rights\|postgres\|ok/, @rows);
	kill 'CONT', $pid;
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
	poll(10, sub { !grep { /^[^|]*\|[^|]*\|error/ } check() });
	my ($status, $out, $err) = $run->();
	is("$status $out$err", '0 ', 'psql exits with 0 if all is well');
	set(databases => 'postgres,nowhere');
	($status, $out, $err) = $run->();
	is($status, 1, 'and with 1 if there is an error');
	like($out, qr/^database\|nowhere\|error\|/m, 'which it tells');
	set(databases => 'postgres');
}

# ---- a duplicate name ----
{
	my $twin = EtcdLeader::Instance->create('twin', endpoints => $url, settings => { ttl => 3, node_name => 'pg1' });
	poll_ok(15, sub { grep { /^node_name\|pg1\|error\|another candidate of election "postgres" is also named "pg1".*\|Set etcd_leader\.node_name/ } check() },
		'another candidate has the name');
	$twin->stop('fast');
}

# ---- preloaded after others; another version of the objects; a session by TLS ----
{
	$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_stat_statements,etcd_leader'\n"
		  . "listen_addresses = '127.0.0.1'\nssl = on\nssl_cert_file = '$server_cert'\nssl_key_file = '$server_key'\n");
	set(endpoints => $tls, ssl_ca_file => $ca->ca, ssl_cert_file => $good_cert, ssl_key_file => $good_key);
	$node->value("UPDATE pg_extension SET extversion = '0.9' WHERE extname = 'etcd_leader'");
	$node->restart;
	my @rows = check();
	has_row('not first', qr/preload\|\|warning\|shared_preload_libraries is pg_stat_statements,\s*etcd_leader\|Put etcd_leader first/, @rows);
	my $dbh = DBI->connect('dbi:Pg:host=127.0.0.1;sslmode=require;dbname=postgres;port=' . $node->port, scalar getpwuid($<), undef,
		{ RaiseError => 1, PrintError => 0, AutoInactiveDestroy => 1 });
	is($dbh->selectrow_array('SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()'), 1, 'a session by TLS');
	is($dbh->selectrow_array("SELECT count(*) FROM etcd_leader_check() WHERE item = 'endpoint' AND status IN ('ok', 'warning')"), 1, 'may check etcd by TLS') for 1 .. 3;
	$dbh->disconnect;
	has_row('SQL objects of another version', qr/sql version\|\|warning\|library 1\.0, SQL objects 0\.9\|.*ALTER EXTENSION/, @rows);
}

unlike($all_rows, qr/\Q$secret\E/, 'no row has had a secret');
unlike($all_rows, qr/PRIVATE KEY/, 'nor a key');
done_testing();
