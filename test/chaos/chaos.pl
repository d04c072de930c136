# All kinds of faults at once on real servers.  The faults are drawn from a seed, and
# hit etcd members, PostgreSQL instances and the network between them.  Meanwhile
# clients write histories, and then a checker judges these.  README.md in this
# directory explains a run, and the environment variables CHAOS_*.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../t/lib", "$FindBin::RealBin/lib";
use EtcdLeader::Namespace;
use Chaos::Clients;
use Chaos::Cluster;
use Chaos::Faults;
use Chaos::History;
use Chaos::Patroni;
use Chaos::Plan;
use EtcdLeader::Installation;
use EtcdLeader::Instance;
use EtcdLeader::Sanitized;
use EtcdLeader::Util;
use JSON::PP ();
use PostgreSQL::Test::Utils;
use Test::More;

my $seconds   = $ENV{CHAOS_SECONDS}  || 120;
my $members   = 0 + ($ENV{CHAOS_ETCD} || 3);
my $instances = 0 + ($ENV{CHAOS_PG} || 3);
$Chaos::Clients::interval = 0 + $ENV{CHAOS_INTERVAL} if $ENV{CHAOS_INTERVAL};
my $class     = $ENV{CHAOS_PATRONI} ? 'Chaos::Patroni' : 'Chaos::Cluster';
my $plan = Chaos::Plan::draw(
	seed      => 0 + ($ENV{CHAOS_SEED} || 1),
	seconds   => $seconds,
	etcd      => [ map { "etcd$_" } 1 .. $members ],
	instances => [ $class->instance_names($instances) ],
	($ENV{CHAOS_TTL}     ? (ttl  => 0 + $ENV{CHAOS_TTL})  : ()),
	($ENV{CHAOS_FROZEN}  ? (frozen => 1) : ()),
	(defined $ENV{CHAOS_CLOCK} ? (clock => 0 + $ENV{CHAOS_CLOCK}) : ()),
	($ENV{CHAOS_PATRONI} ? (ttl  => $class->ttl, tls => 0, clock => 0, only => [ $class->kinds ]) : ()),
	($ENV{CHAOS_ONLY}    ? (only => [ split /,/, $ENV{CHAOS_ONLY} ]) : ()));
EtcdLeader::Util::watchdog(2 * $seconds + 600);
note("seed $plan->{seed}, profile $plan->{profile}, TTL $plan->{ttl} s");

# A PostgreSQL with another etcd_leader; undef for the installed one.
sub install
{
	return EtcdLeader::Sanitized->new(PostgreSQL::Test::Utils::tempdir('sanitized'), 'address') if $ENV{CHAOS_SANITIZE};
	return unless $ENV{CHAOS_LIBRARY};
	my $installation = EtcdLeader::Installation->new(PostgreSQL::Test::Utils::tempdir('installation'));
	$installation->put_library($ENV{CHAOS_LIBRARY});
	return $installation;
}

my $installation = install();
my $faults  = Chaos::History->new('faults');
my $ledger  = EtcdLeader::Instance->create('ledger', preload => 0, extension => 0);
Chaos::Clients::create_ledger($ledger);
my $cluster = $class->new(plan => $plan, members => $members, instances => $instances,
	($installation ? (install_path => $installation->path) : ()));

if (!$ENV{CHAOS_PATRONI})
{
	for my $node ($cluster->nodes)
	{
		my $planned = $plan->{clocks}{ $node->name };
		ok(poll(20, sub { abs($node->clock_percent - $planned) < 1.5 }), sprintf 'the clock of %s runs %+.1f %% fast', $node->name, $planned);
	}
}

my @clients = (
	Chaos::Clients::start(looker  => 'looker',  $cluster->operator, map { $cluster->etcd->url($_) } $cluster->etcd->all),
	Chaos::Clients::start(changer => 'changer', $cluster->etcd),
	Chaos::Clients::start(watcher => 'watcher', $cluster->etcd),
	Chaos::Clients::start(proxied => 'proxied', $cluster->start_haproxy));
