package topic

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

func near(t *testing.T, what string, got, want, tol float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tol) {
		t.Errorf("%s is %.10g, want %.10g ± %g", what, got, want, tol)
	}
}

// within reports elements of got that differ from want by more than tol times the largest
// element.
func within(t *testing.T, what string, got, want []float64, tol float64) {
	t.Helper()
	near(t, what, floats.Distance(got, want, math.Inf(1)), 0,
		tol*max(1, floats.Norm(want, math.Inf(1))))
}

// workOf is an E-step with k topics.
func workOf(k int, opt *Options) *work {
	o := *opt
	o.K = k
	return newWork(&o)
}

// smallCTM is the exact case: two topics, prior N(0, I), one document of three words.
func smallCTM(opt *Options) (*work, *normal) {
	w := workOf(2, opt)
	prior := standardPrior(2)
	w.setDoc(Doc{Words: []int{0, 1, 2}, Counts: []float64{5, 2, 1}})
	w.takeTopics([]float64{.6, .3, .1, .1, .3, .6})
	w.setPrior(prior)
	return w, prior
}

// takeTopics takes β_kv of the words of the document, topic by topic.
func (w *work) takeTopics(b []float64) {
	for v := range w.n {
		for k := range w.k {
			w.b[v*w.k+k] = b[k*w.n+v]
		}
	}
	w.pack()
}

func standardPrior(k int) *normal {
	p := &normal{}
	cov := make([]float64, k*k)
	for i := range k {
		cov[i*k+i] = 1
	}
	p.set(make([]float64, k), cov, new([]float64))
	return p
}

func TestExact(t *testing.T) {
	t.Parallel()
	const evidence = -8.29829988
	for _, c := range []struct {
		name    string
		opt     Options
		elbo    float64
		m, v, c float64
		tol     float64
	}{
		{"full", Options{Expectation: Quadrature, Samples: 40}, -8.30262986, .621858, .750979,
			.249020, 1e-6},
		{"diagonal", Options{Expectation: Quadrature, Samples: 40, Diagonal: true}, -8.35740916,
			.635628, .687017, 0, 1e-6},
		{"quasi-Monte-Carlo", Options{Expectation: Quasi, Samples: 20000}, -8.30262986, .621858,
			.750979, .249020, 1e-3},
	} {
		if testing.Short() && c.opt.Expectation == Quasi {
			continue
		}
		w, prior := smallCTM(&c.opt)
		if c.opt.Expectation == Quasi {
			kronecker(w.eps, 2, nil)
		}
		w.fixed = true
		if start, _ := w.elbo(prior); !c.opt.Diagonal {
			near(t, c.name+": ELBO at the prior", start, -9.19630924, max(1e-8, c.tol/2))
		}
		if err := w.ascend(prior, 300, 0.5, 1e-10); err != nil {
			t.Fatal(err)
		}
		elbo, _ := w.elbo(prior)
		near(t, c.name+": ELBO", elbo, c.elbo, max(2e-8, c.tol/5))
		near(t, c.name+": m_1", w.m[0], c.m, c.tol)
		near(t, c.name+": m_2", w.m[1], -c.m, c.tol)
		near(t, c.name+": V_11", w.cov(0, 0), c.v, c.tol)
		near(t, c.name+": V_21", w.cov(1, 0), c.c, c.tol)
		if elbo > evidence {
			t.Errorf("%s: the ELBO %v is above the log evidence", c.name, elbo)
		}
	}
}

// randomTerm is a document and a prior at random.
func randomTerm(k, n int, opt *Options, seed uint64) (*work, *normal) {
	rng := rand.New(rand.NewPCG(seed, 1))
	w := workOf(k, opt)
	var d Doc
	for v := range n {
		d.Words, d.Counts = append(d.Words, v), append(d.Counts, float64(1+rng.IntN(4)))
	}
	w.setDoc(Doc(d))
	topics := make([]float64, k*n)
	for i := range topics {
		topics[i] = 0.01 + rng.Float64()*rng.Float64()
	}
	w.takeTopics(topics)
	a := make([]float64, k*k)
	for i := range a {
		a[i] = rng.NormFloat64()
	}
	cov, mu := make([]float64, k*k), make([]float64, k)
	for i := range k {
		mu[i] = rng.NormFloat64()
		for j := range k {
			for l := range k {
				cov[i*k+j] += a[i*k+l] * a[j*k+l] / float64(k)
			}
		}
		cov[i*k+i] += 0.5
	}
	prior := &normal{}
	prior.set(mu, cov, new([]float64))
	w.setPrior(prior)
	for j := range w.m {
		w.m[j] += 0.3 * rng.NormFloat64()
	}
	return w, prior
}

