package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
	"github.com/pgsvi/pgsvi/examples/internal/draw"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	vg "gonum.org/v1/plot/vg/draw"
)

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

var (
	likelihoods = map[string]pgsvi.Likelihood{"logit": pgsvi.BernoulliLogit{}, "poisson": pgsvi.Poisson{}, "gaussian": pgsvi.GaussianNoise{}, "studentt": pgsvi.StudentT{}}
	kernels     = map[string]func(lengths []float64) pgsvi.Kernel{
		"se":       func(l []float64) pgsvi.Kernel { return pgsvi.SquaredExp{Lengths: l} },
		"matern52": func(l []float64) pgsvi.Kernel { return pgsvi.Matern52{Lengths: l} },
	}
)

// run is the program.
func run(ctx context.Context, args []string, w io.Writer) error {
	f := flag.NewFlagSet("hyper", flag.ContinueOnError)
	train, test := f.String("train", "", "CSV `file` of training rows; testdata/co2 if empty"), f.String("test", "", "CSV `file` of test rows")
	likelihood, kernel := f.String("likelihood", "logit", "logit, poisson, gaussian or studentt"), f.String("kernel", "se", "se or matern52")
	ard, prior := f.Bool("ard", false, "a length for every column"), f.Bool("prior", true, "weak priors of the hyper-parameters")
	out := f.String("out", "hyper.png", "PNG `file` to draw what is predicted of one column to; empty for none")
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	p, err := load(*train, *test, *likelihood, *kernel, *ard)
	if err != nil {
		return err
	}
	p.opt.NoPrior = !*prior
	at, err := learn(ctx, p, w)
	if _, d := p.x.Dims(); err != nil || *out == "" || d > 1 {
		return err
	}
	return picture(*out, p, at)
}

// load returns the problem of the flags.
func load(train, test, likelihood, kernel string, ard bool) (*problem, error) {
	if train == "" {
		x, y, err := read("testdata/co2/co2.csv")
		if err != nil {
			return nil, err
		}
		return mauna(x, y, 1988), nil
	}
	k, lik := kernels[kernel], likelihoods[likelihood]
	if k == nil || lik == nil {
		return nil, fmt.Errorf("no likelihood %q with kernel %q", likelihood, kernel)
	}
	p := &problem{lik: lik}
	var err error
	if p.x, p.y, err = read(train); err != nil {
		return nil, err
	}
	if test == "" {
		return nil, errors.New("-test is missing, the file of the rows to predict")
	}
	if p.xt, p.yt, err = read(test); err != nil {
		return nil, err
	}
	_, d := p.x.Dims()
	if _, dt := p.xt.Dims(); dt != d {
		return nil, fmt.Errorf("%s has %d columns and %s %d", train, d, test, dt)
	}
	var lengths []float64
	if ard {
		lengths = make([]float64, d) // zero: Learn chooses where to start
	}
	p.k = k(lengths)
	return p, nil
}

// picture draws the test rows and what was predicted of them.
func picture(file string, p *problem, at *pgsvi.Prediction) error {
	mean, _, err := at.Moments(nil, nil)
	if err != nil {
		return err
	}
	lo, err := at.Quantile(nil, 0.025)
	if err != nil {
		return err
	}
	hi, err := at.Quantile(nil, 0.975)
	if err != nil {
		return err
	}
	for _, y := range [][]float64{p.y, p.yt, mean, lo, hi} {
		for i := range y {
			y[i] += p.shift
		}
	}
	panel := draw.New("Ten years ahead, after 29 years", "year", "CO2, parts per million")
	if p.shift == 0 {
		panel = draw.New("What is predicted of the test rows", "x", "y")
	}
	panel.LegendLeft()
	x, xt := mat.Col(nil, 0, p.x), mat.Col(nil, 0, p.xt)
	order := make([]int, len(xt))
	floats.Argsort(slices.Clone(xt), order)
	sorted := func(v []float64) []float64 {
		out := make([]float64, len(v))
		for i, j := range order {
			out[i] = v[j]
		}
		return out
	}
	panel.Band("95 %", sorted(xt), sorted(lo), sorted(hi), draw.Pale)
	panel.Curve("predicted", sorted(xt), sorted(mean), draw.Style{Color: draw.Blue, Width: 1.6})
	panel.Points("seen", x, p.y, draw.Style{Color: draw.Grey, Marker: vg.CircleGlyph{}})
	panel.Points("not seen", xt, p.yt, draw.Style{Color: draw.Black, Marker: vg.CircleGlyph{}})
	return draw.Save(file, 22, 10, panel)
}
