package linear

import (
	"context"
	"errors"
	"iter"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

func newStream(t testing.TB, cols int, lik Likelihood, opt *GLMOptions) *GLMStream {
	t.Helper()
	s, err := NewGLMStream(cols, lik, opt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func streamPosterior(t testing.TB, s *GLMStream) *GLMPosterior {
	t.Helper()
	p, err := s.Posterior()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestStreamStrongRow checks the variance along one row that carries far more information than
// the prior, among many weights. It must match Bayesian linear regression, or there must be an
// error. Variances were once wrong by a factor of 1000.
func TestStreamStrongRow(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 19858))
	for _, d := range []int{1, 14, 100} {
		for _, noise := range []float64{1e-2, 1e-7, 1e-12} {
			for _, unit := range []float64{1, 1e4, 1e8} {
				s := testkit.Must(NewGLMStream(d, GaussianNoise{Var: noise},
					&GLMOptions{PriorSD: 60}))
				row := Row{Val: make([]float64, d), Y: 3}
				var square float64
				for j := range row.Val {
					row.Val[j] = unit * rng.NormFloat64()
					square += row.Val[j] * row.Val[j]
				}
				if err := s.Add(row); err != nil {
					t.Fatal(err)
				}
				post, err := s.Posterior()
				// a part of 10³¹ of the prior: more than the digits there are
				if errors.Is(err, ErrDiverged) && noise < 1e-9 && unit > 1e4 {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				_, v := post.At(mat.NewDense(1, d, row.Val)).Latent(nil, nil)
				want := 1 / (1/(3600*square) + 1/noise)
				if !(math.Abs(v[0]/want-1) <= 1e-5) {
					t.Errorf("%d weights, noise %g, unit %g: latent variance %g, want %g", d, noise,
						unit, v[0], want)
				}
			}
		}
	}
}

// Rows that are added and removed again must leave the earlier state. With Gaussian noise, where
// both are exact, the difference is at most 1e-6 standard deviations, in any units and for nearly
// collinear columns. With other noise it is the accuracy of one pass. If the digits do not
// suffice, there must be an error.
func TestRemoveCollinear(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	right := 0
	problems := testkit.Shorter(300, 40)
	for seed := range uint64(problems) {
		rng := testkit.Rand(seed)
		n := 20 + rng.IntN(100)
		power, kind := float64(2+2*rng.IntN(3)), rng.IntN(4)
		scale := []float64{1, 0.03, 4e-4}[rng.IntN(3)]
		x, y := mat.NewDense(n, 3, nil), make([]float64, n)
		for i := range n {
			v := []float64{
				rng.NormFloat64(), math.Pow(float64(i), power), 5e6 + float64(i),
				math.Round(math.Exp(10 + rng.NormFloat64())),
			}[kind]
			x.SetRow(i, []float64{v, 100*v + 1e-7*rng.NormFloat64(), 1e8 + v})
			y[i] = scale * rng.NormFloat64()
		}
		lik, most := Likelihood(GaussianNoise{Var: scale * scale}), 1e-6
		if seed%2 == 1 {
			lik, most = Laplace{Scale: scale}, 2
		}
		st := newStream(t, 3, lik, &GLMOptions{PriorSD: []float64{0.01, 1, 100, 1000}[rng.IntN(4)]})
		rows := func(lo, hi int) iter.Seq2[Row, error] {
			return Rows(x.Slice(lo, hi, 0, 3).(*mat.Dense), y[lo:hi])
		}
		if err := st.AddAll(ctx, rows(0, n/2)); err != nil {
			continue // no more digits than the rows need
		}
		p, err := st.Posterior()
		if err != nil {
			continue
		}
		if seed%4 < 2 {
			p = kit.WithoutRows(t, p)
		}
		more, err := p.Update(ctx, rows(n/2, n))
		if err != nil {
			continue
		}
		q, err := more.Remove(ctx, rows(n/2, n))
		if err != nil {
			if !errors.Is(err, ErrNotPosDef) {
				t.Errorf("seed %d: %v", seed, err)
			}
			continue
		}
		right++
		m, v := p.At(x).Latent(nil, nil)
		m1, v1 := q.At(x).Latent(nil, nil)
		for i := range m {
			off := max(math.Abs(m[i]-m1[i])/math.Sqrt(v[i]), 0.5*math.Abs(math.Log(v[i]/v1[i])))
			if !(off <= most) {
				t.Errorf("seed %d, %T, columns of kind %d: row %d is off by %.3g sd", seed, lik,
					kind, i, off)
				break
			}
		}
	}
	if right < problems/2 {
		t.Errorf("%d of %d problems have an answer", right, problems)
	}
	t.Logf("%d of %d problems have an answer", right, problems)
}
