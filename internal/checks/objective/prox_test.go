package objective

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

func solveProx(q Dist, g []float64, h Convex, d Divergence, q0 Dist, beta float64) (closed bool,
	err error) {
	return (&Prox{Grad: g, H: h, D: d, From: q0, Beta: beta}).Solve(q)
}

func numericProx(q Dist, g []float64, h Convex, d Divergence, q0 Dist, beta float64) error {
	return (&Prox{Grad: g, H: h, D: d, From: q0, Beta: beta}).Numeric(q)
}

// proxGrad returns the gradient of the function that a proximal step minimizes. It is zero at the
// minimum.
func proxGrad(q Dist, g []float64, h Convex, d Divergence, q0 Dist, beta float64) []float64 {
	r := h.Grad(nil, q)
	floats.Add(r, g)
	floats.AddScaled(r, 1/beta, d.Grad(nil, q, q0))
	return r
}

// nearby returns the distribution at the fraction t of the way from q to p, in natural
// parameters.
func nearby(q, p *Gaussian, t float64) *Gaussian {
	eta := q.Natural(nil)
	floats.Scale(1-t, eta)
	floats.AddScaled(eta, t, p.Natural(nil))
	r := q.Clone().(*Gaussian)
	if err := r.SetNatural(eta); err != nil {
		panic(err)
	}
	return r
}

// gradFor returns the g for which a proximal step from q0 leads to q.
func gradFor(q Dist, h Convex, d Divergence, q0 Dist, beta float64) []float64 {
	g := proxGrad(q, make([]float64, q.NumParams()), h, d, q0, beta)
	floats.Scale(-1, g)
	return g
}

// closedForms is the table in the comment of Prox. By D and h, it lists the coordinates in which
// a Gaussian, full or diagonal, has a closed step.
var closedForms = map[string][]Coordinates{
	"Euclidean/Zero": allCoordinates,
	"Euclidean/L1":   allCoordinates,
	"Euclidean/KLTo": {Cholesky},
	"Bregman/Zero":   allCoordinates,
	"KL/Zero":        {MeanParams, MeanCov},
	"KL/KLTo":        {MeanParams, MeanCov},
	"ReverseKL/Zero": {Natural},
}

// TestProxTable checks all pairs (h, D) on all families, with a g for which the optimality
// equation gives the step. The step must be closed exactly if the table lists it. Then the closed
// step must equal the known step, and the numeric step must be within 1e-7. Otherwise the numeric
// step must be stationary. If the problem is not convex, it may have no minimum, and the step
// must report that.
func TestProxTable(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	rng := testkit.Rand(30)
	for _, f := range testFamilies() {
		q0, prior := f.rand(rng), f.rand(rng)
		target := nearby(q0, f.rand(rng), 0.1)
		for dn, d := range testDivergences() {
			for hn, h := range map[string]Convex{"Zero": Zero(), "L1": L1(1e-3, f.dim),
				"KLTo": KLTo(prior)} {
				pair := dn + "/" + hn
				want := slices.Contains(closedForms[pair], q0.Coordinates())
				if dn == "DivergenceFunc" && f.dim > 1 || hn == "L1" && !want {
					continue // slow, or not smooth
				}
				for _, beta := range []float64{0.02, 1} {
					what := fmt.Sprintf("%s, %s, β = %v", f.name, pair, beta)
					g := gradFor(target, h, d, q0, beta)
					q, num := q0.Clone().(*Gaussian), q0.Clone().(*Gaussian)
					closed, err := solveProx(q, g, h, d, q0, beta)
					if closed != want {
						t.Errorf("%s: closed = %v, the table says %v", what, closed, want)
					}
					if !closed {
						if err != nil {
							convex := hn == "KLTo" && dn == "KL" && q0.Coordinates() == MeanParams
							if !errors.Is(err, ErrNotFinite) || convex {
								t.Errorf("%s: %v", what, err)
							}
							testkit.CheckClose(t, what+": q after an error", momentsOf(q),
								momentsOf(q0), 0)
							continue
						}
						testkit.CheckClose(t, what+": optimality", proxGrad(q, g, h, d, q0, beta),
							make([]float64, len(g)), 1e-6*(1+1/beta))
						continue
					}
					seen[pair] = true
					if err != nil {
						t.Errorf("%s: %v", what, err)
						continue
					}
					testkit.CheckClose(t, what, momentsOf(q), momentsOf(target), 1e-11)
					if hn == "L1" {
						continue
					}
					if err := numericProx(num, g, h, d, q0, beta); err != nil {
						t.Errorf("%s: numeric: %v", what, err)
						continue
					}
					testkit.CheckClose(t, what+": numeric", momentsOf(num), momentsOf(q), 1e-7)
				}
			}
		}
	}
	for pair := range closedForms {
		if !seen[pair] {
			t.Errorf("%s was not tested", pair)
		}
	}
}

