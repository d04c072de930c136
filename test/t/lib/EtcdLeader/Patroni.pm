# A PostgreSQL cluster under Patroni, for tests: members on loopback, each a
# Patroni and the PostgreSQL that it runs, with etcd_leader in it.
#
# Patroni starts PostgreSQL in a session of its own, and PostgreSQL outlives
# it: stop() and the end of the test end both.
package EtcdLeader::Patroni;

use strict;
use warnings;

use EtcdLeader::Instance;
use EtcdLeader::Util;
use JSON::PP ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More ();

my $json     = JSON::PP->new->utf8->canonical->pretty;
my $clusters = 0;
my $owner    = $$;
my @all;

# The version of Patroni, as a number to compare: 3.0.2 is 3000002.  Undef if
# there is none.
sub version
{
	my ($major, $minor, $patch) = (`patroni --version 2>/dev/null` // '') =~ /(\d+)\.(\d+)(?:\.(\d+))?/ or return;
	return $major * 1_000_000 + $minor * 1_000 + ($patch // 0);
}

# The shortest times that this Patroni takes (since 3.1 it raises a ttl below
# 20 s), with loop_wait + 2 * retry_timeout <= ttl.
sub shortest_times
{
	return version() >= 3_001_000
	  ? (ttl => 20, loop_wait => 1, retry_timeout => 3)
	  : (ttl => 8, loop_wait => 1, retry_timeout => 3);
}

# Makes a cluster, starts its members and waits until a member is the primary, the
# others stream from it, and the extension is in "postgres".
#   etcd     => EtcdLeader::Etcd
#   members  => how many (3); they are named n0, n1, ...
#   scope    => its name (test1, ...)
#   dcs      => { ttl => ..., failsafe_mode => 1, ... }: dynamic configuration
#   settings => { ttl => 5, ... } of etcd_leader, in each node's own file;
#               node_name is the member's name unless it is given here
#   conf     => { name => value } more settings of PostgreSQL, of the same kind
#   preload  => shared_preload_libraries (etcd_leader)
#   relays   => [EtcdLeader::Relay] of each member: its only way to etcd
#   elector_relays => the same for etcd_leader alone; Patroni has its own way
#   hosts    => [[host, address]] of each member: EtcdLeader::Namespace's
#               make_hosts(); the test's own way to a server is its Unix socket,
#               which no network cuts off
sub new
{
	my ($class, %args) = @_;
	my $number = ++$clusters;
	my $self   = bless {
		scope   => $args{scope} // "test$number",
		etcd    => $args{etcd},
		dir     => PostgreSQL::Test::Utils::tempdir_short(),
		members => [],
	}, $class;
	push @all, $self;
	for my $i (0 .. ($args{members} // 3) - 1)
	{
		my $member = EtcdLeader::Patroni::Member->make($self, $i, %args);
		push @{ $self->{members} }, $member;
		$member->start_patroni;
		# the others are copies of it
		$self->wait_for_primary($member) if $i == 0;
	}
	$self->wait_until_streaming;
	$self->primary->value('CREATE EXTENSION IF NOT EXISTS etcd_leader') unless defined $args{preload} && $args{preload} !~ /etcd_leader/;
	return $self;
}

sub scope   { return $_[0]{scope} }
sub members { return @{ $_[0]{members} } }
sub member  { my ($self, $i) = @_; return $self->{members}[$i] }

# The name of the election that follows this cluster's leader key.
sub election { return "patroni:$_[0]{scope}" }

# The cluster's keys in etcd: the prefix, and the leader key as Etcd::keys() has
# it (undef: there is none).
sub prefix { return "/service/$_[0]{scope}/" }

sub leader_key
{
	my ($self, $i) = @_;
	my ($key) = grep { $_->{key} eq $self->prefix . 'leader' } $self->{etcd}->keys($self->prefix . 'leader', $i);
	return $key;
}

# The member that the leader key names; undef if there is none.
sub leader
{
	my ($self) = @_;
	my $key = eval { $self->leader_key } or return;
	return (grep { $_->name eq $key->{value} } $self->members)[0];
}

# The members that are not in recovery; the first of them.
sub primaries
{
	my ($self) = @_;
	return grep { ($_->try_value('SELECT pg_is_in_recovery()::int') // 1) == 0 } $self->members;
}

sub primary { my ($self) = @_; return ($self->primaries)[0] }

sub others
{
	my ($self, @known) = @_;
	my %known = map { $_->name => 1 } @known;
	return grep { !$known{ $_->name } } $self->members;
}

# Waits (90 s) until that member (or a member that is not among @$others) is the only
# primary and the leader key names it; dies if not.  Returns it.
sub wait_for_primary
{
	my ($self, $member, $others, $timeout) = @_;
	my %not = map { $_->name => 1 } @{ $others // [] };
	my $found;
	poll($timeout // 90, sub {
		my $leader = $self->leader or return;
		return if $member ? $leader->name ne $member->name : $not{ $leader->name };
		return unless ($leader->try_value('SELECT pg_is_in_recovery()::int') // 1) == 0;
		return $found = $leader;
	}) or die 'no primary' . ($member ? ' ' . $member->name : '') . ': ' . $self->explain;
	return $found;
}

# The names of the members that stream from the primary.
sub streaming
{
	my ($self) = @_;
	my $primary = $self->primary or return;
	return split /,/, $primary->try_value(q{SELECT coalesce(string_agg(application_name, ',' ORDER BY application_name), '')
		FROM pg_stat_replication WHERE state = 'streaming' AND application_name ~ '^n[0-9]+$'}) // '';
}

# Waits (two minutes) until all members but these stream from the primary.
#
# A Patroni 3.0.2 that is woken by SIGCONT may take back the key that another
# holds by then.  A member that has followed the other primary is on a later
# timeline than the primary, and Patroni leaves it so.  An operator makes it
# anew, and so does this.
sub wait_until_streaming
{
	my ($self, @but) = @_;
	my @members = $self->others($self->wait_for_primary, @but);
	my $names   = join ',', sort map { $_->name } @members;
	return if poll(40, sub { join(',', $self->streaming) eq $names });

	my %streams = map { $_ => 1 } $self->streaming;
	my $primary = $self->wait_for_primary;
	for my $member (grep { !$streams{ $_->name } && $_ != $primary } @members)
	{
		Test::More::diag($member->name . ' does not stream, and is made anew');
		$self->try_patronictl('reinit', $self->scope, $member->name, '--force');
	}
	$names = join ',', sort map { $_->name } $self->others($primary, @but);
	poll(80, sub { join(',', $self->streaming) eq $names })
	  or die "'" . join(',', $self->streaming) . "' stream, not '$names': " . $self->explain;
	return;
}

sub explain
{
	my ($self) = @_;
	my ($status, $out) = $self->try_patronictl('list');
	return "$out\n" . join "\n", map { $_->name . ': ' . EtcdLeader::Instance::explain_status($_) } $self->members;
}

# Runs patronictl with the configuration of the first member; returns its output, dies
# if it failed.
sub patronictl
{
	my ($self, @args) = @_;
	my ($status, $out) = $self->try_patronictl(@args);
	die "patronictl @args: $out" if $status != 0;
	return $out;
}

# The same: (exit status, its output on both).
sub try_patronictl
{
	my ($self, @args) = @_;
	my $out = '';
	IPC::Run::run([ 'patronictl', '-c', "$self->{dir}/ctl.yml", @args ], '<', \undef, '>', \$out, '2>&1');
	return ($?, $out);
}

# switchover and failover to a member; restart and reinit of it.  A member that
# was rewound a moment ago is refused: it is tried again.
sub switchover
{
	my ($self, $to) = @_;
	my $out = '';
	poll(60, sub {
		my $leader = $self->leader or return;
		return 1 if $leader->name eq $to->name;
		(undef, $out) = $self->try_patronictl('switchover', $self->scope, '--leader', $leader->name, '--candidate', $to->name, '--force');
		return $out =~ /Successfully switched over/;
	}) or die "no switchover: $out";
	return;
}

sub failover
{
	my ($self, $to) = @_;
	return $self->patronictl('failover', $self->scope, '--candidate', $to->name, '--force');
}

sub restart { my ($self, $m) = @_; return $self->patronictl('restart', $self->scope, $m->name, '--force') }
sub reinit { my ($self, $m) = @_; return $self->patronictl('reinit', $self->scope, $m->name, '--force', '--wait') }
sub reload { my ($self) = @_; return $self->patronictl('reload', $self->scope, '--force') }
sub pause_cluster  { my ($self) = @_; return $self->patronictl('pause',  $self->scope, '--wait') }
sub resume_cluster { my ($self) = @_; return $self->patronictl('resume', $self->scope, '--wait') }

sub edit_config
{
	my ($self, %values) = @_;
	return $self->patronictl('edit-config', $self->scope, '--force', '--quiet', map { ('-s', "$_=$values{$_}") } sort keys %values);
}

# Starts samplers of all members: that no two lead (EtcdLeader::Sampler).
sub sample
{
	my ($self, %args) = @_;
	return [ map { $_->sample(election => $self->election, interval => 0.001, %args) } $self->members ];
}

# Ends all of it, at once.
sub stop
{
	my ($self) = @_;
	# the end of the program may have taken some already
	$_->kill_all for grep { defined } $self->members;
	return;
}

sub DESTROY { my ($self) = @_; local ($?, $!, $@); $self->stop if $$ == $owner; return }

# Before the files go: END blocks run last defined first, and the END blocks of the
# modules that this module uses come later.
END
{
	my $status = $?;
	if ($$ == $owner) { eval { $_->stop } for @all }
	$? = $status;
}

# ---------------------------------------------------------------------------
# A member: EtcdLeader::Instance, without what starts and stops a server.
package EtcdLeader::Patroni::Member;

use strict;
use warnings;

use EtcdLeader::Util;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use parent -norequire, 'EtcdLeader::Instance';

sub make
{
	my ($class, $cluster, $i, %args) = @_;
	my $host = $args{hosts} ? $args{hosts}[$i] : undef;
	my $self = bless {
		cluster => $cluster,
		name    => "n$i",
		address => $host ? $host->[1] : '127.0.0.1',
		netns   => $host ? $host->[0] : undef,
		port    => PostgreSQL::Test::Cluster::get_free_port(),
		rest    => PostgreSQL::Test::Cluster::get_free_port(),
		dir     => "$cluster->{dir}/n$i",
		log     => "$PostgreSQL::Test::Utils::log_path/" . File::Basename::basename($0, '.pl') . "_$cluster->{scope}-n$i",
		settings => { %{ $args{settings} // {} } },
		conf     => { %{ $args{conf} // {} } },
		preload  => $args{preload} // 'etcd_leader',
	}, $class;
	$self->{etcd_hosts} = $args{relays} ? $args{relays}[$i]->url : $cluster->{etcd}->endpoints;
	$self->{settings}{endpoints} //= $args{elector_relays}[$i]->url if $args{elector_relays};
	my %dcs = (EtcdLeader::Patroni::shortest_times(), maximum_lag_on_failover => 1048576, %{ $args{dcs} // {} });
	$dcs{postgresql} = { use_pg_rewind => JSON::PP::true(), %{ $dcs{postgresql} // {} },
		parameters => { wal_log_hints => 'on', max_connections => 40, wal_keep_size => '64MB', %{ $dcs{postgresql}{parameters} // {} } } };
	$self->{bootstrap} = {
		dcs    => \%dcs,
		initdb => [ { encoding => 'UTF8' }, { locale => 'C' }, { 'auth-host' => 'trust' }, { 'auth-local' => 'trust' }, 'no-sync' ],
		pg_hba => [ 'local all all trust', 'host all all 0.0.0.0/0 trust', 'host replication all 0.0.0.0/0 trust' ],
	};
	$self->write_config;
	return $self;
}

# The file of this node; to be called again after a change of {settings} or {conf}.
sub write_config
{
	my ($self) = @_;
	my $cluster = $self->{cluster};
	my $user    = getpwuid($<);
	my $hosts   = $self->{etcd_hosts} =~ s{http://}{}gr;
	chomp(my $bindir = `pg_config --bindir`);
	my %settings = (node_name => $self->{name}, endpoints => $self->{etcd_hosts}, elections => "patroni:$cluster->{scope}", %{ $self->{settings} });
	my %config = (
		scope   => $cluster->{scope},
		name    => $self->{name},
		restapi => { listen => "$self->{address}:$self->{rest}", connect_address => "$self->{address}:$self->{rest}" },
		# a relay is no member of etcd: the topology is not asked for
		etcd3      => { hosts => $hosts, ($self->{etcd_hosts} ne $cluster->{etcd}->endpoints ? (use_proxies => JSON::PP::true()) : ()) },
		bootstrap  => $self->{bootstrap},
		postgresql => {
			listen          => "$self->{address}:$self->{port}",
			connect_address => "$self->{address}:$self->{port}",
			data_dir        => "$self->{dir}/data",
			bin_dir         => $bindir,
			pgpass          => "$self->{dir}/pgpass",
			use_unix_socket => JSON::PP::true(),
			authentication  => {
				superuser   => { username => $user,        password => 'x' },
				replication => { username => 'replicator', password => 'x' },
				rewind      => { username => $user,        password => 'x' },
			},
			parameters => {
				unix_socket_directories    => $self->{dir},
				shared_buffers             => '8MB',
				fsync                      => 'off',
				logging_collector          => 'off',
				log_line_prefix            => '%m [%p] %b %q%a ',
				shared_preload_libraries   => $self->{preload},
				%{ $self->{conf} },
				($self->{preload} =~ /etcd_leader/ ? (map { ("etcd_leader.$_" => $settings{$_}) } grep { defined $settings{$_} } keys %settings) : ()),
			},
		},
	);
	mkdir $self->{dir};
	chmod 0700, $self->{dir};
	write_json("$self->{dir}/patroni.yml", \%config);
	# patronictl has its own way to etcd
	my $etcd3 = { hosts => $cluster->{etcd}->endpoints =~ s{http://}{}gr };
	write_json("$cluster->{dir}/ctl.yml", { %config, etcd3 => $etcd3 }) if $self->{name} eq 'n0';
	return;
}

# JSON is YAML.
sub write_json
{
	my ($file, $value) = @_;
	open my $fh, '>', $file or die "cannot write $file: $!";
	print $fh $json->encode($value);
	close $fh or die "cannot write $file: $!";
	return;
}

sub name     { return $_[0]{name} }
sub number   { return substr $_[0]{name}, 1 }
sub host     { return $_[0]{dir} }
sub port     { return $_[0]{port} }
sub data_dir { return "$_[0]{dir}/data" }
sub logfile  { return "$_[0]{log}.log" }

sub start_patroni
{
	my ($self) = @_;
	# PostgreSQL writes to the log of the Patroni that started it
	$self->{process} = ($self->{netns} ? 'EtcdLeader::Namespace::Process' : 'EtcdLeader::Util::Process')->spawn(
		host => $self->{netns},
		name => "patroni $self->{name}",
		log  => $self->logfile,
		cmd  => [ 'patroni', "$self->{dir}/patroni.yml" ]);
	return;
}

# Patroni alone: as an operator stops it, with its PostgreSQL (stop_patroni);
# killed, frozen, woken.
sub stop_patroni   { my ($self) = @_; return $self->{process}->stop('TERM', 30) }
sub kill_patroni   { my ($self) = @_; return $self->{process}->stop('KILL') }
sub freeze_patroni { my ($self) = @_; return $self->{process}->freeze }
sub thaw_patroni   { my ($self) = @_; return $self->{process}->thaw }

# Asks every millisecond, in the background, whether the server is in recovery,
# and whether it leads.  stop() it, and give its output to roles_seen().
my $watchers = 0;

sub watch_roles
{
	my ($self) = @_;
	my $election = $self->{cluster}->election;
	my $file     = "$self->{log}_roles" . ++$watchers . '.log';
	unlink $file;
	return EtcdLeader::Util::Process->spawn(
		name => "roles of $self->{name}",
		log  => $file,
		code => sub {
			my ($dbh, $last) = (undef, '');
			while (1)
			{
				my $roles = eval {
					$dbh //= $self->connect_db;
					join ' ', $dbh->selectrow_array('SELECT pg_is_in_recovery()::int, etcd_is_leader(?)::int', undef, $election);
				};
				$dbh = undef unless defined $roles;
				$roles //= 'down';
				syswrite(STDOUT, sprintf("%.6f %s\n", now(), $roles)) if $roles ne $last;
				$last = $roles;
				pause($roles eq 'down' ? 0.01 : 0.001);
			}
		});
}

# The answers so far: [time, in recovery, leads], or [time] of a server that is
# down; in order.
sub roles_seen
{
	my ($process) = @_;
	return map { [ grep { $_ ne 'down' } split ' ' ] } split /\n/, $process->output;
}

# Patroni and PostgreSQL at once, as if the host were gone.
sub kill_all
{
	my ($self) = @_;
	delete $self->{el_dbh};
	# whoever is left has forked meanwhile
	for (1 .. 100)
	{
		my @pids = $self->pids;
		last unless @pids;
		kill 'KILL', @pids;
		$self->{process}->alive if $self->{process};
		pause(0.02);
	}
	return;
}

# All of it stopped, and woken: as if the host were.
sub freeze_all { my ($self) = @_; return kill 'STOP', $self->pids }
sub thaw_all   { my ($self) = @_; return kill 'CONT', $self->pids }

sub postmaster_pid
{
	my ($self) = @_;
	open my $fh, '<', $self->data_dir . '/postmaster.pid' or return;
	my ($pid) = (<$fh> // '') =~ /^(\d+)/;
	return $pid;
}

# All processes of the member: their working directory or command line names its directory.
sub pids
{
	my ($self) = @_;
	my @pids;
	for my $proc (glob '/proc/[0-9]*')
	{
		my ($pid) = $proc =~ /(\d+)$/;
		next if $pid == $$;
		my $cwd = readlink "$proc/cwd" // '';
		open my $stat, '<', "$proc/stat" or next;
		next if (<$stat> // '') =~ /\) [ZX] /;
		open my $fh, '<', "$proc/cmdline" or next;
		local $/;
		my $command = <$fh> // '';
		push @pids, $pid if index("$cwd/", "$self->{dir}/") == 0 || index($command, "$self->{dir}/") >= 0;
	}
	return @pids;
}

1;
