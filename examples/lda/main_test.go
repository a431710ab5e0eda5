package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
	var last [2]string
	for i, corpus := range []string{write(t, "ldac", ldac.String()), write(t, "docword", fmt.Sprintf("60\n20\n%d\n%s", entries, uci.String()))} {
		out, err := output(t, "-corpus", corpus, "-vocab", words, "-topics", "2")
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(out), "\n")
		last[i] = lines[len(lines)-1]
		var score, iv, elbo float64
		if _, err := fmt.Sscanf(last[i], "heldout=%f iv=%f elbo=%f", &score, &iv, &elbo); err != nil || score != iv || !(elbo < 0) {
			t.Errorf("last line %q: %v", last[i], err)
		}
		if unigram := math.Log(20); score > unigram-0.5 {
			t.Errorf("score %v, of the frequencies about %v", score, unigram)
		}
		last[i], _, _ = strings.Cut(last[i], " cpu")
	}
	if last[0] != last[1] {
		t.Errorf("lda-c %q, docword %q", last[0], last[1])
	}
}

func TestErrors(t *testing.T) {
	corpus := write(t, "corpus", "1 0:3\n1 1:3\n")
	for _, args := range [][]string{
		{"extra"}, {"-corpus", "nowhere"}, {"-corpus", write(t, "bad", "x y z\n")}, {"-corpus", corpus, "-vocab", write(t, "vocab", "one\n")},
		{"-topics", "0"}, {"-passes", "-1"}, {"-passes", "NaN"}, {"-words", "0"}, {"-vocab", "x"}, {"-corpus", corpus, "-doc-prior", "-1"},
		{"-save", "/nonexistent/x"}, {"-corpus", write(t, "wide", "2 0:1 2147483646:1\n1 1:1\n2 0:1 1:1\n")},
	} {
		if out, err := output(t, args...); err == nil {
			t.Errorf("%v: no error, printed %s", args, out)
		}
	}
}
