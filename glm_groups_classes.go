package pgsvi

import (
	"math"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/learn"
	"github.com/pgsvi/pgsvi/internal/site"
	"gonum.org/v1/gonum/floats"
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
			Scale: f.Scale, Unit: g.effectUnits(i)}
		if r.NoPrior && !r.Independent && b.Q > 1 {
			floats.Scale(bareUnit, e.Unit)
		}
		cov, names := b.Covariance(), r.paramNames()
		add := func(c learnCoord, name string, least, most float64) {
			c.Name = name
			c.Start, c.Lo, c.Hi = c.theta(c.Value), c.theta(least), c.theta(most)
			coords = append(coords, c)
		}
		unit, ts := slices.Clone(b.L), []float64(nil)
		for j := range b.Q {
			s := math.Sqrt(cov[j*(b.Q+1)])
			t := learn.EffectParam(s, e.Unit[j])
			ts = append(ts, t)
			add(boundless(t), "sd["+names[j]+"]", learn.LeastEffect, t+farBound)
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
					y, most := e.PartialParam(max(-mostStart, min(partials[0], mostStart)), ts[j], ts[k])
					partials = partials[1:]
					add(boundless(y), "corr["+pair+"]", -most, most)
				}
			}
		}
		rules = append(rules, e)
	}
	return coords, rules
}

// bareUnit multiplies the units of correlated effects without a prior. Their best correlation is ±1 if
// a standard deviation is small. The ELBO is then smooth in the standard deviation rather than in its
// square.
const bareUnit = 0.05

// boundless returns the coordinate of a parameter whose θ is its value.
func boundless(value float64) (c learnCoord) {
	c.Edge = true
	c.Value, c.Min, c.Max = value, math.Inf(-1), math.Inf(1)
	return c
}

// mostStart is the largest correlation at which learning starts.
const mostStart = 0.99

// effectUnits returns the units of the effects of group i; see learn.Effect. A row with equal
// probabilities of all classes determines a difference between the scores of one class and the
// mean of all with the precision 1/K.
func (g *GLM) effectUnits(i int) []float64 {
	r := &g.opt.Groups[i]
	q := r.effects()
	known := map[int]bool{}
	squares, units := make([]float64, q), make([]float64, q)
	for n := range g.lin.X.Rows {
		ind, val := g.lin.X.Row(n)
		for k, z := range val {
			j := k
			if ind != nil {
				j = int(ind[k])
			}
			if j >= r.First && j < r.end() && z != 0 {
				known[(j-r.First)/q] = true
				_, _, weight, _ := g.lin.Terms.Term(n)
				squares[(j-r.First)%q] += weight * z * z
			}
		}
	}
	for j, square := range squares {
		units[j] = math.Sqrt(float64(g.lin.Terms.K*len(known)) / square)
		if !(units[j] > 0) || math.IsInf(units[j], 0) {
			units[j] = 1
		}
	}
	return units
}

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

// likeGroups returns a copy of groups with the uncertainty of their covariances but without intervals.
func likeGroups(groups []groupInfo) []groupInfo {
	groups = slices.Clone(groups)
	for i := range groups {
		if s := groups[i].spread; s != nil {
			groups[i].spread = &site.FactorSpread{SD: s.SD, Atanh: s.Atanh, Zero: s.Zero}
		}
	}
	return groups
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
