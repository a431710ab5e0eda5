package data

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
)

// fileOfModel is the environment variable with the file of the model for another process.
const fileOfModel = "PGSVI_TEST_MODEL"

// bitsOf returns the bits of the answers for rows that are known, in a new group, or incomplete.
func bitsOf(t *testing.T, p *Predictor) string {
	t.Helper()
	var b strings.Builder
	for _, row := range []map[string]any{
		{"plan": "gold", "age": 44.5, "hour": 3, "shop": "s1"},
		{"plan": "basic", "age": nil, "hour": 23.5, "shop": "never seen"},
	} {
		a, err := p.Predict(row)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%016x %016x %016x %q\n", math.Float64bits(a.Mean), math.Float64bits(a.Lo),
			math.Float64bits(a.Hi), a.Notes)
	}
	return b.String()
}

// TestAnotherProcess checks that another process predicts the same bits from the file of a
// Predictor.
func TestAnotherProcess(t *testing.T) {
	if path := os.Getenv(fileOfModel); path != "" {
		p, err := LoadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Print(bitsOf(t, p))
		return
	}
	m := mustModel(t, tableOf(t, orders(200, 6)),
		"bought ~ plan + s(age, k=6) + s(hour, periodic) + (1 | shop)",
		yes, Number("age").Impute())
	_, p := mustFit(t, m, nil)
	path := filepath.Join(t.TempDir(), "m.pgsvi")
	if err := p.SaveFile(path); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, "-test.run=^TestAnotherProcess$")
	c.Env = append(os.Environ(), fileOfModel+"="+path)
	out, err := c.CombinedOutput()
	if want := bitsOf(t, p); err != nil || !strings.HasPrefix(string(out), want) {
		t.Errorf("%v\n%s\nwant\n%s", err, out, want)
	}
}

// TestLongFile checks that an error in the last line of a long file names the line, and that the
// memory does not grow with the file.
func TestLongFile(t *testing.T) {
	lines := map[bool]int{true: 200_000, false: 800_000}[testing.Short()]
	path := filepath.Join(t.TempDir(), "long.csv")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var block strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&block, "%d.5,shop %d,level %d,2020-01-%02d,%d\n", i*i, i%50, i%7, 1+i%28, i%2)
	}
	fmt.Fprintln(f, "amount,shop,level,day,y")
	for range lines / 1000 {
		if _, err := f.WriteString(block.String()); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Fprintln(f, "1.5,shop 1,level 1,2020-01-01")
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	_, err = ReadFile(path)
	runtime.ReadMemStats(&after)
	want := fmt.Sprintf("long.csv: line %d has 4 fields, but the first line has 5", lines+2)
	if !errors.Is(err, pgsvi.ErrShape) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	const most = 8 << 20 // a few buffers, and garbage of as much again
	if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > most {
		t.Errorf("the heap grew by %d bytes for a file of %d", grown, info.Size())
	}
}
