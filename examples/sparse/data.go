package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
	"github.com/pgsvi/pgsvi/examples/internal/draw"
	"gonum.org/v1/gonum/mat"
)

// testRows is the number of rows that are made up to test on.
const testRows = 20_000

// run is the program.
func run(ctx context.Context, args []string, w io.Writer) error {
	f := flag.NewFlagSet("sparse", flag.ContinueOnError)
	train, test := f.String("train", "", "CSV `file` of training rows, or one by data.RowWriter (.rows), of any size; made up if empty"), f.String("test", "", "CSV `file` of test rows")
	likelihood := f.String("likelihood", "logit", "logit (labels −1 and 1) or gaussian")
	inducing, rows := f.Int("inducing", 200, "number of inducing inputs"), f.Int("rows", 1_000_000, "rows that are made up")
	out := f.String("out", "sparse.png", "PNG `file` to draw a cut through what is made up to; empty for none")
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	p := &problem{inducing: *inducing}
	switch *likelihood {
	case "logit":
		p.lik = pgsvi.BernoulliLogit{}
	case "gaussian":
		p.lik = pgsvi.GaussianNoise{}
	default:
		return fmt.Errorf("no likelihood %q", *likelihood)
	}
	var z *field
	if *train == "" {
		if *rows < 1 {
			return fmt.Errorf("%d rows", *rows)
		}
		z = newField(1)
		x, y := z.rows(*rows+testRows, *likelihood == "logit")
		p.rows, p.cols = pgsvi.Rows(x.Slice(0, *rows, 0, 2), y[:*rows]), 2
		p.xt, p.yt = x.Slice(*rows, len(y), 0, 2).(*mat.Dense), y[*rows:]
	} else {
		done, err := p.open(*train)
		if err != nil {
			return err
		}
		defer done()
		if *test == "" {
			return errors.New("-test is missing, the file of the rows to predict")
		}
		if p.xt, p.yt, err = read(*test); err != nil {
			return err
		}
		if _, cols := p.xt.Dims(); cols != p.cols {
			return fmt.Errorf("%s has %d columns and %s %d", *train, p.cols, *test, cols)
		}
	}
	post, err := learn(ctx, p, w)
	if err != nil || *out == "" || z == nil {
		return err
	}
	return picture(*out, z, post)
}

// open makes the rows of a file those to learn from, until done is called. Those of a file by
// data.RowWriter stay there.
func (p *problem) open(file string) (done func() error, err error) {
	if strings.HasSuffix(file, ".rows") {
		f, err := data.OpenRows(file)
		if err != nil {
			return nil, err
		}
		p.rows, p.cols = f.All(), f.Cols()
		return f.Close, nil
	}
	x, y, err := read(file)
	if err != nil {
		return nil, err
	}
	_, p.cols = x.Dims()
	p.rows = pgsvi.Rows(x, y)
	return func() error { return nil }, nil
}

// read returns the rows of a CSV file, which may be packed by gzip.
func read(file string) (x *mat.Dense, y []float64, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if x, y, err = data.ReadCSV(f); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	return x, y, nil
}

// A field is a function of the unit square, a sum of waves as a draw from a Gaussian process with
// scale 2 and length 0.1.
type field struct {
	waves []wave
	rng   *rand.Rand
}

type wave struct{ a, b, shift, size float64 }

func newField(seed uint64) *field {
	f := &field{rng: rand.New(rand.NewPCG(seed, 7))}
	const waves, scale, length = 200, 2, 0.1
	for range waves {
		f.waves = append(f.waves, wave{f.rng.NormFloat64() / length, f.rng.NormFloat64() / length, 2 * math.Pi * f.rng.Float64(), scale * math.Sqrt(2.0/waves) * f.rng.NormFloat64()})
	}
	return f
}

func (f *field) at(a, b float64) (sum float64) {
	for _, w := range f.waves {
		sum += w.size * math.Cos(w.a*a+w.b*b+w.shift)
	}
	return sum
}

// rows returns points with labels, which are 1 with the probability that the field is the log odds
// of, or with values that have noise.
func (f *field) rows(n int, labels bool) (*mat.Dense, []float64) {
	x, y := mat.NewDense(n, 2, nil), make([]float64, n)
	for i := range n {
		a, b := f.rng.Float64(), f.rng.Float64()
		x.SetRow(i, []float64{a, b})
		z := f.at(a, b)
		switch {
		case !labels:
			y[i] = z + 0.5*f.rng.NormFloat64()
		case f.rng.Float64() < 1/(1+math.Exp(-z)):
			y[i] = 1
		default:
			y[i] = -1
		}
	}
	return x, y
}

// picture draws a cut through the field, and what was learned of it.
func picture(file string, z *field, post *pgsvi.SparseGPPosterior) error {
	const points, across = 400, 0.5
	x := mat.NewDense(points, 2, nil)
	at, truth := make([]float64, points), make([]float64, points)
	for i := range points {
		at[i] = float64(i) / (points - 1)
		x.SetRow(i, []float64{at[i], across})
		truth[i] = z.at(at[i], across)
	}
	m, v := post.At(x).Latent(nil, nil)
	lo, hi := make([]float64, points), make([]float64, points)
	for i, s := range v {
		lo[i], hi[i] = m[i]-2*math.Sqrt(s), m[i]+2*math.Sqrt(s)
	}
	panel := draw.New("A cut through the plane, learned from labels", "x", "log odds")
	panel.Band("two sd", at, lo, hi, draw.Pale)
	panel.Curve("mean", at, m, draw.Style{Color: draw.Blue, Width: 1.6})
	panel.Curve("truth", at, truth, draw.Style{Color: draw.Black, Dashes: draw.Dashed, Width: 1})
	panel.LegendLeft()
	panel.Legend.Top, panel.Legend.YOffs = false, 12
	return draw.Save(file, 18, 10, panel)
}
