package runs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pgsvi/pgsvi/internal/estimate"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
)

// run is a model and how it is run, to be interrupted.
type run struct {
	name   string
	model  Model
	solver Solver
}

// some returns every third run.
func some(runs []run) (few []run) {
	for i := 0; i < len(runs); i += 3 {
		few = append(few, runs[i])
	}
	return few
}

// interruptedRuns returns one run of each way to step that there is.
func interruptedRuns(t testing.TB) []run {
	t.Helper()
	rng := testkit.Rand(61)
	const n, d = 36, 3
	x := mat.NewDense(n, d, nil)
	classes, counts, robust := make([]float64, n), make([]float64, n), make([]float64, n)
	for i := range n {
		x.SetRow(i, []float64{rng.NormFloat64(), rng.NormFloat64(), rng.NormFloat64()})
		f := math.Sin(2*x.At(i, 0)) + x.At(i, 1)
		classes[i] = testkit.PlusMinus(f+0.3*rng.NormFloat64() > 0)
		counts[i] = math.Round(math.Exp(f))
		robust[i] = f
		if i%5 == 0 {
			robust[i] += 6
		}
	}
	sparse := NewSparse(9)
	for i := range n {
		if err := sparse.Append([]int{i % 4, 4 + i%5},
			[]float64{x.At(i, 0), x.At(i, 1)}); err != nil {
			t.Fatal(err)
		}
	}
	gp := func(lik Likelihood, y []float64, o *GPOptions) *GP {
		return testkit.Must(NewGP(x, y, SquaredExp{Scale: 2}, lik, o))
	}
	glm := func(lik Likelihood, y []float64,
		o *GLMOptions) *GLM {
		return testkit.Must(NewGLM(x, y, lik, o))
	}
	wide := mat.NewDense(n, 60, nil)
	for i := range n {
		for j := range 60 {
			wide.Set(i, j, rng.NormFloat64())
		}
	}
	rows := make([][]float64, n)
	for i := range rows {
		rows[i] = x.RawRowView(i)
	}
	logistic := Sites{X: rows, Y: classes, Lik: BernoulliLogit{}}
	ll := LogLik{N: n, Dim: d, LogProb: func(i int, z []float64) float64 {
		var eta float64
		for j, v := range rows[i] {
			eta += v * z[j]
		}
		return -math.Log1p(math.Exp(-classes[i] * eta))
	}}
	objective := func(ll LogLikelihood, e Estimator, q *Gaussian) Objective[*Gaussian] {
		return Objective[*Gaussian]{F: Expect(ll, e), H: KLTo(NewIsotropic(d, 4)), Init: q}
	}
	linear := objective(logistic, Exact(), NewIsotropic(d, 1).In(LogCholesky)).Linearized()
	waits := Objective[*Exp]{F: SmoothFunc(n, true,
		func(_ *Env, dst []float64, q Dist, batch []int) (v float64, err error) {
			rate := q.(*Exp).MeanParams(nil)[0]
			b := estimate.NewBatch(batch, n)
			clear(dst)
			for i := range b.N {
				v += b.Scale * (math.Abs(robust[b.Index(i)])*rate - math.Log1p(rate))
				dst[0] += b.Scale * (math.Abs(robust[b.Index(i)]) - 1/(1+rate))
			}
			q.(*Exp).FromMeanGrad(dst, dst)
			return v, nil
		}), H: KLTo(testkit.Must(NewExp(waiting{}, []float64{-1}))),
		Init: testkit.Must(NewExp(waiting{}, []float64{-2}))}
	point := Objective[*Point]{F: SmoothFunc(n, true,
		func(_ *Env, dst []float64, q Dist, batch []int) (v float64, err error) {
			w := q.Params(nil)
			b := estimate.NewBatch(batch, n)
			clear(dst)
			for i := range b.N {
				row, r := rows[b.Index(i)], -robust[b.Index(i)]
				for j, xj := range row {
					r += xj * w[j]
				}
				for j, xj := range row {
					dst[j] += b.Scale * r * xj
				}
				v += 0.5 * b.Scale * r * r
			}
			return v, nil
		}), H: L1(0.5, 0), Init: NewPoint(make([]float64, d))}
	topics := func(o *CTMOptions) *CTM { return testkit.Must(NewCTM(savedCorpus(), 3, o)) }
	steps := RobbinsMonro(0.3, 0, 0)
	mini := Solver{StepSize: steps, BatchSize: 7, MaxPasses: 6}
	return []run{
		{"GP, blocks", gp(Poisson{}, counts, nil), Solver{}},
		{"GP, small blocks", gp(Poisson{}, counts, nil), Solver{BatchSize: 5, EvalEvery: 3}},
		{"GP, all terms", gp(StudentT{DF: 3, Scale: 0.4}, robust, nil), Solver{BatchSize: n}},
		{"GP, blocks and all terms", gp(StudentT{DF: 3, Scale: 0.4}, robust, nil),
			Solver{Sampler: nowAndThen{}, BatchSize: n, MaxPasses: 12, EvalEvery: -1}},
		{"GP, step size",
			gp(BernoulliLogit{}, classes, &GPOptions{Estimator: ScoreFunction(30)}), mini},
		{"GP, step size, appendix",
			gp(BernoulliLogit{}, classes,
				&GPOptions{Estimator: Pathwise(8), Coordinates: MeanCov}),
			Solver{StepSize: steps, BatchSize: 9, MaxPasses: 5, Sampler: WithReplacement(),
				EvalEvery: 4}},
		{"GP, another divergence", gp(BernoulliLogit{}, classes, &GPOptions{Jitter: 1e-3}),
			Solver{Divergence: SymKL(), MaxPasses: 5}},
		{"GP, outer steps", gp(BernoulliLogit{}, classes, nil), Solver{}},
		{"GP, outer steps and blocks", gp(BernoulliProbit{}, classes, nil),
			Solver{Sampler: nowAndThen{}, BatchSize: n, MaxPasses: 12, EvalEvery: 2}},
		{"GP, now and then a step size",
			gp(BernoulliLogit{}, classes, &GPOptions{Estimator: ScoreFunction(30)}),
			Solver{StepSize: sometimes{}, BatchSize: 9, MaxPasses: 8, EvalEvery: 7}},
		{"GLM", glm(Poisson{}, counts, nil), Solver{}},
		{"GLM, small blocks", glm(StudentT{DF: 3, Scale: 0.4}, robust, nil),
			Solver{BatchSize: 4, MaxPasses: 8, EvalEvery: 4}},
		{"GLM, step size",
			glm(BernoulliLogit{}, classes, &GLMOptions{Estimator: ScoreFunction(30)}),
			mini},
		{"GLM, now and then a step size", glm(BernoulliLogit{}, classes, nil),
			Solver{StepSize: sometimes{}, BatchSize: 9, MaxPasses: 8, EvalEvery: 7}},
		{"GLM, sparse", testkit.Must(NewGLM(sparse, classes, BernoulliLogit{}, nil)), Solver{}},
		{"GLM, more weights than rows", testkit.Must(NewGLM(wide, classes, BernoulliLogit{}, nil)),
			Solver{}},
		{"GLM, diagonal", glm(Poisson{}, counts, &GLMOptions{Covariance: DiagonalCovariance}),
			Solver{}},
		{"GLM, diagonal, step size",
			glm(BernoulliLogit{}, classes,
				&GLMOptions{Covariance: DiagonalCovariance, Estimator: Pathwise(0)}), mini},
		{"GLM, low rank",
			testkit.Must(
				NewGLM(wide, classes, BernoulliLogit{},
					&GLMOptions{Covariance: LowRankCovariance, Rank: 3})), Solver{}},
		{"GLM, another divergence", glm(BernoulliLogit{}, classes, nil),
			Solver{Divergence: ReverseKL(), MaxPasses: 3}},
		{"SparseGP", testkit.Must(NewSparseGP(x, classes, SquaredExp{Scale: 2}, BernoulliLogit{},
			&SparseGPOptions{Rank: 8})), Solver{}},
		{"Objective", objective(logistic, Exact(), NewIsotropic(d, 1)), Solver{}},
		{"Objective, draws", objective(ll, ScoreFunction(40), NewIsotropic(d, 1)),
			Solver{MaxPasses: 40, EvalEvery: 6}},
		{"Objective, draws and batches",
			objective(ll, ScoreFunction(20), NewIsotropicMeanField(d, 1)),
			Solver{BatchSize: 9, MaxPasses: 30, EvalEvery: 25}},
		{"Objective, step size", objective(logistic, Pathwise(5), NewIsotropic(d, 1)),
			mini},
		{"Objective, Adam", linear,
			Solver{Divergence: Adam(0, 0, 0), StepSize: ConstantStep(0.05), BatchSize: 9,
				MaxPasses: 6}},
		{"Objective, AdaGrad", linear, Solver{Divergence: AdaGrad(0), MaxPasses: 6}},
		{"Objective, Adadelta", linear,
			Solver{Divergence: Adadelta(0, 0), StepSize: ConstantStep(1), BatchSize: 9,
				MaxPasses: 6}},
		{"Objective, a family", waits, Solver{}},
		{"Objective, a point", point, Solver{MaxPasses: 8}},
		{"CTM", topics(nil), Solver{BatchSize: 4}},
		{"CTM, evaluated", topics(&CTMOptions{Expectation: CTMDelta, Diagonal: true}),
			Solver{BatchSize: 5, MaxPasses: 4, EvalEvery: 2}},
		{"CTM, forgetful", topics(&CTMOptions{Forget: true}), Solver{BatchSize: 4, MaxPasses: 4}},
		{"CTM, paper", topics(&CTMOptions{Paper: true}), Solver{MaxPasses: 2}},
	}
}

