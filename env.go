package pgsvi

import "math/rand/v2"

// Env is what a Solver lends a Stepper for the time of a call: randomness and
// workers. A nil Env has a fixed seed and one worker.
type Env struct {
	// Rng is the source of all randomness of the call. Nil means one of a fixed seed.
	Rng     *rand.Rand
	workers int
}

// NewEnv returns an Env for those who drive a Stepper by hand. A nil src means a
// fixed seed, and less than one worker one.
func NewEnv(src rand.Source, workers int) *Env {
	if src == nil {
		src = rand.NewPCG(seed1, seed2)
	}
	return &Env{rand.New(src), max(1, workers)}
}

// Workers returns the number of goroutines that the call may use.
func (e *Env) Workers() int {
	if e == nil {
		return 1
	}
	return max(1, e.workers)
}

// rng returns the generator of e.
func (e *Env) rng() *rand.Rand {
	if e == nil || e.Rng == nil {
		return rand.New(rand.NewPCG(seed1, seed2))
	}
	return e.Rng
}

// The seed of whatever has no source of randomness of the caller's.
const seed1, seed2 = 0x5eed, 0xe1b0
