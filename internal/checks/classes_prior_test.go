package checks

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
)

// noisyIris returns iris with labels that no plane separates, so that scales stay small.
func noisyIris(t *testing.T) (*mat.Dense, []float64) {
	x, y := irisClasses(t)
	for i := range y {
		if i%7 == 0 {
			y[i] = math.Mod(y[i]+1, 3)
		}
	}
	return x, y
}

// eachPrior returns a prior for classes with the given number of weights each, where class k has
// the standard deviation sds[k].
func eachPrior(t *testing.T, weights int, sds ...float64) *Gaussian {
	var v []float64
	for _, sd := range sds {
		v = append(v, slices.Repeat([]float64{sd * sd}, weights)...)
	}
	q, err := NewMeanField(make([]float64, len(v)), v)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// TestClassesOwnPriorTwo checks that two classes with different priors equal a logit whose prior
// variance is the sum.
func TestClassesOwnPriorTwo(t *testing.T) {
	x, y := noisyIris(t)
	two, sign := slices.Clone(y), slices.Clone(y)
	for i, c := range y {
		two[i] = math.Min(c, 1)
		sign[i] = 2*two[i] - 1
	}
	fine := &Solver{Goal: 1e-10}
	post, res := fitClasses(t, x, two, Softmax{}, &GLMOptions{Prior: eachPrior(t, 4, 0.3, 2)}, fine)
	logit, want := fitClasses(t, x, sign, BernoulliLogit{},
		&GLMOptions{PriorSD: math.Sqrt(0.09 + 4)}, fine)
	if !(math.Abs(res.ELBO-want.ELBO) < 1e-7) {
		t.Errorf("ELBO %v, want %v", res.ELBO, want.ELBO)
	}
	probs := post.At(x).Probs()
	for i, p := range logit.At(x).Prob(nil, 1) {
		if !(math.Abs(probs.At(i, 1)-p) < 1e-6) {
			t.Fatalf("row %d: probability %v, want %v", i, probs.At(i, 1), p)
		}
	}
}

// TestClassesOwnPrior checks that permuting the classes together with their priors permutes the
// result, which has a valid bound. Equal priors for each class equal a single prior for all
// classes.
func TestClassesOwnPrior(t *testing.T) {
	x, y := noisyIris(t)
	opt := func(sds ...float64) *GLMOptions { return &GLMOptions{Prior: eachPrior(t, 4, sds...)} }
	post, res := fitClasses(t, x, y, Softmax{}, opt(0.2, 1, 5), nil)
	other, permuted := fitClasses(t, x, nextClass(y), Softmax{}, opt(5, 0.2, 1), nil)
	if res.Status != Converged || !(math.Abs(res.ELBO-permuted.ELBO) < 1e-5) {
		t.Errorf("%v, and permuted %v", res, permuted)
	}
	a, b := post.At(x).Probs(), other.At(x).Probs()
	for i := range y {
		for c := range 3 {
			if got, want := b.At(i, (c+1)%3), a.At(i, c); !(math.Abs(got-want) < 1e-3) {
				t.Fatalf("row %d: probability %v, want %v", i, got, want)
			}
		}
	}
	same, equal := fitClasses(t, x, y, Softmax{}, opt(0.7, 0.7, 0.7), nil)
	one, want := fitClasses(t, x, y, Softmax{}, &GLMOptions{PriorSD: 0.7}, nil)
	if !(math.Abs(equal.ELBO-want.ELBO) < 1e-5) ||
		!mat.EqualApprox(same.At(x).Probs(), one.At(x).Probs(), 1e-4) {
		t.Errorf("equal priors: %v, want %v", equal, want)
	}
	// The bound is over all covariances, as for a single prior.
	if !(res.GapBound > 0 && res.GapBound < 1) || res.Scope != OverLargerFamily {
		t.Errorf("proved %v, %v", res.GapBound, res.Scope)
	}
	g, err := NewGLM(x, y, Softmax{}, opt(0.2, 1, 5))
	if err != nil {
		t.Fatal(err)
	}
	endsAlike(t, g, res)
	loo, err := g.LOO(context.Background(), post)
	if err != nil {
		t.Fatal(err)
	}
	rest, labels := x.Slice(1, 150, 0, 4), y[1:]
	without, _ := fitClasses(t, rest, labels, Softmax{}, opt(0.2, 1, 5), nil)
	if left := math.Log(without.At(x).Probs().At(0, int(y[0]))); !(math.Abs(loo.Pointwise[0]-left) <
		2.5*loo.PointErr[0]+1e-3) {
		t.Errorf("left out %v ± %v, refitted %v", loo.Pointwise[0], loo.PointErr[0], left)
	}
}

// TestClassesLearnEach learns a standard deviation for each class, with the classes in two
// orders, and saves the result.
func TestClassesLearnEach(t *testing.T) {
	x, y := noisyIris(t)
	ctx := context.Background()
	learn := func(y []float64, blocks []int) (*GLM, *GLMPosterior, *Learned) {
		g, err := NewGLM(x, y, Softmax{}, &GLMOptions{Intercept: true, Blocks: blocks})
		if err != nil {
			t.Fatal(err)
		}
		g, post, res, err := g.Learn(ctx, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return g, post, res
	}
	_, _, one := learn(y, nil)
	_, _, same := learn(y, make([]int, 12))
	if a, b := one.Params[0].Value, same.Params[0].Value; !(math.Abs(a-b) < 1e-3*a) {
		t.Errorf("one block of all classes: %v, want %v", b, a)
	}
	g, post, res := learn(y, []int{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2})
	_, _, next := learn(nextClass(y), []int{2, 2, 2, 2, 0, 0, 0, 0, 1, 1, 1, 1})
	for i, p := range res.Params {
		if q := next.Params[i]; !(math.Abs(math.Log(p.Value/q.Value)) < 0.01) {
			t.Errorf("%s is %v, and %v of classes in another order", p.Name, p.Value, q.Value)
		}
	}
	if a, b := res.Fit.ELBO, next.Fit.ELBO; !(math.Abs(a-b) < 1e-3) {
		t.Errorf("ELBO %v, and %v of classes in another order", a, b)
	}
	// The GLM that Learn returns has the learned standard deviations.
	again, fit, err := g.Fit(ctx, nil)
	if err != nil || !(math.Abs(fit.ELBO-res.Fit.ELBO) < 1e-4) {
		t.Errorf("fitted again: %v, want %v; %v", fit, res.Fit, err)
	}
	var file bytes.Buffer
	if err := post.Save(&file); err != nil {
		t.Fatal(err)
	}
	read, err := Load[*GLMPosterior](bytes.NewReader(file.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	// The second fit treats the standard deviations as known.
	if !mat.Equal(read.At(x).Probs(), post.At(x).Probs()) ||
		!mat.EqualApprox(again.At(x).Probs(), post.At(x).Probs(), 0.03) {
		t.Error("read or fitted again, it predicts otherwise")
	}
	var twice bytes.Buffer
	if err := read.Save(&twice); err != nil || !bytes.Equal(file.Bytes(), twice.Bytes()) {
		t.Errorf("saved again it is another file; %v", err)
	}
}

// TestClassesOwnPriorErrors checks the errors for invalid priors and blocks of classes.
func TestClassesOwnPriorErrors(t *testing.T) {
	x, y := noisyIris(t)
	mean, err := NewMeanField([]float64{0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0},
		slices.Repeat([]float64{1}, 12))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		opt  GLMOptions
		err  error
		says string
	}{
		{GLMOptions{Prior: eachPrior(t, 4, 1, 1)}, ErrShape, "or that number for each of 3 classes"},
		{GLMOptions{Prior: mean}, ErrParam, "mean 2 in weight 5"},
		{GLMOptions{Blocks: make([]int, 8)}, ErrShape, "or that number for each of 3 classes"},
		{GLMOptions{Blocks: []int{0, 0, 0, 0, 1, 1, 1, 1, 3, 3, 3, 3}}, ErrParam, "block 2"},
		{GLMOptions{Blocks: []int{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 12}}, ErrParam,
			"Blocks[11] is 12"},
	} {
		if _, err := NewGLM(x, y, Softmax{}, &c.opt); !errors.Is(err, c.err) ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, want an error with %q", err, c.says)
		}
	}
}
