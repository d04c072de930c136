# Events of elections are kept over a clean restart, in order and under their
# numbers. A crash loses them, which their numbers show. A file that is damaged,
# too short, of another format or of another server gets a log line, and is ignored.
use EtcdLeader::Test;

my $etcd = EtcdLeader::Etcd->new;
my $pg   = EtcdLeader::Instance->create('pg1', etcd => $etcd);
my $file = $pg->data_dir . '/pg_stat/etcd_leader.events';
$pg->wait_until_leader;

# The events of elections after that number, as texts.
my $texts = sub {
	my ($after) = @_;
	return [ map { $_->{t} } $pg->rows(q{SELECT e::text AS t FROM etcd_leader_events(?) e WHERE event <> 'change' ORDER BY seq}, $after // 0) ];
};
my $newest = sub { $_[0][-1] =~ /^\((\d+)/ ? $1 : die };

# Restarts, and returns the events before and after the restart, and the log's offset.
sub restart
{
	my ($between, $mode) = @_;
	my $before = $texts->();
	my $offset = $pg->log_size;
	$pg->stop($mode // 'fast');
	$between->() if $between;
	$pg->start;
	$pg->wait_until_leader;
	return ($before, $texts->(), $offset);
}

ok(!-e $file, 'a server that runs has no file');
for my $changes (0, 1)
{
	$pg->configure(watched_prefixes => $changes ? 'flags/' : '');
	$etcd->etcdctl('put', 'flags/a', 'on') if $changes;
	poll_is(10, sub { $pg->value(q{SELECT count(*) > 0 FROM etcd_leader_events() WHERE key = 'flags/a'}) }, $changes, 'there is a change, or not') if $changes;
	$pg->value('SELECT etcd_resign()');
	$pg->wait_until_leader;
	my ($before, $after, $offset) = restart(sub { ok(-e $file, 'a clean shutdown writes the file') });
	is_deeply([ @$after[ 0 .. $#$before ] ], $before, 'the events of before are there, in order, under their numbers');
	my @seqs = map { /^\((\d+)/ } @$after;
	is_deeply(\@seqs, [ sort { $a <=> $b } @seqs ], 'the numbers increase');
	my ($shutdown) = grep { $after->[$_] =~ /unelected.*shutdown/ } @$before .. $#$after;
	ok(defined $shutdown, 'the shutdown is told') or next;
	is($pg->value('SELECT min(seq) FROM etcd_leader_events(?)', $seqs[$shutdown]) - $seqs[$shutdown], 1 + $changes, $changes ? 'a number is skipped, because changes are lost' : 'no number is skipped');
	is($pg->log_count('ignoring the events', $offset), 0, 'nothing is ignored');
	ok(!-e $file, 'the file is gone');
	is($pg->value(q{SELECT count(*) FROM etcd_leader_events(?) WHERE event = 'change' AND key IS NOT NULL}, 0), 0, 'changes are not kept');
}
my $listener = $pg->listen;
pause(0.3);
is_deeply([ $listener->notifications ], [], 'they are not notified again');

{
	my ($before, $after) = restart(undef, 'immediate');
	my ($first) = $after->[0] =~ /^\((\d+)/;
	cmp_ok($first, '>', $newest->($before) + 1, 'an immediate shutdown loses them, which the numbers show');
}
{
	my ($before) = restart();
	$pg->stop('immediate');
	ok(!-e $file, 'an immediate shutdown writes no file');
	$pg->start;
	$pg->wait_until_leader;
}

# Changes the file.
sub edit
{
	my ($code) = @_;
	return sub {
		my $bytes = slurp_file($file);
		$code->() for $bytes;
		open my $out, '+<:raw', $file or die $!;
		truncate $out, 0;
		print $out $bytes;
		close $out;
	};
}
my $saved = "$PostgreSQL::Test::Utils::tmp_check/saved.events";
for my $case (
	[ 'truncated',      edit(sub { $_ = substr($_, 0, length($_) / 2) }), 'too short' ],
	[ 'empty',          edit(sub { $_ = '' }), 'too short' ],
	[ 'damaged',        edit(sub { substr($_, length($_) / 2, 1) ^= 'x' }), 'damaged' ],
	[ 'longer',         edit(sub { $_ .= 'x' }), 'damaged' ],
	[ 'older format',   edit(sub { substr($_, 0, 1) = "\0" }), 'another format' ],
	[ 'text',           edit(sub { $_ = 'x' x 10_000 }), 'another format' ],
	[ 'a copy',         sub { system('cp', '-p', $file, $saved) == 0 && system('cp', '-p', $saved, "$file.2") == 0 && rename("$file.2", $file) or die }, 'last shutdown' ],
	[ 'an earlier one', sub { open my $out, '+<:raw', $file or die; truncate $out, 0; print $out slurp_file($saved) }, 'last shutdown' ],
	[ 'another node',   sub { $pg->append_conf('postgresql.conf', "etcd_leader.node_name = 'renamed'") }, 'last shutdown' ])
{
	my ($name, $spoil, $detail) = @$case;
	my ($before, $after, $offset) = restart($spoil);
	my ($first) = $after->[0] =~ /^\((\d+)/;
	cmp_ok($first, '>', $newest->($before) + 1, "$name: its events are not there");
	is($pg->log_count("LOG:  ignoring the events in file \"pg_stat/etcd_leader.events\"", $offset), 1, "$name: the log says so");
	is($pg->log_count("DETAIL:  .*$detail", $offset), 1, "$name: and why");
	ok(-e $file, "$name: it is left alone");
}
done_testing();
