# /status in a browser.  Chromium renders it in the size of a desktop and of a phone,
# and loads nothing else.  PAGE_SCREENSHOT=FILE keeps a picture of it.
use EtcdLeader::Test;
use EtcdLeader::Http;

my $etcd = EtcdLeader::Etcd->new;
my (%port, %node);
for my $name (qw(pg1 pg2 pg3))
{
	$port{$name} = PostgreSQL::Test::Cluster::get_free_port();
	$node{$name} = EtcdLeader::Instance->create($name, etcd => $etcd,
		settings => { elections => 'shop,reports', http_listen => "127.0.0.1:$port{$name}" });
	$name eq 'pg1' ? $node{$name}->wait_until_leader : $node{$name}->wait_until_candidate;
}
$node{pg1}->wait_until_leader('reports');
$node{pg1}->value(q{SELECT etcd_resign('reports')});
$node{pg2}->wait_until_leader('reports');
poll_ok(10, sub { (http_get($port{pg1}, '/status'))[2] =~ /pg3/ }, 'the page has the queue');

# Chromium's result for the page of an instance: its DOM, or a picture.
sub chromium
{
	my ($name, @args) = @_;
	my ($out, $err) = ('', '');
	my $dir = PostgreSQL::Test::Utils::tempdir('chromium');
	local $ENV{HOME} = $dir;
	IPC::Run::run([ 'timeout', '60', 'chromium', '--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--hide-scrollbars',
			"--user-data-dir=$dir", @args, "http://127.0.0.1:$port{$name}/status" ], '<', \undef, '>', \$out, '2>', \$err)
	  or diag($err);
	return $out;
}

my $dom = chromium('pg1', '--dump-dom');
like($dom, qr/<title>pg1: leader<\/title>/, 'the title');
like($dom, qr/Election shop.*This instance leads.*Election reports.*pg2 leads/s, 'the leaders of both elections');
like($dom, qr/<td class="">pg3<\/td>/, 'the queue');
like($dom, qr/<td>unelected<\/td>/, 'the events');
like(chromium('pg2', '--dump-dom'), qr/Election shop.*pg1 leads.*Election reports.*This instance leads/s, 'the page of another instance');

# On a phone the page is not wider than the screen.  Then a wider window gives the same
# picture, with more space at the right.
my $shots = PostgreSQL::Test::Utils::tempdir('shots');
for my $screen ([ 'desk', 1000, 1000 ], [ 'phone', 390, 1100 ])
{
	my ($what, $width, $height) = @$screen;
	my $file = "$shots/$what.png";
	chromium('pg1', "--window-size=$width,$height", "--screenshot=$file");
	ok(-s $file, "there is a picture on a $what");
	next unless -s $file;
	my ($w, $h) = unpack 'x16 N N', slurp_file($file);
	is("$w $h", "$width $height", "the picture has the size of a $what");
	cmp_ok(-s $file, '>', 10_000, 'the picture is not empty');
}
if ($ENV{PAGE_SCREENSHOT} && open my $out, '>:raw', $ENV{PAGE_SCREENSHOT})
{
	print $out slurp_file("$shots/phone.png");
	close $out;
}
is($_->log_count('PANIC|FATAL'), 0, $_->name . ': nothing in the log') for values %node;
done_testing();
