package site

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/floats/scalar"
)

// poisson is a likelihood of counts with rate exp(η), in closed form.
type poisson struct{}

func (poisson) LogProb(y, eta float64) float64 {
	g, _ := math.Lgamma(y + 1)
	return y*eta - math.Exp(eta) - g
}

func (p poisson) Expect(y, m, v float64) term.Expectation {
	e := math.Exp(m + 0.5*v)
	g, _ := math.Lgamma(y + 1)
	x := y*m - e - g
	return term.Expectation{Value: x, D1: y - e, D2: -e, Err: 1e-16 * (math.Abs(y*m) + e + g)}
}

func (poisson) Concave() bool                                        { return true }
func (poisson) SelfBounded() bool                                    { return true }
func (poisson) Bounded() bool                                        { return false }
func (poisson) Real() bool                                           { return false }
func (poisson) Each() *term.Many                                     { return nil }
func (poisson) Rated() func(y float64) (sign, origin, slope float64) { return nil }
func (poisson) Identify(d *save.Digest)                              {}

// covBase is a CovMover with a prior, and no optional methods.
type covBase struct{ m CovMover }

func (b *covBase) Cover(v, delta []float64) (float64, bool)    { return b.m.Cover(v, delta) }
func (b *covBase) Move(d, delta, u []float64) (square float64) { return b.m.Move(d, delta, u) }
func (b *covBase) Accept()                                     { b.m.Accept() }
func (b *covBase) Prior() (s term.Marginals) {
	s.Resize(b.m.N)
	for i := range s.V {
		s.V[i] = b.m.Cov[i*b.m.N+i]
	}
	return s
}

// climb takes steps until the gap is small. It returns the evaluation and the number of steps.
func climb(t *testing.T, s Algebra, most int, goal float64) (siteEvaluation, int) {
	t.Helper()
	for k := range most {
		e, err := s.Evaluate(0)
		if err != nil {
			t.Fatal(err)
		}
		if e.Gap < goal {
			return e, k
		}
		if _, err := s.Ascend(); err != nil {
			t.Fatal(err)
		}
	}
	e, _ := s.Evaluate(0)
	return e, most
}

// problem returns sorted times, counts whose rate is a sine of the times, and the covariance of a
// chain.
func problem(n int, seed uint64) (times, y []float64, k []float64) {
	r := rand.New(rand.NewPCG(seed, 1))
	times, y, k = make([]float64, n), make([]float64, n), make([]float64, n*n)
	for i := range n {
		if i > 0 {
			times[i] = times[i-1] + r.ExpFloat64()*0.1
		}
		y[i] = math.Floor(r.ExpFloat64() * math.Exp(math.Sin(times[i])))
	}
	for i := range n {
		for j := range n {
			k[i*n+j] = math.Exp(-math.Abs(times[i]-times[j]) / 2)
		}
	}
	return times, y, k
}

// exactBase is a covBase with the marker method for V⁻¹ = C⁻¹ + Γ.
type exactBase struct{ covBase }

func (*exactBase) exact() {}

// bases are movers with three methods and the same prior.
func bases(times, k []float64) map[string]Base {
	cov := &exactBase{}
	cov.m.Reset(k, len(times))
	return map[string]Base{"covariance": cov, "chain": newChain(times, 1, 2)}
}

// priorOf returns the prior of t on the base.
func priorOf(t *term.Terms, on Base) (*BaseAlgebra, error) {
	s := &BaseAlgebra{}
	return s, s.begin(t, on, term.Crew{})
}

