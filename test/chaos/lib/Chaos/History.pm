# The history of a client: a file with JSON lines.  A line is written in one piece when
# its operation is over, so that a killed client leaves only whole lines.
package Chaos::History;

use strict;
use warnings;

use EtcdLeader::Util;
use Fcntl qw(O_WRONLY O_CREAT O_APPEND);
use JSON::PP ();
use PostgreSQL::Test::Utils;

my $json = JSON::PP->new->canonical->allow_nonref->allow_blessed;

sub dir { return $ENV{CHAOS_DATA} || "$PostgreSQL::Test::Utils::log_path/history" }

sub new
{
	my ($class, $name) = @_;
	mkdir dir();
	sysopen my $fh, dir() . "/$name.jsonl", O_WRONLY | O_CREAT | O_APPEND or die "cannot write the history $name: $!";
	return bless { fh => $fh }, $class;
}

sub write
{
	my ($self, %line) = @_;
	syswrite $self->{fh}, $json->encode(\%line) . "\n";
	return;
}

1;
