package graph

// This file takes the steps of stochastic variational inference in a model with plates (Hoffman,
// Blei, Wang and Paisley 2013). The negative ELBO is minimized over the copies of plates for fixed
// global blocks, which leaves a function of the global blocks,
//
//	F(q_G) = min over q_L of  −Σ E_q[log f_i] + Σ_l (bᵀμ_l − a_l + KL(q_l‖p_l)),
//
// a sum over units. Its gradient is the gradient at the minimum with q_L fixed. A mini-batch thus
// optimizes the copies of its units with all their rows, and scales only what the units contribute
// to the global blocks. The minimum always starts from the same q_L, so F is a function and a run
// can be resumed from the global blocks alone.

import (
	"context"
	"math"
	"slices"
	"sync"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/expfam"
	"gonum.org/v1/gonum/floats"
)

// Profile is F.
type Profile struct {
	*Plates
	Copies
	mu   []float64 // mean parameters of Start
	span [][2]int  // where the global blocks are in μ
	idle []place   // copies of plates that no row touches
	rest Sum       // sum over these copies
	pool sync.Pool // *profileWork
}

// Copies holds the distributions of all copies in the layout of μ, as natural parameters.
type Copies struct {
	Family       []expfam.Family // family of one copy of each block
	Prior, Start []float64       // p and the first q
	Base         []float64       // b
	Norm         []float64       // a of each copy of each block
}

// NewProfile returns F. mu holds the mean parameters of c.Start. NewProfile changes both for copies
// that no row touches.
func NewProfile(p *Plates, c Copies, mu []float64) *Profile {
	f := &Profile{Plates: p, Copies: c, mu: mu}
	for i, b := range p.model.Layout.Blocks {
		if p.Global[i] {
			f.span = append(f.span, [2]int{b.Off, b.Off + b.Total})
		}
	}
	f.pool.New = func() any { return f.newWork() }
	f.rests()
	return f
}

// rests moves the copies that no row touches to η_p − b, if that is valid.
func (f *Profile) rests() {
	used := make([]bool, f.before[len(f.Global)])
	for _, c := range f.copies {
		used[f.index(c)] = true
	}
	w := f.newWork()
	for i, b := range f.model.Layout.Blocks {
		for k := range b.Copies {
			c := place{int32(i), int32(k)}
			if f.Global[i] || used[f.index(c)] {
				continue
			}
			f.each(c, func(i int) { w.to[i] = f.Prior[i] - f.Base[i] })
			if f.mean(w, c) {
				f.each(c, func(i int) { f.Start[i], f.mu[i] = w.to[i], w.at[i] })
			}
			f.each(c, func(i int) { w.to[i], w.mu[i] = f.Start[i], f.mu[i] })
			f.idle = append(f.idle, c)
			v := f.local(w, c)
			f.rest.Value += v
			f.rest.Size += math.Abs(v)
		}
	}
}

// Pack stores the elements of x, laid out as μ, that belong to global blocks in dst.
func (f *Profile) Pack(dst, x []float64) []float64 {
	dst = dst[:0]
	for _, s := range f.span {
		dst = append(dst, x[s[0]:s[1]]...)
	}
	return dst
}

// Unpack stores x, the elements of global blocks, in dst, laid out as μ.
func (f *Profile) Unpack(dst, x []float64) {
	for _, s := range f.span {
		x = x[copy(dst[s[0]:s[1]], x):]
	}
}

// profileWork holds the state of the copies of the units that are being optimized. All slices are
// laid out as μ, and the copies of other units hold leftovers.
type profileWork struct {
	*modelWork
	mu, eta []float64 // parameters of the present q
	grad    []float64 // ∇_μ Σ E[log f]
	to, at  []float64 // η and μ of the target, or of the q that is tried
	lastEta []float64 // η before the last target
	lastTo  []float64 // the last target
	pull    []float64 // Σ grad over the units that are done, for global blocks
	done    Sum       // sum over these units
	small   [2][]float64
	moving  []int
}

func (f *Profile) newWork() *profileWork {
	w := &profileWork{modelWork: newModelWork(f.model.Factors)}
	dense.ResizeAll(len(f.mu), &w.mu, &w.eta, &w.grad, &w.to, &w.at, &w.lastEta, &w.lastTo,
		&w.pull)
	return w
}

