package draw

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// TestSave: each kind of plotter in a picture of either layout, and the first error instead of a
// file.
func TestSave(t *testing.T) {
	t.Parallel()
	x, y := []float64{1, 2, 3}, []float64{0.1, 0, 100}
	panel := func() *Panel {
		p := New("title", "x", "y")
		p.LogY()
		p.Curve("curve", x, y, Styles[0])
		p.Curve("no points", nil, nil, Styles[1])
		p.Points("points", x, y, Styles[1])
		p.Bars("bars", x, y, 0.01, 0.5, Light)
		p.Band("", x[:2], []float64{1, 2}, []float64{3, 4}, Pale)
		return p
	}
	plain := New("title", "x", "y")
	plain.Intervals("intervals", x, y, []float64{0, 0, 90}, []float64{1, 1, 110}, Styles[2])
	dir := t.TempDir()
	for name, save := range map[string]func(string) error{
		"beside": func(f string) error { return Save(f, 20, 10, panel(), plain) },
		"above":  func(f string) error { return SaveAbove(f, 10, 12, 4, panel(), plain) },
	} {
		file := filepath.Join(dir, name+".png")
		if err := save(file); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(file); err != nil || info.Size() < 5000 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	bad, file := panel(), filepath.Join(dir, "bad.png")
	reason := errors.New("no fit")
	bad.Fail(reason)
	bad.Fail(errors.New("a second one"))
	if err := Save(file, 10, 10, plain, bad); !errors.Is(err, reason) {
		t.Errorf("error %v, want %v", err, reason)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a picture in spite of an error")
	}
}

// TestLogY: what has no logarithm is not drawn, and the rest is where its logarithm is.
func TestLogY(t *testing.T) {
	t.Parallel()
	p := New("", "", "")
	p.LogY()
	got := p.points([]float64{1, 2, 3, 4}, []float64{0.01, 0, -1, math.NaN()})
	if len(got) != 1 || got[0].X != 1 || got[0].Y != -2 {
		t.Errorf("points %v", got)
	}
}

func TestTicks(t *testing.T) {
	t.Parallel()
	if got := round(0, 0.95); len(got) != 5 || got[0].Label != "0" || got[4].Value != 0.8 || got[4].Label != "0.8" {
		t.Errorf("round numbers up to 0.95: %v", got)
	}
	if got := decades(-9, 3); len(got) != 13 || got[0].Label != "" || got[1].Label != "1e-8" {
		t.Errorf("decades from 1e-9: %v", got)
	}
}
