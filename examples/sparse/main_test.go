package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
)

// last returns the fields of the last line of what the program printed.
func last(t *testing.T, args ...string) map[string]float64 {
	t.Helper()
	var out bytes.Buffer
	if err := run(context.Background(), args, &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	fields := map[string]float64{}
	for _, f := range strings.Fields(lines[len(lines)-1]) {
		name, value, _ := strings.Cut(f, "=")
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("the last line has %q", f)
		}
		fields[name] = v
	}
	for _, name := range []string{"neg_elbo", "test_nats", "passes", "cpu_seconds", "peak_mb"} {
		if _, ok := fields[name]; !ok {
			t.Fatalf("the last line has no %s: %q", name, lines[len(lines)-1])
		}
	}
	return fields
}

// TestMade: of rows that are made up it learns more than the part of either label.
func TestMade(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sparse.png")
	f := last(t, "-rows", "4000", "-inducing", "60", "-out", file)
	if !(f["test_nats"] < 0.62) || f["rows"] != 4000 {
		t.Errorf("%v", f)
	}
	if info, err := os.Stat(file); err != nil || info.Size() == 0 {
		t.Errorf("picture: %v", err)
	}
}

// TestFiles: files may be packed, or binary, and their rows have the same answer.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	x, y := newField(2).rows(1500, false)
	var text bytes.Buffer
	for i, v := range y {
		fmt.Fprintf(&text, "%v,%v,%v\n", x.At(i, 0), x.At(i, 1), v)
	}
	plain, packed := filepath.Join(dir, "a.csv"), filepath.Join(dir, "a.csv.gz")
	var zip bytes.Buffer
	w := gzip.NewWriter(&zip)
	w.Write(text.Bytes())
	w.Close()
	for name, b := range map[string][]byte{plain: text.Bytes(), packed: zip.Bytes()} {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	binary := filepath.Join(dir, "a.rows")
	out, err := os.Create(binary)
	if err != nil {
		t.Fatal(err)
	}
	rows := data.NewRowWriter(out, 2, nil)
	for row, err := range pgsvi.Rows(x, y) {
		if err == nil {
			err = rows.Write(row)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(rows.Close(), out.Close()); err != nil {
		t.Fatal(err)
	}
	a := last(t, "-train", plain, "-test", packed, "-likelihood", "gaussian", "-inducing", "40", "-out", "")
	b := last(t, "-train", packed, "-test", plain, "-likelihood", "gaussian", "-inducing", "40", "-out", "")
	c := last(t, "-train", binary, "-test", plain, "-likelihood", "gaussian", "-inducing", "40", "-out", "")
	if a["neg_elbo"] != b["neg_elbo"] || a["neg_elbo"] != c["neg_elbo"] || !(a["test_nats"] < 2) {
		t.Errorf("%v, %v and %v", a, b, c)
	}
}

// TestErrors: what is wrong with the flags and files is said.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-train", "nowhere.csv"}, "nowhere.csv"},
		{[]string{"-train", "nowhere.rows"}, "nowhere.rows"},
		{[]string{"-likelihood", "cubic"}, "cubic"},
		{[]string{"-rows", "0"}, "0 rows"},
		{[]string{"-nothing"}, "nothing"},
	} {
		if err := run(context.Background(), append(c.args, "-out", ""), new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v", c.args, err)
		}
	}
}
