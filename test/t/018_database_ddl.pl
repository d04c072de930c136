# A notified database can be copied, renamed and dropped as any other: its
# notifier makes room for the statement, and is back afterwards.
use EtcdLeader::Test;

my $etcd = EtcdLeader::Etcd->new;
my $node = EtcdLeader::Instance->create('pg1', etcd => $etcd);
$node->wait_until_leader;
$node->safe_psql('postgres', 'CREATE DATABASE app');
$node->configure(notify_databases => 'postgres,app');
poll_ok(10, sub { $node->notifier_pid('app') }, 'the notifier is connected');
my $offset = $node->log_size;

# Runs a statement that needs the database for itself; it must not take long.
sub runs_soon
{
	my ($statement) = @_;
	poll(10, sub { $node->notifier_pid('app') }) or die 'no notifier';
	my $began = now();
	$node->safe_psql('postgres', $statement);
	my $took = now() - $began;
	# with a session there it would fail after 5 s
	in_time($took, 4, sprintf '%s: %.0f ms', $statement, 1000 * $took);
	return;
}

runs_soon('CREATE DATABASE copy TEMPLATE app');
poll_ok(5, sub { $node->notifier_pid('app') }, 'the notifier is back in the database that was copied');

# It announces what came meanwhile.
my $listener = $node->listen('app');
my $mark     = $node->last_event;
$node->value('SELECT etcd_resign()');
ok($listener->wait_for(sub { $_[0]{event} eq 'elected' && $_[0]{seq} > $mark }), 'and it announces');
$listener->stop;

# Who may not do such a thing, does not send it away either.
{
	my $pid = $node->notifier_pid('app');
	$node->value('CREATE ROLE somebody LOGIN');
	$node->value('CREATE ROLE maker LOGIN CREATEDB');
	for my $case ([ somebody => 'DROP DATABASE app' ], [ somebody => 'CREATE DATABASE copy2 TEMPLATE app' ],
		[ somebody => 'ALTER DATABASE app RENAME TO mine' ], [ maker => 'CREATE DATABASE copy2 TEMPLATE app' ])
	{
		my ($role, $sql) = @$case;
		my ($state) = $node->failure($sql, $node->connect_db('postgres', user => $role));
		is($state, '42501', "$role: $sql");
	}
	is($node->notifier_pid('app'), $pid, 'the notifier has stayed');
	$node->value('ALTER DATABASE app IS_TEMPLATE true');
	$node->connect_db('postgres', user => 'maker')->do('CREATE DATABASE copy2 TEMPLATE app');
	$node->value('ALTER DATABASE app IS_TEMPLATE false');
	poll_ok(5, sub { $node->notifier_pid('app') }, 'it makes room for who may copy a template, and is back');
}

# A statement that fails must not keep it out.
my ($state) = $node->failure('ALTER DATABASE app RENAME TO postgres');
is($state, '42P04', 'a rename that fails');
poll_ok(5, sub { $node->notifier_pid('app') }, 'the notifier is back after it');

runs_soon('ALTER DATABASE app RENAME TO other');
poll_ok(10, sub { $node->log_count('FATAL:  database "app" does not exist', $offset) }, 'the log says that it is gone');
$node->safe_psql('postgres', 'ALTER DATABASE other RENAME TO app');
poll_ok(10, sub { $node->notifier_pid('app') }, 'the notifier is back in the database that has its name again');
runs_soon('DROP DATABASE app');

poll_is(10, sub { $node->log_count('the notifier for database "app" ended', $offset) }, 2, 'its end is only reported where the database is gone');
$node->stop('fast');
done_testing();
