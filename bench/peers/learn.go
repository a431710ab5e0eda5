package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/bench/paper"
	"github.com/pgsvi/pgsvi/internal/cputime"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

// The number of random halves of each data set, and the number of halves with one length scale per
// column.
const (
	learnSplits = 10
	learnARD    = 10
)

// A learnSet is a data set of part learn.
type learnSet struct {
	name     string
	x        *mat.Dense
	y        []float64
	classify bool
	scale    bool // whether to standardize the columns
}

// learn compares Gaussian processes that learn their hyperparameters with scikit-learn, on random
// halves of the rows.
func (o *options) learn(ctx context.Context) ([]row, error) {
	sets, err := o.learnSets(ctx)
	if err != nil {
		return nil, err
	}
	var all []row
	for _, s := range sets {
		splits, err := o.halves(s)
		if err != nil {
			return nil, err
		}
		kind := "regress"
		if s.classify {
			kind = "classify"
		}
		theirs, err := o.script(ctx, s.name, "learn.py", kind, filepath.Join(o.temp, s.name),
			splits[0].cols(), learnSplits, learnARD)
		if err != nil {
			return nil, err
		}
		var rows []row
		for _, variant := range []string{"one length", "one length per column"} {
			count := learnSplits
			if variant != "one length" {
				count = learnARD
			}
			var ours []row
			for k, half := range splits[:count] {
				r, err := o.learnRow(ctx, s, half, variant)
				if err != nil {
					return nil, fmt.Errorf("%s, split %d: %w", s.name, k+1, err)
				}
				r.seed = k + 1
				ours = append(ours, r)
			}
			var same []row
			for _, r := range theirs {
				if r.variant == variant {
					same = append(same, r)
				}
			}
			pair := []row{summary(same, nil), summary(ours, same)}
			relate(pair, pair[0].label())
			rows = append(rows, pair...)
		}
		all = append(all, rows...)
	}
	return all, nil
}

// summary returns the row for several splits: the median of the seconds and the mean of the bits.
// With others, it also counts the splits on which the bits are fewer.
func summary(rows, others []row) row {
	r := rows[0]
	var seconds, predict []float64
	r.bits, r.seed = 0, 1
	for _, s := range rows {
		seconds, predict = append(seconds, s.seconds), append(predict, s.predict)
		r.bits += s.bits / float64(len(rows))
	}
	r.seconds, r.predict = median(seconds), median(predict)
	r.note = fmt.Sprintf("%d splits", len(rows))
	if others != nil {
		fewer, evaluations := 0, 0.0
		for i := range rows {
			evaluations += rows[i].pass / float64(len(rows))
			if rows[i].bits < others[i].bits {
				fewer++
			}
		}
		r.pass = evaluations
		r.note += fmt.Sprintf(", fewer bits on %d; %.1f evaluations", fewer, evaluations)
	}
	return r
}

// learnRow learns the hyperparameters on one half of s.
func (o *options) learnRow(ctx context.Context, s *learnSet, half *split, variant string) (row,
	error) {
	r := o.newRow(s.name, "pgsvi", variant)
	var k pgsvi.SquaredExp
	if variant != "one length" {
		k.Lengths = make([]float64, half.cols())
	}
	var lik pgsvi.Likelihood = pgsvi.BernoulliLogit{}
	if !s.classify {
		lik = pgsvi.GaussianNoise{}
	}
	start := cputime.Seconds()
	gp, err := pgsvi.NewGP(half.x, half.y, k, lik, nil)
	if err != nil {
		return r, err
	}
	_, post, learned, err := gp.Learn(ctx, nil, nil)
	if err != nil {
		return r, err
	}
	r.seconds = cputime.Seconds() - start
	start = cputime.Seconds()
	r.bits = bits(post.At(half.xTest).LogProb(nil, half.yTest))
	r.predict = cputime.Seconds() - start
	r.pass, r.negELBO = float64(learned.Evaluations), -learned.Fit.ELBO
	return r, nil
}

// learnSets returns the data sets. The script of scikit-learn provides its own.
func (o *options) learnSets(ctx context.Context) ([]*learnSet, error) {
	var all []*learnSet
	for _, read := range []func(string) (*paper.Problem, error){paper.Ionosphere, paper.Sonar} {
		p, err := read(o.testdata)
		if err != nil {
			return nil, err
		}
		var x mat.Dense
		x.Stack(p.X, p.XTest)
		all = append(all,
			&learnSet{name: p.Name, x: &x, y: append(append([]float64(nil), p.Y...), p.YTest...),
				classify: true})
	}
	for _, s := range []learnSet{{name: "breast_cancer", classify: true, scale: true},
		{name: "diabetes", scale: true}} {
		file := filepath.Join(o.temp, s.name)
		cmd := exec.CommandContext(ctx, o.python, filepath.Join(o.temp, "learn.py"), s.name, file)
		cmd.Stderr = o.stderr
		if err := cmd.Run(); err != nil {
			return nil, fmt.Errorf("%s %s: %w", o.python, "learn.py", err)
		}
		info, err := os.Stat(file)
		if err != nil {
			return nil, err
		}
		cols := map[string]int{"breast_cancer": 30, "diabetes": 10}[s.name]
		n := int(info.Size()) / 8 / (cols + 1)
		rows, err := readFloats(file, n*(cols+1))
		if err != nil {
			return nil, err
		}
		s.x, s.y = mat.NewDense(n, cols, nil), make([]float64, n)
		for i := range n {
			row := rows[i*(cols+1) : (i+1)*(cols+1)]
			s.x.SetRow(i, row[:cols])
			if s.y[i] = row[cols]; s.classify {
				s.y[i] = 2*row[cols] - 1
			}
		}
		all = append(all, &s)
	}
	return all, nil
}

// halves returns random halves of s, also in files.
func (o *options) halves(s *learnSet) ([]*split, error) {
	n, cols := s.x.Dims()
	var all []*split
	for k := range learnSplits {
		order := rand.New(rand.NewPCG(uint64(k+1), 0)).Perm(n)
		train := n / 2
		x, y := mat.NewDense(n, cols, nil), make([]float64, n)
		for i, at := range order {
			x.SetRow(i, s.x.RawRowView(at))
			y[i] = s.y[at]
		}
		if s.scale {
			for j := range cols {
				standardize(mat.Col(nil, j, x), train, func(i int, v float64) { x.Set(i, j, v) })
			}
		}
		if !s.classify {
			standardize(y, train, func(i int, v float64) { y[i] = v })
		}
		half := halved(fmt.Sprintf("%s.%d", s.name, k+1), x, y, train)
		if err := o.write(half); err != nil {
			return nil, err
		}
		all = append(all, half)
	}
	return all, nil
}

// standardize subtracts the mean of the first elements of v, which are for training, and divides by
// their standard deviation.
func standardize(v []float64, train int, set func(i int, v float64)) {
	mean, sd := stat.MeanStdDev(v[:train], nil)
	if !(sd > 0) || math.IsInf(sd, 0) {
		sd = 1
	}
	for i, u := range append([]float64(nil), v...) {
		set(i, (u-mean)/sd)
	}
}
