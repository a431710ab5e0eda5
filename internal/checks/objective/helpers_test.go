package objective

import (
	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
)

// inCoords returns o with λ in the coordinates c.
func inCoords(o Objective[*Gaussian], c Coordinates) Objective[*Gaussian] {
	o.Init = o.Init.In(c)
	return o
}

// qOf returns q(z|λ) at the state that a run of an Objective reached.
func qOf[Q Dist](res *Result) Q { return kit.Reached[Q](res.Stepper) }
