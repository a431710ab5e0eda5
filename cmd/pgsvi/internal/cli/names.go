package cli

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
	"gonum.org/v1/gonum/stat"
)

// Likelihoods are those of the flag -likelihood.
var Likelihoods = map[string]pgsvi.Likelihood{
	"logit": pgsvi.BernoulliLogit{}, "probit": pgsvi.BernoulliProbit{}, "poisson": pgsvi.Poisson{},
	"negbinomial": pgsvi.NegativeBinomial{}, "gaussian": pgsvi.GaussianNoise{},
	"studentt": pgsvi.StudentT{},
	"laplace":  pgsvi.Laplace{}, "gamma": pgsvi.Gamma{}, "exponential": pgsvi.Exponential{},
	"softmax": pgsvi.Softmax{}, "ordinal": pgsvi.Ordinal{},
	"zip": pgsvi.ZeroInflated{}, "zinb": pgsvi.ZeroInflated{Shape: 1}, "hurdle": pgsvi.Hurdle{},
	"hurdlenb": pgsvi.Hurdle{Shape: 1}, "weibull": pgsvi.Weibull{}, "lognormal": pgsvi.LogNormal{},
	"beta": pgsvi.Beta{}, "betabinomial": pgsvi.BetaBinomial{},
}

// Kernels are those of the flag -kernel, for lengths that are learned.
var Kernels = map[string]func(lengths []float64) pgsvi.Kernel{
	"se":       func(l []float64) pgsvi.Kernel { return pgsvi.SquaredExp{Lengths: l} },
	"matern12": func(l []float64) pgsvi.Kernel { return pgsvi.Matern12{Lengths: l} },
	"matern32": func(l []float64) pgsvi.Kernel { return pgsvi.Matern32{Lengths: l} },
	"matern52": func(l []float64) pgsvi.Kernel { return pgsvi.Matern52{Lengths: l} },
	"rq":       func(l []float64) pgsvi.Kernel { return pgsvi.RationalQuadratic{Lengths: l} },
}

// Outcomes are far from 0, to which a kernel returns away from the rows, where their mean is so
// many of their standard deviations. Beyond tooFar a constant would hide them from rounding.
const (
	farFrom0 = 5
	tooFar   = 1000
)

// WithMean returns k for the outcomes of m, with a Constant if these are real numbers far from 0.
func WithMean(k pgsvi.Kernel, m *data.Model, lik pgsvi.Likelihood) pgsvi.Kernel {
	lik, err := m.ForGP(lik)
	known, ok := lik.(pgsvi.Factual)
	mean, sd := stat.MeanStdDev(m.Y, nil)
	far := math.Abs(mean) / sd
	if err == nil && ok && known.Facts().Support == pgsvi.RealLine && far > farFrom0 &&
		far < tooFar {
		return pgsvi.Sum{pgsvi.Constant{}, k}
	}
	return k
}

// Choose returns the value of a flag by its name; "" means the zero value.
func Choose[T any](what string, all map[string]T, name string) (v T, err error) {
	if _, ok := all[name]; !ok && name != "" {
		advice := "there are " + strings.Join(slices.Sorted(maps.Keys(all)), ", ")
		if also, ok := otherNames[strings.ToLower(name)]; ok {
			advice = "it is " + also
		} else if _, ok := all[strings.ToLower(name)]; ok {
			advice = "it is " + strings.ToLower(name)
		}
		err = fmt.Errorf("there is no %s %q; %s: %w", what, name, advice, ErrUsage)
	}
	return all[name], err
}

// otherNames are what likelihoods and kernels are called elsewhere.
var otherNames = map[string]string{
	"binomial": "logit, of a formula such as 'successes / trials ~ x' or of two labels",
	"logistic": "logit", "bernoulli": "logit", "normal": "gaussian", "student": "studentt",
	"t": "studentt", "polr": "ordinal", "ordered": "ordinal",
	"cumulative": "ordinal", "multinomial": "softmax", "categorical": "softmax", "nb": "negbinomial",
	"negativebinomial": "negbinomial", "cox": "weibull, of survival(time, event)",
	"rbf": "se", "matern": "matern12, matern32 or matern52",
}
