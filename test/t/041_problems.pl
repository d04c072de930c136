# One list of problems: each fault that a first day brings is in the view, in last_error,
# in the log, in the metrics, on the status page and in the check within 30 s, with one and
# the same text; and is gone from all of them within 30 s after it is mended.  On
# three members of etcd with TLS and users.
use EtcdLeader::Test;
use EtcdLeader::Certificates;
use EtcdLeader::Http;

my $ca = EtcdLeader::Certificates->new;
my ($server_cert, $server_key) = $ca->sign('server', for => ['IP:127.0.0.1'], days => 400);
my ($cert, $key) = $ca->sign('pg', days => 400);
my $other_ca = EtcdLeader::Certificates->new;
my ($other_cert, $other_key) = $other_ca->sign('pg', days => 400);
my $etcd = EtcdLeader::Etcd->new(
	members => 3,
	flags   => ['--bcrypt-cost=4'],
	tls     => [ '--cert-file' => $server_cert, '--key-file' => $server_key, '--trusted-ca-file' => $ca->ca, '--client-cert-auth' ]);
my @url = split /,/, $etcd->tls_endpoints;
my $dir = PostgreSQL::Test::Utils::tempdir('problems');
append_to_file("$dir/$_", "$_\n") for qw(right wrong);
chmod 0600, "$dir/$_" or die for qw(right wrong);
$etcd->etcdctl(@$_)
  for [qw(user add root:geheim)], [qw(user grant-role root root)], [qw(user add pg:right)], [qw(role add postgres)],
  [qw(role grant-permission postgres --prefix=true readwrite postgres/)], [qw(user grant-role pg postgres)], [qw(auth enable)];
$etcd->use_credentials('root', 'geheim');

my $within = 30;
my $ttl    = 5;
my $port   = PostgreSQL::Test::Cluster::get_free_port();
my $pg     = EtcdLeader::Instance->create('pg1', endpoints => join(',', @url), init => { allows_streaming => 1 },
	settings => {
		ttl => $ttl, username => 'pg', password_file => "$dir/right", http_listen => "127.0.0.1:$port",
		ssl_ca_file => $ca->ca, ssl_cert_file => $cert, ssl_key_file => $key
	});
$pg->wait_until_leader;
poll_is(10, sub { http_code($port, '/liveness') }, 200, 'HTTP');

sub metric
{
	my ($port, $item, $subject, $severity) = @_;
	my ($code, $headers, $body) = http_get($port, '/metrics');
	return $body =~ /^etcd_leader_problem\{item="\Q$item\E",subject="\Q$subject\E",severity="$severity"\} 1$/m ? 1 : 0;
}

