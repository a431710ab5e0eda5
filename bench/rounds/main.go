// Rounds measures fits of GLMs to more rows than memory, on one machine and on many:
//
//	go run ./bench/rounds -out DIR       # PGSVI_DATA has a9a; minutes
//
// rounds.csv simulates many machines in one process. The rows are dealt out to 1 … 4096 shards,
// which are sent as bytes in both directions and merged. It has the rounds to a proved 0.01 nats,
// the bytes, the CPU seconds, and a checksum of the posterior. In the second round of each fit a
// shard is lost: Step must name a block of it, and the round is repeated.
//
// rows.csv has fits of NewGLMRows to generated rows that nobody keeps, with the peak memory.
//
// -tables measures nothing and prints the tables of -out; -readme FILE puts them into FILE. -only
// rounds or rows measures one of them. -quick does less.
package main

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/bench/tables"
	"github.com/pgsvi/pgsvi/data"
	"github.com/pgsvi/pgsvi/internal/cputime"
)

//go:generate go run -C ../.. ./bench/rounds -tables -out bench/rounds -readme bench/README.md

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "rounds:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("rounds", flag.ContinueOnError)
	f.SetOutput(stderr)
	folder := f.String("data", os.Getenv("PGSVI_DATA"), "`folder` that holds a9a (default: that of PGSVI_DATA)")
	out := f.String("out", ".", "folder of rounds.csv and rows.csv")
	readme := f.String("readme", "", "Markdown `file` whose tables to replace")
	stored := f.Bool("tables", false, "measure nothing, print the tables of -out")
	only := f.String("only", "", "measure `rounds` or rows alone")
	quick := f.Bool("quick", false, "no more than 16 shards, and fewer rows")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if !*stored && *only != "rounds" {
		if err := measureRows(ctx, filepath.Join(*out, "rows.csv"), *quick, stderr); err != nil {
			return err
		}
	}
	if !*stored && *only != "rows" {
		if *folder == "" {
			return errors.New("no folder of data: set PGSVI_DATA or -data")
		}
		sets, err := read(*folder)
		if err != nil {
			return err
		}
		if err := measure(ctx, filepath.Join(*out, "rounds.csv"), sets, *quick, stderr); err != nil {
			return err
		}
	}
	texts := map[string]string{}
	if *only != "rows" {
		rows, err := load(filepath.Join(*out, "rounds.csv"))
		if err != nil {
			return err
		}
		texts["rounds"] = table(rows)
	}
	if *only != "rounds" {
		text, err := rowsTable(filepath.Join(*out, "rows.csv"))
		if err != nil {
			return err
		}
		texts["rounds rows"] = text
	}
	if *readme != "" {
		if err := tables.Replace(*readme, texts); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(stdout, texts["rounds"]+"\n"+texts["rounds rows"])
	return err
}

// A set is data of a GLM in blocks.
type set struct {
	name   string
	cols   int
	lik    pgsvi.Likelihood
	sd     float64 // of the prior
	blocks [][]pgsvi.Row
}

const (
	mostShards = 4096 // and blocks
	within     = 0.01 // nats
	mostRounds = 20
)

// read returns the sets.
func read(folder string) ([]set, error) {
	file, err := os.Open(filepath.Join(folder, "a9a", "a9a.gz"))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	in, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	rows, err := collect(data.ScanLIBSVM(in))
	if err != nil {
		return nil, err
	}
	sorted := slices.Clone(rows)
	slices.SortStableFunc(sorted, func(a, b pgsvi.Row) int { return int(a.Y - b.Y) })
	sets := []set{
		{"a9a", 123, pgsvi.BernoulliLogit{}, 1, cut(rows)},
		{"a9a, sorted by label", 123, pgsvi.BernoulliLogit{}, 1, cut(sorted)},
	}
	counts := cut(generate(100_000, 20))
	for _, sd := range []float64{0.3, 1, 3} {
		sets = append(sets, set{fmt.Sprintf("Poisson, prior sd %v", sd), 20, pgsvi.Poisson{}, sd, counts})
	}
	return sets, nil
}

// collect returns copies of rows.
func collect(all iter.Seq2[pgsvi.Row, error]) (rows []pgsvi.Row, err error) {
	for r, err := range all {
		if err != nil {
			return nil, err
		}
		r.Ind, r.Val = slices.Clone(r.Ind), slices.Clone(r.Val)
		rows = append(rows, r)
	}
	return rows, nil
}