// TestProxTableIsComplete checks that closedForms and the table in the comment of Prox have the
// same rows.
func TestProxTableIsComplete(t *testing.T) {
	src, err := os.ReadFile(kit.Root("divergence_prox.go"))
	if err != nil {
		t.Fatal(err)
	}
	head := regexp.MustCompile(`//\tD +H +coordinates`).FindIndex(src)
	if head == nil {
		t.Fatal("no table in divergence_prox.go")
	}
	table, _, _ := strings.Cut(string(src[head[1]:]), "//\n")
	rows := map[string]bool{}
	for _, line := range strings.Split(table, "\n")[1:] {
		if w := strings.Fields(strings.TrimPrefix(line, "//")); len(w) > 2 {
			d, _, _ := strings.Cut(w[0], "(")
			rows[d+"/"+w[1]] = true
		}
	}
	for pair := range closedForms {
		if !rows[pair] {
			t.Errorf("%s is not in the comment of Prox", pair)
		}
	}
	for pair := range rows {
		// TestAdaptiveUpdates checks Diagonal, the metric of AdaGrad and others.
		if closedForms[pair] == nil && !strings.HasPrefix(pair, "Diagonal/") {
			t.Errorf("%s is in the comment of Prox, but not tested", pair)
		}
	}
}

// TestProxFormulas checks the rows of the table for one dimension.
func TestProxFormulas(t *testing.T) {
	const m, v, mu, pv, beta = 0.7, 0.6, -1.3, 2.5, 0.4
	const gm, gv = 0.9, 0.35 // gradients in m and v
	const r = 1 / (1 + beta)
	newPrec := r/v + (1-r)*(1/pv+2*gv)
	for _, c := range []struct {
		name         string
		h            Convex
		d            Divergence
		coords       Coordinates
		wantM, wantV float64
	}{
		{"gradient descent", Zero(), Euclidean(), MeanCov, m - beta*gm, v - beta*gv},
		{"natural gradient in mean parameters", Zero(), KL(), MeanParams,
			// V₊⁻¹ = V⁻¹ + 2βG and V₊⁻¹m₊ = V⁻¹m − β(g − 2Gm)
			(m/v - beta*(gm-2*gv*m)) / (1/v + 2*beta*gv), 1 / (1/v + 2*beta*gv)},
		{"natural gradient in moments", Zero(), KL(), MeanCov, m - beta*v*gm,
			1 / (1/v + 2*beta*gv)},
		{"main text", KLTo(testkit.Must(NewMeanField([]float64{mu}, []float64{pv}))), KL(),
			MeanParams,
			m - (1-r)/newPrec*((m-mu)/pv+gm), 1 / newPrec},
		{"appendix", KLTo(testkit.Must(NewMeanField([]float64{mu}, []float64{pv}))), KL(), MeanCov,
			m - (1-r)/((1-r)/pv+r/v)*((m-mu)/pv+gm), 1 / newPrec},
	} {
		q0 := testkit.Must(NewMeanField([]float64{m}, []float64{v})).In(c.coords)
		q := q0.Clone().(*Gaussian)
		g := fromMoments(q0, []float64{gm}, []float64{gv})
		if closed, err := solveProx(q, g, c.h, c.d, q0, beta); err != nil || !closed {
			t.Errorf("%s: closed = %v, %v", c.name, closed, err)
		}
		testkit.CheckClose(t, c.name, []float64{meanAt(q, 0), covAt(q, 0, 0)},
			[]float64{c.wantM, c.wantV}, 1e-14)
	}
}

