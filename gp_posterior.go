package pgsvi

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/gram"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/parallel"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/site"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// A GPPosterior is the approximate posterior q(z) = N(m, V) of a GP, for predictions. It is
// immutable and safe for concurrent use. It keeps the training inputs and a triangular matrix of
// about N²/2 numbers. GP.PSIS checks how good the approximation is, and GP.LOO runs leave-one-out
// cross-validation.
//
// Its methods take new points as the rows of x, and panic if x has another number of columns than
// the training inputs. They work on blocks of rows in bounded memory and use all cores; the results
// do not depend on the blocks. A row with a NaN, an infinity or a covariance that overflows gets
// latent mean 0 and the largest prior variance of a training point.
type GPPosterior struct {
	x                *mat.Dense
	kernel           Kernel
	lik              Likelihood
	a                []float64 // K⁻¹m
	m, v             []float64 // marginals at the training points
	gamma            []float64
	jitter, maxPrior float64
	self             []float64 // diagonal of K
	strong           bool      // some sites are far more precise than the prior
	whole            Kernel    // nil, or the Sum that has kernel as a term
	term             int       // index of kernel in whole
	// posterior of the weights of the features, and their mean, if float64 cannot represent K; else
	// nil
	weights    *gauss.Full
	fac        *dense.SiteFactor
	workspaces *sync.Pool
	// posteriors of the classes of a Softmax; the fields of this one then hold all classes, row by
	// row
	classes []*GPPosterior
	spread  *gpSpread // uncertainty of learned hyperparameters, or nil
	// mixture is the posterior over several hyperparameters, or nil. The other fields belong to the
	// best ones.
	mixture *mixedPosteriors[*GPPosterior]
}

// String describes p in one line, such as "BernoulliLogit, 200 rows, 3 columns, Matern52".
func (p *GPPosterior) String() string {
	return sizesText(p.lik, p.Len(), p.Cols()) + ", " + kernelName(p.kernel)
}

// sizesText describes the data of a posterior of a Gaussian process.
func sizesText(lik Likelihood, rows, cols int) string {
	return fmt.Sprintf("%s, %d rows, %d columns", likelihoodName(lik), rows, cols)
}

// Len returns N, the number of training points.
func (p *GPPosterior) Len() int {
	n, _ := p.x.Dims()
	return n
}

// Cols returns the number of columns of x that predictions need.
func (p *GPPosterior) Cols() int {
	_, d := p.x.Dims()
	return d
}

// Train stores the mean and the variance of the latent values at the training points, under the
// prior with jitter. Nil slices allocate. A Softmax of K classes has K values for each point, row
// by row.
func (p *GPPosterior) Train(mean, variance []float64) (m, v []float64) {
	m, v = dense.Dest(mean, len(p.m)), dense.Dest(variance, len(p.m))
	if p.mixture != nil {
		t := newTotalMoments(m, v)
		for k, part := range p.mixture.parts {
			t.add(p.mixture.prob[k], part.m, part.v)
		}
		t.finish()
		return m, v
	}
	copy(m, p.m)
	copy(v, p.v)
	return m, v
}

// Sites stores the site parameters γ and b in gamma and b. Nil slices allocate. The posterior at
// the training points has V⁻¹ = K⁻¹ + diag(γ) and V⁻¹m = b. A Softmax of K classes has K values for
// each point, row by row, and a V for each class.
func (p *GPPosterior) Sites(gamma, b []float64) (g, h []float64) {
	g, h = dense.Dest(gamma, len(p.m)), dense.Dest(b, len(p.m))
	copy(g, p.gamma)
	for i, a := range p.a {
		h[i] = a + g[i]*p.m[i]
	}
	return g, h
}

