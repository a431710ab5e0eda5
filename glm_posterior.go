package pgsvi

import (
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/design"
	"github.com/pgsvi/pgsvi/internal/gauss"
	"github.com/pgsvi/pgsvi/internal/memory"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/site"
)

// Summary returns the table of the weights of p, new.
func (p *GLMPosterior) Summary() *Summary {
	d, names := p.Dim(), p.weightNames()
	s := &Summary{Likelihood: likelihoodName(p.lik), Data: p.rows, Weights: d, Covariance: covarianceOf(p.cov)}
	sd := p.SD(nil)
	lo, hi := p.WeightQuantile(nil, 0.025), p.WeightQuantile(nil, 0.975)
	add := func(j int) {
		s.Rows = append(s.Rows, SummaryRow{names[j], p.mean[j], sd[j], lo[j], hi[j]})
	}
	for first := 0; first < d; first += len(p.names) { // a class
		if p.opt.Intercept {
			add(first + p.Cols())
		}
		for j := range p.Cols() {
			add(first + j)
		}
	}
	return s
}

// glmFile is the file of a GLMPosterior.
var glmFile = save.Kind{Name: "GLMPosterior", Version: 1}

// savedGLM is a GLMPosterior as JSON: its weights with the prior that they had.
type savedGLM struct {
	Likelihood save.Value         `json:"likelihood"`
	Names      save.List[string]  `json:"names"` // of the weights
	Intercept  bool               `json:"intercept"`
	Rows       int                `json:"rows"`
	Mean       save.List[float64] `json:"mean"`
	Cov        savedCov           `json:"covariance"`
	Prior      gauss.SavedPrior   `json:"prior"`
	Means      save.List[float64] `json:"columnMeans,omitempty"` // files of before have none
	ClassNames save.List[string]  `json:"classNames,omitempty"`
	Seen       *savedSeen         `json:"data,omitempty"` // files of before have none
}

// savedCov is one of the forms of a gauss.Cov.
type savedCov struct {
	Full save.List[float64] `json:"precision,omitempty"` // V⁻¹, lower triangle, row by row
	// what is left of it, where it has twice the digits
	FullLow  save.List[float64] `json:"precisionLow,omitempty"`
	Diagonal save.List[float64] `json:"variances,omitempty"` // a diagonal V
	Dual     *savedDual         `json:"dual,omitempty"`
	LowRank  *savedLowRank      `json:"lowrank,omitempty"`
	// the precisions of the classes, as Full has them, one after the other
	Classes save.List[float64] `json:"classes,omitempty"`
}

// savedLowRank is a gauss.LowRank.
type savedLowRank struct {
	Rank int                `json:"rank"`
	D    save.List[float64] `json:"d"`
	U    save.List[float64] `json:"u"` // row by row
}

// savedDual is a gauss.Dual: the rows of the data and their sites.
type savedDual struct {
	design.SavedRows
	Gamma save.List[float64] `json:"gamma"`
}

// Save writes p; Load restores it to the same bits, ready for predictions and updates. The format
// is a line that names the kind of file, JSON, and a checksum. A full covariance takes D²/2
// numbers. The rows of the data are stored in two cases only: those of a posterior of WithRows, and
// those of a model of more than 2000 weights that outnumber the rows.
//
// The error is that of w. It wraps ErrParam if the name of a weight is not UTF-8, if the
// likelihood's type is not registered (Register), or if encoding/json cannot write and read it.
func (p *GLMPosterior) Save(w io.Writer) error {
	if err := checkText("the name of weight", p.names); err != nil {
		return err
	}
	if err := checkText("the name of class", p.opt.ClassNames); err != nil {
		return err
	}
	s := &savedGLM{Names: p.names, ClassNames: p.opt.ClassNames, Intercept: p.opt.Intercept, Rows: p.rows, Mean: p.mean, Prior: p.prior.Save(), Means: p.means, Seen: p.savedRows()}
	switch c := p.cov.(type) {
	case *gauss.Full:
		s.Cov.Full, s.Cov.FullLow = dense.PackLower(c.S.P, p.Dim()), c.S.PackLow()
	case gauss.Diagonal:
		s.Cov.Diagonal = save.List[float64](c)
	case *gauss.Dual:
		s.Cov.Dual = &savedDual{c.X.Save(), c.Gamma}
	case *gauss.LowRank:
		s.Cov.LowRank = &savedLowRank{c.Rank, c.D, c.U}
	case *gauss.Contrasts:
		for _, of := range c.Of {
			s.Cov.Classes = append(s.Cov.Classes, dense.PackLower(of.S.P, len(p.names))...)
		}
	default:
		return fmt.Errorf("pgsvi: a posterior with a %T cannot be saved: %w", c, ErrParam)
	}
	var err error
	if s.Likelihood, err = saveValue(p.lik); err != nil {
		return err
	}
	return saveTo(w, glmFile, s)
}

