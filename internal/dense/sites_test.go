package dense_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi/internal/dense"
)

const prec = 400 // bits of the reference

// exact computes the results of SiteFactor for N(0, C) from (I + ΔC)⁻¹, which it finds by elimination
// in long arithmetic.
type exact struct {
	n      int
	inv    []*big.Float // (I + ΔC)⁻¹
	c      []*big.Float
	delta  []float64
	logDet float64 // log|I + ΔC|
	det    int     // its sign
}

func bigNum(x float64) *big.Float { return new(big.Float).SetPrec(prec).SetFloat64(x) }

func bigMul(a, b []*big.Float, n, cols int) []*big.Float { // n×n by n×cols
	c := make([]*big.Float, n*cols)
	for i := range n {
		for j := range cols {
			sum := bigNum(0)
			for k := range n {
				sum.Add(sum, new(big.Float).SetPrec(prec).Mul(a[i*n+k], b[k*cols+j]))
			}
			c[i*cols+j] = sum
		}
	}
	return c
}

func floats(a []*big.Float) []float64 {
	f := make([]float64, len(a))
	for i, x := range a {
		f[i], _ = x.Float64()
	}
	return f
}

// newExact computes the reference for the lower triangle of c.
func newExact(c []float64, n int, delta []float64) *exact {
	e := &exact{n: n, delta: delta, det: 1, c: make([]*big.Float, n*n),
		inv: make([]*big.Float, n*n)}
	a := make([]*big.Float, n*n)
	for i := range n {
		for j := range n {
			e.c[i*n+j] = bigNum(dense.SymmetricAt(c, n, i, j))
			a[i*n+j] = new(big.Float).SetPrec(prec).Mul(bigNum(delta[i]), e.c[i*n+j])
			e.inv[i*n+j] = bigNum(0)
		}
		a[i*n+i].Add(a[i*n+i], bigNum(1))
		e.inv[i*n+i] = bigNum(1)
	}
	for k := range n {
		p := k
		for i := k + 1; i < n; i++ {
			if new(big.Float).Abs(a[i*n+k]).Cmp(new(big.Float).Abs(a[p*n+k])) > 0 {
				p = i
			}
		}
		if p != k {
			e.det = -e.det
			for j := range n {
				a[p*n+j], a[k*n+j] = a[k*n+j], a[p*n+j]
				e.inv[p*n+j], e.inv[k*n+j] = e.inv[k*n+j], e.inv[p*n+j]
			}
		}
		pivot := a[k*n+k]
		e.det *= pivot.Sign()
		var m big.Float
		x := pivot.MantExp(&m)
		f, _ := m.Float64()
		e.logDet += math.Log(math.Abs(f)) + float64(x)*math.Ln2
		for i := range n {
			if i == k {
				continue
			}
			f := new(big.Float).SetPrec(prec).Quo(a[i*n+k], pivot)
			for j := range n {
				a[i*n+j] = new(big.Float).SetPrec(prec).Sub(a[i*n+j],
					new(big.Float).SetPrec(prec).Mul(f, a[k*n+j]))
				e.inv[i*n+j] = new(big.Float).SetPrec(prec).Sub(e.inv[i*n+j],
					new(big.Float).SetPrec(prec).Mul(f, e.inv[k*n+j]))
			}
		}
	}
	for i := range n {
		for j := range n {
			e.inv[i*n+j].Quo(e.inv[i*n+j], a[i*n+i])
		}
	}
	return e
}

// covariance returns V = C (I + ΔC)⁻¹.
func (e *exact) covariance() []float64 { return floats(bigMul(e.c, e.inv, e.n, e.n)) }

// solve returns u = (I + ΔC)⁻¹w and Cu.
func (e *exact) solve(w []float64) (u, cu []float64) {
	b := make([]*big.Float, e.n)
	for i, x := range w {
		b[i] = bigNum(x)
	}
	v := bigMul(e.inv, b, e.n, 1)
	return floats(v), floats(bigMul(e.c, v, e.n, 1))
}

