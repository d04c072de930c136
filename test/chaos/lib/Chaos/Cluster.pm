# The cluster of a chaos run: etcd members and PostgreSQL instances on hosts of
# their own, and a supervisor that starts servers again, as systemd does.
package Chaos::Cluster;

use strict;
use warnings;

use Chaos::Clients;
use Chaos::History;
use Chaos::Instance;
use Chaos::Network;
use EtcdLeader::Certificates;
use EtcdLeader::Etcd;
use EtcdLeader::Installation;
use EtcdLeader::Util;
use File::Basename qw(dirname);
use IO::Socket::INET;
use PostgreSQL::Test::Utils;
use Scalar::Util qw(weaken);

my $member_disk = '400m';
# etcd's quota, which etcd_no_space exceeds
my $quota = 16 * 1024 * 1024;
my @operator = ('root', 'operators only');
my @user     = ('pg', 'instances only');

sub instance_names { my ($class, $number) = @_; return map { "pg$_" } 1 .. $number }

# members, instances: their numbers; plan; install_path: a PostgreSQL with another
# etcd_leader.so.
sub new
{
	my ($class, %args) = @_;
	my $self = bless { plan => $args{plan}, jobs => [], wanted => {}, began => {}, install_path => $args{install_path} }, $class;
	my %address = (copy => '10.1.3.1', bad => '10.1.4.1', map({ ("etcd$_" => "10.1.1.$_") } 1 .. $args{members}), map({ ("pg$_" => "10.1.2.$_") } 1 .. $args{instances}));
	$self->{network} = Chaos::Network->new(hosts => \%address, seed => $args{plan}{seed});
	$self->_start_etcd($args{members});
	$self->_start_instance("pg$_") for 1 .. $args{instances};
	$self->{copy} = Chaos::Instance->new('copy', install_path => $args{install_path});
	$self->{copy}->live_on($self->{network}->host('copy'));
	$self->{copy}->shim->run_fast($args{plan}{clocks}{copy});
	return $self;
}

sub _start_etcd
{
	my ($self, $members) = @_;
	my (@hosts, @dirs);
	for my $name (map { "etcd$_" } 1 .. $members)
	{
		my $dir = PostgreSQL::Test::Utils::tempdir($name);
		EtcdLeader::Namespace::run_as_root("mount -t tmpfs -o size=$member_disk,mode=0700 disk '$dir'");
		my $address = $self->{network}->address($name);
		push @hosts, [ $self->{network}->host($name), $address, $address ];
		push @dirs, $dir;
	}
	my @tls;
	if ($self->{plan}{tls})
	{
		$self->{authority} = EtcdLeader::Certificates->new;
		$self->{addresses} = [ map { "IP:$_->[1]" } @hosts ];
		my ($certificate, $key) = $self->{authority}->sign('etcd', for => $self->{addresses});
		@tls = (tls => [ '--cert-file', $certificate, '--key-file', $key ]);
	}
	$self->{etcd} = EtcdLeader::Etcd->new(@tls, members => $members, hosts => \@hosts, dirs => [ map { "$_/data" } @dirs ], fsync => 1,
		flags => [ '--quota-backend-bytes', $quota, '--snapshot-count', 2000, '--max-wals', 2, '--bcrypt-cost', 4 ]);
	$self->{etcd}->etcdctl(@$_) for [ qw(user add), join ':', @operator ], [qw(user grant-role root root)], [ qw(user add), join ':', @user ],
	  [qw(role add instances)], [ qw(role grant-permission --prefix=true instances readwrite), $Chaos::Clients::election ],
	  [ qw(role grant-permission --prefix=true instances read), $Chaos::Clients::watched ], [qw(user grant-role pg instances)];
	# sent from now on, even while authentication is off
	$self->{etcd}->use_credentials(@operator);
	$self->{password_file} = PostgreSQL::Test::Utils::tempdir('password') . '/password';
	EtcdLeader::Installation::write_file($self->{password_file}, "$user[1]\n");
	chmod 0600, $self->{password_file} or die "chmod: $!";
	for my $i ($self->{etcd}->all)
	{
		my $name = 'etcd' . ($i + 1);
		$self->{members}{$name} = $i;
		$self->{disks}{$name}   = $dirs[$i];
		$self->{wanted}{$name}  = 1;
	}
	return;
}

