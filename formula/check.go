package formula

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pgsvi/pgsvi/internal/arith"
	"github.com/pgsvi/pgsvi/internal/sentinel"
	"github.com/pgsvi/pgsvi/internal/suggest"
)

// An Error describes a mistake in a formula. It wraps pgsvi.ErrParam.
type Error struct {
	// Source is the formula.
	Source string
	// Offset is the byte offset of the mistake in Source, or -1 if it is not known.
	Offset int
	// Message describes the mistake and the remedy.
	Message string
}

// Error returns the message, the formula and, if Offset is known, a caret below the mistake.
func (e *Error) Error() string {
	if e.Offset < 0 {
		return "formula: " + e.Message + "\n  " + e.Source
	}
	before := utf8.RuneCountInString(e.Source[:e.Offset])
	return "formula: " + e.Message + "\n  " + e.Source + "\n  " + strings.Repeat(" ", before) + "^"
}

// Unwrap returns pgsvi.ErrParam.
func (e *Error) Unwrap() error { return sentinel.ErrParam }

// wrong returns an Error about a column of f, or about f if column is "".
func (f *Formula) wrong(column, format string, args ...any) error {
	e := &Error{Source: f.source, Offset: -1, Message: fmt.Sprintf(format, args...)}
	if f.source == "" {
		e.Source = f.String()
	} else if at, ok := f.at[column]; ok {
		e.Offset = at
	}
	return e
}

// Check returns an error if the formula names a column that is not in columns, or uses the outcome
// to predict itself. If columns is nil, every column is accepted. A column may have several roles,
// as in y ~ w + weight(w). A term that repeats an earlier term adds nothing, as in R. The result
// joins an *Error for each mistake.
func (f *Formula) Check(columns []string) error {
	var errs []error
	fail := func(column, format string, args ...any) {
		errs = append(errs, f.wrong(column, format, args...))
	}
	if f.Outcome == "" {
		fail("", "the outcome is missing; write y ~ …")
	}
	free := slices.DeleteFunc(slices.Clone(columns), func(c string) bool {
		return slices.Contains(f.Columns(), c)
	})
	features, made := f.features(), []string{}
	for _, c := range f.names() {
		if e, ok := arith.Named(c); ok && slices.Contains(features, c) &&
			!slices.Contains(columns, c) {
			made = append(made, e.Columns...)
		}
	}
	for _, c := range once(append(f.names(), made...)) {
		_, computed := arith.Named(c)
		switch {
		case computed && slices.Contains(features, c):
		case strings.Contains(c, "`"):
			fail(c, "the name of column %q has a backquote; rename it", c)
		case columns != nil && !slices.Contains(columns, c) && !factorOfAny(c, columns):
			fail(c, "the table has no column %q%s", c, nearest(c, free, columns))
		}
	}
	given := map[string]string{f.Outcome: "the outcome"}
	if f.Event != "" {
		given[f.Event] = "the event"
	}
	if f.Weight != "" && f.Precision != "" {
		fail(f.Precision, "weight(…) and precision(…) conflict; remove one of them")
	}
	if f.Trials != "" && f.Event != "" {
		fail(f.Trials, "a duration cannot have trials; remove them")
	}
	switch {
	case f.Transform != "" && f.Transform != "log" && f.Transform != "sqrt":
		fail(f.Outcome, "the outcome is %s of a column; use log or sqrt", f.Transform)
	case f.Transform != "" && (f.Trials != "" || f.Event != ""):
		fail(f.Outcome, "%s(…) needs numbers, not successes or durations", f.Transform)
	}
	further := sourcesOf(f.parameters())
	for _, c := range append([]string{f.Trials, f.Event}, further...) {
		switch {
		case c == f.Outcome && c != "":
			fail(c, "%s is the outcome, which cannot have a second role", arith.Quote(c))
		case c == f.Event && c != "" && slices.Contains(further, c):
			fail(c, "%s is the event, which cannot have a second role", arith.Quote(c))
		}
	}
	f.checkTerms(given, fail)
	return errors.Join(errs...)
}

// checkTerms calls fail for each mistake in a term. given describes the columns of the outcome,
// which cannot predict themselves.
func (f *Formula) checkTerms(given map[string]string,
	fail func(column, format string, args ...any)) {
	written, groups := map[string]Term{}, groupEffects{}
	for _, t := range f.Terms {
		if err := t.check(); err != nil {
			fail(append(t.Columns(), "")[0], "%v", err)
			continue
		}
		if _, ok := t.(Rest); ok {
			continue
		}
		group, _ := t.(Group)
		for _, c := range sourcesOf(t.Columns()) {
			as := given[c]
			switch {
			case as == "":
			case slices.Contains(group.By, c):
				fail(c, "%s is %s, which cannot be a group", quote(c), as)
			default:
				fail(c, "%s is %s, which cannot predict itself", quote(c), as)
			}
		}
		if err := groups.add(group); err != nil {
			fail(group.By[0], "%v", err)
		}
		before, ok := written[key(t)]
		if _, smooth := t.(Smooth); ok && smooth && before.String() != t.String() {
			fail(append(t.Columns(), "")[0], "%v and %v are the same curve with different "+
				"options; remove one of them", before, t)
		}
		written[key(t)] = t
	}
}