// At returns the prediction for each row of x. The latent value z(x), without noise and jitter, has
// mean and variance
//
//	k*ᵀK⁻¹m,   v* = k** − k*ᵀ(K⁻¹ − K⁻¹VK⁻¹)k*.
//
// After Learn the variance includes the uncertainty of the learned hyperparameters, whose
// covariance is the Σ that Learned describes. If d and c are the derivatives of the mean and of log
// v* with respect to the hyperparameters, the variance is
//
//	v* exp(½cᵀΣc) + dᵀΣd.
//
// With more than 200 rows c is 0. The variance does not include this uncertainty for a Softmax, for
// a SparseGP, and for a kernel of Linear and Constant terms with covariances so nearly singular
// that the posterior is kept over the weights of these terms.
//
// After Learn with LearnOptions.Integrate the prediction is the mixture of the predictions at several
// hyperparameters. Its latent mean and variance are the moments of the mixture.
func (p *GPPosterior) At(x mat.Matrix) *Prediction {
	q := predictAt(p, x)
	return &q
}

// Part returns the prediction of term i of a kernel that is a Sum, for each row of x. It is the
// contribution of that term to the latent value, such as the trend or the season. Let k_i be the
// covariances of term i and K the covariance of all terms. The mean and the variance are
//
//	k_i*ᵀK⁻¹m,   k_i** − k_i*ᵀ(K⁻¹ − K⁻¹VK⁻¹)k_i*
//
// (Duvenaud 2014, section 2.4). A linear trend is a Sum with a Linear and a Constant. Its
// coefficients are the part of the Linear in the rows of an identity matrix, and its intercept is
// the part of the Constant in any row. Part panics if the kernel is not a Sum or has no term i.
func (p *GPPosterior) Part(i int, x mat.Matrix) *Prediction {
	if p.classes != nil {
		return p.classPart(i, x)
	}
	q := predictAt(p.part(i), x)
	return &q
}

// part returns the posterior of term i of the kernel.
func (p *GPPosterior) part(i int) *GPPosterior {
	part := *p
	part.kernel, part.whole, part.term, part.strong = sumTerm(p.kernel, i), p.kernel, i, false
	part.maxPrior = slices.Max(PriorVar(nil, part.kernel, p.x))
	part.mixture = p.mixture.each(func(q *GPPosterior) *GPPosterior { return q.part(i) })
	return &part
}

// sumTerm returns term i of k. It panics if k is not a Sum or has no such term.
func sumTerm(k Kernel, i int) Kernel {
	terms, _ := kernelParts(k)
	if !isType[Sum](k) || i < 0 || i >= len(terms) {
		panic(fmt.Sprintf("pgsvi: the kernel %s has no term %d", kernelName(k), i))
	}
	return terms[i]
}

// features returns the features of the rows of x, or nil if the kernel has no features. If p is the
// posterior of one term, the features of all other terms are zero.
func (p *GPPosterior) features(x mat.Matrix) *design.Matrix {
	if p.whole == nil {
		return featuresOf(p.kernel, x, -1)
	}
	return featuresOf(p.whole, x, p.term)
}

// featuresOf returns the features of the rows of x under k, or nil if k has no features. If term is
// not negative, the features of all other terms are zero.
func featuresOf(k Kernel, x mat.Matrix, term int) *design.Matrix {
	parts := []Kernel{k}
	if sum, ok := k.(Sum); ok {
		parts = sum
	}
	n, _ := x.Dims()
	g := &design.Matrix{Rows: n}
	for _, row := range denseRows(x, 0, n) {
		for i, part := range parts {
			from := len(g.Dense)
			var ok bool
			if g.Dense, ok = appendFeatures(g.Dense, part, row); !ok {
				return nil
			}
			if term >= 0 && i != term {
				clear(g.Dense[from:])
			}
		}
	}
	if _, ok := dense.AllFinite(g.Dense); !ok || n == 0 {
		return nil
	}
	g.Cols = len(g.Dense) / n
	return g
}

// appendFeatures appends the features of a row under k to dst. It returns false if k has no
// features. A Sum has the features of its terms, and a Product has the products of the features of
// its factors.
func appendFeatures(dst []float64, k Kernel, row []float64) (to []float64, ok bool) {
	if on, ok := asOn(k); ok {
		t := gram.Take()
		defer t.Free()
		return appendFeatures(dst, on.Kernel, on.row(t, row))
	}
	parts, composite := kernelParts(k)
	own, _ := asNative(k)
	f, has := own.(featured)
	switch {
	case has:
		return f.features(dst, row), true
	case composite && isType[Sum](k):
		for _, term := range parts {
			if dst, ok = appendFeatures(dst, term, row); !ok {
				return dst, false
			}
		}
		return dst, true
	case composite:
		all := []float64{1}
		for _, factor := range parts {
			own, ok := appendFeatures(nil, factor, row)
			if !ok || len(own)*len(all) > site.PrimalWeights {
				return dst, false
			}
			next := make([]float64, 0, len(own)*len(all))
			for _, a := range all {
				for _, b := range own {
					next = append(next, a*b)
				}
			}
			all = next
		}
		return append(dst, all...), true
	}
	return dst, false
}

