package linear

import (
	"io"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/checks/kit"
	"github.com/pgsvi/pgsvi/internal/testkit"

	"gonum.org/v1/gonum/mat"
)

// collectRows returns copies of the rows before an error, and the error.
func collectRows(rows iter.Seq2[Row, error]) (all []Row, err error) {
	for row, err := range rows {
		if err != nil {
			return all, err
		}
		row.Val = append([]float64{}, row.Val...)
		if row.Ind != nil {
			row.Ind = append([]int{}, row.Ind...)
		}
		all = append(all, row)
	}
	return all, nil
}

// sameRows reports whether rows are exactly equal, where a nil Ind and an empty Ind differ.
func sameRows(a, b []Row) bool {
	bits := func(x []float64) (u []uint64) {
		for _, v := range x {
			u = append(u, math.Float64bits(v))
		}
		return u
	}
	return slices.EqualFunc(a, b, func(a, b Row) bool {
		return (a.Ind == nil) == (b.Ind == nil) && slices.Equal(a.Ind, b.Ind) &&
			slices.Equal(bits(a.Val), bits(b.Val)) &&
			slices.Equal(bits([]float64{a.Y, a.Offset, a.Weight}),
				bits([]float64{b.Y, b.Offset, b.Weight}))
	})
}

// split is a data set divided into training and test rows.
type split struct {
	x, xtest *mat.Dense
	y, ytest []float64
}

// loadUCI reads sonar or ionosphere from testdata.
func loadUCI(t testing.TB, name string) (s split) {
	t.Helper()
	s.x, s.y, s.xtest, s.ytest = testkit.UCI(t, kit.Root(), name)
	return s
}

func readLIBSVM(t testing.TB, r io.Reader, cols int) (*Sparse, []float64) {
	t.Helper()
	x, y := NewSparse(cols), []float64{}
	for _, f := range testkit.ReadLines(t, r) {
		var ind []int
		var val []float64
		for _, p := range f[1:] {
			i, v, _ := strings.Cut(p, ":")
			ind, val = append(ind, int(testkit.Number(t, i))-1), append(val, testkit.Number(t, v))
		}
		if err := x.Append(ind, val); err != nil {
			t.Fatal(err)
		}
		y = append(y, testkit.Number(t, f[0]))
	}
	return x, y
}
