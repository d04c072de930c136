# A certificate authority for tests, and what it signs: made by openssl.
package EtcdLeader::Certificates;

use strict;
use warnings;

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
sub sign
{
	my ($self, $name, %args) = @_;
	my ($cert, $key) = map { "$self->{dir}/$name.$_" } qw(crt key);
	append_to_file("$self->{dir}/$name.ext",
		join("\n", 'extendedKeyUsage=serverAuth,clientAuth', $args{for} ? 'subjectAltName=' . join(',', @{ $args{for} }) : ()) . "\n")
	  unless -e "$self->{dir}/$name.ext";
	openssl('req', '-newkey', 'rsa:2048', '-nodes', '-subj', "/CN=$name", '-keyout', "$key.new", '-out', "$self->{dir}/$name.csr");
	openssl('x509', '-req', '-in', "$self->{dir}/$name.csr", '-CA', $self->ca, '-CAkey', "$self->{dir}/ca.key", '-CAcreateserial',
		'-days', $args{days} // 30, '-extfile', "$self->{dir}/$name.ext", '-out', "$cert.new");
	chmod 0600, "$key.new" or die "chmod: $!";
	rename "$key.new",  $key  or die "rename: $!";
	rename "$cert.new", $cert or die "rename: $!";
	return ($cert, $key);
}

sub openssl
{
	my @args = @_;
	my $output = '';
	IPC::Run::run([ 'openssl', @args ], '<', \undef, '&>', \$output) or die "openssl @args: $output";
	return;
}

1;
