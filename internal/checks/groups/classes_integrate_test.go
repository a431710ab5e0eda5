package groups

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

// classLevels draws rows of three classes with an intercept per level and class, and a row for each level
// and a new level. Column 0 is a covariate.
func classLevels(levels, each int, sd float64, seed uint64) (x *mat.Dense, y []float64, at *mat.Dense) {
	rng := rand.New(rand.NewPCG(seed, 21))
	x, at = mat.NewDense(levels*each, levels+2, nil), mat.NewDense(levels+1, levels+2, nil)
	for g := range levels {
		var u [3]float64
		for c := range u {
			u[c] = sd * rng.NormFloat64()
		}
		for i := range each {
			z := rng.NormFloat64()
			best, class := math.Inf(-1), 0
			for c, e := range u {
				if score := e + 0.5*float64(c-1)*z - math.Log(rng.ExpFloat64()); score > best {
					best, class = score, c
				}
			}
			x.Set(g*each+i, 0, z)
			x.Set(g*each+i, 1+g, 1)
			y = append(y, float64(class))
		}
	}
	for g := range levels + 1 {
		at.Set(g, 0, 0.3)
		at.Set(g, 1+g, 1)
	}
	return x, y, at
}

// fitClassLevels fits three classes with the given group.
func fitClassLevels(t *testing.T, x mat.Matrix, y []float64, r Group, s *Solver) (*GLM, *GLMPosterior,
	*Result) {
	t.Helper()
	_, cols := x.Dims()
	r.First, r.Levels = 1, cols-1
	g, err := NewGLM(x, y, Softmax{Classes: 3}, &GLMOptions{Intercept: true, PriorSD: 1,
		Groups: []Group{r}})
	if err != nil {
		t.Fatal(err)
	}
	p, res, err := g.Fit(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	return g, p, res
}

// TestIntegrateClasses compares known and new levels, and the interval of the standard deviation, with
// separate fits at many fixed standard deviations.
func TestIntegrateClasses(t *testing.T) {
	for name, c := range map[string]struct {
		levels int
		sd     float64
	}{"5 levels": {5, 1}, "8 levels, best sd 0": {8, 0.01}, "12 levels": {12, 1}} {
		x, y, at := classLevels(c.levels, 10, c.sd, 3)
		_, p, _ := fitClassLevels(t, x, y, Group{}, nil)
		const step, most = 0.04, 6
		fine, sds := make([]fineMix, 3*(c.levels+1)), fineMix{}
		for s := step / 2; s < most; s += step {
			_, q, res := fitClassLevels(t, x, y, Group{SD: []float64{s}, Fixed: true},
				&Solver{Goal: 1e-6})
			z := s * math.Sqrt2 / 2.5
			log := res.ELBO - 0.5*z*z
			m, v := q.At(at).Latent(nil, nil)
			for i := range fine {
				fine[i].add(log, m[i], v[i])
			}
			sds.add(log, s, step*step/12)
		}
		m, v := p.At(at).Latent(nil, nil)
		var dm, ds float64
		for i := range fine {
			mean, sd := fine[i].moments()
			dm = max(dm, math.Abs(m[i]-mean)/sd)
			ds = max(ds, math.Abs(math.Log(math.Sqrt(v[i])/sd)))
		}
		e := p.Groups()[0].Effects[0]
		_, sd := sds.moments()
		lo, hi := math.Abs(e.Lo-sds.quantile(0.025))/sd, math.Abs(e.Hi-sds.quantile(0.975))/sd
		t.Logf("%s: off by %.1e (mean), %.1e (sd), %.1e and %.1e (ends of the interval) standard deviations",
			name, dm, ds, lo, hi)
		if dm > 5e-3 || ds > 5e-3 {
			t.Errorf("%s: levels are off by %.2g (mean) and %.2g (sd) standard deviations", name, dm, ds)
		}
		if lo > 0.03 && e.Lo > 0 || hi > 0.03 {
			t.Errorf("%s: the interval is from %v to %v, want %v to %v", name, e.Lo, e.Hi,
				sds.quantile(0.025), sds.quantile(0.975))
		}
		if p.Groups()[0].NotIntegrated {
			t.Errorf("%s: not integrated", name)
		}
	}
}

// TestIntegrateClassesSame checks that workers and a saved copy give the same bits, for one intercept, for
// correlated effects, for two groups, and with the other hyperparameters, and that LOO integrates.
func TestIntegrateClassesSame(t *testing.T) {
	ctx := context.Background()
	x, y, at := classLevels(6, 8, 1, 7)
	slopes := mat.NewDense(len(y), 1+2*7, nil)
	other := mat.NewDense(7, 1+2*7, nil)
	for to, from := range map[*mat.Dense]*mat.Dense{slopes: x, other: at} {
		rows, _ := from.Dims()
		for i := range rows {
			to.Set(i, 0, from.At(i, 0))
			for g := range 7 {
				to.Set(i, 1+2*g, from.At(i, 1+g))
				to.Set(i, 2+2*g, from.At(i, 1+g)*from.At(i, 0))
			}
		}
	}
	for name, c := range map[string]struct {
		x, at  *mat.Dense
		groups []Group
		learn  *LearnOptions
	}{
		"intercepts": {x, at, []Group{{First: 1, Levels: 7}}, nil},
		"slopes":     {slopes, other, []Group{{First: 1, Levels: 7, Effects: []string{"1", "x"}}}, nil},
		"two": {slopes, other, []Group{{First: 1, Levels: 7, Effects: []string{"1", "x"},
			Independent: true}}, nil},
		"learned": {x, at, []Group{{First: 1, Levels: 7}}, &LearnOptions{Integrate: true}},
	} {
		g, err := NewGLM(c.x, y, Softmax{Classes: 3}, &GLMOptions{Intercept: true, PriorSD: 1,
			Groups: c.groups, Learn: c.learn})
		if err != nil {
			t.Fatal(err)
		}
		var want []float64
		for _, workers := range []int{1, 2, 7} {
			p, _, err := g.Fit(ctx, &Solver{Workers: workers})
			if err != nil {
				t.Fatal(err)
			}
			var file bytes.Buffer
			if err := p.Save(&file); err != nil {
				t.Fatal(err)
			}
			loaded, err := Load[*GLMPosterior](&file)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range []*GLMPosterior{p, loaded} {
				m, v := p.At(c.at).Latent(nil, nil)
				got := slices.Concat(m, v, p.At(c.at).Prob(nil, 1))
				for _, e := range p.Groups()[0].Effects {
					if !(e.Lo >= 0 && e.Lo <= e.SD && e.SD <= e.Hi && e.Hi < 20) {
						t.Errorf("%s: interval %v of %v", name, [2]float64{e.Lo, e.Hi}, e.SD)
					}
					got = append(got, e.SD, e.Lo, e.Hi)
				}
				for _, e := range p.Groups()[0].Corr {
					got = append(got, e.Value, e.Lo, e.Hi)
				}
				if want == nil {
					want = got
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s: %d workers or a saved copy give\n%v, want\n%v", name, workers, got, want)
				}
			}
			if workers > 1 || c.learn != nil {
				continue
			}
			loo, err := g.LOO(ctx, p)
			if err != nil {
				t.Fatal(err)
			}
			if math.IsNaN(loo.ELPD) || !(loo.ELPD < 0) {
				t.Errorf("%s: ELPD %v", name, loo.ELPD)
			}
		}
	}
}

// TestIntegrateClassesRows checks log odds of two classes by level against the fit at the best standard
// deviation. With many rows per level, they hardly depend on the standard deviation.
func TestIntegrateClassesRows(t *testing.T) {
	const levels, draws = 12, 20_000
	x, y, _ := classLevels(levels, 300, 1, 3)
	_, p, _ := fitClassLevels(t, x, y, Group{}, nil)
	e := p.Groups()[0].Effects[0]
	if !(e.Hi > 1.3*e.SD) {
		t.Fatalf("the standard deviation is known: %+v", e)
	}
	_, q, _ := fitClassLevels(t, x, y, Group{SD: []float64{e.SD}, Fixed: true}, nil)
	d := p.Dim() / 3
	var mean, sd [2][levels]float64
	for k, post := range []*GLMPosterior{p, q} {
		w := mat.NewDense(draws, p.Dim(), nil)
		if err := post.RandWeights(w, rand.New(rand.NewPCG(1, 2))); err != nil {
			t.Fatal(err)
		}
		odds := make([]float64, draws)
		for g := range levels {
			for i := range odds {
				a, b := w.RawRowView(i)[d:2*d], w.RawRowView(i)[:d]
				odds[i] = a[1+g] + a[d-1] - b[1+g] - b[d-1]
			}
			mean[k][g], sd[k][g] = stat.MeanStdDev(odds, nil)
		}
	}
	for g := range levels {
		if diff := (mean[0][g] - mean[1][g]) / sd[1][g]; !(math.Abs(diff) < 0.06) {
			t.Errorf("level %d: the mean is off by %v standard deviations", g, diff)
		}
		if ratio := sd[0][g] / sd[1][g]; !(math.Abs(ratio-1) < 0.03) {
			t.Errorf("level %d: the standard deviation is %v times that at the best one", g, ratio)
		}
	}
	t.Log(mean, sd)
}

// TestIntegrateClassesLOO compares log probabilities of rows that are left out with refits without them.
func TestIntegrateClassesLOO(t *testing.T) {
	x, y, _ := classLevels(10, 12, 1, 5)
	g, p, _ := fitClassLevels(t, x, y, Group{}, nil)
	l, err := g.LOO(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	rows, cols := x.Dims()
	var sum, direct, want float64
	for i := 3; i < rows; i += 11 {
		without := mat.NewDense(rows-1, cols, nil)
		without.Slice(0, i, 0, cols).(*mat.Dense).Copy(x.Slice(0, i, 0, cols))
		without.Slice(i, rows-1, 0, cols).(*mat.Dense).Copy(x.Slice(i+1, rows, 0, cols))
		_, q, _ := fitClassLevels(t, without, slices.Concat(y[:i], y[i+1:]), Group{}, nil)
		at := x.Slice(i, i+1, 0, cols)
		log := math.Log(q.At(at).Probs().At(0, int(y[i])))
		in := math.Log(p.At(at).Probs().At(0, int(y[i])))
		if off := math.Abs(l.Pointwise[i] - log); !(off < 0.02+0.2*math.Abs(in-log)) {
			t.Errorf("row %d: %v, want %v, and %v with the row", i, l.Pointwise[i], log, in)
		}
		sum, want, direct = sum+l.Pointwise[i], want+log, direct+in
	}
	t.Logf("sum %v, want %v, and %v with the rows; error %v of all %d rows", sum, want, direct, l.Err, rows)
}
