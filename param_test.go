package pgsvi

import (
	"errors"
	"math"
	"testing"
)

func TestCheckParams(t *testing.T) {
	t.Parallel()
	inf, nan := math.Inf(1), math.NaN()
	good := []Param{{"Scale", 1e-300, 0, inf}, {"[1].Linear.Scale", 3, 0, inf}, {"Cuts[0]", -2, -inf, inf}, {"Prob", 0.5, 0, 1}}
	if err := checkParams("Sum", good); err != nil {
		t.Errorf("valid parameters: %v", err)
	}
	err := checkParams("Sum", []Param{
		{"Scale", 0, 0, inf}, good[0], {"[1].Linear.Scale", nan, 0, inf}, {"Cuts[0]", inf, -inf, inf}, {"Prob", 1, 0, 1}, {"Prob", -0.5, 0, 1},
	})
	want := "pgsvi: Sum.Scale is 0, want a positive number: parameter out of range\n" +
		"pgsvi: Sum[1].Linear.Scale is NaN, want a positive number: parameter out of range\n" +
		"pgsvi: Sum.Cuts[0] is +Inf, want a finite number: parameter out of range\n" +
		"pgsvi: Sum.Prob is 1, want a number between 0 and 1: parameter out of range\n" +
		"pgsvi: Sum.Prob is -0.5, want a number between 0 and 1: parameter out of range"
	if !errors.Is(err, ErrParam) || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}
