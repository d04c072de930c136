# etcd with users: switched on and off, tokens that die, passwords and roles
# that change, all while an instance leads; and what is said where it is wrong.
use strict;
use warnings;

use EtcdLeader::Etcd;
use EtcdLeader::Instance;
use EtcdLeader::Util;
use PostgreSQL::Test::Utils;
use Test::More;

my $ttl      = 4;
my $password = 'corr"ct \\horse €';
my $etcd     = EtcdLeader::Etcd->new(members => 3, flags => [ '--auth-token' => 'simple', '--auth-token-ttl' => 2 ]);
my $dir      = PostgreSQL::Test::Utils::tempdir('passwords');

sub write_password
{
	my ($name, $text, $mode) = @_;
	my $file = "$dir/$name";
	open my $fh, '>', "$file.new" or die "cannot write $file: $!";
	chmod $mode // 0600, $fh;
	print $fh $text;
	close $fh or die "cannot write $file: $!";
	rename "$file.new", $file or die "rename: $!";
	return $file;
}

# As doc/operations.md says: one role, for the keys of one election.
$etcd->etcdctl(qw(user add root:rootpw));
$etcd->etcdctl(qw(user grant-role root root));
$etcd->etcdctl(qw(role add etcd_leader));
$etcd->etcdctl(qw(role grant-permission etcd_leader --prefix=true readwrite postgres/));
$etcd->etcdctl('user', 'add', "pg:$password");
$etcd->etcdctl(qw(user grant-role pg etcd_leader));

my %auth  = (username => 'pg', password_file => write_password('good', "$password\n"));
my @nodes = map { EtcdLeader::Instance->create($_, etcd => $etcd, settings => { ttl => $ttl, %auth }) } qw(pg1 pg2);
my ($pg1, $pg2) = @nodes;
$pg1->wait_until_leader;
$pg2->wait_until_candidate;
my $token    = $pg1->token;
my @samplers = map { $_->sample } @nodes;
my $offset   = $pg1->log_size;

