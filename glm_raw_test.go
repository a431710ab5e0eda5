package pgsvi

import (
	"context"
	"errors"
	"math"
	"testing"
)

// TestStreamSalvage checks that one row without finite expectations does not spoil its block.
func TestStreamSalvage(t *testing.T) {
	s := newStream(t, 1, Poisson{}, nil)
	learnInBlocks(s, 1024)
	err := s.AddAll(context.Background(), func(yield func(Row, error) bool) {
		for i := range 1024 {
			r := Row{Val: []float64{1}, Y: 2}
			if i == 1000 {
				r.Offset = 1e5 // too far for the other rows to compensate
			}
			if !yield(r, nil) {
				return
			}
		}
	})
	if !errors.Is(err, ErrNotFinite) || s.Len() != 1023 {
		t.Errorf("%v, %d rows", err, s.Len())
	}
	if p := streamPosterior(t, s); math.Abs(p.Mean(nil)[0]-math.Log(2)) > 0.05 {
		t.Errorf("mean %v, want log 2", p.Mean(nil))
	}
}
