package linear

import (
	"bytes"
	"context"
	"encoding"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"github.com/pgsvi/pgsvi/internal/cputime"
	"github.com/pgsvi/pgsvi/internal/rounds"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/testkit"

	"gonum.org/v1/gonum/mat"
)

// blockRows is the number of rows in a block of NewGLMRows.
const blockRows = 8192

// blocksOf copies rows into blocks of each rows.
func blocksOf(t testing.TB, rows iter.Seq2[Row, error], each int) (blocks [][]Row) {
	t.Helper()
	for r, err := range rows {
		if err != nil {
			t.Fatal(err)
		}
		if n := len(blocks); n == 0 || len(blocks[n-1]) == each {
			blocks = append(blocks, nil)
		}
		r.Val = append([]float64(nil), r.Val...)
		if r.Ind != nil {
			r.Ind = append([]int{}, r.Ind...)
		}
		b := &blocks[len(blocks)-1]
		*b = append(*b, r)
	}
	return blocks
}

// fitRounds fits by rounds on the given number of shards until GapBound is at most within. It
// returns the saved posterior and the last iteration.
func fitRounds(t testing.TB, blocks [][]Row, cols, shards int, lik Likelihood, opt *GLMOptions,
	within float64) (post []byte, it Iteration) {
	t.Helper()
	r, err := NewGLMRounds(cols, lik, opt)
	if err != nil {
		t.Fatal(err)
	}
	p, it := kit.FitRounds(t, r, blocks, shards, func(rounds int, it Iteration) bool {
		return rounds == 30 || it.GapBound <= within
	})
	return testkit.Saved(t, p), it
}

// TestRoundsBits checks that the posterior of rounds has the bits of the posterior of NewGLMRows
// for any number of shards, merged in any order and tree.
func TestRoundsBits(t *testing.T) {
	t.Parallel()
	for _, c := range testkit.Few([]struct {
		rows madeRows
		opt  GLMOptions
	}{
		{madeRows{lik: BernoulliLogit{}, n: testkit.Longer(60000, 20000), d: 8, dense: 1},
			GLMOptions{Intercept: true, Autoscale: true}},
		{madeRows{lik: Poisson{}, n: testkit.Longer(30000, 17000), d: 3, dense: 3, seed: 1},
			GLMOptions{}},
		{madeRows{lik: StudentT{DF: 4, Scale: 1}, n: testkit.Longer(30000, 17000), d: 3, dense: 3,
			seed: 2}, GLMOptions{PriorSD: 2}},
	}, 1) {
		blocks := blocksOf(t, c.rows.all, blockRows)
		p, res := fitRows(t, c.rows.all, c.rows.d, c.rows.lik, &c.opt, &Solver{MaxIter: 3})
		want := testkit.Saved(t, p)
		for _, shards := range []int{1, 7, 32, 2}[:testkit.Longer(4, testkit.Shorter(3, 2))] {
			post, it := fitRoundsTimes(t, blocks, c.rows.d, shards, c.rows.lik, &c.opt, res.K)
			if !bytes.Equal(post, want) {
				t.Errorf("%s on %d shards: other bits", testkit.TypeName(c.rows.lik), shards)
			}
			if math.Float64bits(it.ELBO) != math.Float64bits(res.ELBO) ||
				it.GapBound > 0 != (res.GapBound > 0) {
				t.Errorf("%s on %d shards: ELBO %v, and %v in one process",
					testkit.TypeName(c.rows.lik),
					shards, it.ELBO, res.ELBO)
			}
		}
	}
}

// fitRoundsTimes is fitRounds for the given number of rounds after the first.
func fitRoundsTimes(t testing.TB, blocks [][]Row, cols, shards int, lik Likelihood, opt *GLMOptions,
	times int) (post []byte, it Iteration) {
	t.Helper()
	r, err := NewGLMRounds(cols, lik, opt)
	if err != nil {
		t.Fatal(err)
	}
	p, it := kit.FitRounds(t, r, blocks, shards,
		func(rounds int, _ Iteration) bool { return rounds == times+1 })
	return testkit.Saved(t, p), it
}

