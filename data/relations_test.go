package data

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// A frame is a table to change: names and rows of texts.
type frame struct {
	names []string
	rows  [][]string
}

func (f *frame) copy() *frame {
	g := &frame{names: slices.Clone(f.names)}
	for _, r := range f.rows {
		g.rows = append(g.rows, slices.Clone(r))
	}
	return g
}

// mapped returns the frame with one column changed.
func (f *frame) mapped(name string, change func(string) string) *frame {
	g, j := f.copy(), slices.Index(f.names, name)
	for _, r := range g.rows {
		r[j] = change(r[j])
	}
	return g
}

func (f *frame) csv() string {
	var b strings.Builder
	b.WriteString(strings.Join(f.names, ",") + "\n")
	for _, r := range f.rows {
		b.WriteString(strings.Join(r, ",") + "\n")
	}
	return b.String()
}

// randomFrame returns a table with the outcomes y (a number), n (a count) and b (0 or 1), and
// features of several kinds: x and z are numbers, f has four levels, g is no or yes, and h is the
// same as 0 or 1. w is a weight and s a group.
func randomFrame(rng *rand.Rand, rows int) *frame {
	f := &frame{names: []string{"y", "n", "b", "x", "z", "f", "g", "h", "w", "s"}}
	for range rows {
		x, z := 20+5*rng.NormFloat64(), math.Exp(rng.NormFloat64())
		level, g, s := rng.IntN(4), rng.IntN(2), rng.IntN(9)
		eta := 0.1*(x-20) + 0.3*math.Log(z) + 0.4*float64(level%3)*float64(g) +
			0.3*math.Sin(float64(s))
		n := 0
		for t := rng.ExpFloat64(); t < math.Exp(eta); t += rng.ExpFloat64() {
			n++
		}
		b := 0
		if rng.Float64() < 1/(1+math.Exp(-eta)) {
			b = 1
		}
		f.rows = append(f.rows, []string{
			fmt.Sprintf("%.5g", 3+2*eta+rng.NormFloat64()), strconv.Itoa(n), strconv.Itoa(b),
			fmt.Sprintf("%.6g", x), fmt.Sprintf("%.6g", z), string("pqrs"[level]),
			[]string{"no", "yes"}[g], strconv.Itoa(g), strconv.Itoa(1 + rng.IntN(3)),
			fmt.Sprintf("s%d", s)})
	}
	return f
}

// predicted fits a formula to some rows and predicts others.
func predicted(t *testing.T, f, rows *frame, text string, lik pgsvi.Likelihood,
	columns ...Column) []float64 {
	t.Helper()
	m := mustModel(t, tableOf(t, f.csv()), text, columns...)
	lik, opt, err := m.Options(lik, nil)
	if err != nil {
		t.Fatal(err)
	}
	if opt.Learn != nil {
		opt.Learn.Tol = 1e-13
	}
	glm, err := pgsvi.NewGLM(m.X, m.Y, lik, opt)
	if err != nil {
		t.Fatal(err)
	}
	post, _, err := glm.Fit(context.Background(), &pgsvi.Solver{Goal: 1e-12})
	if err != nil {
		t.Fatal(err)
	}
	p, err := m.Predictor(post)
	if err != nil {
		t.Fatal(err)
	}
	var all []float64
	for a, err := range p.Table(tableOf(t, rows.csv()), 0.9) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, a.Mean, a.Lo, a.Hi)
	}
	return all
}

