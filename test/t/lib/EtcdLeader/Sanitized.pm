# An installation whose server is watched for errors of memory: either the
# library is built with AddressSanitizer and UndefinedBehaviorSanitizer
# ("address"), or the server runs under Valgrind ("memcheck").
package EtcdLeader::Sanitized;

use strict;
use warnings;

use parent -norequire, 'EtcdLeader::Installation';

use Cwd qw(abs_path);
use EtcdLeader::Installation;
use File::Basename qw(dirname);

my $sources = abs_path(dirname(__FILE__) . '/../../../sanitize');

# A failed check ends the process: the server takes that as a crash.  Signed
# overflow is an error here, although PostgreSQL's flags define it.  Leaks are
# not looked for: backends leave all to the end of the process.  The runtime
# of UndefinedBehaviorSanitizer writes to the server's log and nowhere else, so
# there is none: it traps, and AddressSanitizer reports that.
my %kinds = (
	address => {
		flags => "-O1 -fno-omit-frame-pointer -fno-wrapv -fsanitize=address,undefined -fsanitize-undefined-trap-on-error -I$sources",
		run   => 'export LD_PRELOAD="RUNTIME DIR/early.so${LD_PRELOAD:+ $LD_PRELOAD}"
export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1:handle_sigill=1:strict_string_checks=1:log_path=REPORTS/asan
exec',
	},
	memcheck => {
		flags => '-O1 -fno-omit-frame-pointer',
		run   => 'exec valgrind --quiet --num-callers=40 --leak-check=full --show-leak-kinds=definite'
		  . " --suppressions=$sources/postgres.supp"
		  . ' --xml=yes --xml-file=REPORTS/memcheck.%p',
	});

sub new
{
	my ($class, $dir, $kind) = @_;
	my $self = $class->SUPER::new("$dir/installation");
	$self->put_headers;

	$self->{reports} = "$dir/reports";
	mkdir $self->{reports} or die "cannot make $self->{reports}: $!";
	chmod 01777, $self->{reports} or die $!;

	EtcdLeader::Installation::copy_sources("$dir/sources");
	$self->put_library(EtcdLeader::Installation::build("$dir/sources", 'etcd_leader_http.so', "COPT=$kinds{$kind}{flags}"));
	$self->put_library("$dir/sources/etcd_leader_http.so", 'etcd_leader_http.so');

	my $run = $kinds{$kind}{run};
	if ($kind eq 'address')
	{
		chomp(my $runtime = `gcc -print-file-name=libasan.so`);
		system('gcc', '-fsanitize=address', '-shared', '-fPIC', '-Wl,-z,initfirst', "$sources/early.c", '-o', "$dir/early.so") == 0
		  or die 'cannot build early.so';
		$run =~ s/RUNTIME/$runtime/;
	}
	$run =~ s/DIR/$dir/g;
	$run =~ s/REPORTS/$self->{reports}/g;

	# initdb's servers do not load the library, and shall not take the time;
	# pg_ctl restart would start again the server that the script has started
	$self->_wrap('postgres', <<"SCRIPT");
case \${1:-} in --boot | --single | --check | -C | -V) exec "\$0.bin" "\$@" ;; esac
$run "\$0.bin" "\$@"
SCRIPT
	# pg_ctl initdb takes -p for the path of initdb; Patroni calls it
	$self->_wrap('pg_ctl', <<'SCRIPT');
case " $* " in *" initdb "*) exec "$0.bin" "$@" ;; esac
exec "$0.bin" -p "${0%pg_ctl}postgres" "$@"
SCRIPT
	return $self;
}

# Puts a shell script in the place of a program, which gets ".bin" to its name.
sub _wrap
{
	my ($self, $name, $script) = @_;
	my $program = $self->bindir . "/$name";
	rename $program, "$program.bin" or die $!;
	EtcdLeader::Installation::write_file($program, "#!/bin/sh\n$script");
	chmod 0755, $program or die $!;
	return;
}

sub report_files { my ($self) = @_; return glob "$self->{reports}/*" }

# The findings.  Valgrind finds much in PostgreSQL itself, which is built without
# annotations for it: a finding counts only with the library on its stack.
sub reports
{
	my ($self) = @_;
	my @reports;
	for my $file ($self->report_files)
	{
		open my $fh, '<', $file or die "cannot read $file: $!";
		my $text = do { local $/; <$fh> };
		if ($file =~ /memcheck/)
		{
			push @reports, map { _plain($_) } grep { m{/etcd_leader\.so</obj>} } $text =~ m{<error>.*?</error>}gs;
		}
		else
		{
			push @reports, $text;
		}
	}
	return @reports;
}

# Valgrind's XML of an error, as it would have been shown.
sub _plain
{
	my ($error) = @_;
	my @lines;
	while ($error =~ m{<(what|text|auxwhat)>(.*?)</\1>|<frame>(.*?)</frame>}gs)
	{
		my ($text, $frame) = ($2, $3);
		my ($function, $file, $line) = map { ($frame // '') =~ m{<$_>(.*?)</$_>} ? $1 : '?' } qw(fn file line);
		push @lines, defined $frame ? "    $function ($file:$line)" : $text;
	}
	return join("\n", @lines) . "\n";
}

1;
