# Begins and ends each kind of fault.  All functions return at once; actions that take
# time run in processes of their own.
package Chaos::Faults;

use strict;
use warnings;

use Chaos::Clients;
use EtcdLeader::Util;
use PostgreSQL::Test::Utils;

# kind => [ begin, end ]; both are called with the cluster and the fault.  A kind
# without an end lasts no time.
my %does = (
	cut     => [ sub { rules(@_, loss => 1) }, \&mend ],
	isolate => [ sub { my ($c, $f) = @_; rules_for($c, $f, [ map { ([ $f->{target}, $_ ], [ $_, $f->{target} ]) } $c->others($f->{target}) ], loss => 1) }, \&mend ],
	# nobody hears the host, or it hears nobody
	one_way => [ sub { my ($c, $f) = @_; rules_for($c, $f, [ map { $f->{amount} < 0.5 ? [ $f->{target}, $_ ] : [ $_, $f->{target} ] } $c->others($f->{target}) ], loss => 1) }, \&mend ],
	# from a short delay to more than a request's time-out
	slow    => [ sub { my ($c, $f) = @_; my $d = 0.01 * 200**$f->{amount}; rules($c, $f, delay => $d, jitter => $d / 2) }, \&mend ],
	slow_host => [ sub { my ($c, $f) = @_; my $d = 0.01 * 200**$f->{amount}; rules_for($c, $f, [ map { ([ $_, $f->{target} ]) } $c->others($f->{target}) ], delay => $d, jitter => $d / 2) }, \&mend ],
	lossy   => [ sub { my ($c, $f) = @_; rules($c, $f, loss => 0.02 + 0.6 * $f->{amount}) }, \&mend ],

	# first in every list stands an endpoint that refuses, drops, is silent or answers an error
	bad_endpoint => [ sub { my ($c, $f) = @_; $c->spoil_endpoints($f, qw(refuses drops silent error)[ 4 * $f->{amount} ]) }, sub { my ($c, $f) = @_; $c->mend_endpoints($f) } ],

	etcd_kill    => [ sub { my ($c, $f) = @_; $c->want($f->{target}, 0); $c->signal_member($f->{target}, 'KILL') }, \&want_again ],
	etcd_restart => [ sub { my ($c, $f) = @_; $c->want($f->{target}, 0); $c->signal_member($f->{target}, 'TERM') },
		sub { my ($c, $f) = @_; $c->signal_member($f->{target}, 'KILL'); want_again($c, $f) } ],
	etcd_stop      => [ sub { my ($c, $f) = @_; $c->signal_member($f->{target}, 'STOP') }, sub { my ($c, $f) = @_; $c->signal_member($f->{target}, 'CONT') } ],
	etcd_disk_full => [ \&fill_disk, \&empty_disk ],
	# a sync takes from 5 ms to 3 s longer
	etcd_disk_slow => [ sub { my ($c, $f) = @_; $c->inject_member($f, sprintf 'delay_enter=%d', 1e6 * sync_delay($f)) }, sub { my ($c, $f) = @_; $c->end_injection($f) } ],
	# etcd ends, and the supervisor starts it again and again
	etcd_disk_error => [ sub { my ($c, $f) = @_; $c->inject_member($f, sprintf 'error=EIO:when=%d+', 1 + 5 * $f->{amount}) }, sub { my ($c, $f) = @_; $c->end_injection($f) } ],
	etcd_replace   => [ sub { my ($c, $f) = @_; $c->replace_member($f->{target}) }, \&want_again ],
	etcd_defragment => [ sub { my ($c, $f) = @_; my $url = $c->member_url($f->{target}); $c->etcdctl($f, "--endpoints=$url", 'defrag') } ],
	etcd_compact   => [ sub { my ($c, $f) = @_; $c->compact($f) } ],
	etcd_move      => [ sub { my ($c, $f) = @_; $c->move_leader($f) } ],
	etcd_no_space  => [ sub { my ($c, $f) = @_; $c->fill_etcd($f) }, sub { my ($c, $f) = @_; $c->empty_etcd($f) } ],

	etcd_auth      => [ sub { $_[0]->switch_auth('enable') }, sub { $_[0]->switch_auth('disable') } ],

	# new certificates; three in ten have expired
	certificates   => [ sub { my ($c, $f) = @_; $c->sign_certificates($f->{amount} < 0.3 ? 0 : 30) }, sub { $_[0]->sign_certificates(30) } ],

	pg_restart   => [ sub { stop_server(@_, 'INT') },  \&want_again ],
	pg_immediate => [ sub { stop_server(@_, 'QUIT') }, \&want_again ],
	pg_kill      => [ sub { stop_server(@_, 'KILL') }, \&want_again ],
	pg_host_lost => [ sub { my ($c, $f) = @_; $c->want($f->{target}, 0); to_processes($c, $f, 'KILL') }, \&want_again ],
	pg_stop      => [ sub { to_processes(@_, 'STOP') }, sub { to_processes(@_, 'CONT') } ],
	pg_stop_postmaster => [ sub { to_postmaster(@_, 'STOP') }, sub { to_processes(@_, 'CONT') } ],
	pg_stop_elector  => [ sub { to_processes(@_, 'STOP', 'etcd_leader elector') },  sub { to_processes(@_, 'CONT') } ],
	pg_stop_notifier => [ sub { to_processes(@_, 'STOP', 'etcd_leader notifier') }, sub { to_processes(@_, 'CONT') } ],
	pg_kill_elector  => [ sub { to_processes(@_, 'KILL', 'etcd_leader elector') } ],
	pg_end_elector   => [ sub { to_processes(@_, 'TERM', 'etcd_leader elector') } ],
	pg_end_notifier  => [ sub { to_processes(@_, 'TERM', 'etcd_leader notifier') } ],
	pg_kill_backend  => [ sub { to_processes(@_, 'KILL', ': app postgres') } ],
	pg_disk_full     => [ \&fill_disk, \&empty_disk ],
	pg_disk_slow     => [ sub { my ($c, $f) = @_; shim($c, $f)->slow_disk(sync_delay($f)) }, sub { my ($c, $f) = @_; shim($c, $f)->slow_disk(0); count_syncs($c, $f) } ],
	pg_disk_error    => [ sub { my ($c, $f) = @_; shim($c, $f)->fail_disk(1 + int(10 * $f->{amount})) }, sub { my ($c, $f) = @_; shim($c, $f)->fail_disk(0); count_syncs($c, $f) } ],
	# by up to an hour, forward or back
	pg_clock => [ sub { my ($c, $f) = @_; $c->node($f->{target})->shim->step_wall(int(3600 * (2 * $f->{amount} - 1))) },
		sub { my ($c, $f) = @_; $c->node($f->{target})->shim->step_wall(-int(3600 * (2 * $f->{amount} - 1))) } ],
	copy    => [ sub { my ($c, $f) = @_; $c->copy($f->{target}, 0) }, sub { my ($c, $f) = @_; $c->end_copy } ],
	standby => [ sub { my ($c, $f) = @_; $c->copy($f->{target}, 1) },
		sub { my ($c, $f) = @_; $f->{amount} < 0.6 ? $c->operate($c->copy_node, 'promote', 'SELECT pg_promote(false)') : $c->end_copy } ],

	resign => [ sub { ask(@_, "SELECT etcd_resign('$Chaos::Clients::election')") } ],
	resign_out => [ sub { $_[1]{order} = ask(@_, "SELECT etcd_resign('$Chaos::Clients::election', false)") },
		sub { my ($c, $f) = @_; $c->operate_back($f->{order}, $c->node($f->{target}), $f->{kind}, "SELECT etcd_campaign('$Chaos::Clients::election')") } ],
	transfer => [ sub { my ($c, $f) = @_; my @nodes = $c->nodes; my $to = $nodes[ $f->{amount} * @nodes ]->name;
			ask($c, $f, "SELECT etcd_transfer('$to', '$Chaos::Clients::election', '6 s')") } ],
	resign_drain => [ sub { my ($c, $f) = @_; ask($c, $f, "SELECT etcd_resign('$Chaos::Clients::election', true, '$f->{drain} s')") } ],
	transfer_drain => [ sub { my ($c, $f) = @_; my @nodes = $c->nodes; my $to = $nodes[ $f->{amount} * @nodes ]->name;
			ask($c, $f, "SELECT etcd_transfer('$to', '$Chaos::Clients::election', '6 s', '$f->{drain} s')") } ],
	# the caller gives up while it drains
	drain_cancel => [ sub { my ($c, $f) = @_; my $patience_ms = 1 + int(1000 * $f->{drain} * $f->{amount});
			$c->operate($c->node($f->{target}), $f->{kind}, "SET statement_timeout = $patience_ms",
				"SELECT etcd_resign('$Chaos::Clients::election', true, '$f->{drain} s')") } ],
	campaign => [ sub { ask(@_, "SELECT etcd_campaign('$Chaos::Clients::election')") } ],
	proclaim => [ sub { my ($c, $f) = @_; ask($c, $f, "SELECT etcd_proclaim('$f->{target}', '$Chaos::Clients::election')") } ],
	observe => [ sub { $_[1]{order} = settings(@_, candidate => 'never') },
		sub { my ($c, $f) = @_; $c->operate_back($f->{order}, $c->node($f->{target}), $f->{kind}, 'ALTER SYSTEM RESET etcd_leader.candidate', 'SELECT pg_reload_conf()') } ],
	set_ttl => [ sub { my ($c, $f) = @_; settings($c, $f, ttl => $f->{ttl}) } ],
	patroni_kill => [ sub { my ($c, $f) = @_; $c->want($f->{target}, 0); $c->node($f->{target})->kill_patroni }, \&want_again ],
	patroni_stop => [ sub { my ($c, $f) = @_; $c->node($f->{target})->freeze_patroni }, sub { to_processes(@_, 'CONT') } ],
	switchover   => [ sub { my ($c, $f) = @_; $c->switchover($f->{target}) } ],
	rival   => [ sub { my ($c, $f) = @_; $c->start_rival($f) }, sub { my ($c, $f) = @_; $c->end_rival($f) } ],
);

