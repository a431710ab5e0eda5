package mixed

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/bench/simulate"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// TestPredictMixed checks that predictions from an integrated posterior have the same bits in one block
// as row by row, and that they agree with the sum over parts that are predicted one by one.
func TestPredictMixed(t *testing.T) {
	for _, d := range []simulate.Design{design(BernoulliLogit{}, 6, false, 1),
		design(Poisson{}, 6, true, 0.5), design(GaussianNoise{Var: 1}, 6, true, 1)} {
		_, p, err := d.Fit(context.Background(), d.Draw(testkit.Rand(1)))
		if err != nil {
			t.Fatal(err)
		}
		rng, x := testkit.Rand(2), NewSparse(p.Cols())
		const rows = 40 // more than are predicted without blocks
		for i := range rows {
			if d.Slope {
				x.Append([]int{0, 1 + 2*(i%7), 2 + 2*(i%7)}, []float64{rng.NormFloat64(), 1, 1})
			} else {
				x.Append([]int{0, 1 + i%7}, []float64{rng.NormFloat64(), 1})
			}
		}
		all := p.At(x)
		m, v := all.Latent(nil, nil)
		prob := all.Prob(nil, 1)
		// Offset splits the prediction into its parts.
		for i, want := range all.Offset(make([]float64, rows)).Prob(nil, 1) {
			if !(math.Abs(prob[i]-want) <= 1e-14) {
				t.Errorf("%v, row %d: probability %v, and %v by parts", d, i, prob[i], want)
			}
		}
		if m2, v2 := p.Latent(nil, nil, x); !slices.Equal(m, m2) || !slices.Equal(v, v2) {
			t.Errorf("%v: Latent differs from At", d)
		}
		for i := range rows {
			one := NewSparse(p.Cols())
			ind, val := x.Row(i)
			columns := make([]int, len(ind))
			for k, j := range ind {
				columns[k] = int(j)
			}
			one.Append(columns, val)
			at := p.At(one)
			m1, v1 := at.Latent(nil, nil)
			if m1[0] != m[i] || v1[0] != v[i] || at.Prob(nil, 1)[0] != prob[i] {
				t.Errorf("%v: row %d has other bits alone", d, i)
			}
		}
	}
}

// BenchmarkPredictRow predicts one row of a level from an integrated posterior.
func BenchmarkPredictRow(b *testing.B) {
	for _, d := range []simulate.Design{design(BernoulliLogit{}, 20, false, 1),
		design(BernoulliLogit{}, 20, true, 1), design(Poisson{}, 20, true, 1),
		design(GaussianNoise{Var: 1}, 20, false, 1)} {
		_, p, err := d.Fit(context.Background(), d.Draw(testkit.Rand(1)))
		if err != nil {
			b.Fatal(err)
		}
		x := NewSparse(p.Cols())
		if d.Slope {
			x.Append([]int{0, 7, 8}, []float64{0.5, 1, 0.5})
		} else {
			x.Append([]int{0, 4}, []float64{0.5, 1})
		}
		m, v, prob := make([]float64, 1), make([]float64, 1), make([]float64, 1)
		for name, f := range map[string]func(){
			"Latent":   func() { p.Latent(m, v, x) },
			"Prob":     func() { p.At(x).Prob(prob, 1) },
			"Interval": func() { p.At(x).MeanInterval(m, v, 0.9) },
			"Moments":  func() { p.At(x).Moments(m, v) },
		} {
			b.Run(fmt.Sprintf("%v/%s", d, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					f()
				}
			})
		}
	}
}
