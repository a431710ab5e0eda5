package blas

import (
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/bench/tables"
	"golang.org/x/sys/cpu"
)

var (
	csvFile = flag.String("csv", "", "`file` for the rates that BenchmarkKernels measures")
	readme  = flag.String("readme", "", "Markdown `file` for the table of -csv")
)

// A line is a line of kernels.csv: the rates in Gflop/s of a kernel of the library with the given
// vectors, and of the peer, for n rows.
type line struct {
	kernel    string
	n         int
	vectors   string
	peer      string
	own, rate float64
}

var header = []string{"kernel", "n", "vectors", "peer", "gflops", "peer_gflops", "ratio"}

// vectors returns the vectors that the inner loops of the library use on this machine.
func vectors() string {
	switch {
	case cpu.X86.HasAVX2 && cpu.X86.HasAVX512F:
		return "AVX-512"
	case cpu.X86.HasAVX2:
		return "AVX2"
	}
	return "none of amd64"
}

// publish adds l to the file of -csv, and writes the table to the file of -readme.
func publish(b *testing.B, l line) {
	if *csvFile == "" {
		return
	}
	lines, err := readLines(*csvFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.Fatal(err)
	}
	same := func(o line) bool {
		return o.kernel == l.kernel && o.n == l.n &&
			o.vectors == l.vectors
	}
	if i := slices.IndexFunc(lines, same); i >= 0 {
		lines[i] = l
	} else {
		lines = append(lines, l)
	}
	var text strings.Builder
	w := csv.NewWriter(&text)
	w.Write(header)
	for _, l := range lines {
		f := func(x float64) string { return strconv.FormatFloat(x, 'f', 2, 64) }
		w.Write([]string{l.kernel, strconv.Itoa(l.n), l.vectors, l.peer, f(l.own), f(l.rate),
			f(l.own / l.rate)})
	}
	w.Flush()
	if err := os.WriteFile(*csvFile, []byte(text.String()), 0o666); err != nil {
		b.Fatal(err)
	}
	if *readme != "" {
		if lines, err = readLines(*csvFile); err != nil { // as rounded in the file
			b.Fatal(err)
		}
		if err := tables.Replace(*readme, map[string]string{"kernels": table(lines)}); err != nil {
			b.Fatal(err)
		}
	}
}

func readLines(file string) ([]line, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	records, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, err
	}
	var lines []line
	for _, r := range records[1:] {
		l := line{kernel: r[0], vectors: r[2], peer: r[3]}
		var bad [3]error
		l.n, bad[0] = strconv.Atoi(r[1])
		l.own, bad[1] = strconv.ParseFloat(r[4], 64)
		l.rate, bad[2] = strconv.ParseFloat(r[5], 64)
		if err := errors.Join(bad[:]...); err != nil {
			return nil, err
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// table returns a row for each kernel and size. For each type of vectors it has the rates of the
// library and of the peer in the same run.
func table(lines []line) string {
	var kinds []string
	for _, l := range lines {
		if !slices.Contains(kinds, l.vectors) {
			kinds = append(kinds, l.vectors)
		}
	}
	head, rows := []string{"", "n"}, map[string][]string{}
	for _, kind := range kinds {
		head = append(head, kind, "peer", "ratio")
	}
	var order []string
	for _, l := range lines {
		key := fmt.Sprintf("%s %d", l.kernel, l.n)
		if rows[key] == nil {
			order = append(order, key)
			rows[key] = append([]string{l.kernel, strconv.Itoa(l.n)},
				make([]string, 3*len(kinds))...)
		}
		at := 2 + 3*slices.Index(kinds, l.vectors)
		copy(rows[key][at:],
			[]string{fmt.Sprintf("%.1f", l.own), fmt.Sprintf("%.1f", l.rate),
				fmt.Sprintf("%.2f", l.own/l.rate)})
	}
	slices.SortStableFunc(order,
		func(a, b string) int { return strings.Compare(rows[a][0], rows[b][0]) })
	var all [][]string
	for _, key := range order {
		all = append(all, rows[key])
	}
	return tables.Markdown(head, all)
}

// TestTable checks that the table of the README matches the stored measurements.
func TestTable(t *testing.T) {
	t.Parallel()
	lines, err := readLines("kernels.csv")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if _, block, _, ok := tables.Lookup(string(text), "kernels"); !ok ||
		strings.TrimSpace(block) != strings.TrimSpace(table(lines)) {
		t.Errorf("the README has\n%s\nthe measurements\n%s", block, table(lines))
	}
}
