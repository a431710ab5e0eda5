package site

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/mat"
)

// arrowProblem is a base with its dense form: the rows, and the prior precision.
type arrowProblem struct {
	a        *arrow
	x        *mat.Dense
	delta, b []float64
}

// newArrowProblem draws rows of 3 common columns and of factors with the given levels and effects.
func newArrowProblem(t *testing.T, n int, factors [][2]int, rng *rand.Rand) *arrowProblem {
	t.Helper()
	const d = 3
	cols := d
	for _, f := range factors {
		cols += f[0] * f[1]
	}
	x := mat.NewDense(n, cols, nil)
	prior := gauss.Prior{Mean: make([]float64, cols), Prec: make([]float64, cols)}
	for j := range cols {
		prior.Prec[j] = 0.3 + float64(j)
	}
	l := &LinearModel{Names: make([]string, cols), Terms: &term.Terms{Y: make([]float64, n)}}
	p := &arrowProblem{x: x}
	for i := range n {
		for j := range d {
			x.Set(i, j, rng.NormFloat64())
		}
		p.delta, p.b = append(p.delta, 2*rng.Float64()), append(p.b, rng.NormFloat64())
	}
	first := d
	for _, f := range factors {
		levels, q := f[0], f[1]
		b := gauss.Block{First: first, Levels: levels, Q: q, L: make([]float64, q*q)}
		for i := range q {
			for j := range i + 1 {
				b.L[i*q+j] = 0.3 + rng.Float64()
			}
		}
		prior.SetBlock(b)
		l.Factors = append(l.Factors, Factor{Learn: true, Scale: []float64{2, 2, 2}[:q]})
		for i := range n {
			if rng.IntN(20) == 0 {
				continue
			}
			g := rng.IntN(levels)
			for c := range q {
				z := 1.0
				if c > 0 {
					z = x.At(i, c)
				}
				x.Set(i, first+g*q+c, z)
			}
		}
		first += levels * q
	}
	l.Prior = prior
	l.X = &design.Matrix{Rows: n, Cols: cols, Dense: x.RawMatrix().Data}
	var err error
	if p.a, err = newArrow(l); err != nil {
		t.Fatal(err)
	}
	return p
}

// dense returns the precisions of the prior and of the approximation at the given L.
func (p *arrowProblem) dense(t *testing.T, l [][]float64) (prior, post *mat.SymDense) {
	t.Helper()
	of := p.a.lin.Prior.WithBlocks()
	for k := range p.a.fac {
		b := p.a.fac[k].Block
		b.L = l[k]
		of.SetBlock(b)
	}
	s, err := of.State()
	if err != nil {
		t.Fatal(err)
	}
	n, cols := p.x.Dims()
	prior, post = mat.NewSymDense(cols, nil), mat.NewSymDense(cols, nil)
	for i := range cols {
		for j := range i + 1 {
			prior.SetSym(i, j, s.P[i*cols+j])
			sum := s.P[i*cols+j]
			for k := range n {
				sum += p.delta[k] * p.x.At(k, i) * p.x.At(k, j)
			}
			post.SetSym(i, j, sum)
		}
	}
	return prior, post
}

// value returns log Z + log p(L) by dense algebra.
func (p *arrowProblem) value(t *testing.T, l [][]float64) float64 {
	t.Helper()
	prior, post := p.dense(t, l)
	var c0, c mat.Cholesky
	if !c0.Factorize(prior) || !c.Factorize(post) {
		t.Fatal("not positive definite")
	}
	n, cols := p.x.Dims()
	h, m := mat.NewVecDense(cols, nil), mat.NewVecDense(cols, nil)
	h.MulVec(p.x.T(), mat.NewVecDense(n, p.b))
	if err := c.SolveVecTo(m, h); err != nil {
		t.Fatal(err)
	}
	return 0.5*(mat.Dot(h, m)-c.LogDet()+c0.LogDet()) + p.a.sigma.logPrior(l, nil)
}

// arrowFactors are the factors of the tests: levels and effects.
var arrowFactors = [][][2]int{{{5, 1}}, {{6, 2}}, {{5, 3}}, {{7, 1}, {4, 1}}, {{7, 2}, {4, 1}},
	{{4, 1}, {7, 2}, {3, 2}}}

// TestArrowMove compares variances, means and determinants of an arrow with dense algebra.
func TestArrowMove(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, factors := range arrowFactors {
		const n = 60
		p := newArrowProblem(t, n, factors, rng)
		_, post := p.dense(t, p.a.cur.by.L)
		var c mat.Cholesky
		if !c.Factorize(post) {
			t.Fatal("not positive definite")
		}
		v, d := make([]float64, n), make([]float64, n)
		logDet, ok := p.a.Cover(v, p.delta)
		u := append([]float64(nil), p.b...)
		square := p.a.Move(d, p.delta, u)
		_, cols := p.x.Dims()
		h, m, r := mat.NewVecDense(cols, nil), mat.NewVecDense(cols, nil), mat.NewVecDense(cols, nil)
		h.MulVec(p.x.T(), mat.NewVecDense(n, p.b))
		if err := c.SolveVecTo(m, h); err != nil {
			t.Fatal(err)
		}
		var worst, sum float64
		for i := range n {
			row := p.x.RowView(i)
			if err := c.SolveVecTo(r, row); err != nil {
				t.Fatal(err)
			}
			worst = max(worst, math.Abs(mat.Dot(row, r)-v[i]), math.Abs(mat.Dot(row, m)-d[i]))
			sum += d[i] * u[i]
		}
		z := 0.5*(mat.Dot(h, m)-logDet) + p.a.sigma.logPrior(p.a.cur.by.L, nil)
		if want := p.value(t, p.a.cur.by.L); !ok || math.Abs(z-want-p.prior()) > 1e-10 {
			t.Errorf("%v: log Z %v, want %v", factors, z, want)
		}
		if worst > 1e-11 || math.Abs(square-sum) > 1e-10 {
			t.Errorf("%v: variances or means differ by %.1e, squares %v and %v", factors, worst, square,
				sum)
		}
	}
}