// Prob stores P(Y = y) for each row of x in dst. A nil dst allocates. Prob is short for
// At(x).Prob(dst, y). A row without a prediction gets NaN, and At(x).Err() returns the reason.
func (p *GPPosterior) Prob(dst []float64, y float64, x mat.Matrix) []float64 {
	return p.At(x).Prob(dst, y)
}

// likelihood implements latents.
func (p *GPPosterior) likelihood() Likelihood { return p.lik }

// components implements latents.
func (p *GPPosterior) components() (prob []float64, parts []latents) { return p.mixture.all() }

// partsAt implements latents.
func (*GPPosterior) partsAt(mat.Matrix, []float64, []float64) *predictionMix { return nil }

// latent implements latents.
func (p *GPPosterior) latent(m, v []float64, x mat.Matrix) { p.latentTo(m, v, nil, x) }

// latentTo is like latent. Unless along is nil, it also stores the derivatives of the latent means
// with respect to each z of p.spread in along, row by row.
func (p *GPPosterior) latentTo(m, v, along []float64, x mat.Matrix) {
	if p.mixture != nil {
		p.mixture.latent(m, v, x)
		return
	}
	if p.classes != nil {
		p.latentClasses(m, v, x)
		return
	}
	rows := len(m)
	workers := runtime.GOMAXPROCS(0)
	works := make([]*predictWork, workers)
	parallel.For(rows, predictBlock, workers, func(i, lo, hi int) {
		if works[i] == nil {
			works[i] = p.workspaces.Get().(*predictWork)
		}
		p.latentBlock(works[i], m[lo:hi], v[lo:hi], x, lo)
		if p.spread != nil {
			var dst []float64
			if k := len(p.spread.a); along != nil {
				dst = along[lo*k : hi*k]
			}
			p.spread.along(dst, p, works[i], m[lo:hi], v[lo:hi])
		}
	})
	for _, w := range works {
		if w != nil {
			p.workspaces.Put(w)
		}
	}
}

func (p *GPPosterior) latentBlock(w *predictWork, m, v []float64, x mat.Matrix, lo int) {
	t, n := len(m), p.Len()
	p.cross(w, x, lo, t)
	if p.weights != nil {
		f := p.features(w.x)
		for i := range m {
			m[i], v[i] = 0, p.maxPrior
		}
		if f != nil {
			p.weights.S.Predict(m, f, nil)
			p.weights.Variances(v, f, nil)
		}
		p.unknown(w, m, v)
		return
	}
	dense.Gemv(blas.Trans, 1, dense.General(w.k.RawMatrix().Data, n, t), dense.Vector(p.a), 0,
		dense.Vector(m))
	PriorVar(v, p.kernel, w.x)
	if p.strong {
		w.near.prior = append(w.near.prior[:0], v...)
	}
	p.fac.Expand(&w.exp, w.k.RawMatrix().Data, t)
	w.exp.SubVar(v)
	if p.strong {
		p.latentNear(w, m, v)
	}
	p.unknown(w, m, v)
}

// unknown gives the prior moments to rows with a NaN or an infinity.
func (p *GPPosterior) unknown(w *predictWork, m, v []float64) {
	for i, known := range w.known {
		if sum := m[i] + v[i]; !known || math.IsNaN(sum) || math.IsInf(sum, 0) {
			m[i], v[i] = 0, p.maxPrior
		}
		v[i] = math.Max(0, v[i])
	}
}

