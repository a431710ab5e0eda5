package mixture

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

func rows(n, d int, seed uint64) *mat.Dense {
	rng := rand.New(rand.NewPCG(seed, 1))
	x := mat.NewDense(n, d, nil)
	for i := range n {
		shared := rng.NormFloat64()
		for j := range d {
			x.Set(i, j, 1e3*float64(j)+math.Pow(10, float64(j))*(shared+rng.NormFloat64()))
		}
	}
	return x
}

// Whitened rows have mean 0 and covariance I, or with a covariance of the caller's the one that
// this leaves; L takes them back.
func TestWhiten(t *testing.T) {
	const n, d = 50, 3
	x := rows(n, d, 1)
	cov := mat.NewSymDense(d, []float64{2, 1, 0, 1, 300, 5, 0, 5, 2e4})
	for _, c := range []mat.Symmetric{nil, cov} {
		z, s, err := Whiten(x, c)
		if err != nil {
			t.Fatal(err)
		}
		l := mat.NewTriDense(d, mat.Lower, s.L)
		white := mat.NewDense(n, d, z)
		var back mat.Dense
		back.Mul(white, l.T())
		var got, want mat.SymDense
		stat.CovarianceMatrix(&got, &back, nil)
		stat.CovarianceMatrix(&want, x, nil)
		if !mat.EqualApprox(&got, &want, 1e-6) {
			t.Errorf("covariance of L z is %v, want %v", mat.Formatted(&got), mat.Formatted(&want))
		}
		if c == nil {
			stat.CovarianceMatrix(&got, white, nil)
			unit := mat.NewDiagDense(d, []float64{1, 1, 1})
			if !mat.EqualApprox(&got, unit, 1e-10) {
				t.Errorf("covariance of z is %v", mat.Formatted(&got))
			}
		}
		var chol mat.Cholesky
		of := mat.Symmetric(&want)
		if c != nil {
			of = c
		}
		if !chol.Factorize(of) || math.Abs(0.5*chol.LogDet()-s.LogDet) > 1e-9 {
			t.Errorf("log|L| is %v, want %v", s.LogDet, 0.5*chol.LogDet())
		}
		to := make([]float64, d)
		s.To(to, x.RawRowView(7))
		for j, v := range to {
			if math.Abs(v-z[7*d+j]) > 1e-9 {
				t.Errorf("coordinate %d of row 7 is %v, want %v", j, v, z[7*d+j])
			}
		}
	}
}