func TestDerivatives(t *testing.T) {
	const k, n, h = 4, 7, 1e-4
	for _, c := range []struct {
		opt Options
		tol float64
	}{
		{Options{Expectation: Laplace}, 1e-7},
		{Options{Expectation: Delta}, 1e-7},
		{Options{Expectation: Delta, Diagonal: true}, 1e-7},
		{Options{Expectation: MeanField}, 1e-7},
		{Options{Expectation: Quadrature, Samples: 9}, 1e-7},
		{Options{Expectation: Quadrature, Samples: 9, Diagonal: true}, 1e-7},
	} {
		w, _ := randomTerm(k, n, &c.opt, 3)
		want := wantValue | wantGrad
		if c.opt.Expectation == Laplace {
			want = wantValue // f(m) alone
		}
		value := func() float64 { w.expect(want, nil); return w.value }
		w.expect(wantGrad, nil)
		grad, hess := slices.Clone(w.grad), slices.Clone(w.hess)
		for j := range k {
			m := w.m[j]
			// Five points: the error is of order h⁴.
			f := func(d float64) float64 {
				w.m[j] = m +
					d
				defer func() { w.m[j] = m }()
				return value()
			}
			fd := (8*(f(h)-f(-h)) - (f(2*h) - f(-2*h))) / (12 * h)
			near(t, fmt.Sprintf("%v, diagonal %v: derivative %d", c.opt.Expectation, c.opt.Diagonal,
				j), grad[j], fd, 1e-8)
		}
		if c.opt.Expectation != Laplace {
			continue
		}
		for j := range k {
			m := w.m[j]
			g := func(d float64) []float64 {
				w.m[j] = m + d
				w.expect(wantGrad, nil)
				w.m[j] = m
				return slices.Clone(w.grad)
			}
			a, b, c, d := g(h), g(-h), g(2*h), g(-2*h)
			for i := j; i < k; i++ {
				near(t, fmt.Sprintf("second derivative %d, %d", i, j), hess[i*k+j],
					(8*(a[i]-b[i])-(c[i]-d[i]))/(12*h), 1e-8)
			}
		}
	}
}

// Each E-step that is not random ends at the maximum of its own bound.
func TestComparisonBounds(t *testing.T) {
	const k, n = 3, 12
	for _, o := range []Options{
		{Expectation: Delta}, {Expectation: Delta, Diagonal: true}, {Expectation: MeanField},
		{Expectation: Laplace}, {Expectation: Laplace, Diagonal: true},
		{Expectation: Quadrature, Samples: 12},
		{Expectation: Quadrature, Samples: 12, Diagonal: true},
	} {
		name := fmt.Sprintf("%v, diagonal %v", o.Expectation, o.Diagonal)
		w, prior := randomTerm(k, n, &o, 5)
		w.fixed = true
		w.setPrior(prior)
		before, _ := w.elbo(prior)
		if err := w.ascend(prior, 500, 0.5, 1e-12); err != nil {
			t.Fatal(err)
		}
		best, _ := w.elbo(prior)
		if !(best > before+0.1) {
			t.Errorf("%s: bound %v after %v", name, best, before)
		}
		// Laplace: the log joint is at its mode, and V⁻¹ the second derivatives there.
		w.expect(wantGrad, nil)
		w.force(prior)
		if o.Expectation == Laplace {
			for j, g := range w.step {
				near(t, name+": gradient of the log joint", g, 0, 1e-8)
				at, pr := j, prior.prec[j*k+j]
				if !w.diag {
					at = j*k + j
				}
				near(t, name+": precision", w.p[at], pr-w.hess[at], 1e-8)
			}
			continue
		}
		state := make([]float64, stateLen(k, w.diag))
		w.save(state)
		for i := range state {
			for _, d := range []float64{-0.02, 0.02} {
				s := slices.Clone(state)
				s[i] += d
				if !w.load(s) {
					t.Fatal(name)
				}
				if e, _ := w.elbo(prior); !(e < best+1e-7) {
					t.Errorf("%s: the bound is %v, but %v where number %d is %+v away",
						name, best, e, i, d)
				}
			}
		}
	}
}

