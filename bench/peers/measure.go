package main

import (
	"fmt"
	"math"
	"runtime"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/bench/tables"
	"github.com/pgsvi/pgsvi/internal/cputime"
	"gonum.org/v1/gonum/mat"
)

// newRow returns a row of the running part, in which all numbers are NaN.
func (o *options) newRow(set, method, variant string) row {
	nan := math.NaN()
	return row{part: o.part, work: set, method: method, variant: variant,
		version: o.version("pgsvi"), processor: tables.Processor(), threads: 1, seed: 1,
		pass: nan, negELBO: nan, bits: nan, seconds: nan, ratio: nan, predict: nan}
}

// A fit computes a posterior from data. The Result may be nil.
type fit func() (predictor, *pgsvi.Result, error)

// A fitBy computes a posterior with the given Solver.
type fitBy func(*pgsvi.Solver) (predictor, *pgsvi.Result, error)

// A predictor is a posterior of this library.
type predictor interface {
	At(x mat.Matrix) *pgsvi.Prediction
}

// fit measures f, and its predictions if s has test rows.
func (o *options) fit(s *split, method, variant, name string, f fit) (row, error) {
	r := o.newRow(s.name, method, variant)
	r.name = "pgsvi, " + name
	var post predictor
	var res *pgsvi.Result
	var err error
	r.seconds, err = o.seconds(func() (err error) {
		post, res, err = f()
		return err
	})
	if err != nil {
		return r, err
	}
	r.pass = 1
	if res != nil {
		r.pass, r.negELBO = res.Passes, -res.ELBO
		r.note = fmt.Sprintf("%.4g passes, gap %.0e nats", res.Passes, res.Gap)
	}
	if s.xTest == nil {
		return r, nil
	}
	var logp []float64
	r.predict, err = o.seconds(func() error {
		logp = post.At(s.xTest).LogProb(nil, s.yTest)
		return nil
	})
	r.bits = bits(logp)
	return r, err
}

// rounds is the number of times that programs take turns.
const rounds = 3

// inTurn calls f, which fits the same rows with all programs, several times, so that other work on
// the machine affects all programs. It returns the rows with the medians of their seconds.
func inTurn(f func() ([]row, error)) ([]row, error) {
	var all [rounds][]row
	for i := range all {
		var err error
		if all[i], err = f(); err != nil {
			return nil, err
		}
	}
	rows := all[0]
	for i := range rows {
		var seconds, predict [rounds]float64
		for k := range all {
			seconds[k], predict[k] = all[k][i].seconds, all[k][i].predict
		}
		rows[i].seconds, rows[i].predict = median(seconds[:]), median(predict[:])
	}
	return rows, nil
}

// bits returns the mean log loss, in bits.
func bits(logp []float64) float64 {
	var sum float64
	for _, l := range logp {
		sum -= l
	}
	return sum / math.Ln2 / float64(len(logp))
}

// seconds returns the median CPU time of f, which stops at an error.
func (o *options) seconds(f func() error) (float64, error) {
	t := make([]float64, o.repeats)
	for i := range t {
		runtime.GC()
		start := cputime.Seconds()
		if err := f(); err != nil {
			return 0, err
		}
		t[i] = cputime.Seconds() - start
	}
	return median(t), nil
}
