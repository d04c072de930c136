# test/model/labels finds barriers of the code that no model has, and the reverse.
use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

my $labels = "$FindBin::RealBin/../model/labels";
my $top    = PostgreSQL::Test::Utils::tempdir('labels');
mkdir "$top/$_" or die for 'src', 'test', 'test/model';

# Returns the complaints about that model and that file.
sub wrong
{
	my ($model, $code) = @_;
	my ($stdout, $stderr);

	unlink "$top/test/model/a.pml", "$top/src/a.c";
	append_to_file("$top/test/model/a.pml", $model);
	append_to_file("$top/src/a.c", $code);
	IPC::Run::run([ $^X, $labels, $top ], '>', \$stdout, '2>', \$stderr);
	is($? >> 8, $stderr eq '' ? 0 : 1, 'the status says whether it passes');
	return $stderr;
}

my $model = " * as read_barrier(LABEL) says\n#define read_barrier(label) d_step\n\twrite_barrier(ONE);\n\tatomic { load(A, a); read_barrier(TWO) };\n";
my $one   = "\tpg_write_barrier();\t\t/* a.pml: ONE */\n";
my $two   = "\tpg_read_barrier();\t\t/* a.pml: TWO */\n";
is(wrong($model, $one . $two), '', 'each stands for the other');
like(wrong($model, $one . "\tpg_read_barrier();\n"), qr{a\.c:2: the barrier has no label}, 'a barrier without a label');
like(wrong($model, $one), qr{the code has no barrier "a\.pml: TWO"}, 'a barrier that was removed');
like(wrong($model, $one . $two . "\tpg_read_barrier();\t/* a.pml: THREE */\n"), qr{a\.c:3: no model has a read_barrier "a\.pml: THREE"}, 'a barrier of no model');
like(wrong($model, $one . $two =~ s/read/memory/r), qr{a\.c:2: no model has a memory_barrier "a\.pml: TWO"}, 'a barrier of another kind');
like(wrong($model, $one . $two . $two), qr{a\.c:3: a\.pml: TWO stands at another barrier, too}, 'one label for two barriers');

done_testing();