// savedCorpus returns documents of two kinds.
func savedCorpus() *Corpus {
	rng := testkit.Rand(62)
	c := &Corpus{Terms: 12}
	for i := range 24 {
		doc := Document{}
		for v := range 12 {
			if (v < 6) == (i%2 == 0) && rng.IntN(2) == 0 || rng.IntN(8) == 0 {
				doc.Words = append(doc.Words, v)
				doc.Counts = append(doc.Counts, float64(1+rng.IntN(4)))
			}
		}
		c.Docs = append(c.Docs, doc)
	}
	return c
}

// waiting is the exponential distribution, η < 0 being minus its rate.
type waiting struct{}

func (waiting) Dim() int { return 1 }

func (waiting) NumParams() int { return 1 }

func (waiting) LogPartition(eta []float64) float64 { return -math.Log(-eta[0]) }

func (waiting) Mean(dst, eta []float64) { dst[0] = -1 / eta[0] }

func (waiting) Fisher(dst *mat.SymDense, eta []float64) {
	dst.SetSym(0, 0, 1/(eta[0]*eta[0]))
}

func (waiting) Stat(dst, z []float64) { dst[0] = z[0] }

func (waiting) LogBase(z []float64) float64 { return 0 }

func (waiting) Rand(z, t, eta []float64, rng *rand.Rand) {
	z[0] = -rng.ExpFloat64() / eta[0]
	t[0] = z[0]
}

