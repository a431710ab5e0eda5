package main

import (
	"slices"
	"testing"
)

func TestSignLabels(t *testing.T) {
	for _, c := range []struct {
		train, test, want []float64 // want is nil for an error
	}{
		{[]float64{-1, 1}, []float64{1, -1}, []float64{-1, 1, 1, -1}},
		{[]float64{0, 1}, []float64{1, 0}, []float64{-1, 1, 1, -1}},
		{[]float64{0, 1}, nil, []float64{-1, 1}},
		{[]float64{1, 1}, nil, []float64{1, 1}},
		{[]float64{-1, 0, 1}, nil, nil},
		{[]float64{-1, 1}, []float64{0, 1}, nil},
		{[]float64{1, 2}, nil, nil},
	} {
		train, test := slices.Clone(c.train), slices.Clone(c.test)
		err := signLabels(train, test)
		got := slices.Concat(train, test)
		if (err != nil) != (c.want == nil) || err == nil && !slices.Equal(got, c.want) {
			t.Errorf("labels %v and %v: %v, error %v; want %v", c.train, c.test, got, err, c.want)
		}
	}
}
