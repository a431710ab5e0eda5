package data

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/formula"
	"github.com/pgsvi/pgsvi/internal/dense"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"gonum.org/v1/gonum/mat"
)

// A Posterior is the fitted model of a Predictor: a *pgsvi.GLMPosterior, *pgsvi.GPPosterior or
// *pgsvi.SparseGPPosterior.
type Posterior interface {
	At(x mat.Matrix) *pgsvi.Prediction
	Cols() int
	Save(w io.Writer) error
}

// A Predictor predicts the outcome of raw rows: maps, JSON, structs or tables. It holds the encoder
// of the columns, the formula and the posterior, and Save writes all of them to one file. Make it
// with Model.Predictor or LoadPredictor. A Predictor does not change and may be used concurrently.
type Predictor struct {
	enc    *Encoder
	design *design
	y      *column
	trials bool
	post   Posterior
}

// Predictor returns the Predictor of a posterior of the model. The error wraps ErrShape if the
// numbers of columns or classes differ, and ErrParam if post is nil or has a type that is not
// listed at Posterior.
func (m *Model) Predictor(post Posterior) (*Predictor, error) {
	if _, err := posteriorName(post); err != nil {
		return nil, err
	}
	if n := post.Cols(); n != len(m.Names) {
		return nil, sentinel.Wrap(pgsvi.ErrShape,
			"pgsvi: the posterior has %d columns, but the model has %d", n,
			len(m.Names))
	}
	p := &Predictor{enc: m.enc, design: m.design, y: m.y, trials: m.Formula.Trials != "",
		post: post}
	if n := classesOf(post); n != len(p.Classes()) {
		return nil, sentinel.Wrap(pgsvi.ErrShape,
			"pgsvi: the posterior has %d classes, but the outcome has %d", n,
			len(p.Classes()))
	}
	return p, nil
}

// posteriorName returns the type name of a posterior.
func posteriorName(post Posterior) (string, error) {
	switch p := post.(type) {
	case *pgsvi.GLMPosterior:
		if p != nil {
			return "GLMPosterior", nil
		}
	case *pgsvi.GPPosterior:
		if p != nil {
			return "GPPosterior", nil
		}
	case *pgsvi.SparseGPPosterior:
		if p != nil {
			return "SparseGPPosterior", nil
		}
	}
	return "", sentinel.Wrap(pgsvi.ErrParam,
		"pgsvi: the posterior is a %T; use a *GLMPosterior, *GPPosterior or *SparseGPPosterior",
		post)
}

// Posterior returns the posterior that p predicts with.
func (p *Predictor) Posterior() Posterior { return p.post }

// Formula returns the formula with . and a*b expanded.
func (p *Predictor) Formula() string { return p.design.Formula }

// Outcome returns the name of the outcome, and the label whose probability is predicted. The label
// is "" for numbers and for classes.
func (p *Predictor) Outcome() (name, label string) {
	if p.labels() {
		label = p.label()
	}
	return p.y.Name, label
}

// String describes how each column was read, and the formula.
func (p *Predictor) String() string { return p.enc.String() + "\n" + p.design.Formula + "\n" }

// Classes returns the classes or the ordered levels of the outcome, in the order of Answer.Probs.
// It returns a new slice, or nil if the outcome is a number or one of two labels.
func (p *Predictor) Classes() []string {
	if !p.y.classes() && !p.y.ordered() {
		return nil
	}
	return slices.Clone(p.y.Levels)
}

// answerLevel is the probability of the intervals of Predict.
const answerLevel = 0.9

// Predict predicts one row. The row is a map[string]any or map[string]string from column names to
// values, a JSON object as []byte or json.RawMessage, or a struct, or a pointer to a struct, whose
// fields have tags such as `col:"age"`. Encoder.Row documents how values are read, and the errors.
func (p *Predictor) Predict(row any) (*Answer, error) {
	w, err := p.fill(row)
	defer w.release()
	if err != nil {
		return nil, fmt.Errorf("pgsvi: %w", err)
	}
	a, err := p.answer(w, w.cells, answerLevel)
	if err != nil {
		return nil, fmt.Errorf("pgsvi: %w", withNotes(err, w.notes))
	}
	return a, nil
}