sub _start_instance
{
	my ($self, $name) = @_;
	# every second instance relies on the check at commit
	my ($number) = $name =~ /(\d+)$/;
	my $cancels = $number % 2 ? 'on' : 'off';
	my $node = Chaos::Instance->create($name,
		host => $self->{network}->host($name), install_path => $self->{install_path},
		init     => { allows_streaming => 1 },
		preload  => 'etcd_leader,pg_cron',
		endpoints => $self->{authority} ? $self->{etcd}->tls_endpoints : $self->{etcd}->endpoints,
		settings => { ttl => $self->{plan}{ttl}, elections => $Chaos::Clients::election, node_name => $name, http_listen => '*:8010', cancel_on_loss => $cancels,
			watched_prefixes => $Chaos::Clients::watched, protocol => ($self->{plan}{seed} + $number) % 3 ? 'grpc' : 'json',
			username => $user[0], password_file => $self->{password_file},
			($self->{authority} ? (ssl_ca_file => $self->{authority}->ca) : ()) },
		conf     => "max_worker_processes = 20\ncron.use_background_workers = on\ncron.database_name = 'postgres'\n"
		  . "max_connections = 40\nmax_prepared_transactions = 2\nlisten_addresses = '*'\nshared_buffers = 8MB\nmin_wal_size = 2MB\nmax_wal_size = 16MB\nautovacuum_naptime = 5\nfsync = on\n");
	$node->shim->run_fast($self->{plan}{clocks}{$name});
	$node->append_conf('pg_hba.conf', "host all all 10.1.0.0/16 trust\n");
	$node->start;
	poll(60, sub { $node->serves }) or die "$name does not start: see " . $node->logfile;
	$node->value('CREATE EXTENSION etcd_leader');
	Chaos::Clients::create_tables($node);
	Chaos::Clients::create_jobs($node);
	$self->{instances}{$name} = $node;
	$self->{wanted}{$name}    = 1;
	return;
}

# Starts HAProxy with integrations/haproxy.cfg, on the host of the test.  That host has
# no faults, so HAProxy's checks and clients are never cut off.  Returns its port.
sub start_haproxy
{
	my ($self) = @_;
	my $config = EtcdLeader::Installation::source('integrations/haproxy.cfg');
	$config =~ s/^listen (?!postgres_leader$).*?(?=^listen|\z)//gms;
	$config =~ s/^\s+server .*\n//gm;
	$config .= join '', map { '    server ' . $_->name . ' ' . $self->{network}->address($_->name) . ':' . $_->port . " check port 8010\n" } $self->nodes;
	my $file = PostgreSQL::Test::Utils::tempdir('haproxy') . '/haproxy.cfg';
	EtcdLeader::Installation::write_file($file, $config);
	$self->{haproxy} = EtcdLeader::Util::Process->spawn(name => 'haproxy', log => "$PostgreSQL::Test::Utils::log_path/haproxy.log",
		cmd => [ 'haproxy', '-db', '-f', $file ]);
	# wait for the first checks, because HAProxy assumes that a server is up
	my $port = 5000;
	poll(10, sub { IO::Socket::INET->new(PeerAddr => "127.0.0.1:$port") }) or die 'HAProxy does not start: ' . $self->{haproxy}->output;
	pause(3);
	return $port;
}

# Name and password of etcd's root user.
sub operator { return @operator }

sub network   { return $_[0]{network} }
sub etcd      { return $_[0]{etcd} }
sub node      { return $_[0]{instances}{ $_[1] } }
sub copy_node { return $_[0]{copy} }
sub nodes     { my ($self) = @_; return map { $self->{instances}{$_} } sort keys %{ $self->{instances} } }
sub members   { my ($self) = @_; return sort keys %{ $self->{members} } }

# The other hosts that a host talks to.
sub others
{
	my ($self, $name) = @_;
	my @others = $self->members;
	push @others, ($self->{copy} ? 'copy' : ()), sort keys %{ $self->{instances} } if defined $self->{members}{$name};
	return grep { $_ ne $name } @others;
}