// Sum returns an estimate of F from a batch of units, which are scaled to all units, and the rows
// that belong to every batch. Nil units mean all units. mu holds the mean parameters of the global
// blocks. Sum adds the gradient with respect to them to dst unless dst is nil. If eta is not nil,
// Sum stores the natural parameters of the copies of plates there, laid out as μ.
func (f *Profile) Sum(ctx context.Context, dst, mu []float64, units []int, eta []float64) (Sum,
	error) {
	w := f.pool.Get().(*profileWork)
	f.Unpack(w.mu, mu)
	scale, n := 1.0, len(units)
	if units == nil {
		n = f.Len()
	} else {
		scale = float64(f.Len()) / float64(n)
	}
	w.done = Sum{}
	f.clearGlobal(w.pull)
	chunk := make([]int, 0, Chunk)
	for i := range n {
		u := i
		if units != nil {
			u = units[i]
		}
		if chunk = append(chunk, u); len(chunk) < Chunk && i < n-1 {
			continue
		}
		if err := context.Cause(ctx); err != nil {
			return Sum{math.NaN(), math.NaN()}, err
		}
		f.minimize(w, chunk)
		chunk = chunk[:0]
	}
	w.done.Value = scale*w.done.Value + f.rest.Value
	w.done.Size = scale*w.done.Size + f.rest.Size
	f.addGlobal(dst, w.pull, scale)
	f.addCommon(w, dst)
	if eta != nil {
		for _, c := range f.copies {
			f.each(c, func(i int) { eta[i] = w.eta[i] })
		}
		for _, c := range f.idle {
			f.each(c, func(i int) { eta[i] = f.Start[i] })
		}
	}
	done := w.done
	f.pool.Put(w) // a panic of a factor leaves rows in w
	return done, nil
}

// addCommon adds the rows that belong to every batch.
func (f *Profile) addCommon(w *profileWork, dst []float64) {
	if len(f.common) == 0 {
		return
	}
	f.clearGlobal(w.grad)
	w.sum = Sum{}
	f.gather(w, f.common)
	w.done.Value -= w.sum.Value
	w.done.Size += w.sum.Size
	f.addGlobal(dst, w.grad, 1)
}

// clearGlobal stores zeros in the elements of x of global blocks.
func (f *Profile) clearGlobal(x []float64) {
	for _, s := range f.span {
		clear(x[s[0]:s[1]])
	}
}

// addGlobal subtracts scale times the elements of x of global blocks from dst.
func (f *Profile) addGlobal(dst, x []float64, scale float64) {
	for _, s := range f.span {
		if dst == nil {
			return
		}
		n := s[1] - s[0]
		floats.AddScaled(dst[:n], -scale, x[s[0]:s[1]])
		dst = dst[n:]
	}
}

// each calls do with the indices of the parameters of a copy in the layout of μ.
func (f *Profile) each(c place, do func(i int)) {
	b := f.model.Layout.Blocks[c.block]
	if b.Stacked {
		do(b.Off + int(c.copy))
		do(b.Off + b.Copies + int(c.copy))
		return
	}
	s := b.Start(int(c.copy))
	for i := s; i < s+b.Params; i++ {
		do(i)
	}
}

// slice returns the parameters of a copy from x, in scratch k if they are not adjacent.
func (f *Profile) slice(w *profileWork, x []float64, c place, k int) []float64 {
	b := f.model.Layout.Blocks[c.block]
	s := b.Start(int(c.copy))
	if !b.Stacked {
		return x[s : s+b.Params]
	}
	w.small[k] = append(w.small[k][:0], x[s], x[s+b.Copies])
	return w.small[k]
}

const (
	// mostMoves limits the steps to the minimum over q_L.
	mostMoves = 200
	// minimumNats is the predicted gain per unit, in nats, at which q_L is at its minimum.
	minimumNats = 1e-8
	// shortestMove is the shortest fraction of the way to the target, and sharedMove the shortest
	// fraction that several units take together.
	shortestMove, sharedMove = 1e-6, 1. / 8
	// roundingMove is the rise, relative to the size of the terms, that is rounding.
	roundingMove = 1e-12
)

// minimize moves the copies of some units to the minimum, and adds the units to the sum.
func (f *Profile) minimize(w *profileWork, units []int) {
	f.begin(w, units)
	value, size, known := f.descend(w, units)
	if !known {
		f.back(w, units)
		value, size = f.objective(w, units)
	}
	w.done.Value += value
	w.done.Size += size
	for _, s := range f.span {
		floats.Add(w.pull[s[0]:s[1]], w.grad[s[0]:s[1]])
	}
}

