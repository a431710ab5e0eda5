package pgsvi

import (
	"fmt"

	"github.com/pgsvi/pgsvi/internal/gauss"
)

// Covariance is the family of the covariance V of the weights of a GLM.
type Covariance int

const (
	// AutoCovariance is FullCovariance where the smaller of rows and weights is at
	// most 4000, LowRankCovariance up to 100,000 weights, and DiagonalCovariance beyond.
	AutoCovariance Covariance = iota
	// FullCovariance is any V. A pass costs of the order of N·D² + D³ operations
	// where N > D, and N³ otherwise (with sparse rows of k values, N·k² + D³).
	//
	// Features may be in any units, and collinear: where float64 cannot tell them apart, which is
	// where the precision of a weight given the others is less than 1e−6 of what it is alone, the
	// same is done in twice the digits, at some ten times the cost. Where these do not suffice
	// either, or there are fewer rows than more than 2000 weights, the Gap says what rounding may
	// hide.
	FullCovariance
	// LowRankCovariance is V⁻¹ = diag(d) + UUᵀ with U of Rank columns, in O(nnz·Rank) a pass. Where
	// Rank is that of any V that may be the best, the number of weights or, of up to 300 weights
	// under a diagonal prior, that of the rows, it is a FullCovariance.
	LowRankCovariance
	// DiagonalCovariance is mean field, in O(nnz) a pass. Its standard deviations
	// are too small where features are correlated.
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

// covarianceOf returns the family of c.
func covarianceOf(c gauss.Cov) Covariance {
	switch c.(type) {
	case *gauss.Full, *gauss.Dual:
		return FullCovariance
	case gauss.Diagonal:
		return DiagonalCovariance
	default:
		return LowRankCovariance
	}
}
