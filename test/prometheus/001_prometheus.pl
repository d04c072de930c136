# Prometheus with the configuration and the alerts of integrations/.  It scrapes two
# instances, and accepts every query of the dashboard.
use FindBin;
use EtcdLeader::Test;
use EtcdLeader::Http;
use JSON::PP;

my $source = "$FindBin::RealBin/../../integrations";
my $etcd   = EtcdLeader::Etcd->new;
my (%port, %node);
for my $name (qw(pg1 pg2))
{
	$port{$name} = PostgreSQL::Test::Cluster::get_free_port();
	$node{$name} = EtcdLeader::Instance->create($name, etcd => $etcd, settings => { http_listen => "127.0.0.1:$port{$name}" });
	$name eq 'pg1' ? $node{$name}->wait_until_leader : $node{$name}->wait_until_candidate;
	poll_ok(10, sub { http_code($port{$name}, '/health') == 200 }, "$name serves");
}

# Runs promtool, as a test.
sub promtool
{
	my ($name, $input, @args) = @_;
	my $output = '';
	ok(IPC::Run::run([ 'promtool', @args ], '<', \$input, '&>', \$output), $name) or diag($output);
	return $output;
}
for my $name (sort keys %port)
{
	my $metrics = (http_get($port{$name}, '/metrics'))[2];
	is(promtool("check metrics: $name", $metrics, 'check', 'metrics'), '', "$name: promtool has no complaint");
}
promtool('check rules', '', 'check', 'rules', "$source/etcd_leader.rules.yml");
promtool('test rules', '', 'test', 'rules', "$source/etcd_leader.rules.test.yml");
promtool('check config', '', 'check', 'config', "$source/prometheus.yml");

# A Prometheus that scrapes the instances.
my $dir     = PostgreSQL::Test::Utils::tempdir('prometheus');
my $listen  = PostgreSQL::Test::Cluster::get_free_port();
my $config  = slurp_file("$source/prometheus.yml");
$config =~ s/^ +- 10\.0\.0\.3:8010\n//m;
$config =~ s/10\.0\.0\.(\d):8010/'127.0.0.1:' . $port{"pg$1"}/ge;
$config =~ s/interval: 5s/interval: 500ms/g;
append_to_file("$dir/prometheus.yml",        $config);
append_to_file("$dir/etcd_leader.rules.yml", slurp_file("$source/etcd_leader.rules.yml"));
my $prometheus = EtcdLeader::Util::Process->spawn(
	name => 'prometheus', log => "$PostgreSQL::Test::Utils::log_path/prometheus.log",
	cmd  => [ 'prometheus', "--config.file=$dir/prometheus.yml", "--storage.tsdb.path=$dir/data", "--web.listen-address=127.0.0.1:$listen" ]);

sub encode { return $_[0] =~ s/([^A-Za-z0-9_.-])/sprintf '%%%02X', ord $1/ger }
sub ask { my ($path) = @_; my ($code, undef, $body) = http_get($listen, $path); $body =~ s/^[0-9a-f]+\r\n|\r\n0\r\n\r\n$//g; return eval { decode_json($body) } // {} }
sub query { my ($expr) = @_; return ask('/api/v1/query?query=' . encode($expr)) }

poll_ok(30, sub { grep { $_->{value}[1] == 1 } @{ query('etcd_leader_is_leader == 1')->{data}{result} // [] } }, 'Prometheus knows the leader')
  or diag($prometheus->output);
is(join(' ', map { $_->{metric}{instance} } @{ query('etcd_leader_is_leader == 1')->{data}{result} }), "127.0.0.1:$port{pg1}", 'Prometheus has the right leader');
poll_is(10, sub { query('sum(up{job="etcd_leader"})')->{data}{result}[0]{value}[1] }, 2, 'both are scraped');
is(scalar @{ ask('/api/v1/rules')->{data}{groups}[0]{rules} }, scalar(() = slurp_file("$source/etcd_leader.rules.yml") =~ /^ *- alert:/mg), 'the alerts are loaded');
is(scalar(grep { $_->{health} eq 'err' } @{ ask('/api/v1/rules')->{data}{groups}[0]{rules} }), 0, 'none of them fails');

my $dashboard = decode_json(slurp_file("$source/grafana_dashboard.json"));
for my $panel (@{ $dashboard->{panels} })
{
	for my $target (@{ $panel->{targets} })
	{
		my $expr   = $target->{expr} =~ s/\$\w+/.*/gr;
		my $answer = query($expr);
		is($answer->{status}, 'success', "$panel->{title}: $expr") or diag($answer->{error});
	}
}
ok(@{ query($dashboard->{panels}[0]{targets}[0]{expr} =~ s/\$\w+/.*/gr)->{data}{result} }, 'the first panel has a row');

# Prometheus shows a hand-over.
$node{pg1}->value('SELECT etcd_resign()');
poll_ok(15, sub { (query('etcd_leader_is_leader == 1')->{data}{result}[0]{metric}{instance} // '') eq "127.0.0.1:$port{pg2}" }, 'a hand-over is seen');
$prometheus->stop;
done_testing();
