package pgsvi

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/effect"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/site"
	"github.com/pgsvi/pgsvi/internal/table"
	"github.com/pgsvi/pgsvi/internal/term"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/mathext"
)

// String returns the text of Summary.
func (p *GLMPosterior) String() string { return p.Summary().String() }

// Summary returns a new table of the weights of p. The effects of groups have a table of their own
// instead; Groups returns them by level.
func (p *GLMPosterior) Summary() *Summary {
	d, names := p.Dim(), p.weightNames()
	s := &Summary{Likelihood: likelihoodName(p.lik), Data: p.rows, Weights: d,
		Covariance: covarianceOf(p.cov), classes: latentsOf(p.lik) > 1}
	sd := p.SD(nil)
	lo, hi := p.WeightQuantile(nil, 0.025), p.WeightQuantile(nil, 0.975)
	grouped := groupedOf(p.opt.Groups, len(p.names))
	s.Groups = p.Groups()
	add := func(j int) {
		if grouped[j%len(p.names)] {
			return
		}
		s.Rows = append(s.Rows, Effect{names[j], p.mean[j], sd[j], lo[j], hi[j]})
	}
	for first := 0; first < d; first += len(p.names) { // one class at a time
		if p.opt.Intercept {
			add(first + p.Cols())
		}
		for j := range p.Cols() {
			add(first + j)
		}
	}
	return s
}

// PriorSD stores the prior standard deviation of each weight, in the order of Names, in dst and
// returns it. A nil dst allocates. The elements are NaN if the prior has correlations.
func (p *GLMPosterior) PriorSD(dst []float64) []float64 {
	dst = dense.Dest(dst, len(p.mean))
	for j := range dst {
		dst[j] = math.NaN()
		switch {
		case p.prior == nil || p.prior.Full != nil:
		case len(p.prior.Each) == len(dst):
			dst[j] = 1 / math.Sqrt(p.prior.Each[j])
		default:
			dst[j] = 1 / math.Sqrt(p.prior.Prec[j%len(p.prior.Prec)])
		}
	}
	return dst
}

// Learned returns the hyperparameters that GLM.Learn, or GLM.Fit with GLMOptions.Learn, learned for
// this posterior. It returns nil if nothing was learned, or if the posterior was updated or loaded.
// The caller must not change the result.
func (p *GLMPosterior) Learned() *Learned { return p.learned }

// Contrast returns the posterior mean and standard deviation of Σ_j g_j w_j, such as the difference
// of two levels or the weight of a feature in other units. The vector g has one element per element
// of Names: the features, followed by the intercept if there is one, and for a Softmax class by
// class. The error wraps ErrShape if g has the wrong length, and ErrNotFinite if an element is not
// finite.
func (p *GLMPosterior) Contrast(g []float64) (mean, sd float64, err error) {
	if len(g) != len(p.mean) {
		return 0, 0, fmt.Errorf("pgsvi: the contrast has %d elements, but the posterior has %d "+
			"weights: %w", len(g), len(p.mean), ErrShape)
	}
	if j, ok := dense.AllFinite(g); !ok {
		return 0, 0, fmt.Errorf("pgsvi: element %d of the contrast is %v: %w", j, g[j],
			ErrNotFinite)
	}
	if latentsOf(p.lik) > 1 {
		moved := make([]float64, len(g))
		p.wide().Mul(moved, g)
		return floats.Dot(g, p.mean), math.Sqrt(max(0, floats.Dot(g, moved))), nil
	}
	var used []int
	for j, v := range g {
		if v != 0 {
			used = append(used, j)
		}
	}
	e := effect.Contributions(g, make([]float64, len(g)), [][]int{used}, p.mean, p.wide())[0]
	return e.Mean, e.SD, nil
}

// glmFile is the file type of a GLMPosterior.
var glmFile = save.Kind{Name: "GLMPosterior", Version: 1}

