package expfam_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/expfam"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// aFamily is a row of the table of all families: how a member is made of numbers around which
// its parameters may be anywhere in logs.
type aFamily struct {
	name  string
	make  func(rng *rand.Rand, size func() float64) (*pgsvi.Exp, error)
	mild  [][]float64 // natural parameters for CheckFamily
	exact bool        // FromMean is in closed form or nearly so
}

var families = []aFamily{
	{"Gamma", func(_ *rand.Rand, size func() float64) (*pgsvi.Exp,
		error) {
		return pgsvi.NewGamma(size(), size())
	}, gammaEtas, true},
	{"InverseGamma", func(_ *rand.Rand, size func() float64) (*pgsvi.Exp, error) {
		return pgsvi.NewInverseGamma(size(), size())
	}, [][]float64{{6, -4}, {20, -0.1}, {3, -30}}, true},
	{"Beta", func(_ *rand.Rand, size func() float64) (*pgsvi.Exp,
		error) {
		return pgsvi.NewBeta(size(), size())
	}, betaEtas, false},
	{"Dirichlet", func(rng *rand.Rand, size func() float64) (*pgsvi.Exp, error) {
		alpha := make([]float64, 2+rng.IntN(6))
		for i := range alpha {
			alpha[i] = size()
		}
		return pgsvi.NewDirichlet(alpha)
	}, [][]float64{{2, 3, 4}, {0.7, 5, 1}, {20, 3, 8}}, false},
	{"Bernoulli", func(_ *rand.Rand, size func() float64) (*pgsvi.Exp, error) {
		return pgsvi.NewBernoulli(1 / (1 + size()))
	}, [][]float64{{0}, {-2}, {3}}, true},
	{"Categorical", func(rng *rand.Rand, size func() float64) (*pgsvi.Exp, error) {
		p := make([]float64, 3+rng.IntN(5))
		for i := range p {
			p[i] = size()
		}
		return pgsvi.NewCategorical(p)
	}, [][]float64{{0, 0}, {1, -1}, {-2, 0.5}}, true},
	{"Poisson", func(_ *rand.Rand, size func() float64) (*pgsvi.Exp,
		error) {
		return pgsvi.NewPoisson(size())
	}, [][]float64{{0}, {-1}, {2.5}}, true},
	{"Wishart", func(rng *rand.Rand, size func() float64) (*pgsvi.Exp, error) {
		d := 1 + rng.IntN(3)
		return pgsvi.NewWishart(float64(d-1)+size(), randomScale(rng, d, size()))
	}, [][]float64{{3, -1, 0.5, -2}, {10, -0.1, -0.05, -0.2}, {2, -40, 0, -5}}, false},
	{"NormalWishart", func(rng *rand.Rand, size func() float64) (*pgsvi.Exp, error) {
		d := 1 + rng.IntN(3)
		mean, kappa, scale := make([]float64, d), size(), size()
		for i := range mean { // so that κmmᵀ does not hide W⁻¹
			mean[i] = rng.NormFloat64() / math.Sqrt(kappa*scale)
		}
		return pgsvi.NewNormalWishart(mean, kappa, float64(d-1)+size(), randomScale(rng, d, scale))
	}, [][]float64{{4, -3, 0.5, -4, 1, -0.5, -0.7}, {10, -1, 0, -2, 0, 0, -3}}, false},
}

