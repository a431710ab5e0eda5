package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// raw returns the first rune in a text that may control a terminal.
func raw(text string) (at string, found bool) {
	for i, r := range text {
		if r == '\n' || r == '\t' {
			continue
		}
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) ||
			r == utf8.RuneError && !strings.HasPrefix(text[i:], "\ufffd") {
			return fmt.Sprintf("%q", text[max(0, i-40):min(len(text), i+20)]), true
		}
	}
	return "", false
}

// TestTerminal checks that every verb escapes the names of tables, files, classes and words on a
// terminal.
func TestTerminal(t *testing.T) {
	dir := t.TempDir()
	const csi, turn = "\x1b[2J\u009b31m", "\u202egnp\u2066"
	rng := rand.New(rand.NewPCG(6, 6))
	var b strings.Builder
	fmt.Fprintf(&b, "plan%s,ag%se,si\u200ez\u061ce,y\n", csi, turn)
	for i := range 120 {
		fmt.Fprintf(&b, "%s,%.3f,%d,%s\n", []string{"go" + csi + "ld", "ba" + turn}[i%2],
			rng.NormFloat64(), i%7, []string{"n\x1bo", "y\u0085es", "may\x07be"}[rng.IntN(3)])
	}
	path := write(t, dir, "t\x1b[31m.csv", b.String())
	words := write(t, dir, "w\x1b.txt", "ca\x1b[2Jt\ndo\u202eg\nbird\n")
	corpus := write(t, dir, "docs\x1b.ldac", strings.Repeat("2 0:3 1:2\n2 1:1 2:4\n", 10))
	numbers := write(t, dir, "numbers.csv", "x,y\n1\x1b,2\n3,4\nno\u202en,5\n")
	model := filepath.Join(dir, "model\x1b")
	for _, c := range []struct {
		status int
		args   []string
	}{
		{0, []string{"check", path}},
		{0, []string{"fit", "-formula", "y ~ .", "-o", model, path}},
		{0, []string{"gp", "-learn=false", path}},
		{0, []string{"predict", "-score", model, path}},
		{1, []string{"predict", model, numbers}},
		{0, []string{"check", numbers}},
		{2, []string{"fit", "-formula", "y ~ plan\x1b + `pl\u202ean`", path}},
		{0, []string{"topics", "-topics", "2", "-vocab", words, corpus}},
		{1, []string{"check", path + "\u202e\xff"}}, {2, []string{"ch\x1beck"}},
		{2, []string{"check", "-fo\x1brmat", "x", path}},
		{2, []string{"check", "-format", "x\x1b", path}},
		{1, []string{"predict", path, path}},
	} {
		var out, stderr bytes.Buffer
		v := &command{ctx: context.Background(), stdout: &out, stderr: &stderr, outTerminal: true}
		if status := v.run(c.args); status != c.status {
			t.Errorf("%q: status %d, want %d: %s", c.args, status, c.status, stderr.String())
		}
		for _, text := range []string{out.String(), stderr.String()} {
			if at, found := raw(text); found {
				t.Errorf("%q: %s", c.args, at)
			}
		}
	}
	status, out, _ := run(t, "predict", model, path) // unchanged, because it is no terminal
	if want := "P(may\x07be),P(n\x1bo),P(y\u0085es)"; status != 0 || !strings.Contains(out, want) {
		t.Errorf("%d, no %q in %.300q", status, want, out)
	}
}

