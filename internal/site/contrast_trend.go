package site

import "github.com/pgsvi/pgsvi/internal/save"

// trend is what the last gains of a run say of those to come. Where it creeps, a promise of the
// next step is far less than what is left.
type trend struct{ past [2*trendSteps + 1]float64 }

const (
	trendSteps = 4
	trendQuick = 0.125 // of the gains before
)

// left returns how many nats are left after a state of that ELBO, as a geometric series of the
// gains of so many states after so many says: 0 where there are not enough of them, or gains become
// less so quickly that a promise says more. A gain that has not halved is taken to come once more.
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

func (t *trend) state(c *save.State) {
	for i := range t.past {
		c.Float(&t.past[i])
	}
}
