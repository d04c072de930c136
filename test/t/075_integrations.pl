# The files in integrations/ fit the server: names of metrics, paths,
# queries.  (HAProxy's file is tried by 073, Prometheus's by `make prometheus`.)
use EtcdLeader::Test;
use FindBin;
use EtcdLeader::Certificates;
use EtcdLeader::Http;
use JSON::PP;

my $dir  = "$FindBin::RealBin/../../integrations";
my $etcd = EtcdLeader::Etcd->new;
my ($cert, $key) = EtcdLeader::Certificates->new->sign('client', days => 20);
my (%port, %node);
for my $name (qw(pg1 pg2))
{
	$port{$name} = PostgreSQL::Test::Cluster::get_free_port();
	$node{$name} = EtcdLeader::Instance->create($name, etcd => $etcd, 
		settings => { http_listen => "127.0.0.1:$port{$name}", ssl_cert_file => $cert, ssl_key_file => $key });
	$name eq 'pg1' ? $node{$name}->wait_until_leader : $node{$name}->wait_until_candidate;
	poll_ok(10, sub { http_code($port{$name}, '/health') == 200 }, "$name serves");
}

# Metrics.  One of a problem is served if there is a problem: the certificate expires.
my $metrics = '';
poll_ok(10, sub { ($metrics = (http_get($port{pg1}, '/metrics'))[2]) =~ /^etcd_leader_problem\{item="expiry",.*,severity="warning"\} 1$/m },
	'the certificate that expires soon is a problem');
my %served  = map { $_ => 1 } $metrics =~ /^(\w+)(?:\{[^}]*\})? \S+$/mg;
like($metrics, qr/^etcd_leader_certificate_expires_seconds (?:172[0-7]\d{3}|1728000)$/m, 'the seconds until the certificate expires');
my %labels;
while ($metrics =~ /^(\w+)\{([^}]*)\}/mg)
{
	my ($name, $text) = ($1, $2);
	$labels{$_} = 1 for $text =~ /(\w+)="/g;
}
for my $file (qw(grafana_dashboard.json etcd_leader.rules.yml etcd_leader.rules.test.yml))
{
	my %used = map { $_ => 1 } slurp_file("$dir/$file") =~ /\b(etcd_leader_(?!status\b|stats\b)\w+|leader_election_master_status)\b/g;
	cmp_ok(scalar keys %used, '>', 3, "$file uses metrics");
	is(join(' ', grep { !$served{$_} } sort keys %used), '', "$file: all of them are served");
}
{
	my $dashboard = decode_json(slurp_file("$dir/grafana_dashboard.json"));
	my %used = map { $_ => 1 } slurp_file("$dir/grafana_dashboard.json") =~ /\b(etcd_leader_\w+)\b/g;
	my %drawn = map { s/_(?:bucket|sum|count)$//r => 1 } grep { /^etcd_leader/ } keys %served;
	my %shown = map { s/_(?:bucket|sum|count)$//r => 1 } keys %used;
	is(join(' ', grep { !$shown{$_} } grep { !/^etcd_leader_(?:is_candidate|connected)$/ } sort keys %drawn), '', 'the dashboard shows all that is served');
	is(scalar(grep { !@{ $_->{targets} } || !$_->{title} || !$_->{description} } @{ $dashboard->{panels} }), 0, 'each panel has a query, a title and a description');
	my %ids = map { $_->{id} => 1 } @{ $dashboard->{panels} };
	is(scalar keys %ids, scalar @{ $dashboard->{panels} }, 'and an id of its own');
	my %grouped = map { $_ => 1 } map { split /, */ } slurp_file("$dir/etcd_leader.rules.yml") =~ /\b(?:by|on) \(([^)]*)\)/g;
	is(join(' ', grep { !$labels{$_} && !/^(?:job|instance)$/ } sort keys %grouped), '', 'labels of the alerts are served');
}

# Paths.
for my $file (qw(haproxy.cfg keepalived.conf consul.json kubernetes.yaml))
{
	my $text  = slurp_file("$dir/$file");
	my %paths = map { $_ => 1 } $text =~ m{(?:uri |path: |:8010)(/[\w/-]+)}g;
	cmp_ok(scalar keys %paths, '>', 0, "$file uses paths");
	isnt(http_code($port{pg1}, $_), 404, "$file: $_ is there") for sort keys %paths;
	decode_json($text) if $file =~ /json$/;
}
{
	my ($script) = slurp_file("$dir/keepalived.conf") =~ /script "([^"]+)"/;
	for my $name (qw(pg1 pg2))
	{
		my $here = $script =~ s/:8010/:$port{$name}/r;
		is(system($here) == 0 ? 'ok' : 'fault', $name eq 'pg1' ? 'ok' : 'fault', "keepalived's script on $name");
	}
}

