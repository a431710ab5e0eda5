package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// results is the CSV file of a figure. The rows of a run are written when it ends. -resume keeps
// the runs of an earlier file, and -draw uses only these.
type results struct {
	file   string
	header []string
	key    int  // the number of columns that name a run
	draw   bool // whether to run nothing
	runs   map[string][][]string
	names  [][]string // names of the runs in the file, in order
}

// results opens file in the folder of o. The first key columns name a run.
func (o *options) results(file string, key int, header ...string) (*results, error) {
	r := &results{file: filepath.Join(o.out, file), header: header, key: key, draw: o.draw,
		runs: make(map[string][][]string)}
	if !o.resume && !o.draw {
		return r, os.WriteFile(r.file, r.encode([][]string{header}), 0o666)
	}
	old, err := os.ReadFile(r.file)
	if errors.Is(err, fs.ErrNotExist) && !o.draw {
		return r, os.WriteFile(r.file, r.encode([][]string{header}), 0o666)
	}
	if err != nil {
		return nil, err
	}
	if !bytes.HasSuffix(old, []byte("\n")) {
		return nil, fmt.Errorf("%s ends within a row; remove the incomplete row", r.file)
	}
	rows, err := csv.NewReader(bytes.NewReader(old)).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.file, err)
	}
	if len(rows) == 0 || !slices.Equal(rows[0], header) {
		return nil, fmt.Errorf(
			"%s is not a table of this figure; remove it, or omit -resume and -draw", r.file)
	}
	for _, row := range rows[1:] {
		name := strings.Join(row[:key], ",")
		if r.runs[name] == nil {
			r.names = append(r.names, row[:key])
		}
		r.runs[name] = append(r.runs[name], row)
	}
	return r, nil
}

// run returns the rows of the named run. It calls measure if the file has no such run. With -draw
// it then returns nil.
func (r *results) run(name []string, measure func() ([][]string, error)) ([][]string, error) {
	if rows, ok := r.runs[strings.Join(name, ",")]; ok || r.draw {
		return rows, nil
	}
	rows, err := measure()
	if err != nil {
		return nil, err
	}
	for i, row := range rows {
		rows[i] = slices.Concat(name, row)
	}
	f, err := os.OpenFile(r.file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	if _, err := f.Write(r.encode(rows)); err != nil {
		f.Close()
		return nil, err
	}
	return rows, f.Close()
}

// stored returns the names of the runs in the file that begin with prefix.
func (r *results) stored(prefix ...string) [][]string {
	var all [][]string
	for _, name := range r.names {
		if slices.Equal(name[:len(prefix)], prefix) {
			all = append(all, name)
		}
	}
	return all
}

// column returns the distinct values in a column of names, in order.
func column(names [][]string, i int) []string {
	var all []string
	for _, name := range names {
		if !slices.Contains(all, name[i]) {
			all = append(all, name[i])
		}
	}
	return all
}

// reference returns a number with which runs are compared, such as the optimum. The table stores it
// as a run with that name at pass 0.
func (r *results) reference(name []string, column string, measure func() float64) (float64, error) {
	rows, err := r.run(name, func() ([][]string, error) {
		row := []string{"0"}
		for _, c := range r.header[r.key+1:] {
			v := math.NaN()
			if c == column {
				v = measure()
			}
			row = append(row, number(v))
		}
		return [][]string{row}, nil
	})
	if err != nil {
		return 0, err
	}
	if rows == nil {
		return 0, fmt.Errorf("%s has no row of %v", r.file, name)
	}
	v, err := strconv.ParseFloat(rows[0][slices.Index(r.header, column)], 64)
	if err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
		return 0, fmt.Errorf("%s: %v of %v", r.file, rows[0], name)
	}
	return v, nil
}

func (r *results) encode(rows [][]string) []byte {
	var b bytes.Buffer
	csv.NewWriter(&b).WriteAll(rows) // a buffer returns no errors
	return b.Bytes()
}

// A sample is the state of a run after a pass. If the run fails in the pass, all other fields are
// NaN.
type sample struct {
	pass    int
	seconds float64 // seconds of the steps alone
	loss    float64 // −ELBO in figure 2, held-out nats per word in figure 3
	bits    float64 // test log loss, in figure 2
}

// field returns the value of s in a column.
func (s *sample) field(column string) *float64 {
	switch column {
	case "seconds":
		return &s.seconds
	case "logloss_bits":
		return &s.bits
	}
	return &s.loss
}