// savedGLM is the JSON form of a GLMPosterior. It holds the weights with their prior.
type savedGLM struct {
	Likelihood save.Value         `json:"likelihood"`
	Names      save.List[string]  `json:"names"` // names of the weights
	Intercept  bool               `json:"intercept"`
	Rows       int                `json:"rows"`
	Mean       save.List[float64] `json:"mean"`
	Cov        savedCov           `json:"covariance"`
	Prior      gauss.SavedPrior   `json:"prior"`
	Means      save.List[float64] `json:"columnMeans,omitempty"` // absent in older files
	ClassNames save.List[string]  `json:"classNames,omitempty"`
	Seen       *savedSeen         `json:"data,omitempty"` // absent in older files
	Spread     *savedSpread       `json:"learned,omitempty"`
	Groups     *savedGroups       `json:"groups,omitempty"`
	Grid       *savedGrid         `json:"grid,omitempty"`
	Mixed      *savedMixed        `json:"mixture,omitempty"`
	Response   *savedResponse     `json:"response,omitempty"`
}

// savedResponse is the JSON form of GLMPosterior.response.
type savedResponse struct {
	Of save.List[int]     `json:"of"` // the common weights
	A  save.List[float64] `json:"a"`  // the columns of the gauss.Spread, one after the other
}

// saveResponse returns the linear responses of p in the form that is saved.
func (p *GLMPosterior) saveResponse() *savedResponse {
	if p.response == nil {
		return nil
	}
	s := &savedResponse{A: slices.Concat(p.response.A...)}
	for j, v := range p.response.Cov.(gauss.Diagonal) {
		if v == 0 {
			s.Of = append(s.Of, j)
		}
	}
	return s
}

// load sets the linear responses of p.
func (s *savedResponse) load(p *GLMPosterior) error {
	if s == nil {
		return nil
	}
	v, ok := p.cov.(gauss.Diagonal)
	if n := len(s.Of); !ok || n == 0 || len(s.A) != n*len(v) {
		return fmt.Errorf("%d numbers do not fit the responses of %d among %d weights with a %v "+
			"covariance: %w", len(s.A), n, len(p.mean), covarianceOf(p.cov), ErrShape)
	}
	if j, ok := dense.AllFinite(s.A); !ok {
		return fmt.Errorf("element %d is %v: %w", j, s.A[j], ErrNotFinite)
	}
	v = slices.Clone(v)
	for _, j := range s.Of {
		if j < 0 || j >= len(v) {
			return fmt.Errorf("weight %d of %d: %w", j, len(v), ErrShape)
		}
		v[j] = 0
	}
	p.response = &gauss.Spread{Cov: v, A: chunks(s.A, len(s.Of))}
	return nil
}

// savedCov holds one type of gauss.Cov.
type savedCov struct {
	Full save.List[float64] `json:"precision,omitempty"` // V⁻¹, lower triangle, row by row
	// FullLow is the second half of the digits of Full, if V⁻¹ has twice the digits.
	FullLow  save.List[float64] `json:"precisionLow,omitempty"`
	Diagonal save.List[float64] `json:"variances,omitempty"` // a diagonal V
	Dual     *savedDual         `json:"dual,omitempty"`
	LowRank  *savedLowRank      `json:"lowrank,omitempty"`
	// Classes holds the precision of each class like Full, one class after the other.
	Classes save.List[float64] `json:"classes,omitempty"`
	Arrow   *savedArrow        `json:"arrow,omitempty"`
}

// savedLowRank is the JSON form of a gauss.LowRank.
type savedLowRank struct {
	Rank int                `json:"rank"`
	D    save.List[float64] `json:"d"`
	U    save.List[float64] `json:"u"` // row by row
}

// savedDual is the JSON form of a gauss.Dual. It holds the rows of the data and their sites.
type savedDual struct {
	design.SavedRows
	Gamma save.List[float64] `json:"gamma"`
}

