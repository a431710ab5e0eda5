package sparse

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/gram"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/mat"
)

// bell is the Kernel exp(−|x − x′|²/2ℓ²), of the parameter log ℓ.
type bell struct{ length float64 }

func (k bell) Cov(x, y []float64) float64 {
	r2 := 0.0
	for d, v := range x {
		r2 += (v - y[d]) * (v - y[d])
	}
	return math.Exp(-0.5 * r2 / (k.length * k.length))
}

func (bell) Noisy() bool { return false }

func (bell) Self([]float64) float64 { return 1 }

// pairs calls f for the pairs of t, with where each is.
func (k bell) pairs(t *gram.Tile, f func(i, at int, x, y []float64)) {
	for i := range t.X.Rows {
		for j := range t.Y.Rows {
			f(i, i*t.Y.Rows+j, gram.Row(t.X, i), gram.Row(t.Y, j))
		}
	}
}

func (k bell) Fill(dst []float64, t *gram.Tile) {
	k.pairs(t, func(_, at int, x, y []float64) { dst[at] = k.Cov(x, y) })
}

func (k bell) Cross(_ *parallel.Halt, dst, x, y *mat.Dense) {
	to := dst.RawMatrix()
	k.pairs(&gram.Tile{X: x.RawMatrix(), Y: y.RawMatrix()}, func(i, at int, x, y []float64) {
		to.Data[i*to.Stride+at-i*to.Cols] = k.Cov(x, y)
	})
}

func (bell) NumParams() int { return 1 }

func (bell) Chain([]float64) {}

func (bell) GradSelf(dst, _ []float64) { dst[0] = 0 }

func (k bell) Pull(dst, w []float64, t *gram.Tile) {
	k.pairs(t, func(_, at int, x, y []float64) {
		c := k.Cov(x, y)
		dst[0] -= 2 * w[at] * c * math.Log(c)
	})
}

func (k bell) PullRows(dst, w []float64, t *gram.Tile) {
	k.pairs(t, func(i, at int, x, y []float64) {
		c := k.Cov(x, y)
		dst[i] -= 2 * w[at] * c * math.Log(c)
	})
}

func (k bell) PullInputs(dst, w []float64, t *gram.Tile, _ []float64) {
	k.pairs(t, func(i, at int, x, y []float64) {
		for d := range x {
			dst[i*len(x)+d] -= w[at] * k.Cov(x, y) * (x[d] - y[d]) / (k.length * k.length)
		}
	})
}

func (k bell) Whole(int) Division { return Undivided(k) }

func (k bell) Shorter(by float64) Kernel { return bell{k.length * by} }

func (bell) Name() string { return "bell" }

func (k bell) Identify(d *save.Digest) { d.Float(k.length) }

// noise is the Likelihood N(η, v).
type noise struct{ v float64 }

func (l noise) LogProb(y, eta float64) float64 {
	return -0.5 * (math.Log(2*math.Pi*l.v) + (y-eta)*(y-eta)/l.v)
}

func (l noise) Expect(y, m, v float64) term.Expectation {
	return term.Expectation{Value: l.LogProb(y, m) - 0.5*v/l.v, D1: (y - m) / l.v, D2: -1 / l.v}
}

func (noise) Concave() bool { return true }

func (noise) Real() bool { return true }

func (noise) Each() *term.Many { return nil }

func (noise) Rated() func(y float64) (sign, origin, slope float64) { return nil }

func (l noise) Identify(d *save.Digest) { d.Float(l.v) }

func (l noise) Noise() float64 { return l.v }

func (noise) SelfBounded() bool { return true }
func (noise) Bounded() bool     { return true }

func (noise) Rule(*term.Terms) {}

var (
	_ Kernel     = bell{}
	_ Likelihood = noise{}
)

// testRows returns rows of two columns.
func testRows(n int) (*mat.Dense, *term.Terms) {
	rng := rand.New(rand.NewPCG(1, 2))
	x, t := mat.NewDense(n, 2, nil), &term.Terms{Lik: noise{0.3}}
	for i := range n {
		x.SetRow(i, []float64{4 * rng.Float64(), 4 * rng.Float64()})
		t.Y = append(t.Y, math.Sin(x.At(i, 0))+0.5*rng.NormFloat64())
	}
	return x, t
}

// TestChoose checks that the features of chosen inputs are those that At makes, that LLᵀ is the
// covariance of the inputs, and that all rows as inputs leave nothing.
func TestChoose(t *testing.T) {
	k := bell{0.8}
	x, terms := testRows(30)
	for _, rank := range []int{7, 30} {
		u, f, err := Undivided(k).Choose(nil, x, terms, rank, rank)
		if err != nil {
			t.Fatal(err)
		}
		m := u.Rank()
		if m != rank {
			t.Fatalf("rank %d, want %d", m, rank)
		}
		for i, v := range u.At(nil, x) {
			if math.Abs(v-f[i]) > 1e-7 {
				t.Fatalf("rank %d: feature %d of row %d is %v, chosen with %v", rank, i%m, i/m, v,
					f[i])
			}
		}
		l := mat.NewDense(m, m, u.L)
		var c mat.Dense
		c.Mul(l, l.T())
		for i := range m {
			for j := range m {
				if want := k.Cov(u.X.RawRowView(i), u.X.RawRowView(j)); math.Abs(c.At(i,
					j)-want) > 1e-9 {
					t.Errorf("rank %d: LLᵀ has %v at %d, %d, want %v", rank, c.At(i, j), i, j, want)
				}
			}
		}
		_, left, most, err := u.Linear(x, terms, f)
		if err != nil || most != 1 || (left > 1e-6) == (rank == 30) {
			t.Errorf("rank %d leaves %v of variances up to %v: %v", rank, left, most, err)
		}
	}
}