// TestWidePrior checks a prior as wide as in large corpora. The way to the optimum begins on a
// plateau where steps grow, which must not be mistaken for oscillation.
func TestWidePrior(t *testing.T) {
	const k, n, variance = 10, 400, 25
	rng := rand.New(rand.NewPCG(1, 1))
	prior := &normal{}
	mu, cov := make([]float64, k), make([]float64, k*k)
	for i := range k {
		mu[i], cov[i*k+i] = -5-rng.Float64(), variance
	}
	prior.set(mu, cov, new([]float64))
	doc := Doc{Words: make([]int, n), Counts: make([]float64, n)}
	topics := make([]float64, k*n)
	for j := range k {
		row := topics[j*n : (j+1)*n]
		for i := range row {
			row[i] = math.Exp(rng.NormFloat64())
		}
		floats.Scale(1/floats.Sum(row), row)
	}
	for i := range n {
		doc.Words[i], doc.Counts[i] = i, math.Ceil(2000*(0.5*topics[i]+0.5*topics[n+i]))
	}
	for _, e := range []Expectation{MeanField, Delta} {
		w := workOf(k, &Options{Expectation: e})
		bound := func(steps int) float64 {
			w.setDoc(Doc(doc))
			w.takeTopics(topics)
			w.setPrior(prior)
			if err := w.ascend(prior, steps, 0.5, 1e-9); err != nil {
				t.Fatal(err)
			}
			v, _ := w.elbo(prior)
			return v
		}
		if some, many := bound(inferSteps), bound(4000); !(many-some < 12) {
			t.Errorf("%v: %v after %d steps, %v after 4000", e, some, inferSteps, many)
		} else {
			t.Log(e, some, many)
		}
	}
}

// Mean field is a lower bound of the ELBO, Laplace lies below the optimum over (m, V).
func TestBoundOrder(t *testing.T) {
	elbo := func(e Expectation, diag bool) (own, exact float64) {
		opt := Options{Expectation: e, Samples: 40, Diagonal: diag}
		w, prior := smallCTM(&opt)
		w.fixed = true
		if err := w.ascend(prior, 500, 0.5, 1e-12); err != nil {
			t.Fatal(err)
		}
		own, _ = w.elbo(prior)
		state := make([]float64, stateLen(2, w.diag))
		w.save(state)
		x, _ := smallCTM(&Options{Expectation: Quadrature, Samples: 40, Diagonal: w.diag})
		x.load(state)
		exact, _ = x.elbo(prior)
		return own, exact
	}
	_, best := elbo(Quadrature, false)
	_, diag := elbo(Quadrature, true)
	own, mf := elbo(MeanField, true)
	if !(own <= mf && mf <= diag && diag <= best) {
		t.Errorf("mean field's bound %v, its ELBO %v, best diagonal %v, best %v",
			own, mf, diag, best)
	}
	for _, e := range []Expectation{Delta, Laplace} {
		own, exact := elbo(e, false)
		t.Logf("%v: own value %.6f, ELBO %.6f, best %.6f", e, own, exact, best)
		if !(exact < best) || exact < best-0.1 {
			t.Errorf("%v: ELBO %v, best %v", e, exact, best)
		}
	}
}

// TestEStepConverges checks that the steps of Infer reach the maximum for documents of any
// length, any number of topics and every expectation, and that short reports the shortfall
// otherwise.
func TestEStepConverges(t *testing.T) {
	t.Parallel()
	topics, lengths := []int{2, 10, 50}, []float64{10, 300, 8000, 50000}
	if testing.Short() {
		topics, lengths = []int{2, 10}, []float64{10, 8000}
	}
	for _, k := range topics {
		for _, tokens := range lengths {
			for _, o := range []Options{
				{Expectation: MeanField}, {Expectation: Delta},
				{Expectation: Delta, Diagonal: true}, {Expectation: Laplace},
				{Expectation: Quadrature, Samples: 12}, {Expectation: Quasi, Samples: 32},
				{Expectation: Antithetic, Samples: 32},
			} {
				if o.Expectation == Quadrature && k > 2 ||
					k == 50 && (tokens == 300 || tokens == 50000) {
					continue // the remaining cases take seconds
				}
				rng := rand.New(rand.NewPCG(uint64(k), uint64(tokens)))
				w, prior := longDocument(k, 400, tokens, &o, rng)
				w.draw()
				w.fixed = true
				if err := w.ascend(prior, inferSteps, 0.5, 1e-7); err != nil {
					t.Errorf("K = %d, %v tokens, %v: %v", k, tokens, o.Expectation, err)
					continue
				}
				short := w.short
				reached, _ := w.elbo(prior)
				left := w.shortfall(prior)
				if err := w.ascend(prior, 1000, 0.3, 1e-9); err != nil {
					t.Errorf("K = %d, %v tokens, %v: %v", k, tokens, o.Expectation, err)
					continue
				}
				best, _ := w.elbo(prior)
				drawn := o.Expectation == Quasi || o.Expectation == Antithetic
				settled := best-reached < 1e-3 && short <= 1e-3 && (drawn || left <= 1e-3)
				// Draws and Laplace's curvature with 50 topics may need more than inferSteps. The
				// state must then report it.
				said := k == 50 && (drawn || o.Expectation == Laplace) && short > 0.1*(best-reached)
				if !settled && !said {
					t.Errorf(
						"K = %d, %v tokens, %v, diagonal %v: %v, %.3g below the best, said to "+
							"be %.3g and %.3g",
						k, tokens, o.Expectation, o.Diagonal, reached, best-reached, short, left)
				}
			}
		}
	}
}