// TestSoftThreshold checks that the soft threshold satisfies the inclusion −(g + (λ−λ0)/β) ∈ w
// ∂|λ|, and applies only to the first count elements.
func TestSoftThreshold(t *testing.T) {
	const beta = 0.5
	h := L1(0.8, 5)
	q0 := NewPoint([]float64{2, -2, 0.1, -0.1, 0, 0.1})
	g := []float64{0.3, 0.3, 0.3, -0.3, 5, 0.3}
	q := NewPoint(make([]float64, 6))
	if closed, err := solveProx(q, g, h, Euclidean(), q0, beta); err != nil || !closed {
		t.Fatal(closed, err)
	}
	for i, l := range q.Params(nil) {
		s := -(g[i] + (l-q0.Params(nil)[i])/beta)
		switch {
		case i >= 5:
			testkit.CheckNear(t, "beyond count", s, 0, 1e-15)
		case l != 0:
			testkit.CheckNear(t, "subgradient", s, math.Copysign(0.8, l), 1e-15)
		case math.Abs(s) > 0.8:
			t.Errorf("element %d is 0 with subgradient %v", i, s)
		}
	}
	if math.Signbit(q.Params(nil)[2]) || math.Signbit(q.Params(nil)[3]) {
		t.Error("a zero is negative")
	}
	if z := q.Params(nil); z[2] != 0 || z[3] != 0 || z[4] == 0 {
		t.Errorf("unexpected zeros in %v", z)
	}
	if v := h.Value(q0); math.Abs(v-0.8*4.2) > 1e-15 {
		t.Errorf("L1 is %v", v)
	}
	testkit.CheckClose(t, "∇L1", h.Grad(nil, q0), []float64{0.8, -0.8, 0.8, -0.8, 0, 0}, 0)
}

// TestProxInfiniteStep checks that β = +Inf leads to the minimum of gᵀλ + h for any q0. In
// natural parameters this problem is not convex.
func TestProxInfiniteStep(t *testing.T) {
	rng := testkit.Rand(32)
	for _, f := range testFamilies() {
		q0, prior := f.rand(rng), f.rand(rng)
		for pair, d := range map[string]Divergence{"KL/KLTo": KL(), "Euclidean/KLTo": Euclidean()} {
			if !slices.Contains(closedForms[pair], q0.Coordinates()) {
				continue
			}
			h, target := KLTo(prior), nearby(prior, f.rand(rng), 0.2)
			g := gradFor(target, h, d, q0, math.Inf(1))
			q := q0.Clone().(*Gaussian)
			closed, err := solveProx(q, g, h, d, q0, math.Inf(1))
			if err != nil || !closed {
				t.Errorf("%s: closed = %v, %v", f.name, closed, err)
			}
			testkit.CheckClose(t, f.name, momentsOf(q), momentsOf(target), 1e-12)
			if err := numericProx(q, g, h, d, q0, math.Inf(1)); err != nil {
				t.Errorf("%s: numeric: %v", f.name, err)
			}
			testkit.CheckClose(t, f.name+": numeric", momentsOf(q), momentsOf(target), 1e-7)
		}
	}
}

// TestProxDiagonalPrior checks that a diagonal prior works like the equal full prior.
func TestProxDiagonalPrior(t *testing.T) {
	rng := testkit.Rand(34)
	for _, c := range []Coordinates{MeanParams, MeanCov} {
		q0, prior := randomGaussian(rng, 3, c), randomMeanField(rng, 3, c)
		g := gradFor(nearby(q0, randomGaussian(rng, 3, c), 0.1), KLTo(toDense(prior)), KL(), q0,
			0.7)
		q, want := q0.Clone().(*Gaussian), q0.Clone().(*Gaussian)
		if closed, err := solveProx(q, g, KLTo(prior), KL(), q0, 0.7); err != nil || !closed {
			t.Errorf("%v: closed = %v, %v", c, closed, err)
		}
		if _, err := solveProx(want, g, KLTo(toDense(prior)), KL(), q0, 0.7); err != nil {
			t.Fatal(err)
		}
		testkit.CheckClose(t, c.String(), momentsOf(q), momentsOf(want), 1e-12)
	}
}

