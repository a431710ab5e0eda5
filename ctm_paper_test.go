package pgsvi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// movedTerm is a document at random with a q that is not the prior, and the expectations at it.
func movedTerm(t *testing.T, k int, opt *CTMOptions, seed uint64) (*ctmWork, *ctmPrior) {
	t.Helper()
	w, prior := randomTerm(k, 9, opt, seed)
	w.expect(wantGrad, nil)
	if _, ok := w.move(prior, 0.3); !ok {
		t.Fatal("V⁻¹ is not positive definite")
	}
	clear(w.step)
	w.expect(wantGrad, nil)
	return w, prior
}

// gaussian returns q as a Dist in the coordinates (m, V).
func (w *ctmWork) gaussian(t *testing.T, c Coordinates) *Gaussian {
	t.Helper()
	w.invert()
	if w.diag {
		q, err := NewMeanField(w.m, w.v)
		if err != nil {
			t.Fatal(err)
		}
		return q.In(c)
	}
	q, err := NewGaussian(w.m, mat.NewSymDense(w.k, slices.Clone(w.v)))
	if err != nil {
		t.Fatal(err)
	}
	return q.In(c)
}

// linearised returns the gradient of −E[f] with respect to the parameters of q.
func (w *ctmWork) linearised(q *Gaussian) []float64 {
	k := w.k
	gm, gv := make([]float64, k), make([]float64, q.numGradV())
	floats.SubTo(gm, gm, w.grad)
	for i := range k {
		if w.diag {
			gv[i] = -0.5 * w.hess[i]
			continue
		}
		for j := range k {
			gv[i*k+j] = -0.5 * w.hess[max(i, j)*k+min(i, j)]
		}
	}
	return q.fromMomentGrad(nil, gm, gv)
}

// The step of the paper is the proximal step in (m, V) that the numeric one finds.
func TestCTMPaperStep(t *testing.T) {
	for _, diag := range []bool{false, true} {
		for seed, beta := range []float64{0.001, 0.02, 0.1, 0.3} {
			what := fmt.Sprintf("diagonal %v, β = %v", diag, beta)
			w, prior := movedTerm(t, 4, &CTMOptions{Paper: true, Diagonal: diag, Samples: 40}, uint64(seed))
			p, err := NewGaussian(prior.mu, mat.NewSymDense(4, slices.Clone(prior.cov)))
			if err != nil {
				t.Fatal(err)
			}
			q0 := w.gaussian(t, MeanCov)
			g, q := w.linearised(q0), q0.Clone().(*Gaussian)
			if err := (&Prox{Grad: g, H: KLTo(p), D: KL{}, From: q0, Beta: beta}).Numeric(q); err != nil {
				t.Fatal(err)
			}
			if !w.movePaper(prior, beta/(1+beta)) {
				t.Fatalf("%s: V⁻¹ is not positive definite", what)
			}
			got := w.gaussian(t, MeanCov)
			checkClose(t, what, momentsOf(got), momentsOf(q), 1e-7)
			checkClose(t, what+": optimality", proxGrad(got, g, KLTo(p), KL{}, q0, beta), make([]float64, len(g)), 1e-9/beta)
			var moved float64
			for i, x := range momentsOf(got) {
				moved = max(moved, math.Abs(x-momentsOf(q0)[i]))
			}
			if moved < beta/10 {
				t.Errorf("%s: the step moves q by %v alone", what, moved)
			}
		}
	}
}

// The step of this library is the proximal step in mean parameters, which averages natural
// parameters, but for ½DVD in the new V⁻¹.
func TestCTMStepClosedForm(t *testing.T) {
	const k = 4
	for _, diag := range []bool{false, true} {
		for seed, beta := range []float64{0.001, 0.02, 0.3, 1, 4} {
			what := fmt.Sprintf("diagonal %v, β = %v", diag, beta)
			w, prior := movedTerm(t, k, &CTMOptions{Diagonal: diag, Samples: 40}, uint64(seed))
			step := beta / (1 + beta)
			dense := func(x []float64) *mat.Dense {
				m := mat.NewDense(k, k, nil)
				for i := range k {
					for j := range k {
						switch {
						case !diag:
							m.Set(i, j, x[max(i, j)*k+min(i, j)])
						case i == j && len(x) == k:
							m.Set(i, i, x[i])
						case i == j:
							m.Set(i, i, x[i*k+i])
						}
					}
				}
				return m
			}
			// P + D + ½DP⁻¹D with D = t(Σ⁻¹ − E[∇²f] − P).
			p, d := dense(w.p), dense(prior.prec)
			d.Sub(d, dense(w.hess))
			d.Sub(d, p)
			d.Scale(step, d)
			var want, v mat.Dense
			if err := v.Inverse(p); err != nil {
				t.Fatal(err)
			}
			want.Product(d, &v, d)
			want.Scale(0.5, &want)
			want.Add(&want, d)
			want.Add(&want, p)
			// m + t P₊⁻¹ (Σ⁻¹(μ − m) + E[∇f]).
			force, mean := mat.NewVecDense(k, slices.Clone(prior.mu)), mat.NewVecDense(k, slices.Clone(w.m))
			force.SubVec(force, mean)
			force.MulVec(mat.NewDense(k, k, slices.Clone(prior.prec)), force)
			force.AddVec(force, mat.NewVecDense(k, slices.Clone(w.grad)))
			if err := force.SolveVec(&want, force); err != nil {
				t.Fatal(err)
			}
			mean.AddScaledVec(mean, step, force)
			if _, ok := w.move(prior, step); !ok {
				t.Fatalf("%s: V⁻¹ is not positive definite", what)
			}
			checkClose(t, what+": m", w.m, mean.RawVector().Data, 1e-11)
			checkClose(t, what+": V⁻¹", dense(w.p).RawMatrix().Data, want.RawMatrix().Data, 1e-10)
		}
	}
}