// TestPass checks a pass under Gaussian noise against the linear model of the features: its ELBO is
// the sum of expectations less the KL divergence, its natural step leads to the posterior of the
// weights, and nothing is left to gain there, which is proved.
func TestPass(t *testing.T) {
	k, lik := bell{1.2}, noise{0.3}
	x, terms := testRows(2*blockRows + 50)
	n := len(terms.Y)
	u, f, err := Undivided(k).Choose(nil, x, terms, 12, 12)
	if err != nil {
		t.Fatal(err)
	}
	m := u.Rank()
	lin, _, _, err := u.Linear(x, terms, f)
	if err != nil {
		t.Fatal(err)
	}
	rows := RowsOf(x, terms)
	p := &Pass{Rows: rows, Z: u, Lik: lik, Workers: term.Crew{Workers: 2}}
	q := gauss.Unit(m)
	q.Mean[3], q.Mean[5] = 0.7, -1.1
	look, err := p.At(q)
	if err != nil {
		t.Fatal(err)
	}
	var want float64
	post := gauss.Unit(m) // P = I + FFᵀ/σ²
	shift := make([]float64, m)
	for i := range n {
		fi, mean, v := f[i*m:(i+1)*m], 0.0, lin.Terms.Extra[i]
		for j, e := range fi {
			mean += e * q.Mean[j]
			v += e * e
			shift[j] += e * terms.Y[i] / lik.v
			for c := range j + 1 {
				post.P[j*m+c] += e * fi[c] / lik.v
			}
		}
		want += lik.Expect(terms.Y[i], mean, v).Value
	}
	want -= 0.5 * (0.7*0.7 + 1.1*1.1)
	if math.Abs(look.ELBO-want) > 1e-8*math.Abs(want) {
		t.Errorf("ELBO %v, want %v", look.ELBO, want)
	}
	if !post.Factor() {
		t.Fatal("no posterior")
	}
	dense.Potrs(post.L, shift)
	for j, v := range shift {
		if math.Abs(look.Next.Mean[j]-v) > 1e-7 || math.Abs(look.Next.P[j*m+j]/post.P[j*m+
			j]-1) > 1e-8 {
			t.Errorf("weight %d: mean %v, precision %v, want %v, %v", j, look.Next.Mean[j],
				look.Next.P[j*m+j], v, post.P[j*m+j])
		}
	}
	best, err := p.At(&look.Next)
	if err != nil {
		t.Fatal(err)
	}
	gain := best.ELBO - look.ELBO
	if best.Promise > 1e-12 || !(gain > 0) || look.Bound < gain-1e-8 || best.Bound > 1e-6 {
		t.Errorf("a step gains %v of at most %v, and %v of at most %v are left", gain, look.Bound,
			best.Promise, best.Bound)
	}
}

// TestExplain checks the moments of features against those of the weights.
func TestExplain(t *testing.T) {
	q := gauss.Unit(2)
	q.P[0], q.P[2], q.P[3] = 3, 1, 2 // V = [2 −1; −1 3]/5
	if !q.Factor() {
		t.Fatal("no factor")
	}
	f := dense.General([]float64{1, 2, 0, -1}, 2, 2) // rows (1, 0) and (2, −1)
	m, v := make([]float64, 2), []float64{0.5, 0}
	Explain(m, v, f, []float64{2, 3}, q.L)
	for i, want := range [2][2]float64{{2, 0.5 + 0.4}, {1, 0.4*4 + 0.2*4 + 0.6}} {
		if math.Abs(m[i]-want[0]) > 1e-14 || math.Abs(v[i]-want[1]) > 1e-14 {
			t.Errorf("row %d: %v ± %v, want %v", i, m[i], v[i], want)
		}
	}
}

// TestMoveGradient checks the derivatives of the ELBO in the inducing inputs against differences.
func TestMoveGradient(t *testing.T) {
	x, terms := testRows(40)
	v := Undivided(bell{0.9})
	m := NewMove(RowsOf(x, terms), noise{0.3}, nil, term.Crew{Workers: 1}, v)
	z := mat.DenseCopyOf(x.Slice(0, 4, 0, 2))
	at := func(i int, h float64) *MovePoint {
		to := mat.DenseCopyOf(z)
		to.Set(i/2, i%2, to.At(i/2, i%2)+h*m.Unit[i%2])
		p, err := m.At(to, gauss.Unit(4))
		if err != nil || p == nil {
			t.Fatal(err)
		}
		return p
	}
	const h = 1e-4
	for i, g := range at(0, 0).Grad {
		if want := (at(i, h).ELBO - at(i, -h).ELBO) / (2 * h); math.Abs(g-want) > 1e-5*(1+
			math.Abs(want)) {
			t.Errorf("derivative in element %d is %v, by differences %v", i, g, want)
		}
	}
}
