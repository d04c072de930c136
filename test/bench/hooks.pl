# The time from a resignation to the first statement of a hook on the next leader, and
# the effect of 32 hooks, as many as there may be, on hand-overs.
#
#   make bench PARTS=hooks      ROUNDS=50
use FindBin;
use lib "$FindBin::RealBin/lib";
use EtcdLeader::Test;
use Bench;
use EtcdLeader::Hooks;
use Time::HiRes ();

my $bench = Bench->new(name => 'hooks', title => 'Hooks', text => <<'END');
Pairs of instances on one etcd. The time from calling `etcd_resign()` on the leader to the event `elected` on the next instance, and to
the clock as the first statement of its `elected` hook reads it; with that hook alone, and with 32 hooks of the event, of which
two run at a time. All of them have ended before the next round begins.
END
my $rounds = Bench::rounds(50);
my $etcd   = EtcdLeader::Etcd->new;

my $settle = 0.15;

sub pair
{
	my ($election, $hooks) = @_;
	my @hooks = map { qq{elected $election postgres bench 1min "INSERT INTO public.begun VALUES (public.etcd_fencing_token(), clock_timestamp()) /* $_ */"} } 1 .. $hooks;
	my @nodes = map { create_with_hooks("$election$_", \@hooks, etcd => $etcd, settings => { elections => $election, ttl => 10 },
		sql => [ 'CREATE ROLE bench LOGIN', 'CREATE TABLE begun (token bigint, at timestamptz)', 'GRANT ALL ON begun TO bench' ]) } 1, 2;
	poll(30, sub { grep { $_->try_value('SELECT etcd_is_leader()') } @nodes }) or die "nobody leads\n";
	return { nodes => \@nodes, hooks => $hooks };
}

# The milliseconds until the next instance is elected, and until its first hook begins.
sub hand_over
{
	my ($pair) = @_;
	my ($old, $new) = $pair->{nodes}[0]->is_leader ? @{ $pair->{nodes} } : reverse @{ $pair->{nodes} };
	$new->wait_until_candidate;
	my $done = q{SELECT count(*) FROM etcd_leader_hooks WHERE fencing_token = ? AND status = 'succeeded'};
	poll(60, sub { $old->value($done, $old->token) == $pair->{hooks} }) or die "the hooks do not end\n";
	pause($settle);
	my $dbh   = $old->dbh;
	my $began = Time::HiRes::time();
	$dbh->selectrow_array('SELECT etcd_resign()');
	$new->wait_until_leader;
	my $token   = $new->token;
	my $elected = poll(10, sub {
		return $new->value(q{SELECT extract(epoch FROM at) FROM etcd_leader_events() WHERE event = 'elected' AND fencing_token = ?}, $token);
	}) or die "no event tells of the election\n";
	my @samples = (1000 * ($elected - $began));
	if ($pair->{hooks})
	{
		my $first = poll(60, sub { $new->value('SELECT extract(epoch FROM min(at)) FROM begun WHERE token = ?', $token) }) or die "no hook runs\n";
		push @samples, 1000 * ($first - $began);
	}
	return @samples;
}

my %pair  = (none => pair('none', 0), one => pair('one', 1), many => pair('many', 32));
my $table = $bench->table(name => 'hook_hand_over', title => 'From etcd_resign() to the next leader', unit => 'ms', ours => 'one hook');
my $hook  = $bench->table(name => 'hook_first_statement', title => 'From etcd_resign() to the first statement of a hook', unit => 'ms', ours => 'one hook');
$bench->in_turn($rounds,
	[ Bench::row($table, 'no hooks'), sub { hand_over($pair{none}) } ],
	[ [ Bench::row($table, 'one hook'), Bench::row($hook, 'one hook') ], sub { hand_over($pair{one}) } ],
	[ [ Bench::row($table, '32 hooks'), Bench::row($hook, '32 hooks') ], sub { hand_over($pair{many}) } ]);
$bench->finish;
