package fma

import "math"

// expFast returns e^gumbelLeast for smaller arguments, so that 2ⁿ is a single factor.
const gumbelLeast = -690

// gumbelPoly holds the coefficients of p in e^r = 1 + r + r²p(r) for |r| ≤ ½ log 2. Its error is
// 1e-14.
var gumbelPoly = [8]float64{
	0x1.fffffffff13c3p-2, 0x1.5555555589fb1p-3, 0x1.5555557df57a8p-5, 0x1.1111108e18dd2p-7,
	0x1.6c163bdae7f73p-10, 0x1.a01b73a6fce4bp-13, 0x1.a16e44c113d04p-16, 0x1.71017b7eda279p-19,
}

// Gumbel stores sums over the nodes (x, w) of a rule, x ≥ 0, for each e ≥ 0:
//
//	f0 = Σ w g   f1 = Σ w g ex   f2 = Σ w g (ex)²,   g = exp(−ex).
//
// With e = e^−u, f0 is a mixture of distribution functions of Gumbel variables about log x, and
// its derivatives follow from f1 and f2. The relative error is 2e-14, except that exp(−ex) is
// never below e^−690. It panics if the length is not a multiple of 8. Package expect calls it and
// the other functions of this file for softmax models.
func Gumbel(rule [][2]float64, e, f0, f1, f2 []float64) {
	n := len(e)
	shapes(n%8 == 0)
	pathGumbel(rule, e, f0[:n], f1[:n], f2[:n])
}

// gumbel implements Gumbel in Go.
func gumbel(rule [][2]float64, e, f0, f1, f2 []float64) {
	for i, a := range e {
		var y0, y1, y2 float64
		for _, n := range rule {
			x := -float64(n[0] * a)
			g := float64(expFast(x) * n[1])
			y0 += g
			g = float64(g * x)
			y1 -= g
			y2 = math.FMA(g, x, y2)
		}
		f0[i], f1[i], f2[i] = y0, y1, y2
	}
}

// expFast returns e^x for x ≤ 0, or e^gumbelLeast if that is larger.
func expFast(x float64) float64 {
	if x < gumbelLeast {
		x = gumbelLeast
	}
	t := math.FMA(x, logE, expMagic)
	x = math.FMA(-(t - expMagic), logTwo, x)
	p := gumbelPoly[7]
	for k := 6; k >= 0; k-- {
		p = math.FMA(p, x, gumbelPoly[k])
	}
	g := 1 + math.FMA(x*x, p, x)
	return math.Float64frombits(math.Float64bits(g) + math.Float64bits(t)<<exponent)
}

// Bell stores, in each of the 8 lanes i, sums over the rows j of a table with an even number of
// rows,
//
//	f_k[i] = Σ_j w_i r_iʲ q^(j(j−1)/2) t_j[k],   k = 0, 1, 2.
//
// The weights are Gaussian densities at equally spaced points. Even and odd rows have separate
// sums, which are added at the end.
func Bell(table [][3]float64, w, r *[8]float64, q float64, f0, f1, f2 *[8]float64) {
	shapes(len(table)%2 == 0)
	pathBell(table, w, r, q, f0, f1, f2)
}

// bell implements Bell in Go.
func bell(table [][3]float64, w, r *[8]float64, q float64, f0, f1, f2 *[8]float64) {
	qq := q * q
	for i, a := range w {
		var y, z [3]float64
		// a and b are the weights of two rows, and c and d their ratios to the weights two rows
		// later
		b, c := a*r[i], r[i]*r[i]*q
		d := c * qq
		for j := 0; j < len(table); j += 2 {
			for k := range y {
				y[k], z[k] = math.FMA(a, table[j][k], y[k]), math.FMA(b, table[j+1][k], z[k])
			}
			a *= c
			b *= d
			c *= qq * qq
			d *= qq * qq
		}
		f0[i], f1[i], f2[i] = y[0]+z[0], y[1]+z[1], y[2]+z[2]
	}
}

// quotientLeast is the smallest divisor of Quotients.
const quotientLeast = 0x1p-960

// Quotients multiplies p by f0 and divides f1 and f2 by f0, where an f0 below quotientLeast
// counts as quotientLeast. It panics if the length is not a multiple of 8.
func Quotients(p, f0, f1, f2 []float64) {
	n := len(p)
	shapes(n%8 == 0)
	pathQuotients(p, f0[:n], f1[:n], f2[:n])
}

// quotients implements Quotients in Go.
func quotients(p, f0, f1, f2 []float64) {
	for i, y := range f0 {
		if y < quotientLeast {
			y = quotientLeast
		}
		r := 1 / y
		p[i] *= y
		f1[i] *= r
		f2[i] *= r
	}
}

// normalCentre c and normalPoly p give the normal tail N(−t) = e^{−t²/2} p((t − c)/(t + c)) for t
// ≥ 0. The error is 4e-16, in addition to the error of the exponential.
const normalCentre = 3

var normalPoly = [16]float64{
	0x1.f1b89c231e2a9p-4, -0x1.a6b669a31552cp-3, 0x1.f8bab9bb5cd7cp-4, -0x1.7a94a500d052ap-5,
	0x1.91f4b5a6408cep-8, 0x1.7ce24abed16f2p-9, -0x1.03beba13cea2ap-10, -0x1.6a61219161a73p-12,
	0x1.13e9d95522a12p-13, 0x1.1ffab74547209p-14, -0x1.9fabd16dd9e98p-17, -0x1.03df27bc5d12bp-16,
	-0x1.0397f35c67138p-19, 0x1.1e2a4aaa68f23p-19, 0x1.1e9c359ac0500p-20, 0x1.666a04d511a25p-23,
}

// AddNormal adds the normal distribution function at x to f, with an error of 6e-15, and replaces
// negative results by 0. It panics if the length is not a multiple of 8.
func AddNormal(f, x []float64) {
	n := len(f)
	shapes(n%8 == 0)
	pathAddNormal(f, x[:n])
}

// addNormal implements AddNormal in Go.
func addNormal(f, x []float64) {
	for i, a := range x {
		t := math.Abs(a)
		w := (t - normalCentre) / (t + normalCentre)
		p := normalPoly[15]
		for k := 14; k >= 0; k-- {
			p = math.FMA(p, w, normalPoly[k])
		}
		y := float64(p * expFast(float64(float64(-0.5*t)*t)))
		if !math.Signbit(a) {
			y = 1 - y
		}
		if y += f[i]; y < 0 {
			y = 0
		}
		f[i] = y
	}
}
