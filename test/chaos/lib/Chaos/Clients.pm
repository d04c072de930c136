# The clients of a chaos run.  Each is a process of its own, and connects again
# when its connection is lost.  It writes its operations and their answers into a
# history, with the time before the operation and after the answer, in seconds of
# CLOCK_MONOTONIC.
package Chaos::Clients;

use strict;
use warnings;

use Chaos::History;
use DBI;
use EtcdLeader::Hooks;
use EtcdLeader::Util;
use HTTP::Tiny;
use IO::Select;
use IO::Socket::INET;
use JSON::PP ();
use MIME::Base64 qw(encode_base64 decode_base64);
use POSIX ();
use PostgreSQL::Test::Utils;

our $election = 'chaos';
# the range of the queue's keys; the first key is the leader's
our @queue    = ('chaos/', 'chaos0');
our $watched  = 'fleet/';
# seconds between two questions of a sampler; with more, all clients ask less often
our $interval = 0.001;
my $json = JSON::PP->new;

# Starts a client: its kind, its name, and the arguments of its function.
sub start
{
	my ($kind, $name, @args) = @_;
	my $run = __PACKAGE__->can("run_$kind") or die "no client $kind";
	return EtcdLeader::Util::Process->spawn(
		name => "client $name",
		log  => "$PostgreSQL::Test::Utils::log_path/client_$name.log",
		code => sub {
			srand(unpack '%32C*', $name);
			$0 = "chaos client $name";
			$run->(Chaos::History->new($name), @args);
		});
}

