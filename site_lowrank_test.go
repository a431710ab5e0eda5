package pgsvi

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// sparseLabels returns n sparse rows of about per features of d, and labels of a logit model.
func sparseLabels(n, d, per int) (*Sparse, []float64) {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	x, y, w := NewSparse(d), make([]float64, n), make([]float64, d)
	for j := range w {
		w[j] = 2 * rng.NormFloat64()
	}
	for i := range y {
		var ind []int
		var val []float64
		eta := 0.0
		for j := range d {
			if rng.Float64() < float64(per)/float64(d) {
				v := (0.3 + rng.Float64()) / math.Sqrt(float64(per))
				ind, val = append(ind, j), append(val, v)
				eta += v * w[j]
			}
		}
		x.Append(ind, val)
		y[i] = label(rng, eta)
	}
	return x, y
}

// textLabels is sparseLabels with features as frequent as the words of a text.
func textLabels(n, d int) (*Sparse, []float64) {
	rng := rand.New(rand.NewPCG(4, 2))
	zipf := rand.NewZipf(rng, 1.1, 8, uint64(d-1))
	x, y, w := NewSparse(d), make([]float64, n), make([]float64, d)
	for j := range w {
		w[j] = rng.NormFloat64()
	}
	for i := range y {
		count := map[int]float64{}
		for range 60 + rng.IntN(80) {
			count[int(zipf.Uint64())]++
		}
		var ind []int
		for j := range count {
			ind = append(ind, j)
		}
		slices.Sort(ind)
		val, square := make([]float64, len(ind)), 0.0
		for k, j := range ind {
			val[k] = 1 + math.Log(count[j])
			square += val[k] * val[k]
		}
		eta := 0.0
		for k, j := range ind {
			val[k] *= 3 / math.Sqrt(square)
			eta += val[k] * w[j]
		}
		x.Append(ind, val)
		y[i] = label(rng, eta/2)
	}
	return x, y
}

// label returns 1 with probability 1/(1 + e^(−2η)), and −1 otherwise.
func label(rng *rand.Rand, eta float64) float64 {
	if rng.Float64() < 1/(1+math.Exp(-2*eta)) {
		return 1
	}
	return -1
}

// TestLowRankBoundHolds checks that no full covariance has an ELBO above ELBO + GapBound.
func TestLowRankBoundHolds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ n, d, per int }{{100, 150, 20}, {150, 1000, 40}, {800, 850, 20}} {
		x, y := sparseLabels(c.n, c.d, c.per)
		_, full := structuredFit(t, mustGLM(t, x, y, BernoulliLogit{}, GLMOptions{Covariance: FullCovariance}), nil)
		for _, goal := range []float64{0, 0.01} {
			g := mustGLM(t, x, y, BernoulliLogit{}, GLMOptions{Covariance: LowRankCovariance, Rank: 5})
			_, res := structuredFit(t, g, &Solver{Goal: goal})
			short := full.ELBO - res.ELBO
			if res.Scope != OverLargerFamily || !(short <= res.GapBound) || !(res.GapBound < 3*short+1e-3) {
				t.Errorf("%v, goal %v: %v nats below a full covariance, proved within %v (%v)", c, goal, short, res.GapBound, res.Scope)
			}
		}
	}
}

// TestLowRankPasses checks that a fit ends within 20 passes, near the ELBO of a run with a small goal.
func TestLowRankPasses(t *testing.T) {
	t.Parallel()
	type shape struct{ n, d, per int }
	shapes := []shape{{300, 700, 30}, {500, 200, 25}}
	if !testing.Short() {
		shapes = append(shapes, shape{1000, 3000, 60}, shape{2000, 800, 50})
	}
	for _, c := range shapes {
		x, y := sparseLabels(c.n, c.d, c.per)
		g := mustGLM(t, x, y, BernoulliLogit{}, GLMOptions{Covariance: LowRankCovariance, Rank: 20})
		_, res := structuredFit(t, g, nil)
		_, best := structuredFit(t, g, &Solver{Goal: 1e-4})
		t.Logf("%v: %v; %v", c, res, best)
		if most := 1e-3 * (1 + 1e-3*float64(c.n)); res.Passes > 20 || best.ELBO-res.ELBO > most {
			t.Errorf("%v: %v passes, %v nats below a run of %v passes", c, res.Passes, best.ELBO-res.ELBO, best.Passes)
		}
	}
}

// TestLowRankText checks the same of rows like those of texts, which take seconds.
func TestLowRankText(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	x, y := textLabels(20000, 50000)
	g := mustGLM(t, x, y, BernoulliLogit{}, GLMOptions{Covariance: LowRankCovariance, Rank: 20})
	_, res := structuredFit(t, g, nil)
	t.Log(res)
	if res.Passes > 20 || !math.IsInf(res.GapBound, 1) {
		t.Errorf("%v passes, proved within %v", res.Passes, res.GapBound)
	}
}

