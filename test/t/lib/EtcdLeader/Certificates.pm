# A certificate authority for tests, and its certificates: made by openssl.
package EtcdLeader::Certificates;

use strict;
use warnings;

use POSIX ();
use PostgreSQL::Test::Utils;

my $count = 0;

# A new authority, in a directory of its own.
sub new
{
	my ($class) = @_;
	my $number = ++$count;
	my $self = bless { dir => PostgreSQL::Test::Utils::tempdir("ca$number") }, $class;
	openssl('req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', 30, '-subj', "/CN=Authority $number",
		'-keyout', "$self->{dir}/ca.key", '-out', $self->ca);
	return $self;
}

sub ca { return "$_[0]{dir}/ca.crt" }

# Signs a certificate: (certificate file, key file).  Replaces an earlier one of
# that name.
#   for  => ['DNS:...', 'IP:...'], whom it names
#   days => how long it is valid; 0: to the end of this second (newer openssl
#           makes none of the past)
#   between => [from, until]: when it is valid, in seconds from now
#   usage   => its extended key usage (serverAuth,clientAuth)
sub sign
{
	my ($self, $name, %args) = @_;
	my ($cert, $key) = map { "$self->{dir}/$name.$_" } qw(crt key);
	append_to_file("$self->{dir}/$name.ext",
		join("\n", 'extendedKeyUsage=' . ($args{usage} // 'serverAuth,clientAuth'), $args{for} ? 'subjectAltName=' . join(',', @{ $args{for} }) : ()) . "\n")
	  unless -e "$self->{dir}/$name.ext";
	openssl('req', '-newkey', 'rsa:2048', '-nodes', '-subj', "/CN=$name", '-keyout', "$key.new", '-out', "$self->{dir}/$name.csr");
	if ($args{between})
	{
		$self->_sign_between($name, "$cert.new", @{ $args{between} });
	}
	else
	{
		openssl('x509', '-req', '-in', "$self->{dir}/$name.csr", '-CA', $self->ca, '-CAkey', "$self->{dir}/ca.key", '-CAcreateserial',
			'-days', $args{days} // 60, '-extfile', "$self->{dir}/$name.ext", '-out', "$cert.new");
	}
	chmod 0600, "$key.new" or die "chmod: $!";
	rename "$key.new",  $key  or die "rename: $!";
	rename "$cert.new", $cert or die "rename: $!";
	return ($cert, $key);
}

# Of all commands of openssl, only `ca` signs for any time, in all its versions.
sub _sign_between
{
	my ($self, $name, $out, @seconds) = @_;
	my ($from, $until) = map { POSIX::strftime('%Y%m%d%H%M%SZ', gmtime(time + $_)) } @seconds;
	my $dir = "$self->{dir}/signed";
	if (!-d $dir)
	{
		mkdir $dir or die "mkdir: $!";
		append_to_file("$dir/index.txt", '');
		append_to_file("$dir/openssl.cnf", "[ca]\ndefault_ca=this\n[this]\ndatabase=$dir/index.txt\nnew_certs_dir=$dir\nrand_serial=yes\n"
			  . "default_md=sha256\nunique_subject=no\npolicy=any\n[any]\ncommonName=supplied\n");
	}
	openssl('ca', '-batch', '-config', "$dir/openssl.cnf", '-cert', $self->ca, '-keyfile', "$self->{dir}/ca.key", '-notext',
		'-startdate', $from, '-enddate', $until, '-extfile', "$self->{dir}/$name.ext", '-in', "$self->{dir}/$name.csr", '-out', $out);
	return;
}

sub openssl
{
	my @args = @_;
	my $output = '';
	IPC::Run::run([ 'openssl', @args ], '<', \undef, '&>', \$output) or die "openssl @args: $output";
	return;
}

1;
