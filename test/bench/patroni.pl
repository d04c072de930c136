# An election that follows Patroni: the time from Patroni's key to the answer in SQL, beside
# Patroni's own REST API.
#
#   make bench PARTS=patroni      ROUNDS=5
use FindBin;
use lib "$FindBin::RealBin/lib";
use EtcdLeader::Test;
use Bench;
use EtcdLeader::Patroni;
use HTTP::Tiny;
use IO::Socket::INET;

my $bench = Bench->new(name => 'patroni', title => 'Patroni', text => <<'END');
Three members of Patroni on one etcd, and an election `patroni:SCOPE`. In turn: `patronictl switchover`, and SIGKILL of the leader's
Patroni alone. Processes ask once a millisecond: etcd for the leader key; on the old and the new primary `pg_is_in_recovery()` and
`etcd_is_leader()`; and Patroni's REST API there (`/leader`; with a connection for each question, every 5 ms). Patroni's times
are the shortest that this version takes. Idle: the requests of the leader's elector in a third of the TTL.
END
my $rounds = Bench::rounds(5);

my $etcd    = EtcdLeader::Etcd->new;
my $cluster = EtcdLeader::Patroni->new(etcd => $etcd);
my %times   = EtcdLeader::Patroni::shortest_times();
my $samples = 0;

# Writes a line at each change of what $look returns.
sub observe
{
	my ($interval, $look) = @_;
	return EtcdLeader::Util::Process->spawn(
		name => 'observer',
		log  => "$PostgreSQL::Test::Utils::tmp_check/observed" . ++$samples,
		code => sub {
			my $last = '';
			while (1)
			{
				my $seen = $look->() // '-';
				syswrite(STDOUT, sprintf("%.6f %s\n", now(), $seen)) if $seen ne $last;
				$last = $seen;
				pause($interval);
			}
		});
}

sub observe_key { return observe(0.001, sub { my $k = eval { $cluster->leader_key }; return $k ? "$k->{value}" : 'none' }) }

sub observe_rest
{
	my ($member) = @_;
	my $http = HTTP::Tiny->new(timeout => 2, keep_alive => 0);
	return observe(0.005, sub { return $http->get("http://127.0.0.1:$member->{rest}/leader")->{status} });
}

# The time of the first line after $after that matches; undef if there is none.
sub first_seen
{
	my ($process, $pattern, $after) = @_;
	for (split /\n/, $process->output)
	{
		my ($at, $what) = split / /, $_, 2;
		return $at if $at > $after && $what =~ $pattern;
	}
	return;
}

my $new_table = $bench->table(name => 'patroni_new', title => 'The new leader', unit => 'ms', linear => 1);
my $old_table = $bench->table(name => 'patroni_old', title => 'The old leader', unit => 'ms', linear => 1);
my %row = (
	sql_key   => Bench::row($new_table, 'switchover: key is its own → etcd_is_leader()'),
	sql_end   => Bench::row($new_table, 'switchover: promotion has ended → etcd_is_leader()', goal => '<= 1500'),
	rest_end  => Bench::row($new_table, 'switchover: promotion has ended → REST /leader'),
	killed    => Bench::row($new_table, 'SIGKILL of Patroni: promotion has ended → etcd_is_leader()', goal => '<= 1500'),
	old_sql   => Bench::row($old_table, 'switchover: false → key is not its own any more'),
	old_killed => Bench::row($old_table, 'SIGKILL of Patroni: false → key is gone'),
);

sub change_leader
{
	my ($change) = @_;
	$cluster->wait_until_streaming;
	my $old = $cluster->wait_for_primary;
	$old->wait_until_leader;
	my ($new) = $cluster->others($old);
	my ($key, %roles, %rest) = observe_key();
	for my $member ($cluster->members)
	{
		$roles{ $member->name } = $member->watch_roles;
		$rest{ $member->name }  = observe_rest($member);
	}
	poll(10, sub { !grep { $_->output eq '' } $key, values %roles, values %rest }) or die "no observers\n";
	my $began = now();
	$change->($old, $new);
	$new = $cluster->wait_for_primary(undef, [$old], 120);
	$new->wait_until_leader;
	pause(2 * $times{loop_wait} + 1);
	$_->stop for $key, values %roles, values %rest;
	my $name = $new->name;
	my $old_name = $old->name;
	my $lost = first_seen($key, qr/^(?!$old_name$)/, $began);
	# read before the key is its own; false also if the server is down
	my $false = first_seen($roles{$old_name}, qr/ 0$|^down/, $began);
	my ($mine, $promoted, $true) = (first_seen($key, qr/^$name$/, $began), first_seen($roles{$name}, qr/^0 /, $began), first_seen($roles{$name}, qr/^0 1/, $began));
	my $rest = first_seen($rest{$name}, qr/^200/, $began);
	return ($old, map { defined $_ ? 1000 * $_ : undef } $true - $mine, $true - $promoted, $rest ? $rest - $promoted : undef, $lost - $false);
}

$bench->in_turn($rounds,
	[ [ @row{qw(sql_key sql_end rest_end old_sql)} ], sub {
		my (undef, @values) = change_leader(sub { $cluster->switchover($_[1]) });
		return @values;
	} ],
	[ [ @row{qw(killed old_killed)} ], sub {
		my ($old, undef, $end, undef, $lost) = change_leader(sub { $_[0]->kill_patroni });
		$old->start_patroni;
		poll(60, sub { ($old->try_value('SELECT pg_is_in_recovery()::int') // 0) == 1 }) or die "the old primary does not come back\n";
		return ($end, $lost);
	} ]);

$cluster->wait_until_streaming;
my $idle = $bench->table(name => 'patroni_idle', title => 'Idle', unit => 'requests in a third of the TTL', linear => 1);
my %who = map { $_ => Bench::row($idle, $_, goal => '<= 2') } 'leader', 'replica';
my $leader = $cluster->wait_for_primary;
my %member = (leader => $leader, replica => ($cluster->others($leader))[0]);
for my $round (1 .. 3)
{
	my %before = map { $_ => $member{$_}->value('SELECT requests FROM etcd_leader_stats') } keys %member;
	my $began  = now();
	pause(4 * $times{ttl});
	for my $name (keys %member)
	{
		my $n = $member{$name}->value('SELECT requests FROM etcd_leader_stats') - $before{$name};
		Bench::sample($who{$name}, $round, $n * $times{ttl} / 3 / (now() - $began));
	}
}
$cluster->stop;
$bench->finish;