// load reads p of a file; it factorises the covariance anew, in about D³/3 operations for a full
// one.
func (*GLMPosterior) load(r io.Reader) (*GLMPosterior, error) {
	return loadFrom(r, glmFile, (*savedGLM).load)
}

func (s *savedGLM) load() (*GLMPosterior, error) {
	d := len(s.Names)
	if d == 0 {
		return nil, fmt.Errorf("no weights: %w", ErrShape)
	}
	lik, err := loadValue(s.Likelihood, checkLikelihood)
	if err != nil {
		return nil, err
	}
	k := latentsOf(lik)
	if len(s.Mean)/k != d || len(s.Mean)%k != 0 || len(s.Prior.Mean) != d || s.Rows < 0 || s.Rows > save.Most {
		return nil, fmt.Errorf("%d weights and %d rows, with means of %d and prior means of %d: %w", d, s.Rows, len(s.Mean), len(s.Prior.Mean), ErrShape)
	}
	if cols := d - design.B2i(s.Intercept); len(s.Means) > 0 && len(s.Means) != cols {
		return nil, fmt.Errorf("means of %d columns, of which there are %d: %w", len(s.Means), cols, ErrShape)
	}
	if j, ok := dense.AllFinite(s.Means); !ok {
		return nil, fmt.Errorf("the mean of column %d is %v: %w", j, s.Means[j], ErrNotFinite)
	}
	if n := len(s.ClassNames); n > 0 && n != k || k > 1 && float64(len(s.Cov.Classes)) != float64(k)*lowerSize(d) {
		return nil, fmt.Errorf("%d classes, with %d names and %d numbers of covariances: %w", k, n, len(s.Cov.Classes), ErrShape)
	}
	p := &GLMPosterior{names: s.Names, mean: s.Mean, rows: s.Rows, lik: lik, opt: GLMOptions{Intercept: s.Intercept, ClassNames: s.ClassNames}, means: s.Means}
	if p.prior, err = s.Prior.Load(); err != nil {
		return nil, err
	}
	if p.cov, err = s.Cov.load(p.prior); err != nil {
		return nil, err
	}
	p.opt.Covariance = covarianceOf(p.cov)
	if err := p.loadRows(s.Seen); err != nil {
		return nil, err
	}
	return p, nil
}

// lowerSize returns the number of elements of the lower triangle of a matrix d×d.
func lowerSize(d int) float64 { return float64(d) * float64(d+1) / 2 }

func (s *savedCov) load(prior *gauss.Prior) (gauss.Cov, error) {
	d := len(prior.Mean)
	switch {
	case s.Classes != nil:
		c := &gauss.Contrasts{}
		for p := range slices.Chunk(s.Classes, int(lowerSize(d))) {
			w, err := gauss.LoadPrecision(p, nil, d, fmt.Sprintf("precision of class %d", len(c.Of)))
			if err == nil {
				err = c.Add(w)
			}
			if err != nil {
				return nil, err
			}
		}
		return c, nil
	case s.Full != nil:
		w, err := gauss.LoadPrecision(s.Full, s.FullLow, d, "precision")
		return &gauss.Full{S: w}, err
	case s.Dual != nil:
		return s.Dual.load(prior)
	case s.LowRank != nil:
		return s.LowRank.load(d)
	case s.Diagonal != nil:
		return gauss.Diagonal(s.Diagonal), gauss.CheckDiagonal(s.Diagonal, d, "variance")
	}
	return nil, fmt.Errorf("no covariance: %w", ErrShape)
}

func (s *savedDual) load(prior *gauss.Prior) (gauss.Cov, error) {
	n := len(s.Gamma)
	if n == 0 {
		return nil, fmt.Errorf("sites of no rows: %w", ErrShape)
	}
	if err := checkMemory(0, memory.Bytes(site.DenseMatrices, n, n), fmt.Sprintf("the covariance of %d rows", n), "raise the limit (GOMEMLIMIT)"); err != nil {
		return nil, err
	}
	x, err := s.SavedRows.Load(n, len(prior.Mean))
	if err != nil {
		return nil, err
	}
	l := &site.LinearModel{X: x, Prior: *prior, Names: make([]string, x.Cols)}
	c := &gauss.Dual{X: x, Gamma: s.Gamma, Prior: prior, Fac: new(dense.Sites)}
	if !c.Fac.Factor(l.Gram(), x.Rows, s.Gamma) {
		return nil, fmt.Errorf("covariance: %w", ErrNotPosDef)
	}
	c.Fac.C = nil // K is not needed any more
	return c, nil
}

