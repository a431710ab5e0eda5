package pgsvi

import (
	"fmt"
	"io"
	"math"
	"slices"
	"time"
)

// RecorderFunc makes a Recorder of a function.
type RecorderFunc func(it Iteration)

// Record calls f.
func (f RecorderFunc) Record(it Iteration) { f(it) }

// Tee shows every iteration to each of the given recorders, in order.
func Tee(recorders ...Recorder) Recorder {
	rs := slices.Clone(recorders)
	return RecorderFunc(func(it Iteration) {
		for _, r := range rs {
			r.Record(it)
		}
	})
}

// Progress is a Recorder that keeps one line on a terminal up to date.
type Progress struct {
	W io.Writer
	// Every is the least time between two updates. Zero means a tenth of a second.
	Every time.Duration

	width int
	next  time.Duration
	elbo  float64
	gap   float64
}

// Record implements Recorder.
func (p *Progress) Record(it Iteration) {
	if it.K == 1 {
		p.next, p.elbo, p.gap = 0, math.NaN(), math.NaN()
	}
	if !math.IsNaN(it.ELBO) {
		p.elbo, p.gap = it.ELBO, it.Gap
	}
	if it.Elapsed < p.next {
		return
	}
	every := p.Every
	if every == 0 {
		every = 100 * time.Millisecond
	}
	p.next = it.Elapsed + every
	line := fmt.Sprintf("iteration %d, pass %.2f", it.K, it.Passes)
	if !math.IsNaN(p.elbo) {
		line += fmt.Sprintf(", ELBO %.6g", p.elbo)
	}
	if !math.IsNaN(p.gap) {
		line += fmt.Sprintf(", gap %.1g", p.gap)
	}
	p.print(line + fmt.Sprintf(", %v", it.Elapsed.Round(time.Millisecond)))
}

// Done clears the line.
func (p *Progress) Done() {
	if p.width > 0 {
		p.print("")
		fmt.Fprint(p.W, "\r")
		p.width = 0
	}
}

func (p *Progress) print(line string) {
	fmt.Fprintf(p.W, "\r%-*s", p.width, line)
	p.width = max(p.width, len(line))
}