# A connection; dies if there is none within 2 s.
sub connect_to
{
	my ($node, %args) = @_;
	return DBI->connect(
		sprintf('dbi:Pg:host=%s;port=%d;dbname=postgres;connect_timeout=2;application_name=%s', $node->host, $node->port, $args{name} // 'chaos'),
		$args{user}, undef, { RaiseError => 1, PrintError => 0, PrintWarn => 0, AutoCommit => 1, pg_server_prepare => 0 });
}

# Calls $step with a connection, for ever.  Calls $lost when $step has died, which
# ends the connection.
sub with_connection
{
	my ($node, $step, %args) = @_;
	my $socket = $node->host . '/.s.PGSQL.' . $node->port;
	while (1)
	{
		# a look at the socket is cheaper than a failed connection; the copy often does not run
		my $dbh = -e $socket && eval { connect_to($node, %args) };
		if (!$dbh) { pause(0.05); next; }
		eval { $args{begin}->($dbh) if $args{begin}; $step->($dbh) while 1; };
		my $error = $@;
		$args{lost}->($error) if $args{lost};
		eval { $dbh->disconnect };
		pause(0.02);
	}
	return;
}

# ---- questions about the leader ---------------------------------------------------

# Asks all the time whether the instance leads, with which token, and which leader
# it knows.  Equal answers in sequence make one line: the times of the first and the
# last question and answer, their number, and the longest time between two answers.
# The functions read one after the other, so the token is read before and after.
sub run_sampler
{
	my ($history, $node) = @_;
	my ($run, $previous);
	my $flush = sub { $history->write(k => 'sample', i => $node->name, %$run) if $run; $run = undef; };
	my $note  = sub {
		my ($before, $after, %answer) = @_;
		my $key = join ' ', map { $_ // '-' } @answer{qw(leads token leader)};
		$flush->() if $run && ($run->{key} ne $key || $after - $run->{a0} > 0.5);
		$run //= { key => $key, %answer, n => 0, b0 => $before, a0 => $after, gap => 0 };
		my $gap = $after - ($previous // $before);
		$run->{n}++;
		@{$run}{qw(b1 a1)} = ($before, $after);
		$run->{gap} = $gap if $gap > $run->{gap};
		$previous = $after;
	};
	my $statement;
	local $SIG{TERM} = sub { $flush->(); POSIX::_exit(0) };
	with_connection($node, sub {
			my $before = now();
			$statement->execute;
			my ($t1, $leads, $t2, $leader) = $statement->fetchrow_array;
			my $after = now();
			# if the two tokens differ, the answer may belong to either
			my $token = defined $t1 && defined $t2 && $t1 != $t2 ? undef : $t1 // $t2;
			$note->($before, $after, leads => $leads ? 1 : 0, ($leads ? (token => $token) : ()), leader => $leader);
			pause($interval);
		},
		name  => 'sampler',
		begin => sub {
			my ($dbh) = @_;
			$statement = $dbh->prepare('SELECT etcd_fencing_token($1), etcd_is_leader($1), etcd_fencing_token($1), etcd_current_leader($1)',
				{ pg_server_prepare => 1 });
			$statement->bind_param(1, $election);
		},
		lost => sub { $flush->(); $history->write(k => 'down', i => $node->name, t => now()); $previous = undef; });
	return;
}

# Asks by HTTP, as a load balancer does: GET /leader, over one connection.
sub run_http
{
	my ($history, $node, $address) = @_;
	my $socket;
	while (1)
	{
		my $before = now();
		my ($answer, $code, $token) = ('');
		my $ok = eval {
			local $SIG{PIPE} = 'IGNORE';
			$socket //= IO::Socket::INET->new(PeerAddr => $address, Timeout => 1) // die "no connection\n";
			syswrite $socket, "GET /leader HTTP/1.1\r\nHost: chaos\r\n\r\n" or die "gone\n";
			my $select = IO::Select->new($socket);
			while ($answer !~ /\}\n\z/)
			{
				$select->can_read(2) or die "no answer\n";
				sysread($socket, $answer, 4096, length $answer) or die "gone\n";
			}
			($code)  = $answer =~ m{^HTTP/1\.1 (\d+)};
			($token) = $answer =~ /"fencing_token":(\d+)/;
			1;
		};
		my $after = now();
		if ($ok) { $history->write(k => 'http', i => $node->name, b => $before, a => $after, code => 0 + $code, token => $token && 0 + $token) }
		else     { $socket = undef }
		pause($interval > 0.02 ? $interval : 0.02);
	}
	return;
}

# Asks through HAProxy, with a new connection for each question.  HAProxy chooses the
# instance by its checks, so it has to reach one that led a moment ago.
sub run_proxied
{
	my ($history, $port) = @_;
	while (1)
	{
		my $before = now();
		my ($instance, $token) = eval {
			my $dbh = DBI->connect("dbi:Pg:host=127.0.0.1;port=$port;dbname=postgres;connect_timeout=2;application_name=proxied", 'postgres', undef,
				{ RaiseError => 1, PrintError => 0, PrintWarn => 0, pg_server_prepare => 0 });
			$dbh->selectrow_array(q{SELECT current_setting('etcd_leader.node_name'), etcd_fencing_token($1)}, undef, $election);
		};
		my $after = now();
		$history->write(k => 'proxied', i => $instance, token => $token, b => $before, a => $after) if defined $instance;
		pause(0.1 + 10 * $interval);
	}
	return;
}

# ---- writers -------------------------------------------------------------------------

sub create_tables
{
	my ($node) = @_;
	$node->value($_) for
	  'CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL, n bigint NOT NULL, token bigint NOT NULL)',
	  'CREATE TABLE account_log (id int, n bigint, token bigint, txn text PRIMARY KEY, before bigint, after bigint)',
	  'INSERT INTO account SELECT n, 0, 0, 0 FROM generate_series(1, 5) n',
	  'CREATE ROLE app LOGIN', 'GRANT ALL ON account, account_log TO app',
	  "ALTER ROLE app SET etcd_leader.require_leadership_of = '$election'";
	return;
}

# Makes a job of pg_cron and a hook.  Both write into the table duty.
sub create_jobs
{
	my ($node) = @_;
	$node->value($_) for
	  'CREATE TABLE duty (id bigserial PRIMARY KEY, kind text, token bigint)',
	  'CREATE EXTENSION pg_cron',
	  "SELECT cron.schedule('duty', '* * * * *', 'INSERT INTO duty (kind, token) SELECT ''job'', etcd_require_leader() WHERE etcd_is_leader()')";
	write_hooks($node, 'elected all postgres ' . $node->value('SELECT current_user') . q{ 1min "INSERT INTO public.duty (kind, token) VALUES ('elected', public.etcd_fencing_token())"});
	$node->configure(hooks_file => 'hooks.conf');
	return;
}

# Makes the tables of the ledger, a server without faults to which only the leader
# may write.  entry.serial is the order of the writes.
sub create_ledger
{
	my ($node) = @_;
	$node->value($_) for
	  'CREATE TABLE clock (n bigint)', 'INSERT INTO clock VALUES (0)',
	  'CREATE TABLE entry (serial bigint PRIMARY KEY, token bigint, instance text, txn text)',
	  'CREATE TABLE account (id int PRIMARY KEY, balance bigint, version bigint, token bigint)',
	  'INSERT INTO account VALUES (1, 0, 0, 0), (3, 0, 0, 0)';
	return;
}

# Executes one transaction after the other, which only the leader may commit.
#
# how => function (it calls etcd_require_leader, sometimes etcd_verify_leader), role (a
# role that has require_leadership_of set) or prepared (COMMIT PREPARED, with
# require_leadership_of set).  Each writer has an account of its own.
#
# ledger => a server, to which it also writes between fencing and commit: an entry, and
# the account of the same number.  There this account is read and written in two
# transactions.  A fence refuses a token that is lower than the last one.
#
# sits => seconds: it waits for up to that long between its last statement and COMMIT,
# so that leadership may change meanwhile.
sub run_writer
{
	my ($history, $node, $how, %args) = @_;
	my $kind  = $args{sits} ? "sitting_$how" : $how;
	my $count = 0;
	my $outside;
	with_connection($node, sub {
			my ($dbh) = @_;
			my ($leads) = $dbh->selectrow_array('SELECT etcd_is_leader(?)', undef, $election);
			# now and then an instance tries that does not lead, and has to be refused
			if (!$leads && rand() > 0.1) { pause(0.2 + $interval); return; }
			$outside //= connect_to($args{ledger}) if $args{ledger};
			my %txn = (k => 'txn', i => $node->name, how => $how, txn => $node->name . "-$kind-" . ++$count, account => $args{account}, begun => now());
			$txn{how} = 'verify' if $how eq 'function' && rand() < 0.1;
			# most waits are short; the shortest is a tenth of a second
			$txn{sits} = $args{sits} ? 0.1 * (10 * $args{sits})**rand() : rand() < 0.05 ? rand(1.5) : 0;
			my $ok = eval { $how eq 'prepared' ? transact_prepared($dbh, \%txn) : transact($dbh, $outside, \%txn); 1 };
			$txn{ended} = now();
			my ($state, $message) = ($dbh->state, $dbh->errstr // "$@");
			if ($ok) { $txn{outcome} = 'committed' }
			else
			{
				# a server that ends during a commit gives no answer, or reports its shutdown
				$txn{state}   //= $state;
				$txn{message} //= $message;
				my $refused = $txn{state} =~ /^(?:25006|40|23|22|42|0A|53)/ || !$txn{commit_before};
				$txn{outcome} = $refused ? 'refused' : 'unknown';
			}
			$history->write(%txn);
			if (!$ok)
			{
				die "connection lost\n" if ($dbh->ping // 0) <= 0 || !eval { $dbh->rollback unless $dbh->{AutoCommit}; 1 };
			}
			pause(0.02 + rand(0.08 + 5 * $interval));
		},
		name  => "writer-$kind",
		begin => sub {
			my ($dbh) = @_;
			# an earlier connection may have left a prepared transaction, which locks the row
			$dbh->do("ROLLBACK PREPARED '$_->[0]'") for @{ $how eq 'prepared' ? $dbh->selectall_arrayref('SELECT gid FROM pg_prepared_xacts') : [] };
		},
		($how eq 'role' ? (user => 'app') : ()));
	return;
}

# Executes the transaction, and adds its times and results to $txn.
sub transact
{
	my ($dbh, $outside, $txn) = @_;
	my $function = { role => 'etcd_fencing_token', function => 'etcd_require_leader', verify => 'etcd_verify_leader' }->{ $txn->{how} };
	$dbh->begin_work;
	$txn->{fenced_before} = now();
	my ($token) = $dbh->selectrow_array("SELECT $function(?)", undef, $election);
	$txn->{fenced_after} = now();
	$txn->{token} = $token;
	my $account;
	if ($outside && defined $token)
	{
		($txn->{serial}) = $outside->selectrow_array(
			'WITH c AS (UPDATE clock SET n = n + 1 RETURNING n) INSERT INTO entry SELECT n, ?, ?, ? FROM c RETURNING serial',
			undef, $token, @$txn{qw(i txn)});
		$account = $outside->selectrow_hashref(
			'UPDATE account SET token = $1 WHERE id = $2 AND token <= $1 RETURNING balance, version', undef, $token, $txn->{account});
		$txn->{fenced_off} = 1 if !$account;
	}
	my $amount = write_account($dbh, $txn);
	pause($txn->{sits}) if $txn->{sits};
	if ($account)
	{
		my ($version) = $outside->selectrow_array(
			'UPDATE account SET balance = ?, version = version + 1 WHERE id = ? AND token = ? RETURNING version',
			undef, $account->{balance} + $amount, $txn->{account}, $token);
		@$txn{qw(outside_read outside_written outside_amount)} = ($account->{version}, $version, $amount);
	}
	$txn->{commit_before} = now();
	$dbh->commit;
	$txn->{commit_after} = now();
	return;
}

# The same by two-phase commit.  A fenced transaction cannot be prepared, so it is
# fenced for COMMIT PREPARED.
sub transact_prepared
{
	my ($dbh, $txn) = @_;
	$dbh->do('RESET etcd_leader.require_leadership_of');
	$dbh->begin_work;
	write_account($dbh, $txn);
	$dbh->do("PREPARE TRANSACTION '$txn->{txn}'");
	$dbh->commit;
	$dbh->do("SET etcd_leader.require_leadership_of = '$election'");
	pause($txn->{sits}) if $txn->{sits};
	$txn->{commit_before} = now();
	my $ok = eval { $dbh->do("COMMIT PREPARED '$txn->{txn}'"); 1 };
	$txn->{commit_after} = now();
	return if $ok;
	my $error = $@;
	@$txn{qw(state message)} = ($dbh->state, $dbh->errstr);
	$dbh->do("ROLLBACK PREPARED '$txn->{txn}'") if $txn->{state} eq '25006';
	die $error;
}

# Changes the balance of an account, and inserts a row about that into a log.
sub write_account
{
	my ($dbh, $txn) = @_;
	my ($id, $token) = @$txn{qw(account token)};
	my ($balance, $n) = $dbh->selectrow_array('SELECT balance, n FROM account WHERE id = ? FOR UPDATE', undef, $id);
	my $amount = int(rand(100)) - 50;
	$dbh->do('UPDATE account SET balance = ?, n = ?, token = coalesce(?, -1) WHERE id = ?', undef, $balance + $amount, $n + 1, $token, $id);
	$dbh->do('INSERT INTO account_log VALUES (?, ?, ?, ?, ?, ?)', undef, $id, $n + 1, $token, $txn->{txn}, $balance, $balance + $amount);
	@$txn{qw(n before after)} = ($n + 1, $balance, $balance + $amount);
	return $amount;
}

# ---- events and waiters ------------------------------------------------------------------

# A client that LISTENs.  A session is one connection.
sub run_listener
{
	my ($history, $node) = @_;
	my $session = 0;
	with_connection($node, sub {
			my ($dbh) = @_;
			my $arrived = now();
			while (my $notify = $dbh->func('pg_notifies'))
			{
				my $payload = eval { $json->decode($notify->[2]) } // { broken => $notify->[2] };
				$history->write(%$payload, k => 'notify', i => $node->name, session => $session, t => $arrived);
			}
			my $ready = '';
			vec($ready, $dbh->{pg_socket}, 1) = 1;
			select($ready, undef, undef, 1);
			$dbh->ping > 0 or die "gone\n";
		},
		name  => 'listener',
		begin => sub {
			my ($dbh) = @_;
			# LISTEN is not possible on a standby
			pause(0.5) while ($dbh->selectrow_array('SELECT pg_is_in_recovery()'));
			$dbh->do('LISTEN etcd_leader');
			$history->write(k => 'listen', i => $node->name, session => ++$session, t => now());
		},
		lost  => sub { $history->write(k => 'unlisten', i => $node->name, session => $session, t => now()) });
	return;
}

# A client that reads all events, by waiting for the next.
sub run_reader
{
	my ($history, $node) = @_;
	my ($after, $session) = (0, 0);
	with_connection($node, sub {
			my ($dbh) = @_;
			my $before = now();
			my $rows = $dbh->selectall_arrayref('SELECT * FROM etcd_wait_for_event(?, ?)', { Slice => {} }, $after, '5 s');
			my $t = now();
			for my $row (@$rows)
			{
				$history->write(%$row, k => 'event', i => $node->name, session => $session, after => $after, b => $before, t => $t);
				$after = $row->{seq};
			}
		}, name => 'reader', begin => sub { $session++ });
	return;
}

# A client that waits for leadership.  how => function or procedure.
sub run_waiter
{
	my ($history, $node, $how) = @_;
	my $call = $how eq 'function' ? 'SELECT etcd_wait_for_leadership(?, ?)' : 'CALL etcd_await_leadership(?, ?)';
	my $asked;
	with_connection($node, sub {
			my ($dbh) = @_;
			my ($leads) = $dbh->selectrow_array('SELECT etcd_is_leader(?)', undef, $election);
			if ($leads) { pause(0.05 + $interval); return; }
			$asked = now();
			my ($answer) = $dbh->selectrow_array($call, undef, $election, '20 s');
			$history->write(k => 'wait', i => $node->name, how => $how, b => $asked, a => now(), leads => $answer ? 1 : 0);
			$asked = undef;
		},
		name => "waiter-$how",
		lost => sub { $history->write(k => 'wait', i => $node->name, how => $how, b => $asked, a => now(), error => "$_[0]") if $asked; $asked = undef; });
	return;
}

# Writes the counters of an instance's requests to etcd, each second.
sub run_counter
{
	my ($history, $node) = @_;
	with_connection($node, sub {
			my ($dbh) = @_;
			my $before = now();
			my $row = $dbh->selectrow_hashref(
				'SELECT requests, failures, watch_restarts, notifications_sent, stats_reset, version FROM etcd_leader_stats');
			$history->write(%$row, k => 'stats', i => $node->name, b => $before, t => now());
			pause(1);
		}, name => 'counter');
	return;
}

# ---- etcd ---------------------------------------------------------------------------------

# Reads the first key of the election from each member in turn.  No fault of the
# network cuts it off.  The read also deletes a key that never exists, so raft's log
# orders it.  (Other reads of etcd may be stale, #20418.)  Equal answers make one line,
# as for a sampler, with the revision of the first answer.
sub run_looker
{
	my ($history, $user, $password, @urls) = @_;
	my ($run, %http, %token, %changed);
	my $flush = sub { $history->write(k => 'look', %$run) if $run; $run = undef; };
	my ($prefix, $end, $nobody) = map { encode_base64($_, '') } @queue, 'chaos#';
	my $body = $json->encode({
			success => [
				{ request_range => { key => $prefix, range_end => $end, limit => '1', sort_order => 'ASCEND', sort_target => 'CREATE' } },
				{ request_delete_range => { key => $nobody } } ] });
	local $SIG{TERM} = sub { $flush->(); POSIX::_exit(0) };
	while (1)
	{
		push @urls, shift @urls;
		my $http = $http{ $urls[0] } //= HTTP::Tiny->new(timeout => 1, http_proxy => undef);
		my $before = now();
		my $answer = $http->post("$urls[0]/v3/kv/txn", { content => $body, headers => $token{ $urls[0] } ? { Authorization => $token{ $urls[0] } } : {} });
		my $after = now();
		my $txn = $answer->{success} ? eval { $json->decode($answer->{content}) } : undef;
		if (!$txn)
		{
			# authentication may have been switched on or off, or the token has expired
			my $granted = $http->post("$urls[0]/v3/auth/authenticate", { content => $json->encode({ name => $user, password => $password }) });
			$token{ $urls[0] } = $granted->{success} ? $json->decode($granted->{content})->{token} : undef;
			pause(0.05);
			next;
		}
		my $kv = $txn->{responses}[0]{response_range}{kvs}[0];
		my $first = $kv ? 0 + $kv->{create_revision} : 0;
		if ($kv && $election =~ /^patroni:/)
		{
			# Patroni 3.0 may take its key back by a put, and then another leadership begins
			my $known = $changed{$first} //= { value => $kv->{value}, token => $first };
			@$known{qw(value token)} = ($kv->{value}, 0 + $kv->{mod_revision}) if $known->{value} ne $kv->{value};
			$first = $known->{token};
		}
		$flush->() if $run && ($run->{first} != $first || $after - $run->{a0} > 0.5);
		$run //= { first => $first, value => $kv ? decode_base64($kv->{value} // '') : undef, revision => 0 + $txn->{header}{revision},
			n => 0, b0 => $before, a0 => $after };
		$run->{n}++;
		@{$run}{qw(b1 a1)} = ($before, $after);
		pause(0.05 + $interval / 2);
	}
	return;
}

# ---- keys that the instances watch ---------------------------------------------------------

# Writes such keys by etcdctl: puts, deletions, and transactions with two keys.
sub run_changer
{
	my ($history, $etcd) = @_;
	my $number = 0;
	while (1)
	{
		my ($key, $other) = map { $watched . int(rand(10)) } 1 .. 2;
		$number++;
		my @command = ('put', $key, $number);
		@command = ('del', $key) if $number % 5 == 0;
		@command = ('txn', \"\nput $key $number\nput $other/too $number\n\n\n") if $number % 5 == 3;
		my $before = now();
		my ($status) = $etcd->try_etcdctl('--command-timeout=2s', '--dial-timeout=1s', @command);
		$history->write(k => 'put', b => $before, a => now(), ok => $status == 0 ? 1 : 0);
		pause(0.3 + 30 * $interval);
	}
	return;
}

# Watches those keys by etcdctl, which no fault of the network cuts off.  If there is no
# event for 3 s, the watch is started again at the next revision.  So it only misses
# revisions that were compacted meanwhile, and writes these into the history.
sub run_watcher
{
	my ($history, $etcd) = @_;
	my $next = 1;
	my $ends;
	local $SIG{TERM} = sub { $ends = 1 };
	while (!$ends)
	{
		my $heard = now();
		my $process = $etcd->background_etcdctl('watch', '--prefix', $watched, "--rev=$next", '-w', 'json');
		my $fh;
		poll(5, sub { open $fh, '<', $process->{log} }) or die 'no etcdctl';
		my $rest = '';
		while (!$ends && $process->alive && now() - $heard < 3)
		{
			seek $fh, 0, 1;
			if (!read $fh, $rest, 65536, length $rest) { pause(0.02); next }
			$heard = now();
			while ($rest =~ s/\A(.*)\n//)
			{
				my $answer = $json->decode($1);
				if ($answer->{CompactRevision})
				{
					$history->write(k => 'missed', from => $next, to => 0 + $answer->{CompactRevision}, t => $heard);
					$next = $answer->{CompactRevision};
				}
				for my $event (@{ $answer->{Events} // [] })
				{
					my $kv = $event->{kv};
					$next = $kv->{mod_revision} + 1;
					$history->write(k => 'change', revision => 0 + $kv->{mod_revision}, key => decode_base64($kv->{key}),
						value => $event->{type} ? undef : decode_base64($kv->{value} // ''), t => $heard);
				}
			}
		}
		$process->stop('KILL');
	}
	return;
}

# ---- operators ---------------------------------------------------------------------------

# Executes statements once, in a process of its own, because the instance may not
# answer.  Returns true if they were executed.
sub run_operator
{
	my ($history, $node, $kind, @statements) = @_;
	my $before = now();
	my $error;
	my $answer = eval {
		my $dbh = connect_to($node, name => 'operator');
		$dbh->do('SET statement_timeout = 8000');
		my $last;
		for (@statements) { ($last) = /^SELECT/ ? $dbh->selectrow_array($_) : $dbh->do($_) }
		$last;
	};
	$error = $@ if $@;
	$history->write(k => 'command', i => $node->name, what => $kind, b => $before, a => now(), answer => $answer, error => $error);
	return !defined $error;
}

1;
