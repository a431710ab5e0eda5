package linear

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

func TestSparsePanics(t *testing.T) {
	s := SparseOf(mat.NewDense(2, 3, []float64{1, 0, 3, 0, 5, 0}))
	for _, at := range [][2]int{{-1, 0}, {2, 0}, {0, -1}, {0, 3}} {
		testkit.MustPanic(t, fmt.Sprint(at), func() { s.At(at[0], at[1]) })
	}
	testkit.MustPanic(t, "negative columns", func() { NewSparse(-1) })
	testkit.MustPanic(t, "short y", func() { Rows(s, []float64{1}) })
	ind, val := s.Row(0)
	_, _ = append(ind, 9), append(val, 9)
	if s.At(1, 1) != 5 {
		t.Error("appending to a row has changed the next one")
	}
}

// FuzzSparse checks rows of all kinds against a dense matrix.
func FuzzSparse(f *testing.F) {
	f.Add([]byte{}, uint8(3))
	f.Add([]byte{2, 5, 1, 3, 2, 0, 1, 2, 1, 1, 7, 7}, uint8(0))
	f.Add([]byte{1, 255, 1, 2, 4, 4, 4, 4}, uint8(9))
	f.Fuzz(func(t *testing.T, in []byte, cols uint8) {
		s := NewSparse(int(cols))
		var want [][]float64
		width := int(cols)
		for len(in) > 0 {
			k := min(int(in[0]%8), (len(in)-1)/2)
			ind, val := make([]int, k), make([]float64, k)
			valid := true
			row := make([]float64, 256)
			seen := map[int]bool{}
			for i := range k {
				ind[i], val[i] = int(int8(in[1+2*i])), float64(int8(in[2+2*i]))
				if val[i] == 127 {
					val[i] = math.Inf(1)
				}
				if valid = valid && ind[i] >= 0 && val[i] < 127 && !seen[ind[i]]; valid {
					row[ind[i]] = val[i]
					seen[ind[i]] = true
				}
			}
			in = in[1+2*k:]
			err := s.Append(ind, val)
			if (err == nil) != valid {
				t.Fatalf("%v, %v: error %v", ind, val, err)
			}
			if valid {
				want = append(want, row)
				for j := range seen {
					width = max(width, j+1)
				}
			}
		}
		n, d := s.Dims()
		if n != len(want) || d != width {
			t.Fatalf("%d×%d, want %d×%d", n, d, len(want), width)
		}
		nonzero := 0
		for i := range n {
			for j := range d {
				if s.At(i, j) != want[i][j] {
					t.Fatalf("(%d, %d) is %v, want %v", i, j, s.At(i, j), want[i][j])
				}
				if want[i][j] != 0 {
					nonzero++
				}
			}
		}
		if s.NNZ() != nonzero {
			t.Fatalf("%d non-zeros, want %d", s.NNZ(), nonzero)
		}
		i := 0
		for row, err := range Rows(s, nil) {
			if err != nil || row.Ind == nil {
				t.Fatalf("row %d: %v", i, err)
			}
			dense := make([]float64, 256)
			for k, j := range row.Ind {
				dense[j] = row.Val[k]
			}
			if !slices.Equal(dense, want[i]) {
				t.Fatalf("row %d is %v", i, row)
			}
			i++
		}
	})
}

// TestRowsInPlace checks that the rows of a matrix in memory are not copied.
func TestRowsInPlace(t *testing.T) {
	x, i := mat.NewDense(2, 3, []float64{1, 2, 3, 4, 5, 6}), 0
	for row := range Rows(x, nil) {
		if &row.Val[0] != &x.RawRowView(i)[0] || len(row.Val) != 3 {
			t.Errorf("row %d is a copy", i)
		}
		i++
	}
}

// A matrix argument that is a nil pointer must produce an error and no panic.
func TestNilMatricesAreErrors(t *testing.T) {
	ctx := context.Background()
	x := mat.NewDense(4, 2, []float64{1, 2, 3, 5, 4, 1, 0, 3})
	y := []float64{1, -1, 1, 1}
	k := SquaredExp{}
	rows := func() iter.Seq2[Row, error] { return Rows(x, y) }
	glm, err := NewGLM(x, y, BernoulliLogit{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	glmPost, _, err := glm.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	gp, err := NewGP(x, y, k, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	gpPost, _, err := gp.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	sparse, err := NewSparseGP(x, y, k, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	sparsePost, _, err := sparse.Fit(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &Corpus{Terms: 2, Docs: []Document{{Words: []int{0, 1}, Counts: []float64{2, 1}}}}
	var dense *mat.Dense
	for _, z := range []mat.Matrix{nil, dense, (*Sparse)(nil), (*mat.SymDense)(nil),
		mat.Transpose{Matrix: dense}} {
		fails := map[string]error{}
		_, fails["NewGLM"] = NewGLM(z, nil, nil, nil)
		_, fails["NewGP"] = NewGP(z, y, k, nil, nil)
		_, fails["NewSparseGP"] = NewSparseGP(z, y, k, nil, nil)
		_, fails["NewMixture"] = NewMixture(z, 1, nil)
		_, fails["WithInducing"] = sparsePost.WithInducing(z)
		_, _, fails["Joint"] = gpPost.Joint(z)
		fails["Rand"] = gpPost.Rand(mat.NewDense(1, 1, nil), z, rand.New(rand.NewPCG(1, 2)))
		fails["GLM At"] = glmPost.At(z).Err()
		fails["GP At"] = gpPost.At(z).Err()
		fails["SparseGP At"] = sparsePost.At(z).Err()
		for _, err := range Rows(z, y) {
			fails["Rows"] = err
		}
		for name, err := range fails {
			if !errors.Is(err, ErrEmpty) || !strings.Contains(err.Error(), "nil matrix") {
				t.Errorf("%s of %T: %v", name, z, err)
			}
		}
		if z == nil {
			continue // options may be left out
		}
		clear(fails)
		_, fails["SparseGPOptions.Inducing"] = NewSparseGP(x, y, k, nil,
			&SparseGPOptions{Inducing: z})
		_, fails["Inducing of rows"] = NewSparseGPRows(ctx, rows(), 2, k, nil,
			&SparseGPOptions{Inducing: z})
		_, fails["LDAOptions.Topics"] = NewLDA(c, 1, &LDAOptions{Topics: z})
		_, fails["CTMOptions.Topics"] = NewCTM(c, 2, &CTMOptions{Topics: z})
		_, fails["MixtureOptions.Start"] = NewMixture(x, 1, &MixtureOptions{Start: z})
		if s, ok := z.(mat.Symmetric); ok {
			_, fails["MixtureOptions.Cov"] = NewMixture(x, 1, &MixtureOptions{Cov: s})
		}
		for name, err := range fails {
			if !errors.Is(err, ErrParam) || !strings.Contains(err.Error(), "is a nil ") {
				t.Errorf("%s of %T: %v", name, z, err)
			}
		}
	}
	var sym *mat.SymDense
	for name, f := range map[string]func() error{
		"NewGaussian":      func() error { _, err := NewGaussian(nil, sym); return err },
		"NewWishart":       func() error { _, err := NewWishart(3, sym); return err },
		"NewNormalWishart": func() error { _, err := NewNormalWishart(nil, 1, 3, sym); return err },
	} {
		if err := f(); !errors.Is(err, ErrEmpty) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
