package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// output runs the program in a folder of its own, so that what it writes goes with the test, and
// returns what it printed.
func output(t *testing.T, args ...string) (string, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	out, err := os.Create("out")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	failure := run(context.Background(), args, out, out)
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text), failure
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Two kinds of documents, in both formats: the topics predict the words held out better than their
// frequencies.
func TestRun(t *testing.T) {
	var ldac, uci, vocab strings.Builder
	var entries int
	for n := range 60 {
		ldac.WriteString("10")
		for w := range 10 {
			v := w + 10*(n/2%2)
			fmt.Fprintf(&ldac, " %d:%d", v, 2+(n+w)%3)
			fmt.Fprintf(&uci, "%d %d %d\n", n+1, v+1, 2+(n+w)%3)
			entries++
		}
		ldac.WriteString("\n")
	}
	for w := range 20 {
		fmt.Fprintf(&vocab, "word%d\n", w)
	}
	words := write(t, "vocab", vocab.String())
	picture := filepath.Join(t.TempDir(), "ctm.png")
	var last [2]string
	for i, corpus := range []string{write(t, "ldac", ldac.String()), write(t, "docword", fmt.Sprintf("60\n20\n%d\n%s", entries, uci.String()))} {
		out, err := output(t, "-corpus", corpus, "-vocab", words, "-topics", "2", "-draws", "200", "-out", picture)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(out), "\n")
		last[i] = lines[len(lines)-1]
		var score, iv, passes float64
		if _, err := fmt.Sscanf(last[i], "heldout=%f iv=%f passes=%f", &score, &iv, &passes); err != nil || score != iv || passes != 10 {
			t.Errorf("last line %q: %v", last[i], err)
		}
		if unigram := math.Log(20); score > unigram-0.5 {
			t.Errorf("score %v, of the frequencies about %v", score, unigram)
		}
		last[i], _, _ = strings.Cut(last[i], " cpu")
		if info, err := os.Stat(picture); err != nil || info.Size() < 1000 {
			t.Errorf("picture: %v, %v", info, err)
		}
	}
	if last[0] != last[1] {
		t.Errorf("lda-c %q, docword %q", last[0], last[1])
	}
}

// No test may overwrite the committed picture: what is written without -out is written to the
// current folder.
func TestPictureIsKept(t *testing.T) {
	before, err := os.ReadFile("ctm.png")
	if err != nil {
		t.Fatal(err)
	}
	committed, err := filepath.Abs("ctm.png")
	if err != nil {
		t.Fatal(err)
	}
	var corpus strings.Builder
	for n := range 8 {
		fmt.Fprintf(&corpus, "2 %d:3 %d:2\n", n%4, 4+n%3)
	}
	if out, err := output(t, "-corpus", write(t, "corpus", corpus.String()), "-vocab", write(t, "vocab", "a\nb\nc\nd\ne\nf\ng\n"), "-topics", "2", "-draws", "10"); err != nil {
		t.Fatalf("%v, printed %s", err, out)
	}
	if after, err := os.ReadFile(committed); err != nil || !bytes.Equal(before, after) {
		t.Errorf("a test has overwritten %s (%v)", committed, err)
	}
}

func TestErrors(t *testing.T) {
	corpus := write(t, "corpus", "1 0:3\n1 1:3\n")
	for _, args := range [][]string{
		{"-method", "guess"}, {"-protocol", "mine"}, {"extra"}, {"-corpus", "nowhere"},
		{"-corpus", write(t, "bad", "x y z\n")}, {"-corpus", corpus, "-vocab", write(t, "vocab", "one\n")},
		{"-topics", "0"}, {"-passes", "-1"}, {"-passes", "NaN"}, {"-draws", "-1"}, {"-words", "0"}, {"-vocab", "x"},
		{"-out", "x.foo"}, {"-out", "/nonexistent/x.png"}, {"-save", "/nonexistent/x"},
		{"-corpus", write(t, "wide", "2 0:1 2147483646:1\n1 1:1\n2 0:1 1:1\n")},
	} {
		if out, err := output(t, args...); err == nil {
			t.Errorf("%v: no error, printed %s", args, out)
		}
		if left, err := os.ReadDir("."); err != nil || len(left) != 1 { // what it printed
			t.Errorf("%v: files were written: %v, %v", args, left, err)
		}
	}
}

func TestCentred(t *testing.T) {
	// A shift that all logits share does not count.
	s := mat.NewSymDense(3, []float64{6, 5, 5, 5, 6, 5, 5, 5, 6})
	if c := centred(s); math.Abs(c.At(0, 1)+0.5) > 1e-12 || c.At(2, 2) != 1 {
		t.Errorf("correlations %v", mat.Formatted(c))
	}
	if pairs := strongest(s, 10); len(pairs) != 3 {
		t.Errorf("pairs %v", pairs)
	}
	seen := map[int]bool{}
	for _, k := range around(s) {
		seen[k] = true
	}
	if len(seen) != 3 {
		t.Errorf("order %v", around(s))
	}
}
