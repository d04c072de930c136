# test/layers finds its faults, in a tree of three files: an arrow that is
# turned round, a circle, a file or a folder that the map does not know, a needless
# include, a header that declares functions of other files, a function and a file that are too
# long.
use strict;
use warnings;

use File::Basename qw(basename);
use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

my $layers = "$FindBin::RealBin/../layers";
my $top    = PostgreSQL::Test::Utils::tempdir('layers');

my %good = (
	'src/low/ground.h' => "extern int ground(void);\n",
	'src/low/ground.c' => "#include \"ground.h\"\n\nint\nground(void)\n{\n\treturn 1;\n}\n",
	'src/high/roof.h'  => "extern int roof(void);\n",
	'src/high/roof.c'  => "#include \"low/ground.h\"\n#include \"roof.h\"\n\nint\nroof(void)\n{\n\treturn ground();\n}\n",
	'src/high/door.c'  => "#include \"roof.h\"\n\nextern int door(void);\nint\ndoor(void)\n{\n\treturn roof();\n}\n",
	'src/README.md'    => <<'MAP');
| folder | what it is for | may need |
|---|---|---|
| `src/low` | The ground. | |
| `src/high` | What stands on it. | `src/low` |
MAP

# Each file begins with a sentence, but for those that are listed here.
my %no_head;
sub head
{
	my ($file) = @_;
	return $file !~ /\.[ch]$/ || $no_head{$file} ? '' : '/*' . '-' x 30 . "\n *\n * " . basename($file) . "\n *\t  A part of the house.\n *\n *" . '-' x 30 . "\n */\n";
}

# Makes the tree, with these files instead; returns the status and the output.
sub check
{
	my (%other) = @_;
	my %files = (%good, %other);
	my ($stdout, $stderr);

	system_or_bail('rm', '-rf', "$top/src");
	mkdir $_ or die for map { "$top/$_" } 'src', 'src/low', 'src/high', exists $other{'src/new/new.c'} ? 'src/new' : ();
	append_to_file("$top/$_", head($_) . $files{$_}) for keys %files;
	for my $source (glob("$top/src/*/*.c"))
	{
		system_or_bail('cc', '-I', "$top/src", '-c', $source, '-o', $source =~ s/c$/o/r);
	}
	IPC::Run::run([ $^X, $layers, $top ], '>', \$stdout, '2>', \$stderr);
	is($stderr, '', 'it works');
	return ($? >> 8, $stdout);
}

sub finds
{
	my ($name, $expected, %other) = @_;
	my ($status, $output) = check(%other);
	is($status, 1, "$name: it fails");
	like($output, $expected, "$name: it says so");
	return;
}

is_deeply([ check() ], [ 0, '' ], 'a tree as its map says passes');

my $returns = sub { my ($name, $value) = @_; return "extern int roof(void);\nint\n$name(void)\n{\n\treturn $value;\n}\n" };
finds('an arrow turned round', qr{^src/low/ground\.c -> src/high/roof\.c: src/low may not need src/high: roof$}m,
	'src/low/ground.c' => $returns->('ground', 'roof()'),
	'src/high/roof.c' => $returns->('roof', '1'));
finds('a header of a higher folder', qr{^src/low/ground\.h -> src/high/roof\.h: src/low may not need src/high: "high/roof\.h"$}m,
	'src/low/ground.h' => "#include \"high/roof.h\"\nextern int ground(void);\n");
finds('a circle', qr{^a circle of files: src/high/door\.c src/high/roof\.c$}m,
	'src/high/roof.c' => "extern int door(void);\n" . $returns->('roof', 'door()'));
finds('a circle by way of a lower folder', qr{^a circle of files: src/high/roof\.c src/low/ground\.c$}m,
	'src/low/ground.c' => $returns->('ground', 'roof()'));

finds('a circle of includes', qr{^a circle of files: src/high/roof\.h src/high/wall\.h$}m,
	'src/high/wall.h' => "#pragma once\n#include \"roof.h\"\n#define WALL ROOF\n",
	'src/high/roof.h' => "#pragma once\n#include \"wall.h\"\n#define ROOF 1\nextern int roof(void);\nenum {HEIGHT = WALL};\n");
finds('a needless include', qr{^src/high/door\.c includes src/high/wall\.h, and uses nothing of it$}m,
	'src/high/wall.h' => "/* roof, door */\n#define WALL \"roof\"\ntypedef struct Wall\n{\n\tint\t\t\tdoor;\n} Wall;\n",
	'src/high/door.c' => "#include \"wall.h\"\n$good{'src/high/door.c'}");
for my $use ('int x = WALL;', 'Wall x;', 'struct WallState *x;', 'int x = BRICK;', 'WallBuilder x;', 'int x(void) {return wall_height();}', 'extern int x[sizeof(wall_names)];')
{
	is_deeply([ check('src/high/wall.h' => <<'HEADER', 'src/high/door.c' => "#include \"wall.h\"\n$use\n$good{'src/high/door.c'}",
#define WALL 1
typedef struct WallState {int i;} Wall;
typedef enum Material {STONE, BRICK = 2} Material;
typedef int (*WallBuilder) (int);
static inline int wall_height(void) {return 1;}
extern const char *const wall_names[WALL];
HEADER
		'src/high/wall.c' => "#include \"wall.h\"\nconst char *const wall_names[WALL];\n") ],
		[ 0, '' ], "$use: the include is needed");
}
finds('a header that declares what another file defines', qr{^src/high/roof\.h declares door, which src/high/door\.c defines$}m,
	'src/high/roof.h' => "extern int roof(void);\nextern int door(void);\n");
finds('a header that declares what no file defines', qr{^src/high/roof\.h declares gate, which no file defines$}m,
	'src/high/roof.h' => "extern int roof(void);\nextern int gate(void);\n");
is_deeply([ check('src/high/house.h' => "extern int door(void);\n") ], [ 0, '' ], 'a header without a file of its name may declare what files of its folder define');
is_deeply([ check('src/high/roof.h' => "extern int roof(void);\nextern int door(void);\n", 'src/README.md' => "$good{'src/README.md'}\nthe doors of a folder: `src/high/roof.h`.\n") ],
	[ 0, '' ], 'so may the door of a folder');

finds('a folder that the table does not have', qr{^src/new is no layer of src/README\.md$}m, 'src/new/new.c' => "extern int new;\n");
$no_head{'src/high/door.c'} = 1;
finds('a file without a sentence', qr{^src/high/door\.c does not begin with a sentence that says what it is for$}m);
%no_head = ();
finds('a door without a file', qr{^src/README\.md describes src/high/gate\.h, which is not there$}m,
	'src/README.md' => "$good{'src/README.md'}\nthe doors of a folder: `src/high/gate.h`.\n");

my $body = sub { my ($lines) = @_; return "int\nroof(void)\n{\n" . "\t;\n" x ($lines - 3) . "\treturn 0;\n}\n" };
is_deeply([ check('src/high/roof.c' => $body->(60)) ], [ 0, '' ], 'a function may have 60 lines');
finds('a long function', qr{^src/high/roof\.c: roof\(\) has 61 lines$}m, 'src/high/roof.c' => $body->(61));
my $head_lines = head("a.h") =~ tr/\n//;
is_deeply([ check('src/low/ground.h' => $good{'src/low/ground.h'} . "\n" x (899 - $head_lines)) ], [ 0, '' ], 'a file may have 900 lines');
finds('a long file', qr{^src/low/ground\.h has 901 lines$}m, 'src/low/ground.h' => $good{'src/low/ground.h'} . "\n" x (900 - $head_lines));

done_testing();