// Save writes p, and Load restores it bit for bit, ready for predictions and updates. The file
// holds a line that names its type, JSON, and a checksum. A full covariance takes D²/2 numbers. The
// file contains the rows of the data only for a posterior from WithRows, and for a model of more
// than 2000 weights that outnumber the rows.
//
// Save returns any error of w. The error wraps ErrParam if the name of a weight is not UTF-8, if
// the type of the likelihood is not registered (Register), or if encoding/json cannot write it and
// read it back.
func (p *GLMPosterior) Save(w io.Writer) error {
	if err := checkText("the name of weight", p.names); err != nil {
		return err
	}
	if err := checkText("the name of class", p.opt.ClassNames); err != nil {
		return err
	}
	s := &savedGLM{Names: p.names, ClassNames: p.opt.ClassNames, Intercept: p.opt.Intercept,
		Rows: p.rows, Mean: p.mean, Prior: p.prior.Save(), Means: p.means, Seen: p.savedRows(),
		Spread: p.spread.save(), Groups: p.saveGroups(), Grid: p.saveGrid(),
		Response: p.saveResponse()}
	for i := range p.groups {
		if err := checkText("the name of group",
			append([]string{p.groups[i].Name}, p.groups[i].Effects...)); err != nil {
			return err
		}
	}
	var err error
	if s.Cov, err = p.saveCov(p.cov); err != nil {
		return err
	}
	if s.Mixed, err = p.saveMixed(); err != nil {
		return err
	}
	if s.Likelihood, err = saveValue(p.lik); err != nil {
		return err
	}
	return saveTo(w, glmFile, s)
}

// saveCov returns the saved form of a covariance of p.
func (p *GLMPosterior) saveCov(cov gauss.Cov) (s savedCov, err error) {
	switch c := cov.(type) {
	case *gauss.Full:
		s.Full, s.FullLow = dense.PackLower(c.S.P, p.Dim()), c.S.PackLow()
	case gauss.Diagonal:
		s.Diagonal = save.List[float64](c)
	case *gauss.Dual:
		s.Dual = &savedDual{c.X.Save(), c.Gamma}
	case *gauss.LowRank:
		s.LowRank = &savedLowRank{c.Rank, c.D, c.U}
	case *gauss.Arrow:
		s.Arrow = saveArrow(c)
	case *gauss.Contrasts:
		for _, of := range c.Of {
			s.Classes = append(s.Classes, dense.PackLower(of.S.P, len(p.names))...)
		}
	default:
		return s, fmt.Errorf("pgsvi: a posterior with a %T cannot be saved: %w", c, ErrParam)
	}
	return s, nil
}

// load reads a posterior from r. It factorizes a full covariance again, in about D³/3 operations.
func (*GLMPosterior) load(r io.Reader) (*GLMPosterior, error) {
	return loadFrom(r, glmFile, (*savedGLM).load)
}

func (s *savedGLM) load() (*GLMPosterior, error) {
	d := len(s.Names)
	if d == 0 {
		return nil, fmt.Errorf("names is empty: %w", ErrShape)
	}
	lik, err := loadValue(s.Likelihood, checkLikelihood)
	if err != nil {
		return nil, err
	}
	k := latentsOf(lik)
	if len(s.Mean)/k != d || len(s.Mean)%k != 0 || len(s.Prior.Mean) != d || s.Rows < 0 ||
		s.Rows > save.Most {
		return nil, fmt.Errorf("%d weights and %d rows do not fit %d means and %d prior means: %w",
			d, s.Rows, len(s.Mean), len(s.Prior.Mean), ErrShape)
	}
	if cols := d - design.B2i(s.Intercept); len(s.Means) > 0 && len(s.Means) != cols {
		return nil, fmt.Errorf("columnMeans has %d elements for %d columns: %w", len(s.Means), cols,
			ErrShape)
	}
	if j, ok := dense.AllFinite(s.Means); !ok {
		return nil, fmt.Errorf("the mean of column %d is %v: %w", j, s.Means[j], ErrNotFinite)
	}
	if n := len(s.ClassNames); n > 0 && n != k ||
		k > 1 && float64(len(s.Cov.Classes)) != float64(k)*lowerSize(d) {
		return nil, fmt.Errorf("%d classes do not fit %d names and %d numbers of covariances: %w",
			k, n, len(s.Cov.Classes), ErrShape)
	}
	p := &GLMPosterior{names: s.Names, mean: s.Mean, rows: s.Rows, lik: lik,
		opt: GLMOptions{Intercept: s.Intercept, ClassNames: s.ClassNames}, means: s.Means}
	if p.prior, err = s.Prior.Load(); err != nil {
		return nil, err
	}
	if err := p.loadGroups(s.Groups); err != nil {
		return nil, err
	}
	if p.cov, err = s.Cov.load(p.prior); err != nil {
		return nil, err
	}
	if err := s.Grid.load(p); err != nil {
		return nil, fmt.Errorf("the grid of the groups: %w", err)
	}
	if err := s.Mixed.load(p); err != nil {
		return nil, fmt.Errorf("the mixture over hyperparameters: %w", err)
	}
	if err := s.Response.load(p); err != nil {
		return nil, fmt.Errorf("the linear responses: %w", err)
	}
	p.opt.Covariance = covarianceOf(p.cov)
	spread, err := s.Spread.load(len(p.mean), numLikelihoodParams(p.lik))
	if err != nil {
		return nil, err
	}
	p.setSpread(spread)
	if err := p.loadRows(s.Seen); err != nil {
		return nil, err
	}
	return p, nil
}

