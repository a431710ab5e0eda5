package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestMain runs the program itself if PGSVI_BEAM_MAIN is set.
func TestMain(m *testing.M) {
	if os.Getenv("PGSVI_BEAM_MAIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// program runs the program with the given arguments and returns its last line.
func program(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "PGSVI_BEAM_MAIN=1")
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, said.String())
	}
	if !strings.Contains(said.String(), "round 1: ELBO") {
		t.Errorf("%v: no rounds in\n%s", args, said.String())
	}
	return strings.TrimSpace(out.String())
}

var line = regexp.MustCompile(`^rounds=\d+ neg_elbo=\d+\.\d{8} gap_bound=(0\.00\d+|nan) ` +
	`heldout=(\d+\.\d+|nan) sha256=([0-9a-f]{64}) cpu_seconds=\d+\.\d+ peak_mb=(\d+|nan)$`)

// files writes a small LIBSVM file and a small lda-c file, and returns their names.
func files(t *testing.T) (rows, docs string) {
	t.Helper()
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(1, 2))
	var a, b strings.Builder
	for range 500 {
		x, y := rng.NormFloat64(), rng.NormFloat64()
		fmt.Fprintf(&a, "%+d 1:%.3f 3:%.3f\n", 2*int(rng.Float64()+0.5/(1+x*x))-1, x, y)
		w := rng.IntN(2) * 3
		fmt.Fprintf(&b, "3 %d:%d %d:%d %d:1\n", w, 1+rng.IntN(4), w+1, 1+rng.IntN(3), w+2)
	}
	rows, docs = filepath.Join(dir, "rows.svm"), filepath.Join(dir, "docs.dat")
	for name, text := range map[string]string{rows: a.String(), docs: b.String()} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return rows, docs
}

// TestProgram checks the last line of each model, and that shards and runners do not change it.
func TestProgram(t *testing.T) {
	rows, docs := files(t)
	for _, c := range []struct{ model, data, size string }{
		{"glm", rows, "0"}, {"sparse", rows, "15"}, {"ctm", docs, "2"},
	} {
		want := ""
		for _, how := range [][]string{{"-runner", "inprocess", "-shards", "1"},
			{"-runner", "inprocess", "-shards", "7"}, {"-runner", "prism", "-shards", "5"}} {
			out := program(t, append(how, "-model", c.model, "-data", c.data, "-size", c.size)...)
			m := line.FindStringSubmatch(out)
			if m == nil {
				t.Fatalf("%s, %v: %q", c.model, how, out)
			}
			if (m[1] == "nan") != (c.model == "ctm") || (m[2] == "nan") == (c.model == "ctm") {
				t.Errorf("%s: %s", c.model, out)
			}
			if want == "" {
				want = m[3]
			}
			if m[3] != want {
				t.Errorf("%s, %v: checksum %s, want %s", c.model, how, m[3], want)
			}
		}
	}
}

// TestMistakes checks that each mistake in the command line gives one line with the problem.
func TestMistakes(t *testing.T) {
	rows, docs := files(t)
	for _, c := range []struct{ args, want string }{
		{"", "beam: no -data; -h lists the flags"},
		{"-data " + rows + "x", rows + "x: no such file"},
		{"-data " + docs, filepath.Base(docs) + ": pgsvi: line 1"},
		{"-data " + rows + " -model foo", "want glm, sparse or ctm"},
		{"-data " + rows + " -shards -3", "Shards -3"},
		{"-data " + rows + " -resume", "without Dir"},
		{"-data " + rows + " -cols 2 -runner prism", "row 0 has column 2"},
		{"-data " + rows + " more", `unexpected argument "more"`},
		{"-data " + rows + " -runner spark", "job service endpoint"},
	} {
		cmd := exec.Command(os.Args[0], strings.Fields(c.args)...)
		cmd.Env = append(os.Environ(), "PGSVI_BEAM_MAIN=1")
		out, err := cmd.CombinedOutput()
		said := strings.TrimSpace(string(out))
		if err == nil || !strings.HasPrefix(said, "beam: ") || !strings.Contains(said, c.want) ||
			strings.Contains(said, "\n") || strings.Contains(said, "pgsvi: pgsvi") {
			t.Errorf("%s: %v\n%s", c.args, err, said)
		}
	}
}

// TestA9a checks the rounds and the ELBO of a9a.
func TestA9a(t *testing.T) {
	folder := os.Getenv("PGSVI_DATA")
	if folder == "" {
		t.Skip("PGSVI_DATA is not set")
	}
	out := program(t, "-data", filepath.Join(folder, "a9a", "a9a.gz"), "-shards", "64", "-runner",
		"inprocess")
	var rounds int
	var elbo, bound float64
	if _, err := fmt.Sscanf(out, "rounds=%d neg_elbo=%f gap_bound=%f", &rounds, &elbo,
		&bound); err != nil {
		t.Fatal(out, err)
	}
	if d := elbo - 10724.99614505; rounds > 4 || !(d >= -1e-6 && d <= 0.0101) || !(bound <= 0.01) {
		t.Error(out)
	}
}