// TestRoundsA9a checks that 64 shards prove a gap of 0.01 nats after four rounds, or after five if
// the rows are sorted by label.
func TestRoundsA9a(t *testing.T) {
	t.Parallel()
	testkit.NotShort(t)
	x, y := readA9a(t)
	const best = -10724.99614505
	for _, c := range []struct {
		name string
		rows iter.Seq2[Row, error]
		most int
	}{{"sorted by label", sortedRows(x, y), 5}, {"file order", Rows(x, y), 4}}[:testkit.Longer(2,
		1)] {
		_, it := fitRounds(t, blocksOf(t, c.rows, (len(y)+63)/64), 123, 64, BernoulliLogit{}, nil,
			0.01)
		if off := best - it.ELBO; !(it.K <= c.most && it.GapBound <= 0.01 && off <= it.GapBound &&
			off >= -1e-6) {
			t.Errorf("%s: %d rounds to a proved %v nats, %v nats off", c.name, it.K, it.GapBound,
				off)
		}
	}
}

// TestRoundsPoisson checks the number of rounds for counts.
func TestRoundsPoisson(t *testing.T) {
	t.Parallel()
	for _, sd := range testkit.Few([]float64{3, 1, 0.3}, 1) {
		r := madeRows{lik: Poisson{}, n: testkit.Longer(40000, 15000), d: 20, dense: 10, seed: 11}
		_, it := fitRounds(t, blocksOf(t, r.all, 1000), r.d, 8, r.lik, &GLMOptions{PriorSD: sd},
			0.01)
		if !(it.K <= 4 && it.GapBound <= 0.01) {
			t.Errorf("prior sd %v: %d rounds to a proved %v nats", sd, it.K, it.GapBound)
		}
	}
}

