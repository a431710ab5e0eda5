package pgsvi

import "fmt"

func newStructuredStepper(g *GLM, est SiteEstimator) (Stepper, error) {
	return nil, fmt.Errorf("pgsvi: %w: not yet", ErrParam)
}
