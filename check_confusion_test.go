package pgsvi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pgsvi/pgsvi/internal/score"
	"gonum.org/v1/gonum/mat"
)

func ExampleNewConfusion() {
	y := []float64{0, 0, 0, 1, 1, 2, 2, 2}
	decided := []float64{0, 0, 1, 1, 1, 2, 2, 0}
	c, err := NewConfusion(y, decided, []string{"cat", "dog", "fox"})
	if err != nil {
		panic(err)
	}
	fmt.Print(c)
	// Output:
	//   is \ decided    cat    dog    fox  recall
	//            cat      2      1      0   0.667
	//            dog      0      2      0   1.000
	//            fox      1      0      2   0.667
	//      precision  0.667  0.667  1.000   0.750
}

// TestConfusion checks the labels −1 and +1, rows without a decision, and mistakes.
func TestConfusion(t *testing.T) {
	c, err := NewConfusion([]float64{-1, 1, 1, -1, 1}, []float64{-1, 1, -1, -1, math.NaN()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(c.Names, c.Counts) != "[-1 +1] [[2 0] [1 1]]" || c.Error() != 0.25 || c.Recall(1) != 0.5 ||
		c.Precision(1) != 1 || c.Precision(0) != 2./3 {
		t.Errorf("%+v", c)
	}
	for _, bad := range []struct {
		y, decided []float64
		names      []string
		want       error
	}{
		{[]float64{0}, []float64{0, 1}, nil, ErrShape},
		{[]float64{0, 3}, []float64{0, 1}, []string{"a", "b"}, ErrLabel},
		{[]float64{0, 0.5}, []float64{0, 1}, nil, ErrLabel},
		{[]float64{-1, 0}, []float64{1, 1}, nil, ErrLabel},
		{[]float64{math.NaN(), 0}, []float64{1, 1}, nil, ErrLabel},
		{[]float64{1e300, 0}, []float64{1, 1}, nil, ErrLabel},
		{[]float64{-1, 1}, []float64{1, 1}, []string{"a", "b", "c"}, ErrShape},
		{[]float64{1}, []float64{math.NaN()}, nil, ErrEmpty},
		{nil, nil, nil, ErrEmpty},
	} {
		if _, err := NewConfusion(bad.y, bad.decided, bad.names); !errors.Is(err, bad.want) {
			t.Errorf("%v, %v, %q: %v, want %v", bad.y, bad.decided, bad.names, err, bad.want)
		}
	}
}

// TestDecide checks decisions against the probabilities, with and without costs.
func TestDecide(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 9))
	const n, k = 60, 3
	x, y := mat.NewDense(n, 2, nil), make([]float64, n)
	for i := range n {
		y[i] = float64(rng.IntN(k))
		x.SetRow(i, []float64{y[i] + rng.NormFloat64(), rng.NormFloat64()})
	}
	signs := make([]float64, n)
	for i, c := range y {
		signs[i] = 2*min(c, 1) - 1
	}
	cost := mat.NewDense(k, k, []float64{0, 1, 5, 2, 0, 1, 1, 1, -1})
	for _, c := range []struct {
		lik  Likelihood
		y    []float64
		cost mat.Matrix
	}{
		{Softmax{}, y, nil}, {Softmax{}, y, cost}, {BernoulliLogit{}, signs, nil},
		{BernoulliLogit{}, signs, mat.NewDense(2, 2, []float64{0, 1, 20, 0})},
	} {
		glm, err := NewGLM(x, c.y, c.lik, &GLMOptions{Intercept: true})
		if err != nil {
			t.Fatal(err)
		}
		post, _, err := glm.Fit(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		at := post.At(x)
		decided, err := at.Decide(c.cost)
		if err != nil {
			t.Fatal(err)
		}
		probs := at.Probs()
		_, r := probs.Dims()
		for i, d := range decided {
			got := d
			if r == 2 {
				got = (d + 1) / 2
			}
			expected := func(d int) (sum float64) {
				for j := range r {
					switch {
					case c.cost != nil:
						sum += probs.At(i, j) * c.cost.At(j, d)
					case j != d:
						sum += probs.At(i, j)
					}
				}
				return sum
			}
			for other := range r {
				if expected(other) < expected(int(got))-1e-12 {
					t.Fatalf("%T row %d: decided %v, and %d costs less", c.lik, i, d, other)
				}
			}
		}
		for _, bad := range []struct {
			cost mat.Matrix
			want error
		}{
			{mat.NewDense(1, 1, nil), ErrShape},
			{mat.NewDense(r, r, append(make([]float64, r*r-1), math.Inf(1))), ErrNotFinite},
		} {
			if _, err := at.Decide(bad.cost); !errors.Is(err, bad.want) {
				t.Errorf("%v, want %v", err, bad.want)
			}
		}
	}
	glm, err := NewGLM(x, y, GaussianNoise{Var: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	post, _, err := glm.Fit(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := post.At(x).Decide(nil); !errors.Is(err, ErrParam) {
		t.Errorf("decisions on real numbers: %v", err)
	}
}

// TestCalibrationOf checks that of a label beside Calibration, and that of classes against counts.
func TestCalibrationOf(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 9))
	const n = 90
	x, y, signs := mat.NewDense(n, 1, nil), make([]float64, n), make([]float64, n)
	for i := range n {
		y[i] = float64(rng.IntN(3))
		signs[i] = 2*min(y[i], 1) - 1
		x.Set(i, 0, y[i]+rng.NormFloat64())
	}
	at := func(lik Likelihood, y []float64) *Prediction {
		glm, err := NewGLM(x, y, lik, &GLMOptions{Intercept: true})
		if err != nil {
			t.Fatal(err)
		}
		post, _, err := glm.Fit(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return post.At(x)
	}
	two := at(BernoulliLogit{}, signs)
	a, err := two.Calibration(signs, 5)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := two.CalibrationOf(1, signs, 5); err != nil || fmt.Sprint(a) != fmt.Sprint(b) {
		t.Errorf("%v, %v, want %v", b, err, a)
	}
	three := at(Softmax{}, y)
	for c := range 3 {
		cal, err := three.CalibrationOf(float64(c), y, 4)
		if err != nil {
			t.Fatal(err)
		}
		rows, seen, want := 0, 0.0, 0.0
		for _, b := range cal.Bins {
			rows += b.Rows
			seen += float64(b.Rows) * b.Observed
		}
		for _, v := range y {
			want += score.Indicator(v == float64(c))
		}
		if rows != n || math.Abs(seen-want) > 1e-9 {
			t.Errorf("class %d: %d rows, %v of them, want %v", c, rows, seen, want)
		}
	}
	for _, bad := range []struct {
		response float64
		y        []float64
		bins     int
		want     error
	}{{3, y, 0, ErrLabel}, {0, y[1:], 0, ErrShape}, {0, signs, 0, ErrLabel}, {0, y, -1, ErrParam}} {
		if _, err := three.CalibrationOf(bad.response, bad.y, bad.bins); !errors.Is(err, bad.want) {
			t.Errorf("%v, %d bins: %v, want %v", bad.response, bad.bins, err, bad.want)
		}
	}
}
