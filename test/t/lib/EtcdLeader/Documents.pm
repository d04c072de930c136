# The documents, as tests read them: pages, their blocks of code, and the
# comments before the blocks that say which test runs each.
#
#   <!-- test/t/FILE.pl: NAME -->    document_block(PAGE, NAME) of that test
#   <!-- example: WHY -->            no test runs it
package EtcdLeader::Documents;

use strict;
use warnings;

use Exporter 'import';
use File::Basename qw(basename dirname);
use PostgreSQL::Test::Utils;

our @EXPORT = qw(document document_block document_blocks document_installation document_pages documents_top);

my $top = dirname(__FILE__) . '/../../../..';

# The directory of the sources.
sub documents_top { return $top }

# Every page: paths below the sources.
sub document_pages
{
	return map { s{^\Q$top\E/}{}r } sort glob("$top/*.md $top/doc/*.md $top/doc/*/*.md $top/src/README.md $top/test/*/README.md");
}

sub document { my ($page) = @_; return slurp_file("$top/$page") }

# The blocks of code of a page, as hashes: line, language, text, and of the
# comment before it: test and name, or example; none of them if there is none.
sub document_blocks
{
	my ($page) = @_;
	my ($text, $line, @blocks, $open, $comment) = (document($page), 0);
	for (split /^/, $text)
	{
		$line++;
		if ($open)
		{
			if (/^\s*```\s*$/) { push @blocks, $open; undef $open; undef $comment; }
			else { $open->{text} .= s/^ {0,$open->{indent}}//r; }
		}
		elsif (/^( *)```(\w*)\s*$/)
		{
			$open = { line => $line, indent => length $1, language => $2, text => '', %{ $comment // {} } };
		}
		elsif (/^\s*<!-- example(?:: .*)? -->$/)       { $comment = { example => 1 } }
		elsif (/^\s*<!-- (test\/\S+): (\S+) -->$/)     { $comment = { test => $1, name => $2 } }
		else                                           { undef $comment }
	}
	die "$page: a block has no end" if $open;
	return @blocks;
}

# What creates the extension in the database "postgres", as README has it.
sub document_installation
{
	my ($block) = grep { ($_->{name} // '') eq 'extension' } document_blocks('README.md');
	return $block->{text};
}

# The text of a block that names the calling test; dies if there is none.
sub document_block
{
	my ($page, $name) = @_;
	my $caller = basename($0);
	my ($block) = grep { ($_->{name} // '') eq $name } document_blocks($page);
	die "$page has no block $name" unless $block;
	die "$page: block $name names $block->{test}, not $caller" unless basename($block->{test}) eq $caller;
	return $block->{text};
}

1;
