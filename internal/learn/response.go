package learn

import (
	"slices"

	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"gonum.org/v1/gonum/mat"
)

// The variance of a weight in a diagonal q is its variance given all other weights. The standard
// deviation of an intercept next to the effects of thousands of levels is then several times too
// small. The linear response of q is a better covariance: the derivatives of the mean with respect
// to a force on a weight (Giordano, Broderick and Jordan 2018, section 3). They are the
// columns of (Λ + XᵀΓX)⁻¹, so each costs a solve, and only few weights have one.

const (
	mostResponses  = 50   // weights with a linear response
	mostNumbers    = 1e7  // numbers of their responses, one for each weight
	responseRows   = 0.01 // least share of the rows in which their columns are not 0
	responseTol    = 1e-8 // the residual of a solve, relative to the right-hand side
	responseRounds = 500  // steps of a solve
)

// common returns the columns that are not 0 in at least responseRows of the rows, in increasing
// order. If they are more than a fit can afford, it leaves out those with the fewest rows.
func common(x *design.Matrix) (list []int) {
	count := make([]int, x.Cols)
	for i := range x.Rows {
		if x.Sparse == nil {
			for j, v := range x.Dense[i*x.Cols : (i+1)*x.Cols] {
				count[j] += design.B2i(v != 0)
			}
			continue
		}
		ind, val := x.Row(i)
		for k, j := range ind {
			count[j] += design.B2i(val[k] != 0)
		}
	}
	sorted := slices.Sorted(slices.Values(count))
	least := max(1, int(responseRows*float64(x.Rows)))
	if over := x.Cols - min(mostResponses, mostNumbers/x.Cols); over > 0 {
		least = max(least, sorted[over-1]+1) // equal columns are all in or all out
	}
	for j, n := range count {
		if n >= least {
			list = append(list, j)
		}
	}
	return list
}

// Response returns the covariance of the weights in which the common columns have their linear
// responses. Given the weights β of these columns, each other weight keeps its variance in V, and its
// mean moves with β. It returns nil if there are no common columns, or if a solve does not converge.
// The solves run on the given number of goroutines.
func (c *Curved) Response(workers int) *gauss.Spread {
	list := common(c.X)
	k, d := len(list), len(c.Variance)
	if k == 0 {
		return nil
	}
	q, solved := mat.NewDense(k, d, nil), make([]bool, k) // the columns of (Λ + XᵀΓX)⁻¹ as rows
	parallel.For(k, 1, workers, func(_, lo, hi int) {
		for i := lo; i < hi; i++ {
			e := make([]float64, d)
			e[list[i]] = 1
			solved[i] = c.solve(q.RawRowView(i), e, responseTol, responseRounds)
		}
	})
	if slices.Contains(solved, false) {
		return nil
	}
	cov := mat.NewSymDense(k, nil)
	for i := range list {
		for j := range i + 1 {
			cov.SetSym(i, j, 0.5*(q.At(i, list[j])+q.At(j, list[i])))
		}
	}
	var chol mat.Cholesky
	if !chol.Factorize(cov) {
		return nil
	}
	// C = diag(v) + QᵀK⁻¹Q with the covariance K = LLᵀ of β, so A = QᵀL⁻ᵀ, and v = 0 for β.
	var l mat.TriDense
	chol.LTo(&l)
	if err := q.Solve(&l, mat.DenseCopyOf(q)); err != nil {
		return nil
	}
	v := slices.Clone(gauss.Diagonal(c.Variance))
	for _, j := range list {
		v[j] = 0
	}
	s := &gauss.Spread{Cov: v}
	for i := range list {
		s.A = append(s.A, slices.Clone(q.RawRowView(i)))
	}
	return s
}
