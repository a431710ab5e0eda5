package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/bench/blas"
	"github.com/pgsvi/pgsvi/data"
	"gonum.org/v1/gonum/mat"
)

// glm compares logistic regression on the data sets of the paper with scikit-learn.
func (o *options) glm(ctx context.Context) ([]row, error) {
	splits, err := o.splits()
	if err != nil {
		return nil, err
	}
	var all []row
	for _, s := range splits {
		rows, err := o.script(ctx, s.name, "glm.py", "rows", s.train, s.test, s.cols(), o.repeats)
		if err != nil {
			return nil, err
		}
		ours, err := o.glmRows(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		rows = append(rows, ours...)
		relate(rows, pointEstimate)
		all = append(all, rows...)
	}
	return all, nil
}

// pointEstimate is the program with which GLM fits are compared.
const pointEstimate = "LogisticRegression, lbfgs"

// The names of a GLM fit without options, also in part advi.
const fullVariant, fullName = "full", "full posterior, nil Solver"

// glmRows returns fits of this library.
func (o *options) glmRows(ctx context.Context, s *split) ([]row, error) {
	rough, end, err := o.posteriorRows(s, "GLM", glmBy(ctx, s, pgsvi.BernoulliLogit{}, nil))
	if err != nil {
		return nil, err
	}
	stream, err := o.streamRow(ctx, s)
	return []row{rough, end, stream}, err
}

// posteriorRows returns the full posterior with a gap of 0.01 nats, and without options.
func (o *options) posteriorRows(s *split, method string, f fitBy) (rough, end row, err error) {
	to := func(goal float64) fit {
		return func() (predictor, *pgsvi.Result, error) { return f(&pgsvi.Solver{Goal: goal}) }
	}
	if end, err = o.fit(s, method, fullVariant, fullName, to(0)); err != nil {
		return rough, end, err
	}
	rough, err = o.fit(s, method, "full, gap 0.01 nats",
		"full posterior, until its gap is 0.01 nats", to(0.01))
	rough.note += fmt.Sprintf(", %.1g nats from the optimum", rough.negELBO-end.negELBO)
	return rough, end, err
}

// glmBy returns a function that fits a GLM to s.
func glmBy(ctx context.Context, s *split, lik pgsvi.Likelihood, opt *pgsvi.GLMOptions) fitBy {
	return func(by *pgsvi.Solver) (predictor, *pgsvi.Result, error) {
		return glmFit(ctx, s, lik, opt, by)
	}
}

// glmFit fits a GLM.
func glmFit(ctx context.Context, s *split, lik pgsvi.Likelihood, opt *pgsvi.GLMOptions,
	by *pgsvi.Solver) (*pgsvi.GLMPosterior, *pgsvi.Result, error) {
	g, err := pgsvi.NewGLM(s.x, s.y, lik, opt)
	if err != nil {
		return nil, nil, err
	}
	return g.Fit(ctx, by)
}

// streamRow returns a fit by one pass.
func (o *options) streamRow(ctx context.Context, s *split) (row, error) {
	return o.fit(s, "GLM", "full, one pass", "full posterior, one streaming pass",
		func() (predictor, *pgsvi.Result, error) {
			g, err := pgsvi.NewGLMStream(s.cols(), pgsvi.BernoulliLogit{}, nil)
			if err != nil {
				return nil, nil, err
			}
			if err := g.AddAll(ctx, pgsvi.Rows(s.x, s.y)); err != nil {
				return nil, nil, err
			}
			p, err := g.Posterior()
			return p, nil, err
		})
}

// readA9a returns a9a as sparse rows.
func (o *options) readA9a() (*split, error) {
	if o.data == "" {
		return nil, errNoFolder
	}
	folder := filepath.Join(o.data, "a9a")
	s := &split{name: "a9a", train: filepath.Join(folder, "a9a.gz"),
		test: filepath.Join(folder, "a9a.t.gz")}
	var err error
	if s.x, s.y, err = readLIBSVM(s.train); err != nil {
		return nil, err
	}
	s.xTest, s.yTest, err = readLIBSVM(s.test)
	return s, err
}

// readLIBSVM reads a file of a9a.
func readLIBSVM(path string) (*pgsvi.Sparse, []float64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	return data.ReadLIBSVM(f, 123)
}

// a9a compares fits of the sparse rows of a9a.
func (o *options) a9a(ctx context.Context) ([]row, error) {
	s, err := o.readA9a()
	if o.leftOut("a9a", err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	rows, err := o.script(ctx, s.name, "glm.py", "libsvm", s.train, s.test, s.cols(), o.repeats)
	if err != nil {
		return nil, err
	}
	ours, err := o.glmRows(ctx, s)
	if err != nil {
		return nil, err
	}
	x := s.x.(*pgsvi.Sparse)
	floor, err := o.floor(s, "one XᵀX of the sparse rows", "sparse", blas.Gram(x))
	if err != nil {
		return nil, err
	}
	rows = append(append(rows, ours...), floor)
	relate(rows, pointEstimate)
	return rows, nil
}

// floor returns the time of a computation that every fit needs.
func (o *options) floor(s *split, name, variant string, f func()) (row, error) {
	r := o.newRow(s.name, "XᵀX", variant)
	r.name = name
	var err error
	r.seconds, err = o.seconds(func() error { f(); return nil })
	return r, err
}

// dense compares a streaming pass over generated rows with point estimates.
func (o *options) dense(ctx context.Context) ([]row, error) {
	const d = 50
	x, y := generate(o.rows, d)
	s := &split{name: fmt.Sprintf("%d dense rows × %d", o.rows, d), x: x, y: y,
		train: filepath.Join(o.temp, "dense.train")}
	if err := writeRows(s.train, s.x, s.y); err != nil {
		return nil, err
	}
	rows, err := o.script(ctx, s.name, "glm.py", "rows", s.train, "", d, o.repeats)
	if err != nil {
		return nil, err
	}
	stream, err := o.streamRow(ctx, s)
	if err != nil {
		return nil, err
	}
	floor, err := o.floor(s, "pgsvi, one XᵀX", "dense", blas.Gram(x))
	if err != nil {
		return nil, err
	}
	rows = append(rows, stream, floor)
	relate(rows, pointEstimate)
	return rows, nil
}

// digits compares full posteriors for all images of 2 and 4, from both halves, with point
// estimates.
func (o *options) digits(ctx context.Context) ([]row, error) {
	halves, err := o.usps(2, 4)
	if o.leftOut("USPS", err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var x mat.Dense
	x.Stack(halves.X, halves.XTest)
	n, d := x.Dims()
	rows, err := o.whole(ctx, fmt.Sprintf("%d images × %d", n, d), &x,
		append(halves.Y, halves.YTest...))
	relate(rows, pointEstimate)
	return rows, err
}

// wide compares full posteriors whose number of weights equals the number of rows with point
// estimates.
func (o *options) wide(ctx context.Context) ([]row, error) {
	const d = 2000
	x, y := generate(d, d)
	rows, err := o.whole(ctx, fmt.Sprintf("%d dense rows × %d", d, d), x, y)
	relate(rows, "LogisticRegression, newton-cholesky")
	return rows, err
}

// small compares full posteriors of 20 to 256 weights with the faster of two point estimates.
func (o *options) small(ctx context.Context) ([]row, error) {
	var all []row
	for _, size := range [][2]int{{5000, 20}, {20000, 100}, {100000, 30}, {2000, 256}} {
		x, y := correlated(size[0], size[1])
		rows, err := inTurn(func() ([]row, error) {
			return o.whole(ctx, fmt.Sprintf("%d × %d", size[0], size[1]), x, y)
		})
		if err != nil {
			return nil, err
		}
		relate(rows, fastest(rows, "LogisticRegression"))
		all = append(all, rows...)
	}
	return all, nil
}

// whole returns full posteriors and point estimates for rows that are all for training.
func (o *options) whole(ctx context.Context, name string, x *mat.Dense, y []float64) ([]row,
	error) {
	s := &split{name: name, x: x, y: y, train: filepath.Join(o.temp, "whole.train")}
	if err := writeRows(s.train, s.x, s.y); err != nil {
		return nil, err
	}
	rows, err := o.script(ctx, s.name, "glm.py", "rows", s.train, "", s.cols(), o.repeats)
	if err != nil {
		return nil, err
	}
	rough, end, err := o.posteriorRows(s, "GLM", glmBy(ctx, s, pgsvi.BernoulliLogit{}, nil))
	return append(rows, rough, end), err
}

// counts compares full posteriors of Poisson regressions with point estimates.
func (o *options) counts(ctx context.Context) ([]row, error) {
	const n, d = 100000, 11
	x, y, exposure := exposed(n, d)
	s := &split{name: fmt.Sprintf("%d counts × %d, with exposure", n, d), x: x, y: y,
		train: filepath.Join(o.temp, "counts.train")}
	var columns mat.Dense
	columns.Augment(x, mat.NewVecDense(n, exposure))
	if err := writeRows(s.train, &columns, y); err != nil {
		return nil, err
	}
	offset := logs(exposure)
	rows, err := inTurn(func() ([]row, error) {
		rows, err := o.script(ctx, s.name, "glm.py", "counts", s.train, "", d, o.repeats)
		if err != nil {
			return nil, err
		}
		rough, end, err := o.posteriorRows(s, "GLM",
			glmBy(ctx, s, pgsvi.Poisson{}, &pgsvi.GLMOptions{Offset: offset}))
		return append(rows, rough, end), err
	})
	relate(rows, "PoissonRegressor, lbfgs")
	return rows, err
}

// logs returns the logarithms of v.
func logs(v []float64) []float64 {
	l := make([]float64, len(v))
	for i, e := range v {
		l[i] = math.Log(e)
	}
	return l
}