// TestShortfall checks that the shortfall of an E-step that is cut short is about the gain of the
// missing steps.
func TestShortfall(t *testing.T) {
	o := Options{Expectation: MeanField}
	w, prior := longDocument(10, 400, 8000, &o, rand.New(rand.NewPCG(1, 2)))
	for range 3 {
		if err := w.ascend(prior, inferSteps, 0.001, 1e-7); err != nil {
			t.Fatal(err)
		}
	}
	if before, _ := w.elbo(prior); w.short > 0 {
		left := w.shortfall(prior)
		if err := w.ascend(prior, inferSteps, 0.5, 1e-7); err != nil {
			t.Fatal(err)
		}
		if after, _ := w.elbo(prior); !(left > 0.1*(after-before) && left < 10*(after-before)+
			1e-9) {
			t.Errorf("%v nats to gain, gained %v", left, after-before)
		}
	} else {
		t.Error("steps of a thousandth have settled")
	}
}

// longDocument returns the E-step, at the prior, of a document of about the given number of
// tokens over n terms, drawn from two of k overlapping topics.
func longDocument(k, n int, tokens float64, o *Options, rng *rand.Rand) (*work, *normal) {
	prior := &normal{}
	mu, cov := make([]float64, k), make([]float64, k*k)
	for i := range k {
		mu[i] = rng.NormFloat64()
		for j := range i + 1 {
			cov[i*k+j] = 0.3
		}
		cov[i*k+i] = 1 + rng.Float64()
	}
	prior.set(mu, cov, new([]float64))
	b := make([]float64, k*n)
	for j := range k {
		row := b[j*n : (j+1)*n]
		var sum float64
		for i := range row {
			row[i] = math.Exp(1.5 * rng.NormFloat64())
			sum += row[i]
		}
		for i := range row {
			row[i] /= sum
		}
	}
	var d Doc
	for i := range n {
		if c := math.Round(tokens * (0.6*b[i] + 0.4*b[n+i]) * 2 * rng.Float64()); c > 0 {
			d.Words, d.Counts = append(d.Words, i), append(d.Counts, c)
		}
	}
	if len(d.Words) == 0 {
		d = Doc{[]int{0, 1}, []float64{tokens / 2, tokens / 2}}
	}
	w := workOf(k, o)
	w.setDoc(Doc(d))
	topics := make([]float64, 0, k*w.n)
	for j := range k {
		for _, v := range d.Words {
			topics = append(topics, b[j*n+v])
		}
	}
	w.takeTopics(topics)
	w.setPrior(prior)
	return w, prior
}

// movedTerm is a document at random with a q that is not the prior, and the expectations at it.
func movedTerm(t *testing.T, k int, opt *Options, seed uint64) (*work, *normal) {
	t.Helper()
	w, prior := randomTerm(k, 9, opt, seed)
	w.expect(wantGrad, nil)
	if _, ok := w.move(prior, 0.3); !ok {
		t.Fatal("V⁻¹ is not positive definite")
	}
	clear(w.step)
	w.expect(wantGrad, nil)
	return w, prior
}