// expand returns rowsᵀ(C⁻¹ − C⁻¹VC⁻¹)rows = rowsᵀ(I + ΔC)⁻¹Δ rows.
func (e *exact) expand(rows []float64, cols int) []float64 {
	r, d, tr := make([]*big.Float, len(rows)), make([]*big.Float, len(rows)),
		make([]float64, 0, cols*cols)
	for i, x := range rows {
		r[i] = bigNum(x)
		d[i] = new(big.Float).SetPrec(prec).Mul(bigNum(x), bigNum(e.delta[i/cols]))
	}
	g := bigMul(e.inv, d, e.n, cols)
	for a := range cols {
		for b := range cols {
			sum := bigNum(0)
			for k := range e.n {
				sum.Add(sum, new(big.Float).SetPrec(prec).Mul(r[k*cols+a], g[k*cols+b]))
			}
			f, _ := sum.Float64()
			tr = append(tr, f)
		}
	}
	return tr
}

// siteCases draws C with full rank, with rank 2, and zero. The changes are positive, mixed, huge,
// absent, or so negative that V is only just positive definite.
func siteCases(rng *rand.Rand) (cs []struct {
	n, rank  int
	c, delta []float64
}) {
	for _, n := range []int{1, 2, 3, 6, 9} {
		for _, rank := range []int{n, 2, 0} {
			c := make([]float64, n*n)
			for range rank {
				x := make([]float64, n)
				for i := range x {
					x[i] = rng.NormFloat64()
				}
				for i := range n {
					for j := range n {
						c[i*n+j] += x[i] * x[j]
					}
				}
			}
			for i := range n {
				if rank == n {
					c[i*n+i] += 0.3
				}
				for j := i + 1; j < n; j++ {
					c[i*n+j] = math.NaN() // must not be read
				}
			}
			for kind := range 7 {
				d := make([]float64, n)
				for i := range d {
					switch kind {
					case 1:
						d[i] = math.Exp(3 * rng.NormFloat64())
					case 2:
						d[i] = 0.05 * rng.NormFloat64() / float64(n)
					case 3:
						d[i] = math.Pow(10, 12*rng.Float64())
					case 4:
						d[i] = 1e12
					case 5:
						d[i] = []float64{1e12, 0, 3, 1e6}[(i+n)%4]
					case 6:
						d[i] = []float64{1e8, 2, 0, -0.02 / float64(n)}[(i+n)%4]
					}
				}
				cs = append(cs, struct {
					n, rank  int
					c, delta []float64
				}{n, rank, c, d})
			}
		}
	}
	return cs
}

