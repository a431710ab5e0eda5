package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"github.com/pgsvi/pgsvi"
	files "github.com/pgsvi/pgsvi/data"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// options are what the command line says.
type options struct {
	data, train, test     string
	length, scale, jitter float64
	goal                  float64 // of the fits, in nats
	likelihood            pgsvi.Likelihood
	out                   string
	seed                  uint64
	given                 map[string]bool // the flags that were given
}

func parseFlags(args []string, stderr io.Writer) (*options, error) {
	o := &options{given: make(map[string]bool)}
	f := flag.NewFlagSet("gpclass", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.data, "data", "ionosphere", "data set of testdata: ionosphere or sonar")
	f.StringVar(&o.train, "train", "", "CSV `file` to train on instead, with the label in the last column")
	f.StringVar(&o.test, "test", "", "CSV `file` to test on, with -train; may be left out")
	f.Float64Var(&o.length, "length", 0, "length scale of the kernel, in the units of the features\n"+
		"(default: as in the paper for -data, the median distance between rows for -train)")
	f.Float64Var(&o.scale, "scale", 0, "standard deviation of the latent function\n"+
		"(default: as in the paper for -data, 5 for -train)")
	f.Float64Var(&o.jitter, "jitter", 0, "variance added to the diagonal of the covariance matrix; never needed\n"+
		"(default: as in the paper for -data, 0 for -train)")
	f.Float64Var(&o.goal, "goal", 0, "stop where the -ELBO is proved to be within so many `nats` of its minimum (default: as near as is of use)")
	likelihood := f.String("likelihood", "logit", "logit or probit")
	f.StringVar(&o.out, "out", "gpclass.png", "PNG `file` to draw to; empty for none")
	f.Uint64Var(&o.seed, "seed", 1, "seed of all that is random")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	f.Visit(func(f *flag.Flag) { o.given[f.Name] = true })

	if !(o.goal >= 0) {
		return nil, fmt.Errorf("-goal is %v nats, want a positive number", o.goal)
	}
	switch *likelihood {
	case "logit":
		o.likelihood = pgsvi.BernoulliLogit{}
	case "probit":
		o.likelihood = pgsvi.BernoulliProbit{}
	default:
		return nil, fmt.Errorf("-likelihood is %q, want logit or probit", *likelihood)
	}
	_, known := paper[o.data]
	switch {
	case f.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.given["data"] && o.given["train"]:
		return nil, errors.New("give -data or -train, not both")
	case o.test != "" && o.train == "":
		return nil, errors.New("-test needs -train")
	case o.train == "" && !known:
		return nil, fmt.Errorf("-data is %q, want ionosphere or sonar; use -train for other data", o.data)
	}
	// The library reads a zero Scale or Length as 1; here zero is a mistake.
	for _, p := range []struct {
		name  string
		value float64
	}{{"length", o.length}, {"scale", o.scale}} {
		if o.given[p.name] && !(p.value > 0) {
			return nil, fmt.Errorf("-%s is %v, want a positive number", p.name, p.value)
		}
	}
	return o, nil
}

// name returns what the data are called in the output.
func (o *options) name() string {
	if o.train != "" {
		return filepath.Base(o.train)
	}
	return o.data
}

// settings are the hyper-parameters and what PG-SVI as published has to be told.
type settings struct {
	length, scale, jitter float64
	betaN                 float64 // step size, times the number of rows
	samples               int     // draws for a gradient
}

// paper has the settings of Khan et al. (2016).
var paper = map[string]settings{
	"ionosphere": {length: math.Exp(1), scale: math.Exp(2.5), jitter: 1e-2, betaN: 2, samples: 500},
	"sonar":      {length: math.Exp(-1), scale: math.Exp(6), jitter: 1e-4, betaN: 0.2, samples: 2000},
}

// settings returns the flags that were given and defaults for the others.
func (o *options) settings(train data) settings {
	s := paper[o.data]
	if o.train != "" {
		s = settings{length: medianDistance(train.x), scale: 5, betaN: 2, samples: 500}
	}
	if o.given["length"] {
		s.length = o.length
	}
	if o.given["scale"] {
		s.scale = o.scale
	}
	if o.given["jitter"] {
		s.jitter = o.jitter
	}
	return s
}

