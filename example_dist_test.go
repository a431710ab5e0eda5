package pgsvi_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/mat"

	"github.com/pgsvi/pgsvi"
)

// gaussianData is the conjugate model of rows with unknown mean and precision matrix. It has no local
// variables.
type gaussianData struct{ rows [][]float64 }

// Len implements ConjugateModel.
func (g gaussianData) Len() int { return len(g.rows) }

// Local implements ConjugateModel. T(z) is (log|Λ|, Λ, Λx, xᵀΛx) with the lower triangle of Λ.
func (g gaussianData) Local(dst, mu []float64, n int, weight float64) (float64, error) {
	y := g.rows[n]
	t := []float64{0.5, -0.5 * y[0] * y[0], -y[0] * y[1], -0.5 * y[1] * y[1], y[0], y[1], -0.5}
	value := -math.Log(2 * math.Pi)
	for i, c := range t {
		dst[i] += weight * c
		value += c * mu[i]
	}
	return value, nil
}

// A normal-Wishart distribution is the conjugate prior of a mean and a precision matrix. One step
// reaches the exact posterior.
func ExampleNewNormalWishart() {
	prior, err := pgsvi.NewNormalWishart(nil, 0.1, 4, mat.NewDiagDense(2, []float64{1, 1}))
	if err != nil {
		log.Fatal(err)
	}
	var data pgsvi.ConjugateModel = gaussianData{[][]float64{{1, 2}, {2, 3}, {3, 5}, {2, 2}}}
	m := pgsvi.Objective[*pgsvi.Exp]{F: pgsvi.Conjugate(data), H: pgsvi.KLTo(prior), Init: prior}
	q, res, err := m.Fit(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	eta := q.Natural(nil)
	kappa := -2 * eta[6]
	fmt.Printf("mean (%.2f, %.2f), kappa %.1f, df %.0f\n", eta[4]/kappa, eta[5]/kappa, kappa, 2*eta[0])
	fmt.Println(res.Status)
	// Output:
	// mean (1.95, 2.93), kappa 4.1, df 8
	// converged
}

// Independent parts form one distribution, here the location and the squared scale of a model.
func ExampleProductOf() {
	location, err := pgsvi.NewGaussian([]float64{1, 2}, mat.NewSymDense(2, []float64{2, 1, 1, 3}))
	if err != nil {
		log.Fatal(err)
	}
	variance, err := pgsvi.NewInverseGamma(3, 2)
	if err != nil {
		log.Fatal(err)
	}
	var q pgsvi.ExpFamily
	if q, err = pgsvi.ProductOf(location, variance); err != nil {
		log.Fatal(err)
	}
	fmt.Println("dimension", q.Dim(), "with", q.NumParams(), "parameters")
	// Output:
	// dimension 3 with 7 parameters
}

// Load restores a saved distribution bit for bit. A custom Family must be registered with
// Register first.
func ExampleExp_Save() {
	rate, err := pgsvi.NewGamma(3, 2)
	if err != nil {
		log.Fatal(err)
	}
	q, err := pgsvi.ProductOf(pgsvi.NewIsotropic(2, 0.5), rate)
	if err != nil {
		log.Fatal(err)
	}
	var file bytes.Buffer // or what os.Create returns
	if err := q.Save(&file); err != nil {
		log.Fatal(err)
	}
	loaded, err := pgsvi.Load[*pgsvi.Exp](&file)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(loaded.Factors()), "parts, KL", loaded.KL(q))
	// Output:
	// 2 parts, KL 0
}

// KL divergences between members of a family are exact.
func ExampleExp_KL() {
	kl := func(q, p *pgsvi.Exp, err ...error) float64 { return q.KL(p) }
	coin, _ := pgsvi.NewBernoulli(0.5)
	loaded, _ := pgsvi.NewBernoulli(0.9)
	fmt.Printf("Bernoulli %.4f\n", kl(coin, loaded))
	die, _ := pgsvi.NewCategorical([]float64{1, 1, 1, 1, 1, 1})
	unfair, _ := pgsvi.NewCategorical([]float64{1, 1, 1, 1, 1, 5})
	fmt.Printf("categorical %.4f\n", kl(die, unfair))
	few, _ := pgsvi.NewPoisson(2)
	many, _ := pgsvi.NewPoisson(3)
	fmt.Printf("Poisson %.4f\n", kl(few, many))
	one, _ := pgsvi.NewWishart(3, mat.NewDiagDense(2, []float64{1, 1}))
	two, _ := pgsvi.NewWishart(3, mat.NewDiagDense(2, []float64{2, 2}))
	fmt.Printf("Wishart %.4f\n", kl(one, two))
	// Output:
	// Bernoulli 0.5108
	// categorical 0.2426
	// Poisson 0.1891
	// Wishart 0.5794
}