// TestGapBoundScopes checks every evaluation of runs against the best q of the family that its Scope
// names, at shapes on both sides of the thresholds of sizes, and with a proof by rows, by weights and
// with none.
func TestGapBoundScopes(t *testing.T) {
	t.Parallel()
	shapes := []struct {
		n, d, per int
		dense     bool
	}{
		{8, 3, 2, true},      // fewer rows than directFew
		{6, 40, 10, false},   // more weights than rows
		{45, 110, 20, false}, // the span of the rows pays
		{60, 110, 20, false}, // and does not
		{90, 230, 20, false}, // a factor of 1e7 multiplications, over the weights,
		{200, 400, 20, false},
		{300, 60, 60, true}, // outer steps do not pay
		{300, 90, 90, true}, // and do
	}
	if !testing.Short() {
		shapes = append(shapes, shapes[0], shapes[0])
		shapes[len(shapes)-2].n, shapes[len(shapes)-1].n = gapRows, gapRows+1
	}
	for _, c := range shapes {
		sparse, y := sparseLabels(c.n, c.d, c.per)
		var x mat.Matrix = sparse
		if c.dense {
			x = mat.DenseCopyOf(sparse)
		}
		run := func(opt GLMOptions, most float64, solver *Solver) *Result {
			st := mustStepper(t, mustGLM(t, x, y, BernoulliLogit{}, opt))
			if s, ok := st.alg.(*factoredAlgebra); ok && most >= 0 {
				s.most = most
			}
			res, err := solver.Resume(t.Context(), &Result{Stepper: st})
			if err != nil {
				t.Fatal(err)
			}
			return res
		}
		full := run(GLMOptions{Covariance: FullCovariance}, -1, &Solver{})
		diagonal := run(GLMOptions{Covariance: DiagonalCovariance}, -1, &Solver{Goal: 1e-8})
		for _, goal := range []float64{0, 0.01, 1} {
			solver := &Solver{Goal: goal, EvalEvery: 1}
			check := func(name string, res *Result, best *Result, scope Scope, proved bool) {
				t.Helper()
				if res.Status != Converged || res.Scope != scope || proved != !math.IsInf(res.GapBound, 1) {
					t.Errorf("%v, %s, goal %v: %v, proved within %v (%v)", c, name, goal, res, res.GapBound, res.Scope)
				}
				for _, it := range res.Trace {
					if short := best.ELBO - it.ELBO; it.Scope != scope || !(short <= it.GapBound) {
						t.Errorf("%v, %s, goal %v, pass %v: %v nats short, proved within %v (%v)", c, name, goal, it.Passes, short, it.GapBound, it.Scope)
					}
				}
			}
			check("full", run(GLMOptions{Covariance: FullCovariance}, -1, solver), full, OverQ, true)
			check("diagonal", run(GLMOptions{Covariance: DiagonalCovariance}, -1, solver), diagonal, OverQ, true)
			if c.d < 8 { // whose V are all of low rank
				continue
			}
			for _, rank := range []int{1, 4} {
				low := GLMOptions{Covariance: LowRankCovariance, Rank: rank}
				check("low rank", run(low, mostProof, solver), full, OverLargerFamily, true)
				check("low rank, no proof", run(low, 0, solver), full, OverLargerFamily, false)
			}
		}
	}
}

// TestLowRankProofs checks that both ways to a determinant agree, and that there is none where the model
// may not have the memory.
func TestLowRankProofs(t *testing.T) {
	t.Parallel()
	x, y := sparseLabels(200, 400, 20)
	res := must((&Solver{}).Run(t.Context(), mustGLM(t, x, y, BernoulliLogit{}, GLMOptions{Covariance: LowRankCovariance, Rank: 4})))
	s := res.Stepper.(*siteStepper).alg.(*factoredAlgebra)
	if _, dual := s.proofWork(); !dual {
		t.Fatal("the proof is not over the rows")
	}
	rows, rounding := s.told()
	prior := must(s.lin.prior.state())
	var a weightState
	if !a.add(prior, s.lin.x, s.cur.tg, nil, &designWork{}) {
		t.Fatal("A is not positive definite")
	}
	if weights := a.logDet - prior.logDet; !(math.Abs(rows-weights) <= 1e-10*weights) || !(rounding < 1e-9) {
		t.Errorf("log|A|/|Λ0| by the rows is %v ± %v, by the weights %v", rows, rounding, weights)
	}
	s.lin.maxMemory = 1 << 16
	if work, _ := s.proofWork(); !math.IsInf(work, 1) {
		t.Errorf("a proof of %v multiplications has no memory", work)
	}
}