// PredictAll predicts each element of rows, which is a slice of rows for Predict, or a JSON array
// of objects as []byte. For each row i, either answers[i] or errs[i] is nil. If rows is neither a
// slice nor such an array, err wraps ErrShape and the slices are nil.
func (p *Predictor) PredictAll(rows any) (answers []*Answer, errs []error, err error) {
	var all []any
	switch rows := rows.(type) {
	case []byte:
		var objects []json.RawMessage
		if err := json.Unmarshal(rows, &objects); err != nil {
			return nil, nil, sentinel.Wrap(pgsvi.ErrShape,
				"pgsvi: the rows are not a JSON array of objects: %w", err)
		}
		for _, o := range objects {
			all = append(all, o)
		}
	default:
		v := reflect.ValueOf(rows)
		if _, raw := rows.(json.RawMessage); v.Kind() != reflect.Slice || raw {
			return nil, nil, sentinel.Wrap(pgsvi.ErrShape, "pgsvi: the rows are a %T; use a slice "+
				"of rows or a JSON array of objects as []byte", rows)
		}
		for i := range v.Len() {
			all = append(all, v.Index(i).Interface())
		}
	}
	answers, errs = make([]*Answer, len(all)), make([]error, len(all))
	for i, row := range all {
		if answers[i], errs[i] = p.Predict(row); errs[i] != nil {
			errs[i] = named("", fmt.Errorf("pgsvi: row %d: %w", i, errs[i]))
			continue
		}
		answers[i].Row = i
	}
	return answers, errs, nil
}

// Table predicts the rows of a table in order, with intervals of probability level, in (0, 1).
// Columns are found by name. Each element of the sequence is an answer, or the error of a row with
// an answer that holds only its place. An error of a row does not end the sequence, nor does a line
// with too few fields if the table was read with Format.Ragged. If reading fails, a column is
// missing or level is out of range, the sequence ends with a nil Answer and an error. Table
// predicts up to 512 rows ahead on all processors. The number of processors does not change the
// answers.
func (p *Predictor) Table(t *Table, level float64) iter.Seq2[*Answer, error] {
	return func(yield func(*Answer, error) bool) {
		if !(level > 0 && level < 1) {
			yield(nil, sentinel.Wrap(pgsvi.ErrParam,
				"pgsvi: the level of the interval is %v; levels must be in (0, 1)", level))
			return
		}
		q := &queue{p: p, t: t, level: level, yield: yield}
		err := p.enc.records(t, (*column).neededByModel, q.add)
		if end := q.flush(); end != nil {
			err = end
		}
		if err != nil && err != errStop {
			yield(nil, err)
		}
	}
}

// Explain returns the contribution of each term of the formula to the linear predictor of a row,
// relative to the means of the columns in training (feature attribution); see
// pgsvi.GLMPosterior.Explain. A smooth curve, a category with all its levels, and a group are one
// term each. The row and the errors are the same as for Predict. The error also wraps ErrParam if
// the posterior is not a GLMPosterior.
func (p *Predictor) Explain(row any) (*pgsvi.Effects, error) {
	glm, ok := p.post.(*pgsvi.GLMPosterior)
	if !ok {
		return nil, sentinel.Wrap(pgsvi.ErrParam,
			"pgsvi: Explain does not support a %T; use a *GLMPosterior", p.post)
	}
	w, err := p.fill(row)
	defer w.release()
	if err == nil {
		err = p.design.row(&w.row, w.cells)
	}
	if err != nil {
		return nil, fmt.Errorf("pgsvi: %w", err)
	}
	x := make([]float64, len(p.design.names))
	for k, j := range w.row.ind {
		x[j] = w.row.val[k]
	}
	return glm.Explain(x, &pgsvi.EffectOptions{Columns: p.design.columns()})
}

// columns returns the text of the term that each feature belongs to.
func (d *design) columns() []string {
	columns := make([]string, len(d.names))
	for _, t := range d.Terms {
		for j := range t.n {
			columns[t.at+j] = t.Text
		}
	}
	return columns
}

