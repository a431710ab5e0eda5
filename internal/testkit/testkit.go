// Package testkit holds helpers that the tests of several packages share: flags for the size of
// tests, random data, data files, comparisons of numbers, and checks of saved files.
package testkit

import (
	"time"

	"github.com/pgsvi/pgsvi/internal/parallel"
)

// Even a busy machine stops a canceled run in less time than this.
func init() { parallel.LastMoment = 2 * time.Minute }
