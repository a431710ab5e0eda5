package runs

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

var errFullDisk = errors.New("full")

// topicsOf is the number of topics.
func topicsOf(p *CTMPosterior) int { return p.Topics().RawMatrix().Rows }

// textLabels is sparseLabels with features as frequent as the words of a text.
func textLabels(n, d int) (*Sparse, []float64) {
	rng := rand.New(rand.NewPCG(4, 2))
	zipf := rand.NewZipf(rng, 1.1, 8, uint64(d-1))
	x, y, w := NewSparse(d), make([]float64, n), make([]float64, d)
	for j := range w {
		w[j] = rng.NormFloat64()
	}
	for i := range y {
		count := map[int]float64{}
		for range 60 + rng.IntN(80) {
			count[int(zipf.Uint64())]++
		}
		var ind []int
		for j := range count {
			ind = append(ind, j)
		}
		slices.Sort(ind)
		val, square := make([]float64, len(ind)), 0.0
		for k, j := range ind {
			val[k] = 1 + math.Log(count[j])
			square += val[k] * val[k]
		}
		eta := 0.0
		for k, j := range ind {
			val[k] *= 3 / math.Sqrt(square)
			eta += val[k] * w[j]
		}
		x.Append(ind, val)
		y[i] = testkit.Label(rng, eta/2)
	}
	return x, y
}
