# A client that speaks the protocol of PostgreSQL itself, for messages that the
# driver does not send.
package EtcdLeader::Wire;

use strict;
use warnings;

use EtcdLeader::Util;
use IO::Socket::UNIX;

# Connects to the database postgres as the role that runs the tests.
sub new
{
	my ($class, $node) = @_;
	my $socket = IO::Socket::UNIX->new(Peer => $node->host . '/.s.PGSQL.' . $node->port) or die $!;
	my $self = bless { socket => $socket }, $class;
	$self->send('', pack('N', 196608) . join("\0", user => scalar(getpwuid $<), database => 'postgres') . "\0\0");
	$self->answer;
	return $self;
}

# Sends a message of that type.
sub send
{
	my ($self, $type, $body) = @_;
	return $self->{socket}->syswrite($type . pack('N', 4 + length $body) . $body);
}

# Has the server sent something that has not been read?
sub is_answered
{
	my ($self) = @_;
	my $ready = '';
	vec($ready, fileno($self->{socket}), 1) = 1;
	return select($ready, undef, undef, 0);
}

# Waits (10 s) for the answer, up to ReadyForQuery: errors as SQLSTATEs, and rows of
# one column as values.
sub answer
{
	my ($self) = @_;
	my @seen;
	while (1)
	{
		poll(10, sub { $self->is_answered }) or return 'still running';
		$self->{socket}->sysread(my $head, 5) == 5 or return 'lost';
		my ($type, $length) = unpack 'aN', $head;
		my $body = '';
		while (length $body < $length - 4)
		{
			$self->{socket}->sysread($body, $length - 4 - length $body, length $body) or return 'lost';
		}
		push @seen, $body =~ /\0C(.{5})\0/s if $type eq 'E';
		push @seen, substr($body, 6) if $type eq 'D';
		$self->{error} = $body if $type eq 'E';
		$self->{pid} = unpack 'N', $body if $type eq 'K';
		return join ' ', @seen if $type eq 'Z';
	}
}

sub pid   { return $_[0]{pid} }
sub error { return $_[0]{error} }    # the last one, as it came

# Sends a query, and waits for the answer.
sub query { my ($self, $sql) = @_; $self->send('Q', "$sql\0"); return $self->answer }

# Statements and portals are unnamed without a name; there are no parameters.
sub parse { my ($self, $sql, $name) = @_; return $self->send('P', ($name // '') . "\0$sql\0\0\0") }
sub bind  { my ($self, $name) = @_; return $self->send('B', "\0" . ($name // '') . "\0\0\0\0\0\0\0") }

# Calls the function with that OID by the fast path; its arguments are texts.
sub call
{
	my ($self, $oid, @arguments) = @_;
	return $self->send('F', pack('Nnnn', $oid, 1, 0, scalar @arguments) . join('', map { pack('N', length) . $_ } @arguments) . pack('n', 0));
}

1;