// nearWork is the workspace of latentNear.
type nearWork struct {
	prior         []float64 // k**
	point, site   []int     // points that are near, and their training points
	rest          []float64 // k_dd
	x, diff, unit *mat.Dense
	diffs, units  dense.Expansion
	cross         []float64
}

// A training point serves as reference for a point if their difference has at most the share
// nearPart of the prior variance of the point.
const nearPart = 1e-2

// latentNear computes points near a training point i with a precise site relative to that point,
// because k** − k*ᵀ(…)k* may be smaller than the rounding error of k**. With k_d = k* − Ke_i and W
// = K⁻¹ − K⁻¹VK⁻¹ the mean and the variance equal
//
//	m_i + k_dᵀK⁻¹m,   V_ii + 2(Wk_d)_i/γ_i + k_dd − k_dᵀWk_d,   k_dd = k** − 2k*_i + K_ii.
//
// At the training point itself only m_i and V_ii remain.
func (p *GPPosterior) latentNear(w *predictWork, m, v []float64) {
	t, n, k := &w.near, p.Len(), w.k.RawMatrix()
	t.point, t.site, t.rest = t.point[:0], t.site[:0], t.rest[:0]
	for a, prior := range t.prior {
		best, at := 0.0, -1
		for i, self := range p.self {
			if p.gamma[i]*self > dense.StrongSite {
				if c := k.Data[i*k.Stride+a]; c > 0 && c*c > best*self {
					best, at = c*c/self, i
				}
			}
		}
		if at < 0 {
			continue
		}
		if rest := prior - 2*k.Data[at*k.Stride+a] + p.self[at]; rest < nearPart*prior {
			t.point, t.site, t.rest = append(t.point, a), append(t.site, at),
				append(t.rest, math.Max(0, rest))
		}
	}
	r := len(t.point)
	if r == 0 {
		return
	}
	if t.x == nil || t.x.RawMatrix().Rows != r {
		t.x, t.diff, t.unit = mat.NewDense(r, p.Cols(), nil), mat.NewDense(n, r, nil),
			mat.NewDense(n, r, nil)
	}
	t.unit.Zero()
	for b, i := range t.site {
		t.x.SetRow(b, p.x.RawRowView(i))
		t.unit.Set(i, b, 1)
	}
	CrossCov(t.diff, p.kernel, p.x, t.x)
	for b, a := range t.point {
		t.diff.Set(t.site[b], b, p.self[t.site[b]])
		m[a] = p.m[t.site[b]]
		for i, ai := range p.a {
			d := k.Data[i*k.Stride+a] - t.diff.At(i, b)
			t.diff.Set(i, b, d)
			m[a] += d * ai
		}
	}
	p.fac.Expand(&t.diffs, t.diff.RawMatrix().Data, r)
	p.fac.Expand(&t.units, t.unit.RawMatrix().Data, r)
	t.cross = dense.Resize(t.cross, r)
	t.diffs.Cross(t.cross, &t.units)
	t.diffs.SubVar(t.rest)
	for b, a := range t.point {
		i := t.site[b]
		v[a] = p.v[i] + 2*t.cross[b]/p.gamma[i] + math.Max(0, t.rest[b])
	}
}

// cross stores rows lo … lo+t−1 of x in w.x, and K(X, x) for them, N×t, in w.k.
func (p *GPPosterior) cross(w *predictWork, x mat.Matrix, lo, t int) {
	d := p.Cols()
	if w.x == nil || w.x.RawMatrix().Rows != t {
		w.x, w.k = mat.NewDense(t, d, nil), mat.NewDense(p.Len(), t, nil)
	}
	w.known = dense.Resize(w.known, t)
	to := w.x.RawMatrix()
	copyRows(to.Data, to.Stride, x, lo, lo+t)
	for i := range t {
		row := w.x.RawRowView(i)
		if _, w.known[i] = dense.AllFinite(row); !w.known[i] {
			clear(row)
		}
	}
	CrossCov(w.k, p.kernel, p.x, w.x)
}

