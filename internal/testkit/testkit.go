// Package testkit has what tests of several packages need.
package testkit

import (
	"time"

	"github.com/pgsvi/pgsvi/internal/parallel"
)

// A machine with other work to do takes less than this after a run was canceled.
func init() { parallel.LastMoment = 2 * time.Minute }