func init() {
	// Products, with a Gaussian, a discrete part, and a family of a user's.
	families = append(families,
		aFamily{"product with paths",
			func(rng *rand.Rand, size func() float64) (*pgsvi.Exp, error) {
				g, err := pgsvi.NewGaussian([]float64{rng.NormFloat64(), 1},
					mat.NewSymDense(2, []float64{2, 0.5, 0.5, 1}))
				if err != nil {
					return nil, err
				}
				n, err := pgsvi.NewMeanField([]float64{rng.NormFloat64()}, []float64{0.3})
				if err != nil {
					return nil, err
				}
				x, err := pgsvi.NewGamma(size(), size())
				if err != nil {
					return nil, err
				}
				return pgsvi.ProductOf(g, x, n)
			}, [][]float64{{1, -0.5, -1, 0.3, -0.7, 3, -2, 0.4, -0.6},
				{0, 0, -0.5, 0, -0.5, 20, -1, -1, -3}}, true},
		aFamily{"product", func(rng *rand.Rand, size func() float64) (*pgsvi.Exp, error) {
			x, err := pgsvi.NewExp(testkit.GammaFamily{},
				[]float64{1 + math.Min(10, size()), -1 - math.Min(10, size())})
			if err != nil {
				return nil, err
			}
			y, err := pgsvi.NewPoisson(size())
			if err != nil {
				return nil, err
			}
			z, err := pgsvi.NewDirichlet([]float64{size(), size()})
			if err != nil {
				return nil, err
			}
			return pgsvi.ProductOf(x, y, z)
		}, [][]float64{{3, -2, 1, 3, 4}, {10, -1, -0.5, 2, 8}}, false})
}

// randomScale returns a positive definite matrix of about the given size.
func randomScale(rng *rand.Rand, d int, size float64) *mat.SymDense {
	s := mat.NewSymDense(d, nil)
	for range d + 2 {
		x := mat.NewVecDense(d, nil)
		for i := range d {
			x.SetVec(i, rng.NormFloat64())
		}
		s.SymRankOne(s, size, x)
	}
	return s
}

// mildSize draws a parameter between 0.1 and 100, extremeSize one between 1e-6 and 1e9.
func mildSize(rng *rand.Rand) func() float64 {
	return func() float64 { return math.Pow(10, 3*rng.Float64()-1) }
}

func extremeSize(rng *rand.Rand) func() float64 {
	return func() float64 { return math.Pow(10, 15*rng.Float64()-6) }
}

// eachMember calls f with members of every family, mild and extreme.
func eachMember(t *testing.T, n int,
	f func(t *testing.T, c aFamily, what string, q *pgsvi.Exp, rng *rand.Rand)) {
	for _, c := range families {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(n) {
				rng := rand.New(rand.NewPCG(seed, 1))
				size := mildSize(rng)
				if seed%2 == 1 {
					size = extremeSize(rng)
				}
				q, err := c.make(rng, size)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				f(t, c, fmt.Sprintf("seed %d, η = %.6g", seed, q.Natural(nil)), q, rng)
			}
		})
	}
}

// A member of a family passes the check that a user's own has to pass.
func TestFamilies(t *testing.T) {
	for _, c := range families {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "product with paths" {
				testkit.NotShort(t)
			}
			t.Parallel()
			rng := rand.New(rand.NewPCG(1, 2))
			q, err := c.make(rng, mildSize(rng))
			if err != nil {
				t.Fatal(err)
			}
			f := q.Family()
			for len(c.mild[0]) != f.NumParams() {
				if q, err = c.make(rng, mildSize(rng)); err != nil {
					t.Fatal(err)
				}
				f = q.Family()
			}
			etas := c.mild
			if !testkit.IsLong() {
				etas = etas[:1]
			}
			if err := pgsvi.CheckFamily(f, rng, etas...); err != nil {
				t.Error(err)
			}
		})
	}
}

func fisherOf(q *pgsvi.Exp) *mat.SymDense {
	f := mat.NewSymDense(q.NumParams(), nil)
	q.Family().Fisher(f, q.Natural(nil))
	return f
}

