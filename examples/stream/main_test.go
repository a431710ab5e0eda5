package main

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pgsvi/pgsvi"
)

// TestFile: the rows of the file are those that are made on the way, and a file
// of other rows is refused.
func TestFile(t *testing.T) {
	s := source{rows: 5000, cols: 3, seed: 4}
	file := filepath.Join(t.TempDir(), "rows")
	f, err := s.open(context.Background(), file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var made []pgsvi.Row
	for row := range s.all() {
		made = append(made, pgsvi.Row{Val: slices.Clone(row.Val), Y: row.Y})
	}
	i, ones := 0, 0
	for row, err := range f.All() {
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(row.Val, made[i].Val) || row.Y != made[i].Y {
			t.Fatalf("row %d is %v, want %v", i, row, made[i])
		}
		if row.Y > 0 {
			ones++
		}
		i++
	}
	if i != s.rows || math.Abs(float64(ones)-2500) > 200 {
		t.Errorf("%d rows, %d of them +1", i, ones)
	}
	if _, err := os.Stat(file + ".part"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file in the making is still there: %v", err)
	}
	if _, err := (source{rows: 4999, cols: 3}).open(context.Background(), file); err == nil {
		t.Error("a file of other rows is no error")
	}
}

func TestCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	file := filepath.Join(t.TempDir(), "rows")
	if _, err := (source{rows: 50000, cols: 2}).open(ctx, file); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is a file that is not complete: %v", err)
	}
}
