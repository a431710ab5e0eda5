package pgsvi

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/mat"
)

// TestSiteFactor compares the site algebra with dense inverses, for changes of
// either sign and for a singular base.
func TestSiteFactor(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for trial := range 300 {
		n := 1 + rng.IntN(8)
		rank := 1 + rng.IntN(n)
		// C = AAᵀ, of the given rank; V = C − CS(I + SCS)⁻¹SC needs no inverse of C
		// and for signed Δ is C(I + ΔC)⁻¹.
		a := mat.NewDense(n, rank, nil)
		for i := range n {
			for j := range rank {
				a.Set(i, j, rng.NormFloat64())
			}
		}
		var c mat.Dense
		c.Mul(a, a.T())
		delta, w, rows := make([]float64, n), make([]float64, n), make([]float64, n*2)
		for i := range delta {
			switch rng.IntN(4) {
			case 0: // no change
			case 1:
				delta[i] = -0.1 * rng.Float64() / c.At(i, i)
			default:
				delta[i] = math.Exp(3 * rng.NormFloat64())
			}
			w[i] = rng.NormFloat64()
			rows[2*i], rows[2*i+1] = rng.NormFloat64(), rng.NormFloat64()
		}
		ic := mat.NewDense(n, n, nil) // I + ΔC
		for i := range n {
			for j := range n {
				ic.Set(i, j, delta[i]*c.At(i, j))
			}
			ic.Set(i, i, 1+ic.At(i, i))
		}
		var inv, v mat.Dense
		if err := inv.Inverse(ic); err != nil {
			t.Fatal(err)
		}
		v.Mul(&c, &inv)

		full := append([]float64(nil), c.RawMatrix().Data...)
		var f dense.Sites
		if !f.Factor(full, n, delta) {
			t.Fatalf("trial %d: not positive definite", trial)
		}
		if want := math.Log(mat.Det(ic)); math.Abs(f.LogDet-want) > 1e-10*math.Max(1, math.Abs(want)) {
			t.Errorf("trial %d: log determinant %v, want %v", trial, f.LogDet, want)
		}
		var x dense.Expansion
		f.Expand(&x, full, n)
		variance, cov := make([]float64, n), make([]float64, n*n)
		if !f.Variances(variance, &x) {
			t.Fatalf("trial %d: not resolved", trial)
		}
		f.Covariance(cov, &x)
		for i := range n {
			scale := c.At(i, i)
			if math.Abs(variance[i]-v.At(i, i)) > 1e-10*scale {
				t.Errorf("trial %d: variance %d is %v, want %v", trial, i, variance[i], v.At(i, i))
			}
			for j := range i + 1 {
				if math.Abs(cov[i*n+j]-v.At(i, j)) > 1e-10*(1+scale) {
					t.Errorf("trial %d: covariance (%d, %d) is %v, want %v", trial, i, j, cov[i*n+j], v.At(i, j))
				}
			}
		}
		var want mat.VecDense
		want.MulVec(&inv, mat.NewVecDense(n, w))
		f.Solve(w)
		for i := range w {
			if math.Abs(w[i]-want.AtVec(i)) > 1e-9*(1+mat.Norm(&want, 2)) {
				t.Errorf("trial %d: solution %d is %v, want %v", trial, i, w[i], want.AtVec(i))
			}
		}
		// rowsᵀ(I + ΔC)⁻¹Δ rows, the form that predictions need.
		var q, r mat.Dense
		d := mat.NewDense(n, n, nil)
		for i := range n {
			d.Set(i, i, delta[i])
		}
		q.Mul(&inv, d)
		b := mat.NewDense(n, 2, append([]float64(nil), rows...))
		r.Product(b.T(), &q, b)
		f.Expand(&x, rows, 2)
		got := []float64{0, 0}
		x.SubVar(got)
		for j := range got {
			if math.Abs(got[j]+r.At(j, j)) > 1e-9*(1+math.Abs(r.At(j, j))) {
				t.Errorf("trial %d: reduction %v, want %v", trial, -got[j], r.At(j, j))
			}
		}
	}
}