// μ must be the slope of A, and the Fisher information the slope of μ, by differences.
func TestFamilySlopes(t *testing.T) {
	eachMember(t, 60, func(t *testing.T, _ aFamily, what string, q *pgsvi.Exp, rng *rand.Rand) {
		n := q.NumParams()
		f, eta, mu, fisher := q.Family(), q.Natural(nil), q.MeanParams(nil), fisherOf(q)
		lo, hi := make([]float64, n), make([]float64, n)
		for j := range n {
			at := func(dst []float64, h float64) float64 {
				x := append([]float64(nil), eta...)
				x[j] += h
				f.Mean(dst, x)
				return f.LogPartition(x)
			}
			sd := math.Sqrt(fisher.At(j, j))
			h := 1e-3 / sd // a thousandth of what KL notices
			if x := 1e-4 * math.Abs(eta[j]); x > 0 {
				h = math.Min(h, x)
			}
			a1, a0 := at(hi, h), at(lo, -h)
			// A is known to rounding, and its third derivative is of the size of F^{3/2}.
			tol := 1e-5*sd + 1e-14*(math.Abs(a1)+1)/h
			if got := (a1 - a0) / (2 * h); !(math.Abs(got-mu[j]) <= tol) {
				t.Errorf("%s: μ_%d is %.12g, the slope of A %.12g ± %.2g", what, j, mu[j], got, tol)
			}
			for i := range n {
				want := (hi[i] - lo[i]) / (2 * h)
				tol := 2e-5*math.Sqrt(fisher.At(i, i)*fisher.At(j, j)) + 1e-14*(math.Abs(mu[i])+1)/h
				if got := fisher.At(i, j); !(math.Abs(got-want) <= tol) {
					t.Errorf("%s: F_%d%d is %.12g, the slope of μ %.12g ± %.2g", what, i, j, got,
						want, tol)
				}
			}
		}
		s, ok := f.(expfam.FisherFamily)
		if !ok {
			return
		}
		g, x := make([]float64, n), make([]float64, n)
		for i := range g {
			g[i] = rng.NormFloat64() / math.Sqrt(fisher.At(i, i))
		}
		var norm float64
		s.FisherMul(x, g, eta)
		for i, v := range x {
			norm += v * g[i]
			var want float64
			for j, w := range g {
				want += fisher.At(i, j) * w
			}
			if !(math.Abs(v-want) <= 1e-9*math.Sqrt(fisher.At(i, i))) {
				t.Errorf("%s: element %d of F·g is %.12g, by Fisher %.12g", what, i, v, want)
			}
		}
		if !(norm > 0) {
			t.Errorf("%s: gᵀFg = %v", what, norm)
		}
		s.FisherSolve(x, x, eta)
		floats.Sub(x, g)
		var off float64
		for i, v := range x {
			for j, w := range x {
				off += v * w * fisher.At(i, j)
			}
		}
		if !(math.Sqrt(math.Abs(off)) <= 1e-7) {
			t.Errorf("%s: F⁻¹F g is off by %.3g standard deviations", what,
				math.Sqrt(math.Abs(off)))
		}
	})
}

// KL must match the formula with A and μ up to rounding. Between near members it must be half the
// squared distance in the Fisher metric.
func TestFamilyKL(t *testing.T) {
	eachMember(t, 60, func(t *testing.T, _ aFamily, what string, q *pgsvi.Exp, rng *rand.Rand) {
		n := q.NumParams()
		eta, mu, fisher := q.Natural(nil), q.MeanParams(nil), fisherOf(q)
		if kl := q.KL(q.Clone()); !(kl <= 1e-20) {
			t.Errorf("%s: KL to itself is %v", what, kl)
		}
		for _, far := range []float64{1e-5, 1e-3, 0.1} {
			p, x := q.Clone().(*pgsvi.Exp), make([]float64, n)
			for i := range x {
				x[i] = eta[i] + far*rng.NormFloat64()*math.Min(1+math.Abs(eta[i]),
					1/math.Sqrt(fisher.At(i, i)))
			}
			if p.SetNatural(x) != nil {
				continue // outside the set
			}
			naive, size := p.LogPartition()-q.LogPartition(),
				math.Abs(p.LogPartition())+math.Abs(q.LogPartition())
			var square float64
			for i, d := range x {
				d -= eta[i]
				naive -= d * mu[i]
				size += math.Abs(eta[i]*mu[i]) + math.Abs(d*mu[i])
				for j, e := range x {
					square += 0.5 * d * (e - eta[j]) * fisher.At(i, j)
				}
			}
			kl := q.KL(p)
			if tol := 1e-14*size + 1e-9*kl; !(math.Abs(kl-naive) <= tol) {
				t.Errorf("%s, %v away: KL is %.12g, by A and μ %.12g ± %.2g", what, far, kl, naive,
					tol)
			}
			if far < 1e-4 && !(math.Abs(kl-square) <= 0.01*square+1e-13) {
				t.Errorf("%s, %v away: KL is %.12g, half the square of the distance %.12g", what,
					far, kl, square)
			}
		}
	})
}