sub still_leads
{
	my ($what, $seconds) = @_;
	pause($seconds // $ttl + 0.5);
	is($pg1->token, $token, "$what: it leads on");
	poll_ok(10, sub { $pg2->value(q{SELECT connected AND etcd_current_leader() = 'pg1' AND last_contact > now() - interval '2 s' FROM etcd_leader_status}) },
		"$what: and the other one follows") or diag(EtcdLeader::Instance::explain_status($pg2));
	return;
}

# 1. Auth is switched on.
$etcd->etcdctl(qw(auth enable));
$etcd->use_credentials('root', 'rootpw');
still_leads('auth switched on');

# 2. Tokens live for two seconds, and die with the member that has them.
$etcd->kill(0);
$etcd->start(0);
still_leads('tokens died', 3);

# 3. The least role is enough, and no more than that.
{
	my ($status, undef, $error) = $etcd->try_etcdctl("--user=pg:$password", qw(get other));
	isnt($status, 0, 'the role reads nothing else');
	like($error, qr/permission denied/, 'for want of permission');
	$pg2->value('SELECT * FROM etcd_candidates()');
	is($pg2->value('SELECT count(*) FROM etcd_candidates()'), 2, 'etcd_candidates() works with it');
}

# 4. The password is changed: in etcd first, in the file within the second.
$etcd->etcdctl(qw(user passwd pg --interactive=false), \qq(new."one\n));
write_password('good', 'new."one');
still_leads('password changed');

# How often etcd has refused a password.
sub rejections
{
	return eval { $etcd->metric('grpc_server_handled_total{grpc_code="InvalidArgument",grpc_method="Authenticate",grpc_service="etcdserverpb.Auth",grpc_type="unary"}') } // 0;
}

# 5. What is wrong is said once, with what to do, and is tried again calmly.
sub goes_wrong
{
	my ($what, $settings, $pattern, $repair) = @_;
	my $from = $pg2->log_size;
	$pg2->configure(%$settings);
	# tokens that it has must die first
	poll(15, sub { ($pg2->status->{last_error} // '') =~ $pattern });
	my $s = $pg2->status;
	like($s->{last_error}, $pattern, "$what: last_error says so");
	my $before = rejections();
	pause(3);
	cmp_ok(rejections() - $before, '<=', 1, "$what: etcd is not asked again and again");
	# the same within a minute is no news
	is($pg2->log_count(quotemeta $s->{last_error}), 1, "$what: and the log, once");
	cmp_ok($pg2->log_count('etcd_leader elector .*LOG:', $from), '<=', 6, "$what: which has no line per retry")
	  or diag(slurp_file($pg2->logfile, $from));
	$repair->();
	my $repaired = $pg2->value('SELECT clock_timestamp()');
	poll_ok(20, sub { $pg2->value(q{SELECT connected AND state = 'waiting' AND last_contact > ? AND last_error_at < ? FROM etcd_leader_status}, $repaired, $pg2->value(q{SELECT clock_timestamp() - interval '1 s'})) },
		"$what: put right, it is back") or diag(EtcdLeader::Instance::explain_status($pg2));
	return;
}
my $good = sub { $pg2->configure(%auth) };
my $wrong = write_password('wrong', 'geheim');
goes_wrong('a wrong password', { password_file => $wrong },
	qr/authentication failed.*check "etcd_leader\.username" and "etcd_leader\.password_file"/,
	# no reload: that the file has changed is noticed
	sub { write_password('wrong', 'new."one') });
goes_wrong('a file that others read', { password_file => write_password('open', 'new."one', 0644) },
	qr/"etcd_leader\.password_file"\) has group or world access/, $good);
goes_wrong('no file', { password_file => "$dir/none" }, qr/could not open ".*none".*No such file/, $good);
goes_wrong('no setting of a file', { password_file => '' }, qr/"etcd_leader\.username" is set, but "etcd_leader\.password_file" is not/, $good);
goes_wrong('an empty file', { password_file => write_password('empty', "\n") }, qr/must hold a password/, $good);
goes_wrong('no user', { username => '' }, qr/user name is empty.*set "etcd_leader\.username"/, $good);

# 6. The role is taken away, and given back.
{
	is($pg1->token, $token, 'the role: it still leads');
	$etcd->etcdctl(qw(role revoke-permission etcd_leader --prefix=true postgres/));
	my $revoked = now();
	poll_ok($ttl + 1, sub { !$pg1->is_leader }, 'the role revoked: nobody leads after the TTL');
	my $expected = qr{about key "postgres/.*permission denied.*grant the etcd user a role};
	# etcd 3.5 refuses what is asked about the lease as well
	poll(2 * $ttl, sub { $pg1->status->{last_error} =~ $expected });
	like($pg1->status->{last_error}, $expected, 'and last_error says for which key, and what to do');
	ok(!poll(2 * $ttl, sub { !defined $pg1->status->{last_error} }), 'for as long as it is so');
	$etcd->etcdctl(qw(role grant-permission etcd_leader --prefix=true read postgres/));
	pause(2);
	ok(!(grep { $_->is_leader } @nodes), 'reading alone is not enough');
	$etcd->etcdctl(qw(role grant-permission etcd_leader --prefix=true readwrite postgres/));
	poll_ok(15, sub { grep { $_->is_leader } @nodes }, 'the role granted again: somebody leads');
	$_->wait_until_candidate for @nodes;
	poll_is(2 * $ttl, sub { $pg1->status->{last_error} }, undef, 'and last_error says that nothing is wrong');
}

# 7. Auth is switched off.
{
	my ($leader) = grep { $_->is_leader } @nodes;
	my $won = $leader->token;
	$etcd->etcdctl(qw(auth disable));
	delete $etcd->{credentials};
	pause($ttl + 0.5);
	is($leader->token, $won, 'auth switched off: it leads on');
}

my %runs = EtcdLeader::Sampler::check_exclusion(\@samplers, 'users', max_gap => 2);
my @first = grep { $_->{answer} ne 'down' } @{ $runs{pg1} };
is($first[0]{answer} . $first[0]{token}, "t$token", 'it led from the start until the role was revoked, without a gap');
is($first[1]{answer}, 'f', 'and not longer');

for my $node (@nodes)
{
	is($node->log_count('geheim|new."one|corr"ct'), 0, $node->name . ': no password is in the log');
	is($node->value(q{SELECT count(*) FROM pg_settings WHERE setting ~ 'geheim|new."one|corr"ct'}), 0, $node->name . ': nor in a setting');
	unlike(join(' ', map { $_ // '' } values %{ $node->status }), qr/geheim|new."one|corr"ct/, $node->name . ': nor in the view');
}
done_testing();
