# doc/secured_etcd.md, and doc/runbook.md on a secured etcd, as it stands there: its commands make the
# certificates, three members, the users and the files, and its settings work with
# them; a second user takes the place of the first one; the commands of the runbook.
# In a network of its own, since the addresses of the page are fixed.
use EtcdLeader::Namespace;
use EtcdLeader::Test;
use EtcdLeader::Documents;

my $page = 'doc/secured_etcd.md';
my $dir  = PostgreSQL::Test::Utils::tempdir('secured');
mkdir "$dir/$_" or die "mkdir: $!" for qw(bin admin root root/etc);
my @etcd = split /,/, $ENV{ETCD} || 'etcd';
my ($etcdctl) = grep { -x } $ENV{ETCDCTL} // (), map { "$_/etcdctl" } split /:/, $ENV{PATH};
symlink $etcdctl, "$dir/bin/etcdctl" or die "symlink: $!";
EtcdLeader::Namespace::run_as_root("ip addr add 10.0.0.$_/32 dev lo") for 1 .. 3;

# Files go below a directory of the test, and belong to its user.
sub in_test
{
	my ($text) = @_;
	$text =~ s{/etc/}{$dir/root/etc/}g;
	$text =~ s/ -o \w+ -g \w+//g;
	return $text;
}

# Runs a block in the shell for the administration of etcd, with the variables that
# earlier blocks have exported.  Returns the output; the exit status is a test.
my $exported = "export PATH=$dir/bin:\$PATH\n";

sub run_block
{
	my ($name, $from) = (@_, $page);
	my $block  = in_test(document_block($from, $name));
	my $output = run_shell($block);
	is($?, 0, "$from: $name") or diag($output);
	$exported .= "$1\n" while $block =~ /^(export .*)/mg;
	return $output;
}

sub run_shell
{
	my ($script) = @_;
	my $output = '';
	# variables in the environment of the test's user are not in the document
	local %ENV = map { $_ => $ENV{$_} } grep { !/^ETCDCTL_/ } keys %ENV;
	# etcd is slow on a busy machine
	@ENV{qw(ETCDCTL_DIAL_TIMEOUT ETCDCTL_COMMAND_TIMEOUT)} = ('30s', '60s');
	IPC::Run::run([ 'sh', '-ec', "cd $dir/admin\n$exported$script" ], '<', \undef, '&>', \$output);
	return $output;
}

run_block($_) for qw(certificates etcd_files);
is((stat "$dir/root/etc/etcd/etcd.key")[2] & 0777, 0600, "nobody else can read the member's key");