// generate returns rows of counts.
func generate(n, cols int) []pgsvi.Row {
	rng := rand.New(rand.NewPCG(1, 33))
	rows := make([]pgsvi.Row, n)
	for i := range rows {
		r := &rows[i]
		r.Val = make([]float64, cols)
		eta := 0.0
		for j := range r.Val {
			r.Val[j] = rng.NormFloat64()
			eta += 0.3 * math.Cos(float64(2*j)) * r.Val[j]
		}
		for p := rng.ExpFloat64(); p < math.Exp(eta); p += rng.ExpFloat64() {
			r.Y++
		}
	}
	return rows
}

// cut returns rows in mostShards blocks, or fewer.
func cut(rows []pgsvi.Row) [][]pgsvi.Row {
	return slices.Collect(slices.Chunk(rows, (len(rows)+mostShards-1)/mostShards))
}

// measure fits every set on ever more shards, and writes the file.
func measure(ctx context.Context, out string, sets []set, quick bool, stderr io.Writer) error {
	var rows []row
	for _, s := range sets {
		for shards := 1; shards <= mostShards && !(quick && shards > 16); shards *= 4 {
			r, err := s.fit(ctx, shards)
			if err != nil {
				return fmt.Errorf("%s on %d shards: %w", s.name, shards, err)
			}
			fmt.Fprintln(stderr, strings.Join(r.record(), ","))
			rows = append(rows, r)
		}
	}
	return write(out, rows)
}

// fit fits the set on so many shards.
func (s *set) fit(ctx context.Context, shards int) (row, error) {
	x := row{set: s.name, shards: shards}
	start := cputime.Seconds()
	r, err := pgsvi.NewGLMRounds(s.cols, s.lik, &pgsvi.GLMOptions{PriorSD: s.sd})
	if err != nil {
		return x, err
	}
	for round := 0; round < mostRounds; round++ {
		down, err := r.Shard().MarshalBinary()
		if err != nil {
			return x, err
		}
		lost := -1
		if round == 1 && shards > 1 {
			lost = shards / 2
			part, _, err := s.round(ctx, down, shards, lost)
			if err != nil {
				return x, err
			}
			if _, err := r.Step(part); !errors.Is(err, pgsvi.ErrParam) || !strings.Contains(err.Error(), "missing") {
				return x, fmt.Errorf("shard %d was lost, and Step says %w", lost, err)
			}
		}
		whole, up, err := s.round(ctx, down, shards, -1)
		if err != nil {
			return x, err
		}
		it, err := r.Step(whole)
		if err != nil {
			return x, err
		}
		if round == 0 {
			x.sample = float64(up) / 1e6
			continue
		}
		x.rounds, x.elbo, x.bound = it.K, it.ELBO, it.GapBound
		x.down, x.up = max(x.down, float64(len(down))/1e6), max(x.up, float64(up)/1e6)
		if it.GapBound <= within {
			break
		}
	}
	p, err := r.Posterior()
	if err != nil {
		return x, err
	}
	sum := sha256.New()
	if err := p.Save(sum); err != nil {
		return x, err
	}
	x.seconds, x.sha = cputime.Seconds()-start, fmt.Sprintf("%x", sum.Sum(nil)[:6])
	return x, nil
}

// round returns what the shards have, merged two by two, without the lost one, and how many bytes
// all of them sent.
func (s *set) round(ctx context.Context, down []byte, shards, lost int) (*pgsvi.Shard[pgsvi.Row], int, error) {
	bytes := 0
	var stack []*pgsvi.Shard[pgsvi.Row] // of 2ᵏ shards each, as the bits of a counter
	for i := range shards {
		part := new(pgsvi.Shard[pgsvi.Row])
		if err := part.UnmarshalBinary(down); err != nil {
			return nil, 0, err
		}
		for b := i; b < len(s.blocks) && i != lost; b += shards {
			if err := part.Add(ctx, uint64(b), each(s.blocks[b])); err != nil {
				return nil, 0, err
			}
		}
		up, err := part.MarshalBinary()
		if err != nil {
			return nil, 0, err
		}
		bytes += len(up)
		if err := part.UnmarshalBinary(up); err != nil {
			return nil, 0, err
		}
		stack = append(stack, part)
		for n := i + 1; n%2 == 0; n /= 2 {
			if err := fold(&stack); err != nil {
				return nil, 0, err
			}
		}
	}
	for len(stack) > 1 {
		if err := fold(&stack); err != nil {
			return nil, 0, err
		}
	}
	return stack[0], bytes, nil
}

// fold merges the last two of a stack.
func fold(stack *[]*pgsvi.Shard[pgsvi.Row]) error {
	s := *stack
	n := len(s)
	*stack = s[:n-1]
	return s[n-2].Merge(s[n-1])
}

// each yields rows.
func each(rows []pgsvi.Row) iter.Seq2[pgsvi.Row, error] {
	return func(yield func(pgsvi.Row, error) bool) {
		for _, r := range rows {
			if !yield(r, nil) {
				return
			}
		}
	}
}
