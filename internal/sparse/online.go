package sparse

import (
	"fmt"

	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/mat"
)

// Online adds rows to a state q of the weights, and reads each row once. A block B of rows moves q
// to
//
//	argmin_q₊ KL(q₊‖q) − Σ_{n∈B} w_n E_q₊[log p(y_n|z_n)].
type Online struct {
	z     *Inducing
	q     *gauss.Gaussian
	halt  *parallel.Halt
	block site.WeightBlock
}

// NewOnline returns an Online that starts from q, a state of the weights of z, and changes q. It
// stops if h stops.
func NewOnline(z *Inducing, q *gauss.Gaussian, h *parallel.Halt) *Online {
	o := &Online{z: z, q: q, halt: h}
	q.Halt = h
	o.block.Use(term.Crew{Halt: h})
	return o
}

// Learn adds the rows of x, with the terms t, and returns the largest prior variance of them.
func (o *Online) Learn(x *mat.Dense, t *term.Terms) (most float64, err error) {
	f := o.z.At(o.halt, x)
	if err := o.halt.Err(); err != nil {
		return 0, fmt.Errorf("canceled after %d rows: %w", t.First, err)
	}
	lin, _, most, err := o.z.Linear(x, t, f)
	if err != nil {
		return 0, err
	}
	b := &o.block
	b.Base.Resize(t.Len())
	lin.X.Mul(b.Base.M, o.q.Mean, nil)
	clear(b.Base.Gamma)
	clear(b.Base.A)
	return most, b.Solve(o.q, lin.X, nil, lin.Terms)
}
