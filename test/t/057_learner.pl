# A learner among the endpoints: etcd serves no requests there.  The check and the
# log say so, and nothing else is wrong.  When it is promoted, the error is over.
use EtcdLeader::Test;

my $etcd    = EtcdLeader::Etcd->new(members => 3);
my $learner = $etcd->add_learner;
my $url     = $etcd->url($learner);
my $hint    = qr/A learner serves no requests: promote it, or take it out of "etcd_leader\.endpoints"\./;

sub check
{
	my ($node) = @_;
	return map { my $row = $_; join '|', map { $row->{$_} // '' } qw(item subject severity problem hint) } $node->rows('SELECT * FROM etcd_leader_check()');
}

sub has_row
{
	my ($what, $pattern, @rows) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok((grep { $_ =~ /^$pattern/ } @rows) > 0, $what) or diag("no row like $pattern:\n" . join "\n", @rows);
	return;
}

# It comes first, and three voters are well.
my $pg1 = EtcdLeader::Instance->create('pg1', endpoints => join(',', map { $etcd->url($_) } $learner, 0 .. 2), settings => { ttl => 3 });
# It is alone.  Within such a TTL, no error is forgotten.
my $pg2 = EtcdLeader::Instance->create('pg2', endpoints => $url, settings => { ttl => 120 });
$pg1->wait_until_leader;
my $problem = qr/etcd at "\Q$url\E" is a learner, which serves no requests/;
has_row('a learner is told', qr/endpoint\|\Q$url\E\|warning\|$problem\|$hint$/, check($pg1));
poll_is(15, sub { scalar(grep { /^endpoint\|/ } check($pg1)) }, 1, 'the voters are well');
poll_ok(15, sub { slurp_file($pg1->logfile) =~ /WARNING:  $problem\n[^\n]*HINT:  $hint/ }, 'the log tells what to do about it');

poll_ok(10, sub { grep { /^contact\|\|error\|no contact with etcd.*not supported for learner\|$hint$/ } check($pg2) }, 'a learner alone is told') or diag(check($pg2));
poll_ok(15, sub { slurp_file($pg2->logfile) =~ /WARNING:  no contact with etcd[^\n]*not supported for learner\n[^\n]*HINT:  $hint/ }, 'the log of its instance, too');
like($pg2->status->{last_error}, qr/not supported for learner/, 'last_error');

# Promoted: it is no error any more.
$etcd->promote($learner);
poll_ok(20, sub { $pg2->status->{connected} }, 'promoted: contact');
poll_is(20, sub { $pg2->trouble }, '', 'promoted: no error, long before a TTL is over');
poll_is(20, sub { $pg1->value('SELECT last_error FROM etcd_leader_endpoints WHERE url = ?', $url) }, '(null)', 'promoted: nor for the other one');
poll_is(20, sub { my $node = $_; scalar(grep { /^endpoint\|/ } check($node)) }, 0, 'promoted: the check is content') for $pg1, $pg2;
done_testing();