func TestWhitenErrors(t *testing.T) {
	same := rows(5, 3, 2)
	for i := range 5 {
		same.Set(i, 2, same.At(i, 0)+2*same.At(i, 1))
	}
	constant := rows(5, 2, 3)
	for i := range 5 {
		constant.Set(i, 1, 1e9)
	}
	hole := rows(5, 2, 4)
	hole.Set(3, 1, math.NaN())
	for name, c := range map[string]struct {
		x    mat.Matrix
		cov  mat.Symmetric
		want error
	}{
		"a combination":   {same, nil, sentinel.ErrNotPosDef},
		"constant":        {constant, nil, sentinel.ErrNotPosDef},
		"NaN":             {hole, nil, sentinel.ErrNotFinite},
		"other shape":     {same, mat.NewSymDense(2, nil), sentinel.ErrShape},
		"no variance":     {constant, mat.NewSymDense(2, nil), sentinel.ErrNotPosDef},
		"far from a mean": {same, mat.NewDiagDense(3, []float64{1e-20, 1, 1}), sentinel.ErrParam},
	} {
		if _, _, err := Whiten(c.x, c.cov); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestKMeans(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	const n, d, k = 90, 2, 3
	z := make([]float64, n*d)
	for i := range n {
		z[i*d] = 50*float64(i%k) + rng.NormFloat64()
		z[i*d+1] = rng.NormFloat64()
	}
	cluster := KMeans(context.Background(), z, d, k, rng)
	for i := range n {
		if cluster[i] != cluster[i%k] || i < k && i > 0 && cluster[i] == cluster[0] {
			t.Fatalf("row %d is in cluster %d, row %d in %d", i, cluster[i], i%k, cluster[i%k])
		}
	}
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	if c := KMeans(canceled, z, d, k, rng); c != nil {
		t.Errorf("canceled: %v", c)
	}
}

// The predictive density integrates to one, whatever the units, and responsibilities sum to one and
// follow the nearest component.
func TestComponents(t *testing.T) {
	p := Components{
		Space: Space{Mean: []float64{100}, L: []float64{5}, LogDet: math.Log(5)},
		Alpha: []float64{3, 7},
		Each: []Component{
			{Kappa: 3, DF: 4, M: []float64{-2}, C: []float64{1.5}},
			{Kappa: 7, DF: 9, M: []float64{1}, C: []float64{2}},
		},
	}
	p.Prepare()
	const step = 0.05
	var sum float64
	for x := -4000.0; x < 4200; x += step {
		sum += step * math.Exp(p.LogProb([]float64{x}))
	}
	if math.Abs(sum-1) > 1e-6 {
		t.Errorf("the density integrates to %v", sum)
	}
	r, mean := make([]float64, 2), make([]float64, 1)
	for k := range 2 {
		p.Mean(mean, k)
		if want := 100 + 5*p.Each[k].M[0]; math.Abs(mean[0]-want) > 1e-12 {
			t.Errorf("mean %d is %v, want %v", k, mean[0], want)
		}
		p.Responsibilities(r, mean)
		if math.Abs(r[0]+r[1]-1) > 1e-12 || r[k] < 0.9 {
			t.Errorf("at the mean of component %d: %v", k, r)
		}
		c := p.Each[k]
		if got, want := p.Cov(k).At(0, 0), 25*c.C[0]*c.C[0]/c.DF; math.Abs(got-want) > 1e-12*want {
			t.Errorf("variance of component %d is %v, want %v", k, got, want)
		}
	}
}

// TestFarRows checks rows so far away that squares overflow: the row belongs to the nearest
// component, and the density continues its power law.
func TestFarRows(t *testing.T) {
	for _, unit := range []float64{1e-8, 1, 1e8} {
		p := Components{
			Space: Space{Mean: []float64{3 * unit, unit}, L: []float64{2 * unit, 0, unit, unit},
				LogDet: math.Log(2 * unit * unit)},
			Alpha: []float64{3, 5, 7},
			Each: []Component{
				{Kappa: 3, DF: 4, M: []float64{-2, 0}, C: []float64{1.5, 0, 0, 1}},
				{Kappa: 5, DF: 4, M: []float64{2, 0}, C: []float64{1.5, 0, 0, 1}},
				{Kappa: 7, DF: 9, M: []float64{1, 1}, C: []float64{2, 0, 0.3, 2}},
			},
		}
		p.Prepare()
		// The reference is the same direction at a distance where squares are numbers.
		for _, to := range [][]float64{{1, 0}, {-1, 0}, {0.3, -1}, {1, 1}} {
			r, near := make([]float64, 3), make([]float64, 3)
			at := func(far float64) []float64 { return []float64{to[0] * far, to[1] * far} }
			p.Responsibilities(near, at(1e60))
			slope := (p.LogProb(at(1e70)) - p.LogProb(at(1e60))) / 10
			for _, far := range []float64{1e90, 1e99, 1e101, 1e120, 1e153, 1e155, 1e200, 1e300,
				math.MaxFloat64} {
				p.Responsibilities(r, at(far))
				for k := range r {
					if math.Abs(r[k]-near[k]) > 1e-12 {
						t.Errorf("unit %v, %v: %v, nearer %v", unit, at(far), r, near)
						break
					}
				}
				want := p.LogProb(at(1e60)) + slope*(math.Log10(far)-60)
				if got := p.LogProb(at(far)); !(math.Abs(got-want) < 1e-9*math.Abs(want)) {
					t.Errorf("unit %v, %v: log density %v, want %v", unit, at(far), got, want)
				}
			}
		}
	}
}