// sourcesOf returns the sources of columns.
func sourcesOf(columns []string) (all []string) {
	for _, c := range columns {
		all = append(all, sources(c)...)
	}
	return all
}

// factorOfAny reports whether c is a factor of one of the columns.
func factorOfAny(c string, columns []string) bool {
	of, ok := FactorOf(c)
	return ok && slices.Contains(columns, of)
}

// key returns the same text for terms with the same effect.
func key(t Term) string {
	switch t := t.(type) {
	case Interact:
		return joinSorted(t)
	case Smooth:
		return "s(" + t.Column + ")"
	case Group:
		if t.Joint || len(t.By) == 1 {
			t.By, t.Joint = slices.Sorted(slices.Values(t.By)), true
		}
		return t.String()
	}
	return t.String()
}

func (c Col) check() error {
	if c == "" {
		return errors.New("a column has no name")
	}
	return nil
}

// several returns an error if columns has fewer than two columns, or a column twice.
func several(columns []string, sign string) error {
	if len(columns) < 2 {
		return fmt.Errorf("an interaction needs at least two columns, as in a%sb", sign)
	}
	for i, c := range columns {
		if c == "" {
			return errors.New("a column has no name")
		}
		if slices.Contains(columns[:i], c) {
			return fmt.Errorf("%s multiplies a column by itself; use poly(%s, 2) or "+
				"I(%[2]s^2) for the square", join(columns, sign), quote(c))
		}
	}
	return nil
}

func (i Interact) check() error { return several(i, ":") }
func (c Cross) check() error    { return several(c, "*") }
func (r Rest) check() error     { return nil }

// maxDegree is the highest degree of a polynomial. Higher powers differ only by rounding errors,
// and s(x) is the better choice.
const maxDegree = 9

func (p Poly) check() error {
	if p.Degree < 1 || p.Degree > maxDegree {
		return fmt.Errorf("the degree of %v must be from 1 to %d; use s(%s) for other curves",
			p, maxDegree, quote(p.Column))
	}
	return Col(p.Column).check()
}

// minBasis and maxBasis limit the number of basis functions of a smooth curve.
const minBasis, maxBasis = 4, 500

func (s Smooth) check() error {
	if s.K != 0 && (s.K < minBasis || s.K > maxBasis) {
		return fmt.Errorf("the number k of basis functions of %v must be from %d to %d",
			s, minBasis, maxBasis)
	}
	if s.Period != 0 && !(s.Periodic && s.Period > 0 && s.Period <= math.MaxFloat64) {
		return fmt.Errorf("the period of %v must be above 0, and the curve must be periodic", s)
	}
	return Col(s.Column).check()
}

func (g Group) check() error {
	if len(g.By) == 0 {
		return errors.New("the group is missing; write (1 | group)")
	}
	if g.NoIntercept && len(g.Slopes) == 0 {
		return fmt.Errorf("%v is empty; write (1 | %s) for an intercept of each group",
			g, joinNames(g.By, "/"))
	}
	for i, b := range g.By {
		switch {
		case b == "":
			return errors.New("a group has no name")
		case slices.Contains(g.By[:i], b) && g.Joint:
			return fmt.Errorf("%v combines %s with itself; remove one of them", g, quote(b))
		case slices.Contains(g.By[:i], b):
			return fmt.Errorf("%s is nested in itself; remove one of them", quote(b))
		}
	}
	return g.checkSlopes()
}

// checkSlopes returns an error if a slope has no effect, or repeats another slope.
func (g Group) checkSlopes() error {
	seen := map[string]bool{}
	for _, s := range g.Slopes {
		switch s.(type) {
		case Col, Interact, Cross, Poly:
		default:
			return fmt.Errorf("a group has the slope %v; use columns, interactions or poly", s)
		}
		if err := s.check(); err != nil {
			return err
		}
		for _, c := range sourcesOf(s.Columns()) {
			if slices.Contains(g.By, c) {
				return fmt.Errorf("a slope of %v for each %s has no effect, because %[2]s does "+
					"not vary within a group", s, quote(c))
			}
		}
		for _, e := range expand(s) {
			if seen[key(e)] {
				return fmt.Errorf("the slope of %v occurs twice in %v; remove one of them", e, g)
			}
			seen[key(e)] = true
		}
	}
	return nil
}

