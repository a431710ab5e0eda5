// My parameter is an angle: can I add a family that the library lacks?
//
// Data: the directions in degrees that 76 turtles took after a treatment (N. I. Fisher, Statistical
// Analysis of Circular Data, 1993, appendix B.3; from E. B. Gould and M. A. Stephens).
// The program adds the von Mises family, checks it with CheckFamily, fits the direction of the
// turtles with a likelihood that has heavy tails, and compares the result with quadrature.
package main

import (
	"context"
	"fmt"
	"log"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
)

var turtles = []float64{8, 9, 13, 13, 14, 18, 22, 27, 30, 34, 38, 38, 40, 44, 45, 47, 48, 48, 48,
	48, 50, 53, 56, 57, 58, 58, 61, 63, 64, 64, 64, 65, 65, 68, 70, 73, 78, 78, 78, 83, 83, 88,
	88, 88, 90, 92, 92, 93, 95, 96, 98, 100, 103, 106, 113, 118, 138, 153, 153, 155, 204, 215,
	223, 226, 237, 238, 243, 244, 250, 251, 257, 268, 285, 319, 343, 350}

// vonMises has natural parameters κ (cos μ, sin μ), statistics (cos z, sin z) and h = 1/2π.
type vonMises struct{}

var _ pgsvi.Family = vonMises{}

// bessel returns log I0(κ) and I1(κ)/(κ I0(κ)). The trapezoidal rule is exact here to rounding.
func bessel(eta []float64) (logI0, ratio float64) {
	const points = 1000
	sum, squares, kappa := 0.0, 0.0, math.Hypot(eta[0], eta[1])
	for i := range points {
		sin, cos := math.Sincos(2 * math.Pi * float64(i) / points)
		w := math.Exp(kappa * (cos - 1))
		sum, squares = sum+w, squares+sin*sin*w
	}
	return kappa + math.Log(sum/points), squares / sum
}
func (vonMises) Dim() int                           { return 1 }
func (vonMises) NumParams() int                     { return 2 }
func (vonMises) LogPartition(eta []float64) float64 { a, _ := bessel(eta); return a }
func (vonMises) Mean(dst, eta []float64) {
	_, g := bessel(eta)
	dst[0], dst[1] = g*eta[0], g*eta[1]
}
func (vonMises) Fisher(dst *mat.SymDense, eta []float64) {
	_, g := bessel(eta)
	square := max(1e-8, eta[0]*eta[0]+eta[1]*eta[1])
	c := (1 - 2*g - square*g*g) / square
	dst.SetSym(0, 0, g+c*eta[0]*eta[0])
	dst.SetSym(1, 1, g+c*eta[1]*eta[1])
	dst.SetSym(0, 1, c*eta[0]*eta[1])
}
func (vonMises) Stat(dst, z []float64)     { dst[0], dst[1] = math.Cos(z[0]), math.Sin(z[0]) }
func (vonMises) LogBase([]float64) float64 { return -math.Log(2 * math.Pi) } // for any angle

// Rand accepts a uniform angle with probability exp(κ (cos(z−μ) − 1)), which is slow for large κ.
func (v vonMises) Rand(z, t, eta []float64, rng *rand.Rand) {
	kappa := math.Hypot(eta[0], eta[1])
	for {
		z[0] = math.Pi * (2*rng.Float64() - 1)
		v.Stat(t, z)
		if math.Log(rng.Float64()) < eta[0]*t[0]+eta[1]*t[1]-kappa {
			return
		}
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	check(pgsvi.CheckFamily(vonMises{}, nil, []float64{0.1, 0.2}, []float64{20, -30}))
	fmt.Println("CheckFamily finds no mistake")
	const rho = 0.5 // the concentration of the wrapped Cauchy distribution
	loglik := pgsvi.LogLik{N: len(turtles), Dim: 1, LogProb: func(n int, z []float64) float64 {
		cos := math.Cos(z[0] - turtles[n]*math.Pi/180)
		return math.Log((1 - rho*rho) / (2 * math.Pi) / (1 + rho*rho - 2*rho*cos))
	}}
	prior, err := pgsvi.NewExp(vonMises{}, []float64{0, 0}) // uniform
	check(err)
	f, h := pgsvi.Expect(loglik, nil), pgsvi.KLTo(prior)
	q, res, err := pgsvi.Objective[*pgsvi.Exp]{F: f, H: h, Init: prior}.Fit(context.Background(), nil)
	check(err)
	mean, exact := make([]float64, 2), [2]float64{} // means of cosine and sine
	vonMises{}.Mean(mean, q.Natural(nil))
	for i, all := 0, loglik.Batch(nil); i < 3600; i++ {
		z := 2*math.Pi*float64(i)/3600 - math.Pi
		p := math.Exp(all.LogProb([]float64{z}) - res.ELBO)
		exact[0], exact[1] = exact[0]+p*math.Cos(z), exact[1]+p*math.Sin(z)
	}
	fmt.Println(res)
	fmt.Printf("mean direction  %.2f degrees, by quadrature %.2f\n",
		math.Atan2(mean[1], mean[0])*180/math.Pi, math.Atan2(exact[1], exact[0])*180/math.Pi)
}
