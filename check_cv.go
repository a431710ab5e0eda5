package pgsvi

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// CrossValidation is the result of CrossValidate. It prints as its Scores.
type CrossValidation struct {
	// Fold is the fold of each row, from 0 on.
	Fold []int
	// Prediction predicts each row from the fit to the other folds, in the order of the rows.
	Prediction *Prediction
	// Scores are those of Prediction over all rows together.
	Scores *Scores
}

// String returns the number of folds and the table of the scores.
func (c *CrossValidation) String() string {
	folds := 0
	for _, f := range c.Fold {
		folds = max(folds, f+1)
	}
	return fmt.Sprintf("%d-fold cross-validation, %v", folds, c.Scores)
}

// CrossValidate predicts each row from a fit to other rows (k-fold cross-validation), for any
// model: the rows with responses y are dealt to folds at random, and for each fold
//
//	fit(ctx, train, test)
//
// fits a model to the rows of train and returns its prediction of the rows of test, in their
// order. Both are indices in increasing order, to be read only; SelectRows takes rows of a matrix.
// With two different responses, such as labels, each fold has its share of both (stratified).
//
// Zero folds mean 10, or as many as there are rows. Folds are dealt by env.Rng; a nil Env has a
// fixed seed and one worker. At most env.Workers fits run at a time, each on as many goroutines as
// it likes. The same seed gives the same bits for any number of workers if fit does, which is
// called concurrently. GLM.LOO and GP.LOO are faster, and need no refits.
//
// The error is that of fit, with the number of the fold, of the least fold that failed, or wraps
// the cause of ctx; ErrEmpty if there are no rows; ErrNotFinite if a response is not finite;
// ErrParam if there are less than two folds or more than rows, if fit is nil or returns nil, or
// predictions of different kinds of responses; and ErrShape if a prediction has not a row for each
// of test. If rows could not be predicted, there is a result of the others and the error of
// Prediction.Scores.
func CrossValidate(ctx context.Context, env *Env, y []float64, folds int,
	fit func(ctx context.Context, train, test []int) (*Prediction, error)) (*CrossValidation, error) {
	const normal = 10
	n := len(y)
	if folds == 0 {
		folds = min(normal, n)
	}
	switch i := slices.IndexFunc(y, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }); {
	case n == 0:
		return nil, fmt.Errorf("pgsvi: cross-validation of no rows: %w", ErrEmpty)
	case i >= 0:
		return nil, fmt.Errorf("pgsvi: row %d: y = %v: %w", i, y[i], ErrNotFinite)
	case folds < 2 || folds > n:
		return nil, fmt.Errorf("pgsvi: %d folds of %d rows, want from 2 to as many as rows: %w", folds, n, ErrParam)
	case fit == nil:
		return nil, fmt.Errorf("pgsvi: cross-validation without a function that fits: %w", ErrParam)
	}
	c := &CrossValidation{Fold: env.deal(y, folds)}
	tests := make([][]int, folds)
	for i, f := range c.Fold {
		tests[f] = append(tests[f], i)
	}
	parts := make([]*Prediction, folds)
	err := env.Each(ctx, folds, func(_, f int) (err error) {
		train := make([]int, 0, n-len(tests[f]))
		for i, of := range c.Fold {
			if of != f {
				train = append(train, i)
			}
		}
		if parts[f], err = fit(ctx, train, slices.Clone(tests[f])); err == nil {
			err = checkFold(parts[f], len(tests[f]))
		}
		if err != nil {
			return fmt.Errorf("pgsvi: fold %d: %w", f, bare{err})
		}
		return nil
	})
	if cause := context.Cause(ctx); cause != nil && err != nil {
		return nil, fmt.Errorf("pgsvi: canceled while folds were fitted: %w", cause)
	}
	if err != nil {
		return nil, err
	}
	if c.Prediction, err = pool(parts, tests, n); err != nil {
		return nil, err
	}
	c.Scores, err = c.Prediction.Scores(y)
	return c, err
}

// deal returns the fold of each row. The rows are shuffled and dealt in turn, those of one of two
// responses after those of the other.
func (e *Env) deal(y []float64, folds int) []int {
	order := e.rng().Perm(len(y))
	other := slices.IndexFunc(y, func(v float64) bool { return v != y[0] })
	if other >= 0 && !slices.ContainsFunc(y, func(v float64) bool { return v != y[0] && v != y[other] }) {
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(y[a], y[b]) })
	}
	fold := make([]int, len(y))
	for k, i := range order {
		fold[i] = k % folds
	}
	return fold
}

// checkFold returns an error unless p predicts so many rows.
func checkFold(p *Prediction, rows int) error {
	switch {
	case p == nil:
		return fmt.Errorf("a nil Prediction: %w", ErrParam)
	case p.err != nil:
		return p.err
	case p.Len() != rows:
		return fmt.Errorf("a prediction of %d rows for the %d of test: %w", p.Len(), rows, ErrShape)
	}
	return nil
}

// pool returns the predictions of the rows of all folds, in order.
func pool(parts []*Prediction, tests [][]int, n int) (*Prediction, error) {
	p := &Prediction{lik: parts[0].lik}
	width := latentsOf(p.lik)
	p.m, p.v = latentSlices(n * width)
	p.each = make([]Likelihood, n)
	same := true
	for f, part := range parts {
		if a, b := factsOf(part.lik).Support, factsOf(p.lik).Support; a != b {
			return nil, fmt.Errorf("pgsvi: fold %d predicts responses of %v, fold 0 of %v: %w", f, a, b, ErrParam)
		}
		if a, b := latentsOf(part.lik), width; a != b {
			return nil, fmt.Errorf("pgsvi: fold %d predicts %d classes, fold 0 %d; set Softmax.Classes: %w", f, a, b, ErrParam)
		}
		same = same && part.each == nil && reflect.DeepEqual(part.lik, p.lik)
		for k, i := range tests[f] {
			p.each[i] = part.likOf(k)
			copy(p.m[i*width:(i+1)*width], part.m[k*width:])
			copy(p.v[i*width:(i+1)*width], part.v[k*width:])
		}
	}
	if same {
		p.each = nil
	}
	return p, nil
}

// SelectRows returns copies of the rows of x at index, in that order, and of these elements of y: a
// *Sparse of a *Sparse, and otherwise a *mat.Dense. A nil y gives nil. No index gives a *Sparse
// without rows. It panics if an index is out of range.
func SelectRows(x mat.Matrix, y []float64, index []int) (mat.Matrix, []float64) {
	_, cols := x.Dims()
	var ys []float64
	if y != nil {
		ys = make([]float64, len(index))
		for k, i := range index {
			ys[k] = y[i]
		}
	}
	if s, ok := x.(*Sparse); ok {
		part := newDesign(s, false).Sub(index).Sparse
		return &Sparse{*part}, ys
	}
	if len(index) == 0 {
		return NewSparse(cols), ys
	}
	dst := mat.NewDense(len(index), cols, nil)
	for k, i := range index {
		copyRows(dst.RawRowView(k), cols, x, i, i+1)
	}
	return dst, ys
}
