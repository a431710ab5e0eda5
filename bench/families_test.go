package bench

import (
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
)

// BenchmarkFamilies times a step under KL, from natural parameters to natural parameters, and a
// draw with its statistics:
//
//	go test -run '^$' -bench Families ./bench
func BenchmarkFamilies(b *testing.B) {
	alpha := make([]float64, 10000)
	for i := range alpha {
		alpha[i] = 0.1 + float64(i%50)
	}
	scale := mat.NewSymDense(4, nil)
	for i := range 4 {
		scale.SetSym(i, i, 1)
	}
	for _, c := range []struct {
		name string
		make func() (*pgsvi.Exp, error)
	}{
		{"Gamma", func() (*pgsvi.Exp, error) { return pgsvi.NewGamma(3, 2) }},
		{"Dirichlet of 10000", func() (*pgsvi.Exp, error) { return pgsvi.NewDirichlet(alpha) }},
		{"NormalWishart of 4",
			func() (*pgsvi.Exp, error) { return pgsvi.NewNormalWishart(nil, 1, 6, scale) }},
	} {
		prior, err := c.make()
		if err != nil {
			b.Fatal(err)
		}
		b.Run(c.name+"/step", func(b *testing.B) {
			from, q := prior.Clone(), prior.Clone()
			p := &pgsvi.Prox{Grad: make([]float64, q.NumParams()), H: pgsvi.KLTo(prior),
				D: pgsvi.KL(), From: from, Beta: 0.5}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.Solve(q); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(c.name+"/draw", func(b *testing.B) {
			z, t, eta := make([]float64, prior.Dim()), make([]float64, prior.NumParams()),
				prior.Natural(nil)
			rng := rand.New(rand.NewPCG(1, 2))
			b.ReportAllocs()
			for b.Loop() {
				prior.Family().Rand(z, t, eta, rng)
			}
		})
	}
}
