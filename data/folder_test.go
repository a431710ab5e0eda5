package data

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
	"golang.org/x/text/unicode/norm"
)

// TestReadCorpusByName checks that every kind of corpus is detected by its name and has the same
// counts.
func TestReadCorpusByName(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	texts := []string{"apple pear apple", "apple plum", "pear apple plum", "pear plum plum",
		"sun moon", "sun moon", "moon sun", "stars"}
	for i, text := range texts {
		write(filepath.Join("folder", string(rune('a'+i))+".txt"), text)
	}
	write("folder/.hidden", "hidden hidden")
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	if _, err := io.WriteString(zip, texts[0]); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	write("folder/a.txt", packed.String())
	for _, path := range []string{filepath.Join(dir, "folder"),
		write("lines.txt", strings.Join(texts, "\n")+"\n\n")} {
		c, err := ReadCorpus(path, "")
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(c.Vocab, " "); len(c.Docs) != 8 ||
			got != "apple moon pear plum sun" {
			t.Errorf("%s: %d documents of %s", path, len(c.Docs), got)
		}
	}
	vocab := write("vocab", "apple\npear\nplum\n")
	for _, path := range []string{
		write("corpus.ldac", "2 0:2 1:1\n1 1:3\n"),
		write("docword.small.txt", "2\n3\n3\n1 1 2\n1 2 1\n2 2 3\n"),
		write("corpus.mtx",
			"%%MatrixMarket matrix coordinate integer general\n2 3 3\n1 1 2\n1 2 1\n2 2 3\n"),
	} {
		c, err := ReadCorpus(path, vocab)
		if err != nil {
			t.Fatal(err)
		}
		if c.Terms != 3 || len(c.Docs) != 2 || c.Word(0) != "apple" {
			t.Errorf("%s: %d documents of %d words, %q", path, len(c.Docs), c.Terms, c.Vocab)
		}
	}
	if _, err := ReadCorpus(write("large.ldac", "1 7:1\n"), vocab); !errors.Is(err,
		pgsvi.ErrShape) {
		t.Error(err)
	}
	if _, err := ReadCorpus(write("empty.txt", "\n"), ""); !errors.Is(err, pgsvi.ErrEmpty) {
		t.Error(err)
	}
	if _, err := ReadCorpus(write("few.txt", "sun moon\nsun moon\n"), ""); !errors.Is(err,
		pgsvi.ErrEmpty) || !strings.Contains(err.Error(), "few.txt has 2 documents") {
		t.Errorf("no words: %v", err)
	}
	if _, err := ReadCorpus(filepath.Join(dir, "none"), ""); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestWithoutRoff checks that manual pages keep their text and lose the markup.
func TestWithoutRoff(t *testing.T) {
	for _, c := range []struct{ name, page, want string }{
		{"man", `'\" t
.\" A comment of the author
.TH APPLE 1 "2020\-01\-01" "Fruit 2.0" "Orchard"
.SH NAME
apple \- a \fBround\fP fruit
.SH "SEE ALSO"
.BR pear (1),
.IR sweet "" ness
.TP 8
.BI \-\-peel= KNIFE
Peels \fIthin\fR\|ly, don\(aqt \s-1SMALL\s0 \s+2big\s10ger\s0. \" hidden
.IP \(bu 4
caf\('e na\[:i]ve \[u00FC]ber pear\(emplum \f[CW]code\f[] \f(CBmono\fP
.sp 2
.if n .ds Hidden secret
.de Macro
hidden words \\$1
..
.ig
hidden, too
..
.nf
	a\ b\~c \h'3n'tab\w'gone'le \*(lqquote\*(rq \n(.fnumber \&.dot
.fi
'br
.UNKNOWN kept
`, `NAME apple a round fruit SEE ALSO pear 1 sweetness peel KNIFE Peels thinly don't SMALL bigger
café naïve über pear plum code mono a b c table quote number dot kept`},
		{"mdoc", `.Dd January 1, 2020
.Dt PEAR 8
.Os
.Sh NAME
.Nm pear
.Nd "green fruit"
.Sh SYNOPSIS
.Nm
.Op Fl v Ns Ar erbose
.Bl -tag -width indent
.It Fl f Ar file
Reads
.Pa /etc/pear ,
see
.Xr apple 1 .
.El
`, `NAME pear green fruit SYNOPSIS v erbose f file Reads etc pear see apple 1`},
		{"preprocessors", `.TH PLUM 3
Before
.TS
allbox tab(:);
lb l
l l.
Name	Size
_
round	T{
.B large
T}
.TE
middle
.EQ
x sup 2 over alpha
.EN
after
`, `Before Name Size round large middle after`},
		{"pod2man", `.\" Automatically generated
.de Sp \" space
.if t .sp .5v
..
.ie n \{\
.    ds -- \(*W-
.    ds C\` + "`" + ` ""
'br\}
.el\{\
.    ds -- \|\(em\|
'br\}
.IX Title "FIG 1"
.de1 INDENT
\\$1 \\n[an-margin]
..
.if t \
words of a condition
.TH FIG 1 "2020" "perl" "Pod"
\&\f(CW\*(C` + "`" + `fig\*(C'\fR doesn\*(Aqt rot\*(--ever
`, `fig doesn't rot ever`},
		{"another page", ".so man1/apple.1\n", ""},
		{"plain", "The letter .TH is not \\fBmarkup\\fR here.\n.B nor here\n",
			"The letter TH is not fBmarkup fR here B nor here"},
		{"list", ".hidden files\n.profile and others\n", "hidden files profile and others"},
		{"truncated", ".TH X 1\nend\\", "end"},
	} {
		words := func(text string) string {
			return strings.Join(strings.FieldsFunc(norm.NFKC.String(text),
				func(r rune) bool { return !inWord(r) }), " ")
		}
		if got, want := words(withoutRoff(c.page)), words(c.want); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, want)
		}
	}
	dir := t.TempDir()
	for i := range 8 {
		page := []byte(".TH APPLE 1\n.SH NAME\n\\fBapple\\fP \\(bu fruit\n")
		switch {
		case i >= 4:
			page = []byte("text")
		case i > 0:
			page = zipped(page)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), page, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := ReadCorpus(dir, "")
	if err != nil || strings.Join(b.Vocab, " ") != "apple fruit name text" {
		t.Errorf("a folder of pages: %v, %v", b, err)
	}
	// Truncated escapes must not panic.
	page := ".TH X 1\n.SH \"a\" b\n\\f(CW\\[u00FC]\\(bu\\*[x]\\s+1\\s'10'\\h'2'" +
		"\\n(ab\\e\n.IP \\(bu\n.TS\nl.\na\n"
	for i := range page {
		withoutRoff(page[:i])
		withoutRoff(".TH\n" + page[i:])
	}
}

// TestReadDocuments checks that new documents get the numbers of the words of the model, and names.
func TestReadDocuments(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	vocab := []string{"plum", "apple", "pear"}
	write("folder/b", "pear kiwi apple pear")
	write("folder/a", "kiwi")
	for _, c := range []struct{ path, names string }{
		{filepath.Join(dir, "folder"), "a b"},
		{write("lines.txt", "kiwi\n\npear kiwi apple pear\n"), "1 3"},
		{write("numbers.ldac", "0\n2 1:1 2:2\n"), "1 2"},
	} {
		got, names, err := ReadDocuments(ctx, c.path, 3, vocab)
		if err != nil || strings.Join(names, " ") != c.names || got.Terms != 3 || len(got.Docs) != 2 ||
			len(got.Docs[0].Words) != 0 || fmt.Sprint(got.Docs[1]) != "{[1 2] [1 2]}" {
			t.Errorf("%s: %v, %v, %v", c.path, got, names, err)
		}
	}
	for _, c := range []struct {
		path  string
		vocab []string
		is    error
	}{
		{filepath.Join(dir, "none"), vocab, os.ErrNotExist},
		{filepath.Join(dir, "lines.txt"), nil, pgsvi.ErrParam},
		{write("empty.txt", "\n"), vocab, pgsvi.ErrEmpty},
		{write("large.ldac", "1 3:1\n"), vocab, pgsvi.ErrShape},
	} {
		if _, _, err := ReadDocuments(ctx, c.path, 3, c.vocab); !errors.Is(err, c.is) {
			t.Errorf("%s: %v, want %v", c.path, err, c.is)
		}
	}
}