func TestSites(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(6, 6))
	var f dense.SiteFactor
	var x, y dense.Expansion
	for _, k := range siteCases(rng) {
		n, c, delta := k.n, k.c, k.delta
		keep, keepDelta := slices.Clone(c), slices.Clone(delta)
		want := newExact(c, n, delta)
		// If C is singular, its own rounding of 1e-16 is multiplied by ΔC.
		tol := 1e-11
		if k.rank < n {
			for i, d := range delta {
				tol = max(tol, 20*0x1p-52*d*c[i*n+i])
			}
		}
		if !f.Factor(c, n, delta) {
			t.Errorf("n = %d, Δ = %v is refused", n, delta)
			continue
		}
		if !(math.Abs(f.LogDet-want.logDet) < tol*(1+math.Abs(want.logDet))) {
			t.Errorf("n = %d, Δ = %v: log det %v, want %v", n, delta, f.LogDet, want.logDet)
		}
		rows := make([]float64, n*n)
		for i := range n {
			for j := range n {
				rows[i*n+j] = dense.SymmetricAt(c, n, i, j)
			}
		}
		f.Expand(&x, rows, n)
		v, cov := make([]float64, n), make([]float64, n*n)
		f.Variances(v, &x)
		f.Covariance(cov, &x)
		left, inv := make([]float64, n), floats(want.inv)
		f.Left(left, cov)
		for i := range n {
			l, tol := inv[i*n+i], tol*(1+math.Abs(delta[i])*c[i*n+i])
			if slices.Min(delta) >= 0 && f.Strong() && k.rank == n && slices.Max(delta) < 1e10 {
				tol = 1e-9 * l // relative to the remaining precision
			}
			if !(math.Abs(left[i]-l) <= tol) {
				t.Errorf("n = %d, Δ = %v: fraction left at %d is %v, want %v", n, delta, i, left[i],
					l)
			}
		}
		ref := want.covariance()
		strong := func(i int) bool { return delta[i]*c[i*n+i] > dense.StrongSite }
		scale := func(i int) float64 { // without a strong site, rounding is proportional to C
			cii := c[i*n+i]
			if strong(i) {
				return 0.1 / delta[i] // relative to the remaining precision
			}
			return cii
		}
		for i := range n {
			if !(math.Abs(v[i]-ref[i*n+i]) <= tol*scale(i)) && delta[i]*c[i*n+i] < 1e13 {
				t.Errorf("n = %d, Δ = %v: variance %d is %v, want %v", n, delta, i, v[i],
					ref[i*n+i])
			}
			for j := range i + 1 {
				if e := math.Abs(cov[i*n+j] - ref[i*n+j]); !(e <= tol*math.Sqrt(c[i*n+i]*c[j*n+j])) ||
					strong(i) && strong(j) && !(e <= 10*tol*math.Sqrt(scale(i)*scale(j))) {
					t.Errorf("n = %d, Δ = %v: covariance (%d, %d) is %v, want %v", n, delta, i, j,
						cov[i*n+j], ref[i*n+j])
				}
			}
		}
		// In a step, w is proportional to Δ.
		w := make([]float64, n)
		for i := range w {
			w[i] = rng.NormFloat64() * (1 + math.Abs(delta[i]))
		}
		u, cu := want.solve(w)
		f.Solve(w)
		f.MulC(w)
		most := 1.0
		for _, z := range cu {
			most = max(most, math.Abs(z))
		}
		for i := range n {
			if !(math.Abs(f.T[i]-cu[i]) <= 100*tol*most) {
				t.Errorf("n = %d, Δ = %v: the mean moves by %v at %d, want %v", n, delta, f.T[i], i,
					cu[i])
			}
			if slices.Max(delta) < 1e3 && !(math.Abs(w[i]-u[i]) <= 1e-9*(1+math.Abs(u[i]))) {
				t.Errorf("n = %d, Δ = %v: u is %v at %d, want %v", n, delta, w[i], i, u[i])
			}
		}
		// These rows are not the rows of C.
		cols := 1 + rng.IntN(4)
		rows = rows[:0]
		for range n * cols {
			rows = append(rows, rng.NormFloat64())
		}
		f.Expand(&y, rows, cols)
		sub, diag := make([]float64, cols*cols), make([]float64, cols)
		y.SubCov(sub)
		y.SubVar(diag)
		size := 1.0
		for i, g := range want.expand(rows, cols) {
			size = max(size, math.Abs(g))
			if a, b := i/cols, i%cols; a >= b && !(math.Abs(sub[i]+g) <= 10*tol*size) ||
				a == b && !(math.Abs(diag[a]+g) <= 10*tol*size) {
				t.Errorf("n = %d, Δ = %v: expansion %d is %v, want %v", n, delta, i, sub[i], -g)
			}
		}
		for i := range keep {
			if keep[i] != c[i] && !math.IsNaN(keep[i]) {
				t.Fatal("C is written to")
			}
		}
		if !slices.Equal(keepDelta, delta) {
			t.Fatal("Δ is written to")
		}
	}
}

// TestSitesBoundary applies larger and larger negative changes until V⁻¹ is no longer positive
// definite. LeastPivot must be the remaining fraction of the precision, 1 + γ V_ii.
func TestSitesBoundary(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 7))
	var f dense.SiteFactor
	for _, n := range []int{1, 2, 5, 9} {
		for range 10 {
			c, delta := randomSPD(rng, n, 0.2), make([]float64, n)
			for i := range n {
				delta[i] = rng.ExpFloat64()
			}
			i := rng.IntN(n)
			delta[i] = 0
			v := newExact(c, n, delta).covariance()[i*n+i]
			for _, left := range []float64{0.9, 0.1, 1e-6, -1e-6, -1} {
				delta[i] = -(1 - left) / v
				if ok := f.Factor(c, n, delta); ok != (left > 0) {
					t.Errorf("n = %d: precision falls to %v, Factor reports %v", n, left, ok)
				} else if ok && !(math.Abs(f.LeastPivot()-left) < 1e-12) {
					t.Errorf("n = %d: LeastPivot %v, want %v", n, f.LeastPivot(), left)
				}
			}
		}
	}
	if f.Factor([]float64{1}, 1, []float64{1}); f.LeastPivot() != 1 {
		t.Errorf("LeastPivot without negative changes is %v", f.LeastPivot())
	}
}

