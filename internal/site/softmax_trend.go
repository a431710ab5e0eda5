package site

import "github.com/pgsvi/pgsvi/internal/save"

// trend estimates the gap of a softmax model from its last gains. If steps become slow, the
// predicted gain of the next step is far below the gap. Evaluate of SoftmaxAlgebra and SoftmaxGP
// uses the larger estimate.
type trend struct{ past [2*trendSteps + 1]float64 }

const (
	trendSteps = 4
	trendQuick = 0.125 // relative to the gains before
)

// left records the ELBO of a new state and estimates its gap, in nats. It treats the gains of the
// last trendSteps states and of the trendSteps states before as a geometric series. It returns 0
// if there are not enough states, or if gains shrink so quickly that the predicted gain is a better
// estimate. If the gains did not halve, it expects the last gains once more.
func (t *trend) left(elbo float64) float64 {
	p := &t.past
	if elbo != p[2*trendSteps] {
		copy(p[:], p[1:])
		p[2*trendSteps] = elbo
	}
	before, now := p[trendSteps]-p[0], p[2*trendSteps]-p[trendSteps]
	switch {
	case p[0] == 0 || !(now > trendQuick*before):
		return 0
	case !(now < before/2):
		return now
	}
	return now * now / (before - now)
}

// state writes or reads t.
func (t *trend) state(c *save.Coder) {
	for i := range t.past {
		c.Float(&t.past[i])
	}
}
