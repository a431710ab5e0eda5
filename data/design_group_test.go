package data

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi"
)

// A groupAnswer is what lme4 makes of a formula; see testdata/groups/groups.R.
type groupAnswer struct {
	Formula string
	Kept    []int
	Terms   []struct {
		Group           string
		Levels, Effects []string
		Level           []int
		Values          [][]float64
	}
}

// nameInR returns the name that R gives to an effect.
func nameInR(effect string) string {
	return strings.NewReplacer("=", "", ").", ")").Replace(effect)
}

// A groupMatrix holds columns of Z, by group, level and effect in the words of R, and the sets of
// correlated effects.
type groupMatrix struct {
	columns map[[3]string][]float64
	blocks  []string
	levels  map[string][]string
}

func newGroupMatrix() *groupMatrix {
	return &groupMatrix{columns: map[[3]string][]float64{}, levels: map[string][]string{}}
}

// matrix returns the columns that are not always 0.
func (a *groupAnswer) matrix() *groupMatrix {
	z := newGroupMatrix()
	for _, t := range a.Terms {
		var block []string
		for e, effect := range t.Effects {
			used := false
			for i, level := range t.Level {
				v := t.Values[i][e]
				at := [3]string{t.Group, t.Levels[level], effect}
				if z.columns[at] == nil {
					z.columns[at] = make([]float64, len(t.Level))
				}
				z.columns[at][i] = v
				used = used || v != 0
			}
			if used {
				block = append(block, effect)
				continue
			}
			for _, level := range t.Levels {
				delete(z.columns, [3]string{t.Group, level, effect})
			}
		}
		slices.Sort(block) // R counts the first column of an interaction up first
		z.blocks = append(z.blocks, t.Group+" "+fmt.Sprint(block))
		z.levels[t.Group] = t.Levels
	}
	return z
}

// matrix returns the columns of the groups of a model in units of the features. It also returns the
// matrix from features in units of the table, which R has, for the effects of each column.
func groupMatrixOf(t *testing.T, m *Model) (z *groupMatrix,
	units map[[3]string]map[string]float64) {
	z, units = newGroupMatrix(), map[[3]string]map[string]float64{}
	for _, g := range m.design.groups() {
		name, parts := g.name, strings.Split(g.name, "/")
		slices.Reverse(parts)
		if len(parts) > 1 { // R writes a/b as b:a
			name = strings.Join(parts, ":")
		}
		var effects, levels []string
		for _, e := range g.effects {
			effects = append(effects, nameInR(e))
			if g.independent {
				z.blocks = append(z.blocks, name+" "+fmt.Sprint(effects[len(effects)-1:]))
			}
		}
		if !g.independent {
			sorted := slices.Sorted(slices.Values(effects))
			z.blocks = append(z.blocks, name+" "+fmt.Sprint(sorted))
		}
		for l, level := range append(slices.Clone(g.levels), "(new)") {
			if parts := strings.Split(level, "/"); len(parts) > 1 {
				slices.Reverse(parts)
				level = strings.Join(parts, ":")
			}
			if l < len(g.levels) {
				levels = append(levels, level)
			}
			for e, effect := range effects {
				column := make([]float64, len(m.Kept))
				for i := range column {
					column[i] = m.X.At(i, g.first+l*len(effects)+e)
				}
				at := [3]string{name, level, effect}
				if z.columns[at] != nil {
					t.Errorf("%s: columns for %v occur twice", m.Formula, at)
				}
				z.columns[at], units[at] = column, map[string]float64{}
				for r, from := range effects {
					units[at][from] = g.units[r][e]
				}
			}
		}
		z.levels[name] = levels
	}
	return z, units
}

// TestGroupsLme4 compares the features of groups with the matrix Z of lme4, with and without
// scaling, and which effects are correlated.
func TestGroupsLme4(t *testing.T) {
	t.Parallel()
	var answers []groupAnswer
	readAnswers(t, "lme4.json", &answers)
	table := tableOf(t, groupTable(t, "table.csv"))
	columns := []Column{Number("x").Drop(), Category("c").Drop().Reference("hi"),
		Category("f").Reference("no")}
	for _, a := range answers {
		for _, raw := range []bool{true, false} {
			if raw && strings.Contains(a.Formula, "poly") { // R has no powers there
				continue
			}
			own := slices.Clone(columns)
			if raw {
				own = append(own, Raw())
			}
			if strings.Contains(a.Formula, "factor(n)") {
				own = append(own, Category("factor(n)").Reference("2"))
			}
			m, err := table.Model("y ~ "+a.Formula, own...)
			if err != nil {
				t.Errorf("%s: %v", a.Formula, err)
				continue
			}
			compareGroups(t, m, &a, raw)
		}
	}
	if len(answers) < 30 {
		t.Errorf("%d formulas", len(answers))
	}
}

