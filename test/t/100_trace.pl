# doc/internals/testing.md shows the elector's messages of a hand-over at DEBUG1 and
# DEBUG2; and the log has the reason for which an answer is dropped.
use EtcdLeader::Test;
use EtcdLeader::Documents;

my $page = 'doc/internals/testing.md';
my $etcd = EtcdLeader::Etcd->new;

# No renewal comes in between.
my @nodes = map {
	EtcdLeader::Instance->create($_, etcd => $etcd, settings => { elections => 'jobs', ttl => 60 }, conf => document_block($page, 'settings'))
} qw(pg1 pg2);
my ($pg1, $pg2) = @nodes;

# The lines of the elector after an offset.
sub lines
{
	my ($node, $offset) = @_;
	my @lines;
	for (split /\n/, slurp_file($node->logfile, $offset))
	{
		push @lines, $1 if /^etcd_leader elector: ((?:DEBUG|LOG|DETAIL):  (?!.*(?:CommitTransaction|StartTransaction|proc_exit|shmem_exit|forked)).*)/;
	}
	return @lines;
}

# Numbers and leases differ from run to run: the first one of each kind becomes
# 1, the second one 2, and so on.
sub normalized
{
	my (@lines) = @_;
	my (%seen, %count);
	my $number = sub { my ($kind, $value) = @_; return "$kind#" . ($seen{$kind}{$value} //= ++$count{$kind}) };

	for (@lines)
	{
		s{jobs/([0-9a-f]+)\.\d+\.1\.pg}{$number->('key', $1)}ge;
		s{(?:request|answer) \K(\d+)}{$number->('message', $1)}e;
		s{(?:revision|token is) \K(\d+)}{$number->('revision', $1)}e;
		s{term \K(\d+)}{$number->('term', $1)}e;
	}
	return \@lines;
}

sub documented { my ($name) = @_; return normalized(split /\n/, document_block($page, $name)) }

# A renewal, or a lookup, may fall into a hand-over in spite of all: it is tried again.
my (@old, @new);
for my $try (1 .. 5)
{
	poll_ok(20, sub { $pg1->is_leader || $pg2->is_leader }, 'one leads');
	$pg2->value('SELECT etcd_resign()') if $pg2->is_leader;
	poll_ok(20, sub { $pg1->is_leader && ($pg2->status->{state} // '') eq 'waiting' }, 'pg1 leads, pg2 waits');
	pause(1);					# until the watch is open, and all reads are answered
	my @offsets = map { $_->log_size } @nodes;
	$pg1->value('SELECT etcd_resign()');
	$pg2->wait_until_leader;
	poll_ok(20, sub { grep { /^LOG:  leader of election/ } lines($pg1, $offsets[0]) }, 'pg1 sees it');
	poll_ok(20, sub { grep { /^DEBUG:  watch: from/ } lines($pg2, $offsets[1]) }, 'pg2 watches its key');
	@old = grep { !/^DEBUG:  watch:/ } lines($pg1, $offsets[0]);
	@new = lines($pg2, $offsets[1]);
	# what comes afterwards is not in the documents
	$#old = $#{ documented('old_leader') } if @old > @{ documented('old_leader') };
	$#new = $#{ documented('successor') } if @new > @{ documented('successor') };
	last if "@{normalized(@old)}" eq "@{documented('old_leader')}" && "@{normalized(@new)}" eq "@{documented('successor')}";
}
is_deeply(normalized(@old), documented('old_leader'), 'the log of the old leader is the one in the documents') or diag(join "\n", @old);
is_deeply(normalized(@new), documented('successor'), 'so is that of the successor') or diag(join "\n", @new);

# With the default level nothing of it is logged.
$pg2->value("ALTER SYSTEM SET log_min_messages = 'warning'");
$pg2->value('SELECT pg_reload_conf()');
poll_ok(10, sub {
		my $from = $pg2->log_size;
		$pg2->value('SELECT etcd_verify_leader()');
		return !lines($pg2, $from);
	}, 'the elector has read that the level is the default one');
my $offset = $pg2->log_size;
$pg2->value('SELECT etcd_resign()');
poll_is(20, sub { $pg2->status->{state} }, 'waiting', 'it has handed over');
my @logged = lines($pg2, $offset);
ok(scalar(grep { /^LOG/ } @logged), 'then events are logged');
is(scalar(grep { /^DEBUG/ } @logged), 0, 'and nothing else') or diag(join "\n", @logged);

# Another etcd is there.
my $other = EtcdLeader::Etcd->new;
$offset = $pg1->log_size;
$pg1->configure(endpoints => $other->endpoints);
poll_ok(20, sub { grep { /^DEBUG:  answer \d+ dropped: it is of another cluster than the one/ } lines($pg1, $offset) },
	'an answer that is dropped is logged with the reason');

done_testing();