// TestOutputFails checks that a failed write of the output is an error that names the output.
func TestOutputFails(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	dir, model := trained(t)
	path := write(t, dir, "customers.csv", table(customers, 0, 1, 2))
	real := write(t, dir, "real.csv", "x,y\n1,2.5\n2,2.5\n3,4.5\n4,5.5\n")
	corpus := write(t, dir, "a.txt", strings.Repeat("cat dog cow\ndog cow cat\npig ox\n", 9))
	for _, args := range [][]string{{"check", path}, {"fit", "-formula", "y ~ x", real},
		{"gp", real}, {"topics", "-topics", "2", corpus}, {"predict", model, path}, {"-h"},
		{"-version"}} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		var stderr bytes.Buffer
		c := &command{ctx: context.Background(), stdout: full, stderr: &stderr}
		if status := c.run(args); status != 1 || !strings.Contains(stderr.String(),
			"standard output") {
			t.Errorf("%q: %d %s", args, status, stderr.String())
		}
		full.Close()
	}
	undecided := visits(t, 100)
	none := filepath.Join(dir, "none", "file")
	if status, out, stderr := run(t, "check", "-columns", none, undecided); status != 1 ||
		!strings.Contains(stderr, none) || strings.Contains(out, "are in") {
		t.Errorf("check -columns %s: %d %s%s", none, status, out, stderr)
	}
	status, _, stderr := run(t, "fit", "-formula", "y ~ x", "-o", "/dev/full", real)
	if status != 1 || !strings.Contains(stderr, "/dev/full") {
		t.Errorf("fit -o /dev/full: %d %s", status, stderr)
	}
}

// TestOutputLink checks that a model is written to the target of a symbolic link.
func TestOutputLink(t *testing.T) {
	dir := t.TempDir()
	real := write(t, dir, "real.csv", "x,y\n1,2.5\n2,2.5\n3,4.5\n4,5.5\n")
	link := filepath.Join(dir, "link")
	if err := os.Symlink("model", link); err != nil {
		t.Skip(err)
	}
	for range 2 {
		if status, _, stderr := run(t, "fit", "-formula", "y ~ x", "-o", link, real); status != 0 {
			t.Fatalf("fit: %d %s", status, stderr)
		}
		if to, err := os.Readlink(link); err != nil || to != "model" {
			t.Errorf("the link is %q: %v", to, err)
		}
		if info, err := os.Stat(filepath.Join(dir, "model")); err != nil || info.Size() == 0 {
			t.Error(info, err)
		}
	}
}

// TestNoGo checks that messages name flags instead of Go options.
func TestNoGo(t *testing.T) {
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(3, 1))
	var far strings.Builder
	far.WriteString("x,y\n")
	for range 50 {
		fmt.Fprintf(&far, "%.3f,%.3f\n", rng.NormFloat64(), 1e6+rng.NormFloat64())
	}
	path := write(t, dir, "far.csv", far.String())
	spaces := write(t, dir, "spaces.csv", "x y\n1 2\n2 3\n")
	mixed, counts := write(t, dir, "mixed.csv", "x,2\n1,2\n2,3\n"),
		write(t, dir, "counts.csv", "x,y\n1,2\n2,3\n3,9\n4,3\n")
	for _, c := range []struct {
		args   string
		status int
		want   string
	}{
		{"fit|-formula|y ~ x|-intercept-sd|10|" + path, 0, "set -intercept-sd"},
		{"fit|-formula|y ~ x|-intercept-sd|inf|" + path, 2, "-intercept-sd is +Inf"},
		{"fit|-formula|y ~ x|-prior-sd|1e308|" + path, 1, "change -prior-sd"},
		{"gp|" + path, 0, "subtract the mean"},
		{"fit|-formula|y ~ x|" + mixed, 1, "set -format header=yes"},
		{"check|" + spaces, 2, "set -format separator=…"},
		{"check|-format|separator=\"|" + spaces, 2, "-format has"},
		{"fit|-formula|y ~ x|" + counts, 1, "poisson or negbinomial for counts"},
	} {
		status, out, stderr := run(t, strings.Split(c.args, "|")...)
		all := out + stderr
		if status != c.status || !strings.Contains(all, c.want) {
			t.Errorf("%s: %d, want %d and %q:\n%s", c.args, status, c.status, c.want, all)
		}
		for _, name := range []string{"Options", "Solver", "Format.", "{}", "Autoscale", "pgsvi.S"} {
			if strings.Contains(all, name) {
				t.Errorf("%s: %s in\n%s", c.args, name, all)
			}
		}
	}
}