// TestRoundsErrors checks that a shard that does not fit a round is an error that names the
// difference.
func TestRoundsErrors(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	made := madeRows{lik: BernoulliLogit{}, n: 900, d: 3, dense: 3}
	blocks := blocksOf(t, made.all, 100)
	rounds := func(cols int, lik Likelihood, opt *GLMOptions) *Rounds[Row, *GLMPosterior] {
		r, err := NewGLMRounds(cols, lik, opt)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	add := func(s *Shard[Row], ids ...int) *Shard[Row] {
		for _, id := range ids {
			if err := s.Add(ctx, uint64(id), testkit.Each(blocks[id])); err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	refused := func(what string, err, want error, text string) {
		t.Helper()
		if !errors.Is(err, want) || !strings.Contains(err.Error(), text) ||
			!testkit.PrefixedOnce(err) {
			t.Errorf("%s: %v, want %q and %v", what, err, text, want)
		}
	}
	step := func(r *Rounds[Row, *GLMPosterior], s *Shard[Row]) error {
		_, err := r.Step(s)
		return err
	}
	r := rounds(3, made.lik, nil)
	_, early := r.Posterior()
	refused("a posterior at first", early, ErrEmpty, "second round")
	refused("no shard", step(r, nil), ErrParam, "has no shard")
	refused("an empty shard", step(r, r.Shard()), ErrEmpty, "without items")
	refused("a nil shard", r.Shard().Merge(nil), ErrParam, "UnmarshalBinary")

	first := add(r.Shard(), 0, 1, 2, 3, 4, 5, 6)
	refused("a block twice", first.Add(ctx, 3, testkit.Each(blocks[3])), ErrParam,
		"block 3 is in the shard")
	refused("a block in both", first.Merge(add(r.Shard(), 8, 6, 7)), ErrParam, "block 6 is in both")
	refused("itself", first.Merge(first), ErrParam, "itself")
	refused("another likelihood", first.Merge(add(rounds(3, BernoulliProbit{}, nil).Shard(), 7)),
		ErrParam, "likelihood")
	refused("other options", first.Merge(rounds(3, made.lik, &GLMOptions{PriorSD: 2}).Shard()),
		ErrParam, "options")
	refused("other columns", first.Merge(rounds(4, made.lik, nil).Shard()), ErrParam, "columns")
	bad := r.Shard()
	refused("a row of other columns",
		bad.Add(ctx, 7, testkit.Each([]Row{blocks[7][0], {Val: []float64{1}, Y: 1}})), ErrShape,
		"block 7: row 1 has 1 values")
	refused("a broken shard", first.Merge(bad), ErrParam, "block 7 was not added to its end")
	_, broken := bad.MarshalBinary()
	refused("a broken shard", broken, ErrParam, "block 7 was not added to its end")
	if err := first.Merge(add(r.Shard(), 7)); err != nil {
		t.Fatal(err)
	}
	if err := first.Add(ctx, 8, testkit.Each[Row](nil)); err != nil { // an empty block
		t.Fatal(err)
	}
	if first.Len() != 800 {
		t.Errorf("%d items, want 800", first.Len())
	}
	if it, err := r.Step(first); err != nil || !math.IsNaN(it.ELBO) || it.K != 0 {
		t.Fatal(it, err)
	}
	refused("the first round again", step(r, first), ErrParam, "round 0, in round 1")
	second := add(r.Shard(), 0, 1, 2, 3, 4, 5, 6)
	if err := second.Add(ctx, 8, testkit.Each[Row](nil)); err != nil {
		t.Fatal(err)
	}
	refused("a lost block", step(r, second), ErrParam, "block 7 of the first round is missing")
	refused("of a saved shard", kit.Travel(t, second).Add(ctx, 7, testkit.Each(blocks[7])),
		ErrParam,
		"loaded shard with items")
	more := add(r.Shard(), 7)
	if err := more.Merge(second); err != nil {
		t.Fatal(err)
	}
	again := add(kit.Travel(t, r.Shard()), 0, 1, 2, 3, 4, 5, 6, 7, 8)
	refused("other items", step(r, again), ErrParam, "900 items in round 1, and 800")
	if it, err := r.Step(more); err != nil || it.K != 1 || !(it.GapBound > 0) {
		t.Fatal(it, err)
	}
	refused("an earlier round", r.Shard().Merge(second), ErrParam, "round 1, in round 2")

	other := rounds(3, made.lik, nil) // with other data, so at other states
	if _, err := other.Step(add(other.Shard(), 0, 1)); err != nil {
		t.Fatal(err)
	}
	same := rounds(3, made.lik, nil)
	if _, err := same.Step(add(same.Shard(), 2, 3)); err != nil {
		t.Fatal(err)
	}
	refused("other states", same.Shard().Merge(other.Shard()), ErrParam, "other states")

	_, learn := NewGLMRounds(3, made.lik, &GLMOptions{Learn: &LearnOptions{}})
	refused("Learn", learn, ErrParam, "do not learn")
	_, diagonal := NewGLMRounds(3, made.lik, &GLMOptions{Covariance: DiagonalCovariance})
	refused("a diagonal covariance", diagonal, ErrParam, "use FullCovariance")
	why := errors.New("enough")
	done, cancel := context.WithCancelCause(ctx)
	cancel(why)
	refused("a context", r.Shard().Add(done, 0, testkit.Each(blocks[0])), why,
		"canceled in block 0")
	var zero Shard[Row]
	_, err := zero.MarshalBinary()
	refused("a zero shard", err, ErrParam, "zero Shard")
	_, err = (&Rounds[Row, *GLMPosterior]{}).MarshalBinary()
	refused("zero rounds", err, ErrParam, "zero Rounds")
	b, err := r.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	refused("a file of rounds", zero.UnmarshalBinary(b), ErrFile, `holds a "Rounds"`)
	empty, err := r.Shard().MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	refused("a shard of rows as one of documents", (&Shard[Document]{}).UnmarshalBinary(empty),
		ErrFile, "GLM")
}

// TestShardMutations checks that no change to a saved shard or driver is accepted.
func TestShardMutations(t *testing.T) {
	t.Parallel()
	for _, f := range roundFiles(t) {
		refuseChanges(t, f.shards, f.readShard)
		refuseChanges(t, f.drivers, f.readDriver)
	}
}

// refuseChanges checks that 10,000 changes to files are errors and that nothing is read.
func refuseChanges(t *testing.T, files [][]byte, read func([]byte) (err error, some bool)) {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, 7))
	for i := range testkit.Shorter(10_000, 1000) {
		b := append([]byte(nil), files[i%len(files)]...)
		at := rng.IntN(len(b))
		var how string
		switch rng.IntN(5) {
		case 0:
			b[at] ^= 1 << rng.IntN(8)
			how = "a bit"
		case 1:
			b[at] += byte(1 + rng.IntN(255))
			how = "a byte"
		case 2:
			b = b[:at]
			how = "cut"
		case 3:
			b = append(b[:at:at], append([]byte{byte(rng.Uint32())}, b[at:]...)...)
			how = "a byte more"
		case 4:
			to := at + 1 + rng.IntN(len(b)-at)
			b = append(b[:at:at], b[to:]...)
			how = "bytes fewer"
		}
		if err, some := read(b); !errors.Is(err, ErrFile) || some {
			t.Fatalf("mutation %d (%s at %d of %d): %v", i, how, at, len(b), err)
		}
	}
}

// roundsFiles holds saved shards and drivers of a model, from the first three rounds, with shards
// both empty and with items.
type roundsFiles struct {
	shards, drivers [][]byte
	// They read a file and report whether the result holds anything.
	readShard, readDriver func([]byte) (error, bool)
	// They read a body with any content and use the result.
	fuzzShard, fuzzDriver func(*testing.T, []byte)
}

// roundFiles returns the files of all models.
func roundFiles(t testing.TB) []roundsFiles {
	t.Helper()
	counts := madeRows{lik: Poisson{}, n: 40, d: 2, dense: 1}
	var rows []Row
	for _, b := range blocksOf(t, counts.all, 40) {
		rows = append(rows, b...)
	}
	z := mat.NewDense(3, 2, []float64{0, 0, 1, 1, -1, 0})
	c, _ := kit.SyntheticCTM(12, 2, 6, 9, mat.NewSymDense(2, []float64{1, 0, 0, 1}), 1)
	topics := mat.NewDense(2, 6, []float64{1, 2, 3, 4, 5, 6, 6, 5, 4, 3, 2, 1})
	return []roundsFiles{
		filesOf(t, testkit.Must(NewGLMRounds(2, counts.lik, nil)), rows),
		filesOf(t, testkit.Must(NewGLMRounds(2, counts.lik, &GLMOptions{Intercept: true,
			Autoscale: true})),
			rows),
		filesOf(t, testkit.Must(NewSparseGPRounds(z, SquaredExp{Scale: 1, Length: 1}, counts.lik,
			nil)),
			rows),
		filesOf(t, testkit.Must(NewCTMRounds(6, 2, &CTMOptions{Topics: topics})), c.Docs),
	}
}

// filesOf returns the files of one model.
func filesOf[R, P any](t testing.TB, r *Rounds[R, P], items []R) (f roundsFiles) {
	t.Helper()
	for range 3 {
		s := r.Shard()
		f.shards, f.drivers = append(f.shards, testkit.Must(s.MarshalBinary())), append(f.drivers,
			testkit.Must(r.MarshalBinary()))
		if err := s.Add(context.Background(), 5, testkit.Each(items)); err != nil {
			t.Fatal(err)
		}
		f.shards = append(f.shards, testkit.Must(s.MarshalBinary()))
		if _, err := r.Step(s); err != nil {
			t.Fatal(err)
		}
	}
	f.readShard = func(b []byte) (error, bool) {
		s := &Shard[R]{}
		err := s.UnmarshalBinary(b)
		_, none := s.MarshalBinary()
		return err, none == nil
	}
	f.readDriver = func(b []byte) (error, bool) {
		r := &Rounds[R, P]{}
		err := r.UnmarshalBinary(b)
		_, none := r.MarshalBinary()
		return err, none == nil
	}
	f.fuzzShard = func(t *testing.T, body []byte) {
		s := &Shard[R]{}
		if !readFuzzed(t, testkit.Kind("Shard"), body, s) {
			return
		}
		for _, b := range f.drivers {
			r := &Rounds[R, P]{}
			if err := r.UnmarshalBinary(b); err != nil {
				t.Fatal(err)
			}
			_ = r.Shard().Merge(s)
			_, _ = r.Step(s)
		}
		if err := s.Add(t.Context(), 77, testkit.Each(items[:5])); err == nil {
			_ = testkit.Must(s.MarshalBinary())
		}
	}
	f.fuzzDriver = func(t *testing.T, body []byte) {
		r := &Rounds[R, P]{}
		if !readFuzzed(t, testkit.Kind("Rounds"), body, r) {
			return
		}
		s := r.Shard()
		if err := s.Add(t.Context(), 5, testkit.Each(items)); err == nil {
			_, _ = r.Step(s)
		}
		_, _ = r.Posterior()
	}
	return f
}

// FuzzShard checks that a shard with any body is read or rejected, and that a shard that was read
// can be merged, stepped with, added to and saved.
func FuzzShard(f *testing.F) {
	fuzzRounds(f, testkit.Kind("Shard"), func(m roundsFiles) ([][]byte, func(*testing.T, []byte)) {
		return m.shards, m.fuzzShard
	})
}

// FuzzRounds checks that a saved driver with any body is read or rejected, and that a driver that
// was read continues.
func FuzzRounds(f *testing.F) {
	fuzzRounds(f, testkit.Kind("Rounds"), func(m roundsFiles) ([][]byte, func(*testing.T, []byte)) {
		return m.drivers, m.fuzzDriver
	})
}

// fuzzRounds fuzzes the bodies of files of one type. For each model, of returns the files and the
// function that processes a body.
func fuzzRounds(f *testing.F, kind save.Kind,
	of func(roundsFiles) (files [][]byte, do func(*testing.T, []byte))) {
	var all []func(*testing.T, []byte)
	for _, m := range roundFiles(f) {
		files, do := of(m)
		for _, b := range files {
			f.Add(testkit.Must(kind.Read(bytes.NewReader(b))))
		}
		all = append(all, do)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, do := range all {
			do(t, body)
		}
	})
}