// TestPaperStep checks that the step of the paper minimizes its objective in (m, V),
//
//	−mᵀE[∇f] − ½tr(V E[∇²f]) + KL(q‖N(μ, Σ)) + KL(q‖q_k)/β
func TestPaperStep(t *testing.T) {
	const k, h = 4, 1e-4
	for _, diag := range []bool{false, true} {
		for seed, beta := range []float64{0.001, 0.02, 0.1, 0.3} {
			what := fmt.Sprintf("diagonal %v, β = %v", diag, beta)
			w, prior := movedTerm(t, k, &Options{Paper: true, Diagonal: diag, Samples: 40},
				uint64(seed))
			grad, hess := slices.Clone(w.grad), slices.Clone(w.hess)
			moments := func() (m, v []float64) { // v is full
				w.invert()
				v = make([]float64, k*k)
				for i := range v {
					v[i] = w.cov(i/k, i%k)
				}
				return slices.Clone(w.m), v
			}
			var q0 normal
			m0, v0 := moments()
			if !q0.set(m0, v0, new([]float64)) {
				t.Fatal(what)
			}
			if !w.movePaper(prior, beta/(1+beta)) {
				t.Fatalf("%s: V⁻¹ is not positive definite", what)
			}
			m, v := moments()
			objective := func(m, v []float64) float64 {
				var q normal
				if !q.set(m, v, new([]float64)) {
					t.Fatal(what)
				}
				copy(w.m, m)
				for i := range k {
					if diag {
						w.p[i] = q.prec[i*k+i]
					} else {
						copy(w.p[i*k:i*k+i+1], q.prec[i*k:])
					}
				}
				if !w.factor() {
					t.Fatal(what)
				}
				s := w.kl(prior) + w.kl(&q0)/beta - floats.Dot(m, grad)
				for i := range k {
					if diag {
						s -= 0.5 * v[i*k+i] * hess[i]
						continue
					}
					for j := range k {
						s -= 0.5 * v[i*k+j] * hess[max(i, j)*k+min(i, j)]
					}
				}
				return s
			}
			// The derivative along each coordinate by central differences, and half way back by
			// how much it was more.
			slope := func(x []float64, at ...int) float64 {
				old := slices.Clone(x)
				move := func(d float64) float64 {
					for _, i := range at {
						x[i] = old[i] + d
					}
					value := objective(m, v)
					copy(x, old)
					return value
				}
				return (8*(move(h)-move(-h)) - (move(2*h) - move(-2*h))) / (12 * h)
			}
			for i := range k {
				near(t, fmt.Sprintf("%s: slope along m_%d", what, i), slope(m, i), 0, 1e-8/beta)
				for j := range i + 1 {
					if !diag || i == j {
						at := slices.Compact([]int{i*k + j, j*k + i})
						near(t, fmt.Sprintf("%s: slope along V_%d%d", what, i, j), slope(v, at...),
							0, 1e-7/beta)
					}
				}
			}
			if far := max(floats.Distance(m, m0, math.Inf(1)),
				floats.Distance(v, v0, math.Inf(1))); far < beta/10 {
				t.Errorf("%s: the step moves q by %v alone", what, far)
			}
		}
	}
}

// The step of this library must be the proximal step in mean parameters, which averages natural
// parameters, except for ½DVD in the new V⁻¹.
func TestStepClosedForm(t *testing.T) {
	const k = 4
	for _, diag := range []bool{false, true} {
		for seed, beta := range []float64{0.001, 0.02, 0.3, 1, 4} {
			what := fmt.Sprintf("diagonal %v, β = %v", diag, beta)
			w, prior := movedTerm(t, k, &Options{Diagonal: diag, Samples: 40}, uint64(seed))
			step := beta / (1 + beta)
			dense := func(x []float64) *mat.Dense {
				m := mat.NewDense(k, k, nil)
				for i := range k {
					for j := range k {
						switch {
						case !diag:
							m.Set(i, j, x[max(i, j)*k+min(i, j)])
						case i == j && len(x) == k:
							m.Set(i, i, x[i])
						case i == j:
							m.Set(i, i, x[i*k+i])
						}
					}
				}
				return m
			}
			// P + D + ½DP⁻¹D with D = t(Σ⁻¹ − E[∇²f] − P).
			p, d := dense(w.p), dense(prior.prec)
			d.Sub(d, dense(w.hess))
			d.Sub(d, p)
			d.Scale(step, d)
			var want, v mat.Dense
			if err := v.Inverse(p); err != nil {
				t.Fatal(err)
			}
			want.Product(d, &v, d)
			want.Scale(0.5, &want)
			want.Add(&want, d)
			want.Add(&want, p)
			// m + t P₊⁻¹ (Σ⁻¹(μ − m) + E[∇f]).
			force, mean := mat.NewVecDense(k, slices.Clone(prior.mu)),
				mat.NewVecDense(k, slices.Clone(w.m))
			force.SubVec(force, mean)
			force.MulVec(mat.NewDense(k, k, slices.Clone(prior.prec)), force)
			force.AddVec(force, mat.NewVecDense(k, slices.Clone(w.grad)))
			if err := force.SolveVec(&want, force); err != nil {
				t.Fatal(err)
			}
			mean.AddScaledVec(mean, step, force)
			if _, ok := w.move(prior, step); !ok {
				t.Fatalf("%s: V⁻¹ is not positive definite", what)
			}
			within(t, what+": m", w.m, mean.RawVector().Data, 1e-11)
			within(t, what+": V⁻¹", dense(w.p).RawMatrix().Data, want.RawMatrix().Data, 1e-10)
		}
	}
}
