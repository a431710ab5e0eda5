package cli

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
)

// ShareFlag defines a flag for a share, such as a probability. Its value is a number such as 0.95
// or a percentage such as 95%.
func ShareFlag(f *flag.FlagSet, name string, value float64, usage string) *float64 {
	f.Var((*share)(&value), name, usage)
	return &value
}

// share is the value of a ShareFlag.
type share float64

func (s *share) String() string { return strconv.FormatFloat(float64(*s), 'g', -1, 64) }

// Set implements flag.Value.
func (s *share) Set(text string) error {
	number, percent := strings.CutSuffix(text, "%")
	x, err := strconv.ParseFloat(strings.TrimRight(number, " "), 64)
	switch {
	case errors.Is(err, strconv.ErrSyntax):
		return fmt.Errorf("it is not a number; write a share as 0.95 or 95%%")
	case err != nil:
		return err
	case percent:
		x /= 100
	}
	*s = share(x)
	return nil
}
