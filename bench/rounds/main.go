// Rounds measures fits of GLMs to more rows than memory holds, on one machine and on many:
//
//	go run ./bench/rounds -out DIR       # PGSVI_DATA has a9a and ap; minutes
//
// rounds.csv simulates many machines in one process. It deals the rows out to 1 … 4096 shards,
// sends these as bytes in both directions, and merges them. The file has the number of rounds to a
// gap bound of 0.01 nats, the bytes, the CPU seconds, and a checksum of the posterior. shard_ms and
// slowest_ms are the CPU time of a shard in a round: the mean, and the time of the straggler for
// which the others wait. round_ms is the time of a round on that many machines: the straggler, the
// merges one above the other, and Step. All three are minima over the rounds. In the second round
// of each fit a shard is lost. Step must name one of its blocks, and the round is repeated. In
// every round a straggler is merged last and arrives a second time, as if a spare machine had taken
// over its blocks. Merge must reject the copy.
//
// topics.csv is the same for topics of AP after ten rounds, with the score on held-out words.
//
// rows.csv has fits of NewGLMRows to generated rows that are not stored, with the peak memory, and
// groups.csv has the same for mixed models.
// memory.csv compares fits of the same million rows from a file and in memory.
//
// -tables measures nothing and prints the tables of -out, and -readme FILE writes them to FILE.
// -only rounds, topics, rows, groups or memory measures one of them. -quick uses fewer shards and rows.
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
	"path/filepath"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/bench/command"
	"github.com/pgsvi/pgsvi/bench/tables"
	"github.com/pgsvi/pgsvi/data"
	"github.com/pgsvi/pgsvi/internal/cputime"
)

//go:generate go run -C ../.. ./bench/rounds -tables -out bench/rounds -readme bench/README.md

func main() {
	command.Main("rounds", run)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("rounds", flag.ContinueOnError)
	f.SetOutput(stderr)
	folder := f.String("data", os.Getenv("PGSVI_DATA"),
		"`folder` with a9a and ap (default: PGSVI_DATA)")
	out := f.String("out", ".", "folder of the CSV files")
	readme := f.String("readme", "", "Markdown `file` in which to replace the tables")
	stored := f.Bool("tables", false, "print the tables of -out without measuring")
	only := f.String("only", "", "measure only `rounds`, topics, rows, groups or memory")
	quick := f.Bool("quick", false, "use at most 16 shards and fewer rows")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	all := []part{
		{"rows", "rounds rows", "rows.csv", func(file string) error {
			return measureRows(ctx, file, *quick, stderr)
		}, rowsTable},
		{"groups", "rounds groups", "groups.csv", func(file string) error {
			return measureGroups(ctx, file, *quick, stderr)
		}, groupsTable},
		{"memory", "rounds memory", "memory.csv", func(file string) error {
			return measureMemory(ctx, file, *quick, stderr)
		}, memoryTable},
		{"rounds", "rounds", "rounds.csv", func(file string) error {
			sets, err := read(*folder)
			if err != nil {
				return err
			}
			return measure(ctx, file, sets, *quick, stderr)
		}, roundsTable},
		{"topics", "rounds topics", "topics.csv", func(file string) error {
			return measureTopics(ctx, file, *folder, *quick, stderr)
		}, topicsTable},
	}
	texts := map[string]string{}
	for _, p := range all {
		if *only != "" && *only != p.name {
			continue
		}
		if !*stored {
			if *folder == "" && p.name != "rows" && p.name != "groups" &&
				p.name != "memory" {
				return errors.New("no folder of data: set PGSVI_DATA or -data")
			}
			if err := p.measure(filepath.Join(*out, p.file)); err != nil {
				return err
			}
		}
		text, err := p.table(filepath.Join(*out, p.file))
		if err != nil {
			return err
		}
		texts[p.block] = text
		if _, err := fmt.Fprintln(stdout, text); err != nil {
			return err
		}
	}
	if *readme != "" {
		if err := tables.Replace(*readme, texts); err != nil {
			return err
		}
	}
	return nil
}

// A part is a measurement with one file and one table.
type part struct {
	name, block, file string
	measure           func(file string) error
	table             func(file string) (string, error)
}

// A set is the data of a GLM in blocks.
type set struct {
	name   string
	cols   int
	lik    pgsvi.Likelihood
	sd     float64 // prior standard deviation
	blocks [][]pgsvi.Row
}