// Joint returns the mean and the covariance of the joint distribution of the latent values in the
// rows of x. It stores about rows × (rows + N) numbers. After LearnOptions.Integrate they are the
// moments of the mixture, and Rand draws from the mixture. The error wraps
//   - ErrEmpty if x has no rows;
//   - ErrNotFinite if a value of x is not finite;
//   - ErrParam if the likelihood is a Softmax;
//   - ErrMemory if x has too many rows.
func (p *GPPosterior) Joint(x mat.Matrix) (mean []float64, cov *mat.SymDense, err error) {
	if err := cmp.Or(checkMatrix("x", x), oneLatent(p.lik, "a joint distribution")); err != nil {
		return nil, nil, err
	}
	return p.joint(x)
}

// joint is Joint, also for the posterior of one class.
func (p *GPPosterior) joint(x mat.Matrix) (mean []float64, cov *mat.SymDense, err error) {
	if p.mixture != nil {
		return p.mixedJoint(x)
	}
	t := checkColumns(x, p.Cols())
	if t == 0 {
		return nil, nil, fmt.Errorf("pgsvi: x has no rows: %w", ErrEmpty)
	}
	if err := checkMemory(0, memory.Bytes(2, t, t)+memory.Bytes(3, t, p.Len()),
		fmt.Sprintf("the joint posterior at %d rows", t),
		"use fewer rows, or raise the limit (GOMEMLIMIT)"); err != nil {
		return nil, nil, err
	}
	w := new(predictWork)
	p.cross(w, x, 0, t)
	for i, known := range w.known {
		if !known {
			return nil, nil, fmt.Errorf("pgsvi: row %d of x has a value that is not finite: %w", i,
				ErrNotFinite)
		}
	}
	mean = make([]float64, t)
	if f := p.features(w.x); p.weights != nil && f != nil {
		p.weights.S.Predict(mean, f, nil)
		z := make([]float64, f.Cols*t) // L⁻¹φ in the columns
		for i := range t {
			for j, v := range f.Dense[i*f.Cols : (i+1)*f.Cols] {
				z[j*t+i] = v
			}
		}
		dense.Trsm(blas.Left, blas.NoTrans, 1, dense.LowerTriangle(p.weights.S.L, f.Cols),
			dense.General(z, f.Cols, t))
		c := make([]float64, t*t)
		dense.Syrk(blas.Trans, 1, dense.General(z, f.Cols, t), 0, dense.Symmetric(c, t))
		return mean, dense.FullSym(c, t), nil
	}
	dense.Gemv(blas.Trans, 1, dense.General(w.k.RawMatrix().Data, p.Len(), t), dense.Vector(p.a), 0,
		dense.Vector(mean))
	prior := mat.NewDense(t, t, nil)
	CrossCov(prior, p.kernel, w.x, w.x)
	c := prior.RawMatrix().Data
	p.fac.Expand(&w.exp, w.k.RawMatrix().Data, t)
	w.exp.SubCov(c)
	dense.FillUpper(c, t)
	return mean, mat.NewSymDense(t, c), nil
}

// mixedJoint is joint for a mixture.
func (p *GPPosterior) mixedJoint(x mat.Matrix) (mean []float64, cov *mat.SymDense, err error) {
	var means [][]float64
	for k, part := range p.mixture.parts {
		m, c, err := part.joint(x)
		if err != nil {
			return nil, nil, err
		}
		if cov == nil {
			mean, cov = make([]float64, len(m)), mat.NewSymDense(len(m), nil)
		}
		c.ScaleSym(p.mixture.prob[k], c)
		cov.AddSym(cov, c)
		floats.AddScaled(mean, p.mixture.prob[k], m)
		means = append(means, m)
	}
	for k, m := range means {
		floats.Sub(m, mean)
		cov.SymRankOne(cov, p.mixture.prob[k], mat.NewVecDense(len(m), m))
	}
	return mean, cov, nil
}

// Rand stores joint draws of the latent values in the rows of x. Each row of dst gets one draw, so
// dst needs one column per row of x and one row per draw; it must not be nil. If rounding makes the
// covariance singular, the draws use the part that can be factorized. Rand returns the errors of
// Joint.
func (p *GPPosterior) Rand(dst *mat.Dense, x mat.Matrix, rng *rand.Rand) error {
	if err := cmp.Or(checkMatrix("x", x), oneLatent(p.lik, "a joint draw")); err != nil {
		return err
	}
	return p.rand(dst, x, rng)
}