// prior returns −log p(L), which Cover adds to the determinant twice.
func (p *arrowProblem) prior() float64 { return p.a.sigma.logPrior(p.a.cur.by.L, nil) }

// TestArrowSlope compares log Z and its gradient with dense algebra and differences.
func TestArrowSlope(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, factors := range arrowFactors {
		const h = 1e-5
		p := newArrowProblem(t, 60, factors, rng)
		a := p.a
		s := &arrowState{}
		s.by.ArrowShape, s.by.L = a.shape, gauss.CloneLists(a.cur.by.L)
		a.sum(s, p.delta, p.b)
		grad := gauss.CloneLists(a.cur.by.L)
		z := a.logZ(s, grad)
		if want := p.value(t, s.by.L); math.Abs(z-want) > 1e-10 {
			t.Errorf("%v: log Z %v, want %v", factors, z, want)
		}
		for k, c := range a.sigma.coords {
			q := a.fac[c.f].Q
			step := make([]float64, len(a.sigma.coords))
			var value [2]float64
			for i, x := range []float64{h, -h} {
				l := gauss.CloneLists(s.by.L)
				step[k] = x
				a.moveL(l, s.by.L, step, 1)
				value[i] = p.value(t, l)
			}
			want := (value[0] - value[1]) / (2 * h)
			if got := grad[c.f][c.row*q+c.col]; math.Abs(got-want) > 1e-6*(1+math.Abs(want)) {
				t.Errorf("%v: slope %v of %+v, want %v", factors, got, c, want)
			}
		}
	}
}

// TestArrowHessian compares the Hessian of log Z + log p(L) with differences of its gradient, at
// singular and at regular L.
func TestArrowHessian(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, factors := range arrowFactors {
		for _, kind := range []string{"regular", "sd 0", "correlation 1", "no prior"} {
			const h = 1e-5
			p := newArrowProblem(t, 60, factors, rng)
			a := p.a
			s := &arrowState{}
			s.by.ArrowShape, s.by.L = a.shape, gauss.CloneLists(a.cur.by.L)
			for f, l := range s.by.L {
				q := a.fac[f].Q
				switch kind {
				case "sd 0":
					clear(l[(q-1)*q:])
				case "correlation 1":
					l[q*q-1] = 0
				}
				if kind != "regular" {
					a.sigma.scale[f] = nil
				}
			}
			a.sum(s, p.delta, p.b)
			n := len(a.sigma.coords)
			unit, got := make([]float64, n), mat.NewSymDense(n, nil)
			for i := range unit {
				unit[i] = 1 + float64(i)
			}
			a.logZ(s, gauss.CloneLists(s.by.L))
			a.hessian(s, unit, got)
			for k, c := range a.sigma.coords {
				grads := [2][][]float64{gauss.CloneLists(s.by.L), gauss.CloneLists(s.by.L)}
				for i, x := range []float64{h, -h} {
					at := c.row*a.fac[c.f].Q + c.col
					s.by.L[c.f][at] += x
					a.logZ(s, grads[i])
					s.by.L[c.f][at] -= x
				}
				for m, e := range a.sigma.coords {
					at := e.row*a.fac[e.f].Q + e.col
					want := -(grads[0][e.f][at] - grads[1][e.f][at]) / (2 * h) * unit[k] * unit[m]
					if !(math.Abs(got.At(k, m)-want) <= 1e-6*(1+math.Abs(want))) {
						t.Errorf("%v, %s: element %d, %d is %v, want %v", factors, kind, k, m, got.At(k, m),
							want)
					}
				}
			}
		}
	}
}

// TestArrowTwiceLogZ compares the log Z of a single pass with log Z, also at a singular L.
func TestArrowTwiceLogZ(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, factors := range append(arrowFactors, [][2]int{{12, 1}}, [][2]int{{12, 2}}) {
		a := newArrowProblem(t, 60, factors, rng)
		s := &arrowState{}
		s.by.ArrowShape, s.by.L = a.a.shape, gauss.CloneLists(a.a.cur.by.L)
		a.a.sum(s, a.delta, a.b)
		for _, singular := range []bool{false, true} {
			q := a.a.fac[0].Q
			if singular {
				clear(s.by.L[0][(q-1)*q:])
			}
			twice, ok := s.by.TwiceLogZ(a.a.hb, a.a.hg)
			if ok != (len(factors) == 1 && q <= 2) {
				t.Errorf("%v: TwiceLogZ applies: %t", factors, ok)
			}
			a.a.sigma.scale[0] = nil // no prior of L
			if z := a.a.logZ(s, nil); ok && !(math.Abs(0.5*twice-z) <= 1e-12*(1+math.Abs(z))) {
				t.Errorf("%v: 2 log Z is %v, want %v", factors, twice, 2*z)
			}
		}
		if s.by.Sums.D[0] = -1e9; !a.a.shape.Crossed() {
			if twice, ok := s.by.TwiceLogZ(a.a.hb, a.a.hg); ok && s.by.L[0][0] != 0 {
				t.Errorf("%v: 2 log Z is %v of a precision that is not positive", factors, twice)
			}
		}
	}
}
