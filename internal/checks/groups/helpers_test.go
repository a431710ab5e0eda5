package groups

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"slices"
	"testing"

	. "github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/testkit"
	"gonum.org/v1/gonum/mat"
)

// effectsOf returns the number of effects of a level.
func effectsOf(g Group) int { return max(1, len(g.Effects)) }

// endOf returns the column after the last column of g.
func endOf(g Group) int { return g.First + g.Levels*effectsOf(g) }

// copyGroups returns a deep copy of groups.
func copyGroups(groups []Group) []Group {
	all := slices.Clone(groups)
	for i := range all {
		g := &all[i]
		g.SD = slices.Clone(g.SD)
		if g.Corr != nil {
			c := mat.NewSymDense(g.Corr.SymmetricDim(), nil)
			c.CopySym(g.Corr)
			g.Corr = c
		}
	}
	return all
}

// effectFactor returns the lower triangle L, row by row, with LLᵀ the covariance of the effects. A nil
// corr means independent effects.
func effectFactor(t *testing.T, corr *mat.SymDense, sd []float64) []float64 {
	t.Helper()
	q := len(sd)
	cov := mat.NewSymDense(q, nil)
	for i := range q {
		cov.SetSym(i, i, sd[i]*sd[i])
		for j := range i {
			if corr != nil {
				cov.SetSym(i, j, corr.At(i, j)*sd[i]*sd[j])
			}
		}
	}
	var chol mat.Cholesky
	if !chol.Factorize(cov) {
		t.Fatal("the covariance of the effects has no Cholesky factor")
	}
	var lower mat.TriDense
	chol.LTo(&lower)
	l := make([]float64, q*q)
	for i := range q {
		for j := range i + 1 {
			l[i*q+j] = lower.At(i, j)
		}
	}
	return l
}

// onlyGroups are the options of a search over the covariances of groups alone.
var onlyGroups = &LearnOptions{Fixed: []string{"GLM.PriorSD"}}

// learnBy runs a search and the final fit.
func learnBy(ctx context.Context, l Learner[*GLM, *GLMPosterior]) (*GLM, *GLMPosterior, *Learned,
	error) {
	res, err := (&Solver{}).Run(ctx, l)
	if err != nil {
		return nil, nil, nil, err
	}
	return l.Learned(ctx, nil, res)
}

// contents returns the top level of the JSON that p saves.
func contents(t *testing.T, p *GLMPosterior) map[string]json.RawMessage {
	t.Helper()
	var all map[string]json.RawMessage
	body := testkit.BodyOf(t, testkit.Kind("GLMPosterior"), string(testkit.Saved(t, p)))
	if err := json.Unmarshal([]byte(body), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// components returns the probabilities of the covariances over which p is integrated, or nil.
func components(t *testing.T, p *GLMPosterior) []float64 {
	t.Helper()
	grid, ok := contents(t, p)["grid"]
	if !ok {
		return nil
	}
	var saved struct {
		Prob save.List[float64] `json:"probabilities"`
	}
	if err := json.Unmarshal(grid, &saved); err != nil {
		t.Fatal(err)
	}
	if len(saved.Prob) == 0 {
		t.Fatal("an integral has no components")
	}
	return saved.Prob
}

// columnMeans returns the means of the columns that p saves.
func columnMeans(t *testing.T, p *GLMPosterior) (means []float64) {
	t.Helper()
	var saved save.List[float64]
	if err := json.Unmarshal(contents(t, p)["columnMeans"], &saved); err != nil {
		t.Fatal(err)
	}
	if len(saved) == 0 {
		t.Fatal("a posterior has no means of columns")
	}
	return saved
}

// atBest returns p at its best covariances, without the integral over them: the posterior that its
// file without the integral has.
func atBest(t *testing.T, p *GLMPosterior) *GLMPosterior {
	t.Helper()
	all := contents(t, p)
	if grid, ok := all["grid"]; ok {
		var own struct{ Mean json.RawMessage }
		if err := json.Unmarshal(grid, &own); err != nil {
			t.Fatal(err)
		}
		all["mean"] = own.Mean // the mean of q replaces the mean of the mixture
		delete(all, "grid")
	}
	body, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	file := testkit.FileOf(t, testkit.Kind("GLMPosterior"), string(body))
	q, err := Load[*GLMPosterior](bytes.NewReader([]byte(file)))
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// reloaded returns v after Save, read by load.
func reloaded[T interface{ Save(io.Writer) error }](t *testing.T, v T, load func(io.Reader) (T, error)) T {
	t.Helper()
	var file bytes.Buffer
	if err := v.Save(&file); err != nil {
		t.Fatal(err)
	}
	w, err := load(&file)
	if err != nil {
		t.Fatal(err)
	}
	return w
}