func compareGroups(t *testing.T, m *Model, a *groupAnswer, raw bool) {
	t.Helper()
	if !slices.Equal(m.Kept, a.Kept) {
		t.Errorf("%s: rows %v, want %v", a.Formula, m.Kept, a.Kept)
		return
	}
	want := a.matrix()
	z, units := groupMatrixOf(t, m)
	slices.Sort(z.blocks)
	slices.Sort(want.blocks)
	if !slices.Equal(z.blocks, want.blocks) {
		t.Errorf("%s: effects %q, want %q", a.Formula, z.blocks, want.blocks)
	}
	for name, levels := range want.levels {
		got := z.levels[name]
		if strings.Contains(a.Formula, "/") { // R sorts the levels of b:a by b
			got, levels = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(levels))
		}
		if !slices.Equal(got, levels) {
			t.Errorf("%s: levels %q of %s, want %q", a.Formula, got, name, levels)
		}
	}
	for at, column := range z.columns {
		sum := make([]float64, len(column))
		for effect, unit := range units[at] {
			if raw && unit != float64(b2i(effect == at[2])) {
				t.Errorf("%s: unit %v of %s in %v", a.Formula, unit, effect, at)
			}
			for i, v := range want.columns[[3]string{at[0], at[1], effect}] {
				sum[i] += v * unit
			}
		}
		for i, v := range column {
			if !(math.Abs(v-sum[i]) <= 1e-9) {
				t.Errorf("%s: %v is %v in row %d, want %v", a.Formula, at, v, i, sum[i])
				break
			}
		}
	}
	for at := range maps.Keys(want.columns) {
		if z.columns[at] == nil {
			t.Errorf("%s: no column for %v", a.Formula, at)
		}
	}
}

// visits returns a table of repeated visits of subjects. The arm and the age do not vary within a
// subject.
func visits(rows, subjects int) string {
	var b strings.Builder
	b.WriteString("y,day,dose,arm,age,subject,site,reading,once\n")
	for i := range rows {
		s := i % subjects
		fmt.Fprintf(&b, "%.3f,%d,%s,%s,%d,s%02d,%s,%.3f,r%03d\n",
			math.Sin(float64(7*i))+0.3*float64(s%3)*float64(i/subjects), i/subjects,
			[]string{"low", "mid", "high"}[i*i%7%3], []string{"old", "new"}[s%2], 30+s, s,
			[]string{"north", "south"}[s/3%2], 10+math.Mod(float64(i)*0.618, 7), i)
	}
	return b.String()
}

