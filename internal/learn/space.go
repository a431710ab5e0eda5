package learn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Normal is a normal prior of a coordinate θ. For a list of coordinates it is θ_d = Mean + Shared·u
// + SD·e_d with u, e_d ~ N(0, 1), where all elements share u. A zero SD means no prior.
type Normal struct{ Mean, SD, Shared float64 }

// Coord is a hyperparameter in its coordinate θ.
type Coord struct {
	Param      int     // its place among all parameters, learned or not
	Group      string  // name of the list that Prior.Shared refers to
	Likelihood bool    // a parameter of the likelihood, not of the prior of its latent values
	Start      float64 // where a search begins
	Lo, Hi     float64
	Prior      Normal
	Edge       bool    // its bounds are ordinary values of the parameter
	Screened   bool    // a length: shorter ones are tried as starts
	Noisier    float64 // distance from Start to noise as large as the variation of the responses; 0 for other parameters
}

// Space is the space of the hyperparameters that are learned, from NewSpace. A θ has one
// number for each of its coordinates.
type Space struct {
	Coords []Coord
	// At returns all parameters at θ, learned or not, except for the parameters of the likelihood,
	// and the terms t under the likelihood at θ. It fails if θ is out of range.
	At func(t *term.Terms, theta []float64) (prior []float64, under *term.Terms, err error)
	// Ruled gives the terms of one evaluation their Rule and returns them; see term.Terms.Sure.
	// Nil means no rule.
	Ruled func(t *term.Terms) *term.Terms
	// Gaussian is true for Gaussian noise, for which one step from any q is exact.
	Gaussian bool
	// Noise is the coordinate of the log variance of Gaussian noise, or −1 if there is none or it
	// is fixed. Scales lists the log standard deviations whose squares together scale the prior
	// covariance. It is nil if there are none or some are fixed.
	Noise  int
	Scales []int

	prec *mat.SymDense // Λ, the precision of the priors
	mean []float64     // their mean μ
}

// NewSpace returns the space of coords, without At, Gaussian noise or Scales.
func NewSpace(coords []Coord) Space {
	s := Space{Coords: coords, Noise: -1}
	s.precision()
	return s
}

// precision computes Λ. Its block for a list with SD σ_d and Shared τ is the inverse of diag(σ²) +
// τ²11ᵀ.
func (s *Space) precision() {
	n := len(s.Coords)
	s.prec, s.mean = mat.NewSymDense(n, nil), make([]float64, n)
	w := make([]float64, n)
	shared := map[string][]int{}
	for i := range s.Coords {
		c := &s.Coords[i]
		p := c.Prior
		if !(p.SD > 0) {
			continue
		}
		s.mean[i], w[i] = p.Mean, 1/(p.SD*p.SD)
		s.prec.SetSym(i, i, w[i])
		if p.Shared > 0 {
			key := fmt.Sprint(c.Group, p.Shared)
			shared[key] = append(shared[key], i)
		}
	}
	for _, list := range shared {
		tau2 := s.Coords[list[0]].Prior.Shared
		tau2 *= tau2
		var sum float64
		for _, i := range list {
			sum += w[i]
		}
		for a, i := range list {
			for _, j := range list[:a+1] {
				s.prec.SetSym(i, j, s.prec.At(i, j)-tau2/(1+tau2*sum)*w[i]*w[j])
			}
		}
	}
}

// Penalty returns ½(θ − μ)ᵀΛ(θ − μ) and adds its gradient to g.
func (s *Space) Penalty(theta, g []float64) float64 {
	d, l := mat.NewVecDense(len(theta), nil), mat.NewVecDense(len(theta), nil)
	for i, t := range theta {
		d.SetVec(i, t-s.mean[i])
	}
	l.MulVec(s.prec, d)
	for i := range g {
		g[i] += l.AtVec(i)
	}
	return 0.5 * mat.Dot(d, l)
}

// ScreenShorter holds the factors by which starting lengths are shorter than the median distance.
// In few columns, a search that starts at the median distance may start on a plateau if the
// structure of the data is far finer.
var ScreenShorter = [...]float64{5, 25}

// Starts returns the values of θ that are tried before the search begins: with the lengths at their
// start, and with the shorter lengths of ScreenShorter.
func (s *Space) Starts() (all [][]float64) {
	first := make([]float64, len(s.Coords))
	for i := range s.Coords {
		first[i] = s.Coords[i].Start
	}
	all = append(all, first)
	if s.screened() == 0 {
		return all
	}
	for _, shorter := range ScreenShorter {
		theta := slices.Clone(first)
		for i := range s.Coords {
			if c := &s.Coords[i]; c.Screened {
				theta[i] = max(c.Lo, theta[i]-math.Log(shorter))
			}
		}
		all = append(all, theta)
	}
	return all
}

