package runs

import (
	"errors"

	. "github.com/pgsvi/pgsvi"
)

var errFullDisk = errors.New("full")

// topicsOf is the number of topics.
func topicsOf(p *CTMPosterior) int { return p.Topics().RawMatrix().Rows }
