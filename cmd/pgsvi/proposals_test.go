package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/formula"
	"github.com/pgsvi/pgsvi/internal/arith"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// limits holds the errors with which check or fit may refuse a table. Each has a remedy.
var limits = []*regexp.Regexp{
	regexp.MustCompile(`column "[^"]+"…? is a (category|date) instead of a number`),
	regexp.MustCompile(`is (undefined|[-+]Inf) where .*; leave out the row, or change the term`),
	regexp.MustCompile(`different values or functions, but a smooth curve needs`),
	regexp.MustCompile(`different values?, but a polynomial of degree 2 needs 3`),
	regexp.MustCompile(`the event is "\w+"; use 1 or yes if it was observed, or 0`),
	regexp.MustCompile(`has no column, and the model has .*; add a column`),
	regexp.MustCompile(`; remove it from the formula$`),
}

// goNames matches advice that only a Go program can follow.
var goNames = regexp.MustCompile(`\b(GLMOptions|GPOptions|LearnOptions|Solver|Format)\b|` +
	`pgsvi\.[A-Z]|\bPriorSD\b|[a-z]Covariance\b|\b(Poisson|GaussianNoise|Softmax|Ordinal)\{\}`)

var (
	notNumber  = regexp.MustCompile(`\bNaN\b`)
	skipRemedy = regexp.MustCompile(`-format (skip(?:-last)?=\d+)`)
	noMoments  = "are not finite at latent mean" // StudentT with a few degrees of freedom
	wholeLimit = "are whole numbers"
	asksColumn = regexp.MustCompile(`^\t// ("(?:[^"\\]|\\.|"")*")…?: (.*)$`)
)

// An acceptance takes one table from check to predict.
type acceptance struct {
	*testing.T
	*messyTable
	dir, path, said, model string            // files; the third is that of -columns
	format                 []string          // words of -format
	asked                  map[string]string // problems by column
}

// fail reports a fault with everything needed to reproduce it.
func (a *acceptance) fail(format string, args ...any) {
	a.Helper()
	text := a.text
	if len(text) > 1500 {
		text = text[:1500] + "…"
	}
	a.Fatalf("%s\nformula: %s\nlikelihood: %q\n%s", fmt.Sprintf(format, args...), a.formula,
		a.likelihood, text)
}

// do runs a verb and checks its output.
func (a *acceptance) do(verb string, args ...string) (status int, out, errs string) {
	a.Helper()
	func() {
		defer func() {
			if p := recover(); p != nil {
				a.fail("%s: panic: %v\n%s", verb, p, debug.Stack())
			}
		}()
		status, out, errs = run(a.T, append([]string{verb}, args...)...)
	}()
	if notNumber.MatchString(out + errs) {
		a.fail("%s prints NaN:\n%s%s", verb, out, errs)
	}
	if m := goNames.FindString(errs); m != "" {
		a.fail("%s: advice for Go, %s:\n%s", verb, m, errs)
	}
	return status, out, errs
}

// flags returns the arguments of check and fit.
func (a *acceptance) flags() []string {
	args := []string{"-formula", a.formula, "-columns", a.said}
	if a.likelihood != "" {
		args = append(args, "-likelihood", a.likelihood)
	}
	if len(a.format) > 0 {
		args = append(args, "-format", strings.Join(a.format, " "))
	}
	return args
}

// limited reports whether an error is one of limits.
func limited(text string) bool {
	return slices.ContainsFunc(limits, func(r *regexp.Regexp) bool { return r.MatchString(text) })
}

// decisions reads the proposals that check prints. Columns without a choice go to hopeless.
func decisions(out string) (asked map[string]string, hopeless []string) {
	asked = map[string]string{}
	last := ""
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		if m := asksColumn.FindStringSubmatch(line); m != nil {
			if last != "" {
				hopeless = append(hopeless, last)
			}
			name, err := strconv.Unquote(m[1])
			if err != nil {
				name = strings.ReplaceAll(strings.Trim(m[1], `"`), `""`, `"`)
			}
			asked[name] += m[2]
			last = m[0]
		} else if strings.HasPrefix(line, "\tdata.") {
			last = ""
		}
	}
	if last != "" {
		hopeless = append(hopeless, last)
	}
	return asked, hopeless
}