// oneStep is the state of a model after a step on the documents 0 and 1.
func oneStep(t *testing.T, c *Corpus, opt CTMOptions, beta float64) []float64 {
	t.Helper()
	words := mat.NewDense(3, c.Terms, nil)
	for v := range c.Terms {
		for k := range 3 {
			words.Set(k, v, 1+math.Abs(math.Sin(float64(1+v+k*c.Terms))))
		}
	}
	opt.Topics, opt.TopicPrior = words, 1e-12 // or else topics depend on the size of the corpus
	rng := rand.New(rand.NewPCG(1, 2))
	st := must(newCTMStepper(context.Background(), mustCTM(t, c, 3, &opt), rng))
	if _, err := st.Step(context.Background(), &Env{Rng: rng}, []int{0, 1}, beta); err != nil {
		t.Fatal(err)
	}
	return slices.Clone(st.state[:2*ctmState(3, opt.diagonal())])
}

// Two readings of the paper: with and without the factor N/M.
func TestCTMPaperReadings(t *testing.T) {
	c := toyCorpus(40, 6)
	few := c.Subset([]int{0, 1, 2, 3})
	inf := math.Inf(1)
	for _, diag := range []bool{false, true} {
		paper := CTMOptions{Paper: true, Diagonal: diag}
		scaled := CTMOptions{Paper: true, PaperScaled: true, Diagonal: diag}
		plain := CTMOptions{Inner: 1, FirstInner: 1, Diagonal: diag}
		// Without the factor a document does not see how many there are.
		checkClose(t, fmt.Sprintf("diagonal %v: 4 documents and 40", diag), oneStep(t, few, paper, inf), oneStep(t, c, paper, inf), 1e-12)
		if got, want := oneStep(t, c, paper, 0.001), oneStep(t, c, paper, inf); !slices.Equal(got, want) {
			t.Errorf("diagonal %v: the default β is not 0.001: %v, want %v", diag, got, want)
		}
		// With it the step is that of N/M times β.
		for _, x := range []struct {
			c    *Corpus
			beta float64
		}{{c, 20}, {few, 2}} {
			want := oneStep(t, x.c, plain, x.beta*0.001)
			checkClose(t, fmt.Sprintf("diagonal %v, %d documents", diag, len(x.c.Docs)), oneStep(t, x.c, scaled, inf), want, 1e-14)
			checkClose(t, fmt.Sprintf("diagonal %v, %d documents, β = 0.01", diag, len(x.c.Docs)), oneStep(t, x.c, scaled, 0.01), oneStep(t, x.c, plain, x.beta*0.01), 1e-14)
		}
		if slices.Equal(oneStep(t, c, scaled, inf), oneStep(t, few, scaled, inf)) {
			t.Errorf("diagonal %v: N plays no part", diag)
		}
	}
	if _, err := NewCTM(c, 3, &CTMOptions{PaperScaled: true}); !errors.Is(err, ErrParam) {
		t.Errorf("PaperScaled without Paper: %v", err)
	}
}

// The paper's settings on AP, 5 passes: without the factor N/M q hardly moves, and the score
// is near that of the frequencies of words, 8.478. With it, it is nearly that of ours. The
// steps as the appendix has them have no V⁻¹ at the lengths that the factor makes.
func TestCTMPaperAP(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("slow")
	}
	train, test := loadAP(t)
	for seed := range uint64(1) {
		five := Solver{MaxPasses: 5}
		without, _ := score(t, train, test, 10, &CTMOptions{Paper: true}, seed, five)
		with, _ := score(t, train, test, 10, &CTMOptions{Paper: true, PaperScaled: true}, seed, five)
		t.Logf("seed %d: without N/M %.4f, with it %.4f", seed, without.PerToken, with.PerToken)
		if math.Abs(without.PerToken-8.458) > 0.01 || math.Abs(with.PerToken-8.10) > 0.03 {
			t.Errorf("seed %d: without N/M %.4f, want 8.458 ± 0.01; with it %.4f, want 8.10 ± 0.03", seed, without.PerToken, with.PerToken)
		}
	}
	m := mustCTM(t, train, 10, &CTMOptions{Paper: true})
	beta := 0.001 * float64(len(train.Docs)) / 2
	_, res, err := m.Fit(context.Background(), &Solver{MaxPasses: 1, BatchSize: 2, EvalEvery: -1, StepSize: ConstantStep(beta)})
	if !errors.Is(err, ErrNotPosDef) || res.K > 10 {
		t.Errorf("β = %v as in the appendix: %v", beta, err)
	} else {
		t.Log(err)
	}
}
