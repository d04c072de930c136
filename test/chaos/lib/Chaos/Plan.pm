# The plan of a run: rounds of faults, drawn from a seed.  The same seed, hosts and
# length give the same plan.  The outcome is not repeatable, because the systems are real.
package Chaos::Plan;

use strict;
use warnings;

# Kinds of faults: what they hit, their weight in each profile, and whether they need
# the whole server.  Only one such fault hits a server at a time.
#   calm     commands, settings, restarts
#   network  cuts, delays, losses
#   etcd     members crash, hang, have a full, slow or failing disk, are replaced
#   instance the same for PostgreSQL and its processes
#   all      all of these
my @profiles = qw(all network etcd instance calm);

my %kinds = (
	# kind                hits          calm network etcd instance whole
	cut             => [ 'link',     [ 0, 8, 2, 1 ] ],
	isolate         => [ 'host',     [ 0, 5, 1, 1 ] ],
	one_way         => [ 'host',     [ 0, 3, 1, 1 ] ],
	slow            => [ 'link',     [ 0, 6, 1, 1 ] ],
	slow_host       => [ 'host',     [ 0, 3, 1, 1 ] ],
	lossy           => [ 'link',     [ 0, 4, 1, 1 ] ],
	etcd_kill       => [ 'etcd',     [ 0, 1, 5, 1 ], 1 ],
	etcd_restart    => [ 'etcd',     [ 2, 0, 3, 1 ], 1 ],
	etcd_stop       => [ 'etcd',     [ 0, 2, 8, 1 ], 1 ],
	etcd_disk_full  => [ 'etcd',     [ 0, 0, 2, 0 ], 1 ],
	etcd_disk_slow  => [ 'etcd',     [ 0, 0, 3, 0 ], 1 ],
	etcd_disk_error => [ 'etcd',     [ 0, 0, 2, 0 ], 1 ],
	etcd_replace    => [ 'etcd',     [ 0, 0, 2, 0 ], 1 ],
	etcd_defragment => [ 'etcd',     [ 1, 1, 2, 1 ] ],
	etcd_compact    => [ 'cluster',  [ 2, 1, 2, 1 ] ],
	etcd_move       => [ 'cluster',  [ 1, 1, 3, 1 ] ],
	etcd_no_space   => [ 'cluster',  [ 0, 0, 1, 0 ] ],
	etcd_auth       => [ 'cluster',  [ 1, 0, 1, 0 ] ],
	certificates    => [ 'cluster',  [ 2, 1, 2, 1 ] ],
	pg_restart      => [ 'instance', [ 3, 1, 1, 4 ], 1 ],
	pg_immediate    => [ 'instance', [ 0, 0, 0, 3 ], 1 ],
	pg_kill         => [ 'instance', [ 0, 1, 0, 5 ], 1 ],
	pg_host_lost    => [ 'instance', [ 0, 1, 1, 5 ], 1 ],
	pg_stop         => [ 'instance', [ 0, 1, 1, 6 ], 1 ],
	pg_stop_postmaster => [ 'instance', [ 0, 0, 0, 2 ], 1 ],
	pg_stop_elector => [ 'instance', [ 0, 2, 1, 6 ], 1 ],
	pg_stop_notifier => [ 'instance', [ 0, 0, 0, 2 ], 1 ],
	pg_kill_elector => [ 'instance', [ 0, 0, 0, 3 ] ],
	pg_end_elector  => [ 'instance', [ 0, 0, 0, 3 ] ],
	pg_kill_backend => [ 'instance', [ 0, 0, 0, 3 ] ],
	pg_end_notifier => [ 'instance', [ 1, 0, 0, 2 ] ],
	pg_disk_full    => [ 'instance', [ 0, 0, 0, 2 ], 1 ],
	pg_disk_slow    => [ 'instance', [ 0, 0, 0, 2 ], 1 ],
	pg_disk_error   => [ 'instance', [ 0, 0, 0, 2 ], 1 ],
	pg_clock        => [ 'instance', [ 1, 0, 0, 2 ] ],
	copy            => [ 'instance', [ 1, 0, 0, 1 ] ],
	standby         => [ 'instance', [ 1, 0, 0, 1 ] ],
	resign          => [ 'instance', [ 6, 3, 2, 3 ] ],
	transfer        => [ 'instance', [ 4, 2, 2, 2 ] ],
	resign_out      => [ 'instance', [ 2, 1, 0, 1 ] ],
	resign_drain    => [ 'instance', [ 4, 2, 1, 3 ] ],
	transfer_drain  => [ 'instance', [ 3, 1, 1, 2 ] ],
	drain_cancel    => [ 'instance', [ 2, 1, 1, 1 ] ],
	campaign        => [ 'instance', [ 2, 1, 0, 1 ] ],
	proclaim        => [ 'instance', [ 2, 1, 1, 1 ] ],
	observe         => [ 'instance', [ 2, 0, 0, 1 ] ],
	set_ttl         => [ 'instance', [ 2, 1, 1, 1 ] ],
	rival           => [ 'cluster',  [ 2, 1, 1, 1 ] ],
	# only frozen
	bad_endpoint    => [ 'cluster',  [ 0, 0, 0, 0 ] ],
	# only for Chaos::Patroni
	patroni_kill    => [ 'instance', [ 0, 0, 0, 0 ], 1 ],
	patroni_stop    => [ 'instance', [ 0, 0, 0, 0 ], 1 ],
	switchover      => [ 'instance', [ 0, 0, 0, 0 ] ],
);

