# Drivers with a list of three hosts, and read_only_unless_leader: psql, psycopg2, JDBC
# and pgx find the leader in each attempt, over hand-overs and crashes, while the leader
# of before is cut off and stays in the list.  And PgBouncer, which needs RECONNECT.
#
# Environment: ATTEMPTS (200), of each driver.
use EtcdLeader::Test;
use EtcdLeader::Documents;
use EtcdLeader::Relay;
use IPC::Open2;

my $attempts = $ENV{ATTEMPTS} || 200;
my $each     = 5;						# attempts of each driver after a change
my $changes  = 10;						# changes while one is cut off
watchdog(300 + 3 * $attempts);

my $etcd = EtcdLeader::Etcd->new;
my (%node, %relay);
for my $name (qw(pg1 pg2 pg3))
{
	$relay{$name} = EtcdLeader::Relay->new($etcd->url(0));
	my $node = $node{$name} = EtcdLeader::Instance->create($name, endpoints => $relay{$name}->url,
		conf     => "listen_addresses = '127.0.0.1'\n",
		settings => { ttl => 2, read_only_unless_leader => 'postgres' }, start => 0);
	$node->append_conf('pg_hba.conf', "host all all 127.0.0.1/32 trust\n");
	$node->start;
	$node->value($_) for 'CREATE EXTENSION etcd_leader', 'CREATE ROLE app LOGIN', 'CREATE TABLE t (driver text)', 'GRANT ALL ON t TO app';
	$node->wait_until_candidate;
}
my @names = sort keys %node;

# ---- the drivers ---------------------------------------------------------------------

# The connection strings of the documents, with the hosts of this test.
my $dir   = PostgreSQL::Test::Utils::tempdir('drivers');
my $log   = "$PostgreSQL::Test::Utils::log_path/078_drivers.log";
my $hosts = join ',', map { '127.0.0.1:' . $node{$_}->port } @names;
my %string = map { my $s = document_block('doc/operations.md', $_); chomp $s; $_ => $s } qw(jdbc pgx);
$string{libpq} = 'host=127.0.0.1,127.0.0.1,127.0.0.1 port=' . join(',', map { $node{$_}->port } @names) . ' dbname=postgres user=app target_session_attrs=read-write connect_timeout=2';
for my $driver (qw(jdbc pgx))
{
	$string{$driver} =~ s{pg1,pg2,pg3/shop}{$hosts/postgres} or die 'no hosts';
}
$string{jdbc_default} = $string{jdbc} =~ s/&hostRecheckSeconds=0//r;

# Each reads a line, connects, writes, and prints the name of the server.
my $write = "INSERT INTO t VALUES ('%s')";
append_to_file("$dir/Driver.java", sprintf <<'JAVA', sprintf($write, 'jdbc'));
import java.io.*;
import java.sql.*;

public class Driver {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        while (in.readLine() != null) {
            String answer;
            try (Connection c = DriverManager.getConnection(args[0]); Statement s = c.createStatement()) {
                s.executeUpdate("%s");
                ResultSet r = s.executeQuery("SHOW cluster_name");
                r.next();
                answer = r.getString(1);
            } catch (SQLException e) {
                answer = e.getMessage().replace('\n', ' ');
            }
            System.out.println(answer);
        }
    }
}
JAVA
append_to_file("$dir/driver.go", sprintf <<'GO', sprintf($write, 'pgx'));
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/jackc/pgx/v4"
)

func attempt(url string) (string, error) {
	c, err := pgx.Connect(context.Background(), url)
	if err != nil {
		return "", err
	}
	defer c.Close(context.Background())
	if _, err = c.Exec(context.Background(), "%s"); err != nil {
		return "", err
	}
	var name string
	err = c.QueryRow(context.Background(), "SHOW cluster_name").Scan(&name)
	return name, err
}

func main() {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		name, err := attempt(os.Args[1])
		if err != nil {
			name = strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println(name)
	}
}
GO
append_to_file("$dir/driver.py", sprintf <<'PYTHON', sprintf($write, 'psycopg2'));
import psycopg2, sys

