# The specifications of test/isolation: what comes between fencing and commit,
# step by step, from several sessions.
use EtcdLeader::Test;
use FindBin;
use File::Basename qw(basename dirname);

my $runner = dirname($ENV{PG_REGRESS}) . '/../isolation/pg_isolation_regress';

my $etcd = EtcdLeader::Etcd->new;
my $node = EtcdLeader::Instance->create(
	'pg1',
	etcd     => $etcd,
	settings => { ttl => 20, elections => 'alpha,beta' },
	conf     => "max_prepared_transactions = 5\n");
$node->wait_until_leader($_) for 'alpha', 'beta';

# test/run puts it first
my ($bindir) = split /:/, $ENV{PATH};
my $input  = "$FindBin::RealBin/../isolation";
my $output = PostgreSQL::Test::Utils::tempdir('isolation');
my @specs  = sort map { basename($_, '.spec') } glob "$input/specs/*.spec";
cmp_ok(scalar @specs, '>=', 3, 'the specifications are there');
for my $spec (@specs)
{
	# one at a time, so that the output names the spec that fails
	my ($out, $err) = ('', '');
	my $ok = IPC::Run::run(
		[
			$runner, '--use-existing', "--bindir=$bindir", "--inputdir=$input", "--outputdir=$output/$spec", '--dbname=postgres',
			'--host=' . $node->host, '--port=' . $node->port, $spec
		],
		'<', \undef, '>', \$out, '2>', \$err);
	ok($ok, $spec) or diag($out, $err, -e "$output/$spec/regression.diffs" ? slurp_file("$output/$spec/regression.diffs") : '');
}

done_testing();