// TestProxInvalid checks that a step is refused and q holds q0 if the minimum is not a valid
// distribution.
func TestProxInvalid(t *testing.T) {
	rng := testkit.Rand(36)
	for _, f := range testFamilies() {
		q0, prior := f.rand(rng), f.rand(rng)
		// The gradient −100 V⁻¹ in V, which pulls V⁻¹ far below zero, is 200 η in mean
		// parameters.
		down := q0.Natural(nil)
		floats.Scale(200, down)
		down = q0.FromMeanGrad(nil, down)
		up := append([]float64(nil), down...)
		floats.Scale(-1, up)
		for _, c := range []struct {
			name string
			g    []float64
			h    Convex
			d    Divergence
			in   []Coordinates
			want error
		}{
			{"KL/Zero", down, Zero(), KL(), []Coordinates{MeanParams, MeanCov}, ErrNotPosDef},
			{"KL/KLTo", down, KLTo(prior), KL(), []Coordinates{MeanParams, MeanCov}, ErrNotPosDef},
			{"Euclidean/Zero", up, Zero(), Euclidean(), []Coordinates{MeanCov}, ErrNotPosDef},
			{"ReverseKL/Zero", up, Zero(), ReverseKL(), []Coordinates{Natural}, ErrNotPosDef},
		} {
			for _, in := range c.in {
				if in != q0.Coordinates() {
					continue
				}
				for _, nan := range []bool{false, true} {
					g, want := append([]float64(nil), c.g...), c.want
					if nan {
						g[0], want = math.NaN(), ErrNotFinite
					}
					q := f.rand(rng)
					_, err := solveProx(q, g, c.h, c.d, q0, 10)
					if !errors.Is(err, want) {
						t.Errorf("%s, %s: error %v, want %v", f.name, c.name, err, want)
					}
					testkit.CheckClose(t, f.name+", "+c.name+": q", momentsOf(q), momentsOf(q0),
						1e-14)
				}
			}
		}
	}
	// The numeric step starts at a point where the objective is not finite.
	q0 := randomGaussian(rng, 2, MeanParams)
	bad := DivergenceFunc(func(q, q0 Dist) float64 { return math.NaN() })
	q := randomGaussian(rng, 2, MeanParams)
	if _, err := solveProx(q, make([]float64, 5), Zero(), bad, q0, 1); !errors.Is(err,
		ErrNotFinite) {
		t.Errorf("NaN divergence: error %v", err)
	}
	testkit.CheckClose(t, "NaN divergence: q", momentsOf(q), momentsOf(q0), 0)
}

// chartless is a Dist that has only a vector of parameters.
type chartless struct{ Dist }

func (c chartless) Clone() Dist { return chartless{c.Dist.Clone()} }

// userConvex is a Convex with its own closed form.
type userConvex struct{ Convex }

func (userConvex) Prox(q Dist, p *Prox) (bool, error) {
	l := p.From.Params(nil)
	floats.Scale(0.5, l)
	return true, q.SetParams(l)
}