// lowerSize returns the number of elements in the lower triangle of a d×d matrix.
func lowerSize(d int) float64 { return float64(d) * float64(d+1) / 2 }

func (s *savedCov) load(prior *gauss.Prior) (gauss.Cov, error) {
	d := len(prior.Mean)
	switch {
	case s.Classes != nil:
		return gauss.LoadContrasts(s.Classes, int(float64(len(s.Classes))/lowerSize(d)), d)
	case s.Full != nil:
		w, err := gauss.LoadPrecision(s.Full, s.FullLow, d, "precision")
		return &gauss.Full{S: w}, err
	case s.Dual != nil:
		return s.Dual.load(prior)
	case s.Arrow != nil:
		return s.Arrow.load(prior)
	case s.LowRank != nil:
		return s.LowRank.load(d)
	case s.Diagonal != nil:
		return gauss.Diagonal(s.Diagonal), gauss.CheckDiagonal(s.Diagonal, d, "variance")
	}
	return nil, fmt.Errorf("the covariance is missing: %w", ErrShape)
}

func (s *savedDual) load(prior *gauss.Prior) (gauss.Cov, error) {
	n := len(s.Gamma)
	if n == 0 {
		return nil, fmt.Errorf("the dual has no sites: %w", ErrShape)
	}
	if err := checkMemory(0, memory.Bytes(site.DenseMatrices, n, n),
		fmt.Sprintf("the covariance of %d rows", n), "raise the limit (GOMEMLIMIT)"); err != nil {
		return nil, err
	}
	x, err := s.SavedRows.Load(n, len(prior.Mean))
	if err != nil {
		return nil, err
	}
	l := &site.LinearModel{X: x, Prior: *prior, Names: make([]string, x.Cols)}
	c := &gauss.Dual{X: x, Gamma: s.Gamma, Prior: prior, Fac: new(dense.SiteFactor)}
	if !c.Fac.Factor(l.Gram(), x.Rows, s.Gamma) {
		return nil, fmt.Errorf("the covariance: %w", ErrNotPosDef)
	}
	c.Fac.C = nil // K is no longer needed
	return c, nil
}

func (s *savedLowRank) load(d int) (gauss.Cov, error) {
	if err := gauss.CheckDiagonal(s.D, d, "unique precision"); err != nil {
		return nil, err
	}
	if s.Rank < 1 || s.Rank > d || len(s.U) != d*s.Rank {
		return nil, fmt.Errorf("%d weights and rank %d do not fit %d factors: %w", d, s.Rank,
			len(s.U), ErrShape)
	}
	c := gauss.NewLowRank(d, s.Rank)
	copy(c.D, s.D)
	copy(c.U, s.U)
	v := make([]float64, d)
	ok := c.Factor()
	if c.Diag(v); ok {
		_, ok = dense.AllFinite(v)
	}
	for _, x := range v {
		ok = ok && x >= 0
	}
	if !ok {
		return nil, fmt.Errorf("the low-rank precision: %w", ErrNotPosDef)
	}
	return c, nil
}