# The TCP ports of one kind, client or peer, between two hosts.
sub ports
{
	my ($self, $kind, @names) = @_;
	my @members = map { $self->{etcd}{members}[ $self->{members}{$_} ] } grep { defined $self->{members}{$_} } @names;
	return map { ($_->{ $kind eq 'client' ? $self->{authority} ? 'tls_url' : 'url' : 'peer' } =~ /:(\d+)$/)[0] } @members;
}

sub disk
{
	my ($self, $name) = @_;
	return $self->{disks}{$name} // $self->node($name)->disk;
}

# ---- the supervisor ----------------------------------------------------------------

# Sets whether the supervisor keeps a server running.
sub want { my ($self, $name, $wanted) = @_; $self->{wanted}{$name} = $wanted; return }

sub signal_member
{
	my ($self, $name, $signal) = @_;
	my $process = $self->{etcd}{members}[ $self->{members}{$name} ]{process};
	return $process->signal($signal);
}

# A member's syncs are slow or fail, by strace's injection.  This goes on when it is
# started again.  (etcd calls the kernel itself, so no library can come before it.)
sub inject_member
{
	my ($self, $fault, $injection) = @_;
	my $name = $fault->{target};
	$self->{injected}{$name} = { injection => $injection, log => "$PostgreSQL::Test::Utils::log_path/strace_$fault->{id}" };
	return $self->_attach($name);
}

sub _attach
{
	my ($self, $name) = @_;
	my $injected = $self->{injected}{$name};
	$injected->{strace} = EtcdLeader::Util::Process->spawn(name => "strace of $name", log => "$injected->{log}.err",
		cmd => [ 'strace', '-f', '-qq', '-p', $self->{etcd}->pid($self->{members}{$name}), '-A', '-o', "$injected->{log}.log",
			'-e', 'trace=fsync,fdatasync', '-e', "inject=fsync,fdatasync:$injected->{injection}" ]);
	return;
}

# The fault tells how many syncs were late or failed.
sub end_injection
{
	my ($self, $fault) = @_;
	my $injected = delete $self->{injected}{ $fault->{target} } or return;
	$injected->{strace}->signal('TERM');
	push @{ $self->{jobs} }, $injected->{strace};
	my $log = -e "$injected->{log}.log" ? PostgreSQL::Test::Utils::slurp_file("$injected->{log}.log") : '';
	$fault->{syncs} = () = $log =~ /\((?:DELAYED|INJECTED)\)/g;
	return;
}

