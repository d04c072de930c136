# The tools of the tests themselves: the checker of exclusion must find what
# is proven, and nothing that is not.
use EtcdLeader::Test;
use EtcdLeader::Sampler;

# A run of answers of one kind.
sub run_of
{
	my ($answer, $token, $b0, $a0, $b1, $a1) = @_;
	return { answer => $answer, token => $token, n => 2, b0 => $b0, a0 => $a0, b1 => $b1, a1 => $a1, gap => 0 };
}

# How many faults there are: an optional hash of evicted tokens, then the runs.
sub count_faults
{
	my $evicted = ref $_[0] ? shift : {};
	my @faults  = EtcdLeader::Sampler::faults({@_}, $evicted);
	return scalar @faults;
}

is(count_faults(
		a => [ run_of('t', 5, 1.0, 1.1, 2.0, 2.1), run_of('f', '-', 2.2, 2.3, 9, 9.1) ],
		b => [ run_of('f', '-', 1.0, 1.1, 2.0, 2.1), run_of('t', 7, 2.15, 2.2, 9, 9.1) ]),
	0, 'one after the other');
is(count_faults(
		a => [ run_of('t', 5, 1.0, 1.1, 2.0, 2.1) ],
		b => [ run_of('t', 7, 1.8, 2.05, 9, 9.1) ]),
	0, 'the brackets overlap: nothing is proven');
is(count_faults(
		a => [ run_of('t', 5, 1.0, 1.1, 2.0, 2.1) ],
		b => [ run_of('t', 7, 1.8, 1.9, 9, 9.1) ]),
	1, 'the second led before the first one was seen to lead last');
is(count_faults(
		a => [ run_of('t', 5, 1.0, 1.1, 1.2, 1.3), run_of('f', '-', 1.4, 1.5, 2, 2.1), run_of('t', 5, 3.0, 3.1, 3.2, 3.3) ],
		b => [ run_of('t', 7, 1.6, 1.7, 1.8, 1.9) ]),
	1, 'the first came back under its old token');
is(count_faults(
		a => [ run_of('t', 5, 1.0, 1.1, 1.2, 1.3) ],
		b => [ run_of('t', 5, 1.6, 1.7, 1.8, 1.9) ]),
	1, 'one token for two');
is(count_faults(
		a => [ run_of('t', 7, 1.0, 1.1, 1.2, 1.3) ],
		b => [ run_of('t', 5, 1.6, 1.7, 1.8, 1.9) ]),
	1, 'the later leadership has the lesser token');
for my $case ([ 0.3, 0 ], [ 0.1, 1 ])
{
	is(count_faults(
			{ 5 => $case->[0] },
			a => [ run_of('t', 5, 1.0, 1.1, 2.0, 2.1) ],
			b => [ run_of('t', 7, 1.7, 1.8, 9, 9.1) ]),
		$case->[1], "the first one's key was taken away: an overlap of 0.2 s where $case->[0] s are allowed");
}
is(count_faults(a => [ run_of('t', '?', 1.0, 1.1, 1.2, 1.3) ]), 1, 'true without a token');

# the etcd of the tests: frozen means silent, and the woken one serves again
my $etcd = EtcdLeader::Etcd->new(members => 3);
my $first = $etcd->leader;
ok(defined $first, 'three members have a leader');
$etcd->etcdctl('put', 'x/1', 'one');
is(($etcd->keys('x/'))[0]{value}, 'one', 'a key comes back');
ok($etcd->freeze($first), 'its leader is frozen');
poll_ok(20, sub { my $l = $etcd->leader; defined $l && $l != $first }, 'another one leads');
is($etcd->post('/v3/kv/range', { key => 'eA==' }, $first, 0.5), undef, 'the frozen one is silent');
$etcd->thaw($first);
$etcd->wait_until_serving;
poll_ok(10, sub { my $l = $etcd->leader; defined $l && $l != $first }, 'the woken one follows');

my $rival = $etcd->background_etcdctl('elect', 'free', 'me');
poll_ok(10, sub { $rival->output =~ /^me$/m }, 'etcdctl elect leads');
my $pid = $etcd->pid(1);
ok($etcd->kill(1), 'a member is killed');
ok(!kill(0, $pid), 'and gone');

# ---- bounds of time ------------------------------------------------------------------

is(EtcdLeader::Util::widened(2, 0.5), 2, 'a bound is what it is on a machine of which a half has nothing to do');
is(EtcdLeader::Util::widened(2, 1), 10, 'and five times as much on a busy one');
{
	# a process for each processor, and one more
	my @busy = map { EtcdLeader::Util::Process->spawn(name => 'busy', log => PostgreSQL::Test::Utils::tempdir() . '/busy', code => sub { 1 while 1 }) }
	  0 .. scalar(() = slurp_file('/proc/cpuinfo') =~ /^processor\b/mg);
	my $began = now();
	pause(1.5);
	cmp_ok(EtcdLeader::Util::busy_for(now() - $began), '>', 0.8, 'a busy machine is seen');
	$_->stop('KILL') for @busy;
}

done_testing();
