# A PostgreSQL instance with etcd_leader: PostgreSQL::Test::Cluster and what
# the tests of this extension need beside it.
package EtcdLeader::Instance;

use strict;
use warnings;

use parent -norequire, 'PostgreSQL::Test::Cluster';

use DBI;
use EtcdLeader::Documents;
use EtcdLeader::Listener;
use EtcdLeader::Sampler;
use EtcdLeader::Util;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# Makes an instance, starts it and creates the extension in "postgres".  Its
# node name is the given one (it is the server's cluster_name, too).
#   etcd      => EtcdLeader::Etcd, or endpoints => 'URL,URL'
#   settings  => { ttl => 5, elections => 'a,b', ... }, without "etcd_leader."
#   conf      => more lines for postgresql.conf
#   init      => { arguments of init() }
#   preload   => 0: without shared_preload_libraries; or a list, as text
#   start     => 0: not started
#   extension => 0: not created; 'README': as README says, in a schema of its own,
#                so that a recipe can be run by the role that is to use it
#   install_path => EtcdLeader::Installation's path()
#   host      => a host of EtcdLeader::Namespace, on which it runs; the test's own
#                way to it is a Unix socket
sub create
{
	my ($class, $name, %args) = @_;
	my $self = $class->new($name, install_path => $args{install_path});
	$self->{el_host} = $args{host};
	$self->init(%{ $args{init} // {} });
	$self->append_conf('postgresql.conf', "shared_buffers = 8MB\nlog_statement = none\nrestart_after_crash = on\n"
		  . "max_connections = 40\nlog_line_prefix = '%m [%p] %b %q%a '\n");
	my $preload = $args{preload} // 'etcd_leader';
	if ($preload)
	{
		my %settings = (
			endpoints => $args{endpoints} // $args{etcd}->endpoints,
			elections => 'postgres',
			ttl       => 5,
			%{ $args{settings} // {} });
		$self->append_conf('postgresql.conf', "shared_preload_libraries = '$preload'\n"
			  . join '', map { "etcd_leader.$_ = '$settings{$_}'\n" } sort keys %settings);
	}
	$self->append_conf('postgresql.conf', $args{conf}) if $args{conf};
	return $self if defined $args{start} && !$args{start};
	$self->start;
	$self->create_extension($args{extension}) unless defined $args{extension} && !$args{extension};
	return $self;
}

# By default in the schema public; 'README': see create().
sub create_extension
{
	my ($self, $how) = @_;
	$self->value(($how // '') eq 'README' ? document_installation() : 'CREATE EXTENSION etcd_leader');
	# new sessions have the search_path
	$self->dbh->disconnect;
	return;
}

# As PostgreSQL::Test::Cluster starts it, or on its host.
sub start
{
	my ($self, %args) = @_;
	return $self->SUPER::start(%args) unless $self->{el_host};
	EtcdLeader::Namespace::Process->spawn(
		host => $self->{el_host},
		name => $self->name,
		log  => $self->logfile,
		cmd  => [ 'postgres', '-D', $self->data_dir, '--cluster-name=' . $self->name ]);
	poll(30, sub { defined $self->try_value('SELECT 1') }) or die $self->name . ' does not start';
	$self->_update_pid(1);
	return 1;
}

# A standby of $primary, streaming from it, with its own settings; started.
sub create_standby
{
	my ($class, $name, $primary, %args) = @_;
	my $self   = $class->new($name);
	my $backup = "for_$name";
	$primary->backup($backup);
	$self->init_from_backup($primary, $backup, has_streaming => 1);
	my %settings = %{ $args{settings} // {} };
	$self->append_conf('postgresql.conf', join '', map { "etcd_leader.$_ = '$settings{$_}'\n" } sort keys %settings);
	$self->start;
	return $self;
}

# ---- SQL --------------------------------------------------------------------

# A new connection of the caller's own.
sub connect_db
{
	my ($self, $dbname, %args) = @_;
	my $user = $args{user} ? " user='$args{user}'" : '';
	return DBI->connect('dbi:Pg:' . join(';', 'host=' . $self->host, 'port=' . $self->port, 'dbname=' . ($dbname // 'postgres'),
			($args{user} ? "user=$args{user}" : ())),
		undef, undef,
		{ RaiseError => 1, PrintError => 0, PrintWarn => 0, AutoCommit => 1, AutoInactiveDestroy => 1, pg_enable_utf8 => 0,
			# no error: a handle goes whose server is gone.  PostgreSQL 19's Utils.pm would end the test's plan
			HandleError => sub { return $_[0] =~ /^DBD::Pg::db DESTROY failed: / } });
}

# The connection that the functions below share; made again when it is gone.
sub dbh
{
	my ($self) = @_;
	return $self->{el_dbh} if $self->{el_dbh} && ($self->{el_dbh}->ping // 0) > 0;
	return $self->{el_dbh} = $self->connect_db;
}

# The rows of a query as hashes; its first row; the first column of that.
# Any error dies.
sub rows
{
	my ($self, $sql, @values) = @_;
	my $statement = $self->dbh->prepare($sql, { pg_server_prepare => 0 });
	$statement->execute(@values);
	return unless $statement->{NUM_OF_FIELDS};
	return @{ $statement->fetchall_arrayref({}) };
}

sub row { my ($self, @query) = @_; return ($self->rows(@query))[0] }

sub value
{
	my ($self, $sql, @values) = @_;
	my $statement = $self->dbh->prepare($sql, { pg_server_prepare => 0 });
	$statement->execute(@values);
	return unless $statement->{NUM_OF_FIELDS};
	my $row = $statement->fetchrow_arrayref;
	return $row ? $row->[0] : undef;
}

# As value(), but undef also when there is no connection or an error.
sub try_value { my ($self, @query) = @_; return scalar eval { $self->value(@query) } }

# Runs a statement that is to fail: (SQLSTATE, whole message); ('', '') if it
# did not.
sub failure
{
	my ($self, $sql, $dbh) = @_;
	$dbh //= $self->dbh;
	my $ok = eval { $dbh->do($sql, { pg_server_prepare => 0 }); 1 };
	return ('', '') if $ok;
	my ($state, $message) = ($dbh->state, $dbh->errstr);
	$dbh->rollback unless $dbh->{AutoCommit};
	return ($state, $message);
}

# ---- etcd_leader ------------------------------------------------------------

# Changes settings by ALTER SYSTEM and reloads; undef means RESET: what
# postgresql.conf says holds again.
sub configure
{
	my ($self, %settings) = @_;
	my $dbh = $self->dbh;
	for my $name (sort keys %settings)
	{
		my $value = $settings{$name};
		$dbh->do("ALTER SYSTEM " . (defined $value
				? "SET etcd_leader.$name = " . $dbh->quote($value)
				: "RESET etcd_leader.$name"));
	}
	$dbh->do('SELECT pg_reload_conf()');
	return;
}

# The same in postgresql.conf: for a standby, which has no ALTER SYSTEM.
sub configure_conf
{
	my ($self, %settings) = @_;
	$self->append_conf("postgresql.conf", join "", map { "etcd_leader.$_ = '$settings{$_}'\n" } sort keys %settings);
	$self->reload;
	return;
}

sub is_leader
{
	my ($self, $election) = @_;
	return $self->value('SELECT etcd_is_leader(?)', $election);
}

sub current_leader
{
	my ($self, $election) = @_;
	return $self->value('SELECT etcd_current_leader(?)', $election);
}

sub token
{
	my ($self, $election) = @_;
	return $self->value('SELECT etcd_fencing_token(?)', $election);
}

# The row of etcd_leader_status of an election (of the first).
sub status
{
	my ($self, $election) = @_;
	return $self->row(
		q{SELECT *, extract(epoch FROM valid_for) AS valid_s FROM etcd_leader_status
		  WHERE election = coalesce(?, (SELECT trim(split_part(current_setting('etcd_leader.elections'), ',', 1))))},
		$election);
}

# What etcd_leader_problems has, a line each, but for slow answers, which any busy machine has.
sub trouble
{
	my ($self) = @_;
	return $self->value(q{SELECT coalesce(string_agg(problem, E'\n'), '') FROM etcd_leader_problems WHERE NOT (item = 'ttl' AND subject = 'latency')});
}

# Waits (30 s) until this instance leads; dies if it does not.
sub wait_until_leader
{
	my ($self, $election, $timeout) = @_;
	poll($timeout // 30, sub { $self->try_value('SELECT etcd_is_leader(?)', $election) })
	  or die $self->name . ' does not lead: ' . explain_status($self);
	return;
}

# Waits (30 s) until it sees $name as the leader; dies if it does not.
sub wait_until_sees
{
	my ($self, $name, $election, $timeout) = @_;
	poll($timeout // 30, sub { ($self->try_value('SELECT etcd_current_leader(?)', $election) // '') eq $name })
	  or die $self->name . " does not see $name lead: " . explain_status($self);
	return;
}

sub explain_status
{
	my ($self) = @_;
	my @rows = eval { $self->rows('SELECT * FROM etcd_leader_status') };
	return $@ if $@;
	return join '; ', map { my $r = $_; join ' ', map { "$_=" . ($r->{$_} // 'NULL') } sort keys %$r } @rows;
}

# Waits (30 s) until its key stands in the queue at a place that it knows; dies
# if it does not.
sub wait_until_candidate
{
	my ($self, $election, $timeout) = @_;
	poll($timeout // 30, sub { my $s = eval { $self->status($election) }; $s && $s->{create_revision} && $s->{state} ne 'queued' })
	  or die $self->name . ' is no candidate: ' . explain_status($self);
	return;
}

# The pid of the elector; undef if there is none.
sub elector_pid
{
	my ($self) = @_;
	return $self->value(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'etcd_leader elector'});
}

# The pid of the notifier of a database; undef if there is none.
sub notifier_pid
{
	my ($self, $dbname) = @_;
	return $self->value(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'etcd_leader notifier' AND datname = ?},
		$dbname // 'postgres');
}

# The newest event's number.
sub last_event { my ($self) = @_; return $self->value('SELECT coalesce(max(seq), 0) FROM etcd_leader_events()') }

# Events after a number, as hashes.
sub events
{
	my ($self, $after) = @_;
	return $self->rows('SELECT * FROM etcd_leader_events(?)', $after // 0);
}

# A client that LISTENs in a database, in the background.
sub listen
{
	my ($self, $dbname, $channel) = @_;
	return EtcdLeader::Listener->new($self, $dbname // 'postgres', $channel // 'etcd_leader');
}

# A client that asks etcd_is_leader() again and again, in the background.
sub sample
{
	my ($self, %args) = @_;
	return EtcdLeader::Sampler->new($self, %args);
}

# How many lines of the server's log match, from an offset on.
sub log_count
{
	my ($self, $pattern, $offset) = @_;
	my $log = PostgreSQL::Test::Utils::slurp_file($self->logfile, $offset // 0);
	return scalar(() = $log =~ /$pattern/mg);
}

sub log_size { my ($self) = @_; return -s $self->logfile }

# The established TCP connections of a process: remote ports, one for each.
sub tcp_connections
{
	my ($self, $pid) = @_;
	my %inode;
	for my $fd (glob "/proc/$pid/fd/*")
	{
		my $link = readlink $fd // next;
		$inode{$1} = 1 if $link =~ /^socket:\[(\d+)\]$/;
	}
	my @ports;
	open my $fh, '<', '/proc/net/tcp' or die "cannot read /proc/net/tcp: $!";
	while (my $line = <$fh>)
	{
		my @f = split ' ', $line;
		next unless $f[0] =~ /^\d+:$/ && $f[3] eq '01' && $inode{ $f[9] };
		push @ports, hex((split /:/, $f[2])[1]);
	}
	return @ports;
}

1;
