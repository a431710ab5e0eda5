package data

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/table"
	"gonum.org/v1/gonum/mat"
)

// This file ranks the levels of groups, as league tables of schools and hospitals do. The posterior
// of a rank is wide even if the effects seem to differ, so a rank needs an interval (Goldstein and
// Spiegelhalter 1996, section 3.3). The ranks of draws of all effects account for the correlations
// between levels.

const (
	rankedMost  = 4e6  // levels times draws
	rankDraws   = 4000 // most draws
	leastRanked = 400  // least draws
)

// A ranking holds the ranks of the levels for one effect, level by level.
type ranking struct {
	ranks []float64
	sum   []float64
	order []int
}

// setRanks sets the ranks of the effects of all groups.
func (m *Model) setRanks(all []GroupEffects, post *pgsvi.GLMPosterior) error {
	var terms []*term
	var rank [][]ranking
	levels, classes := 1, 1
	if m.classes() {
		classes = len(m.Labels)
	}
	for _, t := range m.design.Terms {
		if t.Kind == groupTerm {
			terms = append(terms, t)
			rank = append(rank, make([]ranking, classes*t.q))
			levels = max(levels, len(t.Levels))
		}
	}
	draws := min(rankDraws, max(leastRanked, int(rankedMost)/levels))
	rng := rand.New(rand.NewPCG(1, 1))
	w := mat.NewDense(1, post.Dim(), nil)
	effects := make([]float64, levels)
	for range draws {
		if err := post.RandWeights(w, rng); err != nil {
			return err
		}
		for i, t := range terms {
			n, units := len(t.Levels), t.units()
			for j := range rank[i] {
				first := j/t.q*(post.Dim()/classes) + t.at
				for l := range n {
					at := w.RawRowView(0)[first+l*t.q:]
					effects[l] = 0
					for k, u := range units[j%t.q] {
						effects[l] += u * at[k]
					}
				}
				rank[i][j].add(effects[:n])
			}
		}
	}
	for i, t := range terms {
		for j := range classes * t.q {
			rank[i][j].store(&all[i], j, draws)
		}
	}
	return nil
}

// add ranks the effects of one draw. The largest effect has rank 1, and equal effects share the mean
// of their ranks.
func (r *ranking) add(effects []float64) {
	n := len(effects)
	if r.order == nil {
		r.order, r.sum = make([]int, n), make([]float64, n)
		for i := range r.order {
			r.order[i] = i
		}
	}
	slices.SortFunc(r.order, func(a, b int) int {
		switch {
		case effects[a] > effects[b]:
			return -1
		case effects[a] < effects[b]:
			return 1
		}
		return a - b
	})
	from := len(r.ranks)
	r.ranks = slices.Grow(r.ranks, n)[:from+n]
	for i := 0; i < n; {
		j := i + 1
		for j < n && effects[r.order[j]] == effects[r.order[i]] {
			j++
		}
		for _, l := range r.order[i:j] {
			r.ranks[from+l] = float64(i+j+1) / 2
			r.sum[l] += r.ranks[from+l]
		}
		i = j
	}
}

// store stores the mean ranks and their intervals as effect j of e.
func (r *ranking) store(e *GroupEffects, j, draws int) {
	if e.Rank == nil {
		_, q := e.Mean.Dims()
		e.Rank = mat.NewDense(e.Levels, q, nil)
		e.RankLo, e.RankHi = mat.NewDense(e.Levels, q, nil), mat.NewDense(e.Levels, q, nil)
	}
	own := make([]float64, draws)
	tail := draws / 40 // draws beyond an interval on each side
	for l, sum := range r.sum {
		for s := range own {
			own[s] = r.ranks[s*len(r.sum)+l]
		}
		slices.Sort(own)
		e.Rank.Set(l, j, sum/float64(draws))
		e.RankLo.Set(l, j, own[tail])
		e.RankHi.Set(l, j, own[draws-1-tail])
	}
}

// String returns a table of the levels for each effect and class, the largest mean first, with 95% intervals of
// the effects and of their ranks.
func (e GroupEffects) String() string {
	var b strings.Builder
	columns := e.ColumnNames()
	for j, column := range columns {
		head := e.Name
		if len(columns) > 1 {
			head += " " + column
		}
		lines := [][]string{{head, "mean", "sd", "2.5%", "97.5%", "rank", "2.5%", "97.5%"}}
		order := make([]int, e.Levels)
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int {
			if x, y := e.Mean.At(a, j), e.Mean.At(b, j); x > y {
				return -1
			} else if x < y {
				return 1
			}
			return 0
		})
		for _, l := range order {
			mean, sd := e.Mean.At(l, j), e.SD.At(l, j)
			line := []string{e.LevelNames[l]}
			for _, v := range []float64{mean, sd, mean - normal975*sd, mean + normal975*sd} {
				line = append(line, table.Precise(v, sd))
			}
			lines = append(lines, append(line, fmt.Sprintf("%.1f", e.Rank.At(l, j)),
				fmt.Sprintf("%.0f", math.Floor(e.RankLo.At(l, j))),
				fmt.Sprintf("%.0f", math.Ceil(e.RankHi.At(l, j)))))
		}
		table.Align(lines)
		for _, line := range lines {
			b.WriteString(strings.TrimRight(strings.Join(line, "  "), " ") + "\n")
		}
		b.WriteByte('\n')
	}
	b.WriteString("rank 1 has the largest effect\n")
	return b.String()
}
