package mixed

import (
	"context"
	"math"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/bench/simulate"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/floats"
)

// without returns s without the rows for which out is true, and the rows left out.
func without(s *simulate.DataSet, out func(i int) bool) (rest *simulate.DataSet, x *Sparse,
	y []float64) {
	_, cols := s.X.Dims()
	rest, x = &simulate.DataSet{X: NewSparse(cols)}, NewSparse(cols)
	for i, yi := range s.Y {
		to, at := rest.X, &rest.Y
		if out(i) {
			to, at = x, &y
		}
		ind, val := s.X.Row(i)
		columns := make([]int, len(ind))
		for k, j := range ind {
			columns[k] = int(j)
		}
		to.Append(columns, val)
		*at = append(*at, yi)
	}
	return rest, x, y
}

// few returns s with the first rows of each level only, and without most of the rows that have no
// level.
func few(d simulate.Design, s *simulate.DataSet, each int) *simulate.DataSet {
	first := len(s.Y) - d.Levels*simulate.RowsEach
	rest, _, _ := without(s, func(i int) bool {
		if i < first {
			return i >= 60
		}
		return (i-first)%simulate.RowsEach >= each
	})
	return rest
}

// TestLOOIntegrated compares LOO of an integrated posterior with fits to the other rows. For
// Gaussian noise only the points of the integral and the scale of the prior differ. If LOO used
// the best standard deviations alone, the sums would differ by as much as the test logs.
func TestLOOIntegrated(t *testing.T) {
	for _, c := range []struct {
		simulate.Design
		each, sum float64 // nats
	}{
		{design(GaussianNoise{Var: 1}, 5, false, 1), 0.005, 0.01},
		{design(GaussianNoise{Var: 1}, 12, true, 1), 0.1, 0.4},
		{design(BernoulliLogit{}, 6, false, 2), 0.03, 0.1},
	} {
		d := c.Design
		s := few(d, d.Draw(testkit.Rand(3)), 4)
		g, p, err := d.Fit(context.Background(), s)
		if err != nil {
			t.Fatal(err)
		}
		l, err := g.LOO(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		var sum, most float64
		first := len(s.Y) - 4*d.Levels
		for i := first; i < len(s.Y); i++ {
			rest, x, y := without(s, func(k int) bool { return k == i })
			_, q, err := d.Fit(context.Background(), rest)
			if err != nil {
				t.Fatal(err)
			}
			want := q.At(x).LogProb(nil, y)[0]
			sum += want
			most = max(most, math.Abs(l.Pointwise[i]-want))
		}
		off := floats.Sum(l.Pointwise[first:]) - sum
		cavity := l.Cavity.LogProb(nil, s.Y)
		t.Logf("%v: rows differ by up to %.2g nats, their sum by %.2g of %.1f", d, most, off, sum)
		if !(most <= c.each && math.Abs(off) <= c.sum) {
			t.Errorf("%v: rows differ by up to %v nats, and their sum by %v", d, most, off)
		}
		for i, x := range cavity {
			if math.Abs(x-l.Pointwise[i]) > 1e-6 {
				t.Errorf("%v: row %d has log density %v, and %v under its cavity", d, i, l.Pointwise[i],
					x)
			}
		}
	}
}

// TestLOOGroupIntegrated compares LOOGroup of an integrated posterior with fits to the other
// levels.
func TestLOOGroupIntegrated(t *testing.T) {
	for _, c := range []struct {
		simulate.Design
		each, sum float64 // nats
	}{
		{design(GaussianNoise{Var: 1}, 8, false, 1), 0.02, 0.05},
		{design(GaussianNoise{Var: 1}, 8, true, 1), 0.15, 0.3},
		{design(BernoulliLogit{}, 8, false, 1), 0.1, 0.2},
	} {
		d := c.Design
		s := few(d, d.Draw(testkit.Rand(5)), 4)
		g, p, err := d.Fit(context.Background(), s)
		if err != nil {
			t.Fatal(err)
		}
		l, err := g.LOOGroup(context.Background(), p, "group1")
		if err != nil {
			t.Fatal(err)
		}
		var sum, most float64
		first := len(s.Y) - 4*d.Levels
		for level := range d.Levels {
			rest, x, y := without(s, func(i int) bool { return i >= first && (i-first)/4 == level })
			_, q, err := d.Fit(context.Background(), rest)
			if err != nil {
				t.Fatal(err)
			}
			want := jointLogProb(d, q, x, y)
			sum += want
			most = max(most, math.Abs(l.Pointwise[level]-want))
		}
		off := l.ELPD - sum
		t.Logf("%v: levels differ by up to %.2g nats, their sum by %.2g of %.1f", d, most, off, sum)
		if !(most <= c.each && math.Abs(off) <= c.sum) {
			t.Errorf("%v: levels differ by up to %v nats, and their sum by %v", d, most, off)
		}
	}
}

// jointLogProb returns the log of the joint density of the rows of a new level, from draws of q.
func jointLogProb(d simulate.Design, q *GLMPosterior, x *Sparse, y []float64) float64 {
	const draws = 40000
	rng := testkit.Rand(1)
	w := testkit.NormalMatrix(rng, draws, q.Dim())
	if err := q.RandWeights(w, rng); err != nil {
		return math.NaN()
	}
	logs := make([]float64, draws)
	for k := range logs {
		row := w.RawRowView(k)
		for i, yi := range y {
			ind, val := x.Row(i)
			eta := row[len(row)-1]
			for j, c := range ind {
				eta += val[j] * row[c]
			}
			logs[k] += d.Lik.LogProb(yi, eta)
		}
	}
	return floats.LogSumExp(logs) - math.Log(draws)
}