# YAML, and the container has the port of each probe.
sub yaml
{
	my ($file) = @_;
	my ($out, $err) = ('', '');
	IPC::Run::run([ 'python3', '-c', 'import json, sys, yaml; json.dump(list(yaml.safe_load_all(sys.stdin)), sys.stdout)' ], '<', "$dir/$file", '>', \$out, '2>', \$err)
	  or diag($err);
	return $out ne '' ? decode_json($out) : undef;
}
for my $file (map { s/.*\///r } glob "$dir/*.y*ml")
{
	ok(yaml($file), "$file is YAML");
}
{
	my ($container) = @{ yaml('kubernetes.yaml')->[0]{spec}{template}{spec}{containers} };
	my %ports = map { $_->{name} => $_->{containerPort} } @{ $container->{ports} };
	is(join(' ', map { $ports{ $container->{$_}{httpGet}{port} } // 'none' } grep { /Probe$/ } sort keys %$container), '8010 8010 8010', 'kubernetes.yaml: the ports of all three probes');
}
# kubectl reads the file into the types of Kubernetes, and writes without what these do not know.
SKIP:
{
	skip 'there is no kubectl', 1 unless grep { -x "$_/kubectl" } split /:/, $ENV{PATH};
	my ($out, $err) = ('', '');
	local $ENV{KUBECONFIG} = '/dev/null';
	IPC::Run::run([ qw(kubectl set image --local -o json postgres=tried -f), "$dir/kubernetes.yaml" ], '<', \undef, '>', \$out, '2>', \$err);
	my $known = $out ? decode_json($out) : {};
	is(join(' ', unknown(yaml('kubernetes.yaml')->[0], $known, '')), '/spec/template/spec/containers/0/image', 'kubernetes.yaml: Kubernetes knows all but the image, which was changed')
	  or diag($err);
}

# The paths below which the two differ.
sub unknown
{
	my ($ours, $theirs, $path) = @_;
	return map { unknown($ours->{$_}, ref $theirs eq 'HASH' ? $theirs->{$_} : undef, "$path/$_") } sort keys %$ours if ref $ours eq 'HASH';
	return map { unknown($ours->[$_], ref $theirs eq 'ARRAY' ? $theirs->[$_] : undef, "$path/$_") } 0 .. $#$ours if ref $ours eq 'ARRAY';
	return defined $theirs && $ours eq $theirs ? () : $path;
}
is(join(' ', map { $_->{checks}[0]{http} } @{ decode_json(slurp_file("$dir/consul.json"))->{services} }),
	'http://127.0.0.1:8010/leader http://127.0.0.1:8010/health', 'consul.json: what is asked for each service');

# Queries of postgres_exporter, as a user who may nothing.
{
	my $text = slurp_file("$dir/postgres_exporter.yml");
	$node{pg1}->value('CREATE ROLE exporter LOGIN');
	my $dbh = $node{pg1}->connect_db('postgres', user => 'exporter');
	my $n = 0;
	while ($text =~ /^(\w+):\n  query: >\n((?:    .*\n)+)  metrics:\n((?:    .*\n)+)/mg)
	{
		my ($name, $query, $list) = ($1, $2, $3);
		my @metrics = $list =~ /^    - (\w+):/mg;
		my $row;
		poll_ok(10, sub { $row = $dbh->selectrow_hashref($query) }, "postgres_exporter: $name has a row");
		is(join(' ', sort keys %$row), join(' ', sort @metrics), "postgres_exporter: the columns of $name");
		is($row->{is_leader}, 1, 'postgres_exporter: the leader') if exists $row->{is_leader};
		$n++;
	}
	is($n, 3, 'all queries were tried');
	$dbh->disconnect;
}
done_testing();
