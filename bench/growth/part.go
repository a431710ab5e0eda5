package main

import (
	"context"
	"math"
	"math/rand/v2"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/cputime"
	"github.com/pgsvi/pgsvi/internal/memory"
	"gonum.org/v1/gonum/mat"
)

// A part is a model to fit at several sizes.
type part struct {
	name, title, axis string
	sizes             []int
	// work returns the number of multiplications in a pass, counting only leading terms.
	work func(size float64) float64
	// formula is the formula of work.
	formula string
	// fit generates data of the given size. It returns the bytes of the data and a function that
	// fits them.
	fit func(size int) (bytes int, fit func(ctx context.Context) (*pgsvi.Result, error))
}

const (
	gpFeatures = 10
	inducing   = 300
	glmRows    = 4000
	documents  = 500
	vocabulary = 2000
	docWords   = 120 // words per document
)

var parts = []*part{
	{name: "gp", title: "Dense GP, N rows", axis: "N", sizes: []int{250, 500, 1000, 2000, 4000},
		work: func(n float64) float64 { return n * n * n }, formula: "N³", fit: gpFit},
	{name: "glm", title: "GLM, 4000 rows, D weights", axis: "D",
		sizes: []int{10, 30, 100, 300, 1000, 2000},
		work:  func(d float64) float64 { return glmRows*d*d + d*d*d }, formula: "N D² + D³",
		fit: glmFit},
	{name: "sparse", title: "Sparse GP, 300 inducing inputs, N rows", axis: "N",
		sizes: []int{1000, 2000, 5000, 10000, 20000, 50000},
		work: func(n float64) float64 {
			return n*inducing*inducing +
				inducing*inducing*inducing
		},
		formula: "N M² + M³", fit: sparseFit},
	{name: "topics", title: "CTM, 500 documents, K topics", axis: "K",
		sizes:   []int{5, 10, 20, 50, 100, 200},
		work:    func(k float64) float64 { return documents * (docWords*k + k*k*k) },
		formula: "words · K + docs · K³", fit: topicsFit},
}

// partOf returns the part with the given name, or nil.
func partOf(name string) *part {
	for _, p := range parts {
		if p.name == name {
			return p
		}
	}
	return nil
}

// measure makes a fit in this process.
func (p *part) measure(ctx context.Context, size int) (row, error) {
	bytes, fit := p.fit(size)
	start := cputime.Seconds()
	res, err := fit(ctx)
	if err != nil {
		return row{}, err
	}
	return row{part: p.name, size: size, seconds: cputime.Seconds() - start, passes: res.Passes,
		data: float64(bytes) / 1e6, peak: memory.Peak() / 1e6}, nil
}

// normals returns rows of independent normal features, and labels from a linear function of them
// plus noise.
func normals(rows, cols int) (*mat.Dense, []float64) {
	rng := rand.New(rand.NewPCG(1, uint64(cols)))
	x, y, w := mat.NewDense(rows, cols, nil), make([]float64, rows), make([]float64, cols)
	for j := range w {
		w[j] = rng.NormFloat64() / math.Sqrt(float64(cols))
	}
	for i := range rows {
		eta := 0.0
		for j := range cols {
			v := rng.NormFloat64()
			x.Set(i, j, v)
			eta += w[j] * v
		}
		y[i] = math.Copysign(1, 2*eta+rng.NormFloat64())
	}
	return x, y
}

func gpFit(n int) (int, func(context.Context) (*pgsvi.Result, error)) {
	x, y := normals(n, gpFeatures)
	return 8 * n * (gpFeatures + 1), func(ctx context.Context) (*pgsvi.Result, error) {
		gp, err := pgsvi.NewGP(x, y, pgsvi.SquaredExp{Scale: 2, Length: math.Sqrt(gpFeatures)},
			pgsvi.BernoulliLogit{}, nil)
		if err != nil {
			return nil, err
		}
		_, res, err := gp.Fit(ctx, &pgsvi.Solver{Workers: 1})
		return res, err
	}
}

func sparseFit(n int) (int, func(context.Context) (*pgsvi.Result, error)) {
	x, y := normals(n, gpFeatures)
	return 8 * n * (gpFeatures + 1), func(ctx context.Context) (*pgsvi.Result, error) {
		gp, err := pgsvi.NewSparseGP(x, y,
			pgsvi.SquaredExp{Scale: 2, Length: math.Sqrt(gpFeatures)}, pgsvi.BernoulliLogit{},
			&pgsvi.SparseGPOptions{Rank: inducing})
		if err != nil {
			return nil, err
		}
		_, res, err := gp.Fit(ctx, &pgsvi.Solver{Workers: 1})
		return res, err
	}
}

func glmFit(d int) (int, func(context.Context) (*pgsvi.Result, error)) {
	x, y := normals(glmRows, d)
	return 8 * glmRows * (d + 1), func(ctx context.Context) (*pgsvi.Result, error) {
		glm, err := pgsvi.NewGLM(x, y, pgsvi.BernoulliLogit{}, nil)
		if err != nil {
			return nil, err
		}
		_, res, err := glm.Fit(ctx, &pgsvi.Solver{Workers: 1})
		return res, err
	}
}

// topicsFit draws documents from 20 topics for all sizes.
func topicsFit(k int) (int, func(context.Context) (*pgsvi.Result, error)) {
	const topics = 20
	rng := rand.New(rand.NewPCG(1, 1))
	c := &pgsvi.Corpus{Terms: vocabulary}
	bytes := 0
	for range documents {
		counts := make(map[int]float64)
		first, second := rng.IntN(topics), rng.IntN(topics)
		for range docWords {
			topic := first
			if rng.IntN(3) == 0 {
				topic = second
			}
			// A topic has its own hundred words, with frequencies that follow Zipf's law.
			w := int(math.Exp(rng.Float64()*math.Log(100))) - 1
			counts[(topic*100+w)%vocabulary]++
		}
		doc := pgsvi.Document{}
		for w := range vocabulary {
			if n := counts[w]; n > 0 {
				doc.Words, doc.Counts = append(doc.Words, w), append(doc.Counts, n)
			}
		}
		bytes += 16 * len(doc.Words)
		c.Docs = append(c.Docs, doc)
	}
	return bytes, func(ctx context.Context) (*pgsvi.Result, error) {
		ctm, err := pgsvi.NewCTM(c, k, nil)
		if err != nil {
			return nil, err
		}
		_, res, err := ctm.Fit(ctx, &pgsvi.Solver{MaxPasses: 3, EvalEvery: -1, Workers: 1})
		return res, err
	}
}
