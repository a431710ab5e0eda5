package small

import "small/internal/deep"

// Fitter is what a model is.
type Fitter interface {
	Fit() int
	Len() int
}

func (g *GP[T]) fit() int {
	switch x := any(g.X).(type) {
	case interface{ Len() int }:
		return x.Len()
	case any:
		return deep.Zero
	}
	return g.hidden
}
