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

// Likelihoods holds the values of the flag -likelihood.
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

// Kernels holds the values of the flag -kernel. Each function returns a kernel whose length scales
// are learned.
var Kernels = map[string]func(lengths []float64) pgsvi.Kernel{
	"se":       func(l []float64) pgsvi.Kernel { return pgsvi.SquaredExp{Lengths: l} },
	"matern12": func(l []float64) pgsvi.Kernel { return pgsvi.Matern12{Lengths: l} },
	"matern32": func(l []float64) pgsvi.Kernel { return pgsvi.Matern32{Lengths: l} },
	"matern52": func(l []float64) pgsvi.Kernel { return pgsvi.Matern52{Lengths: l} },
	"rq":       func(l []float64) pgsvi.Kernel { return pgsvi.RationalQuadratic{Lengths: l} },
}

// A GP returns to 0 away from the rows. WithMean adds a constant to its kernel if the mean of the
// outcomes is more than farFrom0 of their standard deviations from 0. Above tooFar the constant
// would drown the outcomes in rounding errors, so WithMean adds none.
const (
	farFrom0 = 5
	tooFar   = 1000
)

// WithMean returns k, with a Constant added if the outcomes of m are real numbers far from 0.
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

// Choose returns the value called name in all, or the zero value if name is "". The argument what
// describes the flag in the error, which wraps ErrUsage.
func Choose[T any](what string, all map[string]T, name string) (v T, err error) {
	if _, ok := all[name]; !ok && name != "" {
		advice := Meant(name, slices.Sorted(maps.Keys(all)))
		if also, ok := otherNames[strings.ToLower(name)]; ok {
			advice = "use " + also
		} else if _, ok := all[strings.ToLower(name)]; ok {
			advice = "use " + strings.ToLower(name)
		}
		err = fmt.Errorf("unknown %s %q; %s: %w", what, name, advice, ErrUsage)
	}
	return all[name], err
}

// otherNames maps the names that other software uses for likelihoods and kernels to ours.
var otherNames = map[string]string{
	"binomial": "logit, with two labels or a formula such as 'successes / trials ~ x'",
	"logistic": "logit", "bernoulli": "logit", "normal": "gaussian", "student": "studentt",
	"t": "studentt", "polr": "ordinal", "ordered": "ordinal",
	"cumulative": "ordinal", "multinomial": "softmax", "categorical": "softmax", "nb": "negbinomial",
	"negativebinomial": "negbinomial", "cox": "weibull, with survival(time, event)",
	"rbf": "se", "matern": "matern12, matern32 or matern52",
}
