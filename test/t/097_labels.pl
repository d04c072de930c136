# test/model/labels finds what it is for, in a tree of two files: a barrier without a
# label, one that no model has, one of another kind, one label at two barriers, and a
# barrier of a model that is not in the code.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

my $labels = "$FindBin::RealBin/../model/labels";
my $top    = PostgreSQL::Test::Utils::tempdir('labels');

my $model = "write_barrier(VALUE_WRITTEN);\nread_barrier(VALUE_READ);\n";
my $code  = "\tpg_write_barrier();\t\t/* value.pml: VALUE_WRITTEN */\n\tpg_read_barrier();\t\t/* value.pml: VALUE_READ */\n";

mkdir "$top/$_" or die for qw(src test test/model);
append_to_file("$top/test/model/value.pml", $model);
append_to_file("$top/test/model/memory.pml", "read_barrier(LABEL)\n");

sub check
{
	my ($content) = @_;
	my ($stdout, $stderr);

	unlink "$top/src/value.c";
	append_to_file("$top/src/value.c", $content);
	IPC::Run::run([ $^X, $labels, $top ], '>', \$stdout, '2>', \$stderr);
	is($stderr, '', 'it works');
	return ($? >> 8, $stdout);
}

sub finds
{
	my ($name, $expected, $content) = @_;
	is_deeply([ check($content) ], [ 1, "$expected\n" ], $name);
	return;
}

is_deeply([ check($code) ], [ 0, '' ], 'code as its model passes');

finds('no label', 'src/value.c:3: the barrier has no label', "$code\tpg_memory_barrier();\n");
finds('a comment that is no label', 'src/value.c:3: the barrier has no label', "$code\tpg_compiler_barrier();\t/* for the handler */\n");
finds('an unknown label', 'src/value.c:3: no model has a read_barrier "value.pml: VALUE_SEEN"',
	"$code\tpg_read_barrier();\t\t/* value.pml: VALUE_SEEN */\n");
finds('another kind', 'src/value.c:2: no model has a memory_barrier "value.pml: VALUE_READ"', $code =~ s/pg_read/pg_memory/r);
finds('the same label twice', 'src/value.c:3: "value.pml: VALUE_READ" is at another barrier, too',
	"$code\tpg_read_barrier();\t\t/* value.pml: VALUE_READ */\n");
finds('a barrier that is gone', 'the code has no barrier "value.pml: VALUE_READ"', $code =~ s/^.*VALUE_READ.*\n//mr);

done_testing();
