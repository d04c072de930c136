# A client that LISTENs, in a process of its own, and notes each notification
# with the time of its arrival.
package EtcdLeader::Listener;

use strict;
use warnings;

use EtcdLeader::Util;
use JSON::PP ();
use PostgreSQL::Test::Utils;
use Test::More;

my $count = 0;
my $json  = JSON::PP->new;

# Returns when it listens.
sub new
{
	my ($class, $node, $dbname, $channel) = @_;
	my $file = $PostgreSQL::Test::Utils::log_path . '/'
	  . File::Basename::basename($0, '.pl') . '_' . $node->name . "_listener" . ++$count . '.log';
	unlink $file;
	my $process = EtcdLeader::Util::Process->spawn(
		name => 'listener on ' . $node->name . "/$dbname",
		log  => $file,
		code => sub { listen_for_ever($node, $dbname, $channel) });
	my $self = bless { process => $process, file => $file }, $class;
	poll(30, sub { $process->output =~ /^listening$/m || !$process->alive });
	die "cannot listen: " . $process->output unless $process->output =~ /^listening$/m;
	return $self;
}

sub listen_for_ever
{
	my ($node, $dbname, $channel) = @_;
	my $dbh = $node->connect_db($dbname);
	$dbh->do('LISTEN ' . $dbh->quote_identifier($channel));
	syswrite(STDOUT, "listening\n");
	my $arrived = now();
	# a ping may take notifications off the socket: so it comes before they
	# are fetched, and nothing comes between that and the wait
	while ($dbh->ping > 0)
	{
		while (my $notify = $dbh->func('pg_notifies'))
		{
			my ($name, $pid, $payload) = @$notify;
			syswrite(STDOUT, sprintf("%.6f %d %s %s\n", $arrived, $pid, $name, $payload));
		}
		my $ready = '';
		vec($ready, $dbh->{pg_socket}, 1) = 1;
		select($ready, undef, undef, undef);
		$arrived = now();
	}
	return;
}

# All notifications so far, oldest first: the payload's keys, and "arrived"
# (of now()), "pid" (of the notifier), "payload" (the text).
sub notifications
{
	my ($self) = @_;
	my @all;
	for (split /\n/, $self->{process}->output)
	{
		my ($arrived, $pid, $channel, $payload) = /^(\d+\.\d+) (\d+) (\S+) (.*)$/ or next;
		my $event = eval { $json->decode($payload) } // { broken => $@ };
		push @all, { %$event, arrived => $arrived, pid => $pid, channel => $channel, payload => $payload };
	}
	return @all;
}

# The same as short texts, without what differs from run to run:
# "event election leader reason", with - for null.  $from: only those after
# that event number.
sub summary
{
	my ($self, $from) = @_;
	return map { EtcdLeader::Listener::summarize($_) } grep { $_->{seq} > ($from // 0) } $self->notifications;
}

# One event, a hash with the columns of etcd_leader_event, in short.
sub summarize
{
	my ($event) = @_;
	return join ' ', map { my $v = $event->{$_}; defined $v && length $v ? $v : '-' } qw(event election leader reason);
}

# Waits (30 s) for a notification for which $test->(hash) is true and returns it.
sub wait_for
{
	my ($self, $test, $timeout) = @_;
	my $found;
	poll($timeout // 30, sub { ($found) = grep { $test->($_) } $self->notifications; return $found });
	return $found;
}

sub stop { my ($self) = @_; return $self->{process}->stop('TERM') }

1;
