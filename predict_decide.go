package pgsvi

import (
	"fmt"
	"math"
	"runtime"

	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/mat"
)

// Decide returns, for each row, the response whose expected cost is least: of the labels −1 and +1,
// or of the classes 0, 1, … of Softmax and other counts with a largest response. With P = Probs it
// is
//
//	argmin_d Σ_y P(y) cost(y, d),
//
// the first of those that are equal. Element (y, d) of cost is what it costs to decide for d where
// the response is y; rows and columns are in the order of the columns of Probs. Costs may be of any
// sign, so that gains are possible, and rows may have a cost of being right. Nil is the cost of 1 of
// every mistake: the likeliest response.
//
// The decision for a row without a prediction is NaN. The error wraps ErrParam if the Likelihood has
// no finite set of responses, ErrShape if cost has another size, ErrNotFinite if a cost is not
// finite, and otherwise is as for Err.
func (p *Prediction) Decide(cost mat.Matrix) ([]float64, error) {
	first, step, n := decisions(p.lik)
	if n == 0 {
		return nil, fmt.Errorf("pgsvi: Decide needs a finite set of responses, which %s does not have: %w",
			typeName(p.lik), ErrParam)
	}
	if cost != nil {
		if rows, cols := cost.Dims(); rows != n || cols != n {
			return nil, fmt.Errorf("pgsvi: costs of %d×%d for %d responses, want %d×%d: %w", rows, cols, n, n, n, ErrShape)
		}
		for y := range n {
			for d := range n {
				if c := cost.At(y, d); math.IsNaN(c) || math.IsInf(c, 0) {
					return nil, fmt.Errorf("pgsvi: the cost of deciding for response %d where it is %d is %v: %w", d, y, c, ErrNotFinite)
				}
			}
		}
	}
	decided := make([]float64, p.Len())
	if len(decided) == 0 {
		return decided, p.Err()
	}
	probs := p.Probs()
	parallel.For(len(decided), predictBlock, runtime.GOMAXPROCS(0), func(_, lo, hi int) {
		for i := lo; i < hi; i++ {
			decided[i] = first + step*float64(decide(probs.RawRowView(i), cost))
		}
	})
	for i := range decided {
		if math.IsNaN(probs.At(i, 0)) {
			decided[i] = math.NaN()
		}
	}
	return decided, p.Err()
}

// decisions returns the responses first + step·i of a likelihood, i < n; n is 0 where they are not
// finitely many.
func decisions(lik Likelihood) (first, step float64, n int) {
	switch f := factsOf(lik); {
	case f.Support == SignLabels:
		return -1, 2, 2
	case f.Support == Counts && f.Most > 0:
		return 0, 1, int(f.Most) + 1
	}
	return 0, 0, 0
}

// decide returns the response of least expected cost.
func decide(p []float64, cost mat.Matrix) (best int) {
	least := math.Inf(1)
	for d := range p {
		c := -p[d]
		if cost != nil {
			c = 0
			for y, q := range p {
				c += q * cost.At(y, d)
			}
		}
		if c < least {
			best, least = d, c
		}
	}
	return best
}