// TestGroupMistakes checks that a group without a meaning is an error that names the term and the
// column.
func TestGroupMistakes(t *testing.T) {
	t.Parallel()
	table := tableOf(t, visits(120, 12))
	for _, c := range []struct{ formula, want string }{
		{"y ~ (age | subject)", "pgsvi: orders.csv: (1 + age | subject): age does not vary " +
			"within any level of subject, so it has no slope there"},
		{"y ~ (0 + age | subject)", "age does not vary within any level of subject"},
		{"y ~ (day + arm | subject)", "arm does not vary within any level of subject"},
		{"y ~ (0 + arm:age | subject)", "arm:age does not vary within any level of subject"},
		{"y ~ (day + log(age) || subject)", "log(age) does not vary within any level of subject"},
		{"y ~ (poly(age, 2) | site/subject)", "poly(age, 2) does not vary within any level of " +
			"site/subject"},
		{"y ~ (day | once)", "(1 + day | once): column \"once\" has 120 levels in as many rows"},
		{"y ~ (day || once)", "(1 + day || once): column \"once\" has 120 levels in as many rows"},
		{"y ~ (0 + dose | once)", "column \"once\" has 120 levels in as many rows"},
		{"y ~ (0 + dose | subject:day)", "\"subject:day\" has 120 levels in as many rows"},
		{"y ~ (day | subjects)", "no column \"subjects\"; did you mean subject?"},
		{"y ~ (day | y)", "y is the outcome, which cannot be a group"},
		{"y ~ (day | )", "unexpected ); expected a column for the group"},
		{"y ~ (1 | site/site)", "site is nested in itself"},
		{"y ~ (day | subject) + (1 | subject)", "both have an intercept for each subject"},
		{"y ~ (day:dose + dose:arm | site)", "(1 + day:dose + dose:arm | site): dose:arm without " +
			"dose depends on the reference level of arm; add dose to the formula"},
		{"y ~ (log(day) | subject)", "log(day) is -Inf where day is 0"},
		{"y ~ (poly(dose, 2) | subject)", "column \"dose\" is a category instead of a number"},
	} {
		_, err := table.Model(c.formula)
		if !errors.Is(err, pgsvi.ErrParam) || !strings.Contains(err.Error(), c.want) ||
			!strings.HasPrefix(err.Error(), "pgsvi: ") {
			t.Errorf("%s: %v, want %s", c.formula, err, c.want)
		}
	}
	empty := tableOf(t, "y,x,g\n1,2,\n2,3,\n4,1,\n3,3,\n")
	for _, f := range []string{"y ~ (1 | g)", "y ~ (x | g)"} {
		_, err := empty.Model(f)
		if err == nil || !strings.Contains(err.Error(), "column \"g\"") {
			t.Errorf("%s with an empty group: %v", f, err)
		}
	}
	text := visits(120, 12)
	lines := strings.SplitAfter(text, "\n")
	table = tableOf(t, text+lines[len(lines)-2]) // one reading occurs twice
	for text, doubt := range map[string]bool{
		"y ~ (1 | reading)": true, "y ~ (1 | subject)": false, "y ~ (1 | day)": false,
	} {
		m := mustModel(t, table, text)
		got := strings.Contains(m.String(), "all of them numbers; if they measure")
		if got != doubt {
			t.Errorf("%s: doubt %t, want %t\n%v", text, got, doubt, m)
		}
	}
}

// featuresOf returns the nonzero features of a row and the notes.
func featuresOf(t *testing.T, p *Predictor, row map[string]any) (features, notes []string) {
	t.Helper()
	w, err := p.fill(row)
	defer w.release()
	if err == nil {
		err = p.design.row(&w.row, w.cells)
	}
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(w.row.ind) {
		t.Errorf("%v: features %v are not in order", row, w.row.ind)
	}
	for i, j := range w.row.ind {
		features = append(features, fmt.Sprintf("%s %v", p.design.names[j], w.row.val[i]))
	}
	return features, slices.Clone(w.row.notes)
}

// TestGroupRows checks the features of single rows: of known and new levels, of imputed numbers and
// of new categories in a slope. A saved design must have the same features.
func TestGroupRows(t *testing.T) {
	t.Parallel()
	text := strings.Replace(visits(120, 12), ",4,", ",,", 3) // three days are missing
	m := mustModel(t, tableOf(t, text), "y ~ (day + dose || subject) + (0 + day:dose | arm:site)",
		Number("day").Impute(), Category("dose").New().Reference("mid"), Raw())
	if len(m.Names) != 13*2+13*3+5*3 {
		t.Errorf("%d columns: %q", len(m.Names), m.Names)
	}
	var names []string
	for _, g := range m.design.groups() {
		names = append(names, fmt.Sprint(g.text, g.first, len(g.levels), g.effects, g.independent))
	}
	if want := []string{"(1 + day || subject)0 12 [(Intercept) day] true",
		"(0 + dose | subject)26 12 [dose=high dose=low dose=mid] false",
		"(0 + day:dose | arm:site)65 4 [day:dose=high day:dose=low day:dose=mid] false",
	}; !slices.Equal(names, want) {
		t.Errorf("groups %q, want %q", names, want)
	}
	saved, err := json.Marshal(m.design)
	if err != nil {
		t.Fatal(err)
	}
	var read design
	if err := json.Unmarshal(saved, &read); err != nil {
		t.Fatal(err)
	}
	for _, term := range read.Terms {
		if err := term.check(); err != nil {
			t.Fatal(err)
		}
	}
	if err := read.bind(m.enc); err != nil {
		t.Fatal(err)
	}
	read.compile()
	for _, c := range []struct {
		row         map[string]any
		want, notes []string
	}{
		{map[string]any{"day": 8, "dose": "low", "arm": "new", "subject": "s05", "site": "south"},
			[]string{"subject=s05 1", "subject=s05:day 8", "subject=s05:dose=low 1",
				"arm:site=new:south:day:dose=low 8"}, nil},
		{map[string]any{"day": 8, "dose": "mid", "arm": "new", "subject": "s99", "site": "west"},
			[]string{"subject=(new) 1", "subject=(new):day 8", "subject=(new):dose=mid 1",
				"arm:site=(new):day:dose=mid 8"},
			[]string{`subject="s99" is new`, `arm:site="new:west" is new`}},
		{map[string]any{"dose": "huge", "arm": "old", "subject": "s04", "site": "north"},
			[]string{"subject=s04 1", fmt.Sprint("subject=s04:day ", m.enc.column("day").Mean)},
			[]string{`"day" is missing`, `"dose"="huge" is new`}},
	} {
		for _, d := range []*design{m.design, &read} {
			got, notes := featuresOf(t, &Predictor{enc: m.enc, design: d}, c.row)
			if !slices.Equal(got, c.want) {
				t.Errorf("%v: features %q, want %q", c.row, got, c.want)
			}
			if !slices.EqualFunc(notes, c.notes, strings.HasPrefix) {
				t.Errorf("%v: notes %q, want %q", c.row, notes, c.notes)
			}
		}
	}
}

