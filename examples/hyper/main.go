// Command hyper learns the hyper-parameters of a Gaussian process: by default those of the carbon
// dioxide in the air on Mauna Loa, in four components, from the years before 1988, and forecasts
// the ten years after.
//
// Run it in the root of the repository; it draws hyper.png in the current directory:
//
//	go run ./examples/hyper
//	go run ./examples/hyper -train train.csv -test test.csv -likelihood studentt -kernel matern52 -ard
//
// Files have no header, the response in the last column, and may be compressed (.gz). The last line
// is meant for programs.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

// A problem is what to learn from, and to be tested on.
type problem struct {
	x, xt *mat.Dense
	y, yt []float64
	k     pgsvi.Kernel
	lik   pgsvi.Likelihood
	opt   pgsvi.LearnOptions
	shift float64 // what was taken off y
}

// mauna is the carbon dioxide: a trend, a season that changes slowly, what comes and goes within
// years, and what goes within months. Of a sum, what is set says which part is which, and is where
// the search starts.
func mauna(x *mat.Dense, y []float64, split float64) *problem {
	n, _ := slices.BinarySearch(x.RawMatrix().Data, split)
	months := pgsvi.RationalQuadratic{Scale: 0.5, Length: 1}
	months.Profile.Alpha = 1
	p := &problem{shift: stat.Mean(y[:n], nil), lik: pgsvi.GaussianNoise{Var: 0.05},
		opt: pgsvi.LearnOptions{Fixed: []string{"Sum[1].Product[1].Periodic.Period"}},
		k: pgsvi.Sum{
			pgsvi.SquaredExp{Scale: 50, Length: 50},
			pgsvi.Product{pgsvi.SquaredExp{Scale: 3, Length: 50}, pgsvi.Periodic{Length: 1, Period: 1}},
			months,
			pgsvi.SquaredExp{Scale: 0.2, Length: 0.1},
		}}
	for i := range y {
		y[i] -= p.shift
	}
	p.x, p.y = x.Slice(0, n, 0, 1).(*mat.Dense), y[:n]
	p.xt, p.yt = x.Slice(n, len(y), 0, 1).(*mat.Dense), y[n:]
	return p
}

// learn learns p, says what it learned, and returns what is predicted at the test rows.
func learn(ctx context.Context, p *problem, w io.Writer) (*pgsvi.Prediction, error) {
	start := time.Now()
	gp, err := pgsvi.NewGP(p.x, p.y, p.k, p.lik, nil)
	if err != nil {
		return nil, err
	}
	_, post, learned, err := gp.Learn(ctx, nil, &p.opt) // a nil Solver has nothing to tune
	if err != nil {
		return nil, err
	}
	scale, lengths := math.NaN(), []string{}
	for _, q := range learned.Params {
		switch name := q.Name[strings.LastIndex(q.Name, ".")+1:]; {
		case strings.HasPrefix(name, "Length"):
			lengths = append(lengths, fmt.Sprintf("%.6f", math.Log(q.Value)))
		case name == "Scale" && math.IsNaN(scale):
			scale = math.Log(q.Value)
		}
	}
	fmt.Fprint(w, learned)
	at := post.At(p.xt)
	_, err = fmt.Fprintf(w, "neg_elbo=%.6f objective=%.6f log_scale=%.6f log_length=%s evaluations=%d cholesky=%.0f test_nats=%.6f seconds=%.2f\n",
		-learned.Fit.ELBO, learned.Objective, scale, strings.Join(lengths, ","), learned.Evaluations, learned.Cholesky, -stat.Mean(at.LogProb(nil, p.yt), nil), time.Since(start).Seconds())
	return at, err
}

//go:generate go run -C ../.. ./examples/hyper -out examples/hyper/hyper.png

func main() {
	log.SetFlags(0)
	log.SetPrefix("hyper: ")
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
		log.Fatal(err)
	}
}