for line in sys.stdin:
    try:
        c = psycopg2.connect(sys.argv[1])
        with c, c.cursor() as s:
            s.execute("%s")
            s.execute("SHOW cluster_name")
            answer = s.fetchone()[0]
        c.close()
    except psycopg2.Error as e:
        answer = str(e).replace("\n", " ")
    print(answer, flush=True)
PYTHON
append_to_file("$dir/driver.sh", sprintf <<'SH', sprintf($write, 'psql'));
while read -r line; do
	psql -XAtq -c "%s" -c "SHOW cluster_name" "$1" 2>&1 | tr '\n' ' '
	echo
done
SH

# Debian's Go packages are no modules
system("cd $dir && GO111MODULE=off GOPATH=/usr/share/gocode GOCACHE=$dir/cache go build -o driver driver.go >>$log 2>&1") == 0 or die "pgx: see $log";
my %command = (
	psql     => [ 'sh', "$dir/driver.sh", $string{libpq} ],
	psycopg2 => [ 'python3', "$dir/driver.py", $string{libpq} ],
	jdbc     => [ 'java', '-cp', '/usr/share/java/postgresql.jar', "$dir/Driver.java", $string{jdbc} ],
	jdbc_default => [ 'java', '-cp', '/usr/share/java/postgresql.jar', "$dir/Driver.java", $string{jdbc_default} ],
	pgx      => [ "$dir/driver", $string{pgx} ]);
my %driver;
for my $name (keys %command)
{
	my $pid = open2(my $out, my $in, @{ $command{$name} });
	$driver{$name} = [ $in, $out, $pid ];
}
my @drivers = grep { $_ ne 'jdbc_default' } sort keys %driver;

# Lets a driver try once; where it wrote, or what went wrong.
sub attempt
{
	my ($driver) = @_;
	my ($in, $out) = @{ $driver{$driver} };
	syswrite($in, "go\n");
	chomp(my $answer = readline $out);
	return $answer =~ s/\s+$//r;
}

# ---- the changes ---------------------------------------------------------------------------

my $cut;					# the leader of before, which is cut off

