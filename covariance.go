package pgsvi

import (
	"fmt"

	"github.com/pgsvi/pgsvi/internal/gauss"
)

// Covariance is the family of covariance matrices V for the weights of a GLM.
type Covariance int

const (
	// AutoCovariance is FullCovariance if the smaller of rows and weights is at most 4000.
	// Otherwise it is LowRankCovariance for up to 100,000 weights, and DiagonalCovariance for more.
	AutoCovariance Covariance = iota
	// FullCovariance is any V. A pass takes about N·D² + D³ operations if N > D, and N³ otherwise.
	// With sparse rows of k values it takes N·k² + D³.
	//
	// Features may have any units and may be collinear. If the precision of a weight given the
	// others is below 1e−6 of its precision alone, float64 cannot separate the weights, and the fit
	// uses twice as many digits at about ten times the cost. If even that is not accurate enough,
	// or if there are more than 2000 weights and fewer rows than weights, Gap includes the possible
	// effect of rounding.
	FullCovariance
	// LowRankCovariance is V⁻¹ = diag(d) + UUᵀ, where U has Rank columns. A pass takes O(nnz·Rank)
	// operations. The fit uses FullCovariance instead if Rank admits every optimal V, that is, if
	// Rank is at least the number of weights or, for up to 300 weights under a diagonal prior, the
	// number of rows.
	LowRankCovariance
	// DiagonalCovariance is the mean-field approximation. A pass takes O(nnz) operations. Its
	// standard deviations are too small if features are correlated. GLM.Learn therefore uses linear
	// responses for up to 50 weights with values in at least 1% of the rows, such as an intercept
	// next to the effects of many levels (Giordano, Broderick and Jordan 2018, section 3). The full
	// covariance has the same standard deviations and covariances of these weights.
	DiagonalCovariance
)

var covarianceNames = [...]string{"auto", "full", "low-rank", "diagonal"}

// String returns the name in words.
func (c Covariance) String() string {
	if c < 0 || int(c) >= len(covarianceNames) {
		return fmt.Sprintf("Covariance(%d)", int(c))
	}
	return covarianceNames[c]
}

// covarianceOf returns the Covariance of the engine's covariance c.
func covarianceOf(c gauss.Cov) Covariance {
	switch c.(type) {
	case *gauss.Full, *gauss.Dual, *gauss.Contrasts, *gauss.Arrow:
		return FullCovariance
	case gauss.Diagonal:
		return DiagonalCovariance
	default:
		return LowRankCovariance
	}
}
