package site

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/term"
)

// TestFrozenSums adds rows to a Frozen a few at a time, each time by a part with the levels of these
// rows, and takes some of them out again. The Gaussian must be the Gaussian of all rows, also if it is
// rebuilt from its mean and covariance, and if an effect has no variance.
func TestFrozenSums(t *testing.T) {
	rng := rand.New(rand.NewPCG(17, 18))
	for _, factors := range arrowFactors {
		for _, singular := range []bool{false, true} {
			p := newArrowProblem(t, 60, factors, rng)
			l := p.a.lin
			prior := l.Prior.WithBlocks()
			if singular {
				b := prior.Blocks()[0]
				clear(b.L[(b.Q-1)*b.Q:])
				prior.SetBlock(b)
			}
			l.Prior, l.Factors = prior, nil
			a, err := newArrow(l)
			if err != nil {
				t.Fatal(err)
			}
			var all arrowState
			all.by.ArrowShape, all.by.L = a.shape, a.cur.by.L
			a.sum(&all, p.delta, p.b)
			if !all.by.Factor(nil) {
				t.Fatal("no factor")
			}
			all.by.Solve(&all.mean, a.hb, a.hg, a.solveWork)
			want := make([]float64, l.X.Cols)
			for i, j := range a.shape.Border {
				want[j] = all.mean.W[i]
			}
			copy(want[a.fac[0].First:], all.mean.U)
			near := func(what string, f *gauss.Frozen) {
				mean, c, err := f.Solve(nil)
				if err != nil {
					t.Fatal(err)
				}
				v, w := c.Sym(), all.by.Sym()
				for i, m := range mean {
					if !(math.Abs(m-want[i]) <= 1e-9*(1+math.Abs(want[i]))) {
						t.Fatalf("%v, %t, %s: mean %d is %v, want %v", factors, singular, what, i, m, want[i])
					}
					for j := range i + 1 {
						if !(math.Abs(v.At(i, j)-w.At(i, j)) <= 1e-9*(1+math.Abs(w.At(i, i)))) {
							t.Fatalf("%v, %t, %s: covariance %d, %d is %v, want %v", factors, singular, what, i, j,
								v.At(i, j), w.At(i, j))
						}
					}
				}
			}
			f := gauss.NewFrozen(&prior)
			add := func(lo, hi int, sign float64) {
				x := &design.Matrix{Rows: hi - lo, Cols: l.X.Cols}
				for i := lo; i < hi; i++ {
					row := make([]float64, l.X.Cols)
					l.X.Dense1(row, i)
					x.Dense = append(x.Dense, row...)
				}
				if err := AddFrozen(f, x, p.delta[lo:hi], p.b[lo:hi], sign, term.Crew{}); err != nil {
					t.Fatal(err)
				}
			}
			for lo := 0; lo < 60; lo += 7 {
				add(lo, min(lo+7, 60), 1)
			}
			near("added", f)
			mean, c, err := f.Solve(nil)
			if err != nil {
				t.Fatal(err)
			}
			f = gauss.FrozenAt(c, &prior, mean)
			near("rebuilt", f)
			add(11, 30, -1)
			if m, _, err := f.Solve(nil); err != nil || math.Abs(m[0]-want[0]) < 1e-6 {
				t.Errorf("%v: mean %v without some rows, %v", factors, m, err)
			}
			add(11, 30, 1)
			near("added again", f)
		}
	}
}