// rand is Rand, also for the posterior of one class.
func (p *GPPosterior) rand(dst *mat.Dense, x mat.Matrix, rng *rand.Rand) error {
	if p.mixture != nil {
		return p.mixedRand(dst, x, rng)
	}
	mean, cov, err := p.joint(x)
	if err != nil {
		return err
	}
	draws, cols := dst.Dims()
	if cols != len(mean) {
		panic(fmt.Sprintf("pgsvi: dst has %d columns, but x has %d rows", cols, len(mean)))
	}
	var chol mat.PivotedCholesky
	chol.Factorize(cov, -1)
	var u mat.TriDense
	chol.UTo(&u)
	piv := chol.ColumnPivots(nil)
	eps := make([]float64, cols)
	for i := range draws {
		row := dst.RawRowView(i)
		for j := range eps {
			eps[j] = 0
			if j < chol.Rank() {
				eps[j] = rng.NormFloat64()
			}
		}
		for j := range row { // PᵀCP = UᵀU
			s := 0.0
			for k := range min(j+1, chol.Rank()) {
				s += u.At(k, j) * eps[k]
			}
			row[piv[j]] = mean[piv[j]] + s
		}
	}
	return nil
}

// mixedRand is rand for a mixture. Each draw comes from one part.
func (p *GPPosterior) mixedRand(dst *mat.Dense, x mat.Matrix, rng *rand.Rand) error {
	draws, cols := dst.Dims()
	prob := p.mixture.prob
	rows := make([][]int, len(prob)) // the draws from each part
	for i := range draws {
		k, u := 0, rng.Float64()
		for ; k < len(prob)-1 && u >= prob[k]; k++ {
			u -= prob[k]
		}
		rows[k] = append(rows[k], i)
	}
	for k, part := range p.mixture.parts {
		if len(rows[k]) == 0 {
			continue
		}
		own := mat.NewDense(len(rows[k]), cols, nil)
		if err := part.rand(own, x, rng); err != nil {
			return err
		}
		for r, i := range rows[k] {
			dst.SetRow(i, own.RawRowView(r))
		}
	}
	return nil
}

// gpFile is the file of a GPPosterior.
var gpFile = save.Kind{Name: "GPPosterior", Version: 1}

// savedGP is a GPPosterior as JSON: the inputs, the kernel and the likelihood, and q in site form.
type savedGP struct {
	Rows       int                `json:"rows"`
	Cols       int                `json:"cols"`
	Kernel     save.Value         `json:"kernel"`
	Likelihood save.Value         `json:"likelihood"`
	Jitter     float64            `json:"jitter"`
	X          save.List[float64] `json:"x"` // row by row
	Gamma      save.List[float64] `json:"gamma"`
	A          save.List[float64] `json:"a"` // K⁻¹m
	M          save.List[float64] `json:"m"`
	V          save.List[float64] `json:"v"`
	Spread     *savedSpread       `json:"learned,omitempty"`
	// Prob and Parts hold a mixture over hyperparameters. Parts have no inputs of their own.
	Prob  save.List[float64]  `json:"probabilities,omitempty"`
	Parts save.List[*savedGP] `json:"parts,omitempty"`
}

// Save writes p to w. Load restores a posterior with exactly the same predictions. The file
// consists of a line that names its type, JSON, and a checksum. Save returns the error of w. The
// error wraps ErrParam if the type of the kernel or likelihood is not registered (see Register), or
// if encoding/json cannot write and read it.
func (p *GPPosterior) Save(w io.Writer) error {
	s, err := p.saved()
	if err != nil {
		return err
	}
	return saveTo(w, gpFile, s)
}

// saved returns p in the form that is saved.
func (p *GPPosterior) saved() (*savedGP, error) {
	rows, cols := p.x.Dims()
	s := &savedGP{Rows: rows, Cols: cols, Jitter: p.jitter,
		X: p.x.RawMatrix().Data, Gamma: p.gamma, A: p.a, M: p.m, V: p.v,
		Spread: p.spread.save()}
	var err error
	if s.Kernel, err = saveValue(p.kernel); err != nil {
		return nil, err
	}
	if s.Likelihood, err = saveValue(p.lik); err != nil {
		return nil, err
	}
	s.Prob, s.Parts, err = savedParts(p.mixture, (*GPPosterior).saved)
	for _, part := range s.Parts {
		part.X = nil
	}
	return s, err
}

