package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi"
	files "github.com/pgsvi/pgsvi/data"
	"gonum.org/v1/gonum/mat"
)

// source says where the data are.
type source struct {
	data, train, test  string
	response, positive string
	seed               uint64
}

// data are rows of features and their labels, -1 or +1.
type data struct {
	x     mat.Matrix
	y     []float64
	names []string // of the columns; nil if they have none

	name               string // of the data
	about              string // what they are, for people
	response, positive string // what is predicted
}

// load returns the training and the test data.
func (s *source) load() (train, test data, err error) {
	switch {
	case s.train == "":
		return s.loadTestdata()
	case isCSV(s.train):
		train, test, err = s.loadCSV()
	default:
		train, test, err = s.loadLIBSVM()
	}
	if err != nil {
		return train, test, err
	}
	train.name = filepath.Base(s.train)
	how := "of " + filepath.Base(s.test)
	if s.test == "" {
		if train, test, err = train.split(s.seed); err != nil {
			return train, test, err
		}
		how = "drawn from it at random"
	}
	_, cols := train.x.Dims()
	train.about = fmt.Sprintf("%s: %d rows of %d columns to train on, %d %s to test on", train.name, len(train.y), cols, len(test.y), how)
	return train, test, nil
}

// isCSV goes by the name of the file.
func isCSV(file string) bool {
	return strings.EqualFold(filepath.Ext(strings.TrimSuffix(file, ".gz")), ".csv")
}

// loadCSV makes columns of numbers of the categories, and labels of -1 and +1 of
// two texts or numbers. What stands for what is settled by the training data. Decisions
// that a column needs are those that data.Table.Suggest finds most likely right.
func (s *source) loadCSV() (train, test data, err error) {
	t, err := files.ReadFile(s.train)
	if err != nil {
		return train, test, err
	}
	names := t.Columns()
	outcome := files.Outcome(names[len(names)-1])
	if s.response != "" {
		outcome = files.Outcome(s.response)
	}
	if s.positive != "" {
		outcome = outcome.Positive(s.positive)
	}
	suggested := t.Suggest("", files.Raw(), outcome) // raw: see -autoscale
	if len(suggested.Decisions) > 0 {
		fmt.Printf("decided:\n%s\n", suggested)
	}
	e, err := t.Encoder(suggested.Columns()...)
	if err != nil {
		return train, test, err
	}
	for _, doubt := range e.Doubts() {
		fmt.Println(doubt)
	}
	d, err := e.Data(t)
	if err != nil {
		return train, test, err
	}
	if len(d.Labels) != 2 {
		return train, test, fmt.Errorf("%s: the labels are not two", s.train)
	}
	train = data{x: d.X, y: d.Y, names: d.Names, response: e.Outcome(), positive: d.Labels[1]}
	if s.test == "" {
		return train, test, nil
	}
	if t, err = files.ReadFile(s.test); err != nil {
		return train, test, err
	}
	if d, err = e.Data(t); err == nil && d.Y == nil {
		err = fmt.Errorf("%s: there is no column %s", s.test, e.Outcome())
	}
	if err != nil {
		return train, test, err
	}
	return train, data{x: d.X, y: d.Y}, nil
}

// loadLIBSVM reads sparse rows; the test data have the columns of the training data.
func (s *source) loadLIBSVM() (train, test data, err error) {
	if train, err = readLIBSVM(s.train, 0); err != nil {
		return train, test, err
	}
	if s.test != "" {
		_, cols := train.x.Dims()
		if test, err = readLIBSVM(s.test, cols); err != nil {
			return train, test, err
		}
	}
	train.response = "label"
	train.positive, err = signs(train.y, test.y)
	return train, test, err
}

func readLIBSVM(file string, cols int) (d data, err error) {
	err = withFile(file, func(r io.Reader) error {
		d.x, d.y, err = files.ReadLIBSVM(r, cols)
		if err != nil && cols == 0 {
			err = fmt.Errorf("%w (read as LIBSVM; the names of CSV files end in .csv or .csv.gz)", err)
		}
		return err
	})
	return d, err
}

// signs turns the labels, of which there must be two, into -1 and +1, in place,
// and returns what the larger one was.
func signs(train, test []float64) (positive string, err error) {
	if len(train) == 0 {
		return "", errors.New("no rows")
	}
	lo, hi := slices.Min(train), slices.Max(train)
	for _, y := range [][]float64{train, test} {
		for i, label := range y {
			switch {
			case lo == hi || label != lo && label != hi:
				return "", fmt.Errorf("label %v in a row and %v to %v in the training data, want two different labels", label, lo, hi)
			case label == hi:
				y[i] = +1
			default:
				y[i] = -1
			}
		}
	}
	return fmt.Sprint(hi), nil
}

// split holds out a fifth of the rows, at random.
func (d data) split(seed uint64) (train, test data, err error) {
	order := rand.New(rand.NewPCG(seed, 0)).Perm(len(d.y))
	held := len(order) / 5
	if held == 0 {
		return train, test, fmt.Errorf("%d rows are too few to hold some out to test on; give -test", len(order))
	}
	if train, err = d.rows(order[held:]); err == nil {
		test, err = d.rows(order[:held])
	}
	return train, test, err
}

// rows returns the rows of d that are at index.
func (d data) rows(index []int) (s data, err error) {
	s = d
	if x, dense := d.x.(*mat.Dense); dense {
		s.x, s.y, err = files.SelectRows(x, d.y, index)
		return s, err
	}
	sparse := d.x.(*pgsvi.Sparse)
	_, cols := sparse.Dims()
	x := pgsvi.NewSparse(cols)
	s.x, s.y = x, nil
	for _, i := range index {
		ind32, val := sparse.Row(i)
		ind := make([]int, len(ind32))
		for k, j := range ind32 {
			ind[k] = int(j)
		}
		if err := x.Append(ind, val); err != nil {
			return s, err
		}
		s.y = append(s.y, d.y[i])
	}
	return s, nil
}

// loadTestdata reads a data set of testdata, which is one file and the numbers
// of its rows to train and to test on.
func (s *source) loadTestdata() (train, test data, err error) {
	about, known := map[string]string{
		"ionosphere": "ionosphere: radar returns, good (-1) or bad (+1)",
		"sonar":      "sonar: echoes of a rock (-1) or of a mine (+1)",
	}[s.data]
	if !known {
		return train, test, fmt.Errorf("-data is %q, want ionosphere or sonar; use -train for other data", s.data)
	}
	dir := filepath.Join("testdata", s.data)
	var all data
	err = withFile(filepath.Join(dir, s.data+".csv"), func(r io.Reader) error {
		all.x, all.y, err = files.ReadCSV(r)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("no testdata here; run logistic in the root of the repository, or give -train: %w", err)
	}
	for name, d := range map[string]*data{"train_index.txt": &train, "test_index.txt": &test} {
		if err == nil {
			err = withFile(filepath.Join(dir, name), func(r io.Reader) error {
				index, err := files.ReadIndex(r)
				if err == nil {
					*d, err = all.rows(index)
				}
				return err
			})
		}
	}
	train.name, train.response, train.positive = s.data, "label", "1"
	train.about = fmt.Sprintf("%s; %d rows to train on, %d to test on", about, len(train.y), len(test.y))
	return train, test, err
}

// withFile calls read on an open file, whose name it adds to the error.
func withFile(name string, read func(io.Reader) error) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := read(f); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