// η comes back from μ, from a start that is far off, as well as μ determines it; and from the
// chart.
func TestFamilyRoundTrips(t *testing.T) {
	eachMember(t, 60, func(t *testing.T, _ aFamily, what string, q *pgsvi.Exp, _ *rand.Rand) {
		eta, mu := q.Natural(nil), q.MeanParams(nil)
		p := q.Clone().(*pgsvi.Exp)
		if err := p.SetChart(q.Chart(nil)); err != nil {
			t.Errorf("%s: from the chart: %v", what, err)
		}
		for i, x := range p.Natural(nil) {
			if !(math.Abs(x-eta[i]) <= 1e-10*math.Abs(eta[i])) {
				t.Errorf("%s: from the chart η_%d = %.15g", what, i, x)
			}
		}
		start := q.Clone().(*pgsvi.Exp)
		if err := start.SetChart(make([]float64, len(eta))); err != nil {
			t.Fatal(err)
		}
		if err := start.SetMeanParams(mu); err != nil {
			t.Errorf("%s: from μ: %v", what, err)
			return
		}
		// μ is known to rounding, and moves η by F⁻¹ of that.
		slack := make([]float64, len(mu))
		for i, m := range mu {
			e := make([]float64, len(mu))
			e[i] = 4e-16 * (math.Abs(m) + 1e-3)
			for j, x := range q.In(pgsvi.Natural).MeanGrad(nil, e) {
				slack[j] += math.Abs(x)
			}
		}
		for i, x := range start.Natural(nil) {
			if !(math.Abs(x-eta[i]) <= 1e-10*math.Abs(eta[i])+10*slack[i]) {
				t.Errorf("%s: from μ η_%d = %.15g, not %.15g ± %.2g", what, i, x, eta[i], slack[i])
			}
		}
	})
}