sub begin { my ($c, $f) = @_; return $does{ $f->{kind} }[0]->($c, $f) }

sub end { my ($c, $f) = @_; my $end = $does{ $f->{kind} }[1] or return; return $end->($c, $f) }

# Chooses the target of a fault when it begins.  Half of the faults of one server hit
# the present leader.  Returns false if the fault needs a whole server, and another such
# fault has it already.
sub aim
{
	my ($c, $f, @current) = @_;
	my %taken = map { $_->{target} => 1 } grep { $_->{whole} } @current;
	if ($f->{at_leader})
	{
		my $leader = defined $c->member_number($f->{target}) ? $c->leading_member : $c->leading_instance;
		$f->{target} = $leader if defined $leader && !$taken{$leader};
	}
	return !($f->{whole} && $taken{ $f->{target} });
}

# Does the fault last, until its end is called?
sub lasts { my ($f) = @_; return defined $does{ $f->{kind} }[1] }

# ---- the network -------------------------------------------------------------------

sub rules
{
	my ($c, $f, %rule) = @_;
	my ($one, $other) = split /-/, $f->{target};
	return rules_for($c, $f, [ [ $one, $other ], $f->{both} ? [ $other, $one ] : () ], %rule);
}

sub rules_for
{
	my ($c, $f, $ways, %rule) = @_;
	for my $way (@$ways)
	{
		my @ports = ($f->{port} // 'any') eq 'any' ? (0) : $c->ports($f->{port}, @$way);
		push @{ $f->{rules} }, map { $c->network->add(@$way, port => $_, %rule) } @ports;
	}
	return;
}

sub mend { my ($c, $f) = @_; $c->network->remove($_) for @{ delete $f->{rules} // [] }; return }

# ---- processes -----------------------------------------------------------------------

sub want_again { my ($c, $f) = @_; return $c->want($f->{target}, 1) }

sub stop_server
{
	my ($c, $f, $signal) = @_;
	$c->want($f->{target}, 0);
	return to_postmaster($c, $f, $signal);
}

sub to_postmaster
{
	my ($c, $f, $signal) = @_;
	my $node = $c->node($f->{target});
	my $pid  = $node->pid;
	kill $signal, $pid if $pid && $node->alive;
	return;
}

# Sends a signal to all processes of a server, or to those with that title.
# pg_kill_backend sends it to only one of them.
sub to_processes
{
	my ($c, $f, $signal, $title) = @_;
	my $node = $c->node($f->{target});
	my @pids = defined $title ? $node->processes_like($title) : $node->processes;
	@pids = $pids[ $f->{amount} * @pids ] if @pids > 1 && $f->{kind} eq 'pg_kill_backend';
	my $struck = kill $signal, @pids;
	$f->{struck} = $struck unless $signal eq 'CONT';
	return;
}

# ---- disks -----------------------------------------------------------------------------

sub fill_disk
{
	my ($c, $f) = @_;
	my $filler = $c->disk($f->{target}) . '/filler';
	$f->{filling} = $c->in_background("fill $filler", sub {
		open my $fh, '>', $filler or die "$filler: $!";
		my $block = "\0" x 1048576;
		1 while syswrite $fh, $block;
	});
	return;
}

sub empty_disk
{
	my ($c, $f) = @_;
	$f->{filling}->stop('KILL');
	unlink $c->disk($f->{target}) . '/filler';
	return;
}

sub sync_delay { my ($f) = @_; return 0.005 * 600**$f->{amount} }

# The shim of a server.  It counts for all faults, so the fault notes where it stood.
sub shim
{
	my ($c, $f) = @_;
	my $shim = $c->node($f->{target})->shim;
	$f->{counted} //= $shim->syncs_struck;
	return $shim;
}

sub count_syncs { my ($c, $f) = @_; $f->{syncs} = shim($c, $f)->syncs_struck - $f->{counted}; return }

# ---- operators ----------------------------------------------------------------------------

sub ask
{
	my ($c, $f, $sql) = @_;
	return $c->operate($c->node($f->{target}), $f->{kind}, $sql);
}

sub settings
{
	my ($c, $f, $name, $value) = @_;
	return $c->operate($c->node($f->{target}), $f->{kind},
		"ALTER SYSTEM SET etcd_leader.$name = '$value'", 'SELECT pg_reload_conf()');
}

1;