// Summary is a table of the weights of a GLMPosterior. Callers may sort, change or remove its rows
// before printing it.
type Summary struct {
	// Rows has one row per weight: the intercept first, and then the columns of the data in order.
	Rows []Effect
	// Likelihood is the name of the likelihood, with its parameters unless all are zero.
	Likelihood string
	// Data is the number of rows of data, as in GLMPosterior.Len.
	Data int
	// Weights is the number of weights including the intercept.
	Weights int
	// Covariance is the family of the covariance of the weights, or of the weights of each class
	// for a Softmax.
	Covariance Covariance
	// Groups describes GLMOptions.Groups, whose weights are not in Rows.
	Groups []GroupSummary

	classes bool // set for a Softmax
}

// An Effect is a weight, or the effect of a feature on a prediction: its posterior mean, standard
// deviation and 95% credible interval. The weights of a Summary are in units of the linear predictor
// per unit of the feature.
type Effect struct {
	Name     string
	Mean, SD float64
	Lo, Hi   float64 // quantiles at 2.5% and 97.5%
}

// sure reports whether the interval from Lo to Hi excludes 0, so that the sign of the weight is
// known.
func (r Effect) sure() bool { return r.Lo > 0 || r.Hi < 0 }

// likelihoodName returns the type of l and its fields that are not zero.
func likelihoodName(l Likelihood) string {
	name := typeName(l)
	v := reflect.ValueOf(l)
	if v.Kind() != reflect.Struct || v.IsZero() {
		return name
	}
	var fields []string
	for i := range v.NumField() {
		switch f := v.Field(i); {
		case f.IsZero():
		case f.CanFloat():
			fields = append(fields, fmt.Sprintf("%s:%.6g", v.Type().Field(i).Name, f.Float()))
		default:
			fields = append(fields, fmt.Sprintf("%s:%v", v.Type().Field(i).Name, f))
		}
	}
	return name + "{" + strings.Join(fields, " ") + "}"
}

// String returns the table as text: a line on the model, the column names, and one line per row. A
// star marks weights whose interval from Lo to Hi excludes 0, and the last line explains it. For a
// Softmax, another line explains that weights are relative to the mean over classes. The numbers of
// a row have enough decimals for four significant digits of its standard deviation.
func (s *Summary) String() string {
	lines := [][]string{{"", "mean", "sd", "2.5%", "97.5%"}}
	sure := make([]bool, 1, len(s.Rows)+1)
	for _, r := range s.Rows {
		line := []string{r.Name}
		for _, v := range []float64{r.Mean, r.SD, r.Lo, r.Hi} {
			line = append(line, table.Precise(v, r.SD))
		}
		lines, sure = append(lines, line), append(sure, r.sure())
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d rows, %d weight%s, %v covariance%s\n", s.Likelihood, s.Data, s.Weights,
		map[bool]string{false: "s"}[s.Weights == 1], s.Covariance,
		map[bool]string{true: " of each class"}[s.classes])
	table.Align(lines)
	for i, line := range lines {
		text := strings.Join(line, "  ")
		if sure[i] {
			text += " *"
		}
		b.WriteString(strings.TrimRight(text, " ") + "\n")
	}
	b.WriteString("* zero is outside the interval from 2.5% to 97.5%\n")
	if len(s.Groups) > 0 {
		b.WriteString("\n" + groupTable(s.Groups))
	}
	if s.classes {
		b.WriteString("weights are relative to the mean over classes, so they sum to 0 per " +
			"feature\n")
	}
	return b.String()
}