// TestNoProx checks that a pair without a closed form on a family without a chart has no step.
// The error at set-up must name the pair and the family. A closed form of either D or h is
// enough.
func TestNoProx(t *testing.T) {
	q := chartless{NewPoint([]float64{1, 2})}
	f := lineFit{{1, 0}, {0, 1}}
	_, err := Objective[chartless]{F: f, H: KLTo(NewIsotropic(2, 1)),
		Init: q}.NewStepper(context.Background(), nil, Euclidean())
	if !errors.Is(err, ErrShape) {
		t.Errorf("KLTo a Gaussian: %v", err)
	}
	_, err = Objective[chartless]{F: f, H: Zero(), Init: q}.NewStepper(context.Background(), nil,
		Bregman(slope{quadratic{1}}))
	if !errors.Is(err, ErrNoProx) {
		t.Fatalf("error %v, want ErrNoProx", err)
	}
	for _, s := range []string{"h = Zero", "D = Bregman", "objective.chartless"} {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q does not name %s", err, s)
		}
	}
	if err := numericProx(q, make([]float64, 2), Zero(), Euclidean(), q, 1); !errors.Is(err,
		ErrNoProx) {
		t.Errorf("Numeric: %v", err)
	}
	for _, d := range []Divergence{KL(), ReverseKL(), SymKL()} {
		if _, err := (Objective[*Point]{F: f, Init: NewPoint([]float64{1, 2})}).NewStepper(
			context.Background(), nil, d); !errors.Is(err, ErrNoProx) {
			t.Errorf("%T on a Point: %v", d, err)
		}
	}
	st, err := Objective[chartless]{F: f, H: userConvex{Zero()},
		Init: q}.NewStepper(context.Background(), nil, Bregman(slope{quadratic{1}}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Step(context.Background(), &Env{Rng: testkit.Rand(1)}, nil, 1); err != nil {
		t.Fatal(err)
	}
	testkit.CheckClose(t, "a Convex with the method Prox", kit.Reached[chartless](st).Params(nil),
		[]float64{0.5, 1}, 0)
}

// TestConjugateInOneStep checks that one step with r = 0 solves a conjugate model from any start.
// The result is the posterior of linear regression.
func TestConjugateInOneStep(t *testing.T) {
	rng := testkit.Rand(37)
	const n, d, noise = 12, 3, 0.3
	x, y := dense.NewRows(n, d), testkit.Normals(rng, n)
	prec := mat.NewSymDense(d, nil)
	prior := randomGaussian(rng, d, MeanParams)
	prec.CopySym(precision(prior))
	rhs := mat.NewVecDense(d, nil)
	rhs.MulVec(prec, mat.NewVecDense(d, prior.Mean(nil)))
	for i := range x {
		copy(x[i], testkit.Normals(rng, d))
		v := mat.NewVecDense(d, x[i])
		prec.SymRankOne(prec, 1/noise, v)
		rhs.AddScaledVec(rhs, y[i]/noise, v)
	}
	var cov mat.Dense
	if err := cov.Inverse(prec); err != nil {
		t.Fatal(err)
	}
	mean := mat.NewVecDense(d, nil)
	mean.MulVec(&cov, rhs)
	f := Expect(Sites{X: x, Y: y, Lik: GaussianNoise{Var: noise}}, nil)
	for _, beta := range []float64{math.Inf(1), 1e300} { // r = 0
		q0 := randomGaussian(rng, d, MeanParams)
		g := make([]float64, q0.NumParams())
		if _, err := f.Grad(context.Background(), &Env{Rng: rng}, g, q0, nil); err != nil {
			t.Fatal(err)
		}
		q := q0.Clone().(*Gaussian)
		if _, err := solveProx(q, g, KLTo(prior), KL(), q0, beta); err != nil {
			t.Fatal(err)
		}
		testkit.CheckClose(t, "mean", q.Mean(nil), mean.RawVector().Data, 1e-9)
		testkit.CheckClose(t, "covariance", q.Cov().RawSymmetric().Data, cov.RawMatrix().Data, 1e-9)
	}
}

// TestRecognized checks that a nil divergence is KL and a nil h is Zero, with the same closed
// form and the same steps for every model.
func TestRecognized(t *testing.T) {
	rng := testkit.Rand(38)
	q0, prior := randomGaussian(rng, 2, MeanParams), randomGaussian(rng, 2, MeanParams)
	h := KLTo(prior)
	g := gradFor(nearby(q0, prior, 0.2), h, KL(), q0, 1)
	zeros := []Convex{nil, Zero()}
	step := func(h Convex, d Divergence) []float64 {
		t.Helper()
		q := q0.Clone().(*Gaussian)
		if closed, err := solveProx(q, g, h, d, q0, 0.01); err != nil || !closed {
			t.Errorf("%T with %T: closed = %v, %v", h, d, closed, err)
		}
		return momentsOf(q)
	}
	for _, d := range []Divergence{KL(), Euclidean()} {
		for _, h := range zeros {
			testkit.CheckClose(t, fmt.Sprintf("%T with %T", h, d), step(h, d), step(Zero(), d), 0)
		}
	}
	for _, d := range []Divergence{nil, KL()} {
		st := testkit.Must(Objective[*Gaussian]{H: h, Init: q0}.NewStepper(context.Background(),
			nil, d))
		step, err := st.Step(context.Background(), &Env{}, nil, math.Inf(1))
		if err != nil || !step.ClosedForm || !math.IsInf(step.Beta, 1) {
			t.Errorf("%T: an Objective steps with β = %v, %v", d, step.Beta, err)
		}
	}
	l1 := L1(0.1, 0)
	if err := numericProx(q0.Clone(), g, l1, Euclidean(), q0, 0.01); err != nil {
		t.Errorf("%T has a kink: %v", l1, err)
	}
	// An adaptive divergence has another metric, so the closed form of Euclidean does not apply.
	for name, a := range adaptives() {
		if _, ok := a.d.(proxer); ok {
			t.Errorf("%s has a closed form outside of a run", name)
		}
	}

	x, y := mat.NewDense(4, 1, []float64{-2, -1, 1, 2}), []float64{-1, 1, -1, 1}
	gp := testkit.Must(NewGP(x, y, SquaredExp{}, BernoulliLogit{}, nil))
	glm := testkit.Must(NewGLM(x, y, BernoulliLogit{}, nil))
	ctm := testkit.Must(NewCTM(kit.SmallCorpus(), 2, nil))
	// elbo returns the ELBO of m after a short step.
	elbo := func(m Model, d Divergence) float64 {
		t.Helper()
		st := testkit.Must(m.NewStepper(context.Background(), nil, d))
		if _, err := st.Step(context.Background(), &Env{}, nil, 0.3); err != nil {
			t.Fatal(err)
		}
		return testkit.Must(kit.ElboOf(st, nil))
	}
	for name, m := range map[string]Model{"GP": gp, "GLM": glm} {
		if elbo(m, nil) != elbo(m, KL()) {
			t.Errorf("a %s takes nil for another divergence than KL", name)
		}
		if elbo(m, ReverseKL()) == elbo(m, KL()) {
			t.Errorf("a %s takes ReverseKL for KL", name)
		}
	}
	for _, d := range []Divergence{nil, KL()} {
		if _, err := ctm.NewStepper(context.Background(), nil, d); err != nil {
			t.Errorf("%T: %v", d, err)
		}
	}
	if _, err := ctm.NewStepper(context.Background(), nil, ReverseKL()); !errors.Is(err,
		ErrNoProx) {
		t.Errorf("a CTM takes ReverseKL: %v", err)
	}
}

// TestProxZeroValue checks that a Prox without a divergence is an error, and that a Prox without
// an h uses Zero.
func TestProxZeroValue(t *testing.T) {
	q0 := NewPoint([]float64{1, 2})
	q := NewPoint([]float64{0, 0})
	p := &Prox{Grad: []float64{1, 1}, From: q0, Beta: 1}
	if _, err := p.Solve(q); !errors.Is(err, ErrParam) {
		t.Errorf("no divergence: %v", err)
	}
	if err := p.Numeric(q); !errors.Is(err, ErrParam) {
		t.Errorf("no divergence: %v", err)
	}
	p.D = Euclidean()
	if closed, err := p.Solve(q); err != nil || !closed ||
		!slices.Equal(q.Params(nil), []float64{0, 1}) || p.H != nil {
		t.Errorf("no h: closed = %v, %v at %v, p is %v", closed, err, q.Params(nil), p)
	}
	if err := p.Numeric(q); err != nil || p.H != nil {
		t.Errorf("no h: %v", err)
	}
	testkit.CheckClose(t, "numeric", q.Params(nil), []float64{0, 1}, 1e-9)
}

// TestProxCholesky checks the step of Euclidean with KLTo in (m, L) for full and diagonal q and
// priors, in many dimensions, and for long steps. It must be stationary and equal the numeric
// step. For a diagonal q it must follow the formula in the comment of Prox.
func TestProxCholesky(t *testing.T) {
	rng := testkit.Rand(39)
	for _, d := range []int{1, 2, 5} {
		full, diag := randomGaussian(rng, d, Cholesky), randomMeanField(rng, d, Cholesky)
		for _, q0 := range []*Gaussian{full, diag} {
			for _, prior := range []*Gaussian{randomGaussian(rng, d, MeanCov),
				randomMeanField(rng, d, Natural)} {
				for _, beta := range []float64{1e-3, 0.3, 50, math.Inf(1)} {
					what := fmt.Sprintf("%d: %T to %T, β = %v", d, q0, prior, beta)
					h := KLTo(prior)
					g := testkit.Normals(rng, q0.NumParams())
					floats.Scale(4, g)
					q, num := q0.Clone().(*Gaussian), q0.Clone().(*Gaussian)
					if closed, err := solveProx(q, g, h, Euclidean(), q0, beta); err != nil ||
						!closed {
						t.Errorf("%s: closed = %v, %v", what, closed, err)
						continue
					}
					testkit.CheckClose(t, what+": optimality",
						proxGrad(q, g, h, Euclidean(), q0, beta), make([]float64, len(g)),
						1e-12*(1+1/beta))
					if err := numericProx(num, g, h, Euclidean(), q0, beta); err != nil {
						t.Errorf("%s: numeric: %v", what, err)
						continue
					}
					testkit.CheckClose(t, what+": numeric", momentsOf(num), momentsOf(q), 1e-7)
					if q.NumParams() > 2*d {
						continue
					}
					for i, s := range q.Params(nil)[d:] {
						c := precision(prior).At(i, i) + 1/beta
						b := q0.Params(nil)[d+i]/beta - g[d+i]
						testkit.CheckNear(t, what+": formula", s, (b+math.Sqrt(b*b+4*c))/(2*c),
							1e-12)
					}
				}
			}
		}
	}
	// If G is large, nothing cancels: s = 2/(√(b² + 4c) − b) = 1/|b|.
	q0 := testkit.Must(NewMeanField(nil, []float64{1})).In(Cholesky)
	q := q0.Clone()
	if _, err := solveProx(q, []float64{0, 1e12}, KLTo(q0), Euclidean(), q0, 1); err != nil {
		t.Fatal(err)
	}
	testkit.CheckNear(t, "large G", 1e12*q.Params(nil)[1], 1, 1e-11)
}

// TestProxCholeskyTruth runs logistic regression with a diagonal q by the proximal gradient
// method in (m, sd), and compares each step with the negative ELBOs of an independent program.
func TestProxCholeskyTruth(t *testing.T) {
	var truth struct {
		L        float64     `json:"L"`
		Optimum  float64     `json:"neg_elbo_optimum"`
		Mean     []float64   `json:"m"`
		SD       []float64   `json:"sd"`
		NegELBOs [][]float64 `json:"rows"`
	}
	data, err := os.ReadFile(filepath.Join(testkit.SharedData(t), "..", "truth",
		"diag_logistic_euclid.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &truth); err != nil {
		t.Fatal(err)
	}
	const n = 30
	s := Sites{X: dense.NewRows(n, 3), Y: make([]float64, n), Lik: BernoulliLogit{}}
	for i, x := range s.X {
		k := float64(i + 1)
		x[0], x[1], x[2] = 1.5*math.Sin(k), 1.5*math.Cos(2*k), 1.5*math.Sin(3*k+1)
		s.Y[i] = testkit.PlusMinus(math.Sin(5*k)+x[0]-x[1] > 0)
	}
	ctx := context.Background()
	prior := NewIsotropicMeanField(3, 1)
	o := Objective[*Gaussian]{F: Expect(s, nil), H: KLTo(prior), Init: prior.In(Cholesky)}
	st := testkit.Must(o.NewStepper(ctx, nil, Euclidean()))
	negELBO := func() float64 { return -testkit.Must(st.Evaluate(ctx, nil)).ELBO }
	for k := range 240 {
		if k < len(truth.NegELBOs) {
			testkit.CheckNear(t, fmt.Sprintf("negative ELBO after %d steps", k), negELBO(),
				truth.NegELBOs[k][0], 1e-10)
		}
		if step := testkit.Must(st.Step(ctx, nil, nil, 1/truth.L)); !step.ClosedForm {
			t.Errorf("step %d is not in closed form", k)
		}
	}
	testkit.CheckNear(t, "optimum", negELBO(), truth.Optimum, 1e-10)
	testkit.CheckClose(t, "λ", testkit.Must(o.Posterior(st)).Params(nil),
		append(truth.Mean, truth.SD...), 1e-6)
}
