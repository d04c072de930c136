# Changes of keys below etcd_leader.watched_prefixes: each put and delete is an
# event on the primary and on a standby, in SQL and by NOTIFY; values that are
# long, large or binary; deletes of many keys at once; etcd_get().
use EtcdLeader::Test;
use EtcdLeader::Session;
use IO::Socket::INET;

my $etcd    = EtcdLeader::Etcd->new;
my $primary = EtcdLeader::Instance->create('primary', etcd => $etcd, init => { allows_streaming => 1 },
	settings => { ttl => 30, watched_prefixes => 'flags/, "maintenance "' });
$primary->wait_until_leader;
my $standby = EtcdLeader::Instance->create_standby('standby', $primary);
$primary->wait_for_catchup($standby);

# The changes after that event, as "key=value reason", with - for null.
sub changes
{
	my ($pg, $after) = @_;
	return map { $_->{change} } $pg->rows(
		q{SELECT coalesce(key, '-') || '=' || coalesce(value, '-') || ' ' || coalesce(reason, '-') AS change
		  FROM etcd_leader_events(?) WHERE event = 'change' ORDER BY seq}, $after);
}

sub put { my ($key, $value) = @_; $etcd->post('/v3/kv/put', { key => EtcdLeader::Etcd::b64($key), value => EtcdLeader::Etcd::b64($value) }) or die; return }

# At the start there is a gap: the caller has to read the existing keys.
for my $pg ($primary, $standby)
{
	my $name = $pg->name;
	poll_ok(10, sub { my @c = changes($pg, 0); @c == 1 && $c[0] eq '-=- gap' }, "$name: the beginning is a gap")
	  or diag(explain [ changes($pg, 0) ]);
}
my $listener = $primary->listen;
my %mark = map { ($_->name => $_->last_event) } $primary, $standby;
my $mark = $mark{primary};

