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

// A Posterior is what a Predictor predicts by: a *pgsvi.GLMPosterior, *pgsvi.GPPosterior or
// *pgsvi.SparseGPPosterior.
type Posterior interface {
	At(x mat.Matrix) *pgsvi.Prediction
	Cols() int
	Save(w io.Writer) error
}

// A Predictor predicts the outcome of rows as they come: maps, JSON, structs, tables. It holds the
// encoder of the columns, the formula and the posterior, and is saved with all of them in one file.
// It does not change and may be used concurrently.
type Predictor struct {
	enc    *Encoder
	design *design
	y      *column
	trials bool
	post   Posterior
}

// Predictor returns the Predictor of a posterior of the model. The error wraps ErrShape if the
// posterior has another number of columns, and ErrParam if it is of a type that is not one of those
// of Posterior.
func (m *Model) Predictor(post Posterior) (*Predictor, error) {
	if _, err := posteriorName(post); err != nil {
		return nil, err
	}
	if n := post.Cols(); n != len(m.Names) {
		return nil, sentinel.Wrap(pgsvi.ErrShape,
			"pgsvi: a posterior of %d columns, and the model has %d", n,
			len(m.Names))
	}
	p := &Predictor{enc: m.enc, design: m.design, y: m.y, trials: m.Formula.Trials != "",
		post: post}
	if n := classesOf(post); n != len(p.Classes()) {
		return nil, sentinel.Wrap(pgsvi.ErrShape,
			"pgsvi: a posterior of %d classes, and the outcome has %d", n,
			len(p.Classes()))
	}
	return p, nil
}

// posteriorName returns the name of the type of a posterior.
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
		"pgsvi: a posterior that is %T, want a *GLMPosterior, *GPPosterior or "+
			"*SparseGPPosterior", post)
}

// Posterior returns the posterior that p predicts by.
func (p *Predictor) Posterior() Posterior { return p.post }

// Formula returns the formula, with . and a*b written out.
func (p *Predictor) Formula() string { return p.design.Formula }

// Outcome returns the name of the outcome and the label whose probability is predicted, which is ""
// for numbers and for classes.
func (p *Predictor) Outcome() (name, label string) {
	if p.labels() {
		label = p.label()
	}
	return p.y.Name, label
}

// String says what each column was taken for, and the formula.
func (p *Predictor) String() string { return p.enc.String() + "\n" + p.design.Formula + "\n" }

// Classes returns the classes or the ordered levels of the outcome, in the order of Answer.Probs. It
// is a new slice, and nil if the outcome is one of two labels or a number.
func (p *Predictor) Classes() []string {
	if !p.y.classes() && !p.y.ordered() {
		return nil
	}
	return slices.Clone(p.y.Levels)
}

// answerLevel is the probability of the interval of Predict.
const answerLevel = 0.9

// Predict predicts a row: a map[string]any or map[string]string by names of columns, a JSON object
// as []byte or json.RawMessage, or a struct, or pointer to one, whose fields have tags such as
// `col:"age"`; see Encoder.Row for how values are read, and for the errors.
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

