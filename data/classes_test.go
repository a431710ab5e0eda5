package data

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
)

// flowers returns a table of n rows. The class, one of three names, depends on two numbers.
func flowers(n int, names ...string) string {
	rng := rand.New(rand.NewPCG(5, 6))
	var b strings.Builder
	b.WriteString("length,width,kind\n")
	for range n {
		c := rng.IntN(len(names))
		fmt.Fprintf(&b, "%.2f,%.2f,%s\n", 2*float64(c)+rng.NormFloat64(),
			float64(c%2)+rng.NormFloat64(), names[c])
	}
	return b.String()
}

func fitClasses(t *testing.T, m *Model) (*pgsvi.GLMPosterior, *Predictor) {
	t.Helper()
	glm, err := m.GLM(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	post, _, err := glm.Fit(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := m.Predictor(post)
	if err != nil {
		t.Fatal(err)
	}
	return post, p
}

// TestClasses fits texts as classes and checks names, answers, scores and the saved predictor.
func TestClasses(t *testing.T) {
	table := tableOf(t, flowers(90, "rose", "lily", "iris"))
	m := mustModel(t, table, "kind ~ length + width")
	post, p := fitClasses(t, m)
	if want := []string{"iris", "lily", "rose"}; !slices.Equal(p.Classes(), want) {
		t.Errorf("classes %q, want %q", p.Classes(), want)
	}
	if got := post.Names()[0]; !strings.HasPrefix(got, "class=iris · ") {
		t.Errorf("weights %q", post.Names())
	}
	if n := len(m.Summary(post).Rows); n != 9 {
		t.Errorf("a summary of %d rows, want 9", n)
	}
	if s := m.String(); !strings.Contains(s, "a score for each of 3 classes") {
		t.Error(s)
	}
	a, err := p.Predict(map[string]any{"length": 4.5, "width": 0})
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, q := range a.Probs {
		sum += q
	}
	if a.Label != "iris" || a.Mean != slices.Max(a.Probs) || !(math.Abs(sum-1) < 1e-9) ||
		!(a.Lo < a.Mean && a.Mean < a.Hi) {
		t.Errorf("%+v", a)
	}
	if want := fmt.Sprintf("iris: %.2f (%.2f to %.2f)", a.Mean, a.Lo, a.Hi); a.String() != want {
		t.Errorf("%s, want %s", a, want)
	}
	s, err := p.Score(table)
	if err != nil {
		t.Fatal(err)
	}
	at := post.At(m.X)
	decided, err := at.Decide(nil)
	if err != nil {
		t.Fatal(err)
	}
	bits, wrong := 0.0, 0.0
	for i, l := range at.LogProb(nil, m.Y) {
		if bits -= l / math.Ln2; decided[i] != m.Y[i] {
			wrong++
		}
	}
	n := float64(len(m.Y))
	loss, _ := s.Value("log loss")
	accuracy, _ := s.Value("accuracy")
	if s.Rows != 90 || !(math.Abs(loss/math.Ln2-bits/n) < 1e-9) ||
		!(math.Abs(1-accuracy-wrong/n) < 1e-12) {
		t.Errorf("score %+v, want %v bits and an error of %v", s, bits/n, wrong/n)
	}
	var file bytes.Buffer
	if err := p.Save(&file); err != nil {
		t.Fatal(err)
	}
	q, err := LoadPredictor(&file)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := q.Predict(map[string]any{"length": 4.5, "width": 0}); err != nil ||
		!slices.Equal(b.Probs, a.Probs) {
		t.Errorf("loaded: %+v, %v", b, err)
	}
	b, err := p.Predict(map[string]any{"length": 4.5, "width": 0, "kind": "tulip"})
	if err != nil || !slices.Equal(b.Probs, a.Probs) || !math.IsNaN(b.LogProb) ||
		!strings.Contains(b.String(), `"tulip"`) {
		t.Errorf("a class that training has not seen: %v, %v", b, err)
	}
}

// TestClassesNumbered fits whole numbers, even if there are only two, as classes if they are
// declared so.
func TestClassesNumbered(t *testing.T) {
	for _, names := range [][]string{{"9", "10", "30"}, {"1", "2"}, {"no", "yes"}} {
		table := tableOf(t, flowers(60, names...))
		m, err := table.Model("kind ~ length", Outcome("kind").Classes())
		if err != nil {
			t.Fatal(err)
		}
		_, p := fitClasses(t, m)
		if !slices.Equal(p.Classes(), names) {
			t.Errorf("classes %q, want %q", p.Classes(), names)
		}
		if lik, opt, err := m.Options(pgsvi.Softmax{}, nil); err != nil ||
			lik.(pgsvi.Softmax).Classes != len(names) || !slices.Equal(opt.ClassNames, names) {
			t.Errorf("options: %v, %+v, %v", lik, opt, err)
		}
	}
}

// TestClassesMistakes checks that an unsuitable likelihood for classes is an error with a reason.
func TestClassesMistakes(t *testing.T) {
	three := mustModel(t, tableOf(t, flowers(60, "a", "b", "c")), "kind ~ length")
	two, err := tableOf(t, flowers(60, "a", "b")).Model("kind ~ length",
		Outcome("kind").Positive("b"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		m    *Model
		lik  pgsvi.Likelihood
		want string
		is   error
	}{
		{three, pgsvi.Poisson{}, `has 3 classes, "a", "b", "c"`, pgsvi.ErrLabel},
		{three, pgsvi.BernoulliLogit{}, `has 3 classes`, pgsvi.ErrLabel},
		{three, pgsvi.Softmax{Classes: 4}, `Softmax has 4 classes`, pgsvi.ErrParam},
		{two, pgsvi.Softmax{}, `declare Outcome("kind").Classes()`, pgsvi.ErrLabel},
		{mustModel(t, tableOf(t, flowers(60, "1", "2", "3")), "kind ~ length"), nil,
			"Softmax{} for class numbers", pgsvi.ErrParam},
	} {
		if _, err := c.m.GLM(c.lik, nil); !errors.Is(err, c.is) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%T: %v, want %s", c.lik, err, c.want)
		}
	}
	post, _ := fitClasses(t, three)
	if _, err := two.Predictor(post); !errors.Is(err, pgsvi.ErrShape) {
		t.Errorf("a posterior of three classes for two labels: %v", err)
	}
}