# Puts and deletes, of two prefixes; other keys are none.
my $began = now();
put('flags/a', 'on');
put('maintenance 1', 'x');
put('flags', 'not below');
put('flags0', 'not below');
put('flags/a', '');
$etcd->etcdctl('del', 'flags/a');
my @expected = ('flags/a=on -', 'maintenance 1=x -', 'flags/a= -', 'flags/a=- -');
for my $pg ($primary, $standby)
{
	my $name = $pg->name;
	poll_ok(10, sub { changes($pg, $mark{$name}) >= 4 }, "$name: changes are events");
	is_deeply([ changes($pg, $mark{$name}) ], \@expected, "$name: each once, in order");
	my ($first) = grep { ($_->{key} // '') eq 'flags/a' } $pg->rows('SELECT * FROM etcd_leader_events(?)', $mark{$name});
	is_deeply([ @$first{qw(election event node leader fencing_token)} ], [ undef, 'change', $name, undef, undef ], "$name: its other columns");
	is($first->{revision}, ($etcd->try_etcdctl('get', 'flags', '-w', 'fields'))[1] =~ /"ModRevision" : (\d+)/ ? $1 - 2 : 0,
		"$name: its revision");
}

# Keys and values are for those who may read them by etcd_get().
$primary->value($_) for 'CREATE ROLE joe LOGIN', 'CREATE ROLE reader LOGIN', 'GRANT EXECUTE ON FUNCTION etcd_get(text, boolean) TO reader';
$primary->wait_for_catchup($standby);
for my $pg ($primary, $standby)
{
	for my $role (qw(joe reader))
	{
		my $dbh = $pg->connect_db('postgres', user => $role);
		for my $function (qw(etcd_leader_events etcd_wait_for_event))
		{
			my $keys = $dbh->selectcol_arrayref("SELECT concat_ws('=', key, value) FROM $function(?) WHERE event = 'change' ORDER BY seq", {}, $mark{ $pg->name });
			is(join(' ', map { $_ eq '' ? '-' : $_ } @$keys), $role eq 'joe' ? '- - - -' : 'flags/a=on maintenance 1=x flags/a= flags/a',
				$pg->name . ": $function: " . ($role eq 'joe' ? 'PUBLIC sees changes, and neither keys nor values' : 'a role that may call etcd_get() sees them'));
			my ($revisions) = $dbh->selectrow_array("SELECT count(revision) FROM $function(?) WHERE event = 'change'", {}, $mark{ $pg->name });
			is($revisions, 4, $pg->name . ": $function: $role sees the revisions");
		}
	}
}
my $told = $listener->wait_for(sub { $_[0]->{seq} == $mark + 4 });
is_deeply([ @$told{qw(event node)} ], [ 'change', 'primary' ], 'NOTIFY: up to the last one');
is_deeply([ grep { defined } @$told{qw(election leader fencing_token reason key value revision)} ], [], 'NOTIFY: with its number alone');
# since the first change is announced at once, the next changes wait
my ($first) = grep { $_->{event} eq 'change' && $_->{seq} > $mark } $listener->notifications;
in_time($first->{arrived} - $began, 0.1, 'NOTIFY: a change after quiet is told at once');

# Some changes in a moment: who waits is woken for the first one at once, and for
# the others soon, though nothing else happens then. Requests at the same time,
# since etcd answers a request after a write to disk.
sub put_together
{
	my (@keys) = @_;
	my @sockets = map { IO::Socket::INET->new(PeerAddr => $etcd->url(0) =~ s{^http://}{}r) // die $! } @keys;
	for my $i (0 .. $#keys)
	{
		my $body = '{"key":"' . EtcdLeader::Etcd::b64($keys[$i]) . '","value":"MQ=="}';
		syswrite $sockets[$i], "POST /v3/kv/put HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Length: " . length($body) . "\r\n\r\n$body";
	}
	for my $socket (@sockets) { local $/; <$socket> =~ m{^HTTP/1.1 200 } or die 'no answer' }
	return;
}

my ($bursts, @burst) = (15, map { "flags/burst$_" } 1 .. 8);
$primary->value('CREATE TABLE arrival (key text, after_ms float)');
$primary->value(<<'END');
CREATE PROCEDURE note_arrivals(seen bigint, n int) LANGUAGE plpgsql AS $$
DECLARE
	newest bigint := seen;
BEGIN
	WHILE (SELECT count(*) FROM arrival) < n LOOP
		CALL etcd_await_event(newest);
		INSERT INTO arrival SELECT key, 1000 * extract(epoch FROM clock_timestamp() - at)
			FROM etcd_leader_events(seen) WHERE seq <= newest AND event = 'change';
		COMMIT;
		seen := newest;
	END LOOP;
END $$
END
my $waiter = $primary->connect_db;
start_statement($waiter, sprintf 'CALL note_arrivals(%s, %d)', $primary->last_event, $bursts * @burst);
for my $n (1 .. $bursts)
{
	put_together(@burst);
	poll(10, sub { $primary->value('SELECT count(*) FROM arrival') == $n * @burst });
}
my $arrivals = $primary->row('SELECT count(*) AS n, max(after_ms) AS longest, percentile_disc(0.5) WITHIN GROUP (ORDER BY after_ms) AS median FROM arrival');
note(sprintf 'they were told after %.1f ms (median), %.1f ms (longest)', @$arrivals{qw(median longest)});
is($arrivals->{n}, $bursts * @burst, 'changes in a moment: each is told');
in_time($arrivals->{median} / 1000, 0.05, 'after milliseconds');
# the next thing would be a renewal, which comes every 10 s
cmp_ok($arrivals->{longest}, '<', 3000, 'and none waits for something else to happen');

# Values that are no text, and long values.
$mark = $primary->last_event;
put('flags/nul', "a\0b");
put('flags/escape', "a\x1bb");
put('flags/c1', "a\xc2\x9bb");
put('flags/joined', "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x92\xbb");
put('flags/latin', "caf\xe9");
put("flags/\xff\xfe", 'x');
put('flags/lines', "a\tb\r\nc");
put('flags/1000', 'x' x 1000);
put('flags/1001', 'x' x 1001);
put('flags/utf8', 'x' x 999 . "\xc3\xa9");
put('flags/blob', "\0" x 501);
put('flags/' . 'k' x 1100, '1');
put('flags/payload', '"\\' x 500);
poll(10, sub { changes($primary, $mark) >= 13 });
is_deeply([ changes($primary, $mark) ], [
		'flags/nul=610062 binary', 'flags/escape=611b62 binary', 'flags/c1=61c29b62 binary', "flags/joined=\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x92\xbb -", 'flags/latin=636166e9 binary',
		unpack('H*', "flags/\xff\xfe") . '=x binary', "flags/lines=a\tb\r\nc -",
		'flags/1000=' . 'x' x 1000 . ' -', 'flags/1001=' . 'x' x 1000 . ' truncated', 'flags/utf8=' . 'x' x 999 . ' truncated',
		'flags/blob=' . '00' x 500 . ' binary, truncated', 'flags/' . 'k' x 994 . '=1 truncated', 'flags/payload=' . '"\\' x 500 . ' -' ],
	'binary in hex, long ones cut at the end of a character');

# Large values, many keys at once: by one delete, and by a lease.
$mark = $primary->last_event;
my $large = 1_500_000;
put('flags/large', 'v' x $large);
$etcd->etcdctl('del', '--prefix', 'flags/');
poll(20, sub { changes($primary, $mark) >= 23 });
my @seen = changes($primary, $mark);
is($seen[0], 'flags/large=' . 'v' x 1000 . ' truncated', 'a value of 1.5 MB');
is(scalar(grep { /=- / } @seen[ 1 .. $#seen ]), 22, 'a prefix is deleted: each of its keys');

# long enough for all the puts
my $lease = $etcd->etcdctl('lease', 'grant', '5') =~ /lease (\w+)/ ? $1 : die;
$mark = $primary->last_event;
my $after_puts;
for my $n (0 .. 9)
{
	$etcd->post('/v3/kv/txn', { success => [
		map { { request_put => { key => EtcdLeader::Etcd::b64(sprintf 'flags/%04d', $_), value => 'MQ==', lease => hex($lease) . '' } } } 100 * $n .. 100 * $n + 99 ] })
	  or die;
}
poll_ok(20, sub { changes($primary, $mark) >= 2000 }, 'a lease of 1,000 keys: put and expired');
@seen = changes($primary, $mark);
is_deeply([ map { s/=.*//r } @seen[ 0 .. 999 ] ], [ map { sprintf 'flags/%04d', $_ } 0 .. 999 ], 'puts in order');
is(join(' ', sort @seen[ 1000 .. $#seen ]), join(' ', map { sprintf 'flags/%04d=- -', $_ } 0 .. 999), 'each deletion once');
my %revisions = map { ($_->{revision} => 1) } $primary->rows('SELECT revision FROM etcd_leader_events(?) WHERE value IS NULL AND key IS NOT NULL', $mark);
is(scalar(keys %revisions), 1, 'in one revision');

# etcd_get()
put("flags/$_->[0]", $_->[1]) for [ 'one', 1 ], [ 'two', "\0\xff" ], [ 'three', '' ];
my $get = sub { join ' ', map { "$_->{key}=$_->{value}" } $primary->rows('SELECT * FROM etcd_get(?, ?)', @_) };
is($get->('flags/one', 0), 'flags/one=1', 'etcd_get: a key');
is($get->('flags/t', 0), '', 'etcd_get: no such key');
is($get->('flags/t', 1), 'flags/three= flags/two=00ff', 'etcd_get: a prefix');
is($get->('maintenance ', 1), 'maintenance 1=x', 'etcd_get: a watched prefix itself');
is($standby->value(q{SELECT value FROM etcd_get('flags/one')}), 1, 'etcd_get: on a standby');
my ($key) = $etcd->keys('flags/one');
is_deeply($primary->row(q{SELECT * FROM etcd_get(key => 'flags/one', prefix => NULL)}),
	{ key => 'flags/one', value => 1, create_revision => $key->{create_revision}, mod_revision => $key->{mod_revision} }, 'etcd_get: all columns');
for my $key ('flags', 'postgres/', 'flag', 'maintenance', '', 'zebra', 'Flags/one', 'flags0')
{
	for my $prefix (0, 1)
	{
		my ($state) = $primary->failure("SELECT * FROM etcd_get('$key', '$prefix')");
		is($state, '42501', "etcd_get('$key', $prefix): not below a watched prefix");
	}
}
is(($primary->failure('SELECT * FROM etcd_get(NULL)'))[0], '22004', 'etcd_get: NULL is an error');

# many changes, and large changes
for my $n (0 .. 29)
{
	$etcd->post('/v3/kv/txn', { success => [
		map { { request_put => { key => EtcdLeader::Etcd::b64(sprintf 'flags/m/%04d', $_), value => 'MQ==' } } } 100 * $n .. 100 * $n + 99 ] });
}
is($primary->value(q{SELECT count(*) || ' ' || count(DISTINCT key) || ' ' || min(key) || ' ' || max(key) FROM etcd_get('flags/m/', true)}),
	'3000 3000 flags/m/0000 flags/m/2999', 'etcd_get: 3,000 keys');
put("flags/l/$_", chr(65 + $_) x $large) for 0 .. 9;
put("flags/l/a$_", "small $_") for 0 .. 99;
is($primary->value(q{SELECT count(*) || ' ' || count(DISTINCT key) || ' ' || sum(length(value)) || ' ' || count(*) FILTER (WHERE value = repeat(chr(65 + right(key, 1)::int), 1500000)) FROM etcd_get('flags/l/', true)}),
	'110 110 ' . (10 * $large + 790) . ' 10', 'etcd_get: values of 1.5 MB, and small ones');

# Nothing was said of any of it.
my $log = slurp_file($primary->logfile);
unlike($log, qr{flags/}, 'the log is quiet');
unlike($log, qr/WARNING|ERROR:  (?!.*(?:watched prefix|must not be null))/, 'no warning, no other error');

# A deletion, and a compaction at its revision, while no watch is open: etcd drops the
# deletion, and says nothing to a watch that begins right there (#18089).
# Both prefixes have come to the revision before it.
$mark = $primary->last_event;
$etcd->post('/v3/kv/txn', { success => [ map { { request_put => { key => EtcdLeader::Etcd::b64($_), value => 'MQ==' } } } 'flags/dropped', 'maintenance 2' ] }) or die;
poll_ok(10, sub { changes($primary, $mark) >= 2 }, 'changes before etcd is away') or diag(explain [ changes($primary, $mark) ]);
my $elector = $primary->elector_pid;
kill 'STOP', $elector;
$etcd->stop(0);
$etcd->start(0);
$etcd->wait_until_serving;
my ($revision) = $etcd->etcdctl('del', 'flags/dropped', '-w', 'json') =~ /"revision":(\d+)/ or die;
$etcd->etcdctl('compact', $revision);
put('flags/dropped', 'again');
pause(0.5);
kill 'CONT', $elector;
poll_ok(10, sub { changes($primary, $mark) >= 3 }, 'the next change is told');
like((changes($primary, $mark))[2] // '', qr/^(?:-=- gap|flags.dropped=- -)$/, 'it is the deletion, or a gap');
done_testing();