# The clocks of instances run up to so many percent too fast or too slow.  The margin,
# a tenth of the TTL, allows ten.
my $clock_percent = 8;

# Faults of a minority that may never end; the seed decides which, and CHAOS_ONLY.
my @frozen = qw(etcd_stop one_way slow bad_endpoint pg_stop cut);

# Draws a plan.  Arguments: seed, seconds, etcd => [names], instances => [names]; clock:
# the percent that all clocks run too fast, instead of a drawn number; frozen: there is
# one fault, which never ends.
# A plan has: seed, profile, tls (instances use TLS to etcd, with each third seed), ttl,
# ttls (set_ttl chooses one), clocks => { name => percent }, rounds => [[fault, ...], ...].
# A fault has: id, kind, at and for (seconds in its round), target, and random values for
# its kind (drain: seconds).
sub draw
{
	my (%args) = @_;
	srand($args{seed});
	my $profile = $profiles[ $args{seed} % @profiles ];
	my @short   = (2, 3, 4, 5);
	my @ttls    = $args{seconds} < 300 ? @short : (@short, 2 .. 10, 8 .. 30);
	my $ttl     = $args{ttl} // pick(@ttls);
	my %plan    = (seed => $args{seed}, profile => $profile, ttl => $ttl,
		tls => $args{tls} // ($args{seed} % 3 == 0 ? 1 : 0), ttls => $args{ttl} ? [$ttl] : [ $ttl, pick(grep { $_ <= 2 * $ttl } @ttls) ], rounds => []);
	my $id = 0;

	return freeze(\%plan, %args) if $args{frozen};

	# a round is long enough for a lease to expire
	my $length = 12 + 2 * $ttl;
	for my $round (1 .. 1 + $args{seconds} / $length)
	{
		my @faults;
		my $number = 3 + int(rand($length / 1.5));
		for (1 .. $number)
		{
			my $kind = draw_kind(\%plan, $args{only});
			my ($strikes, undef, $whole) = @{ $kinds{$kind} };
			my %fault = (kind => $kind, at => rand($length), for => duration($ttl, $length));
			$fault{for} = $length - $fault{at} if $fault{at} + $fault{for} > $length;
			draw_target(\%fault, $strikes, %args);
			$fault{amount} = rand();
			$fault{whole}  = 1 if $whole;
			$fault{at_leader} = 1 if $strikes =~ /etcd|instance|host/ && rand() < 0.5;
			$fault{ttl} = pick(@{ $plan{ttls} }) if $kind eq 'set_ttl';
			$fault{drain} = 0.1 + rand(2 * $ttl) if $kind =~ /drain/;
			push @faults, { %fault, id => ++$id, round => $round };
		}
		push @{ $plan{rounds} }, [ sort { $a->{at} <=> $b->{at} } @faults ];
	}
	draw_clocks(\%plan, %args);
	return \%plan;
}

# One round with one fault.  One of two members of etcd is no minority of them, and one of two
# endpoints, of which one is bad, is no majority.
sub freeze
{
	my ($plan, %args) = @_;
	my @possible = grep { my $kind = $_; !$args{only} || grep { $_ eq $kind } @{ $args{only} } } @{ $args{etcd} } < 3 ? 'pg_stop' : @frozen;
	my %fault = (kind => $possible[ $args{seed} % @possible ], at => 2, for => $args{seconds}, id => 1, round => 1, amount => rand(), whole => 1);
	my $strikes = $kinds{ $fault{kind} }[0];
	if ($strikes eq 'host') { $fault{target} = pick(@{ $args{etcd} }) }
	else                    { draw_target(\%fault, $strikes, %args) }
	# from 0.14 s on
	$fault{amount} = 0.5 + $fault{amount} / 2 if $fault{kind} eq 'slow';
	$fault{both} = 0 if $fault{kind} eq 'cut';
	$fault{port} = 'any' if $strikes eq 'link';
	# a hanging instance matters if it leads
	$fault{at_leader} = 1 if $fault{kind} eq 'pg_stop' || $strikes =~ /etcd|host/ && rand() < 0.5;
	@$plan{qw(profile frozen rounds)} = ('frozen', 1, [ [ \%fault ] ]);
	draw_clocks($plan, %args);
	return $plan;
}

# A third of the clocks run as fast as possible, and a third as slow.
sub draw_clocks { my ($plan, %args) = @_; $plan->{clocks} = { map { $_ => $args{clock} // draw_clock() } @{ $args{instances} }, 'copy' }; return }

sub draw_clock { my $drawn = 3 * rand() - 1.5; return $clock_percent * ($drawn > 0.5 ? 1 : $drawn < -0.5 ? -1 : 2 * $drawn) }

sub pick { return $_[ rand @_ ] }

sub draw_kind
{
	my ($plan, $only) = @_;
	my %weight;
	for my $kind (sort keys %kinds)
	{
		next if $only && !grep { $_ eq $kind } @$only;
		next if $kind eq 'certificates' && !$plan->{tls};
		my @weights = @{ $kinds{$kind}[1] };
		my %of = (calm => $weights[0], network => $weights[1], etcd => $weights[2], instance => $weights[3],
			all => $weights[0] + $weights[1] + $weights[2] + $weights[3]);
		$weight{$kind} = $only ? 1 : $of{ $plan->{profile} };
	}
	my $sum = 0;
	$sum += $_ for values %weight;
	my $drawn = rand($sum);
	for my $kind (sort keys %weight)
	{
		$drawn -= $weight{$kind};
		return $kind if $drawn < 0;
	}
	die 'no kind';
}

# From a tenth of a second to the length of a round; a fifth of them about a TTL.
sub duration
{
	my ($ttl, $length) = @_;
	return $ttl * (0.8 + rand(0.5)) if rand() < 0.2;
	return 0.1 * (10 * $length) ** rand();
}

sub draw_target
{
	my ($fault, $strikes, %args) = @_;
	my @etcd      = @{ $args{etcd} };
	my @instances = @{ $args{instances} };
	if ($strikes eq 'etcd')         { $fault->{target} = pick(@etcd) }
	elsif ($strikes eq 'instance')  { $fault->{target} = pick(@instances) }
	elsif ($strikes eq 'host')      { $fault->{target} = pick(@etcd, @instances) }
	elsif ($strikes eq 'cluster')   { $fault->{target} = 'etcd' }
	else
	{
		# instances do not talk to each other
		my $one = pick(@etcd, @instances);
		my $other = pick(grep { $_ ne $one } @etcd, (grep { $_ eq $one } @instances) ? () : @instances);
		$fault->{target} = "$one-$other";
		$fault->{both}   = rand() < 0.4 ? 1 : 0;
		$fault->{port}   = pick(qw(any any client peer));
	}
	return;
}

1;