// BenchmarkDigits measures the share of the CPU time of a pass that order-independent sums take,
// for blocks of 8192 rows and of 64 documents over 10,000 terms. It needs the flag -long.
func BenchmarkDigits(b *testing.B) {
	testkit.BenchLong(b)
	ctx := context.Background()
	part := func(b *testing.B, numbers int, add func(block uint64) error) {
		rng := rand.New(rand.NewPCG(1, 2))
		x := make([]float64, numbers)
		for i := range x {
			x[i] = rng.NormFloat64()
		}
		start, n := cputime.Seconds(), uint64(0)
		for b.Loop() {
			if err := add(n + 1); err != nil {
				b.Fatal(err)
			}
			n++
		}
		pass := cputime.Seconds() - start
		sums := rounds.NewSums(numbers)
		start = cputime.Seconds()
		for range n {
			sums.Add(x)
		}
		b.ReportMetric(100*(cputime.Seconds()-start)/pass, "%digits")
	}
	for _, d := range []int{3, 30, 123, 300} {
		b.Run(fmt.Sprintf("GLM/%d", d), func(b *testing.B) {
			made := madeRows{lik: BernoulliLogit{}, n: blockRows, d: d, dense: d, plain: true}
			rows := blocksOf(b, made.all, blockRows)[0]
			r := testkit.Must(NewGLMRounds(d, made.lik, nil))
			s := r.Shard()
			if err := s.Add(ctx, 0, testkit.Each(rows)); err != nil {
				b.Fatal(err)
			}
			testkit.Must(r.Step(s))
			s = r.Shard()
			part(b, 2+d+d*(d+1)/2, func(block uint64) error {
				return s.Add(ctx, block,
					testkit.Each(rows))
			})
		})
	}
	b.Run("CTM", func(b *testing.B) {
		const terms, topics = 10_000, 10
		c, _ := kit.SyntheticCTM(64, 5, terms, 200, kit.Correlated(), 1)
		r := testkit.Must(NewCTMRounds(terms, topics, nil))
		s := r.Shard()
		if err := s.Add(ctx, 0, testkit.Each(c.Docs)); err != nil {
			b.Fatal(err)
		}
		testkit.Must(r.Step(s))
		s = r.Shard()
		part(b, terms*topics,
			func(block uint64) error { return s.Add(ctx, block, testkit.Each(c.Docs)) })
	})
}

