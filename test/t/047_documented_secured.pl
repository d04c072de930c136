# doc/operations.md on a secured etcd, as it stands there: its commands make the
# certificates, the user and the role, and its settings work with them.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use EtcdLeader::Certificates;
use EtcdLeader::Documents;
use EtcdLeader::Etcd;
use EtcdLeader::Instance;
use EtcdLeader::Util;
use PostgreSQL::Test::Utils;
use Test::More;

my ($users, $certificates, $settings) = map { document_block('doc/operations.md', $_) } qw(users certificates secured_settings);

my $dir = PostgreSQL::Test::Utils::tempdir('secured');
append_to_file("$dir/password", "geheim-1\n");
$certificates =~ s/IP:10\.0\.0\.1/IP:127.0.0.1/ or die 'no address to replace';
my $flags = $certificates =~ /^# etcd (.*)$/m ? $1 : die 'no flags of etcd';

sub run_shell
{
	my ($script) = @_;
	my $output = '';
	append_to_file("$dir/script", "set -e\ncd $dir\n$script");
	my $ok = IPC::Run::run([ 'sh', "$dir/script" ], '<', \undef, '&>', \$output);
	unlink "$dir/script";
	return $ok ? 'ok' : $output;
}
is(run_shell($certificates), 'ok', 'the certificates are made');
my $etcd = EtcdLeader::Etcd->new(tls => [ map { s{=(\w)}{=$dir/$1}r } split / /, $flags ]);
my $etcdctl = ($ENV{ETCDCTL} || 'etcdctl') . ' --endpoints=' . $etcd->endpoints;
$etcd->etcdctl(qw(user add root:rootpw));
$etcd->etcdctl(qw(user grant-role root root));
$users =~ s/^etcdctl/$etcdctl/mg;
is(run_shell("export ETCDCTL_API=3\n$users"), 'ok', 'the user and the role are made');
$etcd->use_credentials('root', 'rootpw');

$settings =~ s{/etc/etcd/}{$dir/}g;
$settings =~ s{'https://etcd1\.example\.com:2379'}{"'" . $etcd->tls_endpoints . "'"}e or die 'no endpoint to replace';
my @nodes = map { EtcdLeader::Instance->create($_, etcd => $etcd, settings => { ttl => 5, $_ eq 'pg3' ? (candidate => 'never') : () }, conf => $settings) } qw(pg1 pg2 pg3);
my ($pg1, $pg2, $pg3) = @nodes;
poll_ok(20, sub { grep { $_->is_leader } $pg1, $pg2 }, 'somebody leads') or diag(EtcdLeader::Instance::explain_status($pg1));
$_->wait_until_candidate for $pg1, $pg2;
my ($leader) = grep { $_->is_leader } $pg1, $pg2;
my ($other)  = grep { $_ != $leader } $pg1, $pg2;
$leader->value('SELECT etcd_resign()');
poll_ok(10, sub { $other->is_leader }, 'the leader hands over');
poll_ok(10, sub { ($pg3->current_leader // '') eq $other->name }, 'an observer sees it');

# An observer needs to read only.
$etcd->etcdctl(qw(role add reader));
$etcd->etcdctl(qw(role grant-permission reader --prefix=true read shop/));
$etcd->etcdctl(qw(user add reader:pw));
$etcd->etcdctl(qw(user grant-role reader reader));
append_to_file("$dir/reader", 'pw');
chmod 0600, "$dir/reader";
$pg3->configure(username => 'reader', password_file => "$dir/reader");
$other->value('SELECT etcd_resign()');
poll_ok(10, sub { ($pg3->current_leader // '') eq $leader->name }, 'an observer that may only read sees the next');

# A client certificate with a common name, and users, by the gateway: said in words.
{
	run_shell('openssl req -newkey rsa:2048 -nodes -subj /CN=root -keyout cn.key -out cn.csr 2>/dev/null'
		  . ' && openssl x509 -req -days 1 -in cn.csr -CA ca.crt -CAkey ca.key -CAcreateserial -extfile postgres.ext -out cn.crt && chmod 600 cn.key');
	$pg3->configure(protocol => 'json', ssl_cert_file => "$dir/cn.crt", ssl_key_file => "$dir/cn.key");
	poll_ok(15, sub { ($pg3->status->{last_error} // '') =~ /CommonName|common name/i }, 'a certificate with a common name: last_error says so')
	  or diag($pg3->status->{last_error});
	note($pg3->status->{last_error});
}
done_testing();