// predictWork is the working memory for one block.
type predictWork struct {
	x, k  *mat.Dense
	moved *mat.Dense // K(X, x) of another kernel
	exp   dense.Expansion
	known []bool
	near  nearWork
}

// classPart is Part for a Softmax.
func (p *GPPosterior) classPart(i int, x mat.Matrix) *Prediction {
	q := predictAt(p.partOfClasses(i), x)
	return &q
}

// partOfClasses is part for a Softmax.
func (p *GPPosterior) partOfClasses(i int) *GPPosterior {
	part := *p
	part.classes = nil
	for _, of := range p.classes {
		part.classes = append(part.classes, of.part(i))
	}
	part.mixture = p.mixture.each(func(q *GPPosterior) *GPPosterior { return q.partOfClasses(i) })
	return &part
}

// latentClasses is latent for the scores of a Softmax.
func (p *GPPosterior) latentClasses(m, v []float64, x mat.Matrix) {
	k := len(p.classes)
	mc, vc := latentSlices(len(m) / k)
	for c, of := range p.classes {
		of.latent(mc, vc, x)
		for i := range mc {
			m[i*k+c], v[i*k+c] = mc[i], vc[i]
		}
	}
}

// gpSpread is the uncertainty of the hyperparameters that a GP has learned. Each z changes the
// kernel, a = K⁻¹m and the sites, and therefore the mean m* and the variance v* of the latent value
// at a new point. If d and c are the derivatives of m* and log v* in z, the variance is
//
//	E[v*] + Var[m*] = v* e^{|c|²/2} + |d|².
type gpSpread struct {
	kernels []Kernel            // kernel after a step of spreadStep in each z
	back    []Kernel            // kernel after a step of −spreadStep in each z
	a       [][]float64         // a after each step, which is linear in z
	sites   []*dense.SiteFactor // factor of the sites after each step; nil for many rows
	gamma   [][]float64         // precisions of these sites
	params  [][]float64         // rows of B, or nil
}

const (
	// spreadStep is the step in z for the differences of a gpSpread. The differences of means are
	// central, because their error is relative to the mean, which may be a hundred times its
	// standard deviation: it is about spreadStep² of the mean. The error of the other differences is
	// about as large as the step. Rounding errors are far below the precision of a prediction.
	spreadStep = 1e-3
	// spreadRows is the largest number of rows for which the variances of a GP depend on z. Each z
	// then needs a factor of its own and costs as much per prediction as the variance itself. With
	// more rows the variances are known well.
	spreadRows = 200
	// mostSpread is the largest |c|²/2, because log v* is not linear in z far from 0.
	mostSpread = 1
	// leastSpread is a share of the prior variance. If v* is below it, rounding errors are too
	// large for differences.
	leastSpread = 1e-8
)

// along stores the derivatives of the latent means in each z for the rows of w in dst, row by row,
// and adds the uncertainty about z to v.
func (s *gpSpread) along(dst []float64, p *GPPosterior, w *predictWork, m, v []float64) {
	t, k, n := len(m), len(s.a), p.Len()
	if w.moved == nil || w.moved.RawMatrix().Cols != t {
		w.moved = mat.NewDense(n, t, nil)
	}
	sums := make([]float64, 6*t)
	moved, vars, prior, d2, c2 := sums[:t], sums[t:2*t], sums[2*t:3*t], sums[3*t:4*t], sums[4*t:5*t]
	backward := sums[5*t:]
	means := func(dst []float64, kernel Kernel, a []float64) {
		CrossCov(w.moved, kernel, p.x, w.x)
		dense.Gemv(blas.Trans, 1, dense.General(w.moved.RawMatrix().Data, n, t), dense.Vector(a), 0,
			dense.Vector(dst))
	}
	behind := make([]float64, n)
	for j, kernel := range s.kernels {
		back := s.back[j]
		if p.whole != nil {
			kernel, back = sumTerm(kernel, p.term), sumTerm(back, p.term)
		}
		for i, a := range s.a[j] {
			behind[i] = 2*p.a[i] - a
		}
		means(backward, back, behind)
		means(moved, kernel, s.a[j])
		if s.sites != nil && s.sites[j] != nil {
			PriorVar(vars, kernel, w.x)
			copy(prior, vars)
			s.sites[j].Expand(&w.exp, w.moved.RawMatrix().Data, t)
			w.exp.SubVar(vars)
		}
		for i := range moved {
			d := (moved[i] - backward[i]) / (2 * spreadStep)
			d2[i] += d * d
			if least := leastSpread * prior[i]; vars[i] > least && v[i] > least {
				c := math.Log(vars[i]/v[i]) / spreadStep
				c2[i] += c * c
			}
			if dst != nil {
				dst[i*k+j] = d
			}
		}
	}
	for i := range v {
		v[i] = v[i]*math.Exp(min(c2[i]/2, mostSpread)) + d2[i]
	}
}

