package site

import (
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
)

// A pass over many rows is bound by memory. It costs more to write the means, variances and
// expectations of all rows, and to read them again, than to compute them. A survey therefore does
// all its work on one part of the rows after another, while each is in the cache, and keeps only
// the results that the caller needs. WeightAlgebra.rest calls it.

// survey is a pass over all rows at given weights, by a WeightAlgebra.
type survey struct {
	mean  []float64 // the weights
	scale float64   // v is scale times the variances of q; 0 means that v is given
	v     []float64 // variances of the linear predictors

	grad     []float64 // Σ E′x is added to it, unless it is nil
	gamma, c []float64 // receive the targets about linear predictors of 0, unless they are nil
	sum      float64   // the sum of the expectations of all rows

	parts []surveyPart
	crew  []surveyor
}

// surveyPart holds the sums over a part of the rows.
type surveyPart struct {
	sum  float64
	grad []float64
	err  error
}

// surveyor has the scratch memory of a goroutine.
type surveyor struct {
	buf  design.Work
	at   term.Marginals
	halt parallel.Halt // lends no goroutine
}

// manyParts is the number of parts per goroutine from which goroutines share parts. Otherwise
// they share the rows of each part.
const manyParts = 2

// run makes the pass. The parts do not depend on the number of goroutines, so the bits do not
// either. The error comes from the first part that fails.
func (q *survey) run(s *WeightAlgebra) error {
	n, d, size, h := s.N, s.Lin.X.Cols, s.Lin.X.NearRows(), s.Workers.Halt
	q.parts = dense.Resize(q.parts, (n+size-1)/size)
	for i := range q.parts {
		q.parts[i].grad = dense.Resize(q.parts[i].grad, d)
	}
	workers := 1
	if s.Lin.X.Shared(h, n*d) && len(q.parts) >= manyParts*h.Workers() {
		workers = h.Workers()
	}
	if len(q.crew) < workers {
		q.crew = make([]surveyor, workers)
	}
	if workers == 1 {
		q.crew[0].buf.Halt = h
		for i := range q.parts {
			q.part(s, &q.crew[0], i, size, s.Workers)
		}
	} else {
		loop := parallel.Loop{Halt: h}
		loop.Run(len(q.parts), 1, workers, parallel.Func(func(worker, i, _ int) {
			y := &q.crew[worker]
			y.halt.Watch(h.Context())
			y.buf.Halt = &y.halt
			q.part(s, y, i, size, term.Crew{Workers: 1, Halt: &y.halt})
		}))
	}
	if err := h.Err(); err != nil {
		return err
	}
	q.sum = 0
	for i := range q.parts {
		p := &q.parts[i]
		if p.err != nil {
			return p.err
		}
		q.sum += p.sum
		if q.grad != nil {
			floats.Add(q.grad, p.grad)
		}
	}
	return nil
}

// part makes the pass over the i-th part. All parts have the given size, except the last one.
func (q *survey) part(s *WeightAlgebra, y *surveyor, i, size int, c term.Crew) {
	lo, hi := i*size, min((i+1)*size, s.N)
	x, at, p := s.Lin.X.Part(lo, hi), &y.at, &q.parts[i]
	dense.ResizeAll(hi-lo, &at.M, &at.E, &at.Tg, &at.D1)
	at.V = q.v[lo:hi]
	x.MulOn(c.Halt, at.M, q.mean, nil)
	if q.scale != 0 {
		s.Run.Variances(at.V, x, nil, &y.buf)
		floats.Scale(q.scale, at.V)
	}
	if p.err = s.Terms.Part(lo, hi).Expect(at, nil, c); p.err != nil {
		return
	}
	p.sum = floats.Sum(at.E)
	if q.grad != nil {
		clear(p.grad)
		x.AddMulTOn(p.grad, at.D1, nil, &y.buf)
	}
	if q.gamma != nil {
		gamma, to := q.gamma[lo:hi], q.c[lo:hi]
		for k, g := range at.Tg {
			gamma[k], to[k] = g, at.D1[k]+g*at.M[k]
		}
	}
}
