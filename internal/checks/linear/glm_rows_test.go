package linear

import (
	"context"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
)

// fitRows fits a GLM by passes over rows.
func fitRows(t testing.TB, rows iter.Seq2[Row, error], cols int, lik Likelihood, opt *GLMOptions,
	s *Solver) (*GLMPosterior, *Result) {
	t.Helper()
	g, err := NewGLMRows(context.Background(), rows, cols, lik, opt)
	if err != nil {
		t.Fatal(err)
	}
	p, res, err := g.Fit(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	return p, res
}

// TestGLMRowsUnseen checks counts with features of a few rows that the sample misses.
func TestGLMRowsUnseen(t *testing.T) {
	t.Parallel()
	const n, d = 60000, 12
	rows := func(yield func(Row, error) bool) {
		rng := rand.New(rand.NewPCG(4, 4))
		for i := range n {
			row := Row{Ind: []int{0}, Val: []float64{1}, Y: float64(rng.IntN(4))}
			if i%20000 < d-1 {
				row.Ind, row.Val = append(row.Ind, 1+i%20000), append(row.Val, 3+float64(i%7))
				row.Y = float64(50 * (i % 3))
			}
			if !yield(row, nil) {
				return
			}
		}
	}
	for _, sd := range testkit.Few([]float64{1, 0.3, 3}, 1) {
		_, res := fitRows(t, rows, d, Poisson{}, &GLMOptions{PriorSD: sd}, nil)
		t.Log(sd, res)
		if res.Status != Converged || !(res.GapBound <= 0.02) {
			t.Errorf("prior sd %v: %v", sd, res)
		}
	}
}

// TestGLMRowsCollinear checks columns that are nearly multiples of one another, or of one value,
// against fits in memory: each kind of columns under each likelihood, with one prior or, with
// -long, with three.
func TestGLMRowsCollinear(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1))
	n := testkit.Longer(20_000, 17_000)
	for a, columns := range testkit.Few([]func(x float64) []float64{
		func(x float64) []float64 { return []float64{x, 100*x + 1e-6*rng.NormFloat64(), 1e8 + x} },
		func(x float64) []float64 { return []float64{x, 100*x + 1e-6*rng.NormFloat64()} },
		func(x float64) []float64 { return []float64{x, 1e8 + x} },
		func(x float64) []float64 { return []float64{1, x, 1e4 + x, x} },
	}, 1) {
		for b, lik := range testkit.Few([]Likelihood{Poisson{}, BernoulliLogit{},
			GaussianNoise{Var: 1}},
			1) {
			rows := make([]Row, n)
			for i := range rows {
				x := rng.NormFloat64()
				r := &rows[i]
				r.Val = columns(x)
				switch eta := 0.5*x - 0.3; lik.(type) {
				case Poisson, NegativeBinomial:
					r.Y = math.Floor(math.Exp(eta) + rng.Float64())
				case GaussianNoise:
					r.Y = eta + rng.NormFloat64()
				default:
					r.Y = testkit.PlusMinus(eta+rng.NormFloat64() > 0)
				}
			}
			d := len(rows[0].Val)
			x, y := mat.NewDense(n, d, nil), make([]float64, n)
			for i, r := range rows {
				x.SetRow(i, r.Val)
				y[i] = r.Y
			}
			for c, sd := range []float64{1e3, 1, 1e-3} {
				if !testkit.IsLong() && c != (a+b)%3 {
					continue
				}
				opt := &GLMOptions{PriorSD: sd}
				_, res := fitRows(t, testkit.Each(rows), d, lik, opt, nil)
				g, err := NewGLM(x, y, lik, opt)
				if err != nil {
					t.Fatal(err)
				}
				_, want := kit.FitGLM(t, g, nil)
				off := want.ELBO - res.ELBO
				if res.Status != Converged || !(res.GapBound <= 0.01 && off <= res.GapBound) ||
					!(off >= -want.GapBound-res.ELBOErr) {
					t.Errorf("%s, prior sd %v, row %v: %v, and in memory %v",
						testkit.TypeName(lik), sd, rows[0].Val, res, want)
				}
			}
		}
	}
}

// TestApproachRest fits models of so many rows that blocks see a part of them, and one step the
// rest. The fit must be within its proved gap of a fit to the end, and have the same bits with any
// number of workers, also where the step of the mean fails or rows of the rest overflow.
func TestApproachRest(t *testing.T) {
	t.Parallel()
	const n, d = 2400, 5
	r := rand.New(rand.NewPCG(3, 5))
	for _, far := range []float64{0, 6, 300} { // value of a row that is in no block
		x, y := mat.NewDense(n, d, nil), make([]float64, n)
		signs := make([]float64, n)
		for i := range n {
			eta := 0.2
			for j := range d {
				x.Set(i, j, r.NormFloat64())
				eta += 0.3 * x.At(i, j)
			}
			y[i] = math.Floor(math.Exp(eta) + r.Float64())
			if signs[i] = -1; eta+r.NormFloat64() > 0 {
				signs[i] = 1
			}
		}
		for i := n / 2; far > 0 && i < n/2+3; i++ {
			x.Set(i, 0, far)
			y[i] = 0
		}
		for _, c := range []struct {
			lik Likelihood
			y   []float64
		}{{Poisson{}, y}, {BernoulliLogit{}, signs}, {NegativeBinomial{Shape: 2}, y}} {
			g, err := NewGLM(x, c.y, c.lik, nil)
			if err != nil {
				t.Fatal(err)
			}
			fit := func(by *Solver) (*GLMPosterior, *Result) {
				p, res, err := g.Fit(t.Context(), by)
				if err != nil || res.Status != Converged {
					t.Fatalf("%v, a row at %v: %v, %v", c.lik, far, err, res)
				}
				return p, res
			}
			post, res := fit(&Solver{Goal: 0.01, Workers: 1})
			_, end := fit(&Solver{Workers: 1})
			if lost := end.ELBO - res.ELBO; lost > res.GapBound || lost < -1e-6 {
				t.Errorf("%v, a row at %v: the fit lacks %v nats, proved are %v", c.lik, far, lost,
					res.GapBound)
			}
			other, _ := fit(&Solver{Goal: 0.01, Workers: 3})
			if !slices.Equal(post.Mean(nil), other.Mean(nil)) {
				t.Errorf("%v, a row at %v: three workers have other bits", c.lik, far)
			}
		}
	}
}
