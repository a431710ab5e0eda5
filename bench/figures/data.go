package main

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pgsvi/pgsvi"
	"gonum.org/v1/gonum/mat"
)

// settings are those of Khan et al. (2016) for a data set: hyper-parameters and,
// from the appendix, what each method has to be told.
type settings struct {
	logLength, logScale, jitter float64
	batch, samples              int
	betaN                       float64 // PG-SVI: step size times N
	sgdN, sgdPower              float64 // SGD: first step size times N, and the rate at which it falls
	adaGrad                     float64
	rmsProp, rmsDecay           float64
	adadelta, adadeltaForget    float64 // forget is 1−ρ
	adam                        float64
}

var (
	sonarSettings = settings{logLength: -1, logScale: 6, jitter: 1e-4, batch: 5, samples: 2000, betaN: 0.2,
		sgdN: 1200, sgdPower: 0.8, adaGrad: 4.5, rmsProp: 0.1, rmsDecay: 0.9, adadelta: 1, adadeltaForget: 5e-10, adam: 0.04}
	ionosphereSettings = settings{logLength: 1, logScale: 2.5, jitter: 1e-2, batch: 5, samples: 500, betaN: 2,
		sgdN: 25, sgdPower: 0.51, adaGrad: 4, rmsProp: 0.04, rmsDecay: 0.9999, adadelta: 0.1, adadeltaForget: 1e-11, adam: 0.25}
	uspsSettings = settings{logLength: 2.5, logScale: 5, jitter: 1e-4, batch: 20, samples: 2000, betaN: 2.5,
		sgdN: 800, sgdPower: 0.6, adaGrad: 8, rmsProp: 0.1, rmsDecay: 0.9, adadelta: 1, adadeltaForget: 1e-12, adam: 2.5}
)

// A problem is a data set with its settings.
type problem struct {
	name string
	settings
	x, xtest *mat.Dense
	y, ytest []float64
	gp       *pgsvi.GP // with the Estimator of the published methods
	optimum  float64   // the least −ELBO
}

// init makes the model.
func (p *problem) init() error {
	var err error
	if p.gp, err = pgsvi.NewGP(p.x, p.y, p.kernel(), pgsvi.BernoulliLogit{}); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	p.gp.Jitter = p.jitter
	p.gp.Estimator = pgsvi.ScoreFunction{Samples: p.samples, Baseline: pgsvi.NoBaseline}
	return nil
}

func (p *problem) kernel() pgsvi.Kernel {
	return pgsvi.SquaredExp{Scale: math.Exp(p.logScale), Length: math.Exp(p.logLength)}
}

// readUCI reads a data set of testdata, which is one file and the numbers of its
// rows to train and to test on.
func readUCI(dir, name string, s settings) (*problem, error) {
	dir = filepath.Join(dir, name)
	f, err := os.Open(filepath.Join(dir, name+".csv"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("run figures in the root of the repository: %w", err)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	x, y, err := pgsvi.ReadCSV(f)
	if err != nil {
		return nil, err
	}
	p := &problem{name: name, settings: s}
	if p.x, p.y, err = readRows(x, y, filepath.Join(dir, "train_index.txt")); err != nil {
		return nil, err
	}
	if p.xtest, p.ytest, err = readRows(x, y, filepath.Join(dir, "test_index.txt")); err != nil {
		return nil, err
	}
	return p, p.init()
}

// readRows selects the rows whose numbers are in file.
func readRows(x *mat.Dense, y []float64, file string) (*mat.Dense, []float64, error) {
	index, err := readIndex(file)
	if err != nil {
		return nil, nil, err
	}
	return pgsvi.SelectRows(x, y, index)
}

func readIndex(file string) ([]int, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return pgsvi.ReadIndex(f)
}

// uspsTrain is the number of images to train on, of all digits.
const uspsTrain = 4649

// readUSPS reads the images of two digits, the first of which gets the label +1.
func readUSPS(dir string, plus, minus int) (*problem, error) {
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
	p := &problem{name: fmt.Sprintf("usps%dv%d", plus, minus), settings: uspsSettings}
	if p.x, p.y, err = pgsvi.SelectRows(images, y, train); err != nil {
		return nil, err
	}
	if p.xtest, p.ytest, err = pgsvi.SelectRows(images, y, test); err != nil {
		return nil, err
	}
	return p, p.init()
}

// appendUSPS appends the images of a file, a digit and 256 pixels a line.
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
	return x, y, sc.Err()
}

// A predictor computes the test log loss of a dense q = N(m, V) over the latent
// values at the training points. With A = K⁻¹k*, the latent values at the test
// points have means Aᵀm and variances k** − k*ᵀA + diag(AᵀVA).
type predictor struct {
	p    *problem
	a    *mat.Dense // N × number of test points
	rest []float64  // k** − k*ᵀA
}

func (p *problem) predictor() (*predictor, error) {
	k := pgsvi.Gram(nil, p.kernel(), p.x)
	for i := range p.y {
		k.SetSym(i, i, k.At(i, i)+p.jitter)
	}
	var chol mat.Cholesky
	if !chol.Factorize(k) {
		return nil, fmt.Errorf("%s: %w", p.name, pgsvi.ErrNotPosDef)
	}
	cross := pgsvi.CrossCov(nil, p.kernel(), p.x, p.xtest)
	d := &predictor{p: p, a: new(mat.Dense), rest: pgsvi.PriorVar(nil, p.kernel(), p.xtest)}
	if err := chol.SolveTo(d.a, cross); err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	subtractProducts(d.rest, cross, d.a, 1)
	return d, nil
}

// bits returns the mean log loss.
func (d *predictor) bits(q *pgsvi.Gaussian) float64 {
	mean := mat.NewVecDense(len(d.rest), nil)
	mean.MulVec(d.a.T(), mat.NewVecDense(q.Dim(), q.MeanTo(nil)))
	var va mat.Dense
	va.Mul(mat.DenseCopyOf(q.Cov()), d.a)
	variance := slices.Clone(d.rest)
	subtractProducts(variance, d.a, &va, -1)
	var sum float64
	for i, v := range variance {
		logp, _ := pgsvi.PredictLogProb(pgsvi.BernoulliLogit{}, d.p.ytest[i], mean.AtVec(i), math.Max(v, 0))
		sum -= logp
	}
	return sum / math.Ln2 / float64(len(variance))
}

// subtractProducts subtracts sign times the products of the columns of a and b from dst.
func subtractProducts(dst []float64, a, b *mat.Dense, sign float64) {
	n, _ := a.Dims()
	for i := range n {
		ra, rb := a.RawRowView(i), b.RawRowView(i)
		for j := range dst {
			dst[j] -= sign * ra[j] * rb[j]
		}
	}
}