// Cov returns the covariance of the weights as a new D×D matrix. It panics with an error that wraps
// ErrMemory if the matrix exceeds GLMOptions.MaxMemory. SD and RandWeights do not need the matrix.
func (p *GLMPosterior) Cov() *mat.SymDense {
	d := p.Dim()
	mustMemory(p.opt.MaxMemory, memory.Bytes(2, d, d),
		fmt.Sprintf("the covariance of %d weights", d),
		"use SD or RandWeights, or raise GLMOptions.MaxMemory")
	return p.wide().Sym()
}

// Corr returns the correlations of the weights as a new D×D matrix. It panics like Cov.
func (p *GLMPosterior) Corr() *mat.SymDense {
	c := p.Cov()
	d := p.Dim()
	sd := make([]float64, d)
	for j := range d {
		sd[j] = math.Sqrt(c.At(j, j))
	}
	for i := range d {
		for j := range i {
			c.SetSym(i, j, c.At(i, j)/(sd[i]*sd[j]))
		}
		c.SetSym(i, i, 1)
	}
	return c
}

// WeightQuantile stores the quantile of each weight at level prob in dst; nil allocates. It panics
// unless prob is in (0, 1).
func (p *GLMPosterior) WeightQuantile(dst []float64, prob float64) []float64 {
	if !(prob > 0 && prob < 1) {
		panic(fmt.Sprintf("pgsvi: the level of a quantile is %v; it must be in (0, 1)", prob))
	}
	if p.mixture != nil {
		dst = dense.Dest(dst, len(p.mean))
		p.mixtureQuantiles(dst, prob)
		return dst
	}
	dst = p.SD(dst)
	z := mathext.NormalQuantile(prob)
	for j, m := range p.mean {
		dst[j] = m + z*dst[j]
	}
	return dst
}

// RandWeights stores one draw of the weights in each row of dst, which is draws × D. It panics if
// dst has another number of columns. The error wraps ErrNotPosDef if there are more than 2000
// weights and fewer rows than weights under a likelihood that is not log-concave, because no
// sampler exists for this case.
func (p *GLMPosterior) RandWeights(dst *mat.Dense, rng *rand.Rand) error {
	draws, d := dst.Dims()
	if d != p.Dim() {
		panic(fmt.Sprintf("pgsvi: dst has %d columns, but the model has %d weights", d, p.Dim()))
	}
	for i := range draws {
		row := dst.RawRowView(i)
		copy(row, p.mean)
		if err := p.wide().Draw(row, rng); err != nil {
			return err
		}
	}
	return nil
}

// At returns the prediction for each row of x. The latent value is the linear predictor without an
// offset, with mean xᵀm and variance xᵀVx. For rows with offsets use Prediction.Offset.
func (p *GLMPosterior) At(x mat.Matrix) *Prediction {
	q := predictAt(p, x)
	return &q
}

// Prob stores P(Y = y) for each row of x in dst; nil allocates. It returns At(x).Prob(dst, y). A
// row without a prediction is NaN, and At(x).Err() gives the reason.
func (p *GLMPosterior) Prob(dst []float64, y float64, x mat.Matrix) []float64 {
	return p.At(x).Prob(dst, y)
}

// likelihood implements latents.
func (p *GLMPosterior) likelihood() Likelihood { return p.lik }

// Latent stores the mean xᵀm and the variance xᵀVx of the latent value of each row of x, without an
// offset, in mean and variance; nil allocates. They have the same bits as At(x).Latent. Latent is
// for services that predict one row at a time. If mean and variance are not nil, it allocates
// nothing for up to 16 rows of a *mat.Dense or a *Sparse, unless the model has more weights than
// rows. It panics if the number of columns differs. A row with a NaN or an infinity gives NaN, and
// a nil matrix has no rows.
//
// For a Softmax, the latent values are the scores of the K classes of each row, row by row.
func (p *GLMPosterior) Latent(mean, variance []float64, x mat.Matrix) (m, v []float64) {
	rows := 0
	if !absent(x) {
		rows = checkColumns(x, p.Cols()) * latentsOf(p.lik)
	}
	m, v = dense.Dest(mean, rows), dense.Dest(variance, rows)
	if rows > 0 {
		p.latent(m, v, x)
	}
	return m, v
}

