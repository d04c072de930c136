# Drivers with a list of three hosts, and read_only_unless_leader_of: the drivers of
# doc/clients.md, and its functions for drivers without a list, find the leader in each
# attempt, over hand-overs and crashes, while the leader of before is cut off and stays in
# the list.  And PgBouncer, which needs RECONNECT.
#
# Environment: ATTEMPTS (200), of each driver.
use EtcdLeader::Test;
use EtcdLeader::Documents;
use EtcdLeader::Relay;
use FindBin;
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
		settings => { ttl => 5, read_only_unless_leader_of => 'postgres' }, start => 0);
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
my $ports = join ',', map { $node{$_}->port } @names;

sub block_here
{
	my $text = document_block('doc/clients.md', shift);
	$text =~ s{pg1,pg2,pg3/shop}{$hosts/postgres} or $text =~ s{(pg\d)/shop}{'127.0.0.1:' . $node{$1}->port . '/postgres'}ge
	  or $text =~ s{host=pg1,pg2,pg3([ ;])dbname=shop}{host=127.0.0.1,127.0.0.1,127.0.0.1$1port=$ports$1dbname=postgres}
	  or die 'no hosts';
	# No server of this test hangs, but a busy host may be slow.
	$text =~ s/(timeout=|connectionTimeoutMillis: )2/${1}20/g;
	return $text;
}
my %block  = map { $_ => block_here($_) } qw(psycopg dbd_pg pdo ruby_pg postgres_js asyncpg node_postgres lib_pq);
my %string = map { my $s = block_here($_); chomp $s; $_ => $s } qw(jdbc pgx);
($string{libpq}) = $block{psycopg} =~ /"(.*)"/;
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
for my $driver (qw(psycopg psycopg2))
{
	append_to_file("$dir/${driver}_.py", sprintf <<'PYTHON', $driver, $block{psycopg}, sprintf($write, $driver));
import %s as psycopg, sys

for line in sys.stdin:
    try:
        %s
        with connection, connection.cursor() as s:
            s.execute("%s")
            s.execute("SHOW cluster_name")
            answer = s.fetchone()[0]
            # what psycopg 3 gives from a database in SQL_ASCII
            if isinstance(answer, bytes):
                answer = answer.decode()
        connection.close()
    except psycopg.Error as e:
        answer = str(e).replace("\n", " ")
    print(answer, flush=True)
PYTHON
}
append_to_file("$dir/dbd_pg.pl", sprintf <<'PERL', $block{dbd_pg}, sprintf($write, 'dbd_pg'));
use DBI;
$| = 1;
while (<STDIN>)
{
	my $answer = eval {
		%s
		$dbh->do(q{%s});
		($dbh->selectrow_array('SHOW cluster_name'))[0];
	};
	print $answer // $@ =~ s/\n/ /gr, "\n";
}
PERL
append_to_file("$dir/pdo.php", sprintf <<'PHP', $block{pdo}, sprintf($write, 'pdo'));
<?php
while (fgets(STDIN)) {
    try {
        %s
        $connection->exec("%s");
        $answer = $connection->query('SHOW cluster_name')->fetchColumn();
    } catch (PDOException $e) {
        $answer = str_replace("\n", ' ', $e->getMessage());
    }
    $connection = null;
    echo "$answer\n";
}
PHP
append_to_file("$dir/ruby_pg.rb", sprintf <<'RUBY', $block{ruby_pg}, sprintf($write, 'ruby_pg'));
require 'pg'
$stdout.sync = true
while STDIN.gets
  begin
    %s
    connection.exec("%s")
    answer = connection.exec('SHOW cluster_name').getvalue(0, 0)
    connection.close
  rescue PG::Error => e
    answer = e.message.gsub("\n", ' ')
  end
  puts answer
end
RUBY

# These keep their connection after the line "keep".  After an error they print its SQLSTATE,
# and connect again the next time.
append_to_file("$dir/asyncpg_.py", sprintf <<'PYTHON', $block{asyncpg}, sprintf($write, 'asyncpg'));
%s
import sys

async def attempts():
    kept = None
    for line in sys.stdin:
        try:
            kept = kept or await connect_to_leader()
            await kept.execute("%s")
            answer = await kept.fetchval("SHOW cluster_name")
            if line == "go\n":
                await kept.close()
                kept = None
        except Exception as e:
            answer = getattr(e, "sqlstate", None) or repr(e)
            kept = None
        print(answer, flush=True)

