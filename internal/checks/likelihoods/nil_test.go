package likelihoods

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
)

// byValue is a Likelihood whose methods panic if they are called with a nil *byValue.
type byValue struct{ precision float64 }

func (l byValue) LogProb(y, eta float64) float64 { return -l.precision * (y - eta) * (y - eta) }

func (l byValue) Facts() Facts { return Facts{LogConcave: l.precision > 0} }

// byPointer is a Likelihood whose only method panics if it is called with a nil *byPointer.
type byPointer struct{ precision float64 }

func (l *byPointer) LogProb(y, eta float64) float64 { return -l.precision * (y - eta) * (y - eta) }

// TestNilPointers checks that every constructor returns an error for a likelihood or kernel that is
// a nil pointer, before it calls a method of it.
func TestNilPointers(t *testing.T) {
	x := mat.NewDense(3, 1, []float64{0, 1, 2})
	rows := [][]float64{{0}, {1}, {2}}
	y := []float64{0.1, 0.8, 0.9}
	check := func(name, text string, build func() error) {
		t.Helper()
		defer func() {
			if r := recover(); r != nil {
				t.Errorf("%s with %s panics: %v", name, text, r)
			}
		}()
		err := build()
		if !errors.Is(err, ErrParam) || !strings.Contains(fmt.Sprint(err), text) {
			t.Errorf("%s with %s: error %v", name, text, err)
		}
	}
	for _, lik := range []Likelihood{(*byValue)(nil), (*byPointer)(nil), (*StudentT)(nil),
		(*Softmax)(nil)} {
		text := fmt.Sprintf("the Likelihood is a nil %T", lik)
		check("NewGLM", text, func() error {
			_, err := NewGLM(x, y, lik, nil)
			return err
		})
		check("NewGP", text, func() error {
			_, err := NewGP(x, y, SquaredExp{}, lik, nil)
			return err
		})
		check("NewSparseGP", text, func() error {
			_, err := NewSparseGP(x, y, SquaredExp{}, lik, nil)
			return err
		})
		check("NewGLMStream", text, func() error {
			_, err := NewGLMStream(1, lik, nil)
			return err
		})
		check("NewGLMRounds", text, func() error {
			_, err := NewGLMRounds(1, lik, nil)
			return err
		})
		check("Sites", text, Sites{X: rows, Y: y, Lik: lik}.Validate)
		check("LikelihoodFactor", text, func() error {
			var g Graph
			u := g.Block("u", 1, NewIsotropic(1, 1))
			g.Add(LikelihoodFactor(y, u.Dot(rows), lik))
			_, err := g.Objective()
			return err
		})
		check("NewPrediction", text, func() error {
			p := NewPrediction(lik, []float64{0}, []float64{1})
			_ = p.String()
			return p.Err()
		})
	}
	for _, c := range []struct {
		kernel Kernel
		text   string
	}{
		{(*Linear)(nil), "Kernel is a nil *pgsvi.Linear"},
		{Sum{SquaredExp{}, (*Periodic)(nil)}, "Sum[1] is a nil *pgsvi.Periodic"},
		{On{Kernel: (*Linear)(nil)}, "On.Kernel is nil"},
	} {
		check("NewGP", c.text, func() error {
			_, err := NewGP(x, y, c.kernel, nil, nil)
			return err
		})
		check("NewSparseGP", c.text, func() error {
			_, err := NewSparseGP(x, y, c.kernel, nil, nil)
			return err
		})
	}
}
