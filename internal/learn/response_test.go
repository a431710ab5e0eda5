package learn

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi/internal/design"
	"gonum.org/v1/gonum/mat"
)

// crossedRows returns sparse rows with the levels of two factors, a column of numbers and ones, and
// the matrix Λ + XᵀΓX of a diagonal q with random Γ.
func crossedRows(rng *rand.Rand, n, a, b int) (*Curved, *mat.SymDense) {
	d := a + b + 2
	s, x := &design.Rows{Cols: d, Ptr: []int{0}}, mat.NewDense(n, d, nil)
	c := &Curved{Gamma: make([]float64, n), Prec: make([]float64, d), Variance: make([]float64, d)}
	p := mat.NewSymDense(d, nil)
	for j := range d {
		c.Prec[j] = 0.5 + rng.Float64()
		p.SetSym(j, j, c.Prec[j])
	}
	for i := range n {
		c.Gamma[i] = 0.1 + rng.Float64()
		s.Ind = append(s.Ind, int32(rng.IntN(a)), int32(a+rng.IntN(b)), int32(d-2), int32(d-1))
		s.Val = append(s.Val, 1, 1, rng.NormFloat64()+2, 1)
		s.Ptr = append(s.Ptr, len(s.Ind))
		for k := 4 * i; k < 4*i+4; k++ {
			x.Set(i, int(s.Ind[k]), s.Val[k])
		}
		p.SymRankOne(p, c.Gamma[i], x.RowView(i))
	}
	for j := range d {
		c.Variance[j] = 1 / p.At(j, j)
	}
	c.X = design.NewSparse(s)
	c.X.Rows = n
	return c, p
}

func TestResponse(t *testing.T) {
	c, p := crossedRows(rand.New(rand.NewPCG(1, 2)), 4000, 500, 400)
	d := len(c.Prec)
	if got, want := common(c.X), []int{d - 2, d - 1}; !slices.Equal(got, want) {
		t.Fatalf("common columns %v, want %v", got, want)
	}
	var v mat.SymDense
	var chol mat.Cholesky
	if !chol.Factorize(p) {
		t.Fatal("the precision is not positive definite")
	}
	if err := chol.InverseTo(&v); err != nil {
		t.Fatal(err)
	}
	s := c.Response(1)
	if s == nil {
		t.Fatal("no response")
	}
	got := s.Sym()
	for j := range d {
		for _, k := range []int{d - 2, d - 1} { // exact next to every weight
			if diff := math.Abs(got.At(j, k) - v.At(j, k)); !(diff < 1e-7*math.Sqrt(v.At(j, j)*v.At(k, k))) {
				t.Errorf("covariance of %d and %d: %v, want %v", j, k, got.At(j, k), v.At(j, k))
			}
		}
		// Between the mean-field variance, given all other weights, and the variance.
		if got := got.At(j, j); !(got >= c.Variance[j]*(1-1e-12) && got <= v.At(j, j)*(1+1e-7)) {
			t.Errorf("variance of %d: %v, want between %v and %v", j, got, c.Variance[j], v.At(j, j))
		}
	}
	if ratio := math.Sqrt(v.At(d-1, d-1) / c.Variance[d-1]); ratio < 3 {
		t.Errorf("the mean-field sd of the intercept is only %.1f times too small: no test", ratio)
	}
	for _, workers := range []int{2, 7} {
		for i, a := range c.Response(workers).A {
			if !slices.Equal(a, s.A[i]) {
				t.Errorf("%d workers: column %d differs", workers, i)
			}
		}
	}
}

// A column without weight in the likelihood, and one that repeats another.
func TestResponseSingular(t *testing.T) {
	x := design.NewSparse(&design.Rows{Cols: 3, Ptr: []int{0, 2, 4}, Ind: []int32{0, 1, 0, 1},
		Val: []float64{1, 1, 1, 1}})
	x.Rows = 2
	c := &Curved{X: x, Prec: []float64{1, 1, 1}, Gamma: []float64{1e12, 1e12},
		Variance: []float64{0.5e-12, 0.5e-12, 1}}
	if s := c.Response(1); s != nil {
		got := s.Sym()
		if v := got.At(0, 0); math.Abs(v-0.5) > 1e-3 || got.At(2, 2) != 1 {
			t.Errorf("variances %v and %v, want 0.5 and 1", v, got.At(2, 2))
		}
	}
}

func TestCommon(t *testing.T) {
	const n, d = 400, 80
	x := &design.Matrix{Rows: n, Cols: d, Dense: make([]float64, n*d)}
	for i := range n {
		for j := range d {
			x.Dense[i*d+j] = float64(design.B2i(i < n-3*j))
		}
	}
	list := common(x)
	if len(list) != mostResponses || list[0] != 0 || list[len(list)-1] != mostResponses-1 {
		t.Errorf("common columns %v, want the first %d", list, mostResponses)
	}
	for j := range x.Dense {
		x.Dense[j] = 1
	}
	if list := common(x); list != nil {
		t.Errorf("%d of %d equal columns are common, want all or none", len(list), d)
	}
	wide := &design.Matrix{Rows: 1, Cols: 2_000_000, Dense: make([]float64, 2_000_000)}
	for j := range 10 {
		wide.Dense[j] = 1
	}
	if list := common(wide); list != nil {
		t.Errorf("%d responses of %d weights, want none: equal columns are all in or all out", len(list),
			wide.Cols)
	}
}

// hilbert returns the Curved of the rows of Hilbert's matrix, whose columns are nearly collinear, and its
// matrix.
func hilbert(d int, prec, gamma float64) (*Curved, *mat.SymDense) {
	x := &design.Matrix{Rows: d, Cols: d, Dense: make([]float64, d*d)}
	c := &Curved{X: x, Prec: make([]float64, d), Gamma: make([]float64, d), Variance: make([]float64, d)}
	p := mat.NewSymDense(d, nil)
	for i := range d {
		row := x.Dense[i*d : (i+1)*d]
		for j := range row {
			row[j] = 1 / float64(i+j+1)
		}
		c.Prec[i], c.Gamma[i] = prec, gamma
		p.SymRankOne(p, gamma, mat.NewVecDense(d, row))
	}
	for j := range d {
		p.SetSym(j, j, p.At(j, j)+prec)
		c.Variance[j] = 1 / p.At(j, j)
	}
	return c, p
}

// TestResponseCollinear checks the responses of nearly collinear columns, whose solves take more steps
// than there are columns.
func TestResponseCollinear(t *testing.T) {
	c, p := hilbert(12, 1, 1e4)
	var chol mat.Cholesky
	var want mat.SymDense
	if !chol.Factorize(p) || chol.InverseTo(&want) != nil {
		t.Fatal("no inverse")
	}
	s := c.Response(1)
	if s == nil {
		t.Fatal("no response")
	}
	got := s.Sym()
	for i := range 12 {
		for j := range i + 1 {
			if off := got.At(i, j) - want.At(i, j); !(math.Abs(off) < 1e-6) {
				t.Errorf("covariance of %d and %d: %v, want %v", i, j, got.At(i, j), want.At(i, j))
			}
		}
	}
}