// TestRelations checks that predictions do not depend on how a table and a formula are written:
// units and shifts of numbers, the order of rows, columns, levels and terms, names, repeated rows
// instead of weights, and 0 and 1 instead of no and yes.
func TestRelations(t *testing.T) {
	formulas := []string{
		"x*f + log(z)", "s(x) + g + (1 | s)", "x*g*f + (1 | s)", "poly(x, 3) + f*g",
		"f + f:x + z", "f:g + x", "x + h + z*f", "0 + f + x", "f:x:g + f:g",
		"x + w + weight(w)", "s + x + (1 | s)",
	}
	for seed := range uint64(testkit.Longer(20, testkit.Shorter(2, 1))) {
		for _, rhs := range formulas {
			rng := rand.New(rand.NewPCG(seed, 8))
			train, test := randomFrame(rng, 80+rng.IntN(80)), randomFrame(rng, 6)
			kind := int(seed) + len(rhs)
			y := []string{"y", "n", "b"}[kind%3]
			lik := []pgsvi.Likelihood{nil, pgsvi.Poisson{}, nil}[kind%3]
			text := y + " ~ " + rhs
			want := predicted(t, train, test, text, lik)
			check := func(name string, got []float64) {
				t.Helper()
				far := 0.
				for i, w := range want {
					far = max(far, math.Abs(got[i]-w)/(1+math.Abs(w)))
				}
				if !(far < 1e-6) {
					t.Errorf("seed %d, %s, %s: predictions differ by %.2g", seed, text, name, far)
				}
			}
			both := func(change func(*frame) *frame) []float64 {
				return predicted(t, change(train), change(test), text, lik)
			}
			if !strings.Contains(rhs, "f:x:g") {
				check("shift and unit of x", both(func(f *frame) *frame {
					return f.mapped("x", func(s string) string {
						v, _ := strconv.ParseFloat(s, 64)
						return strconv.FormatFloat(-300+1000*v, 'g', 15, 64)
					})
				}))
			}
			if strings.Contains(rhs, "log(z)") || !strings.Contains(rhs, "z") {
				check("unit of z", both(func(f *frame) *frame {
					return f.mapped("z", func(s string) string {
						v, _ := strconv.ParseFloat(s, 64)
						return strconv.FormatFloat(0.001*v, 'g', 17, 64)
					})
				}))
			}
			check("unit of h", both(func(f *frame) *frame {
				return f.mapped("h", func(s string) string {
					return map[string]string{"0": "0", "1": "10"}[s]
				})
			}))
			check("levels in another order", both(func(f *frame) *frame {
				f = f.mapped("f", func(s string) string { return string('z' - s[0] + 'a') })
				if strings.HasPrefix(rhs, "s ") { // with equally frequent levels, likely
					return f
				}
				return f.mapped("s", func(s string) string { return string('z'-s[1]+'0') + "s" })
			}))
			check("columns in another order", both(func(f *frame) *frame {
				g := f.copy()
				slices.Reverse(g.names)
				for _, r := range g.rows {
					slices.Reverse(r)
				}
				return g
			}))
			shuffled := train.copy()
			rng.Shuffle(len(shuffled.rows), func(i, j int) {
				shuffled.rows[i], shuffled.rows[j] = shuffled.rows[j], shuffled.rows[i]
			})
			check("rows in another order", predicted(t, shuffled, test, text, lik))
			terms := strings.Split(rhs, " + ")
			if terms[0] != "0" && !strings.Contains(rhs, "(1 | s)") {
				slices.Reverse(terms)
				check("terms in another order", predicted(t, train, test,
					y+" ~ "+strings.Join(terms, " + "), lik))
			}
			check("repeated terms", predicted(t, train, test, text+" + "+terms[len(terms)-1], lik))
			if long := strings.NewReplacer("x*f", "x + f + x:f", "f*g", "f + g + g:f", "z*f",
				"f + z + z:f").Replace(rhs); long != rhs && !strings.Contains(rhs, "x*g*f") {
				check("a*b written out", predicted(t, train, test, y+" ~ "+long, lik))
			}
			numbers := func(f *frame) *frame {
				return f.mapped("g", func(s string) string {
					return map[string]string{"no": "0", "yes": "1"}[s]
				})
			}
			if !strings.Contains(rhs, ":g") && !strings.Contains(rhs, "g:") {
				check("0 and 1 for no and yes", both(numbers))
			}
			if y == "b" {
				check("no and yes for 0 and 1", both(func(f *frame) *frame {
					return f.mapped("b", func(s string) string {
						return s[:0] + map[string]string{
							"0": "no", "1": "yes"}[s]
					})
				}))
			}
			renamed := func(f *frame) *frame {
				g := f.copy()
				g.names[slices.Index(g.names, "x")] = "Größe in m²"
				g.names[slices.Index(g.names, "f")] = "my f"
				return g
			}
			check("names with spaces", predicted(t, renamed(train), renamed(test),
				y+" ~ "+strings.NewReplacer("x", "`Größe in m²`", "f", "`my f`", "offset",
					"offset").Replace(rhs), lik))
			if !strings.Contains(rhs, "w") {
				weighted := predicted(t, train, test, text+" + weight(w)", lik)
				repeated := &frame{names: train.names}
				for _, r := range train.rows {
					k, _ := strconv.Atoi(r[slices.Index(train.names, "w")])
					for range k {
						repeated.rows = append(repeated.rows, r)
					}
				}
				want = predicted(t, repeated, test, text, lik)
				check("weights for equal rows", weighted)
			}
		}
	}
}
