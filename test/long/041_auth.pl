# etcd's authentication while an instance leads: it is switched on and off, tokens
# expire, passwords and roles change.  Wrong settings are reported.
use EtcdLeader::Test;

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

# As in doc/operations.md: one role, for the keys of one election.
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

# 1. Authentication is switched on.
$etcd->etcdctl(qw(auth enable));
$etcd->use_credentials('root', 'rootpw');
still_leads('auth switched on');

# 2. Tokens live for two seconds, and end with the member that has issued them.
$etcd->kill(0);
$etcd->start(0);
still_leads('tokens died', 3);

# 3. The role of the documentation is enough, and allows nothing else.
{
	my ($status, undef, $error) = $etcd->try_etcdctl("--user=pg:$password", qw(get other));
	isnt($status, 0, 'the role reads nothing else');
	like($error, qr/permission denied/, 'etcd denies permission');
	$pg2->value('SELECT * FROM etcd_candidates()');
	is($pg2->value('SELECT count(*) FROM etcd_candidates()'), 2, 'etcd_candidates() works with it');
}

# 4. The password is changed, first in etcd, and in the file within a second.
$etcd->etcdctl(qw(user passwd pg --interactive=false), \qq(new."one\n));
write_password('good', 'new."one');
still_leads('password changed');

# The number of passwords that etcd has refused.
sub rejections
{
	return eval { $etcd->metric('grpc_server_handled_total{grpc_code="InvalidArgument",grpc_method="Authenticate",grpc_service="etcdserverpb.Auth",grpc_type="unary"}') } // 0;
}

# 5. A wrong setting is reported once, with a hint.  It is tried again, but not often.
my %hints = (
	'a wrong password' => qr/Check "etcd_leader\.username" and "etcd_leader\.password_file"/,
	'no user'          => qr/set "etcd_leader\.username"/);

sub goes_wrong
{
	my ($what, $settings, $pattern, $repair) = @_;
	my $from = $pg2->log_size;
	$pg2->configure(%$settings);
	# its present token has to expire first
	poll(15, sub { ($pg2->status->{last_error} // '') =~ $pattern });
	my $s = $pg2->status;
	like($s->{last_error}, $pattern, "$what: last_error says so");
	my $hint = $hints{$what};
	like($pg2->value('SELECT hint FROM etcd_leader_problems WHERE problem = ?', $s->{last_error}), $hint, "$what: the hint") if $hint;
	my $before = rejections();
	pause(3);
	cmp_ok(rejections() - $before, '<=', 1, "$what: etcd is not asked again and again");
	is($pg2->log_count('WARNING:  ' . quotemeta $s->{last_error}, $from), 1, "$what: the log says so once");
	cmp_ok($pg2->log_count('etcd_leader elector .*LOG:', $from), '<=', 6, "$what: the log has no line for each retry")
	  or diag(slurp_file($pg2->logfile, $from));
	$repair->();
	my $repaired = $pg2->value('SELECT clock_timestamp()');
	poll_ok(20, sub { $pg2->value(q{SELECT connected AND state = 'waiting' AND last_contact > ? FROM etcd_leader_status}, $repaired) && $pg2->trouble eq '' },
		"$what: after the repair it has contact again") or diag(EtcdLeader::Instance::explain_status($pg2));
	return;
}
my $good = sub { $pg2->configure(%auth) };
my $wrong = write_password('wrong', 'geheim');
goes_wrong('a wrong password', { password_file => $wrong },
	qr/authentication failed/,
	# without a reload, because a change of the file is noticed
	sub { write_password('wrong', 'new."one') });
goes_wrong('a file that others read', { password_file => write_password('open', 'new."one', 0644) },
	qr/"etcd_leader\.password_file"\) has group or world access/, $good);
goes_wrong('no file', { password_file => "$dir/none" }, qr/could not open ".*none".*No such file/, $good);
goes_wrong('no setting of a file', { password_file => '' }, qr/"etcd_leader\.username" is set, but "etcd_leader\.password_file" is not/, $good);
goes_wrong('an empty file', { password_file => write_password('empty', "\n") }, qr/must hold a password/, $good);
goes_wrong('no user', { username => '' }, qr/user name is empty/, $good);

# 6. A followed election that the role may not read costs the own election nothing.
{
	$pg1->configure(elections => 'postgres, patroni:foreign');
	poll_ok(2 * $ttl, sub { ($pg1->value(q{SELECT last_error FROM etcd_leader_status WHERE election = 'patroni:foreign'}) // '') =~ m{may not read keys that begin with "/service/foreign/"} },
		'a followed election that must not be read: last_error has the keys') or diag(EtcdLeader::Instance::explain_status($pg1));
	still_leads('a followed election that must not be read');
	is($pg1->value(q{SELECT etcd_verify_leader('postgres')}), $token, 'a followed election that must not be read: etcd confirms the own one');
	$pg1->configure(elections => 'postgres');
	poll_ok(5, sub { $pg1->value('SELECT count(*) FROM etcd_leader_status') == 1 }, 'the followed election is dropped');
}

# 7. The rights to one of two elections are taken away, and given back.
{
	my $states = q{SELECT string_agg(election || ' ' || state, ', ' ORDER BY election) FROM etcd_leader_status};
	$etcd->etcdctl(qw(role grant-permission etcd_leader --prefix=true readwrite jobs/));
	$pg1->configure(elections => 'postgres, jobs');
	poll_is(5, sub { $pg1->value($states) }, 'jobs leading, postgres leading', 'two elections: one instance leads both');
	$pg2->configure(elections => 'postgres, jobs');
	poll_is(5, sub { $pg2->value($states) }, 'jobs waiting, postgres waiting', 'two elections: the other one waits in both');
	my $before = $pg1->last_event;

	$etcd->etcdctl(qw(role revoke-permission etcd_leader --prefix=true jobs/));
	poll_is($ttl + 1, sub { $pg1->value(q{SELECT string_agg(election || ' ' || reason, ', ') FROM etcd_leader_events(?) WHERE event = 'unelected'}, $before) },
		'jobs permission_denied', 'rights to one of two revoked: its leadership ends, with the reason');
	is($pg1->value(q{SELECT etcd_is_leader('jobs')::int}), 0, 'rights to one of two revoked: nobody leads there');
	is($pg1->value(q{SELECT losses FROM etcd_leader_losses WHERE reason = 'permission_denied'}), 1, 'rights to one of two revoked: it is counted');
	my $other = q{SELECT state FROM etcd_leader_status WHERE election = 'postgres'};
	ok(!poll(2 * $ttl, sub { $pg1->value($other) ne 'leading' }), 'rights to one of two revoked: the other election is led all the time')
	  or diag(EtcdLeader::Instance::explain_status($pg1));
	is($pg2->value($other), 'waiting', 'rights to one of two revoked: and waited for');
	still_leads('rights to one of two revoked', 0);
	poll_ok(2, sub { ($pg1->value(q{SELECT hint FROM etcd_leader_problems WHERE subject = 'jobs'}) // '') =~ m{grant-permission ROLE --prefix=true readwrite jobs/} }, 'rights to one of two revoked: the problem has the remedy');
	# the key that cannot be deleted is gone with its lease
	is(scalar $etcd->candidates('jobs'), 0, 'rights to one of two revoked: no key is left');
	is($pg1->value(q{SELECT etcd_verify_leader('postgres')}), $token, 'rights to one of two revoked: etcd confirms the other election');

	$etcd->etcdctl(qw(role grant-permission etcd_leader --prefix=true readwrite jobs/));
	poll_ok(15, sub { grep { $_->value(q{SELECT etcd_is_leader('jobs')::int}) } @nodes }, 'rights to one of two granted again: somebody leads')
	  or diag(EtcdLeader::Instance::explain_status($pg1));
	still_leads('rights to one of two granted again');
	for my $node (@nodes)
	{
		poll_ok(2 * $ttl, sub { $node->value($states) =~ /^jobs (leading|waiting), / }, 'rights to one of two granted again: ' . $node->name . ' is in the queue');
	}
	$_->configure(elections => 'postgres') for @nodes;
	poll_ok(5, sub { $_->value('SELECT count(*) FROM etcd_leader_status') == 1 }, 'the second election is dropped by ' . $_->name) for @nodes;
}

# 8. The role is taken away, and given back.
{
	is($pg1->token, $token, 'before the role is revoked: it still leads');
	$etcd->etcdctl(qw(role revoke-permission etcd_leader --prefix=true postgres/));
	poll_ok($ttl / 3 + 1, sub { !$pg1->is_leader }, 'the role revoked: nobody leads, from the next renewal on');
	my $expected = qr{may not read and write keys that begin with "postgres/"};
	# etcd 3.5 also refuses requests about the lease
	my $error;
	poll(2 * $ttl, sub { ($error = $pg1->status->{last_error} // '') =~ $expected });
	like($error, $expected, 'the role revoked: last_error has the keys');
	ok(!poll(2 * $ttl, sub { !defined $pg1->status->{last_error} }), 'the role revoked: last_error stays');
	$etcd->etcdctl(qw(role grant-permission etcd_leader --prefix=true read postgres/));
	pause(2);
	ok(!(grep { $_->is_leader } @nodes), 'permission to read is not enough to lead');
	$etcd->etcdctl(qw(role grant-permission etcd_leader --prefix=true readwrite postgres/));
	poll_ok(15, sub { grep { $_->is_leader } @nodes }, 'the role granted again: somebody leads');
	$_->wait_until_candidate for @nodes;
	poll_is(20, sub { $pg1->trouble }, '', 'the role granted again: last_error is empty');
}

# 9. Authentication is switched off.
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
is($first[1]{answer}, 'f', 'it did not lead any longer');

for my $node (@nodes)
{
	is($node->log_count('geheim|new."one|corr"ct'), 0, $node->name . ': no password is in the log');
	is($node->value(q{SELECT count(*) FROM pg_settings WHERE setting ~ 'geheim|new."one|corr"ct'}), 0, $node->name . ': no password is in a setting');
	unlike(join(' ', map { $_ // '' } values %{ $node->status }), qr/geheim|new."one|corr"ct/, $node->name . ': no password is in the view');
}
done_testing();
