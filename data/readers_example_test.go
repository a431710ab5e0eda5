package data_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
	"gonum.org/v1/gonum/mat"
)

func ExampleReadLIBSVM() {
	x, y, err := data.ReadLIBSVM(strings.NewReader("+1 1:0.5 4:1\n-1 2:3  # the control\n"), 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%v\n%v, %d non-zeros\n", mat.Formatted(x), y, x.NNZ())

	_, _, err = data.ReadLIBSVM(strings.NewReader("+1 1:0.5 4:1\n-1 0:3\n"), 4)
	fmt.Println(err)
	// Output:
	// ⎡0.5    0    0    1⎤
	// ⎣  0    3    0    0⎦
	// [1 -1], 3 non-zeros
	// pgsvi: line 2: the index is "0"; it must be from 1 to 4
}

func ExampleScanLIBSVM() {
	for row, err := range data.ScanLIBSVM(strings.NewReader("+1 1:0.5 4:1\n-1 2:3\n+1 2:x\n")) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(row.Y, row.Ind, row.Val)
	}
	// Output:
	// 1 [0 3] [0.5 1]
	// -1 [1] [3]
	// pgsvi: line 3, index 2: "x" is not a finite number
}

// Rows on their way from text to a file of their own, which can be larger than
// memory and is read again and again.
func ExampleRowWriter() {
	dir, err := os.MkdirTemp("", "rows")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "train.rows")
	file, err := os.Create(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer file.Close()
	w := data.NewRowWriter(file, 0, &data.RowOptions{Sparse: true})
	n, err := data.CopyRows(w, data.ScanLIBSVM(strings.NewReader("+1 1:0.5 4:1\n-1 2:3\n")))
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		fmt.Println(err)
		return
	}

	f, err := data.OpenRows(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	fmt.Println(n, "rows written,", f.Len(), "read, of", f.Cols(), "columns")
	for row, err := range f.All() {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(row.Y, row.Ind, row.Val)
	}
	// Output:
	// 2 rows written, 2 read, of 4 columns
	// 1 [0 3] [0.5 1]
	// -1 [1] [3]
}

func ExampleRowFile_RowAt() {
	dir, err := os.MkdirTemp("", "rows")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "rows")
	file, err := os.Create(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer file.Close()
	x := mat.NewDense(3, 2, []float64{1, 2, 3, 4, 5, 6})
	w := data.NewRowWriter(file, 2, nil)
	if _, err = data.CopyRows(w, pgsvi.Rows(x, []float64{1, -1, 1})); err == nil {
		err = w.Close()
	}
	if err != nil {
		fmt.Println(err)
		return
	}

	f, err := data.OpenRows(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	var row pgsvi.Row
	if err := f.RowAt(1, &row); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(row.Y, row.Val)
	// Output:
	// -1 [3 4]
}
