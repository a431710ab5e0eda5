package pgsvi_test

import (
	"fmt"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
)

// matern72 is the profile of the Matérn kernel with ν = 7/2,
// ρ = (1 + a + 2a²/5 + a³/15) exp(−a) with a = √7 r.
type matern72 struct{}

func (matern72) Values(r2 []float64) { pgsvi.PolyExp(r2, 7, 1, 1, 2./5, 1./15) }

// Slopes are −2ρ′(r²) = 7/5 (1 + a + a²/3) exp(−a).
func (matern72) Slopes(dst, r2, _ []float64) {
	copy(dst, r2)
	pgsvi.PolyExp(dst, 7, 7./5, 7./5, 7./15)
}

type Matern72 = pgsvi.Iso[matern72]

// A kernel of one's own, with lengths that differ between columns.
func ExampleIso() {
	pgsvi.Register("example.Matern72", Matern72{})
	k := Matern72{Scale: 2, Lengths: []float64{1, 10}}
	x := mat.NewDense(3, 2, []float64{0, 0, 1, 0, 1, 20})
	fmt.Printf("%.3f\n", mat.Formatted(pgsvi.Gram(nil, k, x)))
	_, err := pgsvi.NewGP(x, []float64{1, 2, 3}, Matern72{Length: -1}, pgsvi.GaussianNoise{}, nil)
	fmt.Println(err)
	// Output:
	// ⎡4.000  2.180  0.374⎤
	// ⎢2.180  4.000  0.551⎥
	// ⎣0.374  0.551  4.000⎦
	// pgsvi: Matern72.Length is -1, want a positive number: parameter out of range
}
