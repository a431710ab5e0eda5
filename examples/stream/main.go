// Command stream fits a logistic regression to more rows than memory holds, each
// seen once, at constant memory and without a step size.
//
// The rows are generated from known weights. Whenever their number has doubled
// it prints how far the posterior mean is from the truth, in posterior standard
// deviations, which should stay at a few, and these standard deviations, which should fall as
// 1/√rows.
//
// Run it from anywhere in the repository:
//
//	go run ./examples/stream
//	go run ./examples/stream -rows 20000000 -file /tmp/rows.bin
//
// With -file the rows are written to a binary file first, unless it is there
// already, and are read from it through a mapping; without, they are made on the way.
//
// The last line of the output is meant for programs. The seconds are those of
// fitting, in which the rows are read or made; peak_mb is the largest memory that was resident.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"iter"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"time"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/schollz/progressbar/v3"
)

func run(ctx context.Context, src source, file string) error {
	rows := src.all()
	if file != "" {
		f, err := src.open(ctx, file)
		if err != nil {
			return err
		}
		defer f.Close()
		rows = f.All()
	}

	start := time.Now()
	s, err := pgsvi.NewGLMStream(src.cols, pgsvi.BernoulliLogit{}, nil)
	if err != nil {
		return err
	}
	truth := src.truth()
	next := min(1000, src.rows) // when to report
	fmt.Println("       rows   worst error in sd     mean sd   mean sd × √rows")
	bar := newBar("fitting", src.rows)
	for row, err := range watch(ctx, bar, rows) {
		if err == nil {
			err = s.Add(row) // an error of reading ends the rows
		}
		if err != nil {
			return err
		}
		if s.Len() == next {
			post, err := s.Posterior() // the stream goes on
			if err != nil {
				return err
			}
			bar.Clear()
			report(post, truth)
			next = min(2*next, src.rows)
		}
	}
	seconds := time.Since(start).Seconds()

	_, err = fmt.Printf("\nrows=%d cols=%d seconds=%.2f rows_per_second=%.0f peak_mb=%.0f\n",
		src.rows, src.cols, seconds, float64(src.rows)/seconds, memory.Peak()/1e6)
	return err
}

// report prints how far a posterior is from the truth.
func report(post *pgsvi.GLMPosterior, truth []float64) {
	mean, sd := post.Mean(nil), post.SD(nil)
	var worst, sum float64
	for j, m := range mean {
		worst = math.Max(worst, math.Abs(m-truth[j])/sd[j])
		sum += sd[j]
	}
	average := sum / float64(len(sd))
	n := post.Len()
	fmt.Printf("%11d   %17.2f   %9.6f   %15.4f\n", n, worst, average, average*math.Sqrt(float64(n)))
}

// source generates rows: the same ones whenever they are asked for.
type source struct {
	rows, cols int
	seed       uint64
}

// truth returns the weights that the labels follow.
func (s source) truth() []float64 {
	rng := rand.New(rand.NewPCG(s.seed, 1))
	w := make([]float64, s.cols)
	for j := range w {
		w[j] = 2 * rng.NormFloat64() / math.Sqrt(float64(s.cols))
	}
	return w
}

// all returns the rows: independent normal features and labels of -1 and +1.
func (s source) all() iter.Seq2[pgsvi.Row, error] {
	return func(yield func(pgsvi.Row, error) bool) {
		rng := rand.New(rand.NewPCG(s.seed, 2))
		w := s.truth()
		row := pgsvi.Row{Val: make([]float64, s.cols)} // used again for every row
		for range s.rows {
			var eta float64
			for j := range row.Val {
				x := rng.NormFloat64()
				row.Val[j] = x
				eta += w[j] * x
			}
			row.Y = -1
			if rng.Float64() < 1/(1+math.Exp(-eta)) {
				row.Y = +1
			}
			if !yield(row, nil) {
				return
			}
		}
	}
}

// open opens a file of the rows, which it writes if there is none.
func (s source) open(ctx context.Context, file string) (*data.RowFile, error) {
	f, err := data.OpenRows(file)
	if errors.Is(err, fs.ErrNotExist) {
		if err := s.write(ctx, file); err != nil {
			return nil, err
		}
		f, err = data.OpenRows(file)
	}
	if err != nil {
		return nil, err
	}
	if f.Len() != s.rows || f.Cols() != s.cols {
		f.Close()
		return nil, fmt.Errorf("%s has %d rows of %d columns, want %d of %d; remove it, or change -rows and -cols", file, f.Len(), f.Cols(), s.rows, s.cols)
	}
	return f, nil
}

// write writes the rows to a file, which gets its name when it is complete.
func (s source) write(ctx context.Context, file string) error {
	part := file + ".part"
	f, err := os.Create(part)
	if err != nil {
		return err
	}
	defer os.Remove(part) // does nothing once it has been renamed
	defer f.Close()
	w := data.NewRowWriter(f, s.cols, nil)
	if _, err := data.CopyRows(w, watch(ctx, newBar("writing", s.rows), s.all())); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(part, file)
}

// newBar returns a progress bar of n rows, which is seen on a terminal only.
func newBar(what string, n int) *progressbar.ProgressBar {
	return progressbar.NewOptions(n,
		progressbar.OptionSetDescription(what),
		progressbar.OptionSetWriter(os.Stderr),
		progressbar.OptionSetVisibility(isTerminal(os.Stderr)),
		progressbar.OptionSetWidth(30),
		progressbar.OptionShowCount(),
		progressbar.OptionShowIts(),
		progressbar.OptionSetItsString("rows"),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish())
}

// watch passes rows on and moves the bar, until ctx ends.
func watch(ctx context.Context, bar *progressbar.ProgressBar, rows iter.Seq2[pgsvi.Row, error]) iter.Seq2[pgsvi.Row, error] {
	const every = 10000 // rows between two looks at bar and ctx
	return func(yield func(pgsvi.Row, error) bool) {
		defer bar.Finish()
		seen := 0
		for row, err := range rows {
			if seen++; seen%every == 0 {
				bar.Add(every)
				if ctx.Err() != nil {
					yield(pgsvi.Row{}, fmt.Errorf("ended after %d rows: %w", seen, context.Cause(ctx)))
					return
				}
			}
			if !yield(row, err) {
				return
			}
		}
	}
}

// isTerminal reports whether f is a terminal rather than a file or a pipe.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("stream: ")
	rows := flag.Int("rows", 2000000, "number of rows")
	cols := flag.Int("cols", 30, "number of columns")
	file := flag.String("file", "", "binary `file` of rows, written first if it does not exist; it must be of the same -rows, -cols and -seed\n"+
		"(default: no file)")
	seed := flag.Uint64("seed", 1, "seed of the data")
	flag.Parse()
	if *rows < 1 || *cols < 1 || flag.NArg() > 0 {
		log.Fatal("want positive -rows and -cols, and nothing besides flags")
	}
	// Ctrl-C ends the run early, with an error that says so.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, source{*rows, *cols, *seed}, *file); err != nil {
		log.Fatal(err)
	}
}