// The mean of T(z) over draws must be μ, and the mean of −log q the entropy. Along paths, T(z) must
// change on average as the Fisher information predicts.
func TestFamilyDraws(t *testing.T) {
	members := testkit.Longer(20, testkit.Shorter(8, 4))
	draws := testkit.Longer(4000, testkit.Shorter(2000, 600))
	eachMember(t, members,
		func(t *testing.T, _ aFamily, what string, q *pgsvi.Exp, rng *rand.Rand) {
			n := q.NumParams()
			f, eta, mu, fisher := q.Family(), q.Natural(nil), q.MeanParams(nil), fisherOf(q)
			z, s, mean := make([]float64, q.Dim()), make([]float64, n), make([]float64, n)
			path, paths := f.(expfam.PathFamily)
			var aux []float64
			if paths {
				aux = make([]float64, path.AuxLen())
			}
			dl, coef, g := make([]float64, q.Dim()), make([]float64, n), make([]float64, n)
			spread := make([]float64, n)
			slopes := mat.NewDense(n, n, nil)
			squares := mat.NewDense(n, n, nil)
			for range draws {
				if paths {
					path.RandPath(z, s, aux, eta, rng)
					for i := range n {
						clear(g)
						clear(coef)
						coef[i] = 1
						path.PathGrad(g, dl, coef, z, aux, eta)
						for j, x := range g {
							slopes.Set(i, j, slopes.At(i, j)+x/float64(draws))
							squares.Set(i, j, squares.At(i, j)+x*x/float64(draws))
						}
					}
				} else {
					f.Rand(z, s, eta, rng)
				}
				floats.AddScaled(mean, 1/float64(draws), s)
				for j, x := range s {
					spread[j] += (x - mu[j]) * (x - mu[j]) / float64(draws)
				}
			}
			for j, m := range mu {
				sd := math.Sqrt(fisher.At(j, j) / float64(draws))
				// If a statistic is very skewed, the mean of this many draws may be far off almost surely.
				if fourth := 6.0; !(math.Abs(mean[j]-m) <= fourth*sd+1e-12*math.Abs(m)) {
					t.Errorf("%s: the mean of T_%d is %.9g, μ is %.9g ± %.2g", what, j, mean[j], m,
						sd)
				}
				for i := range n {
					if !paths || spread[i] < 0.1*fisher.At(i, i) ||
						spread[j] < 0.1*fisher.At(j, j) {
						continue // the draws that make up its variance are too rare to be there
					}
					got, want := slopes.At(i, j), fisher.At(i, j)
					se := math.Sqrt(math.Max(0, squares.At(i, j)-got*got) / float64(draws))
					// Contributions of draws that are too rare to occur have a correlation of nearly 0.
					if !(math.Abs(got-want) <= 8*se+
						1e-3*math.Sqrt(fisher.At(i, i)*fisher.At(j, j))) {
						t.Errorf(
							"%s: the slope of T_%d in η_%d along paths is %.9g ± %.2g, F is %.9g",
							what, i, j, got, se, want)
					}
				}
			}
		})
}

