# How it is built: warnings of the compiler are no errors, but for the tests; the
# HTTP library is left out where libmicrohttpd is not; and a PostgreSQL that is
# newer than all known ones is tried.
use EtcdLeader::Test;
use FindBin;

my $top = "$FindBin::RealBin/../..";

sub commands
{
	my (@arguments) = @_;
	local @ENV{qw(MAKEFLAGS MAKELEVEL MFLAGS)};
	delete @ENV{qw(MAKEFLAGS MAKELEVEL MFLAGS)};
	my ($commands) = run_command([ 'make', '-n', '-B', '-C', $top, 'all', 'PG_CONFIG=pg_config', @arguments ]);
	return $commands;
}
my $plain = commands();
like($plain, qr/ -Wextra .*src\/settings\/settings\.c/, 'make compiles');
unlike($plain, qr/ -Werror(?!=)/, 'warnings are no errors');
like(commands('WERROR=-Werror'), qr/ -Werror(?!=)/, 'unless they are made so');
my $test = slurp_file("$top/test/targets.mk") =~ /^test:\n((?:\t.*\n)+)/m ? $1 : '';
like($test, qr/WERROR=-Werror/, 'as make test does');

# The HTTP library is built where libmicrohttpd is.  With -nostdinc the compiler
# finds no header.
like($plain, qr/ -shared -o etcd_leader_http\.so /, 'make builds the HTTP library');
unlike($plain, qr/without its HTTP library/, 'and says nothing about it');
my $without = commands('CPPFLAGS=-nostdinc');
unlike($without, qr/etcd_leader_http\.so/, 'without libmicrohttpd: no HTTP library');
like($without, qr/built without its HTTP library, for want of libmicrohttpd/, 'and make says so');

# make unit names all missing packages at once.
sub missing
{
	my (@arguments) = @_;
	local @ENV{qw(MAKEFLAGS MAKELEVEL MFLAGS)};
	delete @ENV{qw(MAKEFLAGS MAKELEVEL MFLAGS)};
	my ($stdout, $stderr);
	IPC::Run::run([ 'make', '-C', $top, 'unit', @arguments ], '<', \undef, '>', \$stdout, '2>', \$stderr);
	return ($stdout, [ $stderr =~ /^missing: (\S+?),? .*\(Debian: \S/mg ]);
}
my ($stdout, $missing) = missing('PG_CONFIG=pg_config', 'CPPFLAGS=-nostdinc');
is_deeply($missing, [ map { $_ . '.h' } qw(postgres stdio curl/curl nghttp2/nghttp2 openssl/ssl jansson cmocka) ],
	'make unit names each header that is missing, with its package');
unlike($stdout, qr{ -C | -s | -c }, 'and does nothing else');
is_deeply((missing('PG_CONFIG=/nowhere/pg_config'))[1], ['/nowhere/pg_config'], 'as well as a PostgreSQL that is not there');

# The files that make compiles again after a change of one header: objects, and bitcode
# where PostgreSQL has it.
sub stale
{
	my ($dir, $header, @objects) = @_;
	local @ENV{qw(MAKEFLAGS MAKELEVEL MFLAGS)};
	delete @ENV{qw(MAKEFLAGS MAKELEVEL MFLAGS)};
	my @make = ('make', '-s', '-C', "$top/$dir", 'PG_CONFIG=pg_config', @objects);

	system_or_bail(@make);
	is((run_command([ @make, '-n' ]))[0], '', "$dir: nothing is left to do");
	# the clock of files is coarse
	utime(time + 2, time + 2, "$top/$header") or die $!;
	my ($commands) = run_command([ @make, '-n' ]);
	utime(time - 3600, time - 3600, "$top/$header") or die $!;
	return [ sort $commands =~ / -o (\S+)/g ];
}
my ($variables) = run_command([ 'make', '-s', '-p', '-n', '-C', $top, 'all', 'PG_CONFIG=pg_config' ]);
my @kinds = ('o', $variables =~ /^with_llvm\s*=\s*yes/m ? 'bc' : ());
my @objects = map { my $file = $_; map { "$file.$_" } @kinds } qw(src/base/clock src/base/utf8 src/hooks/file);
is_deeply(stale('.', 'src/base/utf8.h', @objects), [ sort map { "src/base/utf8.$_" } @kinds ], 'what includes the header is compiled again');
is_deeply(stale('.', 'src/hooks/hooks.h', @objects), [ sort map { "src/hooks/file.$_" } @kinds ], 'and nothing else');
for my $dir ('test/unit', 'test/sim')
{
	my @objects = map { "build/plain/src/$_.o" } qw(protocol/changes etcd/json);
	is_deeply(stale($dir, 'src/protocol/changes.h', @objects), ['build/plain/src/protocol/changes.o'], "$dir: so there");
}

# compat.h as the preprocessor sees it, for a release of PostgreSQL.
my $compat = slurp_file("$top/src/base/compat.h") =~ s/^#include .*//mgr;
my $dir    = PostgreSQL::Test::Utils::tempdir('build');
append_to_file("$dir/compat.c", $compat);
sub preprocess
{
	my ($version) = @_;
	my ($stdout, $stderr);
	my $ok = IPC::Run::run([ 'cc', '-E', '-Werror', "-DPG_VERSION_NUM=$version", "$dir/compat.c" ], '<', \undef, '>', \$stdout, '2>', \$stderr);
	return ($ok, $stdout . $stderr);
}
for my $case ([ 140012, 0 ], [ 150000, 1 ], [ 190001, 1 ], [ 200000, 1 ], [ 210000, 1 ])
{
	my ($version, $expected) = @$case;
	my ($ok, $output) = preprocess($version);
	is($ok ? 1 : 0, $expected, "PostgreSQL $version: " . ($expected ? 'it is built' : 'it is not built'));
	like($output, qr/needs PostgreSQL 15/, "PostgreSQL $version: it says why") unless $expected;
	is(scalar(() = $output =~ /^#pragma message .*PostgreSQL 15 to 19/mg), $version >= 200000 ? 1 : 0, "PostgreSQL $version: a word about it");
}

# Processes that are not made by fork() do not inherit what survives a crash, and
# a handler of a signal must take no lock.
my $entry = slurp_file("$top/src/etcd_leader.c") =~ s/^#include .*//mgr;
append_to_file("$dir/entry.c", $entry);
for my $case ([ '-UEXEC_BACKEND', 1 ], [ '-DEXEC_BACKEND', 0, qr/made by fork/ ], [ '-DPG_HAVE_ATOMIC_U64_SIMULATION', 0, qr/64-bit atomics without a lock/ ])
{
	my ($option, $expected, $why) = @$case;
	my ($stdout, $stderr);
	my $ok = IPC::Run::run([ 'cc', '-E', $option, "$dir/entry.c" ], '<', \undef, '>', \$stdout, '2>', \$stderr);
	is($ok ? 1 : 0, $expected, "$option: " . ($expected ? 'it is built' : 'it is not built'));
	like($stderr, $why, "$option: it says why") unless $expected;
}
for my $control ('debian/control', 'debian/control.in')
{
	my ($architectures) = slurp_file("$top/$control") =~ /^Architecture: (.*)$/m;
	like($architectures, qr/\bamd64\b.*\barm64\b/, "$control: architectures");
	unlike($architectures, qr/\b(?:any|all|armel|armhf|hppa|m68k|mipsel|powerpc)\b/, "$control: none without 64-bit atomics");
}
done_testing();