func (s *savedLowRank) load(d int) (gauss.Cov, error) {
	if err := gauss.CheckDiagonal(s.D, d, "unique precision"); err != nil {
		return nil, err
	}
	if s.Rank < 1 || s.Rank > d || len(s.U) != d*s.Rank {
		return nil, fmt.Errorf("precision of %d weights and rank %d with %d factors: %w", d, s.Rank, len(s.U), ErrShape)
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
		return nil, fmt.Errorf("precision of low rank: %w", ErrNotPosDef)
	}
	return c, nil
}

// Summary is a table of the weights of a GLMPosterior. Its rows may be sorted,
// changed or removed before it is printed.
type Summary struct {
	// Rows has a row for each weight: the intercept first, then the columns of the data in order.
	Rows []SummaryRow
	// Likelihood is the name of the likelihood, with its parameters unless all are zero.
	Likelihood string
	// Data is the number of rows of data, GLMPosterior.Len.
	Data int
	// Weights is the number of weights including the intercept.
	Weights int
	// Covariance is the family of the covariance of the weights.
	Covariance Covariance
}

// SummaryRow describes one weight: its marginal posterior N(Mean, SD²) and 95% credible interval,
// in units of the linear predictor per unit of the feature.
type SummaryRow struct {
	Name     string
	Mean, SD float64
	Lo, Hi   float64 // quantiles at 2.5% and 97.5%, the 95% credible interval
}

// sure reports whether the interval from Lo to Hi does not contain 0, so that the
// sign of the weight is known.
func (r SummaryRow) sure() bool { return r.Lo > 0 || r.Hi < 0 }

// likelihoodName returns the type of l, with its fields if they are not all zero.
func likelihoodName(l Likelihood) string {
	name := typeName(l)
	if v := reflect.ValueOf(l); v.Kind() == reflect.Struct && !v.IsZero() {
		name += fmt.Sprintf("%+v", l)
	}
	return name
}

// String returns the table as text: a line on the model, the column names, and a line for each
// row. A star marks weights whose interval from Lo to Hi does not contain 0; a last line explains
// it. The numbers of a row have the decimals that give its standard deviation four significant
// digits.
func (s *Summary) String() string {
	lines := [][]string{{"", "mean", "sd", "2.5%", "97.5%"}}
	sure := make([]bool, 1, len(s.Rows)+1)
	for _, r := range s.Rows {
		line := []string{r.Name}
		for _, v := range []float64{r.Mean, r.SD, r.Lo, r.Hi} {
			line = append(line, summaryNumber(v, r.SD))
		}
		lines, sure = append(lines, line), append(sure, r.sure())
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d rows, %d weights, %v covariance\n", s.Likelihood, s.Data, s.Weights, s.Covariance)
	alignPoints(lines)
	for i, line := range lines {
		text := strings.Join(line, "  ")
		if sure[i] {
			text += " *"
		}
		b.WriteString(strings.TrimRight(text, " ") + "\n")
	}
	b.WriteString("* zero is outside the interval from 2.5% to 97.5%\n")
	return b.String()
}

// summaryNumber formats x to four significant digits of sd.
func summaryNumber(x, sd float64) string {
	if !(sd > 0) || math.IsInf(sd, 0) || math.IsNaN(x) || math.IsInf(x, 0) {
		return strconv.FormatFloat(x, 'g', 6, 64)
	}
	decimals := 3 - int(math.Floor(math.Log10(sd)))
	if decimals > 9 || math.Abs(x) >= 1e9 {
		return strconv.FormatFloat(x, 'e', 4, 64)
	}
	return strconv.FormatFloat(x, 'f', max(0, decimals), 64)
}

// alignPoints pads the cells of each column to the same width: names to the left,
// numbers with their points below each other, and what is above them to the right.
func alignPoints(lines [][]string) {
	for j := range lines[0] {
		whole, part := 0, 0 // widest, before the point and from it on
		for _, line := range lines[1:] {
			w, p := splitPoint(line[j], j > 0)
			whole, part = max(whole, w), max(part, p)
		}
		head := utf8.RuneCountInString(lines[0][j])
		whole = max(whole, head-part)
		for i, line := range lines {
			w, p := splitPoint(line[j], i > 0 && j > 0)
			left, right := whole-w, part-p
			switch {
			case j == 0:
				left, right = 0, left+right
			case i == 0:
				left, right = left+right, 0
			}
			line[j] = strings.Repeat(" ", left) + line[j] + strings.Repeat(" ", right)
		}
	}
}

// splitPoint returns the widths of a cell before its point, if it is a number, and from it on.
func splitPoint(cell string, number bool) (whole, part int) {
	n := utf8.RuneCountInString(cell)
	if at := strings.IndexByte(cell, '.'); number && at >= 0 {
		at = utf8.RuneCountInString(cell[:at])
		return at, n - at
	}
	return n, 0
}
