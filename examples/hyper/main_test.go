package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// last returns the fields of the last line of what the program printed.
func last(t *testing.T, args ...string) map[string]string {
	t.Helper()
	var out bytes.Buffer
	if err := run(context.Background(), args, &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	fields := map[string]string{}
	for _, f := range strings.Fields(lines[len(lines)-1]) {
		name, value, ok := strings.Cut(f, "=")
		if !ok {
			t.Fatalf("the last line has %q", f)
		}
		fields[name] = value
	}
	for _, name := range []string{"neg_elbo", "objective", "log_scale", "log_length", "evaluations", "cholesky", "test_nats", "seconds"} {
		if fields[name] == "" {
			t.Fatalf("the last line has no %s: %q", name, lines[len(lines)-1])
		}
	}
	return fields
}

// file writes rows of two columns and a response, and returns the name of the file.
func file(t *testing.T, name string, seed uint64) string {
	t.Helper()
	var text bytes.Buffer
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 60 {
		a, b := 4*rng.Float64(), 4*rng.Float64()
		fmt.Fprintf(&text, "%.6f,%.6f,%.6f\n", a, b, math.Sin(2*a)+0.1*rng.NormFloat64())
	}
	path := filepath.Join(t.TempDir(), name)
	if strings.HasSuffix(name, ".gz") {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		w.Write(text.Bytes())
		w.Close()
		text = packed
	}
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestFiles: of files of one's own the lengths say which column matters, packed or not, with one
// length or two.
func TestFiles(t *testing.T) {
	train, test := file(t, "train.csv.gz", 1), file(t, "test.csv", 2)
	one := last(t, "-train", train, "-test", test, "-likelihood", "gaussian", "-kernel", "matern52", "-out", "")
	two := last(t, "-train", train, "-test", test, "-likelihood", "gaussian", "-kernel", "se", "-ard", "-prior=false", "-out", "")
	var a, b float64
	if _, err := fmt.Sscanf(two["log_length"], "%g,%g", &a, &b); err != nil || b < a+1 || strings.Contains(one["log_length"], ",") {
		t.Errorf("lengths %q and %q, %v", one["log_length"], two["log_length"], err)
	}
	if two["objective"] != two["neg_elbo"] {
		t.Errorf("without priors the objective is %s and −ELBO %s", two["objective"], two["neg_elbo"])
	}
}

// TestErrors: what is wrong with the flags and files is said.
func TestErrors(t *testing.T) {
	good := file(t, "good.csv", 1)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-train", "nowhere.csv"}, "nowhere.csv"},
		{[]string{"-train", good, "-test", good, "-kernel", "cubic"}, "cubic"},
		{[]string{"-train", good, "-test", good, "-likelihood", "logit"}, "label"},
		{[]string{"-nothing"}, "nothing"},
	} {
		if err := run(context.Background(), append(c.args, "-out", ""), new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v", c.args, err)
		}
	}
}