// medianDistance returns the median distance between different rows, over at
// most 200 rows drawn at random. It is a usual first guess at a length scale.
func medianDistance(x *mat.Dense) float64 {
	n, _ := x.Dims()
	rows := rand.New(rand.NewPCG(1, 0)).Perm(n)
	rows = rows[:min(n, 200)]
	var d []float64
	for i, a := range rows {
		for _, b := range rows[:i] {
			if r := floats.Distance(x.RawRowView(a), x.RawRowView(b), 2); r > 0 {
				d = append(d, r)
			}
		}
	}
	if len(d) == 0 {
		return 1
	}
	slices.Sort(d)
	return d[len(d)/2]
}

// data are rows of features and their labels, -1 or +1. x is nil if there are none.
type data struct {
	x *mat.Dense
	y []float64
}

// load returns the training and the test data.
func (o *options) load() (train, test data, err error) {
	if o.train == "" {
		train, test, err = loadTestdata(o.data)
	} else {
		train, test, err = loadFiles(o.train, o.test)
	}
	if err == nil {
		err = signLabels(train.y, test.y)
	}
	return train, test, err
}

func loadFiles(trainFile, testFile string) (train, test data, err error) {
	if train, err = readCSV(trainFile); err != nil || testFile == "" {
		return train, test, err
	}
	if test, err = readCSV(testFile); err != nil {
		return train, test, err
	}
	_, d := train.x.Dims()
	if _, dt := test.x.Dims(); dt != d {
		err = fmt.Errorf("%s has %d features, %s has %d", trainFile, d, testFile, dt)
	}
	return train, test, err
}

// loadTestdata reads a data set of testdata, which is one file and the numbers
// of its rows to train and to test on.
func loadTestdata(name string) (train, test data, err error) {
	dir := filepath.Join("testdata", name)
	all, err := readCSV(filepath.Join(dir, name+".csv"))
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("no testdata here; run gpclass in the root of the repository, or give -train: %w", err)
	}
	if err != nil {
		return train, test, err
	}
	if train, err = all.rows(filepath.Join(dir, "train_index.txt")); err != nil {
		return train, test, err
	}
	test, err = all.rows(filepath.Join(dir, "test_index.txt"))
	return train, test, err
}

func readCSV(file string) (data, error) {
	f, err := os.Open(file)
	if err != nil {
		return data{}, err
	}
	defer f.Close()
	x, y, err := files.ReadCSV(f)
	if err != nil {
		return data{}, fmt.Errorf("%s: %w", file, err)
	}
	return data{x, y}, nil
}

// rows returns the rows of d whose numbers are in file.
func (d data) rows(file string) (data, error) {
	f, err := os.Open(file)
	if err != nil {
		return data{}, err
	}
	defer f.Close()
	index, err := files.ReadIndex(f)
	if err != nil {
		return data{}, fmt.Errorf("%s: %w", file, err)
	}
	x, y, err := files.SelectRows(d.x, d.y, index)
	if err != nil {
		return data{}, fmt.Errorf("%s: %w", file, err)
	}
	return data{x, y}, nil
}

func (d data) len() int { return len(d.y) }

// signLabels turns labels 0 and 1 into -1 and +1, in place. All labels must be
// of the one kind or of the other.
func signLabels(ys ...[]float64) error {
	var zero, minus bool
	for _, y := range slices.Concat(ys...) {
		switch y {
		case 0:
			zero = true
		case -1:
			minus = true
		case 1:
		default:
			return fmt.Errorf("label %v, want -1 or +1, or 0 or 1", y)
		}
	}
	if zero && minus {
		return errors.New("labels -1 and 0 both occur; want -1 and +1, or 0 and 1")
	}
	for _, y := range ys {
		for i := range y {
			if y[i] == 0 {
				y[i] = -1
			}
		}
	}
	return nil
}

// score measures predictions: the mean log loss in bits, of which knowing
// nothing costs one a row, and the fraction of labels that were given less
// than even odds. Both are NaN if there is nothing to predict.
type score struct{ bits, errors float64 }

func (d data) score(post *pgsvi.GPPosterior) score {
	if d.len() == 0 {
		return score{math.NaN(), math.NaN()}
	}
	var s score
	for _, logp := range post.At(d.x).LogProb(nil, d.y) {
		s.bits -= logp / math.Ln2
		if logp < -math.Ln2 {
			s.errors++
		}
	}
	n := float64(d.len())
	return score{s.bits / n, s.errors / n}
}
