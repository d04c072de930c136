# doc/tutorial.md: every block of it, in one shell, as it stands there, and what
# it prints.  In a network of its own, since the tutorial's ports are fixed.
use EtcdLeader::Namespace;
use EtcdLeader::Test;
use EtcdLeader::Documents;

my $page  = 'doc/tutorial.md';
my @names = map { $_->{name} } document_blocks($page);
is(scalar(grep { !defined } @names), 0, 'every block of the tutorial is run, or is what one prints');
my @steps = grep { !/\.out$/ } @names;
is($steps[-1], 'clean', 'the last one cleans up');

my $dir    = PostgreSQL::Test::Utils::tempdir_short();
my $script = '';
for my $step (@steps)
{
	$script .= "echo '\@\@ $step'\n" . document_block($page, $step);
}
append_to_file("$dir/script", $script);
mkdir "$dir/empty" or die "mkdir: $!";

# The etcdctl of the tests is the one on the path.
if ($ENV{ETCDCTL})
{
	mkdir "$dir/bin" or die "mkdir: $!";
	symlink $ENV{ETCDCTL}, "$dir/bin/etcdctl" or die "symlink: $!";
	$ENV{PATH} = "$dir/bin:$ENV{PATH}";
}
# what a user who follows the page may have set to something else
delete @ENV{ grep { /^(?:PG(?!_)|ETCDCTL_)/ } keys %ENV };
my $shell = EtcdLeader::Util::Process->spawn(name => 'tutorial', log => "$dir/out", stderr => "$dir/err",
	cmd => [ 'bash', '-c', 'cd "$1"/empty && . "$1"/script', 'bash', $dir ]);
ok($shell->wait(120), 'the tutorial comes to its end');
is($shell->status, 0, 'the last command of the tutorial succeeds');

my %printed = map { /^ (\S+)\n(.*)\z/s } grep { length } split /^\@\@/m, slurp_file("$dir/out");
for my $step (@steps)
{
	my $expected = (grep { $_ eq "$step.out" } @names) ? document_block($page, "$step.out") : '';
	is($printed{$step}, $expected, "$step: it prints what the page says");
}
is(slurp_file("$dir/err") =~ s/^.*(?:Terminated|Killed).*\n//mgr, '', 'nothing goes wrong');
is(join(' ', glob "$dir/empty/*"), '', 'nothing is left');

done_testing();
