package pgsvi

import (
	"fmt"
	"math"
)

// auto leaves the length of every step to the Stepper: a nil Solver.StepSize.
type auto struct{}

// StepSize returns +Inf.
func (auto) StepSize(int) float64 { return math.Inf(1) }

// ConstantStep is the schedule β_k = β. The zero value is invalid.
type ConstantStep float64

// StepSize returns c.
func (c ConstantStep) StepSize(int) float64 { return float64(c) }

// Validate returns an error wrapping ErrParam unless c is positive.
func (c ConstantStep) Validate() error {
	if !(c > 0) {
		return fmt.Errorf("pgsvi: ConstantStep %v must be positive: %w", float64(c), ErrParam)
	}
	return nil
}

// RobbinsMonro is the schedule β_k = Scale·(1 + k/Delay)^−Power (Robbins and
// Monro, 1951), whose sum diverges while the sum of its squares converges for
// ½ < Power ≤ 1. Zero fields mean Scale 1, Delay 1 and Power 0.6.
type RobbinsMonro struct{ Scale, Delay, Power float64 }

// StepSize returns β_k.
func (r RobbinsMonro) StepSize(k int) float64 {
	return orOne(r.Scale) * math.Pow(1+float64(k)/orOne(r.Delay), -r.power())
}

func (r RobbinsMonro) power() float64 {
	if r.Power == 0 {
		return 0.6
	}
	return r.Power
}

// Validate returns an error wrapping ErrParam unless Scale and Delay are
// positive or zero and Power is in [0, 1].
func (r RobbinsMonro) Validate() error {
	if !(r.Scale >= 0) || !(r.Delay >= 0) || !(r.Power >= 0 && r.Power <= 1) || math.IsInf(r.Scale, 0) || math.IsInf(r.Delay, 0) {
		return fmt.Errorf("pgsvi: %+v needs Scale and Delay >= 0 and Power in [0, 1]: %w", r, ErrParam)
	}
	return nil
}

func orOne(x float64) float64 {
	if x == 0 {
		return 1
	}
	return x
}