// scratch holds buffers that Predict reuses.
type scratch struct {
	cells       []cell
	notes       []string // fields that fill ignored
	row         entries
	x           *pgsvi.Sparse
	one, lo, hi [1]float64
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// release clears the values of the row and returns the scratch to the pool.
func (w *scratch) release() {
	clear(w.cells)
	scratches.Put(w)
}

// fill reads a row into a scratch. The caller must release the scratch, even after an error.
func (p *Predictor) fill(row any) (*scratch, error) {
	w := scratches.Get().(*scratch)
	n := len(p.enc.state.Columns)
	w.cells = slices.Grow(w.cells[:0], n)[:n]
	var err error
	w.notes, err = p.enc.fill(w.cells, row)
	return w, err
}

// encode returns the features of a row as a matrix, and its offset.
func (p *Predictor) encode(w *scratch, cells []cell) (x mat.Matrix, offset float64, err error) {
	if err := p.design.row(&w.row, cells); err != nil {
		return nil, 0, err
	}
	if offset, err = p.enc.offset(cells); err != nil {
		return nil, 0, err
	}
	cols := len(p.design.names)
	if w.x == nil {
		w.x = pgsvi.NewSparse(cols)
	} else if _, c := w.x.Dims(); c != cols {
		w.x = pgsvi.NewSparse(cols)
	}
	w.x.Reset()
	return w.x, offset, w.x.Append(w.row.indices(), w.row.val)
}

// answer predicts one row.
func (p *Predictor) answer(w *scratch, cells []cell, level float64) (*Answer, error) {
	x, offset, err := p.encode(w, cells)
	if err != nil {
		return nil, err
	}
	at := p.post.At(x)
	if offset != 0 {
		at = at.Offset([]float64{offset})
	}
	a := noAnswer()
	a.Notes = slices.Concat(w.notes, w.row.notes)
	if p.y.classes() {
		if err := p.class(a, at, level); err != nil {
			return nil, err
		}
		p.compare(a, at, cells)
		return a, nil
	}
	at.Latent(w.lo[:], w.hi[:])
	if _, ok := dense.AllFinite([]float64{w.lo[0], w.hi[0]}); !ok {
		return nil, p.tooLarge(w)
	}
	a.latent = latent{at.Likelihood(), w.lo[0], w.hi[0], nil}
	if p.design.Precision > 0 {
		if a.precision, err = p.precision(cells); err != nil {
			return nil, err
		}
		at = at.Precision([]float64{a.precision}).Row(0)
	}
	if p.y.ordered() {
		if err := p.level(a, at, level); err != nil {
			return nil, err
		}
		p.compare(a, at, cells)
		return a, nil
	}
	if p.labels() {
		a.Label = p.label()
		a.Mean = at.Prob(w.one[:], 1)[0]
		_, _, err = at.ProbInterval(w.lo[:], w.hi[:], 1, level)
	} else {
		if _, _, err = at.Moments(w.one[:], w.lo[:]); err != nil {
			return nil, err
		}
		a.Mean = w.one[0]
		_, _, err = at.Interval(w.lo[:], w.hi[:], level)
	}
	if err != nil {
		return nil, err
	}
	a.Lo, a.Hi = w.lo[0], w.hi[0]
	if a.MeanLo, a.MeanHi = a.Lo, a.Hi; !p.labels() {
		if _, _, err = at.MeanInterval(w.lo[:], w.hi[:], level); err != nil {
			return nil, err
		}
		a.MeanLo, a.MeanHi = w.lo[0], w.hi[0]
	}
	if p.y.Root {
		if _, _, err = at.Moments(w.one[:], w.lo[:]); err != nil {
			return nil, err
		}
		noise, _ := at.Likelihood().(pgsvi.GaussianNoise)
		a.square(w.lo[0], noise.Var)
	}
	p.compare(a, at, cells)
	return a, nil
}

// level stores the most probable of the ordered levels in the answer.
func (p *Predictor) level(a *Answer, at *pgsvi.Prediction, level float64) error {
	if err := at.Err(); err != nil {
		return err
	}
	a.Probs = make([]float64, len(p.y.Levels))
	best := 0
	for j := range a.Probs {
		a.Probs[j] = at.Prob(nil, float64(j))[0]
		if a.Probs[j] > a.Probs[best] {
			best = j
		}
	}
	a.Label, a.Mean = p.y.Levels[best], a.Probs[best]
	lo, hi, err := at.ProbInterval(nil, nil, float64(best), level)
	a.Lo, a.Hi = lo[0], hi[0]
	a.MeanLo, a.MeanHi = a.Lo, a.Hi
	return err
}

// compare scores an answer against the outcome of the row. If the outcome cannot be read, it adds a
// note.
func (p *Predictor) compare(a *Answer, at *pgsvi.Prediction, cells []cell) {
	if a.unread = p.score(a, at, cells); a.unread != nil {
		a.Outcome, a.LogProb = math.NaN(), math.NaN()
		a.Notes = append(a.Notes, "the outcome is ignored: "+sentinel.Plain(a.unread))
	}
}

// tooLarge returns the error of a row whose latent value is not finite.
func (p *Predictor) tooLarge(w *scratch) error {
	at, most := -1, 0.0
	for k, v := range w.row.val {
		if math.Abs(v) > most {
			at, most = w.row.ind[k], math.Abs(v)
		}
	}
	if at < 0 {
		return sentinel.Wrap(pgsvi.ErrNotFinite,
			"no prediction, because the posterior is not finite")
	}
	return sentinel.Wrap(pgsvi.ErrNotFinite,
		"a value is too large for a prediction: %s is %.3g after encoding",
		csvQuote(p.design.names[at]), most)
}

// likelihoodOf returns the likelihood that a posterior predicts with.
func likelihoodOf(post Posterior) pgsvi.Likelihood {
	return post.At(pgsvi.NewSparse(post.Cols())).Likelihood()
}

// classesOf returns the number of classes or ordered levels that a posterior predicts, or 0.
func classesOf(post Posterior) int {
	switch lik := likelihoodOf(post).(type) {
	case pgsvi.Softmax:
		return lik.Classes
	case pgsvi.Ordinal:
		return len(lik.Cuts) + 1
	}
	return 0
}

// class stores the most probable class of one row in the answer.
func (p *Predictor) class(a *Answer, at *pgsvi.Prediction, level float64) error {
	if err := at.Err(); err != nil {
		return err
	}
	a.Probs = at.Probs().RawRowView(0)
	best := 0
	for c, q := range a.Probs {
		if q > a.Probs[best] {
			best = c
		}
	}
	m, v := at.Latent(nil, nil)
	a.latent = latent{lik: at.Likelihood(), scores: append(m, v...)}
	a.Label, a.Mean = p.y.Levels[best], a.Probs[best]
	lo, hi, err := at.ProbInterval(nil, nil, float64(best), level)
	a.Lo, a.Hi = lo[0], hi[0]
	a.MeanLo, a.MeanHi = a.Lo, a.Hi
	return err
}

// labels reports whether the outcome is one of two labels.
func (p *Predictor) labels() bool { return p.trials || p.y.Positive != "" }

// label returns the label whose probability is predicted.
func (p *Predictor) label() string {
	if p.trials {
		return "success"
	}
	return p.y.Levels[1]
}

// score compares an answer with the outcome of the row, if it has one.
func (p *Predictor) score(a *Answer, at *pgsvi.Prediction, cells []cell) error {
	v := &cells[p.y.place]
	if p.y.isGapCell(v) {
		return nil
	}
	y, err := p.y.outcome(v)
	if err != nil {
		return p.y.wrap(err)
	}
	if event := p.enc.event; event != nil {
		w := &cells[event.place]
		if event.isGapCell(w) {
			return nil // it is unknown whether the duration is censored
		}
		if y, err = event.duration(p.y, y, w); err != nil {
			return err
		}
	}
	a.Outcome = y
	if !p.trials {
		a.LogProb = at.LogProb(nil, []float64{y})[0]
		if p.y.Root { // p(y) = p(u)/2u for y = u²
			a.Outcome = y * y
			a.LogProb -= math.Log(2 * y)
		}
		if math.IsNaN(a.LogProb) {
			if _, err := at.Scores([]float64{y}); errors.Is(err, pgsvi.ErrLabel) {
				return p.y.wrap(sentinel.Wrap(pgsvi.ErrLabel, "%s",
					strings.TrimPrefix(sentinel.Plain(err), "row 0: ")))
			}
		}
		return nil
	}
	for _, c := range p.enc.uses {
		if w := &cells[c.place]; c.Kind == kindTrials && !c.isGapCell(w) {
			n, err := c.scale(w)
			if err == nil {
				err = checkSuccesses(y, n)
			}
			if err != nil {
				return c.wrap(err)
			}
			a.Outcome, a.trials = y/n, n
			if _, ok := at.Likelihood().(pgsvi.BetaBinomial); ok {
				a.LogProb = at.Trials([]float64{n}).LogProb(nil, []float64{y})[0]
				continue
			}
			yes, no := at.LogProb(nil, []float64{1})[0], at.LogProb(nil, []float64{-1})[0]
			a.LogProb = (y*yes + (n-y)*no) / n
		}
	}
	return nil
}

// offset returns the offset of a row in the linear predictor.
func (e *Encoder) offset(cells []cell) (sum float64, err error) {
	for _, c := range e.uses {
		if c.Kind != kindExposure && c.Kind != kindOffset {
			continue
		}
		v, err := c.scale(&cells[c.place])
		if err != nil {
			return 0, c.wrap(err)
		}
		if c.Kind == kindExposure {
			v = math.Log(v)
		}
		sum += v
	}
	return sum, nil
}

// precision returns the precision of a row relative to the mean of the training rows. It is 1 if the
// row has no precision.
func (p *Predictor) precision(cells []cell) (float64, error) {
	for _, c := range p.enc.uses {
		if v := &cells[c.place]; c.Kind == kindPrecision && !c.isGapCell(v) {
			w, err := c.scale(v)
			if err != nil {
				return 0, c.wrap(err)
			}
			return w / p.design.Precision, nil
		}
	}
	return 1, nil
}

// Score compares the predictions for the rows of a table with their outcomes, or with the square
// roots of the outcomes for a model of sqrt(y). It ignores rows with an error or without an
// outcome. The error wraps ErrEmpty if no row is left. Otherwise it is an error that ends the
// sequence of Table.
func (p *Predictor) Score(t *Table) (*pgsvi.Scores, error) {
	s := scoring{counts: p.trials, root: p.y.Root}
	for a, err := range p.Table(t, answerLevel) {
		if a == nil {
			return nil, err
		}
		if err == nil {
			s.add(a)
		}
	}
	return s.scores()
}

// scoring collects answers and outcomes.
type scoring struct {
	counts                    bool // the outcomes are numbers of successes
	root                      bool // the scores refer to the square root of the outcome
	lik                       pgsvi.Likelihood
	y, mean, variance, trials []float64
	precision                 []float64
}

// add adds an answer, unless its row has no outcome.
func (s *scoring) add(a *Answer) {
	if math.IsNaN(a.Outcome) || s.counts && a.trials == 0 {
		return
	}
	s.lik = a.latent.lik
	outcome := a.Outcome
	if s.root {
		outcome = math.Sqrt(outcome)
	}
	if a.trials > 0 {
		outcome = math.Round(a.Outcome * a.trials)
		s.trials = append(s.trials, a.trials)
	}
	if a.precision > 0 {
		s.precision = append(s.precision, a.precision)
	}
	s.y = append(s.y, outcome)
	if k := len(a.latent.scores) / 2; k > 0 {
		s.mean = append(s.mean, a.latent.scores[:k]...)
		s.variance = append(s.variance, a.latent.scores[k:]...)
		return
	}
	s.mean, s.variance = append(s.mean, a.latent.mean), append(s.variance, a.latent.variance)
}

// scores returns the scores of the collected answers.
func (s *scoring) scores() (*pgsvi.Scores, error) {
	if len(s.y) == 0 {
		return nil, sentinel.Wrap(pgsvi.ErrEmpty, "pgsvi: no row has an outcome and a prediction")
	}
	at := pgsvi.NewPrediction(s.lik, s.mean, s.variance)
	if s.trials != nil {
		at = at.Trials(s.trials)
	}
	if s.precision != nil {
		at = at.Precision(s.precision)
	}
	return at.Scores(s.y)
}

// Update returns a Predictor that has also learned from the rows of t (online learning). It does
// not change p. New levels of groups become known levels. The standard deviations between levels, their
// correlations and the noise keep their values; to learn them, fit all rows or use pgsvi.NewGLMStream.
// The groups of classes, and of posteriors without pgsvi.GLMOptions.Groups, learn all
// new levels as one level. The encoding of other columns stays the same. The error wraps ErrParam if
// the posterior is not a GLMPosterior, and ErrShape if t has no outcome. Otherwise it is an error of
// Encoder.Data, GLMPosterior.WithLevels or GLMPosterior.Update.
func (p *Predictor) Update(ctx context.Context, t *Table) (*Predictor, error) {
	glm, ok := p.post.(*pgsvi.GLMPosterior)
	if !ok {
		return nil, sentinel.Wrap(pgsvi.ErrParam,
			"pgsvi: Update does not support a %T; fit the model to all rows", p.post)
	}
	if n := len(p.design.groups()); n > 0 && len(glm.Groups()) == n {
		var err error
		if p, glm, err = p.withLevels(t, glm); err != nil {
			return nil, err
		}
	}
	d, err := p.enc.data(t, p.design)
	if err != nil {
		return nil, err
	}
	m := &Model{Data: d, Formula: &formula.Formula{}, enc: p.enc, design: p.design, y: p.y,
		table: t}
	if d.Y == nil {
		return nil, t.named(
			sentinel.Wrap(pgsvi.ErrShape,
				"pgsvi: the table has no column %s, the outcome to learn from",
				csvQuote(p.y.Name)))
	}
	if p.trials {
		if err := m.takeTrials(t, likelihoodOf(p.post)); err != nil {
			return nil, err
		}
	}
	post, err := glm.Update(ctx, m.rows())
	if err != nil {
		return nil, err
	}
	q := *p
	q.post = post
	return &q, nil
}

// rows returns the rows of the data one by one.
func (m *Model) rows() iter.Seq2[pgsvi.Row, error] {
	weights := m.counted()
	return func(yield func(pgsvi.Row, error) bool) {
		i := 0
		for r, err := range pgsvi.Rows(m.X, m.Y) {
			if m.Offset != nil {
				r.Offset = m.Offset[i]
			}
			if weights != nil {
				if r.Weight = weights[i]; r.Weight == 0 {
					i++
					continue
				}
			}
			i++
			if !yield(r, err) {
				return
			}
		}
	}
}

// saved is the part of a Predictor file that precedes the posterior.
type saved struct {
	Encoder   *Encoder `json:"encoder"`
	Design    *design  `json:"design"`
	Outcome   string   `json:"outcome"`
	Trials    bool     `json:"trials,omitempty"`
	Posterior string   `json:"posterior"`
}

// predictorFile is the kind of file that holds a Predictor: the length of saved in bytes, saved as
// JSON, and the file of the posterior.
var predictorFile = save.Kind{Name: "Predictor", Version: 1}

// Save writes the encoder, the formula and the posterior with a checksum. LoadPredictor restores
// exactly the same predictor. The file does not contain the training rows, so Update of a loaded
// predictor makes one pass over the new rows. To store up to 4096 training rows and refit all of
// them in Update, make the predictor from GLMPosterior.WithRows. Save returns the errors of w.
func (p *Predictor) Save(w io.Writer) error {
	name, err := posteriorName(p.post)
	if err != nil {
		return err
	}
	head, err := json.Marshal(saved{p.enc, p.design, p.y.Name, p.trials, name})
	if err != nil {
		return fmt.Errorf("pgsvi: saving a predictor: %w", err)
	}
	body := bytes.NewBuffer(binary.LittleEndian.AppendUint64(nil, uint64(len(head))))
	body.Write(head)
	if err := p.post.Save(body); err != nil {
		return err
	}
	return predictorFile.Write(w, body.Bytes())
}

// SaveFile writes the predictor to a file; see WriteFile.
func (p *Predictor) SaveFile(path string) error { return WriteFile(path, p.Save) }

// WriteFile creates or replaces a file with the output of write, such as the Save method of a
// posterior. An existing file is replaced only when the new content is complete, and keeps its
// permissions. If path is a symbolic link, its target is replaced. If path is a device or a pipe,
// the output is written to it. WriteFile returns an error of write unchanged. Other errors name
// path.
func WriteFile(path string, write func(io.Writer) error) error {
	err := save.WriteFile(path, write)
	if own := (*fs.PathError)(nil); err != nil && errors.As(err, &own) {
		return fmt.Errorf("pgsvi: %w", sentinel.Bare(err))
	}
	return err
}

// LoadPredictor reads the output of Predictor.Save, which must be all of r. The error wraps ErrFile
// if r holds no such file, or if the file is damaged or was written by a newer release. It wraps an
// error of r.
func LoadPredictor(r io.Reader) (*Predictor, error) {
	body, err := predictorFile.Read(r)
	var fault save.Fault
	switch {
	case errors.As(err, &fault):
		return nil, sentinel.Wrap(pgsvi.ErrFile, "pgsvi: %w", err)
	case err != nil:
		return nil, fmt.Errorf("pgsvi: %w", err)
	}
	if len(body) < 8 || binary.LittleEndian.Uint64(body) > uint64(len(body)-8) {
		return nil, sentinel.Wrap(pgsvi.ErrFile, "pgsvi: the predictor is incomplete")
	}
	n := 8 + int(binary.LittleEndian.Uint64(body))
	var s saved
	if err := json.Unmarshal(body[8:n], &s); err != nil {
		return nil, sentinel.Wrap(pgsvi.ErrFile, "pgsvi: reading a predictor: %w", err)
	}
	return s.predictor(bytes.NewReader(body[n:]))
}

// predictor makes a Predictor from the saved parts and the posterior in r.
func (s *saved) predictor(r io.Reader) (p *Predictor, err error) {
	if s.Encoder == nil || s.Design == nil {
		return nil, sentinel.Wrap(pgsvi.ErrFile, "pgsvi: the predictor has no encoder or no design")
	}
	p = &Predictor{enc: s.Encoder, design: s.Design, trials: s.Trials,
		y: s.Encoder.column(s.Outcome)}
	if p.y == nil || p.y.Kind != kindOutcome {
		return nil, sentinel.Wrap(pgsvi.ErrFile, "pgsvi: the predictor has no outcome")
	}
	for _, t := range s.Design.Terms {
		if err := t.check(); err != nil {
			return nil, fmt.Errorf("pgsvi: %w", err)
		}
	}
	if err := s.Design.bind(s.Encoder); err != nil {
		return nil, sentinel.Wrap(pgsvi.ErrFile, "%w", err)
	}
	s.Design.compile()
	for _, t := range s.Design.Terms {
		if err := t.checkFeatures(); err != nil {
			return nil, err
		}
	}
	switch s.Posterior {
	case "GLMPosterior":
		p.post, err = pgsvi.Load[*pgsvi.GLMPosterior](r)
	case "GPPosterior":
		p.post, err = pgsvi.Load[*pgsvi.GPPosterior](r)
	case "SparseGPPosterior":
		p.post, err = pgsvi.Load[*pgsvi.SparseGPPosterior](r)
	default:
		err = sentinel.Wrap(pgsvi.ErrFile,
			"pgsvi: the predictor has a posterior of unknown type %q; use a newer release",
			s.Posterior)
	}
	if err != nil {
		return nil, err
	}
	if n := p.post.Cols(); n != len(s.Design.names) {
		return nil, sentinel.Wrap(pgsvi.ErrFile,
			"pgsvi: the predictor has %d features, but its posterior has %d columns",
			len(s.Design.names), n)
	}
	if n := classesOf(p.post); n != len(p.Classes()) {
		return nil, sentinel.Wrap(pgsvi.ErrFile,
			"pgsvi: the predictor has %d classes, but its posterior has %d",
			len(p.Classes()), n)
	}
	return p, nil
}

// LoadFile reads a Predictor from a file; see LoadPredictor.
func LoadFile(path string) (*Predictor, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("pgsvi: %w", err)
	}
	defer f.Close()
	p, err := LoadPredictor(f)
	if err != nil {
		return nil, named(filepath.Base(path), err)
	}
	return p, nil
}

// atLine adds the line to an error of a row. It removes the row number that package pgsvi reports,
// because rows are predicted one at a time.
func atLine(line int, err error) error {
	if !strings.HasPrefix(err.Error(), "pgsvi: row 0: ") || !errors.Is(err, pgsvi.ErrNotFinite) {
		return fmt.Errorf("pgsvi: line %d, %w", line, err)
	}
	return sentinel.Wrap(pgsvi.ErrNotFinite, "pgsvi: line %d: %s", line,
		strings.TrimPrefix(sentinel.Plain(err), "row 0: "))
}