// samples is like run for figures 2 and 3, whose runs consist of samples. measure adds the samples.
// It returns the pass that the run reached and the error that ended it, which samples prints. A run
// in the table must have the same number of passes.
func (r *results) samples(ctx context.Context, stdout io.Writer, name []string, passes int,
	measure func(add func(sample)) (pass int, err error)) ([]sample, error) {
	columns := r.header[r.key+1:]
	rows, err := r.run(name, func() ([][]string, error) {
		var rows [][]string
		add := func(s sample) {
			row := []string{strconv.Itoa(s.pass)}
			for _, c := range columns {
				row = append(row, number(*s.field(c)))
			}
			rows = append(rows, row)
		}
		if pass, err := measure(add); err != nil && ctx.Err() == nil {
			fmt.Fprintf(stdout, "%s: in pass %d: %v\n", strings.Join(name, ", "), pass+1, err)
			nan := math.NaN()
			add(sample{pass + 1, nan, nan, nan})
		}
		return rows, context.Cause(ctx)
	})
	if err != nil || rows == nil {
		return nil, err
	}
	run := make([]sample, len(rows))
	for i, row := range rows {
		row = row[r.key:]
		if run[i].pass, err = strconv.Atoi(row[0]); err != nil || run[i].pass < 1 {
			return nil, fmt.Errorf("%s: pass %q of %v", r.file, row[0], name)
		}
		for k, c := range columns {
			v, err := strconv.ParseFloat(row[1+k], 64)
			if err != nil || math.IsInf(v, 0) || c == "seconds" && v < 0 {
				return nil,
					fmt.Errorf("%s: %s is %q in pass %d of %v", r.file, c, row[1+k], run[i].pass,
						name)
			}
			*run[i].field(c) = v
		}
	}
	if end := run[len(run)-1]; end.pass != passes && !math.IsNaN(end.loss) && !r.draw {
		return nil, fmt.Errorf(
			"%s: %v has %d passes and not %d; choose another folder, or these -passes", r.file,
			name, end.pass, passes)
	}
	return run, nil
}

// runs holds the runs of a method by seed.
type runs [][]sample

// last returns the last pass.
func (rs runs) last() int {
	last := 0
	for _, run := range rs {
		last = max(last, run[len(run)-1].pass)
	}
	return last
}

// passes returns the evaluated passes in order.
func (rs runs) passes() []int {
	var all []int
	for _, run := range rs {
		for _, s := range run {
			if !math.IsNaN(s.loss) {
				all = append(all, s.pass)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// after returns the samples after a pass. A run that failed, or has no sample for the pass, counts
// as infinitely bad.
func (rs runs) after(pass int) []sample {
	inf := math.Inf(1)
	all := make([]sample, len(rs))
	for i, run := range rs {
		all[i] = sample{pass, inf, inf, inf}
		if j := slices.IndexFunc(run,
			func(s sample) bool { return s.pass == pass && !math.IsNaN(s.loss) }); j >= 0 {
			all[i] = run[j]
		}
	}
	return all
}

// median returns the medians after a pass.
func (rs runs) median(pass int) sample {
	m := sample{pass: pass}
	for _, c := range []string{"seconds", "logloss_bits", "loss"} {
		var v []float64
		for _, s := range rs.after(pass) {
			v = append(v, *s.field(c))
		}
		*m.field(c) = median(v)
	}
	return m
}

// spread returns the smallest and largest values of a column after a pass, over the runs that have
// not failed. Both are NaN if all have failed.
func (rs runs) spread(pass int, column string) (lo, hi float64) {
	lo, hi = math.NaN(), math.NaN()
	for _, s := range rs.after(pass) {
		switch v := *s.field(column); {
		case math.IsInf(v, 1):
		case math.IsNaN(lo):
			lo, hi = v, v
		default:
			lo, hi = min(lo, v), max(hi, v)
		}
	}
	return lo, hi
}

// passesTo returns the first pass from which the median loss stays at or below a bound, or
// infinity.
func (rs runs) passesTo(bound float64) float64 {
	first := math.Inf(1)
	for pass := 1; pass <= rs.last(); pass++ {
		if !slices.ContainsFunc(rs, func(run []sample) bool {
			return slices.ContainsFunc(run, func(s sample) bool { return s.pass == pass })
		}) {
			continue // not evaluated
		}
		switch above := !(rs.median(pass).loss <= bound); {
		case above:
			first = math.Inf(1)
		case math.IsInf(first, 1):
			first = float64(pass)
		}
	}
	return first
}

// median returns the median of v, or the larger of the two middle elements. It is infinite if v is
// empty.
func median(v []float64) float64 {
	if len(v) == 0 {
		return math.Inf(1)
	}
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}

// number formats v for a CSV file.
func number(v float64) string { return strconv.FormatFloat(v, 'g', 10, 64) }

// finite formats v for a table, in which infinity means never.
func finite(v float64) string {
	if math.IsInf(v, 1) {
		return "–"
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}
