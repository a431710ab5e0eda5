package main

import (
	"context"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestGrowth fits every part at its smallest size, and writes, reads, draws and tabulates it.
func TestGrowth(t *testing.T) {
	if testing.Short() {
		t.Skip("fits every model at two sizes")
	}
	t.Parallel()
	var rows []row
	for _, p := range parts {
		for _, size := range p.sizes[:2] {
			r, err := p.measure(context.Background(), size)
			if err != nil {
				t.Fatalf("%s of size %d: %v", p.name, size, err)
			}
			if r.passes < 1 || r.data <= 0 || r.peak < r.data {
				t.Errorf("%s of size %d: %+v", p.name, size, r)
			}
			r.seconds = p.work(float64(size)) * 1e-9 * r.passes // time of the arithmetic alone
			rows = append(rows, r)
		}
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "growth.csv")
	if err := writeCSV(file, rows); err != nil {
		t.Fatal(err)
	}
	again, err := readCSV(file)
	if err != nil {
		t.Fatal(err)
	}
	o := &options{out: dir, readme: filepath.Join(dir, "README.md"), stdout: io.Discard}
	if err := os.WriteFile(o.readme, []byte("<!-- begin growth -->\n<!-- end growth -->\n"),
		0o666); err != nil {
		t.Fatal(err)
	}
	if err := o.publish(again); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(o.readme)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "| 500 |") ||
		!strings.Contains(string(text), "| 3.00 | 3.00 |") {
		t.Errorf("the table is\n%s", text)
	}
	if picture, err := os.Stat(filepath.Join(dir, "growth.png")); err != nil ||
		picture.Size() < 5000 {
		t.Errorf("the picture: %v, %v", picture, err)
	}
}

func TestSlope(t *testing.T) {
	t.Parallel()
	if got := slope(10, 40, 2, 32); math.Abs(got-2) > 1e-12 {
		t.Errorf("the slope is %v, want 2", got)
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"-only gq", "-repeats 0", "x", "-nonsense"} {
		if _, err := parseFlags(strings.Fields(args), io.Discard, io.Discard); err == nil {
			t.Errorf("%s: no error", args)
		}
	}
	for _, text := range []string{"gp,0,1,1,1", "gq,1,1,1,1,1", "gp,x,1,1,1,1",
		"gp,1,nan,1,1,1\ngp,1,-1,1,1,1"} {
		if _, err := parseRows(strings.NewReader(text)); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}
