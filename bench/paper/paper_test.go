package paper

import (
	"bytes"
	"compress/gzip"
	"context"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"
)

// TestPredictor checks that a dense q and the sites that produce it give the same predictions.
func TestPredictor(t *testing.T) {
	p, err := Ionosphere("../../testdata")
	if err != nil {
		t.Fatal(err)
	}
	d, err := p.Predictor()
	if err != nil {
		t.Fatal(err)
	}
	post, res, err := p.GP.Fit(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	want, err := d.Bits(p.GP, res.Stepper)
	if err != nil {
		t.Fatal(err)
	}
	// V = K − K(K + Γ⁻¹)⁻¹K, K with the jitter.
	k := p.Cov()
	gamma, _ := post.Sites(nil, nil)
	noisy := mat.NewSymDense(len(gamma), nil)
	noisy.CopySym(k)
	for i, g := range gamma {
		noisy.SetSym(i, i, k.At(i, i)+1/g)
	}
	var chol mat.Cholesky
	if !chol.Factorize(noisy) {
		t.Fatal("K + 1/gamma is not positive definite")
	}
	var solved, product mat.Dense
	if err := chol.SolveTo(&solved, k); err != nil {
		t.Fatal(err)
	}
	product.Mul(k, &solved)
	v := mat.NewSymDense(len(gamma), nil)
	for i := range gamma {
		for j := range i + 1 {
			v.SetSym(i, j, k.At(i, j)-0.5*(product.At(i, j)+product.At(j, i)))
		}
	}
	mean, _ := post.Train(nil, nil)
	q, err := pgsvi.NewGaussian(mean, v)
	if err != nil {
		t.Fatal(err)
	}
	if got := d.gaussian(q); math.Abs(got-want) > 1e-6 {
		t.Errorf("%v bits, want %v", got, want)
	}
}

// TestPublishedPGSVI checks PG-SVI with the published settings on ionosphere. The mean of five
// seeds must be within 3% of the results of the published code after 1, 2, 4 and 10 passes, and
// then stay about 0.65 nats above the optimum. With -long, Pathwise must about halve that, and
// exact expectations must leave only the noise of the mini-batches.
func TestPublishedPGSVI(t *testing.T) {
	if testing.Short() {
		t.Skip("a quarter of a minute")
	}
	p, err := Ionosphere("../../testdata")
	if err != nil {
		t.Fatal(err)
	}
	const optimum = 89.26565162955663
	published := map[int]float64{1: 104.7, 2: 93.6, 4: 90.7, 10: 90.0}
	const seeds, passes = 5, 20
	floor := make(map[string]float64)
	for name, est := range map[string]pgsvi.SiteEstimator{
		"score function": p.ScoreFunction(), "Pathwise": pgsvi.Pathwise(p.Samples),
		"exact": nil,
	} {
		if !testkit.IsLong() && name != "score function" {
			continue
		}
		gp, err := p.Model(pgsvi.GPOptions{Estimator: est})
		if err != nil {
			t.Fatal(err)
		}
		curve := make([]float64, passes+1) // mean −ELBO by pass
		for seed := range uint64(seeds) {
			s := PGSVI(len(p.Y), p.BetaN, p.Batch)
			s.Src = rand.NewPCG(seed+1, 0)
			run, err := s.Start(context.Background(), gp)
			if err != nil {
				t.Fatal(err)
			}
			for it, err := range Passes(context.Background(), *s, run, passes) {
				if err != nil {
					t.Fatal(err)
				}
				elbo, err := ELBO(run.Stepper)
				if err != nil {
					t.Fatal(err)
				}
				curve[int(it.Passes)] -= elbo / seeds
			}
		}
		for pass, want := range published {
			if got := curve[pass]; name == "score function" && math.Abs(got/want-1) > 0.03 {
				t.Errorf("−ELBO after %d passes: %.2f, published %.1f", pass, got, want)
			}
		}
		for _, v := range curve[11:] {
			floor[name] += (v - optimum) / (passes - 10)
		}
		t.Logf("%s: %.2f %.2f %.2f %.2f, floor %.3f nats", name, curve[1], curve[2], curve[4],
			curve[10], floor[name])
	}
	if f := floor["score function"]; math.Abs(f-0.65) > 0.13 {
		t.Errorf("noise floor of the score function: %.3f nats", f)
	}
	if !testkit.IsLong() {
		return
	}
	if r := floor["Pathwise"] / floor["score function"]; !(r > 0.4 && r < 0.75) {
		t.Errorf("noise floor of Pathwise: %.2f of that of the score function", r)
	}
	if floor["exact"] >= floor["Pathwise"] {
		t.Errorf("noise floor of exact expectations: %.3f nats, of Pathwise %.3f", floor["exact"],
			floor["Pathwise"])
	}
}

// TestRebuilt checks that the rebuilt q is equal to q at the optimum.
func TestRebuilt(t *testing.T) {
	p, err := Ionosphere("../../testdata")
	if err != nil {
		t.Fatal(err)
	}
	o, err := p.GP.Objective()
	if err != nil {
		t.Fatal(err)
	}
	post, res, err := p.GP.Fit(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	mean, variance := post.Train(nil, nil)
	// the right marginals suffice
	q, err := pgsvi.NewGaussian(mean, mat.NewDiagDense(len(mean), variance))
	if err != nil {
		t.Fatal(err)
	}
	if o.Init, err = p.Rebuilt(q); err != nil {
		t.Fatal(err)
	}
	st, err := o.NewStepper(context.Background(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if elbo, err := ELBO(st); err != nil || math.Abs(elbo-res.ELBO) > 1e-5 {
		t.Errorf("ELBO %v, want %v, %v", elbo, res.ELBO, err)
	}
}

// TestGDLimit checks that gradient descent on (m, L) is stable up to a step of twice the smallest
// eigenvalue of K, which is about the jitter, because the curvature of KL in m is K⁻¹. Shorter
// steps must stay near the start, and longer steps must explode.
func TestGDLimit(t *testing.T) {
	testkit.NotShort(t)
	p, err := Ionosphere("../../testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, jitter := range []float64{1e-2, 1e-3} {
		p.Jitter = jitter
		gp, err := p.Model(pgsvi.GPOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var eigen mat.EigenSym
		if !eigen.Factorize(p.Cov(), false) {
			t.Fatal("no eigenvalues")
		}
		limit := 2 * slices.Min(eigen.Values(nil))
		if limit > 2.5*jitter {
			t.Errorf("limit %v with jitter %v", limit, jitter)
		}
		o, err := gp.Objective()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			share float64
			stays bool
		}{{0.9, true}, {1.2, false}} {
			s := pgsvi.Solver{Divergence: pgsvi.Euclidean(),
				StepSize: pgsvi.ConstantStep(c.share * limit), BatchSize: len(p.Y), MaxPasses: 60,
				EvalEvery: -1}
			o = o.Linearized()
			o.Init = o.Init.In(pgsvi.LogCholesky)
			run, err := s.Start(context.Background(), o)
			if err != nil {
				t.Fatal(err)
			}
			start, err := ELBO(run.Stepper)
			if err != nil {
				t.Fatal(err)
			}
			var failed error
			for _, err := range s.Steps(context.Background(), run) {
				if err != nil {
					failed = err
				}
			}
			elbo, err := ELBO(run.Stepper)
			if stays := failed == nil && err == nil && elbo > 2*start; stays != c.stays {
				t.Errorf("jitter %v, %v × the limit: ELBO %v from %v, %v", jitter, c.share, elbo,
					start, failed)
			} else {
				t.Log(jitter, c.share, elbo, failed)
			}
		}
	}
}

// TestUSPSFiles checks that a file without images is an error.
func TestUSPSFiles(t *testing.T) {
	for name, text := range map[string]string{"empty": "", "a short line": "3 0.5\n",
		"no number": strings.Repeat("x ", 257) + "\n"} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "usps"), 0o777); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.Write([]byte(text))
		z.Close()
		for file, content := range map[string][]byte{"zip.train.gz": b.Bytes(),
			"zip.test.gz": b.Bytes(), "standin_resampled_index.txt": []byte("0\n")} {
			if err := os.WriteFile(filepath.Join(dir, "usps", file), content, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := USPS(dir, 3, 5); err == nil || !strings.Contains(err.Error(), "usps") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