asyncio.run(attempts())
PYTHON
my %js = (
	node_postgres => $block{node_postgres} . sprintf(<<'JS', sprintf $write, 'node_postgres'),
const connect = connectToLeader;
async function write(client) {
  await client.query("%s");
  return (await client.query('SHOW cluster_name')).rows[0].cluster_name;
}
JS
	postgres_js => sprintf(<<'JS', $block{postgres_js} =~ s{'(postgres:[^']*)'}{process.argv[2] || '$1'}r, sprintf $write, 'postgres_js'));
const postgres = require('postgres');
function connect() {
  %s
  return sql;
}
async function write(sql) {
  await sql.unsafe("%s");
  return (await sql`SHOW cluster_name`)[0].cluster_name;
}
JS
append_to_file("$dir/$_.js", $js{$_} . <<'JS') for keys %js;
async function attempts() {
  let kept;
  for await (const line of require('readline').createInterface({ input: process.stdin })) {
    let answer, again = line === 'go';
    try {
      kept = kept || await connect();
      answer = await write(kept);
    } catch (error) {
      answer = [error.code || error.message, error.cause?.message].filter(Boolean).join(': ');
      again = true;
    }
    if (kept && again) {
      await kept.end();
      kept = undefined;
    }
    console.log(answer);
  }
  process.exit(0);
}
attempts();
JS
mkdir "$dir/pq";
append_to_file("$dir/pq/driver.go", sprintf <<'GO', $block{lib_pq}, sprintf($write, 'lib_pq'));
package main

import (
	"bufio"
	"database/sql"
	"errors"
	"fmt"
	"os"

	"github.com/lib/pq"
)

%s
var kept *sql.DB

func attempt(line string) (name string, err error) {
	if kept == nil {
		if kept, err = openLeader(); err != nil {
			return
		}
	}
	if _, err = kept.Exec("%s"); err == nil {
		err = kept.QueryRow("SHOW cluster_name").Scan(&name)
	}
	if err != nil || line == "go" {
		kept.Close()
		kept = nil
	}
	return
}

func main() {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		name, err := attempt(in.Text())
		var reported *pq.Error
		if errors.As(err, &reported) {
			name = string(reported.Code)
		} else if err != nil {
			name = err.Error()
		}
		fmt.Println(name)
	}
}
GO
append_to_file("$dir/driver.sh", sprintf <<'SH', sprintf($write, 'psql'));
while read -r line; do
	psql -XAtq -c "%s" -c "SHOW cluster_name" "$1" 2>&1 | tr '\n' ' '
	echo
done
SH

# Debian's Go packages are no modules
for my $program (qw(driver pq/driver))
{
	system("cd $dir && GO111MODULE=off GOPATH=/usr/share/gocode GOCACHE=$dir/cache go build -o $program $program.go >>$log 2>&1") == 0 or die "$program: see $log";
}
# lib/pq insists on TLS otherwise
my $modules = "$FindBin::RealBin/build/npm/node_modules";
-d $modules or die "there is no $modules: test/setup --long makes it";
local @ENV{qw(NODE_PATH PGSSLMODE)} = ($modules, 'disable');
my %command = (
	psql     => [ 'sh', "$dir/driver.sh", $string{libpq} ],
	(map { $_ => [ 'python3', "$dir/${_}_.py" ] } qw(psycopg psycopg2)),
	dbd_pg   => [ 'perl', "$dir/dbd_pg.pl" ],
	pdo      => [ 'php', "$dir/pdo.php" ],
	ruby_pg  => [ 'ruby', "$dir/ruby_pg.rb" ],
	asyncpg  => [ 'python3', "$dir/asyncpg_.py" ],
	(map { $_ => [ 'node', "$dir/$_.js" ] } qw(node_postgres postgres_js)),
	lib_pq   => [ "$dir/pq/driver" ],
	jdbc     => [ 'java', '-cp', '/usr/share/java/postgresql.jar', "$dir/Driver.java", $string{jdbc} ],
	jdbc_default => [ 'java', '-cp', '/usr/share/java/postgresql.jar', "$dir/Driver.java", $string{jdbc_default} ],
	pgx      => [ "$dir/driver", $string{pgx} ]);
my %driver;
sub start_driver
{
	my ($name, @command) = @_;
	my $pid = open2(my $out, my $in, @command);
	$driver{$name} = [ $in, $out, $pid ];
}
start_driver($_, @{ $command{$_} }) for keys %command;
my @drivers = grep { $_ ne 'jdbc_default' } sort keys %driver;

# Lets a driver try once; where it wrote, or what went wrong.
sub attempt
{
	my ($driver, $how) = @_;
	syswrite($driver{$driver}[0], ($how // 'go') . "\n");
	return answer($driver);
}

sub answer
{
	my ($driver) = @_;
	chomp(my $answer = readline($driver{$driver}[1]) // 'it has ended');
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
	my $leader = wait_for_leader('');
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
			my $from = wait_for_leader('');
			poll(20, sub { grep({ $_->name ne $cut && $_ != $from && ($_->status->{state} // '') eq 'waiting' } values %node) }) or die 'there is no successor';
			$change{$way}->($from);
			$made{$way}++;
			$leader = wait_for_leader($from->name);
		}
		else
		{
			$leader = wait_for_leader('');
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
	my $from = wait_for_leader('');
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

# A connection that is kept does not follow the leadership.
{
	my $from = wait_for_leader('');
	my @keep = qw(asyncpg lib_pq node_postgres postgres_js);
	is(attempt($_, 'keep'), $from->name, "$_ keeps its connection") for @keep;
	$from->value('SELECT etcd_resign()');
	my $leader = wait_for_leader($from->name);
	for my $driver (@keep)
	{
		is(attempt($driver, 'keep'), '25006', "$driver: after a hand-over the connection is refused");
		is(attempt($driver), $leader->name, "$driver: a second attempt finds the leader");
	}

	# postgres.js has no answer before one of its hosts leads
	start_driver('waiting', 'node', "$dir/postgres_js.js",
		'postgres://app@' . join(',', map { '127.0.0.1:' . $_->port } $node{$cut}, $from) . '/postgres?target_session_attrs=read-write');
	syswrite($driver{waiting}[0], "go\n");
	my $answered = '';
	vec($answered, fileno $driver{waiting}[1], 1) = 1;
	is(select($answered, undef, undef, 3), 0, 'postgres.js waits while all of its hosts are read-only');
	poll(20, sub { ($from->status->{state} // '') eq 'waiting' }) or die 'there is no successor';
	$leader->value('SELECT etcd_resign()');
	wait_for_leader($leader->name);
	is(answer('waiting'), $from->name, 'postgres.js goes on when a host leads');
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
my $leader = wait_for_leader('');
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
