package bench

import (
	"os"
	"testing"

	_ "github.com/pgsvi/pgsvi/bench/blas"
	"github.com/pgsvi/pgsvi/bench/paper"
)

// problems returns ionosphere (N = 280) and, if PGSVI_DATA is set, USPS 3 vs 5 (N = 767).
func problems(b *testing.B) []*paper.Problem {
	b.Helper()
	ps := []*paper.Problem{ionosphere(b)}
	if dir := os.Getenv("PGSVI_DATA"); dir != "" {
		p, err := paper.USPS(dir, 3, 5)
		if err != nil {
			b.Fatal(err)
		}
		ps = append(ps, p)
	}
	return ps
}

func ionosphere(b *testing.B) *paper.Problem {
	b.Helper()
	p, err := paper.Ionosphere("../testdata")
	if err != nil {
		b.Fatal(err)
	}
	return p
}