// TestGroupLevels checks the levels of combinations: columns are sorted one after the other, by
// value if they are numbers, and parts that contain the sign between parts are quoted.
func TestGroupLevels(t *testing.T) {
	t.Parallel()
	table := tableOf(t, "y,a,b\n1,p/q,r\n2,p,q/r\n3,p,10\n2,p,9\n1,b:c,9\n3,p,q/r\n5,p/q,r\n")
	for formula, want := range map[string][]string{
		"y ~ (1 | a/b)": {"b:c/9", "p/10", "p/9", `p/"q/r"`, `"p/q"/r`},
		"y ~ (1 | a:b)": {`"b:c":9`, "p:10", "p:9", "p:q/r", "p/q:r"},
		"y ~ (1 | b:a)": {"10:p", `9:"b:c"`, "9:p", "q/r:p", "r:p/q"},
	} {
		groups := mustModel(t, table, formula).design.groups()
		if got := groups[len(groups)-1].levels; !slices.Equal(got, want) {
			t.Errorf("%s: levels %q, want %q", formula, got, want)
		}
	}
	numbers := tableOf(t, "y,a,b\n1,10,2\n2,9,10\n3,9,2\n4,10,9\n2,9,2\n")
	groups := mustModel(t, numbers, "y ~ (1 | a:b)").design.groups()
	if got := fmt.Sprint(groups[0].levels); got != "[9:2 9:10 10:2 10:9]" {
		t.Errorf("levels %s", got)
	}
}

// TestGroupRepeated checks that a repeated effect counts once, and which effects share a group.
func TestGroupRepeated(t *testing.T) {
	t.Parallel()
	table := tableOf(t, visits(120, 12))
	for _, c := range []struct{ terms, want string }{
		{"(1 | site/arm) + (1 | site) + (1 | arm:site)", "(1 | site) (1 | site/arm)"},
		{"(day | site/arm) + (day | site)", "(1 + day | site) (1 + day | site/arm)"},
		{"(1 | site) + (0 + day | site) + (day || site)", "(1 + day || site)"},
		{"(0 + dose:day | site) + (0 + day:dose | site)", "(0 + dose:day | site)"},
		{"(day | site) + (0 + log(age) | site)", "(1 + day | site) (0 + log(age) | site)"},
		{"(0 + log(age) | site) + (1 | arm) + (1 | site)", "(1 + log(age) || site) (1 | arm)"},
		{"(0 + poly(day, 1) || site) + (0 + dose || site) + (1 | site)",
			"(1 + poly(day, 1) || site) (0 + dose | site)"},
		{"(poly(day, 2) || site) + (1 | site:arm)",
			"(1 | site) (0 + poly(day, 2) | site) (1 | site:arm)"},
		{"(1 | site/arm) + (0 + day | arm:site)", "(1 | site) (1 + day || site/arm)"},
		{"(day:age || site) + (0 + dose | site) + (1 | arm)",
			"(1 + day:age || site) (0 + dose | site) (1 | arm)"},
	} {
		m := mustModel(t, table, "y ~ "+c.terms)
		var texts []string
		at := 0
		for _, g := range m.design.groups() {
			texts = append(texts, g.text)
			if g.first != at || g.independent != strings.Contains(g.text, "||") {
				t.Errorf("%s: %+v, want the first column %d", c.terms, g, at)
			}
			at += (len(g.levels) + 1) * len(g.effects)
		}
		if got := strings.Join(texts, " "); got != c.want || at != len(m.Names) {
			t.Errorf("%s: groups %s with %d of %d columns, want %s", c.terms, got, at,
				len(m.Names), c.want)
		}
	}
}

