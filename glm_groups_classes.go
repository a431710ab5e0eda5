package pgsvi

import (
	"math"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/learn"
	"gonum.org/v1/gonum/mat"
)

// This file gives a Softmax grouping factors. The effects of a level are K sets of Q effects, one
// for each class, with u_gc ~ N(0, Σ) independently for each class. Only differences between
// classes count, for which
//
//	u_ga − u_gb ~ N(0, 2Σ),   Cov(u_ga − u_gb, u_gc − u_gb) = Σ.
//
// One Σ for all classes makes the model the same for every order of the classes, and two classes
// the same as BernoulliLogit with the standard deviations √2 s. Fit learns Σ by a search over
// hyperparameters (internal/learn/effects.go), because the engine of Softmax has no closed form for
// the best Σ of given sites.

// learnsClassGroups reports whether g is a Softmax with covariances of groups to be learned.
func (g *GLM) learnsClassGroups() bool {
	return g.lin.Terms != nil && g.lin.Terms.K > 1 &&
		slices.ContainsFunc(g.opt.Groups, func(r Group) bool { return !r.Fixed })
}

// groupCoords returns the parameters of the learned covariances of a Softmax, and their rules. The
// parameters follow the given number of others.
func (g *GLM) groupCoords(before int) (coords []learnCoord, rules []learn.Effect) {
	if !g.learnsClassGroups() {
		return nil, nil
	}
	for i := range g.opt.Groups {
		r, f := &g.opt.Groups[i], &g.lin.Factors[i]
		if r.Fixed {
			continue
		}
		b := g.lin.Prior.Blocks()[i]
		b.L = slices.Clone(b.L)
		e := learn.Effect{Block: b, Param: before + len(coords), Independent: r.Independent,
			Scale: f.Scale}
		cov, names := b.Covariance(), r.paramNames()
		add := func(name string, value, lo, hi float64) {
			c := learnCoord{Param: Param{Name: name, Value: value, Min: lo, Max: hi}}
			c.Start = c.theta(value)
			c.Prior.Mean = c.Start // only for its default bounds
			coords = append(coords, c)
		}
		unit := slices.Clone(b.L)
		for j := range b.Q {
			s := math.Sqrt(cov[j*(b.Q+1)])
			add("sd["+names[j]+"]", s, 0, math.Inf(1))
			for k := range b.Q {
				unit[j*b.Q+k] /= s
			}
		}
		if !r.Independent {
			partials := e.Partials(unit)
			for j := range b.Q {
				for k := range j {
					pair := names[j]
					if !strings.HasPrefix(pair, names[k]+":") {
						pair += "," + names[k]
					}
					z := partials[0]
					partials = partials[1:]
					add("corr["+pair+"]", max(-mostStart, min(z, mostStart)), -1, 1)
				}
			}
		}
		rules = append(rules, e)
	}
	return coords, rules
}

// mostStart is the largest correlation at which learning starts.
const mostStart = 0.99

// paramNames returns the names of the parameters of r without "sd[": the group, and the group and
// the effect for slopes.
func (r *Group) paramNames() (names []string) {
	for _, e := range r.effectNames() {
		name := r.Name
		if e != interceptName {
			name += ":" + e
		}
		names = append(names, name)
	}
	return names
}

// fixClassGroups makes the learned covariances of a Softmax the fixed covariances of g.
func (g *GLM) fixClassGroups() {
	if !g.learnsClassGroups() {
		return
	}
	g.opt.Groups = cloneGroups(g.opt.Groups)
	for i, b := range g.lin.Prior.Blocks() {
		r := &g.opt.Groups[i]
		if r.Fixed {
			continue
		}
		r.SD, r.Corr = sdAndCorr(&b)
		r.Fixed = true
	}
}

// sdAndCorr returns the standard deviations and the correlations of b.
func sdAndCorr(b *gauss.Block) (sd []float64, corr *mat.SymDense) {
	cov := b.Covariance()
	corr = mat.NewSymDense(b.Q, nil)
	for j := range b.Q {
		sd = append(sd, math.Sqrt(cov[j*(b.Q+1)]))
		for k := range j {
			corr.SetSym(j, k, cov[j*b.Q+k]/(sd[j]*sd[k]))
		}
		corr.SetSym(j, j, 1)
	}
	return sd, corr
}