// descend moves the copies of some units to the minimum. In a conjugate model in which no row
// touches two plates, the first step reaches the minimum. If a step does not lower the objective
// of all units together, it is halved. If that does not help, the units are divided. known reports
// that the gradient of w, the returned value and its size belong to the minimum.
func (f *Profile) descend(w *profileWork, units []int) (best, size float64, known bool) {
	best, size = f.objective(w, units)
	first := 1.0
	for k := range mostMoves {
		moving, valid := f.aim(w, units)
		if len(moving) == 0 {
			return best, size, true
		}
		if 2*len(moving) <= len(units) { // leave out the units that are done
			f.divide(w, slices.Clone(moving))
			return 0, 0, false
		}
		lower := func() bool {
			f.set(w, units)
			v, s := f.objective(w, units)
			ok := v <= best+roundingMove*size || !finiteNumber(best) && finiteNumber(v)
			if ok {
				best, size = v, s
			}
			return ok
		}
		if mixes := f.mix(w, units, k > 0 && valid); mixes {
			if lower() {
				f.keep(w, units)
				continue
			}
			f.unmix(w, units)
		}
		rho := 1.0
		for {
			if valid && rho <= first && lower() {
				break
			}
			if rho /= 2; rho < sharedMove && len(units) > 1 {
				half := len(units) / 2
				f.divide(w, units[:half], units[half:])
				return 0, 0, false
			}
			if rho < shortestMove {
				return 0, 0, false
			}
			valid = f.shorten(w, units)
		}
		f.keep(w, units)
		first = min(1, 2*rho)
	}
	return 0, 0, false
}

// mix replaces the target of each unit by a mixture with its last target, for which the step to
// the target is predicted to be shortest (Anderson 1965, with one difference). It keeps the target
// for the next call and for unmix. It reports false and changes no target if ok is false, because
// there is no last target.
func (f *Profile) mix(w *profileWork, units []int, ok bool) bool {
	for _, u := range units {
		var along, square float64
		for _, c := range f.of(u) {
			f.each(c, func(i int) {
				step := w.to[i] - w.eta[i]
				change := step - (w.lastTo[i] - w.lastEta[i])
				along += step * change
				square += change * change
			})
		}
		theta := 0.0
		if ok && square > 0 {
			theta = along / square
		}
		for _, c := range f.of(u) {
			f.each(c, func(i int) {
				to := w.to[i]
				w.to[i] -= theta * (to - w.lastTo[i])
				w.lastTo[i], w.lastEta[i] = to, w.eta[i]
			})
			if theta != 0 && !f.mean(w, c) {
				f.each(c, func(i int) { w.to[i] = w.lastTo[i] })
				f.mean(w, c)
			}
		}
	}
	return ok
}

// unmix restores the targets that mix has replaced.
func (f *Profile) unmix(w *profileWork, units []int) {
	for _, u := range units {
		for _, c := range f.of(u) {
			f.each(c, func(i int) { w.to[i] = w.lastTo[i] })
			f.mean(w, c)
		}
	}
}

// divide calls descend for each list of units, from the present q.
func (f *Profile) divide(w *profileWork, lists ...[]int) {
	for _, units := range lists {
		f.back(w, units)
		f.descend(w, units)
	}
}

// of returns the copies of a unit.
func (f *Profile) of(unit int) []place { return f.copies[f.copiesOf[unit]:f.copiesOf[unit+1]] }

// begin sets the copies of units to their first q.
func (f *Profile) begin(w *profileWork, units []int) {
	for _, u := range units {
		for _, c := range f.of(u) {
			f.each(c, func(i int) { w.eta[i], w.to[i], w.mu[i] = f.Start[i], f.Start[i], f.mu[i] })
		}
	}
}

// objective returns the value of the units at w.mu, and the sum of the absolute values of its
// terms. It stores the gradient of Σ E[log f].
func (f *Profile) objective(w *profileWork, units []int) (value, size float64) {
	f.clearGlobal(w.grad)
	w.sum = Sum{}
	for _, u := range units {
		for _, c := range f.of(u) {
			f.each(c, func(i int) { w.grad[i] = 0 })
		}
	}
	for _, u := range units {
		f.queue(w, f.rows[f.rowsOf[u]:f.rowsOf[u+1]])
	}
	f.flush(w)
	value, size = -w.sum.Value, w.sum.Size
	for _, u := range units {
		for _, c := range f.of(u) {
			v := f.local(w, c)
			value += v
			size += math.Abs(v)
		}
	}
	return value, size
}