for my $node ($cluster->nodes, $cluster->copy_node)
{
	my $name = $node->name;
	push @clients,
	  Chaos::Clients::start(sampler  => "sampler-$name",  $node),
	  Chaos::Clients::start(listener => "listener-$name", $node),
	  Chaos::Clients::start(reader   => "reader-$name",   $node),
	  Chaos::Clients::start(counter  => "counter-$name",  $node),
	  (map { Chaos::Clients::start(waiter => "waiter-$_-$name", $node, $_) } qw(function procedure));
	next if $name eq 'copy';
	push @clients, Chaos::Clients::start(http => "http-$name", $node, $cluster->network->address($name) . ':8010');
	push @clients, Chaos::Clients::start(writer => "writer-function-$name", $node, 'function', account => 1, ledger => $ledger),
	  Chaos::Clients::start(writer => "writer-role-$name", $node, 'role', account => 2);
	my %sits = (sits => 2 * $plan->{ttl});
	push @clients, Chaos::Clients::start(writer => "sitter-function-$name", $node, 'function', %sits, account => 3, ledger => $ledger),
	  Chaos::Clients::start(writer => "sitter-role-$name", $node, 'role', %sits, account => 4);
	push @clients, Chaos::Clients::start(writer => "sitter-prepared-$name", $node, 'prepared', %sits, account => 5) unless $ENV{CHAOS_PATRONI};
}

# ---- the run ---------------------------------------------------------------------------

my $began = now();
my $bound = 3.34 * (sort { $b <=> $a } @{ $plan->{ttls} })[0] + 15;

# Waits for recovery, and writes how long it took.
sub settle
{
	my ($round) = @_;
	my $healed = now();
	poll($bound + 60, sub { $cluster->is_settled });
	my $settled = $cluster->is_settled ? now() : undef;
	diag(map { $_->name . ': ' . EtcdLeader::Instance::explain_status($_) . "\n" } $cluster->nodes) unless $settled;
	# a time without faults, for the checker
	pause(3);
	$faults->write(k => 'round', round => $round, healed => $healed, settled => $settled, ended => now());
	return;
}

settle(0);
my $struck = 0;
my $number = 0;
for my $round (@{ $plan->{rounds} })
{
	last if now() - $began > $seconds;
	$number++;
	my $start   = now();
	my @coming  = @$round;
	my @current;
	while (@coming || @current)
	{
		my $at = now() - $start;
		while (@coming && $coming[0]{at} <= $at)
		{
			my $fault = shift @coming;
			next if !Chaos::Faults::aim($cluster, $fault, @current);
			$fault->{begin} = now();
			Chaos::Faults::begin($cluster, $fault);
			$fault->{begun} = now();
			$struck++;
			$faults->write(k => 'fault', map { $_ => $fault->{$_} } grep { !ref $fault->{$_} } keys %$fault);
			push @current, $fault;
		}
		for my $fault (grep { $_->{at} + $_->{for} <= $at || !Chaos::Faults::lasts($_) } @current)
		{
			$fault->{end} = now();
			Chaos::Faults::end($cluster, $fault);
			$faults->write(k => 'over', id => $fault->{id}, end => $fault->{end}, ended => now(), (defined $fault->{syncs} ? (syncs => $fault->{syncs}) : ()));
		}
		@current = grep { !defined $_->{end} } @current;
		$cluster->tick;
		pause(0.02);
	}
	$cluster->heal;
	settle($number);
}

# ---- the end ---------------------------------------------------------------------------

# the changes of the last round are announced: see RESUME in check
pause(8);
$faults->write(k => 'end', t => now());
$_->signal('TERM') for @clients;
$_->stop('TERM', 3) for @clients;
$cluster->dump_tables(Chaos::History->new('tables'), $ledger);
my @left = $cluster->stop;
$ledger->stop;
is(join(', ', @left), '', 'every server has ended at a fast shutdown');
is(join(', ', map { $_->name } grep { $_->alive } @clients), '', 'every client has ended');

my $history = Chaos::History::dir();
my $json = JSON::PP->new->canonical->pretty->allow_blessed;
my %logs = map { $_->name => $_->logfile } grep { -e $_->logfile } $cluster->nodes, $cluster->copy_node;
$logs{$_} = $_ for $ENV{CHAOS_SANITIZE} ? $installation->report_files : ();
PostgreSQL::Test::Utils::append_to_file("$history/plan.json", $json->encode({ %$plan, seconds => now() - $began, interval => $Chaos::Clients::interval, members => $members, instances => $instances,
			nodes => [ map { $_->name } $cluster->nodes ], follows => $ENV{CHAOS_PATRONI} ? 1 : 0, library => $ENV{CHAOS_LIBRARY}, logs => \%logs }));
my $report = `python3 '$FindBin::RealBin/check' '$history' 2>&1`;
is($?, 0, 'the checker finds no violation');
note($report);
diag($report) if $?;
system('python3', "$FindBin::RealBin/timeline", $history, "$history/timeline.svg") == 0 or fail('a picture is drawn');
done_testing();