func TestSitesRefuse(t *testing.T) {
	t.Parallel()
	nan, inf := math.NaN(), math.Inf(1)
	var f dense.SiteFactor
	for _, k := range []struct{ c, delta []float64 }{
		{[]float64{1, 0, 0.5, 1}, []float64{1, nan}},
		{[]float64{1, 0, 0.5, 1}, []float64{nan, -0.1}},
		{[]float64{1, 0, 0.5, 1}, []float64{1, inf}},
		{[]float64{1, 0, 0.5, 1}, []float64{-inf, 0}},
		{[]float64{1, 0, nan, 1}, []float64{1, 1}},
		{[]float64{1, 0, nan, 1}, []float64{1, -0.1}},
		{[]float64{1, 0, nan, 1}, []float64{-0.1, -0.1}},
		{[]float64{inf, 0, 0, 1}, []float64{1, 1}},
		{[]float64{1, 0, 0, inf}, []float64{1, -0.1}},
		{[]float64{-2, 0, 0, 1}, []float64{1, 1}},
	} {
		if f.Factor(k.c, 2, k.delta) {
			t.Errorf("C = %v, Δ = %v is taken", k.c, k.delta)
		}
	}
	if !f.Factor(nil, 0, nil) || f.LogDet != 0 {
		t.Error("no variables")
	}
}

// TestSitesResolution checks which variances are resolved. Strong sites shrink their variance by
// more than StrongSite. A variance that shrinks by more than 1/LeastShrink without its own strong
// site is not resolved. Neither are sites beyond 1e15 that other sites nearly determine.
func TestSitesResolution(t *testing.T) {
	t.Parallel()
	var f dense.SiteFactor
	var x dense.Expansion
	for _, k := range []struct {
		rho              float64 // correlation
		delta            []float64
		strong, resolved bool
	}{
		{0.5, []float64{0.9 * dense.StrongSite, 0}, false, true},
		{0.5, []float64{1.1 * dense.StrongSite, 0}, true, true},
		{0.5, []float64{1e14, 0}, true, true},
		{0.5, []float64{1e16, 0}, true, true},
		{1, []float64{4e15, 4e15}, true, false}, // rounding has removed their difference
		{1, []float64{1e9, 0}, true, true},
		{1, []float64{1e12, 0}, true, false}, // the second has no site, and only 1e-12 remains
		{1, []float64{1e12, 1e12}, true, true},
		{0.5, []float64{1e9, -0.5}, true, true},
	} {
		c := []float64{1, k.rho, k.rho, 1}
		if !f.Factor(c, 2, k.delta) {
			t.Errorf("%+v is refused", k)
			continue
		}
		f.Expand(&x, c, 2)
		v := make([]float64, 2)
		if ok := f.Variances(v, &x); ok != k.resolved || f.Strong() != k.strong {
			t.Errorf("%+v: strong %v, resolved %v", k, f.Strong(), ok)
		} else if want := newExact(c, 2, k.delta).covariance(); ok &&
			(math.Abs(v[0]/want[0]-1) > 1e-2 || math.Abs(v[1]/want[3]-1) > 1e-2) {
			t.Errorf("%+v: variances %v, want %v and %v", k, v, want[0], want[3])
		}
	}
}

// TestSitesLarge has more negative changes than a block of BLAS, and compares with V⁻¹ in double
// precision: (C⁻¹ + Δ)V = I.
func TestSitesLarge(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(8, 8))
	const n = 150
	c, delta := randomSPD(rng, n, 1), make([]float64, n)
	for i := range delta {
		delta[i] = []float64{2, -0.1}[rng.IntN(2)]
	}
	rows := slices.Clone(c)
	dense.FillUpper(rows, n)
	var f dense.SiteFactor
	var x dense.Expansion
	if !f.Factor(rows, n, delta) {
		t.Fatal("refused")
	}
	f.Expand(&x, rows, n)
	v, d := make([]float64, n*n), make([]float64, n)
	f.Covariance(v, &x)
	if !f.Variances(d, &x) {
		t.Error("not resolved")
	}
	dense.FillUpper(v, n)
	p := slices.Clone(rows) // becomes the precision
	if !dense.Cholesky(p, n) {
		t.Fatal("C is refused")
	}
	dense.Invert(p, n)
	for i := range n {
		p[i*n+i] += delta[i]
	}
	got := make([]float64, n*n)
	dense.MulSquare(got, p, v, n)
	for i := range n {
		got[i*n+i]--
		if math.Abs(d[i]-v[i*n+i]) > 1e-13 {
			t.Errorf("variance %d is %v and %v", i, d[i], v[i*n+i])
		}
	}
	for i, e := range got {
		if !(math.Abs(e) < 1e-11) {
			t.Fatalf("(V⁻¹V − I)[%d] = %.2g", i, e)
		}
	}
}