// screened returns the number of coordinates with several starts.
func (s *Space) screened() (n int) {
	for i := range s.Coords {
		if s.Coords[i].Screened {
			n++
		}
	}
	return n
}

// noisyStart returns the first start with noise as large as the variation of the responses. It is
// tried if shorter length scales look better, because they can imitate noise. It is nil if no
// length scales are screened or no noise is learned.
func (s *Space) noisyStart() []float64 {
	first := s.Starts()[0]
	noisy := slices.Clone(first)
	for i := range s.Coords {
		c := &s.Coords[i]
		noisy[i] = min(c.Hi, noisy[i]+c.Noisier)
	}
	if s.screened() == 0 || slices.Equal(noisy, first) {
		return nil
	}
	return noisy
}

// central returns the means of the priors, and the start of a coordinate without a prior.
func (s *Space) central() []float64 {
	theta := make([]float64, len(s.Coords))
	for i := range s.Coords {
		c := &s.Coords[i]
		if theta[i] = c.Start; c.Prior.SD > 0 {
			theta[i] = min(max(c.Prior.Mean, c.Lo), c.Hi)
		}
	}
	return theta
}

// draw returns a start drawn from the priors; a coordinate without one is drawn from N(start, 1).
func (s *Space) draw(start []float64, rng *rand.Rand) []float64 {
	theta := make([]float64, len(start))
	shared := map[string]float64{}
	for i := range s.Coords {
		c := &s.Coords[i]
		p := c.Prior
		if p.SD == 0 {
			p = Normal{Mean: start[i], SD: 1}
		}
		u, ok := shared[c.Group]
		if !ok {
			u = rng.NormFloat64()
			shared[c.Group] = u
		}
		theta[i] = min(max(p.Mean+p.Shared*u+p.SD*rng.NormFloat64(), c.Lo), c.Hi)
	}
	return theta
}

// noisier returns the smallest and the largest rise of the Noise of θ for which some δ, as in
// scaled, brings the Noise and the Scales into their bounds.
func (s *Space) noisier(theta []float64) (lo, hi float64) {
	var least, most float64 // range of the δ of scaled
	if len(s.Scales) > 0 {
		least, most = math.Inf(-1), math.Inf(1)
	}
	for _, i := range s.Scales {
		c := &s.Coords[i]
		least, most = max(least, c.Lo-theta[i]), min(most, c.Hi-theta[i])
	}
	c := &s.Coords[s.Noise]
	return c.Lo - 2*most - theta[s.Noise], c.Hi - 2*least - theta[s.Noise]
}

// scaledSteps exceeds the number of steps of Newton's method or of bisection after which a float64
// no longer changes.
const scaledSteps = 100

// scaled adds δ to the Scales of θ and 2δ to the Noise, with the δ that minimizes
//
//	weights·δ + ½e^(−2δ)·square + ½(θ − μ)ᵀΛ(θ − μ)
//
// within the bounds, and returns the minimum. The function is convex in δ.
func (s *Space) scaled(theta []float64, weights, square float64) float64 {
	if len(s.Scales) == 0 {
		return 0.5*square + s.Penalty(theta, nil)
	}
	d := make([]float64, len(theta))
	d[s.Noise] = 2
	for _, i := range s.Scales {
		d[i] = 1
	}
	lo, hi := math.Inf(-1), math.Inf(1)
	for i, rate := range d {
		if c := &s.Coords[i]; rate > 0 {
			lo, hi = max(lo, (c.Lo-theta[i])/rate), min(hi, (c.Hi-theta[i])/rate)
		}
	}
	grad := make([]float64, len(theta))
	s.Penalty(theta, grad)
	slope, v := floats.Dot(grad, d), mat.NewVecDense(len(d), d)
	curve := mat.Inner(v, s.prec, v)
	delta := max(lo, min(hi, 0))
	for range scaledSteps {
		e := math.Exp(-2*delta) * square
		g, h := weights-e+slope+curve*delta, 2*e+curve
		if g > 0 {
			hi = min(hi, delta)
		} else {
			lo = max(lo, delta)
		}
		next := delta - g/h
		if !(lo <= next && next <= hi) {
			next = 0.5 * (lo + hi)
		}
		if delta == next || math.IsInf(next, 0) || math.IsNaN(next) {
			break
		}
		delta = next
	}
	floats.AddScaled(theta, delta, d)
	return weights*delta + 0.5*math.Exp(-2*delta)*square + s.Penalty(theta, nil)
}
