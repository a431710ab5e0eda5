package pgsvi

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi/internal/dense"
)

// Point is the point mass at z = λ. With it the iteration is plain
// optimisation over R^d: gradient descent, ISTA, mirror descent.
type Point struct{ z []float64 }

// NewPoint returns the point mass at a copy of z.
func NewPoint(z []float64) *Point { return &Point{append([]float64(nil), z...)} }

// Dim implements Dist.
func (p *Point) Dim() int { return len(p.z) }

// NumParams implements Dist.
func (p *Point) NumParams() int { return len(p.z) }

// Params implements Dist.
func (p *Point) Params(dst []float64) []float64 {
	dst = dense.Dest(dst, len(p.z))
	copy(dst, p.z)
	return dst
}

// SetParams implements Dist.
func (p *Point) SetParams(z []float64) error {
	if len(z) != len(p.z) {
		panic("pgsvi: λ has the wrong length")
	}
	if i, ok := dense.AllFinite(z); !ok {
		return fmt.Errorf("pgsvi: %w: element %d is %v", ErrNotFinite, i, z[i])
	}
	copy(p.z, z)
	return nil
}

// LogProb returns 0 at the point and −Inf elsewhere.
func (p *Point) LogProb(z []float64) float64 {
	for i, x := range p.z {
		if z[i] != x {
			return math.Inf(-1)
		}
	}
	return 0
}

// Score returns zeros: a point mass has no density to differentiate.
func (p *Point) Score(dst, _ []float64) []float64 {
	dst = dense.Dest(dst, len(p.z))
	clear(dst)
	return dst
}

// Rand returns the point.
func (p *Point) Rand(dst []float64, _ *rand.Rand) []float64 { return p.Params(dst) }

// Clone implements Dist.
func (p *Point) Clone() Dist { return NewPoint(p.z) }

// Chart implements Charted: the point itself.
func (p *Point) Chart(dst []float64) []float64 { return p.Params(dst) }

// SetChart implements Charted.
func (p *Point) SetChart(x []float64) error { return p.SetParams(x) }

// ChartGrad implements Charted.
func (p *Point) ChartGrad(dst, g []float64) []float64 {
	dst = dense.Dest(dst, len(p.z))
	copy(dst, g)
	return dst
}
