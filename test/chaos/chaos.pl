# Everything at once on real servers: faults drawn from a seed strike etcd
# members, PostgreSQL instances and the network between them, while clients write
# down what they see; then a checker reads that alone.  See README.md here.
#
# Environment: CHAOS_SEED (1), CHAOS_SECONDS (120), CHAOS_ETCD and CHAOS_PG, how many
# members and instances (3 and 3), CHAOS_TTL, CHAOS_ONLY, a comma list of kinds of
# faults, CHAOS_DATA, a directory for the histories, CHAOS_LIBRARY, another
# etcd_leader.so (see mistakes), CHAOS_INTERVAL, seconds between two questions of a sampler
# (0.001).
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../t/lib", "$FindBin::RealBin/lib";
use EtcdLeader::Namespace;
use Chaos::Clients;
use Chaos::Cluster;
use Chaos::Faults;
use Chaos::History;
use Chaos::Plan;
use EtcdLeader::Installation;
use EtcdLeader::Instance;
use EtcdLeader::Util;
use JSON::PP ();
use PostgreSQL::Test::Utils;
use Test::More;

my $seconds   = $ENV{CHAOS_SECONDS}  || 120;
my $members   = $ENV{CHAOS_ETCD}     || 3;
my $instances = $ENV{CHAOS_PG}       || 3;
my $plan = Chaos::Plan::draw(
	seed      => 0 + ($ENV{CHAOS_SEED} || 1),
	seconds   => $seconds,
	etcd      => [ map { "etcd$_" } 1 .. $members ],
	instances => [ map { "pg$_" } 1 .. $instances ],
	($ENV{CHAOS_TTL}  ? (ttl  => 0 + $ENV{CHAOS_TTL})            : ()),
	($ENV{CHAOS_ONLY} ? (only => [ split /,/, $ENV{CHAOS_ONLY} ]) : ()));
EtcdLeader::Util::watchdog(2 * $seconds + 600);
note("seed $plan->{seed}, profile $plan->{profile}, TTL $plan->{ttl} s");

# A PostgreSQL with another etcd_leader.
sub install_library
{
	my ($library) = @_;
	my $installation = EtcdLeader::Installation->new(PostgreSQL::Test::Utils::tempdir('installation'));
	$installation->put_library($library);
	return $installation->path;
}

my $faults  = Chaos::History->new('faults');
my $ledger  = EtcdLeader::Instance->create('ledger', preload => 0, extension => 0);
Chaos::Clients::create_ledger($ledger);
my $cluster = Chaos::Cluster->new(plan => $plan, members => $members, instances => $instances,
	($ENV{CHAOS_LIBRARY} ? (install_path => install_library($ENV{CHAOS_LIBRARY})) : ()));

my @clients = Chaos::Clients::start(looker => 'looker', $cluster->operator, map { $cluster->etcd->url($_) } $cluster->etcd->all);
for my $node ($cluster->nodes, $cluster->copy_node)
{
	my $name = $node->name;
	push @clients,
	  Chaos::Clients::start(sampler  => "sampler-$name",  $node, $ENV{CHAOS_INTERVAL} || 0.001),
	  Chaos::Clients::start(listener => "listener-$name", $node),
	  Chaos::Clients::start(reader   => "reader-$name",   $node),
	  Chaos::Clients::start(counter  => "counter-$name",  $node),
	  (map { Chaos::Clients::start(waiter => "waiter-$_-$name", $node, $_) } qw(function procedure));
	next if $name eq 'copy';
	push @clients, Chaos::Clients::start(http => "http-$name", $node, $cluster->network->address($name) . ':8010');
	push @clients, (map { Chaos::Clients::start(writer => "writer-$_-$name", $node, $_, $_ eq 'function' ? $ledger : undef) } qw(function role));
}

# ---- the run ---------------------------------------------------------------------------

my $began = now();
my $bound = 3.34 * (sort { $b <=> $a } @{ $plan->{ttls} })[0] + 15;

# All is well again: how long that took.
sub settle
{
	my ($round) = @_;
	my $healed = now();
	poll($bound + 60, sub { $cluster->is_settled });
	my $settled = $cluster->is_settled ? now() : undef;
	diag(map { $_->name . ': ' . EtcdLeader::Instance::explain_status($_) . "\n" } $cluster->nodes) unless $settled;
	# to be looked at: nothing happens
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
			$faults->write(k => 'over', id => $fault->{id}, end => $fault->{end}, ended => now());
		}
		@current = grep { !defined $_->{end} } @current;
		$cluster->tick;
		pause(0.02);
	}
	$cluster->heal;
	settle($number);
}

# ---- the end ---------------------------------------------------------------------------

$_->signal('TERM') for @clients;
$_->stop('TERM', 3) for @clients;
$cluster->dump_tables(Chaos::History->new('tables'), $ledger);
my @left = $cluster->stop;
$ledger->stop;
is(join(', ', @left), '', 'every server ended when it was told to');
is(join(', ', map { $_->name } grep { $_->alive } @clients), '', 'and every client');

my $history = Chaos::History::dir();
my $json = JSON::PP->new->canonical->pretty->allow_blessed;
PostgreSQL::Test::Utils::append_to_file("$history/plan.json", $json->encode({ %$plan, seconds => now() - $began, members => $members, instances => $instances,
			library => $ENV{CHAOS_LIBRARY}, logs => { map { $_->name => $_->logfile } grep { -e $_->logfile } $cluster->nodes, $cluster->copy_node } }));
my $report = `python3 '$FindBin::RealBin/check' '$history' 2>&1`;
is($?, 0, 'the checker finds nothing');
note($report);
diag($report) if $?;
system('python3', "$FindBin::RealBin/timeline", $history, "$history/timeline.svg") == 0 or fail('a picture is drawn');
done_testing();
