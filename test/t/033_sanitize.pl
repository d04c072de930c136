# The regression test with the library under AddressSanitizer and
# UndefinedBehaviorSanitizer.  `make sanitize` runs more.
use EtcdLeader::Test;
use FindBin;
use EtcdLeader::Sanitized;

my $dir = PostgreSQL::Test::Utils::tempdir('sanitize');
my $top = "$FindBin::RealBin/../..";
my $installation = EtcdLeader::Sanitized->new($dir, 'address');

my $passed = IPC::Run::run([
		$ENV{PG_REGRESS}, "--inputdir=$top", "--outputdir=$dir", '--bindir=' . $installation->bindir,
		"--temp-instance=$dir/regress", "--temp-config=$top/test/regress.conf", 'etcd_leader' ],
	'<', \undef, '>&', \my $output);
ok($passed, 'the regression test passes') or diag($output);
is(join("\n", $installation->reports), '', 'nothing is found');

# The server uses the instrumented library.
like(PostgreSQL::Test::Utils::slurp_file($installation->{pkglibdir} . '/etcd_leader.so'), qr/__asan_report_store/, 'it is instrumented');
done_testing();