// run takes the table from check to predict and returns how that ended.
func (a *acceptance) run() (end string) {
	a.asked = map[string]string{}
	proposed := false
	for {
		status, out, errs := a.do("check", append(a.flags(), a.path)...)
		if status == 0 {
			break
		}
		if m := skipRemedy.FindStringSubmatch(errs); status == 1 && m != nil {
			word := m[1]
			if !a.planted(word) {
				word = "header=yes" // a name, and a column without one
			}
			if len(a.format) == 3 || slices.Contains(a.format, word) ||
				!strings.Contains(errs, word) {
				a.fail("check asks for %s again:\n%s", word, errs)
			}
			a.format = append(a.format, word)
			continue
		}
		asked, hopeless := decisions(out)
		switch {
		case status == 1 && limited(errs):
			a.refusedByFit()
			return "limit of check"
		case status != 2 || errs != "":
			a.fail("check: %d\n%s%s", status, out, errs)
		case len(hopeless) > 0:
			if text := strings.Join(hopeless, "\n"); !limited(text) {
				a.fail("check has no proposal:\n%s", out)
			}
			a.refusedByFit()
			return "no proposal"
		case proposed:
			a.fail("check does not accept its own proposals:\n%s", out)
		}
		proposed = true
		for name, problem := range asked {
			a.asked[name] += problem
		}
	}
	if !proposed {
		a.said = write(a.T, a.dir, "none.txt", "")
	}
	status, out, errs := a.do("fit", append(a.flags(), "-o", a.model, a.path)...)
	if status == 1 && strings.Contains(errs, wholeLimit) && a.whole != "" {
		a.likelihood, a.whole = a.whole, ""
		a.said = filepath.Join(a.dir, "again.txt")
		return a.run()
	}
	switch {
	case status == 1 && limited(errs):
		return "limit of fit"
	case status != 0:
		a.fail("fit: %d\n%s%s", status, out, errs)
	}
	a.compare(out)
	a.predict(out)
	return "fit"
}

// planted reports whether the generator wrote the line that a word of -format ignores.
func (a *acceptance) planted(word string) bool {
	return word == "skip=1" && a.title || word == "skip-last=1" && a.total
}

// refusedByFit checks that fit refuses a table that check refuses.
func (a *acceptance) refusedByFit() {
	args := a.flags()
	if at := slices.Index(args, "-columns"); a.said != "" {
		args = slices.Delete(args, at, at+2)
	}
	if status, out, errs := a.do("fit", append(args, "-o", a.model, a.path)...); status == 0 {
		a.fail("fit accepts what check refuses:\n%s%s", out, errs)
	}
}

var (
	keptRows   = regexp.MustCompile(`(?m)^.*: (\d+) rows?, (\d+) kept`)
	asNumber   = regexp.MustCompile(`^(?:number, |outcome, )(\S+) ± `)
	asCategory = regexp.MustCompile(`^category of (\d+) levels?`)
	asDate     = regexp.MustCompile(`^date, written as (.*?): `)
)

// taken returns how the columns were read, by name.
func taken(out string) map[string][]string {
	all, at, end := map[string][]string{}, -1, -1
	for line := range strings.Lines(out) {
		runes := []rune(strings.TrimSuffix(line, "\n"))
		switch {
		case strings.HasPrefix(line, "column ") && at < 0:
			at = len([]rune(line[:strings.Index(line, "read as")]))
			end = len([]rune(line[:strings.Index(line, "why")]))
		case at >= 0 && len(runes) == 0:
			return all
		case at >= 0:
			name := strings.TrimSpace(string(runes[:min(at, len(runes))]))
			all[name] = append(all[name], strings.TrimSpace(string(runes[min(at,
				len(runes)):min(end, len(runes))])))
		}
	}
	return all
}

