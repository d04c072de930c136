# The file of hooks: each mistake is named with its line, ends a start, and leaves the
# old lines in force at a reload, also over a crash of the server.
use EtcdLeader::Test;
use EtcdLeader::Hooks;
use EtcdLeader::Shim;
use POSIX ();

my $etcd = EtcdLeader::Etcd->new;
my $good = q{elected shop postgres app 10s "SELECT 1"};
my $node = create_with_hooks('pg1', [$good], etcd => $etcd, settings => { elections => 'shop, all', watched_prefixes => 'w/' }, sql => ['CREATE ROLE app LOGIN']);
my $file = hooks_file($node);
$node->wait_until_leader('shop');
poll(10, sub { $node->value(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'etcd_leader hooks'}) }) or die 'no process of hooks';

sub write_raw { my ($bytes, $mode) = @_; unlink $file; rmdir $file; append_to_file($file, $bytes); chmod $mode // 0640, $file or die $!; return }

# Reloads the unchanged file.  Returns the row of the view, and the log.
sub reload
{
	my $offset  = $node->log_size;
	my $last    = q{SELECT coalesce(greatest(read_at, error_at)::text, '') FROM etcd_leader_hooks_file};
	my $read_at = $node->value($last);
	$node->reload;
	poll(10, sub { $node->value($last) ne $read_at }) or die 'the file is not read';
	return (hooks_error($node), $node->log_count('LOG:  ' . quotemeta(hooks_error($node)), $offset));
}

my $line = sub { my ($n, $what) = @_; return qr/^line $n of hooks file "hooks\.conf": $what/ };
my @mistakes = (
	[ 'an event', q{elect shop postgres app 10s "SELECT 1"}, $line->(2, 'unknown event "elect"') ],
	[ 'an election', q{elected nowhere postgres app 10s "SELECT 1"}, $line->(2, 'election "nowhere" does not exist') ],
	[ 'a prefix', q{change x/ postgres app 10s "SELECT 1"}, $line->(2, 'keys with the prefix "x/" are not watched') ],
	[ 'a column less', q{elected shop postgres app "SELECT 1"}, $line->(2, 'a hook has six fields') ],
	[ 'a column more', q{elected shop postgres app 10s "SELECT 1" on}, $line->(2, 'a hook has six fields') ],
	[ 'an open quote', qq{elected shop postgres app 10s "SELECT 1\n$good}, $line->(2, 'unterminated quoted string') ],
	[ 'an open quote at the end', q{elected shop postgres app 10s "SELECT 2}, $line->(2, 'unterminated quoted string'), 'no end' ],
	[ 'no quotes', q{elected shop postgres app 10s VACUUM}, $line->(2, 'COMMAND must be in double quotes') ],
	[ 'no command', q{elected shop postgres app 10s ""}, $line->(2, 'COMMAND must be in double quotes and not empty') ],
	[ 'no timeout', q{elected shop postgres app 0 "SELECT 1"}, $line->(2, 'invalid timeout "0"; it is 1s to 1d') ],
	[ 'a timeout without a unit', q{elected shop postgres app 10 "SELECT 1"}, $line->(2, 'invalid timeout "10"') ],
	[ 'a long timeout', q{elected shop postgres app 25h "SELECT 1"}, $line->(2, 'invalid timeout "25h"') ],
	[ 'a long name', 'elected shop ' . 'x' x 64 . ' app 10s "SELECT 1"', $line->(2, 'DATABASE and ROLE must be 1 to 63 bytes long') ],
	[ 'no name', 'elected shop postgres "" 10s "SELECT 1"', $line->(2, 'DATABASE and ROLE must be') ],
	[ 'a list', q{elected shop,all postgres app 10s "SELECT 1"}, $line->(2, 'lists and "@" are not supported') ],
	[ 'a list with blanks', q{elected shop postgres , app 10s "SELECT 1"}, $line->(2, 'lists and "@" are not supported') ],
	[ '@', q{elected @hooks.conf postgres app 10s "SELECT 1"}, $line->(2, 'lists and "@" are not supported') ],
	[ 'include', q{include "other.conf"}, $line->(2, '"include" is not supported') ],
	[ 'include in quotes', q{ "include_dir" other}, $line->(2, '"include" is not supported') ],
	[ 'include with quotes in it', q{inc"lude" other.conf}, $line->(2, '"include" is not supported') ],
	[ 'include after an empty quote', q{""include"" other.conf}, $line->(2, '"include" is not supported') ],
	[ 'include in two lines', qq{ \\\r\n inc\\\nlude_if_exists other.conf}, $line->(2, '"include" is not supported') ],
	[ 'a backslash and two returns at the end of a comment', qq{# a comment \\\r\r\n$good}, $line->(2, 'a comment must not end with a backslash') ],
	[ 'a backslash before a comment', qq{elected shop postgres app 10s \\\n# a comment\n"SELECT 1"}, $line->(2, 'a hook has six fields') ],
	[ 'a backslash at the end of a comment', qq{# a comment \\\n$good}, $line->(2, 'a comment must not end with a backslash') ],
	[ 'two equal lines', qq{change w/ postgres app 10s "SELECT 1"\n$good # but for the comment and the timeout\n} =~ s/10s "SELECT 1" #/20s "SELECT 1" #/r, $line->(3, 'the same hook is in line 1') ],
	[ 'invalid UTF-8', qq{# a comment\nelected shop postgres app 10s "SELECT '\xff'"}, $line->(3, 'invalid UTF-8') ],
	[ 'a zero', qq{elected shop postgres app 10s "SELECT 1\0"}, $line->(2, 'invalid UTF-8, or a byte of zero') ],
	[ '33 hooks', join("\n", map { qq{elected shop postgres app 10s "SELECT 1 + $_"} } 1 .. 32), $line->(33, 'there are more than 32 hooks') ],
	[ '65 kB', '# ' . 'x' x 66_560, qr/^could not load hooks file "hooks\.conf": it is larger than 64 kB/ ]);
for my $case (@mistakes)
{
	my ($what, $text, $message, $no_end) = @$case;
	write_raw("$good\n$text" . ($no_end ? '' : "\n"));
	my ($error, $logged) = reload();
	like($error, $message, "$what: the view says so");
	is($logged, 1, "$what: and the log, once");
}
my %kind = (
	'a FIFO' => [ sub { unlink $file; POSIX::mkfifo($file, 0600) or die $! }, 'it is not a regular file' ],
	'a directory' => [ sub { unlink $file; mkdir $file or die $! }, 'it is not a regular file' ],
	'0666' => [ sub { write_raw("$good\n", 0666) }, 'group or others have permission to write it' ],
	'0660' => [ sub { write_raw("$good\n", 0660) }, 'group or others have permission to write it' ],
	'a device' => [ sub { unlink $file; symlink '/dev/zero', $file or die $! }, 'it is not a regular file' ]);
for my $what (sort keys %kind)
{
	my ($make, $message) = @{ $kind{$what} };
	$make->();
	my ($error, $logged) = reload();
	is($error, qq{could not load hooks file "hooks.conf": $message}, "$what: the view says so");
	is($logged, 1, "$what: and the log, once");
}
unlink $file;
rmdir $file;
like((reload())[0], qr/^could not load hooks file "hooks\.conf": No such file/, 'no file');
is($node->value('SELECT count(*) FROM etcd_leader_hooks'), 1, 'the old lines are in force');
is(hook($node, 1)->{runs}, 1, 'and have not run again');

# over a crash restart, too; a corrected file waits for a reload
write_raw(qq{$good\nelected shop postgres app 10s "SELECT 2"\n});
my $pid = $node->value('SELECT pg_backend_pid()');
my $offset = $node->log_size;
kill 'KILL', $pid;
poll(30, sub { $node->log_count('database system is ready to accept connections', $offset) && $node->try_value('SELECT true') }) or die 'it does not restart';
poll_ok(10, sub { $node->value(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'etcd_leader hooks'}) }, 'the server crashes');
is($node->value('SELECT count(*) FROM etcd_leader_hooks'), 1, 'the old lines stay in force');
like(hooks_error($node), qr/^could not load hooks file/, 'and the error stays');
$node->wait_until_leader('shop');
is(hook($node, 1)->{runs}, 1, 'what is done is not done again');
$node->value('SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = ?', 'etcd_leader hooks');
poll_ok(10, sub { $node->value(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'etcd_leader hooks' AND backend_start > now() - '10 s'::interval}) }, 'another process of hooks is there');
pause(0.3);
is($node->value('SELECT count(*) FROM etcd_leader_hooks'), 1, 'the file is not read before a reload');
is((reload())[0], '', 'then it is');
is($node->value('SELECT count(*) FROM etcd_leader_hooks'), 2, 'and is in force');

# since 16 the tokenizer takes longer fields
write_raw('elected shop postgres app 10s "' . 'SELECT 1; ' x 1100 . qq{"\n});
like((reload())[0], $node->pg_version >= 16 ? qr/^$/ : qr/^line 1 of hooks file "hooks\.conf": authentication file token too long/, 'a command of 11 kB');

# correct lines
write_raw(join '', map { "$_\n" } '# a comment', '   ', "\telected \"all\"  postgres\tapp 10s \"SELECT 'it''s, @ # \"\"quoted\"\"'\"  # a comment", 'elected all postgres app 1h "SELECT 1; \\', 'SELECT 2"', 'change all postgres app 1d "SELECT 3"',
	'unelected shop "no such" "nor this" 1d "SELEC"');
is((reload())[0], '', 'blanks, quotes, comments, continued lines');
is(join(' | ', map { "$_->{line} $_->{election} $_->{command}" } $node->rows('SELECT * FROM etcd_leader_hooks ORDER BY line')),
	q{3 all SELECT 'it's, @ # "quoted"' | 4 all SELECT 1; SELECT 2 | 6 all SELECT 3 | 7 shop SELEC} =~ s/it's/it''s/r, 'what is read');
poll_is(10, sub { hook($node, 4)->{runs} }, 2, 'all is a run for each election');
pause(0.5);
is(hook($node, 3)->{runs}, 1, 'an election may have that name');

# ---- a reload while the process of hooks begins ------------------------------------------

my $shim = EtcdLeader::Shim->new;
$shim->around(sub { $node->restart });
my $process = q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'etcd_leader hooks'};
poll_ok(10, sub { $pid = $node->value($process) }, 'the process of hooks is there');
my ($server) = slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/;
$shim->hold_workers(1);
$node->value('SELECT pg_terminate_backend(?)', $pid);
poll_ok(10, sub { grep { $_ != $pid && (eval { slurp_file("/proc/$_/cmdline") } // q{}) =~ /etcd_leader hooks/ } split / /, slurp_file("/proc/$server/task/$server/children") }, 'the next one begins, and will drop SIGHUP');
write_raw("$good\nelect\n");
$node->reload;
pause(0.5);
$shim->hold_workers(0);
poll_ok(10, sub { hooks_error($node) =~ $line->(2, 'a hook has six fields') }, 'it has read the file after that reload');
write_raw("$good\n");
is((reload())[0], '', 'and after the next one');

# ---- at the start -----------------------------------------------------------------------

$node->stop;
for my $case ([ 'a mistake', sub { write_raw("$good\nelect\n") }, 'FATAL:  line 2 of hooks file "hooks\.conf": a hook has six fields' ],
	[ 'a FIFO', $kind{'a FIFO'}[0], 'FATAL:  could not load hooks file "hooks\.conf": it is not a regular file' ])
{
	my ($what, $make, $message) = @$case;
	$make->();
	$offset = $node->log_size;
	ok(!$node->start(fail_ok => 1), "$what: the server does not start");
	is($node->log_count($message, $offset), 1, "$what: the log says why");
}
write_raw('');
ok($node->start(fail_ok => 1), 'an empty file is no mistake');
is($node->value('SELECT hooks FROM etcd_leader_hooks_file'), 0, 'there are no hooks');

# another owner: the owner of a file which every server has
$node->configure(hooks_file => '/etc/passwd');
poll_ok(10, sub { hooks_error($node) =~ m{"/etc/passwd"} }, 'a file of root is read');
like(hooks_error($node), qr/^line \d+ of/, 'and refused for what it says');
$node->stop;
$offset = $node->log_size;
# In a user namespace of its own, the server sees "nobody" as the owner of that file.  The server may
# be "nobody" outside, so it is another user inside.
isnt(system('unshare', '--user', '--map-user=1', '--map-group=1', '--', 'pg_ctl', '-s', '-w', '-D', $node->data_dir, '-l', $node->logfile, 'start'), 0,
	'a file of a stranger: the server does not start');
is($node->log_count('FATAL:  could not load hooks file "/etc/passwd": it must be owned by the user of the server or by root', $offset), 1, 'the log says why');

is($node->log_count('was terminated by signal 11|PANIC|TRAP'), 0, 'nothing has crashed');
done_testing();