// PredictAll predicts each element of rows, a slice of rows as Predict takes them or a JSON array of
// objects as []byte. It has an answer or an error for each, in their order: answers[i] is nil if
// errs[i] is not. The last error wraps ErrShape if rows is neither, and then there are no answers.
func (p *Predictor) PredictAll(rows any) (answers []*Answer, errs []error, err error) {
	var all []any
	switch rows := rows.(type) {
	case []byte:
		var objects []json.RawMessage
		if err := json.Unmarshal(rows, &objects); err != nil {
			return nil, nil, sentinel.Wrap(pgsvi.ErrShape,
				"pgsvi: the rows are no JSON array of objects: %w", err)
		}
		for _, o := range objects {
			all = append(all, o)
		}
	default:
		v := reflect.ValueOf(rows)
		if _, raw := rows.(json.RawMessage); v.Kind() != reflect.Slice || raw {
			return nil, nil, sentinel.Wrap(pgsvi.ErrShape, "pgsvi: the rows are a %T, want a "+
				"slice of rows or a JSON array of objects as []byte", rows)
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

// Table predicts each row of a table: the sequence has an answer or an error for each, in their
// order, with intervals of probability level, in (0, 1). Columns are found by their names. A row
// with an error does not end the sequence, nor does a line with too few fields of a table that was
// read with Format.Ragged. A failure of reading, a column that is not there or a level out of range
// does, by a last element whose Answer is nil; that of a row is not nil, and has its place. Table
// predicts up to 512 rows ahead, on all processors, with the same result for any number of them.
func (p *Predictor) Table(t *Table, level float64) iter.Seq2[*Answer, error] {
	return func(yield func(*Answer, error) bool) {
		if !(level > 0 && level < 1) {
			yield(nil, sentinel.Wrap(pgsvi.ErrParam,
				"pgsvi: an interval of probability %v, want one in (0, 1)",
				level))
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
// pgsvi.GLMPosterior.Explain. A smooth curve, a category with all its levels, or a group is one
// term. The row is as for Predict, and so are the errors. The error wraps ErrParam as well if the
// posterior is not that of a GLM.
func (p *Predictor) Explain(row any) (*pgsvi.Effects, error) {
	glm, ok := p.post.(*pgsvi.GLMPosterior)
	if !ok {
		return nil, sentinel.Wrap(pgsvi.ErrParam,
			"pgsvi: %T has no weights to explain a prediction by", p.post)
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

// columns returns the term of each feature.
func (d *design) columns() []string {
	columns := make([]string, len(d.names))
	for _, t := range d.Terms {
		for j := range t.n {
			columns[t.at+j] = t.Text
		}
	}
	return columns
}

// scratch is what predicting a row needs, to be used again.
type scratch struct {
	cells       []cell
	notes       []string // the fields that fill left out
	row         entries
	x           *pgsvi.Sparse
	one, lo, hi [1]float64
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// release gives the scratch back, without the values of the row.
func (w *scratch) release() {
	clear(w.cells)
	scratches.Put(w)
}

// fill reads a row into a scratch, which is to be released.
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

// answer predicts a row.
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

// level answers with the most probable of ordered levels.
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

// compare scores an answer by the outcome of the row. One that cannot be read is noted.
func (p *Predictor) compare(a *Answer, at *pgsvi.Prediction, cells []cell) {
	if a.unread = p.score(a, at, cells); a.unread != nil {
		a.Outcome, a.LogProb = math.NaN(), math.NaN()
		a.Notes = append(a.Notes, "the outcome is not used: "+sentinel.Plain(a.unread))
	}
}

// tooLarge is the error of a row that has no latent value.
func (p *Predictor) tooLarge(w *scratch) error {
	at, most := -1, 0.0
	for k, v := range w.row.val {
		if math.Abs(v) > most {
			at, most = w.row.ind[k], math.Abs(v)
		}
	}
	if at < 0 {
		return sentinel.Wrap(pgsvi.ErrNotFinite, "no prediction, as the posterior is not finite")
	}
	return sentinel.Wrap(pgsvi.ErrNotFinite,
		"a value is too large to predict by: %s is %.3g as the model sees it",
		csvQuote(p.design.names[at]), most)
}

// likelihoodOf returns the likelihood that a posterior predicts by.
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

// class answers with the likeliest class of one row.
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

// labels says that the outcome is one of two.
func (p *Predictor) labels() bool { return p.trials || p.y.Positive != "" }

// label returns the one whose probability is predicted.
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
			return nil // whether the time is censored is not known
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

// offset returns what a row adds to the linear predictor.
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

// Score compares the predictions of the rows of a table with the outcomes there, and for a model of
// sqrt(y) with their square roots. Rows with an error or without an outcome are left out. The error wraps ErrEmpty if no row is left; otherwise it is
// one of those that end Predictor.Table.
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

// scoring collects answers and their outcomes.
type scoring struct {
	counts                    bool // of trials
	root                      bool // the scores are of the square root of the outcome
	lik                       pgsvi.Likelihood
	y, mean, variance, trials []float64
}

// add takes an answer, unless its row has no outcome.
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
	s.y = append(s.y, outcome)
	if k := len(a.latent.scores) / 2; k > 0 {
		s.mean = append(s.mean, a.latent.scores[:k]...)
		s.variance = append(s.variance, a.latent.scores[k:]...)
		return
	}
	s.mean, s.variance = append(s.mean, a.latent.mean), append(s.variance, a.latent.variance)
}

// scores compares them.
func (s *scoring) scores() (*pgsvi.Scores, error) {
	if len(s.y) == 0 {
		return nil, sentinel.Wrap(pgsvi.ErrEmpty, "pgsvi: no row has an outcome and a prediction")
	}
	at := pgsvi.NewPrediction(s.lik, s.mean, s.variance)
	if s.trials != nil {
		at = at.Trials(s.trials)
	}
	return at.Scores(s.y)
}

// Update returns a Predictor that has learned further rows (online learning). It does not change
// p. Levels that were new are learned as one. What the encoder knows of the columns stays. Only a
// GLM can be updated. The error wraps ErrParam for another posterior; otherwise it is that of
// Encoder.Data or of GLMPosterior.Update.
func (p *Predictor) Update(ctx context.Context, t *Table) (*Predictor, error) {
	glm, ok := p.post.(*pgsvi.GLMPosterior)
	if !ok {
		return nil, sentinel.Wrap(pgsvi.ErrParam,
			"pgsvi: %T cannot be updated; fit it to all rows", p.post)
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
				"pgsvi: there is no column %s, the outcome to learn from",
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
	return func(yield func(pgsvi.Row, error) bool) {
		i := 0
		for r, err := range pgsvi.Rows(m.X, m.Y) {
			if m.Offset != nil {
				r.Offset = m.Offset[i]
			}
			if m.Weights != nil {
				if r.Weight = m.Weights[i]; r.Weight == 0 {
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

// saved is what a file of a Predictor has before the posterior.
type saved struct {
	Encoder   *Encoder `json:"encoder"`
	Design    *design  `json:"design"`
	Outcome   string   `json:"outcome"`
	Trials    bool     `json:"trials,omitempty"`
	Posterior string   `json:"posterior"`
}

// predictorFile is the kind of file that a Predictor is saved in: the number of bytes of what is
// saved, that as JSON, and the file of the posterior.
var predictorFile = save.Kind{Name: "Predictor", Version: 1}

// Save writes the predictor: encoder, formula and posterior, with a checksum. LoadPredictor reads
// it back to the same bits. The file does not contain the data, and Update of a loaded predictor is
// one pass over the new rows. Make the predictor of GLMPosterior.WithRows to store up to 4096 rows,
// and to fit all of them at an Update. The errors are those of w.
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

// WriteFile makes a file of what write writes, such as a posterior by its Save. A file of that name
// is replaced when the new content is whole, and keeps its permissions. If the name is a symbolic
// link, its target is replaced. A device or a pipe is written to. WriteFile returns the error of
// write as it is; an error of the file names path.
func WriteFile(path string, write func(io.Writer) error) error {
	err := save.WriteFile(path, write)
	if own := (*fs.PathError)(nil); err != nil && errors.As(err, &own) {
		return fmt.Errorf("pgsvi: %w", sentinel.Bare(err))
	}
	return err
}

// LoadPredictor reads what Predictor.Save has written, which must be all of r. The error wraps
// ErrFile if r is no such file, is damaged or of a newer release. A failure of r is wrapped as it
// is.
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
		return nil, sentinel.Wrap(pgsvi.ErrFile, "pgsvi: a predictor without its parts")
	}
	n := 8 + int(binary.LittleEndian.Uint64(body))
	var s saved
	if err := json.Unmarshal(body[8:n], &s); err != nil {
		return nil, sentinel.Wrap(pgsvi.ErrFile, "pgsvi: reading a predictor: %w", err)
	}
	return s.predictor(bytes.NewReader(body[n:]))
}

// predictor makes a Predictor of what was saved and the posterior.
func (s *saved) predictor(r io.Reader) (p *Predictor, err error) {
	if s.Encoder == nil || s.Design == nil {
		return nil, sentinel.Wrap(pgsvi.ErrFile, "pgsvi: a predictor without encoder or design")
	}
	p = &Predictor{enc: s.Encoder, design: s.Design, trials: s.Trials,
		y: s.Encoder.column(s.Outcome)}
	if p.y == nil || p.y.Kind != kindOutcome {
		return nil, sentinel.Wrap(pgsvi.ErrFile, "pgsvi: a predictor without an outcome")
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
			"pgsvi: a predictor by a %q, which this release does not know",
			s.Posterior)
	}
	if err != nil {
		return nil, err
	}
	if n := p.post.Cols(); n != len(s.Design.names) {
		return nil, sentinel.Wrap(pgsvi.ErrFile,
			"pgsvi: a predictor of %d features and %d columns",
			len(s.Design.names), n)
	}
	if n := classesOf(p.post); n != len(p.Classes()) {
		return nil, sentinel.Wrap(pgsvi.ErrFile,
			"pgsvi: a predictor of %d classes by a posterior of %d",
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

// atLine adds the line to an error of a row. It removes the number of the row from an error of
// package pgsvi, which predicts rows one at a time.
func atLine(line int, err error) error {
	if !strings.HasPrefix(err.Error(), "pgsvi: row 0: ") || !errors.Is(err, pgsvi.ErrNotFinite) {
		return fmt.Errorf("pgsvi: line %d, %w", line, err)
	}
	return sentinel.Wrap(pgsvi.ErrNotFinite, "pgsvi: line %d: %s", line,
		strings.TrimPrefix(sentinel.Plain(err), "row 0: "))
}