# Starts the servers that have to run and do not, each at most once in a second.
# Continues the background jobs.
sub tick
{
	my ($self) = @_;
	for my $name (sort grep { $self->{wanted}{$_} } keys %{ $self->{wanted} })
	{
		next if now() < ($self->{began}{$name} // 0) + 1;
		my $i = $self->{members}{$name};
		if (defined $i)
		{
			next if $self->{etcd}{members}[$i]{process}->alive;
			my $joins = $self->{joins}{$name};
			next if $joins && ($joins->status // -1) != 0;
			$self->{etcd}->start($i, wait => 0, ($joins ? (join => 1) : ()));
			$self->_attach($name) if $self->{injected}{$name};
			delete $self->{joins}{$name};
		}
		else
		{
			my $node = $name eq 'copy' ? $self->{copy} : $self->node($name);
			next if $node->alive;
			$node->start;
		}
		$self->{began}{$name} = now();
	}
	$self->_tick_copy if $self->{copy};
	@{ $self->{jobs} } = grep { $_->alive } @{ $self->{jobs} };
	$self->_tick_later;
	return;
}

# Runs Perl code in a process of its own, which writes no history.
sub in_background
{
	my ($self, $name, $code) = @_;
	my $job = EtcdLeader::Util::Process->spawn(name => $name, log => "$PostgreSQL::Test::Utils::log_path/jobs.log", code => $code);
	push @{ $self->{jobs} }, $job;
	return $job;
}

sub has_jobs { my ($self) = @_; $self->tick; return @{ $self->{jobs} } > 0 || @{ $self->{later} } > 0 }

sub is_busy { my ($self) = @_; return $self->has_jobs || %{ $self->{joins} // {} } || ($self->{copying} && 1) }

# Calls $code until it returns a true value and does not die.
sub insist
{
	my ($code) = @_;
	poll(120, sub { eval { $code->() } || do { pause(0.3); 0 } }) or die "in vain: $@";
	return;
}

# Executes statements of an operator; returns the process that does so.
sub operate
{
	my ($self, $node, $kind, @statements) = @_;
	return $self->in_background($kind, sub { Chaos::Clients::run_operator(Chaos::History->new('operators'), $node, $kind, @statements) });
}

# Executes statements that undo those of such a process.  It waits for the end of that
# process, which comes late if the server is stopped.  It tries until the statements are
# executed, because the server may be down.
sub operate_back
{
	my ($self, $done, $node, $kind, @statements) = @_;
	$self->_after($done, sub {
		$self->in_background("end of $kind", sub {
			insist(sub { Chaos::Clients::run_operator(Chaos::History->new('operators'), $node, $kind, @statements) });
		});
	});
	return;
}

# Calls $do when a process has ended.
sub _after
{
	my ($self, $process, $do) = @_;
	push @{ $self->{later} }, { after => $process, do => $do };
	return;
}

sub _tick_later
{
	my ($self) = @_;
	my @later = @{ $self->{later} // [] };
	$self->{later} = [];
	for my $l (@later)
	{
		if ($l->{after}->alive) { push @{ $self->{later} }, $l }
		else                    { $l->{do}->() }
	}
	return;
}

# ---- etcd ---------------------------------------------------------------------------

sub member_url { my ($self, $name) = @_; return $self->{etcd}->url($self->{members}{$name}) }

sub etcdctl
{
	my ($self, $fault, @args) = @_;
	$self->in_background("etcdctl @args", sub { $self->{etcd}->etcdctl('--command-timeout=8s', '--dial-timeout=2s', @args); });
	return;
}

sub member_number { my ($self, $name) = @_; return $self->{members}{$name} }

# The instance whose key is the first; undef if etcd does not answer soon.
sub leading_instance
{
	my ($self) = @_;
	for my $i ($self->{etcd}->all)
	{
		my $answer = $self->{etcd}->post('/v3/kv/range', { key => EtcdLeader::Etcd::b64("$Chaos::Clients::election/"),
				range_end => EtcdLeader::Etcd::b64("${Chaos::Clients::election}0"), limit => 1, sort_order => 'ASCEND', sort_target => 'CREATE' }, $i, 0.3) or next;
		my $kv = $answer->{kvs}[0] or return;
		my $name = MIME::Base64::decode_base64($kv->{value} // '');
		return $self->{instances}{$name} ? $name : undef;
	}
	return;
}

# The name of etcd's leader; undef if no member answers soon.
sub leading_member
{
	my ($self) = @_;
	for my $name ($self->members)
	{
		my $status = $self->{etcd}->post('/v3/maintenance/status', {}, $self->{members}{$name}, 0.3) or next;
		$self->{ids}{ $status->{header}{member_id} } = $name;
		my $leader = $self->{ids}{ $status->{leader} // '' };
		return $leader if $leader;
	}
	return;
}

sub compact
{
	my ($self) = @_;
	my $etcd = $self->{etcd};
	$self->in_background('compact', sub {
		my ($answer) = grep { $_ } map { $etcd->post('/v3/kv/range', { key => 'eA==' }, $_, 2) } $etcd->all;
		$etcd->etcdctl('--command-timeout=8s', 'compact', $answer->{header}{revision});
	});
	return;
}

sub move_leader
{
	my ($self, $fault) = @_;
	my $etcd = $self->{etcd};
	return if $etcd->all < 2;
	$self->in_background('move leader', sub {
		my $leader = $etcd->leader // return;
		my @others = grep { $_ != $leader } $etcd->all;
		my $target = $etcd->post('/v3/maintenance/status', {}, $others[ $fault->{amount} * @others ], 2) or return;
		$etcd->etcdctl([$leader], '--command-timeout=4s', 'move-leader', sprintf('%x', $target->{header}{member_id}));
	});
	return;
}

# Writes until etcd exceeds its quota; empty_etcd() makes room again.
sub fill_etcd
{
	my ($self, $fault) = @_;
	my $etcd = $self->{etcd};
	$fault->{filling} = $self->in_background('fill etcd', sub {
		my $value = 'x' x 900_000;
		for my $n (1 .. 60)
		{
			my ($status, undef, $error) = $etcd->try_etcdctl('--command-timeout=4s', 'put', "/filler/$n", \$value);
			return if $error =~ /space exceeded/;
		}
	});
	return;
}

sub empty_etcd
{
	my ($self, $fault) = @_;
	my $etcd = $self->{etcd};
	$fault->{filling}->stop('KILL');
	$self->{was_full} = 1;
	$self->in_background('empty etcd', sub { make_room($etcd) });
	return;
}

sub make_room
{
	my ($etcd) = @_;
	my @ctl = ('--command-timeout=8s', '--dial-timeout=2s');
	insist(sub {
		$etcd->etcdctl(@ctl, 'del', '--prefix', '/filler/');
		my ($answer) = grep { $_ } map { $etcd->post('/v3/kv/range', { key => 'eA==' }, $_, 2) } $etcd->all;
		$etcd->try_etcdctl(@ctl, 'compact', $answer->{header}{revision});
		$etcd->etcdctl([$_], @ctl, 'defrag') for $etcd->all;
		$etcd->etcdctl(@ctl, 'alarm', 'disarm');
		pause(0.5);
		return $etcd->etcdctl(@ctl, 'alarm', 'list') eq '';
	});
	return;
}

# Gives the members a new certificate, valid for that many days.  Only one process does
# this at a time, because the certificate and its key are two files.
sub sign_certificates
{
	my ($self, $days) = @_;
	if ($self->{signing} && $self->{signing}->alive)
	{
		$self->_after($self->{signing}, sub { $self->sign_certificates($days) });
		return;
	}
	$self->{signing} = $self->in_background('certificates', sub { $self->{authority}->sign('etcd', for => $self->{addresses}, days => $days) });
	return;
}

# Switches etcd's authentication on or off.
sub switch_auth
{
	my ($self, $on) = @_;
	my $etcd = $self->{etcd};
	$self->in_background("auth $on", sub {
		insist(sub { my ($status, undef, $error) = $etcd->try_etcdctl('--command-timeout=6s', 'auth', $on); return $status == 0 || $error =~ /not enabled/ });
	});
	return;
}

# The member loses its data.  It is removed, and joins again with an empty disk.
sub replace_member
{
	my ($self, $name) = @_;
	my $etcd = $self->{etcd};
	my $i    = $self->{members}{$name};
	my @rest = grep { $_ != $i } $etcd->all;
	if (!@rest || $self->{joins} && %{ $self->{joins} }) { return }
	my $member = $etcd->{members}[$i];
	$self->want($name, 0);
	$self->signal_member($name, 'KILL');
	$self->{joins}{$name} = $self->in_background("replace $name", sub {
		my $removed;
		insist(sub {
			# found by its address, because a member has no name before it has started
			my ($known) = grep { $_->{peerURLs}[0] eq $member->{peer} } @{ $etcd->post('/v3/cluster/member/list', {}, $rest[0], 3)->{members} };
			# a request without an answer may have been executed
			return 1 if $known && defined $removed && $known->{ID} ne $removed;
			return 0 if !$known && !defined $removed;
			if ($known)
			{
				$removed = $known->{ID};
				$etcd->etcdctl([@rest], '--command-timeout=6s', 'member', 'remove', sprintf('%x', $removed));
			}
			$etcd->etcdctl([@rest], '--command-timeout=6s', 'member', 'add', $member->{name}, "--peer-urls=$member->{peer}");
			return 1;
		});
	});
	return;
}

# An endpoint that is no member comes first in the list of each instance, and all
# instances start again.
sub spoil_endpoints
{
	my ($self, $fault, $how) = @_;
	my ($port, @servers) = (2379, map { $_->name } $self->nodes);
	if ($how eq 'drops') { push @{ $fault->{rules} }, map { $self->{network}->add($_, 'bad', loss => 1) } @servers }
	elsif ($how ne 'refuses')
	{
		my $server = <<'PL';
my ($port, $answers) = @ARGV;
my $listener = IO::Socket::INET->new(LocalPort => $port, Listen => 50, ReuseAddr => 1) or die "no socket: $!";
my @silent;
while (my $client = $listener->accept)
{
	if (!$answers) { push @silent, $client; next; }
	sysread $client, my $request, 65536;
	syswrite $client, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
}
PL
		$fault->{bad} = EtcdLeader::Namespace::Process->spawn(host => $self->{network}->host('bad'), name => 'bad endpoint',
			log => "$PostgreSQL::Test::Utils::log_path/bad.log", cmd => [ $^X, '-MIO::Socket::INET', '-e', $server, $port, $how eq 'error' ? 1 : 0 ]);
	}
	my $scheme = $self->{authority} ? 'https' : 'http';
	my $good   = $self->{authority} ? $self->{etcd}->tls_endpoints : $self->{etcd}->endpoints;
	for my $node ($self->nodes)
	{
		my $order = $self->operate($node, $fault->{kind}, "ALTER SYSTEM SET etcd_leader.endpoints = '$scheme://" . $self->{network}->address('bad') . ":$port,$good'");
		$self->_after($order, sub { kill 'INT', $node->pid if $node->alive });
	}
	return;
}

sub mend_endpoints
{
	my ($self, $fault) = @_;
	$self->{network}->remove($_) for @{ delete $fault->{rules} // [] };
	(delete $fault->{bad})->stop('KILL') if $fault->{bad};
	for my $node ($self->nodes)
	{
		$self->in_background('end of bad endpoint', sub {
			insist(sub { Chaos::Clients::run_operator(Chaos::History->new('operators'), $node, $fault->{kind}, 'ALTER SYSTEM RESET etcd_leader.endpoints', 'SELECT pg_reload_conf()') });
		});
	}
	return;
}

# Starts a candidate of etcd's own: `etcdctl elect`; or half of the time one that uses
# Go's concurrency.Election, if test/bench/peers/build has built it.  The latter has a
# lease of the run's TTL, and does not resign when it ends.
my $go = dirname(__FILE__) . '/../../../bench/build/candidate';

sub start_rival
{
	my ($self, $fault) = @_;
	my ($etcd, $name) = ($self->{etcd}, "rival$fault->{id}");
	$fault->{go} = $fault->{amount} < 0.5 && -x $go ? 1 : 0;
	my @members = $etcd->all;
	$fault->{process} = $fault->{go}
	  ? EtcdLeader::Util::Process->spawn(name => $name, log => "$PostgreSQL::Test::Utils::log_path/$name.log",
		cmd => [ $go, $etcd->url($members[ $fault->{id} % @members ]), $Chaos::Clients::election, $name, $self->{plan}{ttl} ])
	  : $etcd->background_etcdctl('elect', $Chaos::Clients::election, $name);
	return;
}

# Makes it resign.  If it does not end, it is killed, and its lease is revoked, which
# would live for a minute.
sub end_rival
{
	my ($self, $fault) = @_;
	my $etcd = $self->{etcd};
	my ($process, $name) = ($fault->{process}, "rival$fault->{id}");
	$process->signal('INT');
	my $pid = $process->pid;
	push @{ $self->{rivals} }, $process;
	$self->in_background("end $name", sub {
		poll(3, sub { !-e "/proc/$pid/root" });
		kill 'KILL', $pid;
		insist(sub {
			# none: etcd has not answered, or all keys have expired
			my @candidates = $etcd->candidates($Chaos::Clients::election) or return 0;
			my @keys = grep { $_->{value} =~ /^\Q$name\E(?:-0)?$/ } @candidates or return 1;
			$etcd->etcdctl('--command-timeout=4s', 'lease', 'revoke', $_->{lease_hex}) for @keys;
			return 0;
		});
	});
	return;
}

# ---- a copy of an instance ---------------------------------------------------------------

# Makes a base backup of an instance, which is started beside it.  It runs as a primary
# with the same settings, as if its operator had forgotten them, or as a standby.
sub copy
{
	my ($self, $name, $standby) = @_;
	return if $self->{copying} || $self->{wanted}{copy} || $self->{copy}->alive;
	my ($original, $copy) = ($self->node($name), $self->{copy});
	my $bindir = $self->{install_path} ? "$self->{install_path}/bin/" : '';
	File::Path::rmtree($copy->data_dir);
	$self->{copying} = $self->in_background("copy of $name", sub {
		system('timeout', '30', "${bindir}pg_basebackup", '-D', $copy->data_dir, '-h', $original->host, '-p', $original->port, '-c', 'fast', '--no-sync',
			($standby ? '-R' : ())) == 0 or die 'no backup';
		$copy->append_conf('postgresql.conf', 'port = ' . $copy->port . "\n" . ($standby ? "etcd_leader.node_name = 'copy'\n" : ''));
	});
	$self->{copy_is_ended} = 0;
	return;
}

sub end_copy
{
	my ($self) = @_;
	$self->want('copy', 0);
	$self->{copy_is_ended} = 1;
	my @pids = $self->{copy}->processes;
	kill 'KILL', @pids if @pids;
	return;
}

sub _tick_copy
{
	my ($self) = @_;
	my $job = $self->{copying} or return;
	return if $job->alive;
	$self->{copying} = undef;
	$self->want('copy', 1) if $job->status == 0 && !$self->{copy_is_ended};
	return;
}

# ---- rest, and the end ---------------------------------------------------------------------

# Ends the faults: all servers have to run, and no process is stopped.
sub heal
{
	my ($self) = @_;
	$self->end_copy;
	for my $name (sort keys %{ $self->{wanted} }) { $self->want($name, 1) unless $name eq 'copy' }
	for my $node ($self->nodes) { my @pids = $node->processes; kill 'CONT', @pids if @pids }
	$self->signal_member($_, 'CONT') for $self->members;

	# a member that joins executes the log from its beginning, is full once more
	# before it comes to the deletion, and raises the alarm again
	my $etcd = $self->{etcd};
	$self->in_background('disarm', sub {
			pause(3);
			my ($status, $alarms) = $etcd->try_etcdctl('--command-timeout=8s', 'alarm', 'list');
			make_room($etcd) if $status != 0 || $alarms ne '';
		}) if $self->{was_full};
	return;
}

# All instances have contact and name the same leader, and one of them leads.
sub is_settled
{
	my ($self) = @_;
	return 0 if $self->is_busy;
	my @rows = map { my $node = $_; eval { $node->status($Chaos::Clients::election) } || () } $self->nodes;
	# the original of a copy that has led on a later timeline; the copy is gone
	for my $node ($self->nodes)
	{
		$node->try_value('SELECT etcd_campaign(?)', $Chaos::Clients::election) if grep { $_->{node} eq $node->name && $_->{state} eq 'second_primary' } @rows;
	}
	my %leaders = map { $_->{connected} ? $_->{leader} // '' : '' => 1 } @rows;
	return $self->is_complete(@rows) && !$leaders{''} && keys %leaders == 1 && grep({ $_->{is_leader} } @rows) == 1;
}

# Every instance tells its status, and has a key in the queue.
sub is_complete
{
	my ($self, @rows) = @_;
	return @rows == $self->nodes && !grep { !$_->{create_revision} } @rows;
}

# Writes the contents of the tables into a history.
sub dump_tables
{
	my ($self, $history, $ledger) = @_;
	for my $node ($self->nodes)
	{
		$history->write(%$_, k => 'row', i => $node->name) for $node->rows('SELECT * FROM account_log ORDER BY id, n');
		$history->write(%$_, k => 'duty', i => $node->name) for $node->rows('SELECT id, kind, token FROM duty ORDER BY id');
		$history->write(%$_, k => 'account', i => $node->name) for $node->rows('SELECT * FROM account');
	}
	return $self->dump_ledger($history, $ledger);
}

sub dump_ledger
{
	my ($self, $history, $ledger) = @_;
	$history->write(%$_, k => 'entry') for $ledger->rows('SELECT serial, token, instance AS i, txn FROM entry ORDER BY serial');
	$history->write(%$_, k => 'ledger') for $ledger->rows('SELECT * FROM account');
	return;
}

# Stops all servers; returns the processes of instances that did not end by themselves.
sub stop
{
	my ($self) = @_;
	$self->{wanted} = {};
	my @left = map { my $node = $_; map { $node->name . " $_" } $node->end(10) } $self->nodes;
	$self->{copy}->end(10);
	$_->release_disk for $self->nodes, $self->{copy};
	$self->stop_rest;
	return @left;
}

sub stop_rest
{
	my ($self) = @_;
	for my $i ($self->{etcd}->all) { $self->{etcd}->stop($i) }
	$self->{haproxy}->stop if $self->{haproxy};
	$self->{network}->stop;
	return;
}

1;
