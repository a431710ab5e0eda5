// Package graph holds tests of Graph that use the public API like a user: random models, models of
// the literature, plates, and checks of custom factors.
package graph