// compare checks that fit read what the generator meant, or that check required a decision.
func (a *acceptance) compare(out string) {
	kept := keptRows.FindStringSubmatch(out)
	if kept == nil {
		a.fail("fit does not print its rows:\n%s", out)
	}
	if kept[1] != strconv.Itoa(a.n) {
		a.fail("fit reads %s rows of %d:\n%s", kept[1], a.n, out)
	}
	all := kept[1] == kept[2] && !a.weighted
	read := taken(out)
	for _, c := range a.columns {
		uses := read[c.name]
		if len([]rune(c.name)) > 40 {
			continue
		}
		used := slices.ContainsFunc(uses, func(u string) bool { return u != "not used" })
		problem, asked := a.asked[c.name]
		if used && c.asks != "" && !strings.Contains(problem, c.asks) && !a.allowed(c) {
			a.fail("no question about %q (%s), which is read as %q:\n%s", c.name, c.asks, uses, out)
		}
		for _, use := range uses {
			if m := asNumber.FindStringSubmatch(use); m != nil && c.values != nil {
				mean, err := strconv.ParseFloat(m[1], 64)
				if err != nil {
					a.fail("%q is read as %q", c.name, use)
				}
				if !c.isMean(mean, all) && !(asked && c.open) {
					a.fail("%q is read as %q, and its mean is %v:\n%s", c.name, use, c.mean(), out)
				}
			}
			if m := asCategory.FindStringSubmatch(use); m != nil && c.levels > 0 && all &&
				m[1] != strconv.Itoa(c.levels) {
				a.fail("%q is read as %q, and has %d levels:\n%s", c.name, use, c.levels, out)
			}
			if m := asCategory.FindStringSubmatch(use); m != nil && c.values != nil && !c.open &&
				!asked && !c.count {
				a.fail("%q has numbers, and is read as %q without a question:\n%s", c.name, use,
					out)
			}
			if m := asDate.FindStringSubmatch(use); m != nil && c.order != "" && !asked {
				day, month := strings.Index(m[1], "2/"), strings.Index(m[1], "1/")
				if (day >= 0 && day < month) != (c.order == "day") {
					a.fail("%q is read as %q, and its %s comes first:\n%s", c.name, use, c.order,
						out)
				}
			}
		}
	}
}

// allowed reports whether a column needs no decision because the formula uses it as a number: it
// names whole numbers that all differ, or has a curve of codes.
func (a *acceptance) allowed(c *messyColumn) bool {
	f := testkit.Must(formula.Parse(a.formula))
	return c.open && slices.ContainsFunc(f.Terms, func(term formula.Term) bool {
		curve := false
		columns := term.Columns()
		switch term.(type) {
		case formula.Smooth, formula.Poly:
			curve = true
		}
		for _, name := range columns {
			if e, ok := arith.Named(name); ok {
				columns, curve = append(columns, e.Columns...), true
			}
		}
		return slices.Contains(columns, c.name) &&
			(c.asks == "an identifier" || c.asks == "codes" && curve)
	})
}

// mean returns the mean of the numbers.
func (c *messyColumn) mean() float64 {
	sum, n := 0., 0
	for _, v := range c.values {
		if !math.IsNaN(v) {
			sum += v
			n++
		}
	}
	return sum / float64(n)
}

// isMean reports whether a printed mean is the mean of the numbers. If some rows are left out, the
// mean must lie between the smallest and the largest number.
func (c *messyColumn) isMean(mean float64, all bool) bool {
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, v := range c.values {
		if !math.IsNaN(v) {
			lo, hi = min(lo, v), max(hi, v)
		}
	}
	if !all {
		return mean >= lo-0.01*math.Abs(lo) && mean <= hi+0.01*math.Abs(hi)
	}
	return math.Abs(mean-c.mean()) <= 2e-3*max(math.Abs(lo), math.Abs(hi), hi-lo)
}