// Names returns the names of the weights. The last is "(Intercept)" if there is an intercept. For a
// Softmax, the names are "class=0 · x1" and so on, class by class, with the names of
// GLMOptions.ClassNames.
func (p *GLMPosterior) Names() []string { return p.weightNames() }

// Mean stores the means of the weights in dst; nil allocates.
func (p *GLMPosterior) Mean(dst []float64) []float64 {
	dst = dense.Dest(dst, p.Dim())
	copy(dst, p.mean)
	return dst
}

// SD stores the standard deviations of the weights in dst; nil allocates.
func (p *GLMPosterior) SD(dst []float64) []float64 {
	dst = dense.Dest(dst, p.Dim())
	p.wide().Diag(dst)
	for j, v := range dst {
		dst[j] = math.Sqrt(v)
	}
	return dst
}

// weightNames returns a new slice with the names of all weights.
func (p *GLMPosterior) weightNames() []string {
	k := latentsOf(p.lik)
	if k == 1 {
		return slices.Clone(p.names)
	}
	var names []string
	for c := range k {
		for _, name := range p.names {
			names = append(names, p.className(c)+" · "+name)
		}
	}
	return names
}

// savedSeen holds seenRows, and the options of a fit to them.
type savedSeen struct {
	term.SavedBuffer
	Covariance Covariance `json:"covariance"`
	Rank       int        `json:"rank,omitempty"`
}

// savedRows returns the rows of p in their saved form, or nil if they are not saved.
func (p *GLMPosterior) savedRows() *savedSeen {
	if p.data == nil || !p.filed {
		return nil
	}
	return &savedSeen{p.data.rows(p.Dim()).Save(), p.opt.Covariance, p.opt.Rank}
}

// loadRows sets the rows of p to s. The covariance of p must be loaded.
func (p *GLMPosterior) loadRows(s *savedSeen) error {
	if s == nil {
		return nil
	}
	t := term.NewBuffer(p.Dim())
	if err := t.Load(&s.SavedBuffer, func(y float64) error {
		return checkLabel(p.lik,
			y)
	}); err != nil {
		return fmt.Errorf("the rows of the data: %w", err)
	}
	if n := t.Rows(); n != p.rows || n > mostKept {
		return fmt.Errorf("the data has %d rows instead of %d: %w", n, p.rows, ErrShape)
	}
	if s.Covariance < AutoCovariance || s.Covariance > DiagonalCovariance || s.Rank < 0 ||
		s.Rank > save.Most {
		return fmt.Errorf("the covariance is %d with rank %d: %w", s.Covariance, s.Rank, ErrShape)
	}
	p.opt.Covariance, p.opt.Rank = s.Covariance, s.Rank
	p.data, p.filed = &seenRows{t.Design(), t.Y, t.Offset, t.Weight}, true
	return nil
}

// savedMixed is the JSON form of a weightMixture whose components have priors and likelihoods of
// their own.
type savedMixed struct {
	Prob  save.List[float64]   `json:"probabilities"`
	Mean  save.List[float64]   `json:"mean"` // the mean of q
	Parts save.List[savedPart] `json:"parts"`
	// Lo and Hi are as in savedGrid. They are empty without groups.
	Lo save.List[float64] `json:"lo,omitempty"`
	Hi save.List[float64] `json:"hi,omitempty"`
}

// savedPart is a component of a savedMixed.
type savedPart struct {
	Likelihood save.Value         `json:"likelihood"`
	Mean       save.List[float64] `json:"mean"`
	Cov        savedCov           `json:"covariance"`
	Prior      gauss.SavedPrior   `json:"prior"`
}

