# etcdctl elect as a rival in the same election, and candidates that die in
# the middle of the queue.
use EtcdLeader::Test;

my $etcd = EtcdLeader::Etcd->new;

# The names in the queue, as etcd has them.
sub queue { return join ' ', map { $_->{value} } $etcd->candidates('postgres') }

# 1. It leads, and we name it.
my $rival = $etcd->background_etcdctl('elect', 'postgres', 'rival');
poll_ok(10, sub { $rival->output =~ /^rival$/m }, 'the rival leads');
my $pg1 = EtcdLeader::Instance->create('pg1', etcd => $etcd);
$pg1->wait_until_candidate;
my @samplers = ($pg1->sample);
poll_is(5, sub { $pg1->current_leader }, 'rival', 'pg1 names it');
is($pg1->is_leader, 0, 'pg1 does not lead');
is($pg1->token, undef, 'pg1 has no token');
my ($key) = $etcd->candidates('postgres');
is($pg1->status->{fencing_token}, $key->{create_revision}, "the status has the rival's create revision");
is($pg1->status->{state}, 'waiting', 'pg1 waits');
is(join(" ", map { "$_->{node}:$_->{is_leader}:$_->{is_self}" } $pg1->rows(q{SELECT * FROM etcd_candidates() ORDER BY "position"})),
	"rival:1:0 pg1:0:1", "etcd_candidates() has both");

# It goes: etcdctl deletes its key on an interrupt.
my $began = now();
$rival->stop('INT');
poll_ok(5, sub { $pg1->is_leader }, 'the rival goes, pg1 leads');
note(sprintf 'after %.0f ms', 1000 * (now() - $began));
my $token = $pg1->token;
cmp_ok($token, '>', $key->{create_revision}, 'the new leader has a greater token');

# 2. We lead, and it waits.
$rival = $etcd->background_etcdctl('elect', 'postgres', 'second');
poll_is(10, \&queue, 'pg1 second', 'a rival is behind pg1');
my $observer = $etcd->background_etcdctl('elect', '-l', 'postgres');
poll_ok(10, sub { $observer->output =~ /^pg1$/m }, 'etcdctl elect -l prints our node name');
$observer->stop('INT');
my $pg2 = EtcdLeader::Instance->create('pg2', etcd => $etcd);
push @samplers, $pg2->sample;
$pg2->wait_until_candidate;
is(queue(), 'pg1 second pg2', 'pg2 is behind the rival');
is($rival->output, '', 'the rival still waits');

# 3. The middle candidate goes: pg2 takes its place behind pg1, and no more.
$rival->stop('INT');
poll_is(10, \&queue, 'pg1 pg2', 'the middle candidate is gone');
ok($pg1->is_leader, 'pg1 leads on');
is($pg1->token, $token, 'the event has the token of the rival');
is($pg2->is_leader, 0, 'pg2 does not');

# 4. One that dies silently: its lease runs out, not before it has a key.
my ($lease) = $etcd->etcdctl('lease', 'grant', 5) =~ /lease ([0-9a-f]+) granted/;
$etcd->etcdctl('put', "postgres/$lease", 'mortal', "--lease=$lease");
my $pg3 = EtcdLeader::Instance->create('pg3', etcd => $etcd);
push @samplers, $pg3->sample;
$pg3->wait_until_candidate;
poll_is(10, \&queue, 'pg1 pg2 pg3', 'the silent one has died');
is($pg3->is_leader, 0, 'pg3 does not lead');
$pg1->value('SELECT etcd_resign(rejoin => false)');
poll_ok(3, sub { $pg2->is_leader }, 'pg2 leads after pg1');
$token = $pg2->token;
$pg2->stop('fast');
poll_ok(3, sub { $pg3->is_leader }, 'pg3 leads after pg2: nobody waits for the dead');
cmp_ok($pg3->token, '>', $token, 'the new leader has a greater token');

# 5. Both the leader and the one in the middle are gone at the same time.
$pg2->start;
$pg2->wait_until_candidate;
$pg1->value('SELECT etcd_campaign()');
is(queue(), 'pg3 pg2 pg1', 'three again');
my @keys = $etcd->candidates('postgres');
$token = $pg3->token;
# the middle candidate first, then the leader, which may believe until its watch reports it
my %evicted = ($token => 1.5);
$etcd->etcdctl('lease', 'revoke', $keys[1]{lease_hex});
$etcd->etcdctl('lease', 'revoke', $keys[0]{lease_hex});
poll_ok(3, sub { $pg1->is_leader }, 'the last one leads');
cmp_ok($pg1->token, '>', $token, 'the new leader has a greater token');
poll_ok(5, sub { my @q = $etcd->candidates('postgres'); @q == 3 && $q[0]{value} eq 'pg1' }, 'the others queue again');

# 6. The rival takes over from us, and proclaims nothing of ours.
$rival = $etcd->background_etcdctl('elect', 'postgres', 'third');
poll_ok(10, sub { queue() =~ /third$/ }, 'a rival is last');
$_->value('SELECT etcd_resign(rejoin => false)') for $pg2, $pg3, $pg1;
poll_ok(5, sub { $rival->output =~ /^third$/m }, 'all resign: the rival leads');
for my $node ($pg1, $pg2, $pg3)
{
	poll_is(5, sub { $node->current_leader }, 'third', $node->name . ' names it');
	is($node->status->{role}, 'observer', $node->name . ' observes');
}
$rival->stop('INT');
for my $node ($pg1, $pg2, $pg3)
{
	poll_is(5, sub { $node->current_leader }, undef, $node->name . ' names nobody when the rival is gone');
}

# 7. A name with hidden characters begins no line of the log, commands no terminal, and
# looks like no other name.
{
	my $name   = "evil\e[31m\nLOG:  all is well\x7f\xc2\x9b\xe2\x80\xae1gp\xe2\x80\xa8\xf3\xa0\x81\x81\xc3\xa4";
	my $shown  = 'evil\x1b[31m\x0aLOG:  all is well\x7f\xc2\x9b\xe2\x80\xae1gp\xe2\x80\xa8\xf3\xa0\x81\x81' . "\xc3\xa4";
	my $in_sql = $shown =~ s/\\x0a/\n/r;
	my $offset = $pg1->log_size;
	$rival = $etcd->background_etcdctl('elect', 'postgres', $name);
	poll_is(10, sub { $pg1->current_leader }, $in_sql, 'hidden characters: SQL shows them');
	is($pg1->value(q{SELECT node FROM etcd_candidates() WHERE is_leader}), $in_sql, 'hidden characters: the queue shows them');
	poll_ok(5, sub { grep { ($_->{leader} // '') eq $in_sql } $pg1->events }, 'hidden characters: the events show them');
	poll_ok(5, sub { slurp_file($pg1->logfile, $offset) =~ /leader of election "postgres" is "\Q$shown\E"/ }, 'hidden characters: the log shows them');
	for my $call ('etcd_require_leader()', q{etcd_transfer('x')})
	{
		my ($state, $message) = $pg1->failure("SELECT $call");
		like($message, qr/\Q"$shown"\E/, "hidden characters: the error of $call shows them");
	}
	unlike(slurp_file($pg1->logfile, $offset), qr/[\e\x7f\xae]|^LOG:  all/m, 'hidden characters: none is in the log');
	$rival->stop('INT');
}

EtcdLeader::Sampler::check_exclusion(\@samplers, 'with rivals', evicted => \%evicted);
done_testing();
