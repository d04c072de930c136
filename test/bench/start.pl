# The time until a server leads after its start, without other candidates.
#
#   make bench PARTS=start      ROUNDS=10
use FindBin;
use lib "$FindBin::RealBin/lib";
use EtcdLeader::Test;
use Bench;
use Bench::Peers;

my $bench = Bench->new(name => 'start', title => 'Start', text => <<'END');
From the server's own log and events: it is ready to accept connections; etcd has answered for the first time
(`connected`); it leads (`elected`). Alone in the election. A negative time: the elector, which starts with the others, was
first.
END
my $rounds = Bench::rounds(10);

my $etcd = EtcdLeader::Etcd->new;
my $node = EtcdLeader::Instance->create('pg1', etcd => $etcd, settings => { ttl => 5 });
$node->wait_until_leader;

my $table = $bench->table(name => 'start', title => 'Start', unit => 'ms', linear => 1);
my $answered = Bench::row($table, 'first answer of etcd → leading', goal => '<= 50');
my $accepting = Bench::row($table, 'accepting connections → leading');

$bench->in_turn($rounds, [ [ $answered, $accepting ], sub {
	$node->stop('fast');
	poll(10, sub { Bench::Peers::queued($etcd, 'postgres') == 0 }) or die "its key stands\n";
	my $offset = $node->log_size;
	$node->start;
	$node->wait_until_leader;
	my %at = map { $_->{event} => $_->{s} } reverse $node->rows(q{SELECT event, extract(epoch FROM at) AS s FROM etcd_leader_events()});
	my $log = PostgreSQL::Test::Utils::slurp_file($node->logfile, $offset);
	my ($ready) = $log =~ /^(\S+ \S+ \S+) .*ready to accept connections/m or die "no such line in the log\n";
	return (1000 * ($at{elected} - $at{connected}), 1000 * ($at{elected} - $node->value('SELECT extract(epoch FROM ?::timestamptz)', $ready)));
} ]);
$bench->finish;
