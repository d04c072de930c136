# Sessions under test: statements that are to fail with a certain SQLSTATE,
# and statements that run while the test goes on.
package EtcdLeader::Session;

use strict;
use warnings;

use DBD::Pg ();
use EtcdLeader::Util;
use Exporter 'import';
use Test::More;

our @EXPORT = qw(fails succeeds usable start_statement is_done outcome waits_in);

# Tests that a statement fails with that SQLSTATE and a message (detail and
# hint included) that matches every one of the patterns; and that the session
# is not lost.
sub fails
{
	my ($dbh, $sql, $state, $patterns, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $began = now();
	my $ok    = eval { ref $sql ? $sql->() : $dbh->do($sql); 1 };
	my $took  = now() - $began;
	if ($ok) { fail("$name: it did not fail"); return; }
	my $message = $dbh->errstr // $@;
	is($dbh->state, $state, "$name: SQLSTATE") or diag($message);
	for my $pattern (ref $patterns eq 'ARRAY' ? @$patterns : $patterns)
	{
		like($message, $pattern, "$name: its message");
	}
	return $took;
}

# Tests that a statement, or a piece of Perl, does not fail.
sub succeeds
{
	my ($dbh, $sql, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $ok = eval { ref $sql ? $sql->() : $dbh->do($sql); 1 };
	ok($ok, $name) or diag($dbh->errstr // $@);
	return $ok;
}

# Tests that the session answers, outside any transaction and with nothing
# left of the one before.
sub usable
{
	my ($dbh, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $state = $dbh->ping;
	is($state, 1, "$name: the session is idle") or $dbh->do('ROLLBACK');
	my ($answer) = eval { $dbh->selectrow_array('SELECT count(*) FROM pg_class WHERE pg_backend_pid() = ' . $dbh->{pg_pid}) };
	ok($answer, "$name: and usable") or diag($@);
	return;
}

# Starts a statement and does not wait for it.
sub start_statement
{
	my ($dbh, $sql) = @_;
	return $dbh->do($sql, { pg_async => DBD::Pg::PG_ASYNC() });
}

sub is_done { return $_[0]->pg_ready }

# Waits (30 s) until a started statement is done: 'done', or 'SQLSTATE message'.
sub outcome
{
	my ($dbh, $timeout) = @_;
	poll($timeout // 30, sub { $dbh->pg_ready }) or return 'still running';
	# for newer DBD::Pg a cancelled statement is no error
	return 'done' if eval { $dbh->pg_result; 1 } && !$dbh->state;
	return $dbh->state . ' ' . ($dbh->errstr // $dbh->pg_error_field('message_primary'));
}

# Waits (10 s) until that session waits for something like $event
# ("type/event") in a statement; dies if it does not.
sub waits_in
{
	my ($node, $dbh, $event) = @_;
	my $found = '';
	poll(10, sub {
		$found = $node->value(q{SELECT coalesce(wait_event_type || '/' || wait_event, '-') FROM pg_stat_activity
			WHERE pid = ? AND state = 'active'}, $dbh->{pg_pid}) // 'idle';
		return $found =~ $event;
	}) or die "the session does not wait in $event, but in $found";
	return;
}

1;
