# Bad settings are refused when they are set, by ALTER SYSTEM and in
# postgresql.conf, with an error that names the allowed values; the old setting
# stays and goes on working.  A server does not start with one, wherever it
# stands.
use EtcdLeader::Test;

my $etcd = EtcdLeader::Etcd->new;
my $pg1  = EtcdLeader::Instance->create('pg1', etcd => $etcd,
	conf => "etcd_leader.safety_margin = 400\n");
$pg1->wait_until_leader;
my $token   = $pg1->token;
my $elector = $pg1->elector_pid;

my $long127 = 'e' x 127;
my $url     = qr/such as "http:\/\/10\.0\.0\.1:2379"/;

# [setting, bad value, the allowed values in the error]
my @bad = (
	[ endpoints => 'nonsense',                    qr/is not an endpoint of etcd.*$url/s ],
	[ endpoints => 'ftp://127.0.0.1:2379',        qr/is not an endpoint of etcd.*$url/s ],
	[ endpoints => 'http://',                     qr/is not an endpoint of etcd.*$url/s ],
	[ endpoints => 'http://127.0.0.1:99999',      qr/is not an endpoint of etcd.*$url/s ],
	[ endpoints => 'http://127.0.0.1:2379/?a=b',  qr/is not an endpoint of etcd.*$url/s ],
	[ endpoints => 'http://127.0.0.1:2379/#a',    qr/is not an endpoint of etcd.*$url/s ],
	[ endpoints => 'unix://etcd.sock',            qr/is not an endpoint of etcd.*$url/s ],
	[ endpoints => 'http://127.0.0.1:2379,nonsense', qr/"nonsense" is not an endpoint.*$url/s ],
	[ endpoints => 'http://127.0.0.1:2379/etcd',  qr/"http:\/\/127\.0\.0\.1:2379\/etcd" has a path, and an endpoint of etcd has none.*at the root of a host name or of a port/s ],
	[ endpoints => 'localhost:2379/etcd',         qr/"localhost:2379\/etcd" has a path/ ],
	[ endpoints => 'https://proxy//',             qr/"https:\/\/proxy\/\/" has a path/ ],
	[ endpoints => 'nonsense/etcd',               qr/is not an endpoint of etcd.*$url/s ],
	[ endpoints => 'http:10.0.0.1:2379',          qr/is not an endpoint of etcd.*$url/s ],
	[ endpoints => '127.0.0.1:99999',             qr/is not an endpoint of etcd.*$url/s ],
	[ endpoints => '[::1]',                       qr/is not an endpoint of etcd.*$url/s ],
	[ endpoints => ':2379',                       qr/is not an endpoint of etcd.*$url/s ],
	[ endpoints => 'root:geheim@127.0.0.1:2379',  qr/must not contain a user name or a password/ ],
	[ endpoints => 'http://root:geheim@127.0.0.1:2379', qr/must not contain a user name or a password/ ],
	[ endpoints => '',                            qr/at least 1 endpoint/ ],
	[ endpoints => join(',', map { "http://127.0.0.1:$_" } 2001 .. 2033), qr/at most 32/ ],
	[ discovery_srv => 'example.com/x',           qr/not the name of a DNS domain/ ],
	[ cluster_id => 'shop',                       qr/1 to 16 hexadecimal digits.*--hex/s ],
	[ cluster_id => '0x',                         qr/1 to 16 hexadecimal digits/ ],
	[ cluster_id => '0',                          qr/1 to 16 hexadecimal digits/ ],
	[ cluster_id => '14841639068965178418',       qr/1 to 16 hexadecimal digits/ ],
	[ username  => "u\x01",                       qr/must not contain control characters/ ],
	[ password_file => 'p' x 1024,                qr/at most 1023 bytes/ ],
	[ ssl_ca_file => 'p' x 1024,                  qr/at most 1023 bytes/ ],
	[ protocol => 'grcp',                         qr/Available values: grpc, json/ ],
	[ protocol => 'auto',                         qr/Available values: grpc, json/ ],
	[ ssl_min_protocol_version => 'TLSv1',        qr/Available values: , TLSv1\.2, TLSv1\.3|TLSv1\.2/ ],
	[ elections => 'a,""',                        qr/must not be empty/ ],
	[ elections => 'e' x 128,                     qr/at most 127 bytes/ ],
	[ elections => 'a,b,a',                       qr/"a" is listed more than once/ ],
	[ elections => join(',', map { "e$_" } 1 .. 33), qr/at most 32 elections/ ],
	[ elections => 'a,a/b',                       qr/"a\/b" would count as candidates of election "a".*must not/s ],
	[ elections => 'a/b,a',                       qr/"a\/b" would count as candidates of election "a".*must not/s ],
	[ elections => "a\x01",                       qr/must not contain control characters/ ],
	[ elections => 'a b',                         qr/List syntax is invalid.*commas/s ],
	[ watched_prefixes => '""',                   qr/must not be empty/ ],
	[ watched_prefixes => 'flags/,flags/a/',      qr/"flags\/a\/" would be watched twice/ ],
	[ watched_prefixes => 'postgres/',            qr/"postgres\/" has keys of election "postgres"/ ],
	[ watched_prefixes => 'post',                 qr/"post" has keys of election "postgres"/ ],
	[ watched_prefixes => 'postgres/a/',          qr/has keys of election "postgres"/ ],
	[ ttl       => '1',                           qr/2 s \.\. 300 s|2 \.\. 300/ ],
	[ ttl       => '301',                         qr/2 s \.\. 300 s|2 \.\. 300/ ],
	[ ttl       => 'soon',                        qr/invalid value for parameter/ ],
	[ safety_margin => '-2',                      qr/-1 ms \.\. |-1 \.\. / ],
	[ safety_margin => '150001',                  qr/\.\. 150000/ ],
	[ candidate => 'sometimes',                   qr/Available values: primary, always, never/ ],
	[ second_primary => 'leads',                  qr/Available values: refuse, wait/ ],
	[ notify_channel   => 'c' x 64,                      qr/at most 63 bytes/ ],
	[ notify_channel   => '',                            qr/must not be empty/ ],
	[ node_name => 'n' x 256,                     qr/at most 255 bytes/ ],
	[ node_name => "n\x7f",                       qr/must not contain control characters/ ],
	[ node_name => "n\xc2\x9b",                   qr/must not contain control characters/ ],
	[ node_name => "1gp\xe2\x80\xae",             qr/"1gp\\xe2\\x80\\xae" must not contain the format character U\+202E/ ],
	[ elections => "a\xe2\x80\x8b",               qr/must not contain the format character U\+200B/ ],
	[ watched_prefixes => "a\xf3\xa0\x81\x81",    qr/must not contain the format character U\+E0041/ ],
	[ patroni_namespace => 'n' x 128,             qr/at most 127 bytes/ ],
	[ elections => 'patroni:',                    qr/the scope of the Patroni cluster is missing/ ],
	[ notify_databases => 'app,app',                     qr/"app" is listed more than once/ ],
	[ notify_databases => 'd' x 64,                      qr/1 to 63 bytes/ ],
	[ notify_databases => join(',', map { "d$_" } 1 .. 33), qr/at most 32/ ],
	[ request_timeout => '0',                     qr/at least 1 ms/ ],
	[ connect_timeout => '-5',                    qr/-1 ms \.\. |-1 \.\. / ],
	[ connect_timeout => '0',                     qr/at least 1 ms/ ],
	[ cancel_on_loss => 'perhaps',                qr/requires a Boolean value/ ],
	[ ssl_cert_file => "c\x01",                   qr/must not contain control characters/ ],
	[ ssl_key_file => "k\x01",                    qr/must not contain control characters/ ],
	[ require_leadership_of => "a\x01",              qr/must not contain control characters/ ],
	[ read_only_unless_leader_of => "a\x01",         qr/must not contain control characters/ ],
	[ read_only_unless_leader_of => 'a' x 128,       qr/at most 127 bytes/ ],
	[ preferred_nodes => 'a,""',                  qr/must not be empty/ ],
	[ preferred_delay => '99',                    qr/100 ms \.\. |100 \.\. / ],
	[ drain_timeout => '-1',                      qr/0 ms \.\. |\(0 \.\. / ],
	[ drain_timeout => '5 x',                     qr/Valid units/ ],
	[ hooks_max_workers => '65',                   qr/0 \.\. 64/ ],
	[ http_listen => '8010',                      qr/is not an address to listen at.*such as "127\.0\.0\.1:8010"/s ],
	[ http_agent_listen => 'example.com:8011',         qr/is not an address to listen at.*such as "127\.0\.0\.1:8010"/s ],
	[ http_ssl_cert_file => "c\x01",              qr/must not contain control characters/ ],
	[ http_ssl_key_file => "k\x01",               qr/must not contain control characters/ ],
);

my @settings = map { $_->{name} =~ s/^etcd_leader\.//r } $pg1->rows(q{SELECT name FROM pg_settings WHERE name LIKE 'etcd\_leader.%'});

for my $case (@bad)
{
	my ($name, $value, $expected) = @$case;
	my $shown = length $value > 40 ? substr($value, 0, 40) . '...' : $value;
	$shown =~ s/[^ -~]/?/g;
	my $old = $pg1->value("SHOW etcd_leader.$name");

	my ($state, $message) = $pg1->failure("ALTER SYSTEM SET etcd_leader.$name = " . $pg1->dbh->quote($value));
	is($state, '22023', "$name = '$shown': ALTER SYSTEM is refused");
	like($message, $expected, "$name = '$shown': it says what is allowed");
	unlike($message, qr/geheim/, "$name = '$shown': no secret is repeated");
	is($pg1->value("SHOW etcd_leader.$name"), $old, "$name = '$shown': the old setting stays");
}

# In one step: the elector reads the file in its own time.
sub write_file
{
	my ($file, $text) = @_;
	unlink "$file.new";
	append_to_file("$file.new", $text);
	rename "$file.new", $file or die "cannot write $file: $!";
	return;
}

# The same in the file: the server says so at the reload, and goes on.
my $conf = $pg1->data_dir . '/postgresql.conf';
my $good = slurp_file($conf);
for my $case (@bad)
{
	my ($name, $value, $expected) = @$case;
	my $shown = length $value > 40 ? substr($value, 0, 40) . '...' : $value;
	$shown =~ s/[^ -~]/?/g;
	my $old = $pg1->value("SHOW etcd_leader.$name");
	my $offset = $pg1->log_size;
	(my $quoted = $value) =~ s/'/''/g;
	append_to_file($conf, "etcd_leader.$name = '$quoted'\n");
	$pg1->reload;
	# said once, by the postmaster, together with "contains errors"
	poll(10, sub { $pg1->log_count('contains errors; unaffected changes were applied', $offset) });
	my $log = slurp_file($pg1->logfile, $offset);
	like($log, qr/parameter "etcd_leader\.$name"/, "$name = '$shown' in the file: the log names the setting");
	like($log, $expected, "$name = '$shown' in the file: and says what is allowed");
	is($pg1->value("SHOW etcd_leader.$name"), $old, "$name = '$shown' in the file: the old setting stays");
	write_file($conf, $good);
}
$pg1->reload;

ok($pg1->is_leader, 'after all that it leads');
is($pg1->token, $token, 'under the same token');
is($pg1->elector_pid, $elector, 'and the same elector runs');
poll_ok(10, sub { $pg1->value(q{SELECT last_contact > now() - interval '3 s' FROM etcd_leader_status}) }, 'in contact with etcd');

# A value just within the limits is accepted.
my @fine = (
	[ elections => '' ],
	[ ttl => '300' ], [ ttl => '2' ], [ ttl => '2s' ], [ ttl => '5min' ], [ safety_margin => '-1' ], [ safety_margin => '0' ],
	[ notify_channel => 'c' x 63 ], [ node_name => 'n' x 255 ], [ elections => "a,$long127,\"b c\"" ],
	[ endpoints => 'http://[::1]:2379, http://localhost:2379/' ], [ endpoints => 'localhost:2379, [::1]:2379,10.0.0.1:2379' ],
	[ notify_databases => '' ], [ notify_databases => 'd' x 63 ], [ request_timeout => '1' ], [ candidate => 'never' ]);
for my $case (@fine)
{
	my ($name, $value) = @$case;
	is(join(' ', $pg1->failure("ALTER SYSTEM SET etcd_leader.$name = " . $pg1->dbh->quote($value))), ' ',
		"$name = '" . substr($value, 0, 40) . "' is taken");
	$pg1->dbh->do("ALTER SYSTEM RESET etcd_leader.$name");
}

is(($pg1->failure('SET etcd_leader.ttl = 4'))[0], '55P02', 'ttl cannot be changed in a session');

# A name that does not exist is refused in the same way.
is(($pg1->failure('ALTER SYSTEM SET etcd_leader.candidat = never'))[0] ne '', 1, 'a misspelt name: ALTER SYSTEM is refused');
{
	my $offset = $pg1->log_size;
	append_to_file($conf, "etcd_leader.candidat = 'never'\n");
	$pg1->reload;
	poll_ok(10, sub { $pg1->log_count('invalid configuration parameter name "etcd_leader\.candidat"', $offset) }, 'a misspelt name in the file: the log names it');
	is($pg1->value('SHOW etcd_leader.candidate'), 'primary', 'a misspelt name in the file: nothing has changed');
	write_file($conf, $good);
}

# At the start of the server: FATAL, by each way that a setting may come.
$pg1->stop('fast');
# Tries to start the server: (exit code, its log).
sub try_start
{
	my (@arguments) = @_;
	my $output = '';
	my $server = IPC::Run::start([ 'postgres', '-D', $pg1->data_dir, @arguments ], '<', \undef, '>&', \$output, my $timer = IPC::Run::timeout(20));
	# a server that starts after all is ended, and has failed the test
	eval { IPC::Run::pump($server) until $output =~ /database system is ready|database system is shut down/; 1 }
	  or $output .= 'the server neither starts nor ends';
	IPC::Run::signal($server, 'QUIT') if $output !~ /database system is shut down/;
	IPC::Run::finish($server);
	return ($server->result(0), $output);
}

my $include = $pg1->data_dir . '/more.conf';
my $auto    = $pg1->data_dir . '/postgresql.auto.conf';
my $automatic = slurp_file($auto);
my %start = (
	'on the command line'     => sub { my ($name, $value) = @_; return try_start('-c', "etcd_leader.$name=$value") },
	'in postgresql.conf'      => sub { return try_in_file($conf, $good, @_) },
	'in an included file'     => sub {
		append_to_file($conf, "include 'more.conf'\n");
		my @result = try_in_file($include, '', @_);
		write_file($conf, $good);
		return @result;
	},
	'by ALTER SYSTEM'         => sub { return try_in_file($auto, $automatic, @_) });

sub try_in_file
{
	my ($file, $before, $name, $value) = @_;
	(my $quoted = $value) =~ s/'/''/g;
	write_file($file, "${before}etcd_leader.$name = '$quoted'\n");
	my @result = try_start();
	write_file($file, $before);
	return @result;
}

my %tried;
for my $case (@bad, [ candidat => 'never', qr/has no such setting.*how the name is spelt/s ])
{
	my ($name, $value, $expected) = @$case;
	my $shown = length $value > 40 ? substr($value, 0, 40) . '...' : $value;
	$shown =~ s/[^ -~]/?/g;
	# each value in one way, and one value of each setting in all of them
	for my $way ($tried{$name}++ ? 'on the command line' : sort keys %start)
	{
		my ($status, $log) = $start{$way}->($name, $value);
		is($status, 1, "$name = '$shown' $way: the server does not start");
		like($log, qr/FATAL: .*parameter "etcd_leader\.$name"/, "$name = '$shown' $way: it says which setting is bad");
		like($log =~ s/^.*?FATAL://sr, $expected, "$name = '$shown' $way: and what is allowed");
		unlike($log, qr/geheim/, "$name = '$shown' $way: no secret is repeated");
	}
}
# the settings for hooks accept any text; the file of hooks is in 082_hooks_file.pl
is(join(' ', grep { !$tried{$_} && !/^hooks?_/ } @settings), '', 'every setting was tried');
{
	my (undef, $log) = try_start('-c', 'etcd_leader.ttl=1', '-c', 'etcd_leader.notify_channel=', '-c', 'Etcd_Leader.candidate=nevr');
	like($log, qr/parameter "etcd_leader\.$_"/, "several bad ones: $_ is named") for qw(ttl notify_channel candidate);
}

# And the server does start with good values, in any spelling.
append_to_file($conf, "ETCD_LEADER.TTL = 5000ms\netcd_leader.candidate = Primary\netcd_leader.cancel_on_loss = true\n");
$pg1->start;
$pg1->wait_until_leader;
is($pg1->value('SHOW etcd_leader.ttl'), '5s', 'good ones are taken at a start');

# A password that would be read on the way.
{
	my $warned = sub {
		my ($offset) = @_;
		return join ' ', slurp_file($pg1->logfile, $offset) =~ /WARNING:  the password of etcd's user "pg" is sent to "(\S+)" without encryption\n.*HINT:  Use a URL that begins with "https:/g;
	};
	my $safe = 'http://127.0.0.1:1,http://127.8.9.10:1,LOCALHOST:1,http://[::1]:1,unix:///none,https://etcd.invalid:1';
	my $offset = $pg1->log_size;
	$pg1->configure(username => 'pg', endpoints => "http://etcd1.invalid:1,etcd2.invalid:2,$safe,http://127.etcd.invalid:3,http://0.0.0.0:4,http://[::]:5");
	poll_is(10, sub { $warned->($offset) }, 'http://etcd1.invalid:1 http://etcd2.invalid:2 http://127.etcd.invalid:3 http://0.0.0.0:4 http://[::]:5', 'a password without encryption: warnings');
	is($pg1->value(q{SELECT count(*) FROM etcd_leader_problems WHERE item = 'encryption'}), 5, 'and problems');
	$offset = $pg1->log_size;
	$pg1->configure(username => 'pg', endpoints => $safe, node_name => 'safe');
	poll_is(10, sub { $pg1->status->{node} }, 'safe', 'a password that stays here, or is encrypted');
	is($warned->($offset), '', 'no warning');
	$pg1->configure(username => '', endpoints => 'http://etcd1.invalid:1', node_name => 'no_user');
	poll_is(10, sub { $pg1->status->{node} }, 'no_user', 'no user');
	is($warned->($offset), '', 'no warning');
	$pg1->configure(username => 'pg', endpoints => 'http://etcd1.invalid:1');
	poll_ok(10, sub { $warned->($offset) =~ /etcd1/ }, 'a password without encryption once more: a warning');
	$offset = $pg1->log_size;
	$pg1->restart;
	poll_ok(10, sub { $warned->($offset) =~ /etcd1/ }, 'a password without encryption: a warning at the start');
	$pg1->configure(username => undef, endpoints => undef, node_name => undef);
	$pg1->wait_until_leader;
}

# Functions refuse bad values as well.
is(($pg1->failure('SELECT etcd_proclaim(NULL)'))[0], '22004', 'proclaiming NULL');
isnt(($pg1->failure("SELECT etcd_proclaim(repeat('v', 256))"))[0], '', 'proclaiming more than 255 bytes');
is($pg1->current_leader, 'pg1', 'nothing was proclaimed');
is(($pg1->failure("SELECT $_('nowhere')"))[0], '42704', "$_ of an unknown election")
  for qw(etcd_is_leader etcd_current_leader etcd_fencing_token etcd_resign etcd_campaign etcd_candidates);
is(($pg1->failure(q{SELECT etcd_proclaim('x', 'nowhere')}))[0], '42704', 'etcd_proclaim of an unknown election');
is(($pg1->failure(q{SELECT etcd_wait_for_leadership('nowhere', '1 s')}))[0], '42704', 'etcd_wait_for_leadership of an unknown election');

done_testing();
