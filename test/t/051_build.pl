# How it is built: warnings of the compiler are no errors, but for the tests; the
# HTTP library is left out where libmicrohttpd is not; and a PostgreSQL that is
# newer than all known ones is tried.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

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
my $test = slurp_file("$top/Makefile") =~ /^test:\n((?:\t.*\n)+)/m ? $1 : '';
like($test, qr/WERROR=-Werror/, 'as make test does');

# The HTTP library is built where libmicrohttpd is.  With -nostdinc the compiler
# finds no header.
like($plain, qr/ -shared -o etcd_leader_http\.so /, 'make builds the HTTP library');
unlike($plain, qr/without its HTTP library/, 'and says nothing about it');
my $without = commands('CPPFLAGS=-nostdinc');
unlike($without, qr/etcd_leader_http\.so/, 'without libmicrohttpd: no HTTP library');
like($without, qr/built without its HTTP library, for want of libmicrohttpd/, 'and make says so');

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

# Processes that are not made by fork() do not inherit what survives a crash.
my $entry = slurp_file("$top/src/etcd_leader.c") =~ s/^#include .*//mgr;
append_to_file("$dir/entry.c", $entry);
for my $case ([ '-UEXEC_BACKEND', 1 ], [ '-DEXEC_BACKEND', 0 ])
{
	my ($option, $expected) = @$case;
	my ($stdout, $stderr);
	my $ok = IPC::Run::run([ 'cc', '-E', $option, "$dir/entry.c" ], '<', \undef, '>', \$stdout, '2>', \$stderr);
	is($ok ? 1 : 0, $expected, "$option: " . ($expected ? 'it is built' : 'it is not built'));
	like($stderr, qr/made by fork/, "$option: it says why") unless $expected;
}
done_testing();
