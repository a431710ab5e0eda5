package pgsvi

import (
	"context"
	"fmt"
	"iter"
	"math"
	"testing"
)

// mixedRowsOf yields the rows of c with weights and offsets that may be nil.
func (c *mixedCase) all(weights, offset []float64) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		i := -1
		for row, err := range Rows(c.x, c.y) {
			if i++; weights != nil {
				row.Weight, row.Offset = weights[i], offset[i]
			}
			if !yield(row, err) {
				return
			}
		}
	}
}

// free returns c with groups whose covariances are learned.
func (c *mixedCase) free() *mixedCase {
	for i := range c.groups {
		r := &c.groups[i]
		r.SD, r.Corr, r.Fixed, r.NoPrior = nil, nil, false, false
	}
	return c
}

func TestGLMRowsGroups(t *testing.T) {
	for name, o := range map[string]mixedOptions{
		"intercepts": {rows: 600, common: 2, levels: []int{60}, sd: [][]float64{{0.9}}},
		"slopes":     {rows: 900, common: 3, levels: []int{60}, sd: [][]float64{{0.7, 0.4}}, rho: -0.5},
	} {
		for _, lik := range mixedLikelihoods() {
			for _, plain := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, %T, %t", name, lik, plain), func(t *testing.T) {
					c := newMixedCase(t, lik, o, 3).free()
					compareMemory(t, c, lik, plain)
				})
			}
		}
	}
}

// compareMemory compares a fit to rows that are not kept with a fit to the same rows in memory.
func compareMemory(t *testing.T, c *mixedCase, lik Likelihood, plain bool) {
	t.Helper()
	var weights, offset []float64
	if !plain {
		for i := range c.y {
			weights, offset = append(weights, float64(1+i%3)), append(offset, 0.1*float64(i%5))
		}
	}
	opt := GLMOptions{Intercept: true, PriorSD: 2, Groups: c.groups}
	_, cols := c.x.Dims()
	p, res := fitRows(t, c.all(weights, offset), cols, lik, &opt, &Solver{Goal: 1e-10})
	opt.Weights, opt.Offset = weights, offset
	g, err := NewGLM(c.x, c.y, lik, &opt)
	if err != nil {
		t.Fatal(err)
	}
	want, in, err := g.Fit(context.Background(), &Solver{Goal: 1e-11})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v passes, in memory %v; status %v, gap %.1e; %v", res.Passes, in.Passes, res.Status, res.Gap, math.Abs(res.ELBO-in.ELBO))
	if off := math.Abs(res.ELBO - in.ELBO); !(off <= 1e-8*math.Abs(in.ELBO)) {
		t.Errorf("ELBO %.10f, in memory %.10f", res.ELBO, in.ELBO)
	}
	mean, sd, wantSD := p.Mean(nil), p.SD(nil), want.SD(nil)
	var off, wide, l float64
	for j, m := range want.Mean(nil) {
		off, wide = max(off, math.Abs(m-mean[j])), max(wide, math.Abs(sd[j]-wantSD[j]))
	}
	for i, e := range want.Groups()[0].Effects {
		own := p.Groups()[0].Effects[i]
		l = max(l, math.Abs(e.SD-own.SD), math.Abs(e.Lo-own.Lo), math.Abs(e.Hi-own.Hi))
	}
	if !(off <= 1e-6 && wide <= 1e-6 && l <= 1e-5) {
		t.Errorf("means differ by %.1e, standard deviations by %.1e, Σ by %.1e", off, wide, l)
	}
}
