package expect

import (
	"math"

	"github.com/pgsvi/pgsvi/internal/special"
)

// genzKeister holds the nodes x ≥ 0 and the weights of the nested rules of Genz and Keister
// (1996) for N(0, 1), with one rule per row. The node −x has the weight of x. Each rule adds
// nodes to the previous rule, for totals of 9, 19 and 35. They are exact for polynomials of
// degree 15, 29 and 51.
var genzKeister = [...][]quadNode{
	{
		{0, 0.25396825396825403},
		{1.7320508075688772, 0.0948509485094851114},
		{0.74109534999454085, 0.270074329577937823},
		{2.8612795760570582, 0.00799632547089353309},
		{4.1849560176727323, 0.0000942694575565173277},
	},
	{
		{0, 0.303467199854205864},
		{1.7320508075688772, 0.064096054686807604},
		{0.74109534999454085, 0.208324991649608889},
		{2.8612795760570582, -0.00633722479337376032},
		{4.1849560176727323, 0.0000601233694598477208},
		{1.230423634027306, 0.0611517301252476511},
		{2.5960831150492024, 0.0180852342547984724},
		{3.2053337944991944, 0.00288488043650675703},
		{5.1870160399136562, 6.09480873146897383e-7},
		{6.3633944943363696, 8.62968460222992422e-10},
	},
	{
		{0, 0.00051489450806882697},
		{1.7320508075688772, 0.0452736854651505261},
		{0.74109534999454085, 0.148070831155216019},
		{2.8612795760570582, 0.00231134524035221501},
		{4.1849560176727323, 0.0000357293481989750182},
		{1.230423634027306, 0.0923647267169862881},
		{2.5960831150492024, 0.00315544626918754742},
		{3.2053337944991944, 0.000818953927502263479},
		{5.1870160399136562, 2.46764213457981445e-7},
		{6.3633944943363696, 4.60117603486562968e-10},
		{0.24899229757996061, 0.191760115888044402},
		{2.2336260616769419, 0.0156734737518511646},
		{3.6353185190372783, 0.000275242141167851948},
		{5.6981777684881099, 2.13941944795610335e-8},
		{7.1221067008046166, 3.09722235760631844e-12},
		{7.9807717985905609, 5.45004126506369666e-15},
		{9.0169397898903032, 1.05413265823329893e-18},
		{4.7364330859522967, 2.73422068011878328e-6},
	},
}

// nestedSafety is the factor between the estimated error of Nested and the reported error. The
// largest observed ratio of the true error to the estimate was 5, at a kink.
const nestedSafety = 8

// Nested returns the expectations of the three components of f over u ~ N(0, 1). It tries nested
// rules with 9, 19 and 35 nodes, and stops when a rule agrees with the previous rule to within
// tol in every component, relative to the integral of its absolute value. The estimate of the
// error is like the estimate of Adaptive, with a safety factor. Nested reports false if no two
// rules agree or if f reports that it has no value at a node. The other results are then invalid.
//
// Nested does not see what happens between the nodes, which are a quarter of a standard deviation
// apart near the mean. The root package tries it before Adaptive, for likelihoods without a
// formula.
func Nested(f func(u float64) (y [3]float64, ok bool), tol float64) (t quadSum, ok bool) {
	var at [2 * 18][3]float64 // node k has values 2k at x and 2k+1 at −x
	known := 0
	for r, rule := range genzKeister {
		for ; known < len(rule); known++ {
			for side, x := range [2]float64{rule[known].x, -rule[known].x} {
				if side == 1 && x == 0 {
					continue // the center counts once
				}
				if at[2*known+side], ok = f(x); !ok {
					return t, false
				}
			}
		}
		last := t.Sum
		t = quadSum{}
		for k, n := range rule {
			for c := range 3 {
				a, b := at[2*k][c], at[2*k+1][c]
				t.Sum[c] += n.w * (a + b)
				t.abs[c] += math.Abs(n.w) * (math.Abs(a) + math.Abs(b))
			}
		}
		if r == 0 {
			continue
		}
		agree := true
		for c, abs := range t.abs {
			if abs == 0 {
				continue
			}
			d := math.Abs(t.Sum[c]-last[c]) / abs
			d = min(d, 200*d*math.Sqrt(200*d))
			agree = agree && d <= tol
			t.Err[c] = abs * (nestedSafety*d + 4*special.Eps)
		}
		if agree {
			return t, true
		}
	}
	return t, false
}