// Invalid parameters must produce an error with the name of the family.
func TestFamilyParameters(t *testing.T) {
	bad := []float64{0, -1, math.NaN(), math.Inf(1)}
	for _, x := range bad {
		for name, made := range map[string]func() (*pgsvi.Exp, error){
			"shape of Gamma": func() (*pgsvi.Exp,
				error) {
				return pgsvi.NewGamma(x, 1)
			},
			"rate of Gamma": func() (*pgsvi.Exp,
				error) {
				return pgsvi.NewGamma(1, x)
			},
			"scale of InverseGamma": func() (*pgsvi.Exp,
				error) {
				return pgsvi.NewInverseGamma(1, x)
			},
			"rate of Poisson": func() (*pgsvi.Exp,
				error) {
				return pgsvi.NewPoisson(x)
			},
			"weight 1 of Categorical of 3": func() (*pgsvi.Exp,
				error) {
				return pgsvi.NewCategorical([]float64{1, x, 1})
			},
			"b of Beta": func() (*pgsvi.Exp,
				error) {
				return pgsvi.NewBeta(1, x)
			},
			"α 2 of Dirichlet of 3 parts": func() (*pgsvi.Exp,
				error) {
				return pgsvi.NewDirichlet([]float64{1, 2, x})
			},
		} {
			q, err := made()
			if want := fmt.Sprintf(
				"pgsvi: %s is %v; it must be positive and finite: parameter out of range", name,
				x); q != nil || err == nil || err.Error() != want ||
				!errors.Is(err, pgsvi.ErrParam) {
				t.Errorf("%s = %v: %v, %v", name, x, q, err)
			}
		}
	}
	for _, p := range []float64{0, 1, math.NaN()} {
		if q, err := pgsvi.NewBernoulli(p); q != nil || !errors.Is(err, pgsvi.ErrParam) {
			t.Errorf("a Bernoulli of p = %v: %v", p, err)
		}
	}
	for _, c := range []struct {
		name string
		made func() (*pgsvi.Exp, error)
		want error
	}{
		{"a Wishart without a scale",
			func() (*pgsvi.Exp, error) { return pgsvi.NewWishart(3, nil) }, pgsvi.ErrEmpty},
		{"too few degrees of freedom", func() (*pgsvi.Exp, error) {
			return pgsvi.NewWishart(1, mat.NewSymDense(2, []float64{1, 0, 0, 1}))
		}, pgsvi.ErrParam},
		{"a singular scale", func() (*pgsvi.Exp, error) {
			return pgsvi.NewWishart(3, mat.NewSymDense(2, []float64{1, 1, 1, 1}))
		}, pgsvi.ErrNotPosDef},
		{"a mean too long", func() (*pgsvi.Exp, error) {
			return pgsvi.NewNormalWishart([]float64{1, 2}, 1, 3, mat.NewSymDense(1, []float64{1}))
		}, pgsvi.ErrShape},
		{"kappa 0", func() (*pgsvi.Exp, error) {
			return pgsvi.NewNormalWishart(nil, 0, 3, mat.NewSymDense(1, []float64{1}))
		}, pgsvi.ErrParam},
	} {
		if q, err := c.made(); q != nil || !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, err := pgsvi.NewCategorical([]float64{1}); !errors.Is(err, pgsvi.ErrEmpty) {
		t.Errorf("one category: %v", err)
	}
	if _, err := pgsvi.NewDirichlet([]float64{1}); !errors.Is(err, pgsvi.ErrEmpty) {
		t.Errorf("a Dirichlet of one part: %v", err)
	}
}

// The values of families_mp, of forty digits.
func TestFamilyTruth(t *testing.T) {
	data := os.Getenv("PGSVI_DATA")
	if data == "" {
		t.Skip("PGSVI_DATA is not set")
	}
	b, err := os.ReadFile(filepath.Join(data, "..", "truth", "families_mp.json"))
	if err != nil {
		t.Skip(err)
	}
	var truth struct{ Cases []map[string]any }
	if err := json.Unmarshal(b, &truth); err != nil {
		t.Fatal(err)
	}
	number := func(v any) float64 {
		x, err := strconv.ParseFloat(v.(string), 64)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	numbers := func(v any) (x []float64) {
		for _, v := range v.([]any) {
			x = append(x, number(v))
		}
		return x
	}
	for i, c := range truth.Cases {
		var (
			q, p *pgsvi.Exp
			kl   = "KL_to_all_03"
			want []float64
			got  []float64
		)
		what := fmt.Sprintf("case %d, %v", i, c["family"])
		check := func(name string, got, want float64) {
			if e := math.Abs(got - want); !(e <= 1e-12*math.Abs(want)+1e-15) {
				t.Errorf("%s: %s is %.17g, want %.17g, off by %.2g of it", what, name, got, want,
					e/math.Abs(want))
			}
		}
		switch c["family"] {
		case "gamma":
			kl = "KL_to_Gamma(1,0.5)"
			q, err = pgsvi.NewGamma(number(c["a"]), number(c["b"]))
			if err == nil {
				p, err = pgsvi.NewGamma(1, 0.5)
			}
			if err == nil {
				f := fisherOf(q)
				want, got = numbers(c["fisher"]), []float64{f.At(0, 0), f.At(0, 1), f.At(1, 1)}
			}
		case "dirichlet":
			alpha := numbers(c["alpha"])
			q, err = pgsvi.NewDirichlet(alpha)
			if err == nil {
				for i := range alpha {
					alpha[i] = 0.3
				}
				p, err = pgsvi.NewDirichlet(alpha)
			}
			if err == nil {
				f := fisherOf(q)
				want = numbers(c["fisher_diag_trigamma"])
				off := number(c["fisher_minus_trigamma_sum"])
				check("F_01", -f.At(0, 1), off)
				for i := range want {
					want[i] -= off
					got = append(got, f.At(i, i))
				}
			}
		default:
			t.Fatalf("%s: unknown family", what)
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			check(fmt.Sprintf("F, number %d,", i), got[i], want[i])
		}
		check("A", q.LogPartition(), number(c["A"]))
		check("entropy", q.Entropy(), number(c["entropy"]))
		check(kl, q.KL(p), number(c[kl]))
		for i, m := range numbers(c["mu"]) {
			check(fmt.Sprintf("μ_%d", i), q.MeanParams(nil)[i], m)
		}
	}
	if len(truth.Cases) < 11 {
		t.Errorf("%d cases", len(truth.Cases))
	}
}

// A step from natural parameters to natural parameters allocates nothing, however many there are.
func TestFamilyAllocations(t *testing.T) {
	alpha := make([]float64, 1000)
	for i := range alpha {
		alpha[i] = 0.1 + float64(i%7)
	}
	must := func(q *pgsvi.Exp, err error) *pgsvi.Exp {
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	dirichlet := must(pgsvi.NewDirichlet(alpha))
	wishart := must(pgsvi.NewNormalWishart([]float64{1, 2, 3}, 2, 5,
		randomScale(rand.New(rand.NewPCG(1, 1)), 3, 1)))
	for name, prior := range map[string]*pgsvi.Exp{
		"Gamma": must(pgsvi.NewGamma(2, 3)), "Dirichlet": dirichlet,
		"Categorical":   must(pgsvi.NewCategorical(alpha)),
		"NormalWishart": wishart, "product": must(pgsvi.ProductOf(dirichlet, wishart, dirichlet)),
	} {
		from, q := prior.Clone().(*pgsvi.Exp), prior.Clone().(*pgsvi.Exp)
		g := make([]float64, q.NumParams())
		for i := range g {
			g[i] = 1e-3 * math.Abs(prior.Natural(nil)[i])
		}
		p := &pgsvi.Prox{Grad: g, H: pgsvi.KLTo(prior), D: pgsvi.KL(), From: from, Beta: 0.5}
		mu, rng := make([]float64, len(g)), rand.New(rand.NewPCG(1, 2))
		z, stat := make([]float64, q.Dim()), make([]float64, len(g))
		for what, do := range map[string]func(){
			"a step": func() {
				if closed, err := p.Solve(q); err != nil || !closed {
					t.Fatalf("%s: %v, %v", name, closed, err)
				}
			},
			"KL":                   func() { q.KL(prior) },
			"a gradient in η":      func() { q.FromNaturalGrad(mu, g) },
			"mean parameters":      func() { q.MeanParams(mu) },
			"a draw":               func() { q.Family().Rand(z, stat, g, rng) },
			"products with Fisher": func() { q.Family().(expfam.FisherFamily).FisherMul(mu, g, g) },
		} {
			if what == "a draw" || what == "products with Fisher" {
				prior.Natural(g)
			}
			if n := testing.AllocsPerRun(20, do); n > 0 {
				t.Errorf("%s: %s allocates %v times", name, what, n)
			}
		}
	}
}

// The parts of a product come out as they went in; what is not there is an error.
func TestProductFactors(t *testing.T) {
	g, err := pgsvi.NewGaussian([]float64{1, 2}, mat.NewSymDense(2, []float64{2, 0.5, 0.5, 1}))
	if err != nil {
		t.Fatal(err)
	}
	n, err := pgsvi.NewMeanField([]float64{3}, []float64{0.25})
	if err != nil {
		t.Fatal(err)
	}
	x := mustExp(t, betaFamily{}, 2, 3)
	q, err := pgsvi.ProductOf(g, x, n)
	if err != nil {
		t.Fatal(err)
	}
	parts := q.Factors()
	if len(parts) != 3 {
		t.Fatalf("%d parts", len(parts))
	}
	for i, want := range []pgsvi.ExpFamily{g, x, n} {
		got := parts[i]
		if fmt.Sprintf("%T", got) != fmt.Sprintf("%T", want) || !(got.KL(want) <= 1e-14) ||
			got.Coordinates() != pgsvi.MeanParams {
			t.Errorf("part %d is %T %v, not %T %v", i, got, got.Natural(nil), want,
				want.Natural(nil))
		}
	}
	if one := x.Factors(); len(one) != 1 || one[0].KL(x) != 0 {
		t.Errorf("the parts of what is no product: %v", one)
	}
	if kl, sum := q.KL(q.Clone()), 0.0; !(kl <= 1e-12) || sum != 0 {
		t.Errorf("KL to itself is %v", kl)
	}
	if _, err := pgsvi.ProductOf(); !errors.Is(err, pgsvi.ErrEmpty) {
		t.Errorf("no parts: %v", err)
	}
	for _, bad := range []pgsvi.ExpFamily{nil, (*pgsvi.Exp)(nil), (*pgsvi.Gaussian)(nil)} {
		if _, err := pgsvi.ProductOf(x, bad); !errors.Is(err, pgsvi.ErrParam) ||
			!strings.Contains(err.Error(), "part 1") {
			t.Errorf("a part that is nil: %v", err)
		}
	}
}

// Bad use is an error at set-up that names what does not fit.
func TestFamilySetup(t *testing.T) {
	must := func(q *pgsvi.Exp, err error) *pgsvi.Exp {
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	gamma, beta, dirichlet, coin := must(pgsvi.NewGamma(1, 1)), must(pgsvi.NewBeta(1, 1)),
		must(pgsvi.NewDirichlet([]float64{1, 1, 1})), must(pgsvi.NewBernoulli(0.5))
	l := func(dim int) pgsvi.LogLik {
		return pgsvi.LogLik{N: 1, Dim: dim,
			LogProb: func(_ int, z []float64) float64 { return -z[0] }}
	}
	slope := l(1)
	slope.Grad = func(dst []float64, _ int, _ []float64) { dst[0]-- }
	for _, c := range []struct {
		name  string
		prior pgsvi.ExpFamily
		init  *pgsvi.Exp
		l     pgsvi.LogLik
		e     pgsvi.Estimator
		want  error
		say   []string
	}{
		{"a prior of another family", gamma, beta, l(1), nil, pgsvi.ErrShape,
			[]string{"Gamma", "Beta"}},
		{"a prior of another dimension", must(pgsvi.NewDirichlet([]float64{1, 1})), dirichlet, l(3),
			nil, pgsvi.ErrShape, []string{"Dirichlet of 2 parts", "Dirichlet of 3 parts"}},
		{"a Gaussian prior", pgsvi.NewIsotropic(1, 1), beta, l(1), nil, pgsvi.ErrShape,
			[]string{"Gaussian", "Beta"}},
		{"a log-likelihood of another dimension", beta, beta, l(2), nil, pgsvi.ErrShape,
			[]string{"dimension 2", "q has 1"}},
		{"paths without gradients", beta, beta, l(1), pgsvi.Pathwise(0), pgsvi.ErrNoEstimator,
			[]string{"LogLik.Grad"}},
		{"paths of a coin", coin, coin, slope, pgsvi.Pathwise(0), pgsvi.ErrNoEstimator,
			[]string{"Bernoulli", "RandPath"}},
		{"quadrature over a simplex", dirichlet, dirichlet, l(3), pgsvi.Exact(),
			pgsvi.ErrNoEstimator, []string{"Dirichlet of 3 parts"}},
		{"Gauss–Hermite", gamma, gamma, l(1), pgsvi.GaussHermite(0), pgsvi.ErrNoEstimator,
			[]string{"GaussHermite"}},
	} {
		o := pgsvi.Objective[*pgsvi.Exp]{F: pgsvi.Expect(c.l, c.e), H: pgsvi.KLTo(c.prior),
			Init: c.init}
		q, _, err := o.Fit(context.Background(), nil)
		if q != nil || !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for _, s := range c.say {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %q does not say %q", c.name, err, s)
			}
		}
	}
}