const (
	mostShards = 4096 // largest number of shards and number of blocks
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
		sets = append(sets, set{fmt.Sprintf("Poisson, prior sd %v", sd), 20, pgsvi.Poisson{}, sd,
			counts})
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

// measure fits every set on increasing numbers of shards, and writes the file.
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

// fit fits the set on the given number of shards.
func (s *set) fit(ctx context.Context, shards int) (row, error) {
	x := row{set: s.name, shards: shards}
	start := cputime.Seconds()
	r, err := pgsvi.NewGLMRounds(s.cols, s.lik, &pgsvi.GLMOptions{PriorSD: s.sd})
	if err != nil {
		return x, err
	}
	enough := func(it pgsvi.Iteration) bool { return it.GapBound <= within || it.K == mostRounds }
	if err := drive(ctx, r, s.blocks, &x, enough); err != nil {
		return x, err
	}
	p, err := r.Posterior()
	if err != nil {
		return x, err
	}
	if x.sha, err = checksum(p); err != nil {
		return x, err
	}
	x.seconds = cputime.Seconds() - start
	return x, nil
}

// drive runs rounds on the shards of x until enough returns true, and stores their measurements in
// x.
func drive[R, P any](
	ctx context.Context, r *pgsvi.Rounds[R, P], blocks [][]R, x *row,
	enough func(pgsvi.Iteration) bool,
) error {
	x.shard, x.slowest, x.round = math.Inf(1), math.Inf(1), math.Inf(1)
	for round := 0; ; round++ {
		down, err := r.Shard().MarshalBinary()
		if err != nil {
			return err
		}
		// a machine without a block has no work
		s := &simulation[R]{blocks: blocks, down: down, shards: min(x.shards, len(blocks))}
		if round == 1 && s.shards > 1 {
			if err := s.lose(ctx, r, s.shards/2); err != nil {
				return err
			}
		}
		whole, err := s.round(ctx, -1)
		if err != nil {
			return err
		}
		start := cputime.Seconds()
		it, err := r.Step(whole)
		if err != nil {
			return err
		}
		if round == 0 {
			x.sample = float64(s.up) / 1e6
			continue
		}
		x.rounds, x.elbo, x.bound = it.K, it.ELBO, it.GapBound
		x.down, x.up = max(x.down, float64(len(down))/1e6), max(x.up, float64(s.up)/1e6)
		x.shard = min(x.shard, 1e3*s.sum/float64(s.shards))
		x.slowest = min(x.slowest, 1e3*s.slowest)
		x.round = min(x.round, 1e3*(s.slowest+s.above()+cputime.Seconds()-start))
		if enough(it) {
			return nil
		}
	}
}

// checksum returns the checksum of a saved posterior.
func checksum(p interface{ Save(io.Writer) error }) (string, error) {
	sum := sha256.New()
	err := p.Save(sum)
	return fmt.Sprintf("%x", sum.Sum(nil)[:6]), err
}

// A simulation runs a round of many machines, one machine after the other.
type simulation[R any] struct {
	blocks [][]R
	down   []byte // state sent to each shard
	shards int

	stack []*pgsvi.Shard[R] // merged shards, 2ᵏ in each, as the bits of a counter
	up    int               // bytes sent back by all shards
	// CPU seconds of all shards, of the slowest shard, and of all merges
	sum, slowest, merges float64
}

// above returns the CPU seconds of the merges that depend on each other in a tree.
func (s *simulation[R]) above() float64 {
	return s.merges / max(1, float64(s.shards-1)) * math.Ceil(math.Log2(float64(s.shards)))
}

// lose runs a round in which a shard is lost. Step must reject it with the name of a block.
func (s simulation[R]) lose(ctx context.Context, r interface {
	Step(*pgsvi.Shard[R]) (pgsvi.Iteration, error)
}, lost int) error {
	part, err := s.round(ctx, lost)
	if err != nil {
		return err
	}
	_, err = r.Step(part)
	if !errors.Is(err, pgsvi.ErrParam) || !strings.Contains(err.Error(), "missing") {
		return fmt.Errorf("shard %d was lost, but Step returned %w", lost, err)
	}
	return nil
}

// round merges the shards in pairs, without the lost shard. The first shard is the straggler, which
// arrives last and then a second time.
func (s *simulation[R]) round(ctx context.Context, lost int) (*pgsvi.Shard[R], error) {
	var last []byte
	for n := 1; n <= s.shards; n++ {
		i := n % s.shards
		up, err := s.send(ctx, i, i == lost)
		if err != nil {
			return nil, err
		}
		last = up
		start := cputime.Seconds()
		part := new(pgsvi.Shard[R])
		if err := part.UnmarshalBinary(up); err != nil {
			return nil, err
		}
		s.stack = append(s.stack, part)
		for k := n; len(s.stack) > 1 && (k%2 == 0 || n == s.shards); k /= 2 {
			if err := fold(&s.stack); err != nil {
				return nil, err
			}
		}
		s.merges += cputime.Seconds() - start
	}
	if s.shards > 1 {
		again := new(pgsvi.Shard[R])
		if err := again.UnmarshalBinary(last); err != nil {
			return nil, err
		}
		err := s.stack[0].Merge(again)
		if !errors.Is(err, pgsvi.ErrParam) || !strings.Contains(err.Error(), "block 0 is in both") {
			return nil, fmt.Errorf("a shard came twice, but Merge returned %w", err)
		}
	}
	return s.stack[0], nil
}

// send returns shard i with its blocks, or without blocks if it is lost.
func (s *simulation[R]) send(ctx context.Context, i int, lost bool) ([]byte, error) {
	start := cputime.Seconds()
	part := new(pgsvi.Shard[R])
	if err := part.UnmarshalBinary(s.down); err != nil {
		return nil, err
	}
	for b := i; b < len(s.blocks) && !lost; b += s.shards {
		if err := part.Add(ctx, uint64(b), each(s.blocks[b])); err != nil {
			return nil, err
		}
	}
	up, err := part.MarshalBinary()
	s.up += len(up)
	seconds := cputime.Seconds() - start
	s.sum, s.slowest = s.sum+seconds, max(s.slowest, seconds)
	return up, err
}

// fold merges the last two shards of a stack.
func fold[R any](stack *[]*pgsvi.Shard[R]) error {
	s := *stack
	n := len(s)
	*stack = s[:n-1]
	return s[n-2].Merge(s[n-1])
}

// each returns an iterator over items.
func each[R any](items []R) iter.Seq2[R, error] {
	return func(yield func(R, error) bool) {
		for _, r := range items {
			if !yield(r, nil) {
				return
			}
		}
	}
}
