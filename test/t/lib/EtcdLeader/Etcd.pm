# An etcd cluster for tests: some members on loopback, each a process that
# can be stopped, killed, frozen and woken.  Environment: ETCD and ETCDCTL
# name other binaries than those in PATH; of a comma list in ETCD the members
# take one after the other.
package EtcdLeader::Etcd;

use strict;
use warnings;

use EtcdLeader::Util;
use HTTP::Tiny;
use JSON::PP ();
use MIME::Base64 qw(encode_base64 decode_base64);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my @etcd_programs   = split /,/, $ENV{ETCD} || 'etcd';
my $etcdctl_program = $ENV{ETCDCTL} || 'etcdctl';
my $json            = JSON::PP->new->utf8->canonical;
my $clusters        = 0;
my $no_fsync;

# Makes and starts a cluster, and waits until all its members serve.
#   members => how many (1)
#   flags   => [more flags of each member]
#   tls     => [flags] of an address of its own for TLS, see tls_endpoints();
#              the plain one remains, for the tests themselves
#   listen  => [URLs] at which the first member listens, too
#   hosts   => [[host, client address, peer address]] of each member: it runs on
#              a host of EtcdLeader::Namespace
#   dirs    => [its data directory] of each member
#   fsync   => 1: it syncs its log, though that can be switched off
sub new
{
	my ($class, %args) = @_;
	my $number = ++$clusters;
	my $self   = bless {
		name    => "etcd$number",
		dir     => PostgreSQL::Test::Utils::tempdir("etcd$number"),
		flags   => $args{flags} // [],
		tls     => $args{tls},
		listen  => $args{listen} // [],
		hosts   => $args{hosts} // [],
		fsync   => $args{fsync},
		members => [],
	}, $class;

	if (!defined $no_fsync)
	{
		$no_fsync = 1;
		for my $program (@etcd_programs)
		{
			my $help = `"$program" --help 2>&1`;
			die "cannot run $program" if $? != 0;
			$no_fsync &&= $help =~ /--unsafe-no-fsync/;
		}
	}
	for my $i (0 .. ($args{members} // 1) - 1)
	{
		my $client = PostgreSQL::Test::Cluster::get_free_port();
		my $peer   = PostgreSQL::Test::Cluster::get_free_port();
		push @{ $self->{members} },
		  {
			name => "$self->{name}-$i",
			url  => 'http://' . ($self->{hosts}[$i][1] // '127.0.0.1') . ":$client",
			peer => 'http://' . ($self->{hosts}[$i][2] // '127.0.0.1') . ":$peer",
			($args{tls} ? (tls_url => 'https://' . ($self->{hosts}[$i][1] // '127.0.0.1') . ':' . PostgreSQL::Test::Cluster::get_free_port()) : ()),
			dir  => $args{dirs}[$i] // "$self->{dir}/$i",
			log  => "$PostgreSQL::Test::Utils::log_path/"
			  . File::Basename::basename($0, '.pl') . "_$self->{name}-$i.log",
		  };
	}
	$self->start($_, wait => 0) for $self->all;
	$self->wait_until_serving;
	return $self;
}

# The numbers of all members.
sub all { my ($self) = @_; return 0 .. $#{ $self->{members} } }

sub url { my ($self, $i) = @_; return $self->{members}[$i]{url} }

sub pid { my ($self, $i) = @_; return $self->{members}[$i]{process}->pid }

# The endpoints of these members (of all), as a comma list.
sub endpoints
{
	my ($self, @members) = @_;
	@members = $self->all unless @members;
	return join ',', map { $self->url($_) } @members;
}

# The same for TLS, at that host.
sub tls_endpoints
{
	my ($self, $host) = @_;
	return join ',', map { my $url = $_->{tls_url}; $url =~ s/127\.0\.0\.1/$host/ if $host; $url } @{ $self->{members} };
}

# Users: from here on, the tests send their requests as that user.
sub use_credentials { my ($self, $user, $password) = @_; $self->{credentials} = [ $user, $password ]; return }

sub _user_argument { my ($self) = @_; return map { '--user=' . join ':', @$_ } $self->{credentials} // () }

# Starts a member that is not running; waits until it serves unless wait => 0.
# fresh => 1 takes away its data first: another history begins.  join => 1 as
# well, but it joins the others, to which it was added.
sub start
{
	my ($self, $i, %args) = @_;
	my $m = $self->{members}[$i];
	File::Path::rmtree($m->{dir}) if $args{fresh} || $args{join};
	# until its data says so: it may be killed before there are any
	$m->{joins} = $args{join} if $args{fresh} || $args{join};
	$self->{token} = "$self->{name}-" . ++$self->{histories} if $args{fresh} || !$self->{token};
	my $host = $self->{hosts}[$i] ? $self->{hosts}[$i][0] : undef;
	$m->{process} = ($host ? 'EtcdLeader::Namespace::Process' : 'EtcdLeader::Util::Process')->spawn(
		host => $host,
		name => $m->{name},
		log  => $m->{log},
		cmd  => [
			$etcd_programs[ $i % @etcd_programs ],
			'--name'                        => $m->{name},
			'--data-dir'                    => $m->{dir},
			'--listen-client-urls' => join(',', $m->{url}, ($m->{tls_url} // ()), ($i == 0 ? @{ $self->{listen} } : ())),
			'--advertise-client-urls' => $m->{tls_url} // $m->{url},
			@{ $self->{tls} // [] },
			'--listen-peer-urls'            => $m->{peer},
			'--initial-advertise-peer-urls' => $m->{peer},
			'--initial-cluster-token'       => $self->{token},
			'--initial-cluster' => join(',', map { "$_->{name}=$_->{peer}" } @{ $self->{members} }),
			($m->{joins} ? ('--initial-cluster-state' => 'existing') : ()),
			($no_fsync && !$self->{fsync} ? '--unsafe-no-fsync' : ()),
			@{ $self->{flags} },
		]);
	$self->wait_until_serving($i) unless defined $args{wait} && !$args{wait};
	return;
}

# Adds a learner, and waits until it has joined; returns its number.  As for the
# other members, its address is on loopback.
sub add_learner
{
	my ($self) = @_;
	my @voters = $self->all;
	my $i = @voters;
	my ($client, $peer) = map { 'http://127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port() } 1 .. 2;
	push @{ $self->{members} },
	  { name => "$self->{name}-$i", url => $client, peer => $peer, dir => "$self->{dir}/$i", log => $self->{members}[0]{log} =~ s/-0\.log$/-$i.log/r };
	# refused until all members are connected for some seconds
	poll(30, sub { ($self->try_etcdctl(\@voters, qw(member add), "$self->{name}-$i", '--learner', "--peer-urls=$peer"))[0] == 0 })
	  or die 'the learner cannot be added';
	$self->start($i, join => 1, wait => 0);
	poll(30, sub { my $status = $self->post('/v3/maintenance/status', {}, $i, 1); $status && $status->{isLearner} }) or die 'the learner does not start';
	return $i;
}

# Makes a voting member of it, as soon as it has all data.
sub promote
{
	my ($self, $learner) = @_;
	my $id = sprintf '%x', $self->post('/v3/maintenance/status', {}, $learner)->{header}{member_id};
	my @others = grep { $_ != $learner } $self->all;
	poll(30, sub { ($self->try_etcdctl(\@others, qw(member promote), $id))[0] == 0 }) or die 'the learner cannot be promoted';
	return;
}

# Ends a member: as an operator would (stop), or at once (kill).
sub stop { my ($self, $i) = @_; return $self->{members}[$i]{process}->stop('TERM') }
sub kill { my ($self, $i) = @_; return $self->{members}[$i]{process}->stop('KILL') }

# Freezes and wakes a member.
sub freeze { my ($self, $i) = @_; return $self->{members}[$i]{process}->freeze }
sub thaw   { my ($self, $i) = @_; return $self->{members}[$i]{process}->thaw }

# Waits until these members (all) answer linearizable reads; dies if not.
sub wait_until_serving
{
	my ($self, @members) = @_;
	@members = $self->all unless @members;
	for my $i (@members)
	{
		poll(30, sub { $self->post('/v3/kv/range', { key => b64('x'), limit => 1 }, $i, 2) })
		  or die "etcd member $i does not serve; see $self->{members}[$i]{log}";
	}
	return;
}

sub b64 { return encode_base64($_[0], '') }

# POSTs to the gateway of a member (0).  The decoded answer, or undef when
# there is none or it is an error.
sub post
{
	my ($self, $path, $body, $i, $timeout) = @_;
	my $http = HTTP::Tiny->new(timeout => $timeout // 5, http_proxy => undef);
	my %headers;
	if ($self->{credentials})
	{
		my ($user, $password) = @{ $self->{credentials} };
		my $answer = $http->post($self->url($i // 0) . '/v3/auth/authenticate',
			{ content => $json->encode({ name => $user, password => $password }) });
		$headers{Authorization} = $json->decode($answer->{content})->{token} if $answer->{success};
	}
	my $answer = $http->post($self->url($i // 0) . $path, { headers => \%headers, content => $json->encode($body) });
	return $answer->{success} ? $json->decode($answer->{content}) : undef;
}

# The number of the member that leads etcd; undef if the members that are
# asked (all) know of no leader, or of a leader that does not answer.
sub leader
{
	my ($self, @members) = @_;
	my (%member, $leader);
	for my $i (@members ? @members : $self->all)
	{
		my $status = $self->post('/v3/maintenance/status', {}, $i, 1) or next;
		$member{ $status->{header}{member_id} } = $i;
		$leader = $status->{leader} if $status->{leader};
	}
	return defined $leader ? $member{$leader} : undef;
}

# The ID of the cluster, as etcd_leader shows it.
sub cluster_id { my ($self) = @_; return sprintf '%x', $self->post('/v3/maintenance/status', {})->{header}{cluster_id} }

# 1 if its version is one of which etcd_leader warns where it follows Patroni;
# else 0.
sub is_old
{
	my ($self) = @_;
	my ($minor, $patch) = $self->post('/v3/maintenance/status', {})->{version} =~ /^3\.(\d+)\.(\d+)/ or die 'no version';
	return $minor == 4 && $patch < 31 || $minor == 5 && $patch < 13 ? 1 : 0;
}

# Runs etcdctl against all members, or members => [numbers] given first; a
# reference to a text given last is its standard input.
# Returns the output, without the last newline; dies if the command failed.
sub etcdctl
{
	my ($self, @args) = @_;
	my ($status, $out, $err) = $self->try_etcdctl(@args);
	die "etcdctl failed: $err" if $status != 0;
	return $out;
}

# The same; returns (exit status, stdout, stderr).
sub try_etcdctl
{
	my ($self, @args) = @_;
	my @members = ref $args[0] ? @{ shift @args } : ();
	my $input = ref $args[-1] ? ${ pop @args } : undef;
	local $ENV{ETCDCTL_API} = 3;
	my ($out, $err) = ('', '');
	unshift @args, $self->_user_argument unless "@args" =~ /--user=/;
	IPC::Run::run([ $etcdctl_program, '--endpoints=' . $self->endpoints(@members), @args ],
		'<', \$input, '>', \$out, '2>', \$err);
	my $status = $?;
	chomp $out;
	return ($status, $out, $err);
}

# Starts `etcdctl @args` in the background.
my $background = 0;

sub background_etcdctl
{
	my ($self, @args) = @_;
	return EtcdLeader::Util::Process->spawn(
		name => "etcdctl @args",
		log  => "$self->{dir}/etcdctl-" . ++$background,
		stderr => "$self->{dir}/etcdctl-$background.err",
		env  => { ETCDCTL_API => 3 },
		cmd  => [ $etcdctl_program, '--endpoints=' . $self->endpoints, $self->_user_argument, @args ]);
}

# The keys under a prefix, first created first: hashes with key, value,
# create_revision, mod_revision, lease (decimal) and lease_hex.  Undef when
# etcd does not answer.
sub keys
{
	my ($self, $prefix, $i) = @_;
	my $end    = substr($prefix, 0, -1) . chr(ord(substr $prefix, -1) + 1);
	my $answer = $self->post('/v3/kv/range',
		{ key => b64($prefix), range_end => b64($end), sort_order => 'ASCEND', sort_target => 'CREATE' }, $i)
	  or return;
	return map {
		{
			key             => decode_base64($_->{key}),
			value           => decode_base64($_->{value} // ''),
			create_revision => $_->{create_revision},
			mod_revision    => $_->{mod_revision},
			lease           => $_->{lease} // 0,
			lease_hex       => sprintf('%x', $_->{lease} // 0),
		}
	} @{ $answer->{kvs} // [] };
}

# The candidates of an election, as keys().
sub candidates { my ($self, $election, $i) = @_; return $self->keys("$election/", $i) }

# (granted TTL, TTL left) of a lease, in seconds; left is -1 if it is gone.
sub lease
{
	my ($self, $id) = @_;
	my $answer = $self->post('/v3/lease/timetolive', { ID => "$id" }) or return;
	return ($answer->{grantedTTL} // 0, $answer->{TTL} // 0);
}

# The ids of all leases, decimal.
sub leases
{
	my ($self) = @_;
	my $answer = $self->post('/v3/lease/leases', {}) or return;
	return map { $_->{ID} } @{ $answer->{leases} // [] };
}

# The metrics of one member (0), as it writes them.
sub metrics
{
	my ($self, $i) = @_;
	my $answer = HTTP::Tiny->new(timeout => 5, http_proxy => undef)->get($self->url($i // 0) . '/metrics');
	die "no metrics: $answer->{status}" unless $answer->{success};
	return $answer->{content};
}

# The sum of one metric over its labels.
sub sum
{
	my ($metrics, $name) = @_;
	my ($sum, $seen) = (0, 0);
	for ($metrics =~ /^\Q$name\E(?:\{[^}]*\})?\s+(\S+)$/mg)
	{
		$sum += $_;
		$seen = 1;
	}
	die "etcd has no metric $name" unless $seen;
	return $sum;
}

sub metric { my ($self, $name, $i) = @_; return sum($self->metrics($i), $name) }

1;
