package arith

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

// TestValues checks values and canonical texts for x = 3, z = −2 and `a b` = 0.5. R has the same
// values.
func TestValues(t *testing.T) {
	at := map[string]float64{"x": 3, "z": -2, "a b": 0.5}
	for _, c := range []struct {
		text, canonical string
		want            float64
	}{
		{"I(x)", "I(x)", 3},
		{"I( x*z )", "I(x * z)", -6},
		{"I(x^2)", "I(x^2)", 9},
		{"I(x**2)", "I(x^2)", 9},
		{"I(-x^2)", "I(-x^2)", -9},
		{"I((-x)^2)", "I((-x)^2)", 9},
		{"I(--x)", "I(--x)", 3},
		{"I(+x)", "I(x)", 3},
		{"I(x^z^2)", "I(x^z^2)", 81},
		{"I((x^z)^2)", "I((x^z)^2)", 1. / 81},
		{"I(2^-x)", "I(2^-x)", 0.125},
		{"I(2^-x^2)", "I(2^-x^2)", 1. / 512},
		{"I(2^-1*x)", "I(2^-1 * x)", 1.5},
		{"I(x-z-1)", "I(x - z - 1)", 4},
		{"I(x-(z-1))", "I(x - (z - 1))", 6},
		{"I(x+(z+1))", "I(x + (z + 1))", 2},
		{"I(x/z/2)", "I(x/z/2)", -0.75},
		{"I(x/(z/2))", "I(x/(z/2))", -3},
		{"I(x*(z/2))", "I(x * (z/2))", -3},
		{"I(x - z*`a b`)", "I(x - z * `a b`)", 4},
		{"I((x - z)*`a b`)", "I((x - z) * `a b`)", 2.5},
		{"I(x*-z)", "I(x * -z)", 6},
		{"I(-(x+z))", "I(-(x + z))", -1},
		{"I(-x*z)", "I(-x * z)", 6},
		{"I(-(x*z))", "I(-(x * z))", 6},
		{"I(1e3*x + .5 + 2.5E-1)", "I(1000 * x + 0.5 + 0.25)", 3000.75},
		{"I(x/1e+21)", "I(x/1e+21)", 3e-21},
		{"log(x)", "log(x)", math.Log(3)},
		{"log(x)/log(z)", "log(x)", math.Log(3)},
		{"log2(x + 5)", "log2(x + 5)", 3},
		{"log10(x + 97)", "log10(x + 97)", 2},
		{"log1p(x)", "log1p(x)", math.Log(4)},
		{"exp(log(x))", "exp(log(x))", math.Exp(math.Log(3))},
		{"sqrt(x - z*3)", "sqrt(x - z * 3)", 3},
		{"abs(z)", "abs(z)", 2},
		{"I(I(x) + abs)", "I(I(x) + abs)", math.NaN()}, // abs is a column
	} {
		e, n, err := Parse(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		var x []float64
		for i, name := range e.Columns {
			v, ok := at[name]
			if x = append(x, v); !ok {
				x[i] = math.NaN()
			}
			if !strings.HasPrefix(strings.Trim(c.text[e.At[i]:], "`"), name) {
				t.Errorf("%s: column %s at %d", c.text, name, e.At[i])
			}
		}
		if got := e.Value(x); math.Abs(got-c.want) > 1e-15*math.Abs(c.want) ||
			math.IsNaN(got) != math.IsNaN(c.want) {
			t.Errorf("%s: %v, want %v", c.text, got, c.want)
		}
		if got := e.String(); got != c.canonical || n > len(c.text) {
			t.Errorf("%s: %s of %d bytes, want %s", c.text, got, n, c.canonical)
		}
		if named, ok := Named(c.canonical); !ok || !slices.Equal(named.Columns, e.Columns) {
			t.Errorf("%s is not the name of a column", c.canonical)
		}
		if _, ok := Named(c.text); ok != (c.text == c.canonical) {
			t.Errorf("Named(%s) is %v", c.text, ok)
		}
	}
}

// TestParseErrors checks the place of mistakes; package formula tests the messages.
func TestParseErrors(t *testing.T) {
	for text, at := range map[string]int{
		"": 0, "x": 0, "I": 0, "sin(x)": 0, "I()": 2, "I(x": 3, "I(x+)": 4, "I(2)": 0, "I(x y)": 4,
		"I(x, 2)": 3, "I(x == 2)": 4, "I(x && z)": 4, "I(1.2.3*x)": 2, "I(1e999*x)": 2, "I(``)": 2,
		"I(`x)": 2, "I(sin(x))": 2, "I(x$z)": 3, "I(x^)": 4, "I(" + strings.Repeat("(", 200) + "x": 102,
		"I(" + strings.Repeat("-", 1e6) + "x)": 102,
	} {
		_, _, err := Parse(text)
		var wrong *Error
		if !errors.As(err, &wrong) || wrong.Offset != at || wrong.Message == "" {
			t.Errorf("%.40s: %v at %+v, want %d", text, err, wrong, at)
		}
	}
	for _, name := range []string{"", "x", "log", "log(", "log(x", "log(x))", "factor(x)", "(x)"} {
		if _, ok := Named(name); ok {
			t.Errorf("%s is a computed column", name)
		}
	}
}

// FuzzParse checks that the canonical text means the same function.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"I(x^2)", "log(x + 1)", "I(--x^-2^.5e+3/(z-(a-`b c`))**2)",
		"I(1e-2*x/(z/a)*-sqrt(abs(x)))", "exp(-(x*z))"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, n, err := Parse(text)
		if err != nil {
			var wrong *Error
			if !errors.As(err, &wrong) || wrong.Offset < 0 || wrong.Offset > len(text) {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		again, all, err := Parse(e.String())
		if err != nil || n > len(text) || all != len(e.String()) || again.String() != e.String() ||
			!slices.Equal(again.Columns, e.Columns) {
			t.Fatalf("%q is printed as %q, and then as %v: %v", text, e, again, err)
		}
		x := make([]float64, len(e.Columns))
		for i := range x {
			x[i] = 0.7 + 0.9*float64(i)
		}
		if a, b := e.Value(x), again.Value(x); math.Float64bits(a) != math.Float64bits(b) {
			t.Fatalf("%q is %v, but as %q it is %v", text, a, e, b)
		}
	})
}
