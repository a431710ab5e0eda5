package trust

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// fixedAt returns p with all covariances fixed at the covariances of post.
func (p *trustProblem) fixedAt(post *GLMPosterior) *trustProblem {
	q, g := *p, *p.groups
	g.opt = slices.Clone(g.opt)
	for k, s := range post.Groups() {
		r := &g.opt[k]
		r.Fixed, r.SD, r.Corr = true, nil, mat.NewSymDense(len(s.Effects), nil)
		at := 0
		for i, e := range s.Effects {
			r.SD = append(r.SD, e.SD)
			r.Corr.SetSym(i, i, 1)
			for j := range i {
				r.Corr.SetSym(i, j, s.Corr[at].Value)
				at++
			}
		}
	}
	q.groups = &g
	return &q
}

// settled fits p, and reports whether the fit converged.
func (p *trustProblem) settled() (*GLMPosterior, bool) {
	g, err := p.glm(FullCovariance)
	if err != nil {
		return nil, false
	}
	post, res, err := g.Fit(context.Background(), &Solver{Workers: 1})
	return post, err == nil && res.Status == Converged
}

// TestUpdateGroups checks that random mixed models with rows added or removed agree with fits of the
// same rows at the same Σ. Half of all rows may go at once.
//
//	go test ./internal/trust -run UpdateGroups -seeds 1000 -v
func TestUpdateGroups(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	updates := [2]movedRows{{what: "updates", fits: true}, {what: "updates without rows"}}
	removals := [2]movedRows{{what: "removals", fits: true}, {what: "removals without rows"}}
	seeds := testkit.Seeds(testkit.Longer(200, 50))
	for seed := testkit.FirstSeed(); seed < testkit.FirstSeed()+seeds; seed++ {
		rng := rand.New(rand.NewPCG(seed, 41))
		p := &trustProblem{}
		generateGroups(rng, p)
		n, _ := p.dims()
		if n < 2 {
			continue
		}
		rng = rand.New(rand.NewPCG(seed, 42))
		order := rng.Perm(n)
		moved := n / 2
		if chance(rng, 0.5) {
			moved = 1 + rng.IntN(n/2)
		}
		learned, known := p.settled()
		if !known { // TestSeedsGroups reports these errors
			continue
		}
		fixed := p.fixedAt(learned)
		all, known := fixed.settled()
		left, also := fixed.selectRows(order[moved:]).settled()
		if !known || !also {
			continue
		}
		rows := p.selectRows(order[:moved]).rows()
		updated, err := left.Update(ctx, rows)
		updates[0].count(t, seed, p, updated, all, err)
		removed, err := learned.Remove(ctx, rows) // its Σ stays
		removals[0].count(t, seed, p, removed, left, err)
		without := func(q *GLMPosterior) *GLMPosterior { return testkit.Reread(t, q, Load[*GLMPosterior]) }
		updated, err = without(left).Update(ctx, rows)
		updates[1].count(t, seed, p, updated, all, err)
		removed, err = without(all).Remove(ctx, rows)
		removals[1].count(t, seed, p, removed, left, err)
	}
	for _, c := range []*movedRows{&updates[0], &removals[0], &updates[1], &removals[1]} {
		t.Log(c)
		if c.wrong > c.done/mostMoved || c.fits && (c.wrong+c.refused+c.far > 0 ||
			c.other > 1+c.done/100) || c.refused > c.done/mostMoved {
			t.Errorf("%v", c)
		}
	}
}
