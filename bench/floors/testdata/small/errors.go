package small

import "errors"

var ErrGP = errors.New("small: no process")