// TestSiteFactorInvalid: a V⁻¹ that is not positive definite is refused.
func TestSiteFactorInvalid(t *testing.T) {
	for name, delta := range map[string][]float64{
		"too negative": {-0.6, 0}, "both": {1, -1}, "NaN": {math.NaN(), 0}, "Inf": {math.Inf(1), 0},
	} {
		var f dense.Sites
		if f.Factor([]float64{2, 1, 1, 2}, 2, delta) {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestStrongSites: where sites are far more precise than the base, variances
// keep their digits: a diagonal problem has V = 1/(1/c + Δ).
func TestStrongSites(t *testing.T) {
	for _, s := range []float64{1e3, 1e6, 1e10, 1e14} {
		c := []float64{1, 0, 0, 4}
		delta := []float64{s, 2 * s}
		var f dense.Sites
		if !f.Factor(c, 2, delta) {
			t.Fatal("not positive definite")
		}
		var x dense.Expansion
		f.Expand(&x, c, 2)
		v, cov := make([]float64, 2), make([]float64, 4)
		if !f.Variances(v, &x) {
			t.Fatalf("Δ = %g is not resolved", s)
		}
		f.Covariance(cov, &x)
		for i := range 2 {
			want := 1 / (1/c[3*i] + delta[i])
			if math.Abs(v[i]/want-1) > 1e-11 || math.Abs(cov[3*i]/want-1) > 1e-11 {
				t.Errorf("Δ = %g: variance %v, covariance %v, want %v", s, v[i], cov[3*i], want)
			}
		}
	}
}

// TestSolveSite: the minimiser of a one-dimensional problem, from starts where
// the expectation overflows, satisfies its fixed point as far as a target must.
func TestSolveSite(t *testing.T) {
	for _, c := range []struct {
		lik          Likelihood
		y, mc, vc, m float64
	}{
		{Poisson{}, 10000, 0, 0.01, 0}, {Poisson{}, 3, 100, 1e4, 100}, {Poisson{}, 0, 0, 100, 0}, {Poisson{}, 1e6, -50, 100, 3},
		{BernoulliLogit{}, 1, -1000, 1e6, -1000}, {BernoulliProbit{}, -1, 1000, 1e6, 1000},
		{StudentT{DF: 4, Scale: 0.1}, 5, 0, 100, 0}, {Laplace{Scale: 0.1}, 5, 0, 100, 0},
	} {
		one := &siteTerms{lik: c.lik, y: []float64{c.y}}
		gamma, d1, m := one.solve(0, c.mc, c.vc, c.m, c.vc)
		v := 1 / (1/c.vc + gamma)
		if r := (m-c.mc)/c.vc - d1; math.Abs(r) > 0.05/math.Sqrt(v) || !(v > 0) {
			t.Errorf("%T y = %v: m = %v, v = %v, residual %v of %v", c.lik, c.y, m, v, r, 1/math.Sqrt(v))
		}
		e := ExpectLogProb(c.lik, c.y, m, v)
		if math.Abs(gamma+e.D2) > 0.05*math.Abs(gamma) {
			t.Errorf("%T y = %v: γ = %v, want %v", c.lik, c.y, gamma, -e.D2)
		}
	}
}

// TestSiteProblem: from a base with sites already in, every iteration lowers
// the value by what two evaluations say, and both forms of a site agree:
// b − γm from K⁻¹m, and from c about the base mean.
func TestSiteProblem(t *testing.T) {
	gp := toyGP(t, 12, SquaredExp{Scale: 3, Length: 1}, Poisson{}, 18)
	st, err := gp.NewStepper(context.Background(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := algOf[*denseAlgebra](st)
	rng := rand.New(rand.NewPCG(1, 1))
	for _, batch := range [][]int{{0, 1, 2, 3}, {4, 5, 6, 7}} {
		if _, err := st.Step(context.Background(), &Env{Rng: rng}, batch, math.Inf(1)); err != nil {
			t.Fatal(err)
		}
	}
	b := &s.blocks
	b.distinct([]int{1, 3, 5, 7, 9, 11}, s.n)
	b.gather(s)
	var p siteProblem
	if err := p.init(gp.terms, b.b, &covMover{n: len(b.b), cov: b.cov}, &b.base); err != nil {
		t.Fatal(err)
	}
	for range 25 {
		before := p.cur.value
		if !p.iterate() {
			break
		}
		if p.cur.value > before+1e-12 {
			t.Errorf("value rose from %v to %v", before, p.cur.value)
		}
		for i, a := range p.cur.a {
			if want := p.cur.c[i] - p.cur.gamma[i]*(p.cur.m[i]-p.base.m[i]); math.Abs(a-want) > 1e-9*(1+math.Abs(want)) {
				t.Errorf("site %d: a = %v, from c %v", i, a, want)
			}
		}
	}
	if d := p.decrement(); d > 1e-3 {
		t.Errorf("after 25 iterations the problem still promises %v nats", d)
	}
}
