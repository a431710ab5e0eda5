package small

// GP has a field; one of its methods is in gp_fit.go.
type GP[T any] struct {
	X      T
	hidden int
}

func (g *GP[T]) Fit() int { return g.fit() }
