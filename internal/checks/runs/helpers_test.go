package runs

import (
	"errors"
	"testing"
	"time"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/parallel"
)

var errFullDisk = errors.New("full")

// topicsOf is the number of topics.
func topicsOf(p *CTMPosterior) int { return p.Topics().RawMatrix().Rows }

// usersMoment sets parallel.LastMoment to the value that users get, until the test ends. The test
// must not run in parallel.
func usersMoment(t *testing.T) {
	t.Helper()
	busy := parallel.LastMoment
	parallel.LastMoment = 50 * time.Millisecond
	t.Cleanup(func() { parallel.LastMoment = busy })
}
