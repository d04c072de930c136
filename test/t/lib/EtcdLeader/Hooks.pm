# Instances with a file of hooks, and the rows of etcd_leader_hooks.
package EtcdLeader::Hooks;

use strict;
use warnings;

use Exporter 'import';
use File::Basename qw(dirname);
use EtcdLeader::Instance;
use EtcdLeader::Util;
use PostgreSQL::Test::Utils ();

our @EXPORT = qw(create_crashers create_with_hooks hook hooks_error hooks_file last_run reload_hooks write_hooks);

sub hooks_file { my ($node) = @_; return $node->data_dir . '/hooks.conf' }

# Writes the file, as a whole or not at all; the line numbers begin at 1.
sub write_hooks
{
	my ($node, @lines) = @_;
	my $file = hooks_file($node);
	open my $fh, '>', "$file.new" or die "cannot write $file: $!";
	print $fh map { "$_\n" } @lines;
	close $fh or die "cannot write $file: $!";
	chmod 0640, "$file.new" or die $!;
	rename "$file.new", $file or die $!;
	return;
}

# The same, and they are in force when this returns.
sub reload_hooks
{
	my ($node, @lines) = @_;
	my $read_at = $node->value('SELECT coalesce(greatest(read_at, error_at)::text, $$$$) FROM etcd_leader_hooks_file');
	write_hooks($node, @lines);
	$node->reload;
	poll(10, sub { $node->value('SELECT coalesce(greatest(read_at, error_at)::text, $$$$) FROM etcd_leader_hooks_file') ne $read_at })
	  or die 'the file of hooks is not read';
	return;
}

# An instance, as EtcdLeader::Instance->create makes it, which has executed sql
# (a list) before its hooks are there.
sub create_with_hooks
{
	my ($name, $lines, %args) = @_;
	my $sql  = delete $args{sql} // [];
	my $node = EtcdLeader::Instance->create($name, %args, start => 0);
	# the objects that the hooks need exist before the hooks
	$node->append_conf('postgresql.conf', "max_worker_processes = 24\n");
	$node->append_conf('postgresql.conf', "etcd_leader.candidate = never\n");
	$node->start;
	$node->create_extension($args{extension});
	$node->value($_) for @$sql;
	write_hooks($node, @$lines);
	$node->append_conf('postgresql.conf', "etcd_leader.candidate = primary\netcd_leader.hooks_file = 'hooks.conf'\n");
	$node->restart;
	return $node;
}

# Functions in a database that end their process: test_panic(), and test_exit(code).
sub create_crashers
{
	my ($node) = @_;
	my $library = PostgreSQL::Test::Utils::tempdir() . '/crasher.so';
	my ($headers) = split /\n/, `pg_config --includedir-server`;
	PostgreSQL::Test::Utils::system_or_bail('cc', '-shared', '-fPIC', '-O2', "-I$headers", '-o', $library, dirname(__FILE__) . '/crasher.c');
	$node->value("CREATE FUNCTION test_panic() RETURNS void LANGUAGE c AS '$library'");
	$node->value("CREATE FUNCTION test_exit(int) RETURNS void LANGUAGE c AS '$library'");
	return;
}

# The row of the view of the hook in that line.
sub hook { my ($node, $line) = @_; return $node->row('SELECT * FROM etcd_leader_hooks WHERE line = ?', $line) }

# Its last run: "token status".
sub last_run
{
	my ($node, $line) = @_;
	my $hook = eval { hook($node, $line) } or return '';
	return $hook->{status} ? join ' ', $hook->{fencing_token} // '-', $hook->{status} : '';
}

# The error of the file; '': none.
sub hooks_error { my ($node) = @_; return $node->value('SELECT error FROM etcd_leader_hooks_file') // '' }

1;