// saveMixed returns the saved form of the mixture of p, or nil if saveGrid saves it.
func (p *GLMPosterior) saveMixed() (*savedMixed, error) {
	m := p.mixture
	if m == nil || m.priors == nil {
		return nil, nil
	}
	s := &savedMixed{Prob: m.Mixture.Prob, Mean: m.mean}
	s.Lo, s.Hi = p.saveIntervals()
	for k, mean := range m.means {
		part := savedPart{Mean: mean, Prior: m.priors[k].Save()}
		var err error
		if part.Cov, err = p.saveCov(m.Mixture.Of[k]); err != nil {
			return nil, err
		}
		if part.Likelihood, err = saveValue(m.liks[k]); err != nil {
			return nil, err
		}
		s.Parts = append(s.Parts, part)
	}
	return s, nil
}

// load sets the mixture of p, whose prior, mean and covariance must be loaded.
func (s *savedMixed) load(p *GLMPosterior) error {
	if s == nil {
		return nil
	}
	n, d := len(s.Parts), len(p.mean)
	if n == 0 || len(s.Prob) != n || len(s.Mean) != d {
		return fmt.Errorf("%d components do not fit %d probabilities and %d means: %w", n,
			len(s.Prob), len(s.Mean), ErrShape)
	}
	if err := checkProbs(s.Prob); err != nil {
		return err
	}
	if s.Lo != nil || s.Hi != nil {
		params := 0
		for i := range p.groups {
			params += p.groups[i].effects() * (1 + p.groups[i].effects())
		}
		if len(s.Lo) != params || len(s.Hi) != params {
			return fmt.Errorf("%d and %d ends of intervals do not fit %d parameters of groups: %w",
				len(s.Lo), len(s.Hi), params, ErrShape)
		}
		for _, x := range [][]float64{s.Lo, s.Hi} {
			if j, ok := dense.AllFinite(x); !ok {
				return fmt.Errorf("end %d of the intervals is %v: %w", j, x[j], ErrNotFinite)
			}
		}
		p.loadIntervals(s.Lo, s.Hi)
	}
	m := &weightMixture{Mixture: &gauss.Mixture{Cov: p.cov, Prob: s.Prob}, mean: s.Mean}
	for k := range s.Parts {
		if err := s.Parts[k].load(p, m); err != nil {
			return fmt.Errorf("component %d: %w", k, err)
		}
	}
	for _, mean := range m.means {
		m.Mixture.Shift = append(m.Mixture.Shift, floats.SubTo(make([]float64, d), mean, p.mean))
	}
	p.mixture = m
	return nil
}

// load appends the component to m, a mixture of p.
func (s *savedPart) load(p *GLMPosterior, m *weightMixture) error {
	lik, err := loadValue(s.Likelihood, checkLikelihood)
	if err != nil {
		return err
	}
	k, d := latentsOf(p.lik), len(p.names)
	if latentsOf(lik) != k || typeName(lik) != typeName(p.lik) || len(s.Mean) != len(p.mean) ||
		len(s.Prior.Mean) != d || k > 1 && float64(len(s.Cov.Classes)) != float64(k)*lowerSize(d) {
		return fmt.Errorf("a %s with %d means does not fit a %s with %d: %w", typeName(lik),
			len(s.Mean), typeName(p.lik), len(p.mean), ErrShape)
	}
	prior, err := s.Prior.Load()
	if err != nil {
		return err
	}
	cov, err := s.Cov.load(prior)
	if err != nil {
		return err
	}
	m.liks, m.priors = append(m.liks, lik), append(m.priors, prior)
	m.means, m.Mixture.Of = append(m.means, s.Mean), append(m.Mixture.Of, cov)
	return nil
}

// mixtureQuantiles stores the quantile of each weight at level prob in dst.
func (p *GLMPosterior) mixtureQuantiles(dst []float64, prob float64) {
	weights := p.mixture.Mixture.Prob
	sds := make([][]float64, len(weights))
	of, own := make([]float64, len(weights)), make([]float64, len(weights))
	for k := range sds {
		sds[k] = p.component(k).SD(nil)
	}
	for j := range dst {
		for k, m := range p.mixture.means {
			of[k], own[k] = m[j], sds[k][j]
		}
		dst[j] = normalMixQuantile(weights, of, own, prob)
	}
}