// nowAndThen has batches of a few terms, and of all.
type nowAndThen struct{}

func (nowAndThen) Batches(n, _ int, rng *rand.Rand) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		for {
			all := rng.Perm(n)
			for _, size := range []int{5, n, n, 3, 7, n} {
				if !yield(all[:size]) {
					return
				}
			}
		}
	}
}

// sometimes leaves every third step, in runs of three, to the Stepper.
type sometimes struct{}

func (sometimes) StepSize(k int) float64 {
	if k%9 < 3 {
		return math.Inf(1)
	}
	return 0.2
}

// bitsOf returns every bit of a run except its times.
func bitsOf(t testing.TB, r *Result) string {
	t.Helper()
	c := *r
	c.Elapsed, c.Trace = 0, append([]Iteration(nil), r.Trace...)
	for i := range c.Trace {
		c.Trace[i].Elapsed = 0
	}
	var b bytes.Buffer
	if err := c.Save(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// cancelAfter returns a Solver.Record that cancels a run after the given number of iterations.
func cancelAfter(left int, cancel context.CancelFunc) func(Iteration) {
	return func(Iteration) {
		if left--; left <= 0 {
			cancel()
		}
	}
}

// uninterrupted returns the bits of r, and its number of iterations.
func (r run) uninterrupted(t testing.TB) (bits string, iterations int) {
	t.Helper()
	s := r.solver
	res, err := s.Run(context.Background(), r.model)
	if err != nil {
		t.Fatalf("%s: %v", r.name, err)
	}
	return bitsOf(t, res), res.K
}

// interruptions returns how many of a kind of interruption each of the runs has, so that there are
// all in all.
func interruptions(all, short, runs int) int {
	if !testkit.IsLong() {
		all = short
	}
	return (all + runs - 1) / runs
}

// TestResumeLaterChanges checks a GP that is so large that changes of V are delayed. A run that
// is saved between two blocks and resumed must end with the bits of an uninterrupted run, for any
// number of workers. Its ELBO and gap must match a V that is computed from the sites.
func TestResumeLaterChanges(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	rng := rand.New(rand.NewPCG(12, 5))
	x, y := mat.NewDense(site.LaterTerms, 3, nil), make([]float64, site.LaterTerms)
	for i := range y {
		for j := range 3 {
			x.Set(i, j, rng.NormFloat64())
		}
		y[i] = float64(rng.IntN(4))
	}
	g, err := NewGP(x, y, SquaredExp{Scale: 1.2, Length: 2}, Poisson{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := run{name: "GP", model: g, solver: Solver{MaxPasses: 3}}
	want, k := r.uninterrupted(t)
	waited := false
	// after consecutive steps, of which one in three or four leaves no delayed change
	for i, workers := range []int{1, 2, 7} {
		s := r.solver
		s.Workers = workers
		res, err := s.Start(context.Background(), g)
		if err != nil {
			t.Fatal(err)
		}
		// Left here, where a canceled run would be evaluated, and with it V, if that takes but a
		// moment.
		for it, err := range s.Steps(context.Background(), res) {
			if err != nil {
				t.Fatal(err)
			}
			if it.K == 13+i {
				break
			}
		}
		a := kit.AlgOf[*site.DenseAlgebra](res.Stepper)
		waited = waited || a.Later.Rank() > 0
		var file bytes.Buffer
		if err := res.Save(&file); err != nil {
			t.Fatal(err)
		}
		if res, err = s.LoadResult(context.Background(), &file, g); err != nil {
			t.Fatal(err)
		}
		if res, err = s.Resume(context.Background(), res); err != nil {
			t.Fatal(err)
		}
		if got := bitsOf(t, res); got != want {
			t.Errorf("%d workers: another end after %d of %d iterations", workers, res.K, k)
		}
		a = kit.AlgOf[*site.DenseAlgebra](res.Stepper)
		elbo := a.Elbo(&a.Cur, a.LogDet)
		a.Fresh, a.Dense, a.Pg.Current = false, false, false
		if err := a.Refresh(true); err != nil {
			t.Fatal(err)
		}
		if anew := a.Elbo(&a.Cur, a.LogDet); !(math.Abs(anew-elbo) <= 1e-11*math.Abs(anew)) {
			t.Errorf("%d workers: the ELBO is %v, and %v with V anew", workers, elbo, anew)
		}
	}
	if !waited {
		t.Error("no change waited when a run was saved")
	}
}

// TestResumeInterrupted checks that a run which is canceled at any step and resumed, directly or
// from a saved file, ends with the bits of an uninterrupted run, for any number of workers.
func TestResumeInterrupted(t *testing.T) {
	t.Parallel()
	runs := interruptedRuns(t)
	if testing.Short() {
		runs = some(runs)
	}
	times := interruptions(600, testkit.Shorter(64, 8), len(runs))
	total := 0
	for at, r := range runs {
		rng := rand.New(rand.NewPCG(uint64(at), 9))
		want, k := r.uninterrupted(t)
		for done := 0; done < times; {
			s := r.solver
			res, err := s.Start(context.Background(), r.model)
			if err != nil {
				t.Fatal(err)
			}
			var story []string
			for res.Status == NotTerminated || res.Status == Canceled {
				ctx, cancel := context.WithCancel(context.Background())
				s.Record, s.Workers = nil, 1+2*rng.IntN(2)
				if len(story) < 6 {
					s.Record = cancelAfter(1+rng.IntN(max(1, k)), cancel)
				}
				if rng.IntN(2) == 0 {
					story = append(story, fmt.Sprintf("saved at %d", res.K))
					var file bytes.Buffer
					if err := res.Save(&file); err != nil {
						t.Fatalf("%s: %v", r.name, err)
					}
					if res, err = s.LoadResult(ctx, &file, r.model); err != nil {
						t.Fatalf("%s: %v", r.name, err)
					}
				}
				if res, err = s.Resume(ctx, res); err != nil && !errors.Is(err, context.Canceled) {
					t.Fatalf("%s: %v", r.name, err)
				}
				if res.Status == Canceled {
					done++
					total++
					story = append(story, fmt.Sprintf("canceled at %d", res.K))
				}
				cancel()
			}
			if got := bitsOf(t, res); got != want {
				t.Errorf("%s: another end after %d of %d iterations with %v after %v", r.name,
					res.K, k, res.Status, story)
				break
			}
			if len(story) == 0 || k < 2 {
				break
			}
		}
	}
	t.Logf("%d interruptions of %d runs", total, len(runs))
}

// asker computes the posterior in every iteration.
type asker struct {
	t *testing.T
	g *GP
}

func (a asker) record(it Iteration) {
	if _, err := a.g.Posterior(it.State); err != nil {
		a.t.Error(err)
	}
}

// TestPosteriorChangesNothing checks that computing the posterior in every iteration changes
// neither the bits of a run nor the bits of its file.
func TestPosteriorChangesNothing(t *testing.T) {
	t.Parallel()
	classes := kit.ToyGP(t, 36, SquaredExp{Scale: 2}, BernoulliLogit{}, 3)
	noise := kit.ToyGP(t, 36, SquaredExp{Scale: 2}, GaussianNoise{Var: 0.1}, 3)
	// including the last step
	mini := Solver{StepSize: RobbinsMonro(0.3, 0, 0), BatchSize: 7, MaxPasses: 4, EvalEvery: 6}
	for _, c := range []struct {
		name string
		g    *GP
		s    Solver
	}{
		{"step size", classes, mini},
		{"step size, Gaussian noise", noise, mini},
		{"now and then a step size", noise,
			Solver{StepSize: sometimes{}, BatchSize: 9, MaxPasses: 6, EvalEvery: 7}},
		{"closed form", noise, Solver{}},
		{"blocks", classes, Solver{}},
	} {
		var bits [2]string
		for i := range bits {
			s := c.s
			if i == 1 {
				s.Record = asker{t, c.g}.record
			}
			res, err := s.Run(context.Background(), c.g)
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			bits[i] = bitsOf(t, res)
		}
		if bits[0] != bits[1] {
			t.Errorf("%s: asking for the posterior changes the run", c.name)
		}
	}
}

// TestResumeInside checks that a run which is canceled inside a step, an evaluation or the
// set-up, at any check of its context, resumes to the bits of an uninterrupted run.
func TestResumeInside(t *testing.T) {
	t.Parallel()
	runs := interruptedRuns(t)
	if testing.Short() {
		runs = some(runs)
	}
	times := interruptions(400, testkit.Shorter(64, 8), len(runs))
	total := 0
	for at, r := range runs {
		rng := rand.New(rand.NewPCG(uint64(at), 11))
		want, k := r.uninterrupted(t)
		s := r.solver
		whole := testkit.NewAsked(math.MaxInt64)
		res, err := s.Run(whole, r.model)
		if err != nil {
			t.Fatal(err)
		}
		if got := bitsOf(t, res); got != want {
			t.Errorf("%s: a context changes the run", r.name)
		}
		for range times {
			s.Workers = 1 + 2*rng.IntN(2)
			limit := rng.Int64N(whole.Asked.Load())
			ctx := testkit.NewAsked(limit)
			res, err := s.Run(ctx, r.model)
			if err == nil {
				continue // the number of checks depends on the number of workers
			}
			total++
			if !errors.Is(err, context.Canceled) || !testkit.PrefixedOnce(err) {
				t.Fatalf("%s, asked %d times of %d: %v", r.name, limit, whole.Asked.Load(), err)
			}
			if res == nil {
				continue // in the set-up
			}
			switch m := r.model.(type) { // asking changes nothing
			case *GP:
				_, err = m.Posterior(res.Stepper)
			case *GLM:
				_, err = m.Posterior(res.Stepper)
			}
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Fatalf("%s: %v", r.name, err)
			}
			at := res.K
			again := testkit.NewAsked(rng.Int64N(whole.Asked.Load()))
			if rng.IntN(2) == 0 {
				var file bytes.Buffer
				if err := res.Save(&file); err != nil {
					t.Fatal(err)
				}
				if res, err = s.LoadResult(context.Background(), &file, r.model); err != nil {
					t.Fatalf("%s: %v", r.name, err)
				}
			}
			if res, err = s.Resume(again, res); err != nil {
				total++
				res, err = s.Resume(context.Background(), res)
			}
			if err != nil {
				t.Fatalf("%s: %v", r.name, err)
			}
			if got := bitsOf(t, res); got != want {
				t.Errorf("%s: another end, canceled at step %d and %d calls of %d, of %d steps",
					r.name, at+1, limit, whole.Asked.Load(), k)
				break
			}
		}
	}
	t.Logf("%d interruptions of %d runs", total, len(runs))
}

const (
	killedRun  = "PGSVI_TEST_KILLED_RUN"  // the name of the run that the process is to make
	killedFile = "PGSVI_TEST_KILLED_FILE" // the checkpoint of that process
)

// TestKilledRun is the process that TestResumeKilled kills.
func TestKilledRun(t *testing.T) {
	name, path := os.Getenv(killedRun), os.Getenv(killedFile)
	if name == "" {
		t.Skip("for TestResumeKilled")
	}
	for _, r := range interruptedRuns(t) {
		if r.name != name {
			continue
		}
		ctx, s := context.Background(), r.solver
		s.Checkpoint = Checkpoint{Path: path, Passes: 1e-9}
		s.Record = func(Iteration) { fmt.Print(".") }
		var res *Result
		file, err := os.Open(path)
		if err == nil {
			res, err = s.LoadResult(ctx, file, r.model)
			file.Close()
		} else {
			res, err = s.Start(ctx, r.model)
		}
		if err == nil && res.Status == NotTerminated {
			res, err = s.Resume(ctx, res)
		}
		if err == nil {
			err = os.WriteFile(path+".bits", []byte(bitsOf(t, res)), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// skipEmulated skips a test that starts its own program where that is made for a processor that is
// emulated, which the system then cannot start.
func skipEmulated(t *testing.T, err error) {
	if errors.Is(err, syscall.ENOEXEC) {
		t.Skip(err)
	}
}

// TestResumeKilled checks that a run whose process is killed at any moment continues from its
// checkpoint in another process, with the same bits.
func TestResumeKilled(t *testing.T) {
	if runtime.GOOS == "windows" || runtime.GOOS == "js" {
		t.Skip("no SIGKILL")
	}
	t.Parallel()
	runs := interruptedRuns(t)
	if testing.Short() {
		runs = []run{runs[0], runs[21]}
	} else if !testkit.IsLong() {
		runs = some(runs)
	}
	times := interruptions(120, testkit.Shorter(12, 8), len(runs))
	total, resumed := 0, 0
	for at, r := range runs {
		rng := rand.New(rand.NewPCG(uint64(at), 10))
		want, _ := r.uninterrupted(t)
		path := filepath.Join(t.TempDir(), "checkpoint")
		for kills := 0; ; {
			cmd := exec.Command(os.Args[0], "-test.run=^TestKilledRun$")
			cmd.Env = append(os.Environ(), killedRun+"="+r.name, killedFile+"="+path,
				"GOCOVERDIR="+t.TempDir())
			var said bytes.Buffer
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd.Stderr = &said
			_, none := os.Stat(path)
			if err := cmd.Start(); err != nil {
				skipEmulated(t, err)
				t.Fatal(err)
			}
			if kills < times {
				io.CopyN(&said, out, int64(2+rng.IntN(12))) // a random number of steps
				time.Sleep(time.Duration(rng.IntN(1000)) * time.Microsecond)
				cmd.Process.Kill()
			}
			io.Copy(&said, out)
			err = cmd.Wait()
			switch state, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); {
			case ok && state.Signaled() && state.Signal() == syscall.SIGKILL:
				kills++
				total++
				if none == nil {
					resumed++
				}
				continue
			case err != nil:
				t.Fatalf("%s: %v\n%s", r.name, err, said.String())
			}
			got, err := os.ReadFile(path + ".bits")
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != want {
				t.Fatalf("%s: another end", r.name)
			}
			if kills >= times {
				break
			}
			os.Remove(path)
		}
		if left, _ := filepath.Glob(path + "*.tmp"); len(left) > 1 {
			t.Errorf("%s: files are left: %v", r.name, left)
		}
	}
	t.Logf("%d processes killed, %d of them with a checkpoint before", total, resumed)
}

// noSnapshot is a Stepper that cannot be saved.
type noSnapshot struct{ Stepper }

type noSnapshotModel struct{ Model }

func (m noSnapshotModel) NewStepper(ctx context.Context, env *Env, d Divergence) (Stepper, error) {
	st, err := m.Model.NewStepper(ctx, env, d)
	return noSnapshot{st}, err
}

// anonymous is a source of randomness that cannot be saved.
type anonymous struct{ rand.Source }

// anyMetric is a Metric of another package that cannot be saved.
type anyMetric struct{}

func (anyMetric) Next(s, _ []float64, _ float64) {
	for i := range s {
		s[i] = 1
	}
}

// TestSaveResultErrors checks that the errors of saving and loading contain the remedy.
func TestSaveResultErrors(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	x, y := kit.SavedData(12, 2, BernoulliLogit{}, 1)
	glm := testkit.Must(NewGLM(x, y, BernoulliLogit{}, nil))
	logistic := Sites{Y: y, Lik: BernoulliLogit{}}
	for i := range y {
		logistic.X = append(logistic.X, x.RawRowView(i))
	}
	objective := Objective[*Gaussian]{F: Expect(logistic, Exact()), H: KLTo(NewIsotropic(2, 4)),
		Init: NewIsotropic(2, 1).In(LogCholesky)}.Linearized()
	for name, c := range map[string]struct {
		model Model
		s     Solver
		want  string
	}{
		"no Snapshotter": {noSnapshotModel{glm}, Solver{}, "give it MarshalBinary"},
		"source":         {glm, Solver{Src: anonymous{rand.NewPCG(1, 2)}}, "use a source of math/rand/v2"},
		"metric": {objective,
			Solver{Divergence: Adaptive(func(int) Metric { return anyMetric{} }), StepSize: ConstantStep(0.1)},
			"give it MarshalBinary"},
	} {
		c.s.MaxPasses = 2
		res, err := c.s.Run(ctx, c.model)
		if err != nil {
			t.Fatal(err)
		}
		if err := res.Save(io.Discard); !errors.Is(err, ErrParam) || !testkit.PrefixedOnce(err) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		c.s.Checkpoint = Checkpoint{Path: filepath.Join(t.TempDir(), "run"), Passes: 1}
		res, err = c.s.Run(ctx, c.model)
		if !errors.Is(err, ErrParam) || !testkit.PrefixedOnce(err) ||
			!strings.Contains(err.Error(), c.want) || res == nil || res.K != 0 {
			t.Errorf("%s: a checkpoint: %v, %v", name, res, err)
		}
	}

	var file bytes.Buffer
	s := &Solver{MaxPasses: 3}
	res, err := s.Run(ctx, glm)
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Save(&file); err != nil {
		t.Fatal(err)
	}
	load := func(s *Solver, m Model) error {
		_, err := s.LoadResult(ctx, bytes.NewReader(file.Bytes()), m)
		return err
	}
	other := mat.DenseCopyOf(x)
	other.Set(3, 1, math.Nextafter(other.At(3, 1), 9))
	for name, m := range map[string]Model{
		"data":  testkit.Must(NewGLM(other, y, BernoulliLogit{}, nil)),
		"prior": testkit.Must(NewGLM(x, y, BernoulliLogit{}, &GLMOptions{PriorSD: 2})),
		"link":  testkit.Must(NewGLM(x, y, BernoulliProbit{}, nil)),
		"offset": testkit.Must(
			NewGLM(x, y, BernoulliLogit{}, &GLMOptions{Offset: make([]float64, len(y))})),
		"columns": testkit.Must(NewGLM(x, y, BernoulliLogit{}, &GLMOptions{Intercept: true})),
		"family": testkit.Must(
			NewGLM(x, y, BernoulliLogit{}, &GLMOptions{Covariance: DiagonalCovariance})),
		"GP":       testkit.Must(NewGP(x, y, Linear{}, BernoulliLogit{}, nil)),
		"topics":   testkit.Must(NewCTM(savedCorpus(), 2, nil)),
		"function": objective,
	} {
		if err := load(s, m); !isFileError(err, "") ||
			!strings.Contains(err.Error(), "another model") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := load(&Solver{Src: anonymous{rand.NewPCG(1, 2)}}, glm); !errors.Is(err, ErrParam) ||
		!testkit.PrefixedOnce(err) {
		t.Errorf("a source without UnmarshalBinary: %v", err)
	}
	if err := load(&Solver{Src: rand.NewChaCha8([32]byte{})}, glm); !errors.Is(err, ErrParam) ||
		!testkit.PrefixedOnce(err) {
		t.Errorf("another source: %v", err)
	}
	if err := load(s, noSnapshotModel{glm}); !errors.Is(err, ErrParam) ||
		!testkit.PrefixedOnce(err) {
		t.Errorf("no Snapshotter: %v", err)
	}
	if err := load(s, nil); !errors.Is(err, ErrParam) || !testkit.PrefixedOnce(err) {
		t.Errorf("no Model: %v", err)
	}
	if err := load(&Solver{Checkpoint: Checkpoint{Every: -1}}, glm); !errors.Is(err, ErrParam) ||
		!testkit.PrefixedOnce(err) {
		t.Errorf("an option: %v", err)
	}
	if err := load(&Solver{Divergence: SymKL()},
		testkit.Must(NewGLM(x, y, BernoulliLogit{}, nil))); !isFileError(err, "") {
		t.Errorf("another divergence: %v", err)
	}
	if err := load(s, testkit.Must(NewGLM(x, y, BernoulliLogit{}, nil))); err != nil {
		t.Errorf("the same model made again: %v", err)
	}
}

// TestRunMutated checks saved runs of every kind with a wrong state and a right checksum. Each
// must be an error or a valid run, and use at most 64 MB and ten times its size.
func TestRunMutated(t *testing.T) {
	files := 400
	if testing.Short() {
		files = 40
	}
	ctx := context.Background()
	for i, r := range interruptedRuns(t) {
		rng := testkit.Rand(uint64(300 + i))
		s := r.solver
		s.MaxIter = 3
		res, err := s.Run(ctx, r.model)
		if err != nil {
			t.Fatalf("%s: %v", r.name, err)
		}
		var file bytes.Buffer
		if err := res.Save(&file); err != nil {
			t.Fatalf("%s: %v", r.name, err)
		}
		state := []byte(testkit.BodyOf(t, testkit.Kind("Result"), file.String()))
		refused := 0
		for range files {
			data := []byte(testkit.FileOf(t, testkit.Kind("Result"),
				string(mutateBits(rng, state))))
			solver := r.solver
			var err error
			if n := testkit.Allocated(func() {
				_, err = solver.LoadResult(ctx, bytes.NewReader(data), r.model)
			}); n > uint64(10*len(data)+64<<20) {
				t.Errorf("%s: %d MB allocated for %d bytes", r.name, n>>20, len(data))
			}
			if err != nil {
				refused++
				if !isRunError(err) {
					t.Errorf("%s: %v", r.name, err)
				}
			}
		}
		if refused < files/4 {
			t.Errorf("%s: of %d states %d are refused", r.name, files, refused)
		}
	}
}

// TestResumeOtherLayout checks the error for the state of a run whose layout was different when it
// was saved.
func TestResumeOtherLayout(t *testing.T) {
	l := LogLik{N: 5, Dim: 1, LogProb: func(_ int, z []float64) float64 { return -z[0] * z[0] }}
	o := Objective[*Gaussian]{F: Expect(l, ScoreFunction(0)), H: KLTo(NewIsotropic(1, 100)),
		Init: NewIsotropic(1, 1)}
	st, err := o.NewStepper(context.Background(), NewEnv(nil, 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	saved := st.(interface {
		MarshalBinary() ([]byte, error)
		UnmarshalBinary(b []byte) error
	})
	b, err := saved.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range [][]byte{b[:len(b)-8], append(bytes.Clone(b), make([]byte, 8)...)} {
		err := saved.UnmarshalBinary(other)
		if !errors.Is(err, ErrFile) ||
			!strings.Contains(err.Error(), "another release; repeat the run") {
			t.Errorf("%d bytes in place of %d: error %v", len(other), len(b), err)
		}
	}
}