// TestThreeMethods checks that bases with only the three required methods reach the ELBO of the
// dense algebra, with a proof.
func TestThreeMethods(t *testing.T) {
	times, y, k := problem(200, 5)
	terms := &term.Terms{Lik: poisson{}, Y: y}
	d, err := NewDenseAlgebra(terms, k, term.Crew{})
	if err != nil {
		t.Fatal(err)
	}
	want, most := climb(t, d, 50, 1e-10)
	for name, b := range bases(times, k) {
		s, err := priorOf(terms, b)
		if err != nil {
			t.Fatal(err)
		}
		e, steps := climb(t, s, 50, 1e-10)
		t.Logf("%s: %.12g in %d steps, bound %.2g; dense %.12g in %d", name, e.ELBO, steps,
			e.GapBound, want.ELBO, most)
		if !(math.Abs(e.ELBO-want.ELBO) < 1e-9) || !(e.GapBound > 0 && e.GapBound < 1e-8) ||
			steps > most+2 {
			t.Errorf("%s: ELBO %v, bound %v, %d steps", name, e.ELBO, e.GapBound, steps)
		}
		if err := s.Block([]int{0, 1}); !errors.Is(err, sentinel.ErrParam) {
			t.Errorf("%s: a block: %v", name, err)
		}
	}
}

