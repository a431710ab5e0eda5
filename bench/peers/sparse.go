package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
)

// Columns, inducing inputs and test rows of the part sparse.
const (
	sparseCols     = 2
	sparseInducing = 200
	sparseTest     = 20000
)

// sparse compares a sparse Gaussian process that learns its hyper-parameters from many rows with
// gradient boosting.
func (o *options) sparse(ctx context.Context) ([]row, error) {
	x, y := labelledField(o.rows + sparseTest)
	s := &split{name: fmt.Sprintf("%d rows of a field in the plane", o.rows),
		train: filepath.Join(o.temp, "sparse.train"), test: filepath.Join(o.temp, "sparse.test"),
		x: x.Slice(0, o.rows, 0, sparseCols), y: y[:o.rows],
		xTest: x.Slice(o.rows, len(y), 0, sparseCols), yTest: y[o.rows:]}
	if err := writeRows(s.train, s.x, s.y); err != nil {
		return nil, err
	}
	if err := writeRows(s.test, s.xTest, s.yTest); err != nil {
		return nil, err
	}
	rows, err := o.script(ctx, s.name, "sparse.py", s.train, s.test, sparseCols, o.repeats)
	if err != nil {
		return nil, err
	}
	ours, err := o.sparseRow(ctx, s)
	if err != nil {
		return nil, err
	}
	rows = append(rows, ours)
	relate(rows, rows[0].label())
	return rows, nil
}

// sparseRow returns a fit that learns scale and length.
func (o *options) sparseRow(ctx context.Context, s *split) (row, error) {
	var learned *pgsvi.Learned
	r, err := o.fit(s, "SparseGP", fmt.Sprintf("%d inducing inputs", sparseInducing),
		fmt.Sprintf("SparseGP.Learn with %d inducing inputs", sparseInducing),
		func() (predictor, *pgsvi.Result, error) {
			g, err := pgsvi.NewSparseGPRows(ctx, pgsvi.Rows(s.x, s.y), sparseCols,
				pgsvi.SquaredExp{},
				pgsvi.BernoulliLogit{}, &pgsvi.SparseGPOptions{Rank: sparseInducing})
			if err != nil {
				return nil, nil, err
			}
			var post *pgsvi.SparseGPPosterior
			_, post, learned, err = g.Learn(ctx, nil, nil)
			return post, nil, err
		})
	if err != nil {
		return r, err
	}
	r.pass, r.negELBO = learned.Passes, learned.Objective+learned.LogPrior
	r.note = fmt.Sprintf("%.3g passes, %d evaluations", r.pass, learned.Evaluations)
	return r, nil
}

// labelledField returns n points of the unit square, with labels whose log odds are a sum of waves
// as of a squared exponential kernel.
func labelledField(n int) (*mat.Dense, []float64) {
	const waves, scale, length = 200, 2, 0.1
	rng := rand.New(rand.NewPCG(3, 5))
	type wave struct{ a, b, shift, size float64 }
	var field [waves]wave
	for i := range field {
		field[i] = wave{rng.NormFloat64() / length, rng.NormFloat64() / length,
			2 * math.Pi * rng.Float64(), scale * math.Sqrt(2.0/waves) * rng.NormFloat64()}
	}
	x, y := mat.NewDense(n, sparseCols, nil), make([]float64, n)
	for i := range n {
		a, b := rng.Float64(), rng.Float64()
		x.SetRow(i, []float64{a, b})
		odds := 0.0
		for _, w := range field {
			odds += w.size * math.Cos(w.a*a+w.b*b+w.shift)
		}
		if y[i] = -1; rng.Float64() < 1/(1+math.Exp(-odds)) {
			y[i] = 1
		}
	}
	return x, y
}
