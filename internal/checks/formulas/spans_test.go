package formulas

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
	"github.com/pgsvi/pgsvi/formula"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// TestSpans checks that the models of random formulas span the same columns as in R, or that an
// error marks the place that formulas do not support. See testdata/spans.R.
func TestSpans(t *testing.T) {
	table := testkit.Must(data.ReadFile("testdata/table.csv"))
	text := string(testkit.Must(os.ReadFile("testdata/spans.tsv")))
	cases, refused := strings.Split(strings.TrimSpace(text), "\n"), 0
	v := mat.NewDense(table.Len(), 3, nil)
	v.Copy(testkit.Must(table.Model("y ~ 0 + v1 + v2 + v3", data.Raw())).X)
	for _, c := range cases {
		fields := strings.Split(c, "\t")
		var want []float64
		for _, f := range fields[1:] {
			want = append(want, testkit.Must(strconv.ParseFloat(f, 64)))
		}
		got, err := spanOf(table, fields[0], v)
		var wrong *formula.Error
		switch {
		case err == nil:
			for i := range want {
				if !(math.Abs(got[i]-want[i]) <= 1e-6*(1+math.Abs(want[i]))) {
					t.Errorf("%s: rank, v'Pv and v'o are %.9g, in R %v", fields[0], got, want)
					break
				}
			}
		case errors.As(err, &wrong) && wrong.Offset >= 0,
			strings.Contains(err.Error(), "depends on the reference level of"):
			refused++
		default:
			t.Errorf("%s: %v does not mark its place", fields[0], err)
		}
	}
	if refused > len(cases)/3 {
		t.Errorf("%d of %d formulas are refused", refused, len(cases))
	}
}

// spanOf returns the rank of the columns of a model, v'Pv for the projection P on the columns and
// each column v of vs, and the product of the offset and the first v.
func spanOf(table *data.Table, text string, vs *mat.Dense) ([]float64, error) {
	m, err := table.Model(text, data.Number("k"))
	if err != nil {
		return nil, err
	}
	_, opt, err := m.Options(pgsvi.GaussianNoise{}, nil)
	rows, cols := table.Len(), len(m.Names)
	x := mat.NewDense(rows, cols+1, nil)
	if err == nil && opt.Intercept {
		for i := range rows {
			x.Set(i, cols, 1)
		}
	}
	offset := 0.
	for i := range rows {
		for j := range cols {
			x.Set(i, j, m.X.At(i, j))
		}
		if m.Offset != nil {
			offset += m.Offset[i] * vs.At(i, 0)
		}
	}
	column := make([]float64, rows)
	for j := range cols + 1 {
		if norm := floats.Norm(mat.Col(column, j, x), 2); norm > 0 {
			floats.Scale(1/norm, column)
			x.SetCol(j, column)
		}
	}
	var svd mat.SVD
	if !svd.Factorize(x, mat.SVDThin) {
		return nil, fmt.Errorf("no singular values")
	}
	var u, p mat.Dense
	svd.UTo(&u)
	values, rank := svd.Values(nil), 0
	for rank < len(values) && values[rank] > 1e-9*values[0] {
		rank++
	}
	all := []float64{float64(rank)}
	if rank > 0 {
		p.Mul(u.Slice(0, rows, 0, rank).T(), vs)
	}
	for j := range 3 {
		sum := 0.
		for i := range rank {
			sum += p.At(i, j) * p.At(i, j)
		}
		all = append(all, sum)
	}
	return append(all, offset), nil
}
