# Draws a hand-over and a lost host as they happen here: doc/hand_over.svg and
# doc/lost_host.svg, in the directory PICTURES.  `make pictures` runs it.
use EtcdLeader::Test;
use Time::HiRes ();

my $out = $ENV{PICTURES} or BAIL_OUT('PICTURES is not set');
my $ttl = 5;

# ---- drawing -------------------------------------------------------------------------

sub escaped { return $_[0] =~ s/&/&amp;/gr =~ s/</&lt;/gr =~ s/>/&gt;/gr }

# Writes a picture.  rows => [ name, [ from, to, colour, label ], ... ], marks =>
# [ at, row, text ], all in units of the axis, which goes from 0 to `end`.
sub draw
{
	my ($file, %args) = @_;
	my ($left, $width, $height, $top) = (150, 700, 62, 58);
	my @rows   = @{ $args{rows} };
	my $bottom = $top + @rows * $height;
	my $x      = sub { $left + $_[0] / $args{end} * $width };
	my $svg    = sprintf qq{<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">\n}
	  . qq{<rect width="100%%" height="100%%" fill="white"/>\n<text x="10" y="24" font-size="15">%s</text>\n}, $left + $width + 60, $bottom + 52, escaped($args{title});
	for (my $tick = 0; $tick <= $args{end} + 1e-9; $tick += $args{step})
	{
		$svg .= sprintf qq{<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#dddddd"/><text x="%.1f" y="%d" text-anchor="middle" fill="#555555">%g</text>\n},
		  $x->($tick), $top - 12, $x->($tick), $bottom, $x->($tick), $bottom + 16, $tick;
	}
	$svg .= sprintf qq{<text x="%d" y="%d" text-anchor="middle" fill="#555555">%s</text>\n}, $left + $width / 2, $bottom + 36, escaped($args{unit});
	for my $i (0 .. $#rows)
	{
		my ($name, @bars) = @{ $rows[$i] };
		my $y = $top + $i * $height;
		$svg .= sprintf qq{<text x="10" y="%d">%s</text>\n}, $y + 20, escaped($name);
		for (@bars)
		{
			my ($from, $to, $colour, $label) = @$_;
			$svg .= sprintf qq{<rect x="%.1f" y="%d" width="%.1f" height="24" rx="3" fill="%s"/><text x="%.1f" y="%d">%s</text>\n},
			  $x->($from), $y + 3, $x->($to) - $x->($from), $colour, $x->($from) + 5, $y + 20, escaped($label);
		}
	}
	for (@{ $args{marks} })
	{
		my ($at, $row, $text, $anchor) = @$_;
		my $y = $top + $row * $height;
		$svg .= sprintf qq{<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#b03030" stroke-width="2"/><text x="%.1f" y="%d" fill="#b03030" text-anchor="%s">%s</text>\n},
		  $x->($at), $y - 4, $x->($at), $y + 32, $x->($at) + (($anchor // 'start') eq 'end' ? -4 : 4), $y + 44, $anchor // 'start', escaped($text);
	}
	$svg .= "</svg>\n";
	unlink "$out/$file";
	append_to_file("$out/$file", $svg);
	return;
}
my ($leads, $waits, $stands, $none) = ('#9fd39f', '#e3e8ef', '#f3d9a0', '#f7f7f7');

# ---- runs ------------------------------------------------------------------------------

my $etcd = EtcdLeader::Etcd->new;
my %node = map { $_ => EtcdLeader::Instance->create($_, etcd => $etcd, settings => { elections => 'shop', ttl => $ttl, notify_databases => '' }) } qw(pg1 pg2);
$node{pg1}->wait_until_leader;
$node{pg2}->wait_until_candidate;

# When an event was, in Unix time.
sub event_at
{
	my ($node, $after, $event) = @_;
	my $sql = 'SELECT extract(epoch FROM at) FROM etcd_leader_events(?) WHERE event = ? ORDER BY seq LIMIT 1';
	return poll(20, sub { $node->value($sql, $after, $event) }) // die "no event $event";
}

# A hand-over: the one of the median duration of eleven.
{
	my @runs;
	for (1 .. 11)
	{
		my ($from, $to) = $node{pg1}->is_leader ? @node{qw(pg1 pg2)} : @node{qw(pg2 pg1)};
		my %after = map { $_ => $node{$_}->last_event } keys %node;
		my $began = Time::HiRes::time();
		$from->value('SELECT etcd_resign()');
		my $returned = Time::HiRes::time();
		my ($unelected, $elected) = (event_at($from, $after{ $from->name }, 'unelected'), event_at($to, $after{ $to->name }, 'elected'));
		my $told = event_at($from, $after{ $from->name }, 'leader');
		poll(10, sub { ($from->current_leader // '') eq $to->name });
		$from->wait_until_candidate;
		push @runs, [ map { ($_ - $began) * 1000 } $unelected, $elected, $returned ];
	}
	my ($unelected, $elected, $returned) = @{ (sort { $a->[1] <=> $b->[1] } @runs)[ @runs / 2 ] };
	cmp_ok($unelected, '<', $elected, 'a hand-over: the one ends before the other begins');
	my $step = $elected > 20 ? 5 : 1;
	my $end  = $step * (int(($returned > $elected ? $returned : $elected) / $step) + 2);
	draw('hand_over.svg', title => 'A hand-over by etcd_resign(), the median of eleven', unit => 'ms from the call', end => $end, step => $step,
		rows => [
			[ 'the old leader', [ 0, $unelected, $leads, '' ], [ $unelected, $end, $waits, 'does not lead' ] ],
			[ 'the next leader', [ 0, $elected, $waits, 'waits' ], [ $elected, $end, $leads, 'leads' ] ]
		],
		marks => [
			[ 0, 0, 'call' ], [ $unelected, 0, sprintf('is_leader false, %.1f ms', $unelected) ],
			[ $returned, 0, sprintf('the call returns, %.1f ms', $returned), 'end' ],
			[ $elected, 1, sprintf('is_leader true, %.1f ms', $elected) ]
		]);
}

# A host is lost: every process of the leader stops at once.
{
	my ($from, $to) = $node{pg1}->is_leader ? @node{qw(pg1 pg2)} : @node{qw(pg2 pg1)};
	my $after = $to->last_event;
	my ($postmaster) = slurp_file($from->data_dir . '/postmaster.pid') =~ /^(\d+)/;
	my @processes = ($postmaster, grep { length } split /\s+/, `ps -o pid= --ppid $postmaster`);
	my $valid_for = $from->value('SELECT extract(epoch FROM valid_for) FROM etcd_leader_status');
	my $lost = Time::HiRes::time();
	kill 'STOP', @processes;
	my $gone;
	poll(3 * $ttl, sub { return 0 if grep { $_->{value} eq $from->name } $etcd->candidates('shop'); $gone = Time::HiRes::time() - $lost; return 1 });
	my $elected = event_at($to, $after, 'elected') - $lost;
	kill 'CONT', @processes;
	cmp_ok($valid_for, '<', $elected, 'a lost host: leadership has ended before the next one leads');
	my $end = 1 + int($elected + 1);
	draw('lost_host.svg', title => "The leader's host is lost: every process is stopped at 0; TTL $ttl s", unit => 's', end => $end, step => 1,
		rows => [
			[ 'the lost leader', [ 0, $valid_for, $leads, 'its deadline has not passed' ], [ $valid_for, $end, $none, 'is_leader would be false' ] ],
			[ 'its key in etcd', [ 0, $gone, $stands, 'stands' ], [ $gone, $end, $none, '' ] ],
			[ 'the next leader', [ 0, $elected, $waits, 'waits' ], [ $elected, $end, $leads, 'leads' ] ]
		],
		marks => [
			[ 0, 0, 'stopped' ], [ $valid_for, 0, sprintf('deadline, %.1f s', $valid_for) ],
			[ $gone, 1, sprintf('lease expired, %.1f s', $gone), 'end' ], [ $elected, 2, sprintf('is_leader true, %.1f s', $elected), 'end' ]
		]);
}
done_testing();
