package pgsvi

import (
	"fmt"

	"github.com/pgsvi/pgsvi/internal/gauss"
)

// Covariance is the family of the covariance V of the weights of a GLM.
type Covariance int

const (
	// AutoCovariance is FullCovariance if the smaller of rows and weights is at most 4000,
	// LowRankCovariance up to 100,000 weights, and DiagonalCovariance above.
	AutoCovariance Covariance = iota
	// FullCovariance is any V. A pass costs about N·D² + D³ operations if N > D, and N³
	// otherwise. With sparse rows of k values it costs N·k² + D³.
	//
	// Features may have any units and may be collinear. If the precision of a weight given the
	// others is below 1e−6 of its precision alone, float64 cannot separate them, and the work is
	// done in twice the digits at about ten times the cost. If that is not accurate enough
	// either, or if there are more than 2000 weights and fewer rows than weights, Gap says how
	// much rounding may hide.
	FullCovariance
	// LowRankCovariance is V⁻¹ = diag(d) + UUᵀ with U of Rank columns, in O(nnz·Rank) a pass. If
	// the Rank allows for any optimal V it is computed as a FullCovariance: if it is at least the
	// number of weights or, for up to 300 weights under a diagonal prior, the number of rows.
	LowRankCovariance
	// DiagonalCovariance is the mean-field approximation, in O(nnz) a pass. Its standard
	// deviations are too small if features are correlated.
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
	case *gauss.Full, *gauss.Dual, *gauss.Contrasts:
		return FullCovariance
	case gauss.Diagonal:
		return DiagonalCovariance
	default:
		return LowRankCovariance
	}
}

// MeanUpdate selects one of the two published updates of the mean of a GP or a GLM. With r =
// 1/(1+β), f(m, V) = −Σ_n E_q[log p(y_n|z_n)], a = ∂f/∂m and Γ = diag(2 ∂f/∂v), estimated from
// the batch, both have V₊⁻¹ = K⁻¹ + Γ₊, Γ₊ = rΓ_k + (1−r)Γ.
type MeanUpdate int

const (
	// MainText is m₊ = m − (1−r)V₊(K⁻¹m + a), the exact proximal step in the mean parameters (m,
	// V + mmᵀ). It averages natural parameters (Khan et al., 2016, the update of the main text,
	// with Γ = diag(2 ∂f/∂v)).
	MainText MeanUpdate = iota
	// Appendix is m₊ = m − (1−r)[(1−r)K⁻¹ + rV⁻¹]⁻¹(K⁻¹m + a): the exact proximal
	// step in the coordinates (m, V) (Khan et al., 2016, appendix).
	Appendix
)