// TestGroupSaved checks that files with damaged groups are errors.
func TestGroupSaved(t *testing.T) {
	t.Parallel()
	m := mustModel(t, tableOf(t, visits(120, 12)), "y ~ day + (day + log(age) || site)")
	post, p := mustFit(t, m, nil)
	for name, damage := range map[string]func(g *term){
		"":                       func(*term) {},
		"no effects":             func(g *term) { g.NoIntercept, g.Slopes, g.Kept = true, nil, nil },
		"kept without slopes":    func(g *term) { g.Slopes = nil },
		"a feature too many":     func(g *term) { g.Kept[1] = 2 },
		"a negative feature":     func(g *term) { g.Kept[0] = -1 },
		"a feature twice":        func(g *term) { g.Kept[1] = g.Kept[0] },
		"no features":            func(g *term) { g.Kept = nil },
		"a group among slopes":   func(g *term) { g.Slopes.Terms[0] = g },
		"an invalid slope":       func(g *term) { g.Slopes.Terms[1].Shifts = nil },
		"a null among slopes":    func(g *term) { g.Slopes.Terms[1] = nil },
		"a level without counts": func(g *term) { g.Counts = g.Counts[1:] },
	} {
		head, err := json.Marshal(saved{p.enc, p.design, p.y.Name, p.trials, "GLMPosterior"})
		if err != nil {
			t.Fatal(err)
		}
		var s saved
		if err := json.Unmarshal(head, &s); err != nil {
			t.Fatal(err)
		}
		damage(s.Design.Terms[1])
		var body bytes.Buffer
		if err := post.Save(&body); err != nil {
			t.Fatal(err)
		}
		if _, err := s.predictor(&body); (name == "") != (err == nil) ||
			err != nil && !errors.Is(err, pgsvi.ErrFile) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// A groupFit holds the REML estimates of lmer; see testdata/groups/groups.R.
type groupFit struct {
	Formula  string
	SD       map[string]float64 // standard deviations and correlations by group and effect
	Mean, SE []float64          // fixed effects
}

// TestGroupSlopes compares standard deviations and coefficients with the REML estimates of lmer,
// which also integrates over the fixed effects.
func TestGroupSlopes(t *testing.T) {
	t.Parallel()
	var fits []groupFit
	readAnswers(t, "fits.json", &fits)
	table := tableOf(t, groupTable(t, "slopes.csv"))
	for _, want := range fits {
		m := mustModel(t, table, want.Formula)
		glm, err := m.GLM(nil, &pgsvi.GLMOptions{PriorSD: 1e3, InterceptSD: 1e4,
			Learn: &pgsvi.LearnOptions{NoPrior: true}})
		if err != nil {
			t.Fatal(err)
		}
		post, _, err := glm.Fit(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		s := m.Summary(post)
		for _, c := range append(s.Groups, s.Residual) {
			name := strings.NewReplacer("(1 + x || g)", "g", "(1 + x | g)", "g", "(1 | g)",
				"g (Intercept)", "(1 | h)", "h (Intercept)", "residual",
				"Residual NA").Replace(c.Name)
			if !(math.Abs(c.SD-want.SD[name]) <= 1e-3*want.SD[name]) {
				t.Errorf("%s: sd of %s is %+v, want %v", want.Formula, name, c, want.SD[name])
			}
			if param := strings.NewReplacer("g (Intercept)", "sd[g]", "g x", "sd[g:x]",
				"h (Intercept)", "sd[h]", "Residual NA", "").Replace(name); c.Param != param {
				t.Errorf("%s: parameter %q of %s, want %q", want.Formula, c.Param, name, param)
			}
			if !(c.Lo < c.SD && c.SD < c.Hi) {
				t.Errorf("%s: interval %v to %v of %s", want.Formula, c.Lo, c.Hi, name)
			}
			delete(want.SD, name)
			for _, r := range c.Corr {
				if !(math.Abs(r-want.SD["g corr"]) <= 5e-3) {
					t.Errorf("%s: correlation %v, want %v", want.Formula, r, want.SD["g corr"])
				}
				delete(want.SD, "g corr")
			}
		}
		if len(want.SD) > 0 {
			t.Errorf("%s: no standard deviations of %v", want.Formula, want.SD)
		}
		for i, c := range s.Coefficients {
			if !(math.Abs(c.Mean-want.Mean[i]) <= 1e-3*want.SE[i]) ||
				!(math.Abs(c.SD-want.SE[i]) <= 2e-3*want.SE[i]) {
				t.Errorf("%s: %s is %v ± %v, want %v ± %v", want.Formula, c.Name, c.Mean, c.SD,
					want.Mean[i], want.SE[i])
			}
		}
	}
}

// groupTable returns a table of testdata/groups.
func groupTable(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/groups/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// readAnswers reads the answers of R in testdata/groups.
func readAnswers(t *testing.T, name string, to any) {
	t.Helper()
	if err := json.Unmarshal([]byte(groupTable(t, name)), to); err != nil {
		t.Fatal(err)
	}
}

// TestSpreadIn compares the spread of the logarithm of a standard deviation with differences.
func TestSpreadIn(t *testing.T) {
	t.Parallel()
	a := []float64{1, -0.5, 2}
	// theta holds the logarithms of the standard deviations and atanh of the correlations.
	theta := []float64{math.Log(2), math.Log(3), math.Log(0.5), 0.4, -0.3, 0.2}
	spread := []float64{0.1, 0.2, 0.3, 0.15, 0.25, 0.05}
	logSD := func(theta []float64) float64 {
		sum, at := 0., 3
		for j := range a {
			sum += math.Pow(a[j]*math.Exp(theta[j]), 2)
			for k := range j {
				sum += 2 * a[j] * a[k] * math.Exp(theta[j]+theta[k]) * math.Tanh(theta[at])
				at++
			}
		}
		return math.Log(sum) / 2
	}
	var g pgsvi.GroupSummary
	var want float64
	for i, s := range spread {
		lo, hi := theta[i]-normal975*s, theta[i]+normal975*s
		if i < len(a) {
			g.Effects = append(g.Effects,
				pgsvi.GroupEffect{SD: math.Exp(theta[i]), Lo: math.Exp(lo), Hi: math.Exp(hi)})
		} else {
			g.Corr = append(g.Corr,
				pgsvi.GroupCorr{Value: math.Tanh(theta[i]), Lo: math.Tanh(lo), Hi: math.Tanh(hi)})
		}
		const h = 1e-5
		above, below := slices.Clone(theta), slices.Clone(theta)
		above[i] += h
		below[i] -= h
		want += math.Pow(s*(logSD(above)-logSD(below))/(2*h), 2)
	}
	if got := spreadIn(a, &g); !(math.Abs(got-math.Sqrt(want)) <= 1e-8) {
		t.Errorf("spread %v, want %v", got, math.Sqrt(want))
	}
	ratio := math.Exp(normal975 * math.Sqrt(want))
	lo, hi := intervalIn(a, &g, 10)
	if !(math.Abs(lo*ratio-10) <= 1e-6) || !(math.Abs(hi/ratio-10) <= 1e-6) {
		t.Errorf("interval %v to %v, want 10 times or divided by %v", lo, hi, ratio)
	}
	if lo, hi := intervalIn(a[:2], &g, 1); !math.IsNaN(lo) || !math.IsNaN(hi) {
		t.Errorf("interval %v to %v of another group", lo, hi)
	}
	// An interval that is cut off at 0 is symmetric in the standard deviation instead of its logarithm.
	g.Effects[1].Lo, g.Effects[1].Hi = 0, g.Effects[1].SD*(1+normal975*spread[1])
	if got := spreadIn(a, &g); !(math.Abs(got-math.Sqrt(want)) <= 1e-8) {
		t.Errorf("spread %v with an interval that is cut off at 0, want %v", got, math.Sqrt(want))
	}
	g.Corr[0].Lo, g.Corr[0].Hi = -1, 1
	if got := spreadIn(a, &g); !(got > math.Sqrt(want) && got < 1) {
		t.Errorf("spread %v with an unknown correlation, above %v", got, math.Sqrt(want))
	}
	g.Corr[0].Value = math.NaN()
	if lo, hi := intervalIn([]float64{0, -2, 0}, &g, 6); lo != 0 || hi != 2*g.Effects[1].Hi {
		t.Errorf("interval %v to %v of one effect with %+v", lo, hi, g.Effects[1])
	}
}

// TestGroupAlone checks that levels of one row each are an error if they are measurements or cannot be
// told from the noise, and no error otherwise.
func TestGroupAlone(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("y,n,w,id,time\n")
	for i := range 40 {
		fmt.Fprintf(&b, "%.3f,%d,%d,%d,%.2f\n", math.Sin(float64(3*i)), i%5, 1+i%3, i, float64(i)*1.37)
	}
	table := tableOf(t, b.String())
	if _, err := table.Model("y ~ w + (1 | time)"); !errors.Is(err, pgsvi.ErrParam) ||
		!strings.Contains(err.Error(), `column "time" has a different number in each of 40 rows`) {
		t.Errorf("measurements: %v", err)
	}
	for _, c := range []struct {
		formula string
		lik     pgsvi.Likelihood
		opt     *pgsvi.GLMOptions
		want    string
	}{
		{"y ~ w + (1 | id)", nil, nil, `column "id" has 40 levels in as many rows`},
		{"y ~ w + (1 | w:id)", nil, nil, `column "w:id" has 40 levels in as many rows`},
		{"n ~ w + (1 | id)", pgsvi.Poisson{}, nil, ""},
		{"y ~ weight(w) + (1 | id)", nil, nil, ""},
		{"y ~ w + (1 | id)", pgsvi.GaussianNoise{Var: 0.1}, &pgsvi.GLMOptions{Learn: &pgsvi.LearnOptions{
			Fixed: []string{"GaussianNoise.Var"}}}, ""},
	} {
		m := mustModel(t, table, c.formula)
		glm, err := m.GLM(c.lik, c.opt)
		if c.want != "" {
			if !errors.Is(err, pgsvi.ErrParam) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: error %v", c.formula, err)
			}
			continue
		}
		if err == nil {
			_, _, err = glm.Fit(context.Background(), nil)
		}
		if err != nil {
			t.Errorf("%s: %v", c.formula, err)
		}
	}
}

// TestCorrIntervalIn checks the interval of the correlation of combinations of effects: of the effects
// themselves, with a shift, and with an unknown correlation.
func TestCorrIntervalIn(t *testing.T) {
	interval := func(v, spread float64) (lo, hi float64) {
		return math.Tanh(math.Atanh(v) - normal975*spread), math.Tanh(math.Atanh(v) + normal975*spread)
	}
	g := pgsvi.GroupSummary{Corr: []pgsvi.GroupCorr{{Value: -0.9}}}
	spread := []float64{0.1, 0.2, 0.3}
	g.Corr[0].Lo, g.Corr[0].Hi = interval(-0.9, spread[2])
	for j, sd := range []float64{2, 0.5} {
		g.Effects = append(g.Effects, pgsvi.GroupEffect{SD: sd, Lo: sd * math.Exp(-normal975*spread[j]),
			Hi: sd * math.Exp(normal975*spread[j])})
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if !(math.Abs(got-want) < 1e-5) {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	lo, hi := corrIntervalIn([]float64{1, 0}, []float64{0, 3}, &g, -0.9)
	near("the lower end", lo, g.Corr[0].Lo)
	near("the upper end", hi, g.Corr[0].Hi)
	// The first effect is shifted: u_0 + 4u_1 has the covariance −0.9 + 4·0.25 with u_1.
	at := func(s0, s1, z float64) float64 {
		c := math.Tanh(z) * s0 * s1
		return math.Atanh((c + 4*s1*s1) / (s1 * math.Sqrt(s0*s0+8*c+16*s1*s1)))
	}
	base, x := at(2, 0.5, math.Atanh(-0.9)), [3]float64{0, 0, math.Atanh(-0.9)}
	squares := 0.0
	for k := range x {
		const h = 1e-5
		y := x
		y[k] += h
		d := (at(2*math.Exp(y[0]), 0.5*math.Exp(y[1]), y[2]) - base) / h * spread[k]
		squares += d * d
	}
	want := math.Tanh(base - normal975*math.Sqrt(squares))
	lo, hi = corrIntervalIn([]float64{1, 4}, []float64{0, 1}, &g, math.Tanh(base))
	if near("the lower end with a shift", lo, want); !(lo < hi && hi < 1) {
		t.Errorf("interval %v to %v", lo, hi)
	}
	g.Corr[0].Lo, g.Corr[0].Hi = -1, 1
	if lo, hi = corrIntervalIn([]float64{1, 0}, []float64{0, 3}, &g, -0.9); lo != -1 || hi != 1 {
		t.Errorf("interval %v to %v of an unknown correlation", lo, hi)
	}
	if lo, _ = corrIntervalIn([]float64{1}, []float64{0}, &g, -0.9); !math.IsNaN(lo) {
		t.Errorf("interval from %v of another group", lo)
	}
}

// TestGroupShare compares the share of groups in the variance with lme4, and checks that all models
// with slopes have it.
func TestGroupShare(t *testing.T) {
	sleep, err := os.ReadFile("../examples/groups/sleep.csv")
	if err != nil {
		t.Fatal(err)
	}
	summary := func(text string) *Summary {
		m, post := fitGroups(t, string(sleep), text, false)
		return m.Summary(post)
	}
	// lmer(reaction ~ days + (1 | subject)): 1378.2/(1378.2 + 960.5) by REML
	s := summary("reaction ~ days + (1 | subject)")
	if got := s.Groups[0].Share; !(math.Abs(got-0.5893) <= 0.01) {
		t.Errorf("share %v, lme4 has 0.5893", got)
	}
	if !strings.Contains(s.String(), "share") {
		t.Errorf("no share in\n%v", s)
	}
	for _, bar := range []string{"|", "||"} {
		g := summary("reaction ~ days + (1 + days " + bar + " subject)").Groups
		if !(g[0].Share > 0.65 && g[0].Share < 0.75) || g[1].Share != 0 {
			t.Errorf("%s: shares %v and %v", bar, g[0].Share, g[1].Share)
		}
	}
}

// TestGroupSaturated checks that effects as numerous as the rows of a level are an error with Gaussian
// noise, where lme4 reports that there are as many effects as rows, and no error if rows repeat, levels
// have different slopes, or the effects are independent.
func TestGroupSaturated(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("y,n,visit,arm,x,id,pair,w\n")
	for i := range 80 {
		fmt.Fprintf(&b, "%.3f,%d,%d,%s,%.2f,p%02d,q%02d,%d\n", 3+math.Sin(float64(3*i*i)), i%5, 1+i%2,
			[]string{"new", "old"}[(i+i/8)%2], math.Cos(float64(i*i)), i/2, i/4, 1+i%3)
	}
	table := tableOf(t, b.String())
	const want = "two rows with the same effects, so these cannot be told from the residuals; " +
		"use fewer effects, such as (1 | id)"
	for _, c := range []struct {
		formula string
		lik     pgsvi.Likelihood
		want    string
	}{
		{"y ~ visit + (1 + visit | id)", nil, want},
		{"y ~ arm + (0 + arm | id)", nil, want},
		{"y ~ arm + (arm | id)", nil, want},
		{"y ~ factor(visit) + (factor(visit) | id)", nil, want},
		{"log(y) ~ visit + (1 + visit | id)", nil, want},
		{"log(y) ~ visit + (1 | pair:id:visit)", nil, `column "pair:id:visit" has 80 levels in as many rows`},
		{"y ~ visit + (1 + visit || id)", nil, ""},
		{"y ~ visit + (1 + visit | pair)", nil, ""},
		{"y ~ x + (1 + x | id)", nil, ""}, // the variance of a row depends on x
		{"y ~ visit + weight(w) + (1 + visit | id)", nil, ""},
		{"y ~ visit + precision(w) + (1 + visit | id)", nil, ""},
		{"y ~ visit + (1 + visit | id)", pgsvi.StudentT{DF: 4}, ""},
		{"n ~ visit + (1 + visit | id)", pgsvi.Poisson{}, ""},
	} {
		_, err := mustModel(t, table, c.formula).GLM(c.lik, nil)
		if c.want == "" && err != nil || c.want != "" &&
			(!errors.Is(err, pgsvi.ErrParam) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v", c.formula, err)
		}
	}
}
