# A rolling restart.
package EtcdLeader::Rolling;

use strict;
use warnings;

use EtcdLeader::Sampler;
use EtcdLeader::Util;
use Exporter 'import';
use Test::More;

our @EXPORT = qw(restart_each);

# Restarts instances one after the other, in the order in which they lead: the
# first one leads, and the others are candidates.  Tests that each restart is
# one hand-over, which takes milliseconds, and that no two lead at once.
# $restarted is called with each one when it is a candidate again.
sub restart_each
{
	my ($etcd, $nodes, $restarted) = @_;
	my @samplers = map { $_->sample } @$nodes;
	my @queue    = map { $_->{value} } $etcd->candidates('postgres');
	my %node     = map { $_->name => $_ } @$nodes;
	my @tokens   = ($node{ $queue[0] }->token);
	for my $i (0 .. $#queue)
	{
		my ($node, $next) = @node{ $queue[$i], $queue[ ($i + 1) % @queue ] };
		my $name = 'restart of ' . $node->name;
		my $mark = $next->last_event;
		$node->restart;
		$next->wait_until_leader;
		$node->wait_until_candidate;
		$node->wait_until_sees($next->name);
		push @tokens, $next->token;
		cmp_ok($tokens[-1], '>', $tokens[-2], "$name: a greater token");
		is(join(', ', map { EtcdLeader::Listener::summarize($_) } $next->events($mark)), 'elected postgres ' . $next->name . ' -',
			"$name: the next one is elected, and nothing else happens");
		is($node->value('SELECT elections_won FROM etcd_leader_stats'), 0, "$name: it has not led in between");
		$restarted->($node);
	}
	my %runs = EtcdLeader::Sampler::check_exclusion(\@samplers, 'rolling restart');
	my %led  = map { ($_->{token} => 1) } grep { $_->{answer} eq 't' } map { @$_ } values %runs;
	is(join(' ', sort { $a <=> $b } keys %led), "@tokens", 'one leadership after each restart, and no others');
	return;
}

1;
