package groups

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
)

// randomGroups draws a mixed model with extreme units, few rows, empty levels, equal responses or
// separated classes.
func randomGroups(seed uint64, likelihoods []Likelihood) (name string, g *GLM, x *Sparse, err error) {
	rng := rand.New(rand.NewPCG(seed, 3))
	lik := likelihoods[rng.IntN(len(likelihoods))]
	n := 1 + rng.IntN(1+rng.IntN(200))
	factors, common := 1+rng.IntN(3), rng.IntN(3)
	unit := math.Pow(10, float64(rng.IntN(9)-4)*float64(rng.IntN(2)))
	opt := &GLMOptions{Intercept: rng.IntN(3) > 0, Autoscale: rng.IntN(2) == 0}
	first := common
	for range factors {
		q := 1 + rng.IntN(3)
		r := Group{First: first, Levels: 1 + rng.IntN(20), NoPrior: rng.IntN(3) == 0,
			Independent: rng.IntN(3) == 0}
		for j := range q {
			r.Effects = append(r.Effects, fmt.Sprint("e", j))
		}
		if rng.IntN(5) == 0 {
			r.Fixed = true
			for range q {
				r.SD = append(r.SD, float64(rng.IntN(3)))
			}
		}
		first += r.Levels * q
		opt.Groups = append(opt.Groups, r)
	}
	x = NewSparse(first)
	equal := rng.IntN(6) == 0
	y := make([]float64, n)
	for i := range n {
		var ind []int
		var val []float64
		for j := range common {
			ind, val = append(ind, j), append(val, unit*rng.NormFloat64())
		}
		for _, r := range opt.Groups {
			if rng.IntN(15) == 0 {
				continue
			}
			level := rng.IntN(r.Levels)
			for j := range r.Effects {
				z := 1.0
				if j > 0 {
					z = unit * rng.NormFloat64()
				}
				ind, val = append(ind, r.First+level*len(r.Effects)+j), append(val, z)
			}
		}
		x.Append(ind, val)
		eta := float64(rng.IntN(4)) * rng.NormFloat64()
		if y[i] = mixedResponse(lik, eta, rng); equal {
			y[i] = y[0]
		}
	}
	if kit.FactsOf(lik).Support == RealLine {
		for i := range y {
			y[i] *= unit
		}
	}
	name = fmt.Sprintf("seed %d: %T, %d rows, unit %g", seed, lik, n, unit)
	g, err = NewGLM(x, y, lik, opt)
	return name, g, x, err
}

// TestGroupsRandom fits random mixed models. Every number of a result must be finite, and almost all
// fits must converge.
func TestGroupsRandom(t *testing.T) {
	seeds := 300
	if testing.Short() {
		seeds = 60
	}
	fitRandomGroups(t, seeds, mixedLikelihoods())
}

// TestClassGroupsRandom fits random mixed models of two to four classes.
func TestClassGroupsRandom(t *testing.T) {
	seeds := 100
	if testing.Short() {
		seeds = 20
	}
	fitRandomGroups(t, seeds, []Likelihood{Softmax{Classes: 2}, Softmax{Classes: 3},
		Softmax{Classes: 4}})
}

// fitRandomGroups fits random mixed models and checks their results.
func fitRandomGroups(t *testing.T, seeds int, likelihoods []Likelihood) {
	t.Helper()
	unfinished := 0
	for seed := range seeds {
		name, g, x, err := randomGroups(uint64(seed), likelihoods)
		if err != nil {
			if !errors.Is(err, ErrParam) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		p, res, err := g.Fit(context.Background(), &Solver{MaxPasses: 200})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if res.Status != Converged {
			unfinished++
			t.Logf("%s: %v, gap %.1e of ELBO %v", name, res.Status, res.Gap, res.ELBO)
		}
		numbers := append(append(p.Mean(nil), p.SD(nil)...), p.PriorSD(nil)...)
		at := p.At(x)
		if s, ok := at.Likelihood().(Softmax); ok && s.Classes > 1 {
			if n, _ := x.Dims(); n > 0 {
				numbers = append(numbers, p.At(x).Probs().RawMatrix().Data...)
			}
		} else {
			m, v := p.Latent(nil, nil, x)
			numbers = append(append(numbers, m...), v...)
		}
		for _, s := range p.Groups() {
			for _, e := range s.Effects {
				numbers = append(numbers, e.SD, e.Lo, e.Hi)
			}
		}
		for j, z := range append(numbers, res.ELBO) {
			if math.IsNaN(z) || math.IsInf(z, 0) {
				t.Errorf("%s: number %d of the result is %v", name, j, z)
				break
			}
		}
		_ = p.Summary().String()
	}
	if unfinished > seeds/20 {
		t.Errorf("%d of %d fits do not converge", unfinished, seeds)
	}
}
