package pgsvi

import (
	"math"
	"math/big"
	"testing"
)

// double is an unevaluated sum hi + lo of two float64, |lo| ≤ ulp(hi)/2: about 32 decimal digits
// (Dekker 1971; Hida, Li and Bailey 2001). The reference of the trust tests computes in it what
// cancels in float64: products of rows in raw units, their factors and log-determinants.
type double struct{ hi, lo float64 }

func asDouble(x float64) double { return double{x, 0} }

func (a double) float() float64 { return a.hi + a.lo }

func (a double) neg() double { return double{-a.hi, -a.lo} }

func (a double) plus(b double) double {
	s := a.hi + b.hi
	t := s - a.hi
	e := (a.hi - (s - t)) + (b.hi - t)
	u := a.lo + b.lo
	v := u - a.lo
	f := (a.lo - (u - v)) + (b.lo - v)
	e += u
	h := s + e
	e -= h - s
	e += f
	hi := h + e
	return double{hi, e - (hi - h)}
}

func (a double) minus(b double) double { return a.plus(b.neg()) }

func (a double) times(b double) double {
	p := float64(a.hi * b.hi) // not fused with a sum
	e := math.FMA(a.hi, b.hi, -p) + (a.hi*b.lo + a.lo*b.hi)
	hi := p + e
	return double{hi, e - (hi - p)}
}

func (a double) over(b double) double {
	q := a.hi / b.hi
	r := a.minus(b.times(asDouble(q)))
	q2 := r.hi / b.hi
	r = r.minus(b.times(asDouble(q2)))
	return asDouble(q).plus(asDouble(q2)).plus(asDouble(r.hi / b.hi))
}

func (a double) sqrt() double {
	if a.hi <= 0 {
		return asDouble(math.Sqrt(a.hi))
	}
	x := math.Sqrt(a.hi)
	return asDouble(x).plus(a.minus(asDouble(x).times(asDouble(x))).over(asDouble(2 * x)))
}

func (a double) log() float64 { return math.Log(a.hi) + a.lo/a.hi }

// dotDouble returns Σ x_i y_i.
func dotDouble(x, y []double) (sum double) {
	for i, a := range x {
		sum = sum.plus(a.times(y[i]))
	}
	return sum
}

// choleskyDouble overwrites the lower triangle of the n×n matrix p by its Cholesky factor, and
// reports whether p is positive definite.
func choleskyDouble(p []double, n int) bool {
	for i := range n {
		for j := range i + 1 {
			s := p[i*n+j].minus(dotDouble(p[i*n:i*n+j], p[j*n:j*n+j]))
			if j < i {
				p[i*n+j] = s.over(p[j*n+j])
				continue
			}
			if !(s.hi > 0) || math.IsInf(s.hi, 0) {
				return false
			}
			p[i*n+i] = s.sqrt()
		}
	}
	return true
}

// forwardDouble overwrites b by C⁻¹b, for a Cholesky factor C.
func forwardDouble(c, b []double) {
	n := len(b)
	for i := range n {
		b[i] = b[i].minus(dotDouble(c[i*n:i*n+i], b[:i])).over(c[i*n+i])
	}
}

// backwardDouble overwrites b by C⁻ᵀb.
func backwardDouble(c, b []double) {
	n := len(b)
	for i := n - 1; i >= 0; i-- {
		b[i] = b[i].over(c[i*n+i])
		for j := range i {
			b[j] = b[j].minus(c[i*n+j].times(b[i]))
		}
	}
}

// logDetDouble returns log|CCᵀ|.
func logDetDouble(c []double, n int) (sum float64) {
	for i := range n {
		sum += 2 * c[i*n+i].log()
	}
	return sum
}

// factorDouble returns the rows of an n×r matrix A with AAᵀ = k, for the positive semi-definite n×n
// matrix k, by Cholesky with pivots down to tol times the largest. k is overwritten.
func factorDouble(k []double, n int, tol float64) (a []double, r int) {
	cols := make([][]double, 0, n)
	least := 0.0
	for i := range n {
		least = math.Max(least, tol*k[i*n+i].hi)
	}
	for range n {
		p := 0
		for i := range n {
			if k[i*n+i].hi > k[p*n+p].hi {
				p = i
			}
		}
		if !(k[p*n+p].hi > least) {
			break
		}
		d := k[p*n+p].sqrt()
		c := make([]double, n)
		for i := range n {
			c[i] = k[i*n+p].over(d)
		}
		for i := range n {
			for j := range n {
				k[i*n+j] = k[i*n+j].minus(c[i].times(c[j]))
			}
		}
		for i := range n {
			k[i*n+p], k[p*n+i] = double{}, double{}
		}
		cols = append(cols, c)
	}
	r = len(cols)
	a = make([]double, n*r)
	for j, c := range cols {
		for i, x := range c {
			a[i*r+j] = x
		}
	}
	return a, r
}

// TestDouble compares with math/big at 300 bits.
func TestDouble(t *testing.T) {
	rng := testRand(3)
	number := func() (double, *big.Float) {
		x := asDouble(rng.NormFloat64() * math.Exp(20*rng.NormFloat64()))
		x = x.plus(asDouble(x.hi * 0x1p-60 * rng.NormFloat64()))
		b := new(big.Float).SetPrec(300).SetFloat64(x.hi)
		return x, b.Add(b, new(big.Float).SetFloat64(x.lo))
	}
	for range 2000 {
		x, a := number()
		y, b := number()
		z := new(big.Float).SetPrec(300)
		for name, c := range map[string]struct {
			got  double
			want *big.Float
		}{
			"sum":      {x.plus(y), new(big.Float).Add(a, b)},
			"product":  {x.times(y), new(big.Float).Mul(a, b)},
			"quotient": {x.over(y), new(big.Float).Quo(a, b)},
			"root":     {x.times(x).sqrt(), new(big.Float).Abs(a)},
		} {
			z.SetFloat64(c.got.hi)
			z.Add(z, new(big.Float).SetFloat64(c.got.lo))
			z.Sub(z, c.want).Quo(z, c.want)
			if off, _ := z.Float64(); !(math.Abs(off) < 1e-30) {
				t.Fatalf("%s of %v and %v: relative error %.2g", name, x, y, off)
			}
		}
	}
}
