package pgsvi

import (
	"context"
	"math"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// summaryPosterior is a posterior of the given means and standard deviations.
func summaryPosterior(names []string, mean, sd []float64, intercept bool, lik Likelihood) *GLMPosterior {
	v := make(diagCov, len(sd))
	for j, s := range sd {
		v[j] = s * s
	}
	return &GLMPosterior{names: names, opt: GLMOptions{Intercept: intercept}, lik: lik, mean: mean, cov: v, rows: 7}
}

func TestSummaryText(t *testing.T) {
	p := summaryPosterior([]string{"größe", "b", "tiny", "large", "(Intercept)"},
		[]float64{-12.345678, 0.1, 3e-12, 123456789, 1}, []float64{0.5, 1, 1e-12, 25000, 0.0123456}, true, NegativeBinomial{Shape: 2.5})
	got := p.Summary().String()
	want := `NegativeBinomial{Shape:2.5}, 7 rows, 5 weights, diagonal covariance
                           mean              sd                2.5%               97.5%
(Intercept)          1.00000         0.01235             0.97580             1.02420    *
größe              -12.3457          0.5000            -13.3257            -11.3657     *
b                    0.100           1.000              -1.860               2.060
tiny                 3.0000e-12      1.0000e-12          1.0400e-12          4.9600e-12 *
large        123456789           25000           123407790           123505788          *
* zero is outside the interval from 2.5% to 97.5%
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestSummaryRows: the rows are those of the posterior, whatever its covariance
// is made of, the intercept first, and every one of many is printed.
func TestSummaryRows(t *testing.T) {
	for _, c := range []struct {
		name       string
		rows, cols int
		intercept  bool
		family     Covariance
		want       Covariance
	}{
		{"primal", 200, 60, true, AutoCovariance, FullCovariance},
		{"dual to primal", 20, 60, false, AutoCovariance, FullCovariance},
		{"dual", 2, 2001, true, AutoCovariance, FullCovariance},
		{"low rank", 100, 60, true, LowRankCovariance, LowRankCovariance},
		{"diagonal", 100, 60, false, DiagonalCovariance, DiagonalCovariance},
	} {
		x, y := make([]float64, 0, c.rows*c.cols), make([]float64, c.rows)
		for i := range c.rows {
			for j := range c.cols {
				x = append(x, math.Sin(float64(i*i+3*j*i+7*j)))
			}
			y[i] = plusMinus(math.Sin(float64(5*i*i)) > 0)
		}
		g, err := NewGLM(mat.NewDense(c.rows, c.cols, x), y, BernoulliLogit{}, &GLMOptions{Intercept: c.intercept, Covariance: c.family})
		if err != nil {
			t.Fatal(err)
		}
		p, _, err := g.Fit(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		s := p.Summary()
		if s.Covariance != c.want || s.Data != c.rows || s.Weights != p.Dim() || len(s.Rows) != p.Dim() || s.Likelihood != "BernoulliLogit" {
			t.Errorf("%s: %v covariance, %d rows, %d weights, %d rows of the table, %s", c.name, s.Covariance, s.Data, s.Weights, len(s.Rows), s.Likelihood)
		}
		if lines := strings.Count(s.String(), "\n"); lines != p.Dim()+3 {
			t.Errorf("%s: %d lines for %d weights", c.name, lines, p.Dim())
		}
		mean, sd := p.Mean(nil), p.SD(nil)
		for k, r := range s.Rows {
			j := k
			if c.intercept {
				j = (k + p.Cols()) % p.Dim()
			}
			if r.Name != p.Names()[j] || r.Mean != mean[j] || r.SD != sd[j] ||
				math.Abs(r.Hi-mean[j]-1.959963984540054*sd[j]) > 1e-12 || math.Abs(r.Lo+r.Hi-2*mean[j]) > 1e-12 {
				t.Fatalf("%s: row %d is %+v, want %s: %v, %v", c.name, k, r, p.Names()[j], mean[j], sd[j])
			}
		}
	}
}

func TestSummarySure(t *testing.T) {
	for _, c := range []struct {
		lo, hi float64
		want   bool
	}{{1, 2, true}, {-2, -1, true}, {-1, 1, false}, {0, 1, false}, {math.NaN(), math.NaN(), false}} {
		if got := (SummaryRow{Lo: c.lo, Hi: c.hi}).sure(); got != c.want {
			t.Errorf("[%v, %v]: %v", c.lo, c.hi, got)
		}
	}
}
