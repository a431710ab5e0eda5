package table

import (
	"math"
	"testing"
)

// TestAlign checks that decimal points stand below each other.
func TestAlign(t *testing.T) {
	lines := [][]string{{"", "mean"}, {"a", "1.25"}, {"length", "−10.5"}, {"μ", "3"}}
	Align(lines)
	want := [][]string{{"      ", "  mean"}, {"a     ", "  1.25"}, {"length", "−10.5 "},
		{"μ     ", "  3   "}}
	for i := range want {
		for j := range want[i] {
			if lines[i][j] != want[i][j] {
				t.Errorf("cell (%d, %d) is %q, want %q", i, j, lines[i][j], want[i][j])
			}
		}
	}
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Rounded("%.*f", -3.14159, 0.04), "−3.14"},
		{Rounded("%+.*f", 3.14159, 0.014), "+3.142"},
		{Rounded("%.*f", 3.14159, 400), "3"},
		{Rounded("%.*f", 2e12, 1), "2e+12"},
		{Precise(3.14159265, 0.04), "3.14159"},
		{Precise(-3.14159265, 0), "-3.14159"},
		{Precise(1e-12, 1e-12), "1.000e-12"},
		{Precise(2.16641234e9, 71643619), "2.16641e+09"},
		{Precise(71643619, 71643619), "7.164e+07"},
		{Precise(0, 71643619), "0.000e+00"},
		{Precise(1e9+0.25, 0.1), "1.0000000002500e+09"},
		{Precise(905537.5, 111644), "905538"},
		{Precise(math.Inf(1), 1), "+Inf"},
		{Minus("-1 to -2"), "−1 to −2"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}