// TestBoundAlongTheWay checks that the gap bound of a chain holds at every step.
func TestBoundAlongTheWay(t *testing.T) {
	times, y, k := problem(60, 7)
	terms := &term.Terms{Lik: poisson{}, Y: y}
	for name, b := range bases(times, k) {
		best, err := priorOf(terms, b)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := climb(t, best, 50, 1e-12)
		s, err := priorOf(terms, bases(times, k)[name])
		if err != nil {
			t.Fatal(err)
		}
		for step := range 8 {
			e, err := s.Evaluate(math.Inf(1))
			if err != nil {
				t.Fatal(err)
			}
			if short := want.ELBO - e.ELBO; !(short <= e.GapBound+1e-10) {
				t.Errorf("%s, step %d: %v nats short, bound %v", name, step, short, e.GapBound)
			}
			if _, err := s.Ascend(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestInexactBase checks that a base without the marker method exact has no proof.
func TestInexactBase(t *testing.T) {
	times, y, k := problem(40, 5)
	b := &covBase{}
	b.m.Reset(k, len(times))
	s, err := priorOf(&term.Terms{Lik: poisson{}, Y: y}, b)
	if err != nil {
		t.Fatal(err)
	}
	if e, _ := climb(t, s, 50, 1e-10); !(e.Gap < 1e-10) || !math.IsInf(e.GapBound, 1) {
		t.Errorf("gap %v, bound %v", e.Gap, e.GapBound)
	}
}

// again saves s and returns what another Sites reads.
func again(t *testing.T, s *BaseAlgebra) *BaseAlgebra {
	t.Helper()
	b, err := save.Marshal(s.State)
	if err != nil {
		t.Fatal(err)
	}
	o, err := priorOf(s.Terms, s.on)
	if err != nil {
		t.Fatal(err)
	}
	if err := save.Unmarshal(b, o.State); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestPaperSteps checks steps with a given β, each with half of the terms, for bases with three
// methods. A run that is saved halfway must continue with the same bits.
func TestPaperSteps(t *testing.T) {
	times, y, k := problem(200, 5)
	terms := &term.Terms{Lik: poisson{}, Y: y}
	for name, b := range bases(times, k) {
		s, err := priorOf(terms, b)
		if err != nil {
			t.Fatal(err)
		}
		first, err := s.Evaluate(0)
		if err != nil {
			t.Fatal(err)
		}
		var x term.Estimates
		batch := make([]int, len(y)/2)
		for k := range 40 {
			for i := range batch {
				batch[i] = 2*i + k%2
			}
			if k == 20 {
				s = again(t, s)
			}
			if err := s.Marginals(&x, batch); err != nil {
				t.Fatal(err)
			}
			for a, i := range batch {
				e := poisson{}.Expect(y[i], x.M[a], x.V[a])
				x.E[a], x.D1[a], x.D2[a] = e.Value, e.D1, e.D2
			}
			if _, err := Step(s, &x, batch, PaperMove{R: 0.7, Scale: 0.3 * 2}, false,
				nil); err != nil {
				t.Fatal(err)
			}
		}
		best, err := priorOf(terms, bases(times, k)[name])
		if err != nil {
			t.Fatal(err)
		}
		want, _ := climb(t, best, 50, 1e-10)
		e, err := s.Evaluate(0)
		if err != nil || !(want.ELBO-e.ELBO < 0.01*(want.ELBO-first.ELBO)) {
			t.Errorf("%s: %v after steps of the paper, %v at best, %v", name, e.ELBO, want.ELBO,
				err)
		}
		for range 3 {
			if _, err := s.Ascend(); err != nil {
				t.Fatal(err)
			}
		}
		o := again(t, s)
		for _, s := range []*BaseAlgebra{s, o} {
			if _, err := s.Ascend(); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(o.Cur.M, s.Cur.M) || !slices.Equal(o.Cur.V, s.Cur.V) {
			t.Errorf("%s: a run that is resumed has other bits", name)
		}
	}
}

// TestChainOfMany checks that a long chain takes as many steps as a short one, in seconds.
func TestChainOfMany(t *testing.T) {
	n := 200000
	if testing.Short() {
		n = 20000
	}
	r := rand.New(rand.NewPCG(3, 1))
	times, y := make([]float64, n), make([]float64, n)
	for i := 1; i < n; i++ {
		times[i] = times[i-1] + r.ExpFloat64()*0.1
		y[i] = math.Floor(r.ExpFloat64() * math.Exp(math.Sin(times[i])))
	}
	s, err := priorOf(&term.Terms{Lik: poisson{}, Y: y}, newChain(times, 1, 2))
	if err != nil {
		t.Fatal(err)
	}
	e, steps := climb(t, s, 50, 1e-6)
	if steps > 15 || !(e.GapBound > 0 && e.GapBound < 1e-5) {
		t.Errorf("%.12g, gap %.2g, bound %.2g, %d steps", e.ELBO, e.Gap, e.GapBound, steps)
	}
}

// TestCovarianceOfManyRows checks that a covariance of too many rows is refused before memory is
// allocated for it.
func TestCovarianceOfManyRows(t *testing.T) {
	const rows = 20_000
	mover := weightMover{X: &design.Matrix{Rows: rows, Cols: 2, Dense: make([]float64, 2*rows)}}
	if c := mover.Covariance(); c != nil || cap(mover.s) > 0 {
		t.Errorf("%d rows of two weights: room for %d numbers", rows, cap(mover.s))
	}
}

// TestSurvey compares a pass over parts of the rows with passes over whole vectors. It also checks
// that the results do not depend on the number of goroutines.
func TestSurvey(t *testing.T) {
	const rows, d = 30_000, 20
	rng := rand.New(rand.NewPCG(19, 20))
	x, y, offset := make([]float64, rows*d), make([]float64, rows), make([]float64, rows)
	for i := range x {
		x[i] = rng.NormFloat64()
	}
	for i := range y {
		y[i], offset[i] = float64(rng.IntN(5)), 0.1*rng.NormFloat64()
	}
	mean := make([]float64, d)
	for j := range mean {
		mean[j] = 0.1 * rng.NormFloat64()
	}
	var first survey
	for workers := 1; workers <= 3; workers++ {
		var h parallel.Halt
		h.Lend(workers)
		s, err := NewWeightAlgebra(&LinearModel{
			Terms: &term.Terms{Lik: poisson{}, Y: y, Offset: offset},
			X:     &design.Matrix{Rows: rows, Cols: d, Dense: x},
			Prior: gauss.UnitPrior(d), Names: make([]string, d),
		}, term.Crew{Workers: workers, Halt: &h})
		if err != nil {
			t.Fatal(err)
		}
		q := survey{mean: mean, scale: 0.01, v: make([]float64, rows), grad: make([]float64, d),
			gamma: make([]float64, rows), c: make([]float64, rows)}
		if err := q.run(s); err != nil {
			t.Fatal(err)
		}
		if workers == 1 {
			first = q
			compareSurvey(t, s, &q)
		}
		if q.sum != first.sum || !slices.Equal(q.grad, first.grad) || !slices.Equal(q.v, first.v) ||
			!slices.Equal(q.gamma, first.gamma) || !slices.Equal(q.c, first.c) {
			t.Errorf("the pass of %d goroutines has other results than that of one", workers)
		}
	}
}

// compareSurvey compares q, which began with no gradient, with what whole vectors of s give.
func compareSurvey(t *testing.T, s *WeightAlgebra, q *survey) {
	t.Helper()
	var at term.Marginals
	at.Resize(s.N)
	s.Lin.X.Mul(at.M, q.mean, nil)
	for i := range at.V {
		row := s.Lin.X.Dense[i*s.Lin.X.Cols:][:s.Lin.X.Cols]
		at.V[i] = q.scale * floats.Dot(row, row) // under the unit prior
	}
	if err := s.Terms.Expect(&at, nil, s.Workers); err != nil {
		t.Fatal(err)
	}
	grad := make([]float64, s.Lin.X.Cols)
	s.Lin.X.AddMulT(grad, at.D1, nil)
	for i, g := range at.Tg {
		if !scalar.EqualWithinRel(q.v[i], at.V[i], 1e-12) ||
			!scalar.EqualWithinRel(q.gamma[i], g, 1e-12) ||
			!scalar.EqualWithinAbsOrRel(q.c[i], at.D1[i]+g*at.M[i], 1e-11, 1e-11) {
			t.Fatalf("row %d has the variance %v and the site %v, %v, want %v and %v, %v", i, q.v[i],
				q.gamma[i], q.c[i], at.V[i], g, at.D1[i]+g*at.M[i])
		}
	}
	if sum := floats.Sum(at.E); !scalar.EqualWithinRel(q.sum, sum, 1e-12) ||
		floats.Distance(q.grad, grad, 2) > 1e-10*floats.Norm(grad, 2) {
		t.Errorf("the sum is %v and the gradient %v, want %v and %v", q.sum, q.grad, sum, grad)
	}
}

// TestWeightAlgebraIn checks that a fit in the memory of another fit does not depend on that
// memory.
func TestWeightAlgebraIn(t *testing.T) {
	const rows, d = 60, 3
	rng := rand.New(rand.NewPCG(17, 18))
	x, y := make([]float64, rows*d), make([]float64, rows)
	for i := range x {
		x[i] = rng.NormFloat64()
	}
	for i := range y {
		y[i] = float64(rng.IntN(5))
	}
	model := func(precision float64) *LinearModel {
		return &LinearModel{
			Terms: &term.Terms{Lik: poisson{}, Y: y},
			X:     &design.Matrix{Rows: rows, Cols: d, Dense: x},
			Prior: gauss.Prior{Mean: make([]float64, d), Prec: slices.Repeat([]float64{precision}, d)},
			Names: make([]string, d),
		}
	}
	fit := func(old *WeightAlgebra, precision float64) *WeightAlgebra {
		s, err := NewWeightAlgebraIn(old, model(precision), term.Crew{Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, sites := range [][]float64{s.Gamma, s.A, s.Eta, s.Cur.V} {
			if len(sites) != rows || slices.ContainsFunc(sites, func(x float64) bool { return x != 0 }) {
				t.Fatalf("sites begin at %v", sites)
			}
		}
		for range 4 {
			if err := s.Settle(); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Ascend(); err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	want := fit(nil, 2)
	old := fit(nil, 0.1)
	got := fit(old, 2)
	if got.Batch.Cur.Value != want.Batch.Cur.Value || !slices.Equal(got.Gamma, want.Gamma) {
		t.Errorf("the objective is %v, want %v", got.Batch.Cur.Value, want.Batch.Cur.Value)
	}
	if &got.Batch.Cur.Gamma[0] != &old.Batch.Cur.Gamma[0] &&
		&got.Batch.Cur.Gamma[0] != &old.Batch.Try.Gamma[0] {
		t.Error("the memory is new")
	}
}
