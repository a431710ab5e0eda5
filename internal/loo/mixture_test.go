package loo

import (
	"math"
	"testing"
)

// TestMix compares Mix with the densities of three models of the same two responses: exact
// predictions of one from the other, under posterior probabilities of the models.
func TestMix(t *testing.T) {
	prior, corr := []float64{0.2, 0.5, 0.3}, []float64{-0.7, 0.1, 0.9}
	at := []float64{3, 1.5} // far apart, so the models have other probabilities without one of them
	normal := func(y, m, v float64) float64 { return noise(v).LogProb(y, m) }
	a := 1 + float64(s2)
	var post []float64
	var parts []*Result
	var total, marginal, square float64
	var one [2]float64 // density of a response under all models
	for k, c := range corr {
		p := newResult(2, 2)
		for i := range 2 {
			m, v := c/a*at[1-i], 1-c*c/a
			p.M[i], p.V[i] = m, v
			p.Pointwise[i] = normal(at[i], m, v+float64(s2))
			p.Leverage[i], p.Influence[i], p.PointErr[i] = float64(k), 0.1, 0.01
			one[i] += prior[k] * math.Exp(normal(at[i], 0, a))
		}
		w := prior[k] * math.Exp(p.Pointwise[0]+normal(at[1], 0, a))
		post, parts = append(post, w), append(parts, p)
		total += w
	}
	for k := range post {
		post[k] /= total
	}
	r, without := Mix(post, parts, nil)
	for i := range 2 {
		if want := math.Log(total / one[1-i]); math.Abs(r.Pointwise[i]-want) > 1e-12 {
			t.Errorf("response %d has log density %v, want %v", i, r.Pointwise[i], want)
		}
		marginal, square = 0, 0
		for k, p := range parts {
			// One response has the same density under all models.
			if got := without[i*3+k]; math.Abs(got-prior[k]) > 1e-12 {
				t.Errorf("without response %d, model %d has probability %v, want %v", i, k, got, prior[k])
			}
			marginal += prior[k] * p.M[i]
			square += prior[k] * (p.V[i] + p.M[i]*p.M[i])
		}
		if math.Abs(r.M[i]-marginal) > 1e-12 || math.Abs(r.V[i]-square+marginal*marginal) > 1e-12 {
			t.Errorf("cavity %d is N(%v, %v)", i, r.M[i], r.V[i])
		}
		if math.Abs(r.Leverage[i]-(post[1]+2*post[2])) > 1e-12 || math.Abs(r.PointErr[i]-0.01) > 1e-12 ||
			!(r.Influence[i] > 0.1) {
			t.Errorf("leverage %v, error %v, influence %v", r.Leverage[i], r.PointErr[i], r.Influence[i])
		}
	}
	parts[1].PointErr[0], parts[1].Unresolved = math.Inf(1), []int{0}
	r, without = Mix(post, parts, []float64{1, 0.5})
	if len(r.Unresolved) != 1 || r.Pointwise[0] != 0 || without[1] != post[1] ||
		math.Abs(r.ELPD-0.5*r.Pointwise[1]) > 1e-12 {
		t.Errorf("with an unresolved observation: %+v", r)
	}
}
