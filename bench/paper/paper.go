// Package paper reproduces the experiments of Khan et al. (2016) with Gaussian process
// classification: data sets and their splits, hyperparameters, and the settings and variants of the
// methods that they compare.
package paper

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/data"
	"gonum.org/v1/gonum/mat"
)

// Settings holds the hyperparameters for a data set and the options of each method (appendix of the
// paper).
type Settings struct {
	LogLength, LogScale, Jitter float64
	Batch, Samples              int
	BetaN                       float64 // PG-SVI: step size times N
	// SGD: the first step size times N, and its rate of decay.
	SGDN, SGDPower           float64
	AdaGrad                  float64
	RMSprop, RMSpropDecay    float64
	Adadelta, AdadeltaForget float64 // forget is 1−ρ
	Adam                     float64
}

var (
	sonar = Settings{LogLength: -1, LogScale: 6, Jitter: 1e-4, Batch: 5, Samples: 2000, BetaN: 0.2,
		SGDN: 1200, SGDPower: 0.8, AdaGrad: 4.5, RMSprop: 0.1, RMSpropDecay: 0.9, Adadelta: 1,
		AdadeltaForget: 5e-10, Adam: 0.04}
	ionosphere = Settings{LogLength: 1, LogScale: 2.5, Jitter: 1e-2, Batch: 5, Samples: 500,
		BetaN: 2,
		SGDN:  25, SGDPower: 0.51, AdaGrad: 4, RMSprop: 0.04, RMSpropDecay: 0.9999, Adadelta: 0.1,
		AdadeltaForget: 1e-11, Adam: 0.25}
	usps = Settings{LogLength: 2.5, LogScale: 5, Jitter: 1e-4, Batch: 20, Samples: 2000, BetaN: 2.5,
		SGDN: 800, SGDPower: 0.6, AdaGrad: 8, RMSprop: 0.1, RMSpropDecay: 0.9, Adadelta: 1,
		AdadeltaForget: 1e-12, Adam: 2.5}
)

// A Problem is a data set with its settings.
type Problem struct {
	Name string
	Settings
	X, XTest *mat.Dense
	Y, YTest []float64
	GP       *pgsvi.GP // with exact expectations
	Noisy    *pgsvi.GP // with the estimator of the published scripts
}

// init makes the model.
func (p *Problem) init() (*Problem, error) {
	var err error
	if p.GP, err = p.Model(pgsvi.GPOptions{}); err != nil {
		return nil, err
	}
	p.Noisy, err = p.Model(pgsvi.GPOptions{Estimator: p.ScoreFunction()})
	return p, err
}

// Model returns the GP with the options opt and the jitter of the settings.
func (p *Problem) Model(opt pgsvi.GPOptions) (*pgsvi.GP, error) {
	opt.Jitter = p.Jitter
	gp, err := pgsvi.NewGP(p.X, p.Y, p.Kernel(), pgsvi.BernoulliLogit{}, &opt)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	return gp, nil
}

// Kernel returns the kernel of the settings.
func (p *Problem) Kernel() pgsvi.Kernel {
	return pgsvi.SquaredExp{Scale: math.Exp(p.LogScale), Length: math.Exp(p.LogLength)}
}

// Cov returns the covariance of the latent values at the training points, with the jitter.
func (p *Problem) Cov() *mat.SymDense {
	k := pgsvi.Gram(nil, p.Kernel(), p.X)
	for i := range p.Y {
		k.SetSym(i, i, k.At(i, i)+p.Jitter)
	}
	return k
}

// Sonar reads sonar from testdata, the folder of the repository.
func Sonar(testdata string) (*Problem, error) { return readUCI(testdata, "sonar", sonar) }

// Ionosphere reads ionosphere from testdata, the folder of the repository.
func Ionosphere(testdata string) (*Problem, error) {
	return readUCI(testdata, "ionosphere", ionosphere)
}

// readUCI reads a data set, which is one file, and the row numbers for training and for testing.
func readUCI(dir, name string, s Settings) (*Problem, error) {
	dir = filepath.Join(dir, name)
	f, err := os.Open(filepath.Join(dir, name+".csv"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("testdata is in the root of the repository: %w", err)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	x, y, err := data.ReadCSV(f)
	if err != nil {
		return nil, err
	}
	p := &Problem{Name: name, Settings: s}
	if p.X, p.Y, err = readRows(x, y, filepath.Join(dir, "train_index.txt")); err != nil {
		return nil, err
	}
	if p.XTest, p.YTest, err = readRows(x, y, filepath.Join(dir, "test_index.txt")); err != nil {
		return nil, err
	}
	return p.init()
}

// readRows selects the rows whose numbers are in file.
func readRows(x *mat.Dense, y []float64, file string) (*mat.Dense, []float64, error) {
	index, err := readIndex(file)
	if err != nil {
		return nil, nil, err
	}
	return data.SelectRows(x, y, index)
}

func readIndex(file string) ([]int, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return data.ReadIndex(f)
}

// uspsTrain is the number of training images of all digits.
const uspsTrain = 4649

// USPS reads the images of two digits from the folder usps in dir, the shared data sets. The first
// digit has label +1.
func USPS(dir string, plus, minus int) (*Problem, error) {
	dir = filepath.Join(dir, "usps")
	order, err := readIndex(filepath.Join(dir, "standin_resampled_index.txt"))
	if err != nil {
		return nil, err
	}
	var x []float64
	var y []float64
	for _, name := range []string{"zip.train.gz", "zip.test.gz"} {
		if x, y, err = appendUSPS(x, y, filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	if len(y) == 0 {
		return nil, fmt.Errorf("usps: no images in %s", dir)
	}
	images := mat.NewDense(len(y), 256, x)
	var train, test []int
	for i, row := range order {
		switch {
		case row >= len(y):
			return nil, fmt.Errorf("usps: there is no image %d", row)
		case y[row] != float64(plus) && y[row] != float64(minus):
		case i < uspsTrain:
			train = append(train, row)
		default:
			test = append(test, row)
		}
	}
	for i, digit := range y {
		y[i] = -1
		if digit == float64(plus) {
			y[i] = 1
		}
	}
	p := &Problem{Name: fmt.Sprintf("usps%dv%d", plus, minus), Settings: usps}
	if p.X, p.Y, err = data.SelectRows(images, y, train); err != nil {
		return nil, err
	}
	if p.XTest, p.YTest, err = data.SelectRows(images, y, test); err != nil {
		return nil, err
	}
	return p.init()
}

// appendUSPS appends the images of a file, which has a digit and 256 pixels per line.
func appendUSPS(x, y []float64, file string) ([]float64, []float64, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	sc := bufio.NewScanner(z)
	for sc.Scan() {
		fields := strings.Fields(sc.Text())
		if len(fields) != 257 {
			return nil, nil, fmt.Errorf("%s: a line of %d numbers, want 257", file, len(fields))
		}
		for i, field := range fields {
			v, err := strconv.ParseFloat(field, 64)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", file, err)
			}
			if i == 0 {
				y = append(y, v)
			} else {
				x = append(x, v)
			}
		}
	}
	if err := sc.Err(); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	return x, y, nil
}