// local returns bᵀμ − a + KL(q‖p) of a copy at w.mu and w.to.
func (f *Profile) local(w *profileWork, c place) float64 {
	v := -f.Norm[f.index(c)]
	f.each(c, func(i int) { v += f.Base[i] * w.mu[i] })
	eta, prior := f.slice(w, w.to, c, 0), f.slice(w, f.Prior, c, 1)
	return v + expfam.Divergence(f.Family[c.block], eta, prior)
}

// gather adds the given rows of all factors to the sum and the gradient of w.
func (f *Profile) gather(w *profileWork, rows []int32) {
	f.queue(w, rows)
	f.flush(w)
}

// queue adds rows to the chunks of their factors, and computes chunks that are full.
func (f *Profile) queue(w *profileWork, rows []int32) {
	k := 0
	for _, r := range rows {
		n := int(r)
		if n < f.first[k] || n >= f.first[k+1] {
			k, _ = slices.BinarySearch(f.first, n+1)
			k--
		}
		if w.pending[k] = append(w.pending[k], n-f.first[k]); len(w.pending[k]) == Chunk {
			f.model.flush(w.modelWork, k, w.grad, w.mu, w.pending[k], 1)
			w.pending[k] = w.pending[k][:0]
		}
	}
}

// flush computes the chunks that are not full.
func (f *Profile) flush(w *profileWork) {
	for k, rows := range w.pending {
		f.model.flush(w.modelWork, k, w.grad, w.mu, rows, 1)
		w.pending[k] = rows[:0]
	}
}

// aim stores the target of each copy, η_p − b + ∇_μ Σ E[log f]. It returns the units that are away
// from the minimum, and whether all targets are valid. The list is overwritten by the next call.
func (f *Profile) aim(w *profileWork, units []int) (moving []int, valid bool) {
	w.moving, valid = w.moving[:0], true
	for _, u := range units {
		gain := 0.0 // ½δηᵀδμ over the copies, where δ leads to the target
		for _, c := range f.of(u) {
			f.each(c, func(i int) { w.to[i] = f.Prior[i] - f.Base[i] + w.grad[i] })
			if !f.mean(w, c) {
				valid, gain = false, math.Inf(1)
				continue
			}
			f.each(c, func(i int) { gain += 0.5 * (w.to[i] - w.eta[i]) * (w.at[i] - w.mu[i]) })
		}
		if !(gain <= minimumNats) {
			w.moving = append(w.moving, u)
		}
	}
	return w.moving, valid
}

// mean stores the mean parameters of w.to in w.at, and reports whether w.to is valid.
func (f *Profile) mean(w *profileWork, c place) bool {
	eta := f.slice(w, w.to, c, 0)
	mu := f.slice(w, w.at, c, 1)
	for _, x := range eta {
		if !finiteNumber(x) {
			return false
		}
	}
	if !expfam.MeanIfValid(f.Family[c.block], mu, eta) {
		return false
	}
	k := 0
	f.each(c, func(i int) {
		w.at[i] = mu[k]
		k++
	})
	return true
}

// set makes the target the q that is tried.
func (f *Profile) set(w *profileWork, units []int) {
	for _, u := range units {
		for _, c := range f.of(u) {
			f.each(c, func(i int) { w.mu[i] = w.at[i] })
		}
	}
}

// shorten halves the way from the present q to the target. It reports whether the point is valid.
func (f *Profile) shorten(w *profileWork, units []int) bool {
	valid := true
	for _, u := range units {
		for _, c := range f.of(u) {
			f.each(c, func(i int) { w.to[i] = w.eta[i] + 0.5*(w.to[i]-w.eta[i]) })
			valid = f.mean(w, c) && valid
		}
	}
	return valid
}

// keep makes w.to the present q.
func (f *Profile) keep(w *profileWork, units []int) {
	for _, u := range units {
		for _, c := range f.of(u) {
			f.each(c, func(i int) { w.eta[i] = w.to[i] })
		}
	}
}

// back sets w.mu and w.to to the present q.
func (f *Profile) back(w *profileWork, units []int) {
	for _, u := range units {
		for _, c := range f.of(u) {
			f.each(c, func(i int) { w.to[i] = w.eta[i] })
			f.mean(w, c)
		}
	}
	f.set(w, units)
}