# A member with the file of the first host, on its own one.
my @members = map {
	my $i = $_;
	my $file = in_test(document_block($page, 'default_etcd'));
	my @own = qw(ETCD_LISTEN_CLIENT_URLS ETCD_ADVERTISE_CLIENT_URLS ETCD_LISTEN_PEER_URLS ETCD_INITIAL_ADVERTISE_PEER_URLS);
	is(join(' ', $file =~ /\AETCD_NAME=etcd1\n((?:.*\n){4})/ ? $1 =~ /^(\w+)=/mg : ()), "@own", 'the lines that differ come first') if $i == 1;
	$file =~ s/^(ETCD_NAME=etcd)1$/$1$i/m;
	$file =~ s{^($_=https://10\.0\.0\.)1:}{$1$i:}m or die "no $_" for @own;
	EtcdLeader::Util::Process->spawn(
		name => "etcd$i",
		log  => "$PostgreSQL::Test::Utils::log_path/047_etcd$i.log",
		env  => { ETCD_DATA_DIR => "$dir/data$i", $file =~ /^(\w+)=(.*)$/mg },
		cmd  => [ $etcd[ ($i - 1) % @etcd ] ]);
} 1 .. 3;
my $variables = document_block($page, 'etcdctl');
poll(30, sub { run_shell($variables) && $? == 0 });
is(scalar(() = run_block('etcdctl') =~ / is healthy/g), 3, 'three members serve TLS');
run_shell('curl --silent --cacert ca.crt https://10.0.0.1:2379/version');
isnt($?, 0, 'and none to a client without a certificate');
run_block('users');
like(run_shell('unset ETCDCTL_USER; etcdctl get x || true'), qr/user name is empty|permission denied/, 'etcd wants a user now');
run_block('postgres_files');
is(join(' ', map { sprintf '%o', (stat "$dir/root/etc/etcd_leader/$_")[2] & 0777 } qw(postgres.key password)), '600 600', 'nobody else can read the key and the password');

my $settings = in_test(document_block($page, 'secured_settings'));
my @nodes = map { EtcdLeader::Instance->create($_, endpoints => 'http://127.0.0.1:1', settings => { ttl => 12, $_ eq 'pg3' ? (candidate => 'never') : () }, conf => $settings) } qw(pg1 pg2 pg3);
my ($pg1, $pg2, $pg3) = @nodes;
poll_ok(20, sub { grep { $_->is_leader } $pg1, $pg2 }, 'somebody leads') or diag(EtcdLeader::Instance::explain_status($pg1));
$_->wait_until_candidate for $pg1, $pg2;
my ($leader) = grep { $_->is_leader } $pg1, $pg2;
my ($other)  = grep { $_ != $leader } $pg1, $pg2;
$leader->value('SELECT etcd_resign()');
poll_ok(10, sub { $other->is_leader }, 'the leader hands over');
poll_ok(10, sub { ($pg3->current_leader // '') eq $other->name }, 'an observer sees it');

# ---- the runbook and the upgrades ----
{
	my $printed = run_block('runbook_etcd', 'doc/runbook.md');
	like($printed, qr{^shop/\S+\n@{[$other->name]}\nshop/\S+\n@{[$leader->name]}$}m, 'the queue, the leader first');
	is(scalar(() = $printed =~ / is healthy/g), 3, 'the health of the members');
	like(run_block('etcd_leader', 'doc/operations.md'), qr/IS LEADER.*\btrue\b/s, "etcd's leader");
	run_block('no_space', 'doc/runbook.md');
	like(run_block('one_endpoint', 'doc/runbook.md'), qr/"etcdserver":\s*"3\./, 'one endpoint answers');
	is($other->token, $other->value('SELECT etcd_verify_leader()'), 'the leader leads on');
}

# ---- another user, one instance after the other ----
{
	my $token = $other->token;
	# etcd checks passwords for seconds on a busy machine, and does nothing else then
	for my $node (@nodes)
	{
		$node->configure_conf(ttl => '60s');
		poll_is(30, sub { $node->value('SELECT ttl FROM etcd_leader_status') }, '00:01:00', $node->name . ': a longer TTL');
	}
	run_block('second_user');
	run_shell(in_test(document_block($page, 'postgres_files') =~ s/postgres\.key password /password_2 /r));
	for my $node (@nodes)
	{
		$node->append_conf('postgresql.conf', in_test(document_block($page, 'second_login')));
		$node->reload;
		poll_is(10, sub { $node->value('SHOW etcd_leader.username') }, 'pg_2', $node->name . ' is the second user');
	}
	poll_is(20, sub { $_->value(q{SELECT count(*) FROM etcd_leader_check() WHERE severity = 'error'}) }, 0, $_->name . ': the check has no error') for @nodes;
	run_block('first_user');
	# two renewals later; the passwords keep a busy machine from them for seconds
	my $renewals = $other->value('SELECT keepalives FROM etcd_leader_stats');
	poll_ok(120, sub { $other->value('SELECT keepalives FROM etcd_leader_stats') >= $renewals + 2 }, 'the leader renews its lease');
	is($other->token, $token, 'and leads under the same token');
	# a late answer is forgotten after a TTL; a refusal comes again
	poll_is(120, sub { $other->trouble }, '', 'without an error');
}

# An observer needs to read only.
is(run_shell(<<'END') && $?, 0, 'a user that may only read');
etcdctl role add reader
etcdctl role grant-permission reader --prefix=true read shop/
etcdctl user add reader:pw
etcdctl user grant-role reader reader
END
append_to_file("$dir/reader", 'pw');
chmod 0600, "$dir/reader";
$pg3->configure(username => 'reader', password_file => "$dir/reader");
$other->value('SELECT etcd_resign()');
poll_ok(10, sub { ($pg3->current_leader // '') eq $leader->name }, 'an observer that may only read sees the next');

# A client certificate with a common name, and users, by the gateway: said in words.
{
	run_shell('openssl req -newkey rsa:2048 -nodes -subj /CN=root -keyout cn.key -out cn.csr'
		  . ' && openssl x509 -req -days 1 -in cn.csr -CA ca.crt -CAkey ca.key -CAcreateserial -extfile postgres.ext -out cn.crt && chmod 600 cn.key');
	$pg3->configure(protocol => 'json', ssl_cert_file => "$dir/admin/cn.crt", ssl_key_file => "$dir/admin/cn.key");
	poll_ok(15, sub { ($pg3->status->{last_error} // '') =~ /CommonName|common name/i }, 'a certificate with a common name: last_error says so')
	  or diag($pg3->status->{last_error});
	note($pg3->status->{last_error});
}
done_testing();
