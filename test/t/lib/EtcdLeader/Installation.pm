# A copy of the PostgreSQL that the tests run against, with the SQL script of
# these sources; a test can put another library and other scripts in it, and
# makes instances with install_path => its path().
package EtcdLeader::Installation;

use strict;
use warnings;

use File::Basename qw(basename dirname);
use File::Copy ();
use File::Path qw(make_path);

my $top = dirname(__FILE__) . '/../../../..';

# PostgreSQL finds its directories relative to its programs, once symbolic
# links are resolved: the programs are copied, and nearly all else is linked.
sub new
{
	my ($class, $dir) = @_;
	my %from = map { my $path = `pg_config --$_`; chomp $path; $_ => $path } qw(bindir sharedir pkglibdir includedir-server);
	my $root = $from{bindir};
	$root = dirname($root) while grep { index($_, "$root/") != 0 } values %from;
	my $self = bless { map { $_ => $dir . substr($from{$_}, length $root) } keys %from }, $class;

	make_path(@$self{qw(bindir pkglibdir)}, "$self->{sharedir}/extension");
	for my $program (grep { -f } glob "$from{bindir}/*")
	{
		my $copy = "$self->{bindir}/" . basename($program);
		File::Copy::cp($program, $copy) or die "cannot copy $program: $!";
	}
	_link_files($from{pkglibdir}, $self->{pkglibdir});
	_link_files($from{sharedir} . $_, $self->{sharedir} . $_) for '', '/extension';
	$self->put_extension_file(basename($_), source($_)) for 'etcd_leader.control', 'sql/etcd_leader--1.0.sql';
	return $self;
}

sub _link_files
{
	my ($from, $to) = @_;
	for my $file (grep { !-e "$to/" . basename($_) } glob "$from/*")
	{
		symlink($file, "$to/" . basename($file)) or die "cannot link $file: $!";
	}
	return;
}

# For libraries that a test builds, and extensions that use the C API of these sources.
sub put_headers
{
	my ($self) = @_;
	my $to = $self->{'includedir-server'};
	chomp(my $from = `pg_config --includedir-server`);
	make_path("$to/extension/etcd_leader");
	_link_files($from, $to);
	write_file("$to/extension/etcd_leader/etcd_leader.h", source('include/etcd_leader.h'));
	return;
}

# For PostgreSQL::Test::Cluster.
sub path { my ($self) = @_; return dirname($self->{bindir}) }

sub bindir { my ($self) = @_; return $self->{bindir} }

# Replaces the present file, at once and by a new file: servers that
# run go on with the old file.
sub _put
{
	my ($path, $write) = @_;
	$write->("$path.new");
	rename("$path.new", $path) or die "cannot put $path: $!";
	return;
}

# etcd_leader.so, or another library.
sub put_library
{
	my ($self, $file, $name) = @_;
	_put("$self->{pkglibdir}/" . ($name // 'etcd_leader.so'), sub { File::Copy::cp($file, $_[0]) or die "cannot copy $file: $!" });
	return;
}

# A control file or a script.
sub put_extension_file
{
	my ($self, $name, $content) = @_;
	_put("$self->{sharedir}/extension/$name", sub { write_file($_[0], $content) });
	return;
}

sub write_file
{
	my ($path, $content) = @_;
	open my $fh, '>', $path or die "cannot write $path: $!";
	print $fh $content;
	close $fh or die "cannot write $path: $!";
	return;
}

# ---- the extension's sources ------------------------------------------------

sub source
{
	my ($path) = @_;
	open my $fh, '<', "$top/$path" or die "cannot read $top/$path: $!";
	local $/;
	return scalar <$fh>;
}

# Copies them, without objects, for libraries of another kind.
sub copy_sources
{
	my ($dir) = @_;
	my @files = map { substr $_, length "$top/" } map { glob "$top/$_/*.[ch]" } qw(include src src/* http);
	make_path(map { "$dir/$_" =~ s{/[^/]*$}{}r } @files);
	write_file("$dir/$_", source($_)) for 'Makefile', 'etcd_leader.control', 'src/exports.txt', @files;
	return;
}

# Builds the library in a copy of the tree; arguments of make, which may name another
# library, too.  Returns the path of the library.
sub build
{
	my ($dir, @arguments) = @_;
	local @ENV{qw(MAKEFLAGS MAKELEVEL MFLAGS)};
	delete @ENV{qw(MAKEFLAGS MAKELEVEL MFLAGS)};
	my $command = join ' ', "make -s -j2 -C '$dir' PG_CONFIG=pg_config with_llvm=no etcd_leader.so", map { "'$_'" } @arguments;
	my $output  = `$command 2>&1`;
	die "cannot build: $command\n$output" if $? != 0;
	return "$dir/etcd_leader.so";
}

1;