sub html { my ($text) = @_; return $text =~ s/([<>&"'])/'&#' . ord($1) . ';'/ger }

# Makes a fault, and mends it.  item, subject, severity, and a pattern for the text.
# The view has others, too, if the fault has several sides.
sub try
{
	my ($what, %args) = @_;
	my $node = $args{node} // $pg;
	my $port = $args{port} // $port;
	my ($item, $subject, $severity) = @args{qw(item subject severity)};
	my $row = sub { return $node->row('SELECT * FROM etcd_leader_problems WHERE item = ? AND coalesce(subject, $$$$) = ?', $item, $subject) };
	my $log = $node->log_size;

	is($row->(), undef, "$what: not there before");
	my $began = now();
	$args{make}->();
	my $found;
	poll_ok($within, sub { $found = $row->() }, "$what: the view has it within $within s") or return;
	my $took = now() - $began;
	my ($text, $hint) = @{$found}{qw(problem hint)};
	like($text, $args{text}, "$what: the text");
	isnt($hint // '', '', "$what: and what to do");
	is($found->{severity}, $severity, "$what: the severity");
	# that of the contact ends with the failure of one endpoint after the other
	my $same = $args{begins} // $text;
	poll_ok(5, sub { $node->log_count("WARNING:  \Q$same\E", $log) }, "$what: the log has the text") or diag($text);
	ok(metric($port, $item, $subject, $severity), "$what: the metrics have it");
	like((http_get($port, '/status'))[2], qr/\Q${\html($same)}\E/, "$what: the status page has the text");
	poll_ok(5, sub { $node->value('SELECT count(*) FROM etcd_leader_status JOIN etcd_leader_problems ON last_error = problem AND last_error_at = since') }, "$what: last_error is of the list");
	# nothing flaps: it stays, with the time of its beginning
	my $stays = 1;
	my $end   = now() + 4;
	while (now() < $end) { my $r = $row->(); $stays &&= $r && $r->{since} eq $found->{since}; pause(0.1) }
	ok($stays, "$what: it stays there, since $found->{since}");
	ok((grep { $_->{item} eq $item && ($_->{subject} // '') eq $subject && $_->{severity} eq $severity } $node->rows(q{SELECT * FROM etcd_leader_check('10 s')})), "$what: the check has it");
	ok($row->(), "$what: and the view has it after the check");
	is($node->log_count("WARNING:  .*\Q$args{unique}\E", $log), 1, "$what: one line in the log") if $args{unique};

	$began = now();
	$args{mend}->();
	poll_ok($within, sub { !$row->() }, "$what: mended, the view has it no more within $within s") or diag(explain($row->()));
	my $gone = now() - $began;
	poll_ok(5, sub { $node->log_count("LOG:  this problem is over: ", $log) }, "$what: the log says that it is over");
	ok(!metric($port, $item, $subject, $severity), "$what: and the metrics have it no more");
	note(sprintf '%s: there after %.1f s, gone after %.1f s: %s', $what, $took, $gone, $text);
	return;
}

sub is_fine
{
	my ($node, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	poll_is($within, sub { $node->trouble }, '', "$what: the view is empty");
	return;
}

is_fine($pg, 'all is well');
is($pg->value('SELECT count(*) FROM etcd_leader_status WHERE last_error IS DISTINCT FROM (SELECT problem FROM etcd_leader_problems)'), 0, 'and there is no error');
my $token = $pg->token;

# ---- etcd ----
{
	my ($spare) = grep { $url[$_] ne $pg->status->{endpoint} } $etcd->all;
	try('a dead member', item => 'endpoint', subject => $url[$spare], severity => 'warning', text => qr/^etcd at "\Q$url[$spare]\E" cannot be used: /,
		make => sub { $etcd->kill($spare) }, mend => sub { $etcd->start($spare) });
	is_fine($pg, 'the member is back');
	try('a hung member', item => 'majority', subject => '', severity => 'warning', text => qr/^1 of 3 endpoints cannot be used, and etcd needs most of its members$/,
		make => sub { $etcd->freeze($spare) }, mend => sub { $etcd->thaw($spare) });
	is_fine($pg, 'it answers again');
	my $closed = 'https://127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port();
	my ($used) = grep { $url[$_] eq $pg->status->{endpoint} } $etcd->all;
	try('an endpoint that is wrong', item => 'endpoint', subject => $closed, severity => 'warning', text => qr/Connection refused/,
		make => sub { $pg->configure(endpoints => join ',', $url[$used], $url[$spare], $closed) }, mend => sub { $pg->configure(endpoints => join ',', @url) });
	try('two endpoints of three that are wrong', item => 'cluster', subject => '', severity => 'error', text => qr/^1 of 3 endpoints belong to the etcd cluster in use, and more than half must/,
		make => sub { $pg->configure(endpoints => join ',', $url[$used], $closed, 'https://127.0.0.1:1') }, mend => sub { $pg->configure(endpoints => join ',', @url) });
	is_fine($pg, 'the endpoints are right');
}

# ---- a reload with what would not work at the next start ----
{
	try('a wrong password', item => 'user', subject => 'pg', severity => 'error', text => qr/authentication failed/, unique => 'did not give user',
		make => sub { $pg->configure(password_file => "$dir/wrong") }, mend => sub { $pg->configure(password_file => "$dir/right") });
	try('a password that is not there', item => 'file', subject => 'etcd_leader.password_file', severity => 'error', text => qr/No such file/,
		make => sub { $pg->configure(password_file => "$dir/none") }, mend => sub { $pg->configure(password_file => "$dir/right") });
	try('another authority', item => 'endpoint', subject => $pg->status->{endpoint}, severity => 'warning', text => qr/the certificate of etcd at "\S+" is not valid/,
		make => sub { $pg->configure(ssl_ca_file => $other_ca->ca) }, mend => sub { $pg->configure(ssl_ca_file => $ca->ca) });
	try('a client certificate of another authority', item => 'endpoint', subject => $pg->status->{endpoint}, severity => 'warning', text => qr/does not accept the client certificate/,
		make => sub { $pg->configure(ssl_cert_file => $other_cert, ssl_key_file => $other_key) }, mend => sub { $pg->configure(ssl_cert_file => $cert, ssl_key_file => $key) });
	try('no rights', item => 'rights', subject => 'shop', severity => 'error', text => qr/may not read and write keys that begin with "shop\/"/,
		make => sub { $pg->configure(elections => 'postgres,shop') }, mend => sub { $pg->configure(elections => 'postgres') });
	try('a margin that is too large', item => 'ttl', subject => 'etcd_leader.safety_margin', severity => 'warning', text => qr/more than half/,
		make => sub { $pg->configure(safety_margin => '4s') }, mend => sub { $pg->configure(safety_margin => -1) });
	is_fine($pg, 'the settings are right');
	is($pg->token, $token, 'nothing of that has cost the leadership');
}

# ---- a line that waits for the next start ----
{
	my $append = sub { $pg->append_conf('postgresql.conf', $_[0]) };
	try('a bad line', item => 'settings', subject => 'wal_buffers', severity => 'warning', text => qr/^line \d+ of file "postgresql\.conf": invalid value for parameter "wal_buffers"$/,
		make => sub { $append->("wal_buffers = many\n"); $pg->reload }, mend => sub { $append->("wal_buffers = -1\n") });
	try('a parameter that does not exist', item => 'settings', subject => 'etcd_leader.tll', severity => 'warning', text => qr/^line \d+ of file "postgresql\.auto\.conf": unrecognized configuration parameter "etcd_leader\.tll"$/,
		make => sub { append_to_file($pg->data_dir . '/postgresql.auto.conf', "etcd_leader.tll = 5\n") }, mend => sub { $pg->adjust_conf('postgresql.auto.conf', 'etcd_leader.tll', undef) });
	try('a line that cannot be read', item => 'settings', subject => 'postgresql.conf', severity => 'warning', text => qr/^line \d+ of file "postgresql\.conf": syntax error/,
		make => sub { $append->("listen to = me\n") }, mend => sub { $pg->adjust_conf('postgresql.conf', 'listen', undef) });
	$append->("max_prepared_transactions = 20\n");
	$pg->reload;
	is_fine($pg, 'a change that waits for a restart is no problem');
}

# ---- elections ----
{
	try('resigned for good', item => 'resigned', subject => 'postgres', severity => 'warning', text => qr/stays out of election "postgres"/,
		make => sub { $pg->value('SELECT etcd_resign(rejoin => false)') }, mend => sub { $pg->value('SELECT etcd_campaign()') });
	$pg->wait_until_leader;

	$pg->backup('backup');
	my $standby_port = PostgreSQL::Test::Cluster::get_free_port();
	my $standby = EtcdLeader::Instance->create_standby('standby', $pg, settings => { node_name => 'standby', http_listen => "127.0.0.1:$standby_port" });
	poll_is(10, sub { http_code($standby_port, '/liveness') }, 200, 'HTTP of a standby');
	try("a standby with the primary's name", node => $standby, port => $standby_port, item => 'node_name', subject => 'postgres', severity => 'error',
		text => qr/^the leader of election "postgres" is also named "pg1"$/,
		make => sub { $standby->configure(node_name => 'pg1') }, mend => sub { $standby->configure(node_name => 'standby') });
	try('two candidates of one name', node => $standby, port => $standby_port, item => 'node_name', subject => 'postgres', severity => 'error',
		text => qr/^another candidate of election "postgres" is also named "pg1"/,
		make => sub { $standby->configure(node_name => 'pg1', candidate => 'always') }, mend => sub { $standby->configure(node_name => 'standby', candidate => 'primary') });
	$standby->stop('fast');
}

# ---- the elector, and the cause of a loss ----
{
	my $log = $pg->log_size;
	try('no contact', item => 'contact', subject => '', severity => 'error', text => qr/^no contact with etcd, so this instance cannot become or stay leader: /,
		begins => 'no contact with etcd, so this instance cannot become or stay leader: ',
		make => sub { $etcd->freeze($_) for $etcd->all }, mend => sub { $etcd->thaw($_) for $etcd->all });
	is($pg->log_count('DETAIL:  The reason is "lease_expired": (?:no answer from|could not connect to) etcd at ', $log), 1, 'the log has the cause of the loss');
	$pg->wait_until_leader;
	is_fine($pg, 'contact is back');

	kill 'TERM', $pg->elector_pid;
	$pg->wait_until_leader;
	is_fine($pg, 'another elector');
}

done_testing();