// latentSpread implements spreadLatents.
func (p *GPPosterior) latentSpread(m, v []float64, x mat.Matrix) *paramSpread {
	if p.mixture != nil || p.spread == nil || p.spread.params == nil {
		p.latent(m, v, x)
		return nil
	}
	s := &paramSpread{p.spread.params, make([]float64, len(m)*len(p.spread.a))}
	p.latentTo(m, v, s.along, x)
	return s
}

// save returns s in the form that is saved.
func (s *gpSpread) save() *savedSpread {
	if s == nil {
		return nil
	}
	to := &savedSpread{Z: len(s.a), Weights: slices.Concat(s.a...),
		Params: slices.Concat(s.params...), Gamma: slices.Concat(s.gamma...)}
	to.Kernels, to.Back = paramValues(s.kernels), paramValues(s.back)
	return to
}

// loadGP returns the spread of p. p must have the kernel and the inputs of the file.
func (s *savedSpread) loadGP(p *GPPosterior) (*gpSpread, error) {
	if s == nil || p.classes != nil || p.weights != nil {
		return nil, nil
	}
	if err := s.check(p.Len(), numLikelihoodParams(p.lik), numParams(p.kernel)); err != nil {
		return nil, err
	}
	of := &gpSpread{a: chunks(s.Weights, s.Z), gamma: chunks(s.Gamma, s.Z),
		params: chunks(s.Params, numLikelihoodParams(p.lik))}
	var err error
	if of.kernels, err = kernelsWith(p.kernel, chunks(s.Kernels, s.Z)); err != nil {
		return nil, err
	}
	if of.back, err = kernelsWith(p.kernel, chunks(s.Back, s.Z)); err != nil {
		return nil, err
	}
	for i, gamma := range of.gamma {
		of.sites = append(of.sites, siteFactor(of.kernels[i], p, gamma))
	}
	return of, nil
}

// paramValues returns the parameters of all kernels, one kernel after the other.
func paramValues(kernels []Kernel) (values []float64) {
	for _, k := range kernels {
		for _, p := range k.Params() {
			values = append(values, p.Value)
		}
	}
	return values
}

// kernelsWith returns k with each of these lists of parameters.
func kernelsWith(k Kernel, lists [][]float64) (kernels []Kernel, err error) {
	for _, values := range lists {
		of := k.WithParams(values)
		if err := checkParams(kernelName(of), of.Params()); err != nil {
			return nil, err
		}
		kernels = append(kernels, of)
	}
	return kernels, nil
}

// siteFactor returns the factor of sites with precisions γ under a kernel at the inputs of p. It
// returns nil if the matrix is not positive definite.
func siteFactor(kernel Kernel, p *GPPosterior, gamma []float64) *dense.SiteFactor {
	n := p.Len()
	k := make([]float64, n*n)
	gram.NewPairs(p.x).Gram(nil, k, kernelView{kernel})
	for i := range n {
		k[i*n+i] += p.jitter
	}
	fac := new(dense.SiteFactor)
	if !fac.Factor(k, n, gamma) {
		return nil
	}
	fac.C = nil
	return fac
}
