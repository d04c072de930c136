# Changes of keys of other programs, under faults: etcd is restarted, compacted or
# replaced; the elector ends, or the server crashes; settings change; the ring of events
# overflows; the user has no permission.  Each change is announced once and in order, or
# a gap is.  The election is not affected.
use EtcdLeader::Test;

my $etcd = EtcdLeader::Etcd->new;
my $pg   = EtcdLeader::Instance->create('pg', etcd => $etcd, settings => { watched_prefixes => 'flags/', ttl => 10 });
$pg->wait_until_leader;

sub changes
{
	my ($after) = @_;
	return join ' ', map { $_->{change} } $pg->rows(
		q{SELECT coalesce(key || '=' || coalesce(value, '-'), reason) AS change
		  FROM etcd_leader_events(?) WHERE event = 'change' ORDER BY seq}, $after);
}

sub told
{
	my ($after, $expected, $name, $timeout) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	poll($timeout // 20, sub { (eval { changes($after) } // '') eq $expected });
	is(changes($after), $expected, $name);
	return;
}

sub put { $etcd->etcdctl('put', @_); return }

told(0, 'gap', 'the beginning');

# etcd is restarted, and keys change before the instance has contact again.
my $mark = $pg->last_event;
put('flags/a', 1);
told($mark, 'flags/a=1', 'a change');
$etcd->kill(0);
pause(0.5);
$etcd->start(0);
put('flags/a', $_) for 2 .. 4;
told($mark, 'flags/a=1 flags/a=2 flags/a=3 flags/a=4', 'etcd was restarted: no change is missing, none comes twice');

# A new etcd replaces etcd.
$mark = $pg->last_event;
$etcd->kill(0);
$etcd->start(0, fresh => 1);
put('flags/new', $_) for 1 .. 2;
poll(20, sub { changes($mark) =~ /gap/ });
put('flags/new', 3);
poll(20, sub { changes($mark) =~ /flags\/new=3$/ });
like(changes($mark), qr{^gap( flags/new=1)?( flags/new=2)? flags/new=3$}, 'etcd was replaced: a gap first');
is($pg->value(q{SELECT value FROM etcd_get('flags/new')}), 3, 'the keys of the new etcd can be read');

# A compaction while the elector is stopped, so that its next revision is gone.
$mark = $pg->last_event;
my $elector = $pg->elector_pid;
put('flags/b', 1);
told($mark, 'flags/b=1', 'before the compaction');
kill 'STOP', $elector;
$etcd->kill(0);
$etcd->start(0);
put('flags/b', $_) for 2 .. 4;
my $revision = ($etcd->keys('flags/b'))[0]{mod_revision};
$etcd->etcdctl('compact', $revision);
kill 'CONT', $elector;
poll(20, sub { changes($mark) =~ /gap/ });
put('flags/b', 5);
told($mark, 'flags/b=1 gap flags/b=5', 'after a compaction: a gap, and then the next change');

# The elector ends, and then the server crashes.
$mark = $pg->last_event;
$pg->value('SELECT pg_terminate_backend(?)', $pg->elector_pid);
poll(20, sub { changes($mark) =~ /gap/ });
put('flags/c', 1);
told($mark, 'gap flags/c=1', 'the elector ended: a gap');
my $seq = $pg->last_event;
kill 'KILL', $pg->elector_pid;
poll(30, sub { (eval { changes($seq) } // '') =~ /gap/ }) or die 'no gap after the crash';
put('flags/c', 2);
told($seq, 'gap flags/c=2', 'the server crashed: a gap');

# Settings: an old prefix goes on, and a new one begins with a gap.
$mark = $pg->last_event;
$pg->configure(watched_prefixes => 'flags/,more/');
told($mark, 'gap', 'a new prefix');
put('flags/d', 1);
put('more/d', 2);
poll(20, sub { changes($mark) =~ /more/ });
is(join(' ', sort split / /, changes($mark)), 'flags/d=1 gap more/d=2', 'changes of both prefixes are announced');
$pg->configure(watched_prefixes => 'flags/');
poll(10, sub { ($pg->failure(q{SELECT etcd_get('more/d')}))[0] eq '42501' });
is(($pg->failure(q{SELECT etcd_get('more/d')}))[0], '42501', 'a removed prefix cannot be read');
put('more/d', 3);
put('flags/d', 4);
poll(20, sub { changes($mark) =~ /flags\/d=4/ });
unlike(changes($mark), qr/gap.*gap|more\/d=3/, 'changes of a removed prefix are not announced, and the other one has no gap');

# An election has keys below the prefix.  Elections have priority.
my ($state, $message) = $pg->failure(q{ALTER SYSTEM SET etcd_leader.watched_prefixes = 'flags/', 'postgres/x'});
is($state, '22023', 'a prefix in an election is refused');
$pg->configure(elections => 'postgres,flags');
poll(10, sub { $pg->trouble =~ /watched_prefixes/ });
like($pg->trouble, qr/"etcd_leader\.watched_prefixes" is ignored for prefix "flags\/", which has keys of election "flags"/,
	'an election in a prefix: last_error says that the prefix is ignored');
is(($pg->failure(q{SELECT etcd_get('flags/d')}))[0], '42501', 'an election in a prefix: it cannot be read');
$mark = $pg->last_event;
$pg->configure(elections => undef);
poll(20, sub { changes($mark) =~ /gap/ });
# the key of the dropped election may be deleted after the watch began
like(changes($mark), qr{^gap( flags/[0-9a-f]+\.\d+\.1\.pg=-)?$}, 'without the election: watched again');
poll(5, sub { $pg->trouble eq '' });
is($pg->trouble, '', 'without the election: last_error is empty');

# More changes than the ring can hold: a gap is announced, and the other events are kept.
my $listener = $pg->listen;
$mark = $pg->last_event;
$pg->value('SELECT etcd_resign()');
$pg->wait_until_leader;
my $elections = sub { join ' ', map { $_->{event} } $pg->rows(q{SELECT event FROM etcd_leader_events(?) WHERE event <> 'change' ORDER BY seq}, $mark) };
my $before = $elections->();
my $value  = EtcdLeader::Etcd::b64('v' x 1000);
for my $n (1 .. 50)
{
	$etcd->post('/v3/kv/txn', { success => [
		map { { request_put => { key => EtcdLeader::Etcd::b64("flags/$_" . 'k' x 200), value => $value } } } 1 .. 100 ] }) or die;
}
put('flags/end', 1);
poll(20, sub { changes($mark) =~ /flags\/end=1$/ });
my @all = $pg->rows('SELECT * FROM etcd_leader_events(?) ORDER BY seq', $mark);
my ($gap) = grep { ($_->{reason} // '') eq 'gap' } @all;
ok($gap, 'the ring overflows: a gap');
is($elections->(), $before, 'the events of the election are all there');
my @after = grep { $_->{event} eq 'change' && $_->{seq} > $gap->{seq} } @all;
is(join(' ', map { $_->{seq} } @after), join(' ', $gap->{seq} + 1 .. $all[-1]{seq}), 'after the gap: no number is missing');
cmp_ok(scalar(@after), '>=', 256, 'at least 256 are kept');
is($pg->value('SELECT count(*) FROM etcd_leader_events(?)', $gap->{seq}), scalar @after, 'a reader that continues after the gap misses nothing');
ok($listener->wait_for(sub { $_[0]->{event} eq 'change' && $_[0]->{seq} == $all[-1]{seq} }, 20), 'NOTIFY goes on');

# A user may not read the prefix.  That is reported, and the election goes on.
my $token = $pg->token;
$etcd->etcdctl(qw(user add root:rootpw));
$etcd->etcdctl(qw(user grant-role root root));
$etcd->etcdctl(qw(role add pg));
$etcd->etcdctl(qw(role grant-permission pg --prefix=true readwrite postgres/));
$etcd->etcdctl(qw(user add pg:secret));
$etcd->etcdctl(qw(user grant-role pg pg));
$etcd->etcdctl(qw(auth enable));
$etcd->use_credentials('root', 'rootpw');
my $file = PostgreSQL::Test::Utils::tempdir('password') . '/password';
PostgreSQL::Test::Utils::append_to_file($file, "secret\n");
chmod 0600, $file;
my $offset = $pg->log_size;
$pg->configure(username => 'pg', password_file => $file);
my $denied = qr{etcd's user may not read keys that begin with "flags/"};
poll(20, sub { $pg->trouble =~ $denied });
like($pg->trouble, $denied, 'no permission: last_error says so');
($state, $message) = $pg->failure(q{SELECT * FROM etcd_get('flags/a')});
is($state, '08006', 'etcd_get: an error');
like($message, qr/could not read key "flags\/a" from etcd: .*permission denied/, 'etcd_get: the message has etcd\'s text');
pause(6);
is($pg->token, $token, 'the instance leads on');
is($pg->log_count(qr{WARNING:  $denied}, $offset), 1, 'one line in the log');
$mark = $pg->last_event;
$etcd->etcdctl(qw(role grant-permission pg --prefix=true read flags/));
poll(20, sub { $pg->trouble eq '' });
put('flags/granted', 1);
poll(20, sub { changes($mark) =~ /granted/ });
like(changes($mark), qr{^(gap )?flags/granted=1$}, 'with permission, changes come again');
done_testing();
