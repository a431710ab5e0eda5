package trust

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
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
		if err != nil && strings.Contains(err.Error(), "less than no rows") {
			t.Errorf("seed %d: %v: %v", seed, p, err)
		}
	}
	for _, c := range []*movedRows{&updates[0], &removals[0], &updates[1], &removals[1]} {
		t.Log(c)
		if c.wrong > c.done/mostMoved || c.fits && (c.wrong+c.refused+c.far > 0 ||
			c.other > 1+c.done/100) || c.refused > c.done/mostMoved {
			t.Errorf("%v", c)
		}
	}
}

// TestRemoveHeavy removes rows with most of the precision from posteriors without their rows. The mean
// must be exact, or the error must tell how far rounding moves it.
func TestRemoveHeavy(t *testing.T) {
	ctx, rng := context.Background(), rand.New(rand.NewPCG(1, 43))
	refused := 0
	for digits := range 13 {
		heavy := math.Pow(10, float64(digits))
		p := &trustProblem{lik: GaussianNoise{Var: 1}, x: mat.NewDense(40, 6, nil),
			mean: make([]float64, 6), variance: []float64{1, 1, 1, 1, 1, 1},
			groups: &trustGroups{common: 1, opt: []Group{{First: 1, Levels: 5, Fixed: true,
				SD: []float64{1}}}}}
		var gone, rest []int
		for i := range 40 {
			p.x.SetRow(i, make([]float64, 6))
			p.x.Set(i, 0, rng.NormFloat64())
			p.x.Set(i, 1+i%5, 1)
			p.y = append(p.y, 3+rng.NormFloat64())
			if i%2 == 0 {
				gone, p.weight = append(gone, i), append(p.weight, heavy)
			} else {
				rest, p.weight = append(rest, i), append(p.weight, 1)
			}
		}
		all, ok := p.settled()
		want, also := p.selectRows(rest).settled()
		if !ok || !also {
			t.Fatalf("weights of %g: a fit does not converge", heavy)
		}
		got, err := testkit.Reread(t, all, Load[*GLMPosterior]).Remove(ctx,
			p.selectRows(gone).rows())
		if err != nil {
			if refused++; !errors.Is(err, ErrNotPosDef) {
				t.Errorf("weights of %g: %v", heavy, err)
			}
			continue
		}
		m, s := apart(got, want)
		t.Logf("weights of %g: means %.2g sd apart, sds %.2g", heavy, m, s)
		if !(m <= 1e-6 && s <= 1e-6) {
			t.Errorf("weights of %g: means %v sd apart, logarithms of sds %v", heavy, m, s)
		}
	}
	if refused == 0 || refused > 6 {
		t.Errorf("%d of 13 are refused", refused)
	}
}