// The best mean-field approximation of a correlated Gaussian has its mean, and too small variances:
// the inverse of the diagonal of the precision.
func ExampleNewMeanField() {
	p, err := pgsvi.NewGaussian([]float64{1, -1}, mat.NewSymDense(2, []float64{1, 0.8, 0.8, 1}))
	if err != nil {
		log.Fatal(err)
	}
	start, err := pgsvi.NewMeanField(nil, []float64{1, 1})
	if err != nil {
		log.Fatal(err)
	}
	m := pgsvi.Objective[*pgsvi.Gaussian]{H: pgsvi.KLTo(p), Init: start}
	q, _, err := m.Fit(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("mean %.2f, variances %.2f\n", q.Mean(nil), q.Var(nil))
	// Output:
	// mean [1.00 -1.00], variances [0.36 0.36]
}

// NewPSIS checks an approximation against any density that can be evaluated.
func ExampleNewPSIS() {
	q := pgsvi.NewIsotropic(1, 1)
	student := func(z []float64) float64 { return -2.5 * math.Log1p(z[0]*z[0]/4) } // 4 degrees
	ps, err := pgsvi.NewPSIS(context.Background(), nil, q, student, 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the tails of q are too light:", ps.KHat > ps.Limit)
	// Output:
	// the tails of q are too light: true
}

// Quadrature with a fixed number of nodes misses the curve of a logit if its argument is uncertain.
// Exact bounds its error.
func ExampleGaussHermite() {
	value := func(e pgsvi.SiteEstimator) float64 {
		v, d1, d2 := []float64{0}, []float64{0}, []float64{0}
		err := e.EstimateSites(v, d1, d2, pgsvi.BernoulliLogit{}, []float64{1}, []float64{3},
			[]float64{64}, nil)
		if err != nil {
			log.Fatal(err)
		}
		return v[0]
	}
	exact := value(pgsvi.Exact())
	for _, nodes := range []int{10, 100} {
		fmt.Printf("%d nodes: error %.3f nats\n", nodes,
			math.Abs(value(pgsvi.GaussHermite(nodes))-exact))
	}
	// Output:
	// 10 nodes: error 0.041 nats
	// 100 nodes: error 0.000 nats
}

// Noise compares estimators by the variance of their gradients, per draw of q.
func ExampleNoise() {
	x, y := doses()
	l := pgsvi.LogLik{N: len(y), Dim: 2,
		LogProb: func(n int, z []float64) float64 {
			return -math.Log1p(math.Exp(-y[n] * (z[0]*x[n][0] + z[1]*x[n][1])))
		},
		Grad: func(dst []float64, n int, z []float64) {
			s := y[n] / (1 + math.Exp(y[n]*(z[0]*x[n][0]+z[1]*x[n][1])))
			dst[0] += s * x[n][0]
			dst[1] += s * x[n][1]
		}}.Batch(nil)
	q := pgsvi.NewIsotropic(2, 0.1)
	env := pgsvi.NewEnv(rand.NewPCG(1, 2), 1)
	perDraw := func(e pgsvi.Estimator) float64 {
		noise, draws, err := pgsvi.Noise(context.Background(), env, e, q, l, 0)
		if err != nil {
			log.Fatal(err)
		}
		return noise * float64(draws)
	}
	score, path := perDraw(pgsvi.ScoreFunction(50)), perDraw(pgsvi.Pathwise(50))
	fmt.Println("a path has less noise than a score:", path < score)
	// Output:
	// a path has less noise than a score: true
}

// The latent function of a GP with Gaussian noise, by hand: CrossCov and PriorVar give covariances
// without noise.
func ExampleCrossCov() {
	x := mat.NewDense(3, 1, []float64{0, 1, 2})
	y := mat.NewVecDense(3, []float64{0, 1, 0})
	at := mat.NewDense(1, 1, []float64{1.5})
	k := pgsvi.SquaredExp{Scale: 1, Length: 1}
	gram := pgsvi.Gram(nil, pgsvi.Sum{k, pgsvi.White{Scale: 0.1}}, x)
	cross := pgsvi.CrossCov(nil, k, x, at)
	var chol mat.Cholesky
	chol.Factorize(gram)
	var w mat.VecDense
	if err := chol.SolveVecTo(&w, y); err != nil {
		log.Fatal(err)
	}
	var v mat.Dense
	if err := chol.SolveTo(&v, cross); err != nil {
		log.Fatal(err)
	}
	var less mat.Dense
	less.Mul(cross.T(), &v)
	variance := pgsvi.PriorVar(nil, k, at)[0] - less.At(0, 0)
	fmt.Printf("mean %.3f, sd %.3f\n", mat.Dot(cross.ColView(0), &w), math.Sqrt(variance))
	// Output:
	// mean 0.662, sd 0.158
}