// readFuzzed reads a file with the given body into x, and reports whether it is accepted. It checks
// that an error wraps ErrFile and that an accepted x can be saved.
func readFuzzed(t *testing.T, kind save.Kind, body []byte, x interface {
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}) bool {
	t.Helper()
	var b bytes.Buffer
	if err := kind.Write(&b, body); err != nil {
		t.Fatal(err)
	}
	if err := x.UnmarshalBinary(b.Bytes()); err != nil {
		if !errors.Is(err, ErrFile) {
			t.Fatal(err)
		}
		return false
	}
	if _, err := x.MarshalBinary(); err != nil {
		t.Fatal(err)
	}
	return true
}

// curveRows returns rows of a function of two inputs, with labels or counts.
func curveRows(n int, lik Likelihood) []Row {
	rng := rand.New(rand.NewPCG(3, 14))
	rows := make([]Row, n)
	for i := range rows {
		a, b := 4*rng.Float64()-2, 4*rng.Float64()-2
		f := math.Sin(2*a) + math.Cos(b)
		r := &rows[i]
		r.Val = []float64{a, b}
		switch lik.(type) {
		case Poisson:
			r.Y = math.Floor(math.Exp(f) + rng.Float64())
		case GaussianNoise:
			r.Y = f + 0.3*rng.NormFloat64()
		default:
			r.Y = testkit.PlusMinus(f+rng.NormFloat64() > 0)
		}
	}
	return rows
}

