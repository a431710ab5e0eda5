package pgsvi

import (
	"context"
	"errors"
	"testing"
)

func solve(t *testing.T, s Solver, m Model) *Result {
	t.Helper()
	res, err := s.Run(context.Background(), m)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

var errUser = errors.New("the disk is full")
