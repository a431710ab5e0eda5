package runs

import (
	"context"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// gapModels holds a small model of every kind.
func gapModels(t *testing.T) map[string]Model {
	t.Helper()
	se := SquaredExp{Scale: 2, Length: 1.5}
	x, y := kit.ToyRows(40, BernoulliLogit{}, 3)
	count, class := make([]float64, 40), make([]float64, 40)
	for i := range count {
		count[i], class[i] = float64(i%5), float64(i%3)
	}
	poisson := Poisson{}
	_, cols := x.Dims()
	ctx := context.Background()
	corpus := kit.ToyCorpus(12, 1)
	s := Sites{X: make([][]float64, 40), Y: y, Lik: BernoulliLogit{}}
	for i := range s.X {
		s.X[i] = x.RawRowView(i)
	}
	noise := func(e Estimator) Objective[*Gaussian] {
		return Objective[*Gaussian]{F: Expect(kit.AsLogLik(s, true), e),
			H: KLTo(NewIsotropic(cols, 1)), Init: NewIsotropic(cols, 1)}
	}
	exact := Objective[*Gaussian]{F: Expect(s, nil), H: KLTo(NewIsotropic(cols, 1)),
		Init: NewIsotropic(cols, 1)}
	flat, chol := exact, exact
	flat.H = Zero()
	chol.Init = chol.Init.In(Cholesky)
	return map[string]Model{
		"gp":             testkit.Must(NewGP(x, y, se, BernoulliLogit{}, nil)),
		"gp, student":    testkit.Must(NewGP(x, y, se, StudentT{}, nil)),
		"gp, classes":    testkit.Must(NewGP(x, class, se, Softmax{}, nil)),
		"sparse gp":      testkit.Must(NewSparseGP(x, y, se, BernoulliLogit{}, nil)),
		"sparse student": testkit.Must(NewSparseGP(x, y, se, StudentT{}, nil)),
		"sparse rows": testkit.Must(NewSparseGPRows(ctx, Rows(x, count), cols, se, poisson,
			&SparseGPOptions{Rank: 9})),
		"glm":          testkit.Must(NewGLM(x, y, BernoulliLogit{}, nil)),
		"glm, student": testkit.Must(NewGLM(x, y, StudentT{}, nil)),
		"glm, diagonal": testkit.Must(NewGLM(x, count, poisson,
			&GLMOptions{Covariance: DiagonalCovariance})),
		"glm, classes": testkit.Must(NewGLM(x, class, Softmax{}, nil)),
		"glm rows":     testkit.Must(NewGLMRows(ctx, Rows(x, y), cols, BernoulliLogit{}, nil)),
		"lda":          testkit.Must(NewLDA(corpus, 3, nil)),
		"ctm":          kit.MustCTM(t, corpus, 3, nil),
		"mixture":      testkit.Must(NewMixture(x, 2, nil)),
		"objective":    exact,
		"draws":        noise(nil),
		"trust region": chol.ProximalPoint(),
		"no prior":     flat,
	}
}

// checkGap reports an evaluation whose Gap or GapBound is NaN, or whose estimate is above what is
// proved of the same gap.
func checkGap(t *testing.T, name string, it Iteration) {
	t.Helper()
	if math.IsNaN(it.Gap) || math.IsNaN(it.GapBound) || it.Gap < 0 || it.GapBound < 0 {
		t.Errorf("%s, iteration %d: gap %v, bound %v", name, it.K, it.Gap, it.GapBound)
	}
	if it.Scope != OverBlock && it.Gap > it.GapBound {
		t.Errorf("%s, iteration %d: gap %v above what is proved, %v", name, it.K, it.Gap,
			it.GapBound)
	}
	if it.Scope == Unproved && !math.IsInf(it.GapBound, 1) {
		t.Errorf("%s, iteration %d: bound %v without a scope", name, it.K, it.GapBound)
	}
}

// TestGapKnown runs a model of every kind by its own steps, by small steps and without an
// evaluation: no Gap or GapBound is NaN, and no estimate is above a proof.
func TestGapKnown(t *testing.T) {
	t.Parallel()
	for name, m := range gapModels(t) {
		for _, s := range []Solver{{MaxPasses: 12}, {MaxPasses: 2, EvalEvery: 3, BatchSize: 7},
			{StepSize: ConstantStep(0.01), MaxPasses: 2}, {MaxIter: 1, EvalEvery: -1}} {
			s.Record = func(it Iteration) { checkGap(t, name, it) }
			res, err := s.Run(t.Context(), m)
			if res == nil {
				if s.StepSize == nil {
					t.Errorf("%s: %v", name, err)
				}
				continue
			}
			checkGap(t, name, res.Iteration)
			for _, it := range res.Trace {
				checkGap(t, name, it)
			}
			if text := res.String(); strings.Contains(text, "Inf nats") ||
				strings.Contains(text, "NaN nats") {
				t.Errorf("%s: %s", name, text)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if res, err := (&Solver{}).Run(ctx, m); res != nil {
			checkGap(t, name+", canceled", res.Iteration)
		} else if err == nil {
			t.Errorf("%s: neither a result nor an error", name)
		}
	}
}

// TestGapBelowProof fits counts with an outlier under a wide prior, where the last changes of the
// ELBO would predict a gap far above what is proved.
func TestGapBelowProof(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 5))
		x, y := mat.NewDense(90, 1, nil), make([]float64, 90)
		for i := range y {
			x.Set(i, 0, float64(i))
			y[i] = float64(rng.IntN(6))
		}
		y[rng.IntN(90)] = 2000
		m := testkit.Must(NewGP(x, y, SquaredExp{Scale: 615, Length: 16}, Poisson{}, nil))
		res, err := (&Solver{}).Run(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range append(res.Trace, res.Iteration) {
			checkGap(t, "outlier", it)
		}
		if res.Scope != OverQ || res.Status != Converged {
			t.Errorf("seed %d: %v", seed, res)
		}
	}
}