// TestSparseGPRounds checks rounds of sparse GPs against a fit to rows in memory with the same
// inducing inputs, and that the posterior has the same bits for any number of shards.
func TestSparseGPRounds(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(8, 8))
	z := mat.NewDense(30, 2, nil)
	for i := range 30 {
		z.SetRow(i, []float64{4*rng.Float64() - 2, 4*rng.Float64() - 2})
	}
	for _, c := range testkit.Few([]struct {
		lik Likelihood
		k   Kernel
	}{
		{BernoulliLogit{}, SquaredExp{Scale: 1.5, Length: 1}},
		{Poisson{}, Matern52{Scale: 1, Length: 1.3}},
		{GaussianNoise{Var: 0.1}, Sum{SquaredExp{Scale: 1, Length: 1}, Linear{Scale: 0.5}}},
		{BernoulliLogit{}, Linear{Scale: 1}},
	}, 1) {
		rows := curveRows(12_000, c.lik)
		blocks := blocksOf(t, testkit.Each(rows), 1000)
		x, y := mat.NewDense(len(rows), 2, nil), make([]float64, len(rows))
		for i, r := range rows {
			x.SetRow(i, r.Val)
			y[i] = r.Y
		}
		g, err := NewSparseGP(x, y, c.k, c.lik, &SparseGPOptions{Inducing: z})
		if err != nil {
			t.Fatal(err)
		}
		memory, want, err := g.Fit(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		var first []byte
		for _, shards := range []int{1, 5} {
			r, err := NewSparseGPRounds(z, c.k, c.lik, nil)
			if err != nil {
				t.Fatal(err)
			}
			deal := rand.New(rand.NewPCG(uint64(shards), 1))
			var it Iteration
			for range 8 {
				all := make([]*Shard[Row], shards)
				for i := range all {
					all[i] = kit.Travel(t, r.Shard())
				}
				for _, b := range deal.Perm(len(blocks)) {
					if err := all[deal.IntN(shards)].Add(ctx, uint64(b),
						testkit.Each(blocks[b])); err != nil {
						t.Fatal(err)
					}
				}
				for _, s := range all[1:] {
					if err := all[0].Merge(kit.Travel(t, s)); err != nil {
						t.Fatal(err)
					}
				}
				if it, err = r.Step(all[0]); err != nil {
					t.Fatal(err)
				}
				b, err := r.MarshalBinary()
				if err != nil {
					t.Fatal(err)
				}
				r = &Rounds[Row, *SparseGPPosterior]{}
				if err := r.UnmarshalBinary(b); err != nil {
					t.Fatal(err)
				}
				if it.GapBound <= 1e-3 {
					break
				}
			}
			p, err := r.Posterior()
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := p.Save(&out); err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = out.Bytes()
			} else if !bytes.Equal(first, out.Bytes()) {
				t.Errorf("%s on %d shards: other bits", testkit.TypeName(c.lik), shards)
			}
			off := want.ELBO - it.ELBO
			if !(it.K <= 5 && it.GapBound <= 1e-3 && off <= it.GapBound+1e-6*math.Abs(want.ELBO) &&
				off >= -1e-6*math.Abs(want.ELBO)) {
				t.Errorf("%s %T: after %d rounds ELBO %v, proved within %v; in memory %v",
					testkit.TypeName(c.lik), c.k, it.K, it.ELBO, it.GapBound, want.ELBO)
			}
			at := x.Slice(0, 50, 0, 2)
			m, _ := p.At(at).Latent(nil, nil)
			m0, v0 := memory.At(at).Latent(nil, nil)
			for i := range m {
				if !(math.Abs(m[i]-m0[i]) <= 1e-2*math.Sqrt(v0[i])+1e-4) {
					t.Errorf("%s: latent mean %d is %v, in memory %v", testkit.TypeName(c.lik), i,
						m[i],
						m0[i])
					break
				}
			}
		}
	}
	k := SquaredExp{Scale: 1, Length: 1}
	for i, c := range []struct {
		z    mat.Matrix
		k    Kernel
		lik  Likelihood
		opt  *SparseGPOptions
		want error
		text string
	}{
		{nil, k, nil, nil, ErrEmpty, "inducing inputs"},
		{z, nil, nil, nil, ErrParam, "the Kernel is nil"},
		{z, k, nil, &SparseGPOptions{Inducing: z}, ErrParam, "nil"},
		{z, k, nil, &SparseGPOptions{Rank: -1}, ErrParam, "Rank"},
		{z, k, nil, &SparseGPOptions{MaxMemory: 1000}, ErrMemory, "Rank"},
		{z, SquaredExp{Length: -1}, nil, nil, ErrParam, "Length"},
		{mat.NewDense(1, 1, []float64{math.NaN()}), k, nil, nil, ErrNotFinite, "row 0"},
		{z, k, StudentT{DF: -1}, nil, ErrParam, "DF"},
	} {
		_, err := NewSparseGPRounds(c.z, c.k, c.lik, c.opt)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) ||
			!testkit.PrefixedOnce(err) {
			t.Errorf("%d: %v, want %q and %v", i, err, c.text, c.want)
		}
	}
	r, err := NewSparseGPRounds(z, k, BernoulliLogit{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewSparseGPRounds(z, SquaredExp{Scale: 1, Length: 2}, BernoulliLogit{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Shard().Merge(other.Shard()); !errors.Is(err, ErrParam) {
		t.Errorf("another kernel: %v", err)
	}
}