sub leader { my ($leader) = grep { $_->name ne ($cut // '') && $_->try_value('SELECT etcd_is_leader()') } values %node; return $leader }
sub wait_for_leader { my ($but) = @_; my $leader; poll(20, sub { $leader = leader(); $leader && $leader->name ne $but }) or die "nobody leads but $but"; return $leader }

# Each way makes the other instance with a connection to etcd the leader.
my %change = (
	resign => sub { $_[0]->value('SELECT etcd_resign()') },
	drain  => sub {
		poll(20, sub { $etcd->candidates('postgres') >= 2 });
		$_[0]->value(q{SELECT etcd_resign(drain => '1 s')});
	},
	fast   => sub { $_[0]->restart },
	crash  => sub { $_[0]->stop('immediate'); wait_for_leader($_[0]->name); $_[0]->start },
	killed => sub {
		my ($node) = @_;
		my $pid = $node->{_pid};
		$node->kill9;
		wait_for_exit($pid, 10);
		# all processes of the old server must be gone before it can start
		poll(20, sub { $node->start(fail_ok => 1) }) or die 'the killed server does not start again';
	});
my @ways = qw(resign crash drain resign fast killed);
my (%right, %wrong, %made);
my $tries = 0;

while ($tries < $attempts)
{
	# the leader is cut off, and the one of before comes back
	my $leader = $cut ? leader() : wait_for_leader('');
	my $old    = $cut;
	$cut = $leader->name;
	$relay{$cut}->freeze;
	if ($old)
	{
		$relay{$old}->thaw;
		poll(20, sub { $etcd->candidates('postgres') >= 2 });
	}
	wait_for_leader($cut);
	poll(20, sub { !$node{$cut}->is_leader }) or die 'it leads on';
	$made{'cut off'}++;
	for my $n (0 .. $changes - 1)
	{
		last if $tries >= $attempts;
		my $way = $ways[ ($tries / $each) % @ways ];
		if ($n > 0)
		{
			my $from = leader();
			poll(20, sub { grep({ $_->name ne $cut && $_ != $from && ($_->status->{state} // '') eq 'waiting' } values %node) }) or die 'there is no successor';
			$change{$way}->($from);
			$made{$way}++;
			$leader = wait_for_leader($from->name);
		}
		else
		{
			$leader = leader();
		}
		for (1 .. $each)
		{
			$tries++;
			for my $driver (@drivers)
			{
				my $answer = attempt($driver);
				if   ($answer eq $leader->name) { $right{$driver}++ }
				else { push @{ $wrong{$driver} }, "$answer (" . $leader->name . " led, after $way)" }
			}
		}
	}
}
note('changes: ' . join ', ', map { "$_ $made{$_}" } sort keys %made);
for my $driver (@drivers)
{
	is($right{$driver} // 0, $tries, "$driver finds the leader, in $tries of $tries attempts") or diag(join "\n", @{ $wrong{$driver} }[ 0 .. 4 ]);
}
is($node{$cut}->value('SELECT pg_is_in_recovery()'), 0, 'the one that is cut off is a primary still');

# The documents say that JDBC remembers for 10 s.  It has looked at the next leader, which
# comes before this instance in the list.
{
	my $from = leader();
	if (!grep { $_ lt $from->name && $_ ne $cut } @names)
	{
		$from->value('SELECT etcd_resign()');
		$from = wait_for_leader($from->name);
	}
	is(attempt('jdbc_default'), $from->name, 'JDBC that remembers: the leader');
	$from->value('SELECT etcd_resign()');
	wait_for_leader($from->name);
	like(attempt('jdbc_default'), qr/targetServerType/, 'JDBC that remembers: after a hand-over it finds none');
}
close $_->[0] for values %driver;
waitpid $_->[2], 0 for values %driver;

# ---- PgBouncer -----------------------------------------------------------------------------

my %bouncer = map { $_ => PostgreSQL::Test::Cluster::get_free_port() } @names;
my @bouncers;
append_to_file("$dir/users", qq{"app" ""\n});
for my $name (@names)
{
	append_to_file("$dir/$name.ini", <<"INI");
[databases]
postgres = host=127.0.0.1 port=@{[ $node{$name}->port ]}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $bouncer{$name}
unix_socket_dir =
auth_type = trust
auth_file = $dir/users
admin_users = app
pool_mode = transaction
INI
	push @bouncers, EtcdLeader::Util::Process->spawn(name => "pgbouncer $name", log => $log, cmd => [ -x '/usr/sbin/pgbouncer' ? '/usr/sbin/pgbouncer' : 'pgbouncer', "$dir/$name.ini" ]);
}
my $by_bouncer = $string{libpq} =~ s/port=\S+/'port=' . join(',', map { $bouncer{$_} } @names)/er;
sub find_by_bouncer { my ($out, $err) = PostgreSQL::Test::Utils::run_command([ 'psql', '-XAtqc', 'SHOW cluster_name', $by_bouncer ]); return $out || $err }
my $leader = leader();
poll_is(10, \&find_by_bouncer, $leader->name, 'PgBouncers: the leader is found');
my $from = $leader;
$from->value('SELECT etcd_resign()');
$leader = wait_for_leader($from->name);
isnt(find_by_bouncer(), $leader->name, 'PgBouncers: after a hand-over they lead elsewhere');
PostgreSQL::Test::Utils::run_command([ 'psql', '-XAtqc', 'RECONNECT', "host=127.0.0.1 port=$bouncer{$_} user=app dbname=pgbouncer" ]) for @names;
poll_is(10, \&find_by_bouncer, $leader->name, 'PgBouncers: after RECONNECT the leader is found');
$_->stop for @bouncers;
$relay{$cut}->thaw;

done_testing();