// predict checks that each kept row has a prediction, and each other row has a prediction or a
// reason.
func (a *acceptance) predict(fitted string) {
	kept := keptRows.FindStringSubmatch(fitted)
	args := []string{a.model, a.path}
	if len(a.format) > 0 {
		args = append([]string{"-format", strings.Join(a.format, " ")}, args...)
	}
	status, out, errs := a.do("predict", args...)
	if status != 0 && status != 3 {
		a.fail("predict: %d\n%s", status, errs)
	}
	failed := 0
	answers := records(a.T, out)
	if len(answers) != a.n+1 {
		a.fail("predict: %d lines for %d rows", len(answers), a.n)
	}
	for _, r := range answers[1:] {
		note := r[len(r)-1]
		if reason, ok := strings.CutPrefix(note, "error: "); ok {
			if failed++; len(reason) < 10 {
				a.fail("predict: %q", r)
			}
			if strings.Contains(reason, noMoments) {
				failed--
			}
			continue
		}
		for j, field := range r[1 : len(r)-1] {
			if answers[0][j+1] == "class" {
				continue
			}
			if v, err := strconv.ParseFloat(field, 64); err != nil || math.IsInf(v, 0) ||
				math.IsNaN(v) {
				a.fail("predict: %q\n%s", r, fitted)
			}
		}
	}
	if most := a.n - testkit.Must(strconv.Atoi(kept[2])); failed > most {
		a.fail("predict: %d rows have errors, and the fit left out %d:\n%s", failed, most, out)
	}
}

// TestProposals checks that fit accepts the proposals of check for random tables, that nothing
// panics, that each row has a prediction or a reason, and that numbers, levels and dates are read
// as intended unless check requires a decision.
func TestProposals(t *testing.T) {
	ends := map[string]int{}
	first := testkit.FirstSeed()
	for seed := first; seed < first+testkit.Seeds(testkit.Longer(300, 32)); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := newMessyTable(testkit.Rand(seed))
			dir := t.TempDir()
			a := &acceptance{T: t, messyTable: m, dir: dir,
				path: write(t, dir, "table.csv", m.text),
				said: filepath.Join(dir, "columns.txt"), model: filepath.Join(dir, "m.pgsvi")}
			ends[a.run()]++
		})
	}
	t.Log(ends)
}

// TestProposalsAtOnce checks that check also proposes decisions that its other proposals make
// necessary, and that it writes no file if no proposal helps.
func TestProposalsAtOnce(t *testing.T) {
	dir := t.TempDir()
	said := filepath.Join(dir, "columns.txt")
	path := write(t, dir, "table.csv",
		"k,n,flag,x\n3,5,0,1.5\n4,7,0,2.5\n2,9,1,1\n9,9,1,2\n2,5,0,3\n")
	status, out, errs := run(t, "check", "-formula", "k / n ~ .", "-columns", said, path)
	if status != 2 || !strings.Contains(out, `data.Trials("n").MissingAre("9").Drop()`) ||
		!strings.Contains(out, `data.Skip("flag")`) {
		t.Fatalf("%d\n%s%s", status, out, errs)
	}
	if status, out, errs = run(t, "fit", "-formula", "k / n ~ .", "-columns", said,
		path); status != 0 {
		t.Errorf("%d\n%s%s", status, out, errs)
	}
	path, said = write(t, dir, "one.csv", "y,z\n1.5,3\n2.5,3\n3,3\n"), filepath.Join(dir, "no.txt")
	status, out, errs = run(t, "check", "-formula", "y ~ z", "-columns", said, path)
	if _, err := os.Stat(said); status != 2 || err == nil ||
		strings.Contains(out, "-columns FILE") ||
		!strings.Contains(out, "change the table or the formula") {
		t.Errorf("%d, %v\n%s%s", status, err, out, errs)
	}
}
