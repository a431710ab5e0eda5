// The posterior of the probability of heads, under a Beta q: a family that the
// library does not have, in the eight methods of a Family, proved by CheckFamily.
package main

import (
	"context"
	"fmt"
	"log"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/mathext"
	"gonum.org/v1/gonum/stat/distuv"
)

func main() {
	if err := pgsvi.CheckFamily(beta{}, nil, []float64{2, 2}, []float64{5, 11}); err != nil {
		log.Fatal(err)
	}
	prior, err := pgsvi.NewExp(beta{}, []float64{2, 2})
	if err != nil {
		log.Fatal(err)
	}
	tosses := []float64{1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0}
	ll := pgsvi.LogLik{N: len(tosses), Dim: 1, LogProb: func(n int, z []float64) float64 {
		return math.Log(1 - tosses[n] + (2*tosses[n]-1)*z[0])
	}}
	o := pgsvi.Objective[*pgsvi.Exp]{F: pgsvi.Expect(ll, nil), H: pgsvi.KLTo(prior), Init: prior}
	q, res, err := o.Fit(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	eta := q.Natural(nil)
	fmt.Printf("%v: Beta(%.2f, %.2f), exactly Beta(5, 11); ELBO %.3f ± %.3f nats\n", res.Status, eta[0], eta[1], res.ELBO, res.ELBOErr)
}

// beta is the Beta(a, b) distribution in natural parameters η = (a, b), with the
// sufficient statistics (log z, log(1 − z)) and h(z) = 1/(z(1 − z)).
type beta struct{}

func (beta) Dim() int { return 1 }

func (beta) NumParams() int { return 2 }

func (beta) LogPartition(eta []float64) float64 {
	if !(eta[0] > 0 && eta[1] > 0) {
		return math.Inf(1)
	}
	return mathext.Lbeta(eta[0], eta[1])
}

func (beta) Mean(dst, eta []float64) {
	both := mathext.Digamma(eta[0] + eta[1])
	dst[0], dst[1] = mathext.Digamma(eta[0])-both, mathext.Digamma(eta[1])-both
}

func (beta) Fisher(dst *mat.SymDense, eta []float64) {
	trigamma := func(x float64) float64 { return mathext.Zeta(2, x) }
	dst.SetSym(0, 0, trigamma(eta[0])-trigamma(eta[0]+eta[1]))
	dst.SetSym(1, 1, trigamma(eta[1])-trigamma(eta[0]+eta[1]))
	dst.SetSym(0, 1, -trigamma(eta[0]+eta[1]))
}

func (beta) Stat(dst, z []float64) { dst[0], dst[1] = math.Log(z[0]), math.Log1p(-z[0]) }

func (beta) LogBase(z []float64) float64 {
	if !(z[0] > 0 && z[0] < 1) {
		return math.Inf(-1)
	}
	return -math.Log(z[0]) - math.Log1p(-z[0])
}

func (b beta) Rand(z, t, eta []float64, rng *rand.Rand) {
	z[0] = distuv.Beta{Alpha: eta[0], Beta: eta[1], Src: rng}.Rand()
	b.Stat(t, z)
}