// parts returns the groups that (1 | a/b) and || are short for. The effects of each part are
// correlated.
func (g Group) parts() (all []Group) {
	for i := range g.By {
		by := g.By
		if !g.Joint {
			by = g.By[:i+1]
		} else if i > 0 {
			break
		}
		whole := Group{By: by, Joint: true, NoIntercept: g.NoIntercept}
		for _, s := range g.Slopes {
			whole.Slopes = append(whole.Slopes, expand(s)...)
		}
		if !g.Uncorrelated {
			all = append(all, whole)
			continue
		}
		if !g.NoIntercept {
			all = append(all, Group{By: by, Joint: true})
		}
		for _, s := range whole.Slopes {
			all = append(all, Group{By: by, Joint: true, NoIntercept: true, Slopes: []Term{s}})
		}
	}
	return all
}

// A groupEffects finds groups with the same effects.
type groupEffects map[string]groupEffect

// A groupEffect is an effect of a group, such as the intercept of g, with the part of a term that
// has it.
type groupEffect struct {
	part string
	term Group
}

// add returns an error if g shares an effect with an earlier term. The same part may occur again.
func (seen groupEffects) add(g Group) error {
	for _, p := range g.parts() {
		group, effects := joinSorted(p.By), map[string]string{}
		if !p.NoIntercept {
			effects["1"] = "an intercept"
		}
		for _, s := range p.Slopes {
			effects[key(s)] = "a slope of " + s.String()
		}
		names := slices.Sorted(maps.Keys(effects))
		part := strings.Join(names, " + ")
		for _, e := range names {
			o, ok := seen[group+" "+e]
			if ok && o.part != part {
				return fmt.Errorf("%v and %v both have %s for each %s; remove one of them", o.term,
					g, effects[e], joinNames(p.By, ":"))
			}
			seen[group+" "+e] = groupEffect{part, g}
		}
	}
	return nil
}

// joinSorted joins columns in alphabetical order.
func joinSorted(columns []string) string { return join(slices.Sorted(slices.Values(columns)), ":") }

// expand returns the effects of a*b as separate terms, or t itself.
func expand(t Term) []Term {
	switch t := t.(type) {
	case Cross:
		var effects []Term
		for size := 1; size <= len(t); size++ {
			for set := range 1 << len(t) {
				var some Interact
				for j, c := range t {
					if set>>j&1 == 1 {
						some = append(some, c)
					}
				}
				switch {
				case len(some) != size:
				case size == 1:
					effects = append(effects, Col(some[0]))
				default:
					effects = append(effects, some)
				}
			}
		}
		return effects
	}
	return []Term{t}
}

// maxCross is the largest number of columns in a*b*…, which has 2ⁿ − 1 effects.
const maxCross = 8

// Resolve returns the formula for a table with the given columns. It expands a*b, and replaces . by
// every column without a role: all columns except the outcome, its trials, its event, exposures,
// offsets, weights and groups. As in R, y ~ . + x:f also has the effects of x and f. Resolve
// removes repeated effects and does not expand nested groups. The error is the error of Check.
func (f *Formula) Resolve(columns []string) (*Formula, error) {
	if err := f.Check(columns); err != nil {
		return nil, err
	}
	r := *f
	r.Terms = nil
	roles := f.roles()
	seen := map[string]bool{}
	add := func(t Term) {
		if k := key(t); !seen[k] {
			seen[k] = true
			r.Terms = append(r.Terms, t)
		}
	}
	for _, t := range f.Terms {
		switch t := t.(type) {
		case Group:
			var slopes []Term
			for _, s := range t.Slopes {
				slopes = append(slopes, expand(s)...)
			}
			t.Slopes = slopes
			add(t)
			continue
		case Rest:
			for _, c := range columns {
				if !slices.Contains(roles, c) && !slices.Contains(t.Except, c) {
					add(Col(c))
				}
			}
			continue
		}
		for _, e := range expand(t) {
			add(e)
		}
	}
	return &r, nil
}

// nearest returns advice for a name that is not in names, to end a message with. It suggests the
// most similar of the free names, which are not in use, or lists the names.
func nearest(name string, free, names []string) string {
	if best := suggest.Nearest(name, free); best != "" {
		return fmt.Sprintf("; did you mean %s?", quote(best))
	}
	const most = 12
	if len(names) > most {
		return "; it has " + join(names[:most], ", ") + fmt.Sprintf(" and %d more",
			len(names)-most)
	}
	switch len(names) {
	case 0:
		return ""
	case 1:
		return "; it has " + quote(names[0])
	}
	return "; it has " + join(names, ", ")
}
