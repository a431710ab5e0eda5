package formula

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/pgsvi/pgsvi/internal/sentinel"
)

// formulas holds formulas as String prints them, with their Words.
var formulas = []struct{ text, words string }{
	{"y ~ 1", "y by an intercept alone"},
	{"y ~ 0", "y by nothing"},
	{"y ~ 0 + x", "y by x; no intercept"},
	{"y ~ .", "y by every other column"},
	{"log(y) ~ x", "the logarithm of y by x"},
	{"y ~ x + factor(x) + factor(`a b`):z", "y by x and factor(x); the interaction of factor(`a b`) and z"},
	{"y ~ factor(x)*z", "y by factor(x) and z with their interactions"},
	{"sqrt(`a b`) ~ 1", "the square root of `a b` by an intercept alone"},
	{"y ~ . - id - `post code`", "y by every other column except id and `post code`"},
	{"gekündigt ~ Alter + `Letzte Anfrage`", "gekündigt by Alter and `Letzte Anfrage`"},
	{"y ~ a:b", "y by the interaction of a and b"},
	{"y ~ a*b*c", "y by a, b and c with their interactions"},
	{"response ~ sex + s(bmi) + (1 + visit | subject)", "response by sex; a smooth curve of bmi; " +
		"an intercept and a slope of visit for each subject"},
	{"y ~ s(hour, k=12, periodic)", "y by a smooth periodic curve of hour"},
	{"y ~ poly(x, 3) + log(z)", "y by log(z); a polynomial of degree 3 in x"},
	{"y ~ x + I(x^2) + I((x - 5)/100) + f*sqrt(x)", "y by x, I(x^2) and I((x - 5)/100); f and " +
		"sqrt(x) with their interactions"},
	{"y ~ I(`a b` * -z^2 + 1e-05) + s(log1p(x)) + poly(log(x), 2)",
		"y by I(`a b` * -z^2 + 1e-05); a smooth curve of log1p(x); a polynomial of degree 2 in log(x)"},
	{"`log(y)` ~ . - `log(x)` + (1 | `I(g)`)", "`log(y)` by every other column except `log(x)`; " +
		"an intercept for each `I(g)`"},
	{"y ~ (1 + x + I(x^2) + f:log2(x) | g) + offset(log(t))", "y by an intercept and a slope of " +
		"x, I(x^2) and f:log2(x) for each g; log(t) is added to the linear predictor"},
	{"y ~ (1 | school/class)",
		"y by an intercept for each class within each school and each school"},
	{"y ~ (0 + x || g)", "y by a slope of x for each g"},
	{"y ~ (1 + x + `a b` || g)", "y by an intercept and an independent slope of x and `a b` for " +
		"each g"},
	{"y ~ (1 | a:b:`c d`)", "y by an intercept for each combination of a, b and `c d`"},
	{"y ~ (1 + x*z + log(u) | a/b)", "y by an intercept and a slope of x*z and log(u) for each b " +
		"within each a and each a"},
	{"y ~ (0 + factor(x) + poly(z, 2) + u:v | a:b)", "y by a slope of poly(z, 2) and u:v and " +
		"an effect of each x for each combination of a and b"},
	{"claims ~ age + exposure(years)", "claims by age; in proportion to years"},
	{"y ~ x + precision(n)",
		"y by x; the variance of the noise is in inverse proportion to n"},
	{"dead / treated ~ dose + weight(w) ",
		"dead of treated trials by dose; each row counts w times"},
	{"survival(days, died) ~ dose", "days until died by dose"},
	{"survival(`last seen`, e) ~ s(x)", "`last seen` until e by a smooth curve of x"},
	{"y ~ x + offset(o)", "y by x; o is added to the linear predictor"},
}

func TestFormula(t *testing.T) {
	for _, c := range formulas {
		f, err := Parse(c.text)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if got := f.String(); got != strings.TrimSpace(c.text) {
			t.Errorf("%s: printed as %s", c.text, got)
		}
		if got := f.Words(); got != c.words {
			t.Errorf("%s: %s; want %s", c.text, got, c.words)
		}
	}
}

// TestExpanded checks that sums, powers and nested effects mean the same terms as in R.
func TestExpanded(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"y ~ (a)", "y ~ a"},
		{"y ~ (a+b) + (a+b+c+d+e+f+g+h+i)", "y ~ a + b + a + b + c + d + e + f + g + h + i"},
		{"y ~ (a+b)^1", "y ~ a + b"},
		{"y ~ (a+b)^2 + z", "y ~ a + b + a:b + z"},
		{"y ~ (a+b+c)^2", "y ~ a + b + c + a:b + a:c + b:c"},
		{"y ~ (a+b+c)^9", "y ~ a + b + c + a:b + a:c + b:c + a:b:c"},
		{"y ~ (a + I(b^2) + a)^3 - 1", "y ~ 0 + a + I(b^2) + a:I(b^2)"},
		{"y ~ a/b", "y ~ a + a:b"},
		{"y ~ 0 + factor(a)/log(b)/`c)|`",
			"y ~ 0 + factor(a) + factor(a):log(b) + factor(a):log(b):`c)|`"},
	} {
		f, err := Parse(c.text)
		if err != nil {
			t.Error(err)
		} else if f.String() != c.want {
			t.Errorf("%s: %v, want %s", c.text, f, c.want)
		}
	}
}

// TestBuilt checks that a formula built by a program equals the parsed formula.
func TestBuilt(t *testing.T) {
	built := &Formula{
		Outcome: "died", Trials: "ill", Exposure: "days", Weight: "w", NoIntercept: true,
		Terms: []Term{
			Col("a b"), Interact{"a", "b"}, Smooth{"x", 8, true, 24}, Poly{"z", 2}, Col("log(u)"),
			Group{By: []string{"g", "h"}, Slopes: []Term{Col("x"), Col("log(u)")},
				Uncorrelated: true},
			Group{By: []string{"g", "i"}, Joint: true, NoIntercept: true, Slopes: []Term{
				Interact{"a", "b"}, Poly{"z", 2}, Cross{"v", "factor(u)"}}},
			Rest{Except: []string{"id"}},
		},
	}
	if err := built.Check(nil); err != nil {
		t.Fatal(err)
	}
	read, err := Parse(built.String())
	if err != nil {
		t.Fatal(err)
	}
	read.source, read.at = "", nil
	if !reflect.DeepEqual(read, built) {
		t.Errorf("%v is read as %v", built, read)
	}
	want := []string{"died", "ill", "days", "w", "a b", "a", "b", "x", "z", "log(u)", "g", "h", "v",
		"factor(u)", "i", "id", "u"}
	if got := built.Columns(); !slices.Equal(got, want) {
		t.Errorf("columns %q, want %q", got, want)
	}
}

// TestMistakes checks the message and the caret of each mistake. ¦ marks the place of the caret.
func TestMistakes(t *testing.T) {
	for _, c := range []struct{ text, message string }{
		{"", "expected a column to predict"},
		{"¦~ x", "the outcome is missing"},
		{"y¦", "unexpected end of the formula; expected ~"},
		{"y ¦= x", "unexpected =; expected ~"},
		{"y ~ ¦", "unexpected end of the formula; expected a column, 1, 0, . or a group such as (1 | g)"},
		{"y ~ x + ¦", "unexpected end of the formula; expected a column"},
		{"y ~ x ¦z", "unexpected z; expected + before the next term, or backquotes around a name"},
		{"y ~ x + ¦2", "unexpected 2; expected a column"},
		{"y ~ x¦^2", "formulas do not support powers"},
		{"y ~ I(¦sin(x))", "unknown function sin in arithmetic; use log, log2"},
		{"y ~ ¦sin(x)", "unknown function sin; use s, poly"},
		{"y ~ ¦scale(x)", "unknown function scale; write the column alone"},
		{"y ~ I(x ¦> 3)", "unexpected >; arithmetic has only + - * / ^ and functions"},
		{"y ~ I(x¦", "unexpected end of the formula; expected + - * / ^ or ) to end I(…"},
		{"y ~ I((x + 1¦", "unexpected end of the formula; expected + - * / ^ or ) to end (…"},
		{"y ~ I(x ¦z)", "unexpected z; expected + - * / ^ or ) to end I(…"},
		{"y ~ I(x + ¦)", "unexpected ); expected a column, a number, a function or ("},
		{"y ~ I(x + ¦*z)", "unexpected *; expected a column, a number, a function or ("},
		{"y ~ I(x + ¦1.2.3)", "1.2.3 is not a number"},
		{"y ~ I(x + ¦`a)", "a name in backquotes is empty or not closed"},
		{"y ~ log(x¦, 2)", "write log(x)/log(b) for another base"},
		{"y ~ ¦I(2 + 3)", "I(2 + 3) has no column"},
		{"y ~ x + I(x*¦y)", "y is the outcome, which cannot predict itself"},
		{"y ~ x + offset(log(¦y))", "y is the outcome, which cannot have a second role"},
		{"survival(t, e) ~ offset(log(¦e))", "e is the event, which cannot have a second role"},
		{"y ~ (¦I(x*g) | g)", "a slope of I(x * g) for each g has no effect"},
		{"y ~ factor(I¦(x))", "unexpected (; expected ) to end factor(…"},
		{"y ~ s(x, ¦q=3)", "unexpected q; expected k=…, periodic or period=…"},
		{"y ~ s(x, period=¦0)", "unexpected 0; expected a number above 0 for the period"},
		{"y ~ s(x, period¦)", "unexpected ); expected = as in s(x, period=24)"},
		{"y ~ s(x, k=¦many)", "unexpected many; expected a whole number"},
		{"y ~ s(x, k=0¦)", "k must be from 4"},
		{"y ~ s(¦x, k=3)", "functions of s(x, k=3) must be from 4"},
		{"y ~ s(x¦", "unexpected end of the formula; expected )"},
		{"y ~ poly(x¦)", "unexpected ); expected ,"},
		{"y ~ poly(¦x, 12)", "must be from 1 to 9; use s(x)"},
		{"y ~ x - ¦z", "unexpected z; expected 1"},
		{"y ~ . - z - ¦z", "z is left out twice"},
		{"y ~ 1 ¦| g", "write a group in parentheses"},
		{"y ~ (¦| g)", "unexpected |; expected a column of a group"},
		{"y ~ (1 ¦g)", "unexpected g; expected + or |"},
		{"y ~ (1 + x | ¦)", "unexpected ); expected a column for the group"},
		{"y ~ (0 | ¦g)", "(0 | g) is empty"},
		{"y ~ (1 + ¦g | g)", "a slope of g for each g"},
		{"y ~ (1 | ¦g/g)", "g is nested in itself"},
		{"y ~ (1 | ¦g:g)", "(1 | g:g) combines g with itself"},
		{"y ~ (1 + ¦x:g | g)", "a slope of x:g for each g has no effect"},
		{"y ~ (1 + ¦factor(g) | g)", "a slope of factor(g) for each g has no effect"},
		{"y ~ (1 + ¦a | a/b)", "a slope of a for each a has no effect"},
		{"y ~ (1 + ¦b | a:b)", "a slope of b for each b has no effect"},
		{"y ~ (1 | a/b:¦)", "unexpected ); expected a column for the group"},
		{"y ~ (1 | ¦a/b:b)", "(1 | a:b:b) combines b with itself"},
		{"y ~ (1 | a ¦+ b)", "as in (1 | a) + (1 | b)"},
		{"y ~ (1 | a¦*b)", "write (1 | a) + (1 | b) + (1 | a:b)"},
		{"y ~ (1 | ¦factor(g))", "groups are always categories; write (1 | group)"},
		{"y ~ (1 | ¦as.factor(g))", "in place of (1 | as.factor(group))"},
		{"y ~ (1 | a/¦interaction(b, c))", "write (1 | a:b) for the combinations of levels"},
		{"y ~ (1 | ¦log(g))", "a group must be a column; add log(…) to the table as a column"},
		{"y ~ ¦ar1(x | g)", "unknown function ar1; write (1 + x | group) for correlated effects"},
		{"y ~ ¦Error(g)", "unknown function Error; write (1 | group) for a stratum"},
		{"y ~ ¦relevel(f, a)", "columns of texts are categories"},
		{"y ~ ¦as.numeric(x)", "columns of numbers are numbers"},
		{"y ~ ¦t2(x)", "use s(x) for a smooth curve"},
		{"y ~ x¦, random = (1 | g)", "write random effects as a term of the formula, as in + (1 | group)"},
		{"y ~ x ¦%in% g", "write a:b in place of a %in% b"},
		{"y ~ f*¦poly(x, 2)", "poly(…) cannot be part of an interaction; write the powers of x"},
		{"y ~ f:¦s(x)", "s(…) cannot be part of an interaction; write the powers of x"},
		{"y ~ s(g, ¦bs=re)", "write (1 | g) for random effects of g"},
		{"y ~ s(x, ¦by=f)", "write powers for a curve that differs between levels"},
		{"y ~ (¦s(x) | g)", "smooth curves cannot differ between the levels of a group; use a " +
			"polynomial"},
		{"y ~ (x + ¦sin(x) | g)", "unknown function sin in a group; use poly, factor, I, log"},
		{"y ~ (¦. | g)", "expected a column of a group"},
		{"y ~ (x - ¦z | g)", "unexpected z; expected 1, because - leaves out the intercept of a"},
		{"y ~ (0 + x + ¦1 | g)", "0 leaves out the intercept of a group, but 1 keeps it"},
		{"y ~ (¦x*z + z | g)", "the slope of z occurs twice in (1 + x*z + z | g)"},
		{"y ~ (¦a:b + b:a | g)", "the slope of b:a occurs twice"},
		{"y ~ (1 | ¦y)", "y is the outcome, which cannot be a group"},
		{"y ~ (x | ¦y)", "y is the outcome, which cannot be a group"},
		{"y ~ (1 + ¦y | g)", "y is the outcome, which cannot predict itself"},
		{"y ~ (x | ¦g) + (1 | g)", "(1 + x | g) and (1 | g) both have an intercept for each g"},
		{"y ~ (x | ¦g) + (x || g)", "both have an intercept for each g"},
		{"y ~ (x*z | ¦g) + (0 + z:x | g)", "both have a slope of z:x for each g"},
		{"y ~ (x | a/¦b) + (1 | b:a)", "(1 + x | a/b) and (1 | b:a) both have an intercept for " +
			"each b:a"},
		{"y ~ a:b¦*c", "unexpected * after :"},
		{"y ~ ¦a:a", "a:a multiplies a column by itself; use poly(a, 2)"},
		{"y ~ s(x)¦*z", "unexpected *; interactions need columns"},
		{"y ~ poly(x, 2)¦*z", "or in x*f + I(x^2)*f for a parabola of x"},
		{"¦y ~ y", "y is the outcome, which cannot predict itself"},
		{"y ~ weight(a) + ¦weight(b)", "weight occurs twice"},
		{"y ~ weight(a) + precision(¦b)", "weight(…) and precision(…) conflict; remove one"},
		{"y ~ ¦`x + 1", "not closed"},
		{"y ~ ¦``", "is empty or not closed"},
		{"y ~ x ¦~ z", "second ~"},
		{"ärger ~ s(¦größe) + s(größe, k=9)", "s(größe) and s(größe, k=9) are the same curve"},
		{"y ~ 1 + x + ¦0", "0 leaves out the intercept, but 1 keeps it"},
		{"¦Surv(t, e) ~ x", "write durations as survival(time, event)"},
		{"¦cbind(s, f) ~ x", "write successes / trials, as in cured / n ~ dose, where n counts " +
			"successes and failures"},
		{"y ~ x + offset(log(n)) + ¦offset(n)", "offset occurs twice; remove one of them"},
		{"y ~ x + (1 | sales ¦region)", "backquotes around a name with spaces"},
		{"survival(t¦) ~ x", "unexpected ); expected , and the column that is 1"},
		{"survival(t, ¦) ~ x", "expected a column of the events"},
		{"survival(t, e ¦f) ~ x", "unexpected f; expected ) to end survival(…"},
		{"survival(t, e¦", "unexpected end of the formula; expected )"},
		{"survival(t, e) ¦/ n ~ x", "unexpected /; expected ~"},
		{"survival(t, ¦t) ~ x", "t is the outcome, which cannot have a second role"},
		{"survival(t, e) ~ ¦e", "e is the event, which cannot predict itself"},
		{"exp¦(y) ~ x", "add its exp to the table as a column"},
		{"log(¦1) ~ x", "expected a column in log(…)"},
		{"sqrt(y ¦~ x", "unexpected ~; expected ) to end sqrt(…"},
		{"log(y) ¦/ n ~ x", "unexpected /; expected ~"},
		{"y ~ s(a)¦/b", "unexpected /; use I(a/b) for a quotient"},
		{"y ~ a*b¦/c", "unexpected / after a*b; write the effects one by one"},
		{"y ~ a/b¦:c", "unexpected :; interactions need columns"},
		{"y ~ a/¦1", "unexpected 1; expected a column after /"},
		{"y ~ (a + b)^¦x", "unexpected x; expected a whole number for the power of a sum"},
		{"y ~ (a + b¦*c)^2", "unexpected *; expected ) to end a sum of columns, as in (a + b)^2"},
		{"y ~ (a + b)¦^0", "a power of at least 1"},
		{"y ~ (a+b+c+d+e+f+g+h+i)¦^2", "must have at most 8 columns"},
		{"y ~ (a + s¦(x))", "unexpected (; expected ) to end a sum"},
		{"y ~ (a + b)^2¦:c", "unexpected :; interactions need columns"},
		{"y ~ (a + b", "unexpected end of the formula"},
		{"y ~ ¦\"a b\"", "in backquotes"},
		{"y ~ ¦C(x)", "use factor(x) for columns of numbers"},
		{"y ~ factor(¦3)", "expected a column in factor(…)"},
		{"y ~ factor(x ¦+ z", "unexpected +; expected ) to end factor(…"},
		{"y ~ factor(¦y)", "y is the outcome, which cannot predict itself"},
		{"y ~ a*sin¦(x)", "unexpected (, because products and sums of terms may contain only"},
		{"y ~ s(x ¦z)", "unexpected z; expected ) to end s(…"},
		{"y ~ x\n", "is not text"},
		{"y ~ \xff", "is not text"},
		{"y ~ ¦" + "a*b*c*d*e*f*g*h*i", "9 columns with all interactions have 511 effects"},
	} {
		text := strings.ReplaceAll(c.text, "¦", "")
		_, err := Parse(text)
		var e *Error
		if !errors.As(err, &e) || !errors.Is(err, sentinel.ErrParam) {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: %v; want %s", text, err, c.message)
		}
		if at := strings.Index(c.text, "¦"); at >= 0 && !caret(err, at, text) {
			t.Errorf("%v: caret at %d, want %d", err, e.Offset, at)
		}
	}
}

// caret reports whether one of the errors joined in err is at a byte, or, for repetitions, at the
// first use.
func caret(err error, at int, text string) bool {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err.(*Error).Offset == at
	}
	for _, e := range joined.Unwrap() {
		if o := e.(*Error).Offset; o == at || o >= 0 && strings.HasPrefix(text[at:], text[o:o+1]) {
			return true
		}
	}
	return false
}

func TestCheckColumns(t *testing.T) {
	columns := []string{"churned", "plan", "tenure", "monthly_charges"}
	f, err := Parse("churned ~ plna + s(tenure) + charges + q + churn")
	if err != nil {
		t.Fatal(err)
	}
	err = f.Check(columns)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"no column \"plna\"; did you mean plan?\n  churned ~ plna + s(tenure) + charges + q + " +
			"churn\n            ^",
		"no column \"charges\"; did you mean monthly_charges?\n",
		"no column \"q\"; it has churned, plan, tenure, monthly_charges\n",
		"no column \"churn\"; it has churned, plan, tenure, monthly_charges\n",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	if err := f.Check([]string{"churned", "plna", "tenure", "charges", "q", "churn"}); err != nil {
		t.Error(err)
	}
	for _, bad := range []Formula{
		{},
		{Outcome: "y", Terms: []Term{Col("")}},
		{Outcome: "y", Terms: []Term{Cross{"a"}}},
		{Outcome: "y", Terms: []Term{Group{}}},
		{Outcome: "y", Terms: []Term{Group{By: []string{"g"}, Slopes: []Term{Col("a"), Col("a")}}}},
		{Outcome: "y", Terms: []Term{Group{By: []string{"g"}, Slopes: []Term{Col("")}}}},
		{Outcome: "y", Terms: []Term{Group{By: []string{"g"},
			Slopes: []Term{Smooth{Column: "x"}}}}},
		{Outcome: "y", Terms: []Term{Group{By: []string{"g"},
			Slopes: []Term{Group{By: []string{"h"}}}}}},
		{Outcome: "y`", Terms: nil},
		{Outcome: "y", Trials: "n", Event: "e"},
	} {
		if err := bad.Check(nil); !errors.Is(err, sentinel.ErrParam) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func TestResolve(t *testing.T) {
	columns := []string{"y", "a", "b", "c", "d", "w"}
	for _, c := range []struct{ text, want string }{
		{"y ~ .", "y ~ a + b + c + d + w"},
		{"y ~ . - c + weight(w)", "y ~ a + b + d + weight(w)"},
		{"y ~ . - c + precision(w)", "y ~ a + b + d + precision(w)"},
		{"y ~ . + s(a) + (1 | b)", "y ~ a + c + d + w + s(a) + (1 | b)"},
		{"y ~ . + a:b", "y ~ a + b + c + d + w + a:b"},
		{"y ~ . + . - a + weight(w)", "y ~ a + b + c + d + weight(w)"},
		{"y ~ . - a + a:b + offset(w)", "y ~ b + c + d + a:b + offset(w)"},
		{"y ~ a + . + (1 | b/c)", "y ~ a + d + w + (1 | b/c)"},
		{"y ~ a + a + s(c) + s(c)", "y ~ a + s(c)"},
		{"y ~ a:b + b:a + (1 | c) + (1 | c)", "y ~ a:b + (1 | c)"},
		{"y ~ a*b + b", "y ~ a + b + a:b"},
		{"y ~ b + a*b", "y ~ b + a + a:b"},
		{"y ~ w + b + (1 | b) + weight(w)", "y ~ w + b + (1 | b) + weight(w)"},
		{"y ~ a*b + a*c", "y ~ a + b + a:b + c + a:c"},
		{"y ~ a*b*c", "y ~ a + b + c + a:b + a:c + b:c + a:b:c"},
		{"y ~ (w | a/b:c)", "y ~ (1 + w | a) + (1 + w | a:b:c)"},
		{"y ~ (1 || a:b/c/d)", "y ~ (1 || a:b) + (1 || a:b:c) + (1 || a:b:c:d)"},
		{"y ~ (1 + a || b/c)", "y ~ (1 + a || b/c)"},
		{"y ~ (a*b | c) + (1 | d:w) + (1 | w:d)", "y ~ (1 + a + b + a:b | c) + (1 | d:w)"},
		{"y ~ (a - 1 | c) + (a || c)", "y ~ (0 + a | c) + (1 + a || c)"},
		{"y ~ (a - 1 | c) + (1 | c)", "y ~ (0 + a | c) + (1 | c)"},
		{"y ~ . + (a | b:c)", "y ~ a + d + w + (1 + a | b:c)"},
		{"y ~ (-1 + a | b/c) + (1 | b) + (1 | b)", "y ~ (0 + a | b/c) + (1 | b)"},
		{"y ~ 0", "y ~ 0"},
		{"y ~ I(a*b) + I( a * (b)) + log(a)", "y ~ I(a * b) + log(a)"},
		{"y ~ . + I(a^2)*b - 1 + offset(log(w))", "y ~ 0 + a + b + c + d + I(a^2) + I(a^2):b + " +
			"offset(log(w))"},
	} {
		f, err := Parse(c.text)
		if err != nil {
			t.Fatal(err)
		}
		r, err := f.Resolve(columns)
		if err != nil {
			t.Fatal(err)
		}
		if r.String() == c.want {
			continue
		}
		if r.NoIntercept != f.NoIntercept || strings.TrimPrefix(r.String(), "y ~ 0 + ") != c.want {
			t.Errorf("%s: %v, want %s", c.text, r, c.want)
		}
	}
	if _, err := (&Formula{Outcome: "z"}).Resolve(columns); err == nil {
		t.Error("a column that is not there")
	}
}

func FuzzParse(f *testing.F) {
	for _, c := range formulas {
		f.Add(c.text)
	}
	f.Add("y ~ a*b*c*d*e*f*g*h*i")
	for _, text := range []string{"y ~ (x | g)", "y ~ (x-1|a:b)", "y ~ (-1 + x || a/b/c)",
		"y ~ (x*z*`a b` + log(u) + poly(v,2) + f:x || g) + (1 | g)",
		"y ~ (1 | a:b) + (1 | b:a) + (0 + x | b:a)", "y ~ (1 || g/h) + (1 | g:h)",
		"y ~ (0 + factor(x)*f | g) + (f | h)", "y ~ -1 + I(--x^-2^.5e+3/(z-(a-`b c`))**2)",
		"y ~ f:log(x)*1", "y ~ (a + `b)|` + log(c))^2 + a/b/I(c/d) - 1",
		"y ~ (a+b)^3 + (a+b|g)",
		"`log(y)` / `I(n)` ~ (`I(x)`| `I(g)`:`log(h)`) + factor(`exp(x)`)", "y ~ `log(x)` + log(x) + `I( x )` + offset(exp(-t))",
		"y ~ . - `log(x)` + s(I(x/100), k=9) + poly(abs(x), 2) + (I(x)*sqrt(z) || g)"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(text)
		if err != nil {
			if !errors.Is(err, sentinel.ErrParam) {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		_ = p.Words()
		again, err := Parse(p.String())
		if err != nil {
			t.Fatalf("%q is printed as %q, which is no formula: %v", text, p, err)
		}
		if again.String() != p.String() {
			t.Fatalf("%q is printed as %q and then as %q", text, p, again)
		}
		r, err := p.Resolve(append(p.Columns(), "one more"))
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if err := r.Check(nil); err != nil {
			t.Fatalf("%q is resolved to %v: %v", text, r, err)
		}
	})
}

func ExampleParse() {
	f, err := Parse("churned ~ plan + s(age) + (1 | region)")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(f.Words())
	_, err = Parse("churned ~ plan + spline(age)")
	fmt.Println(err)
	// Output:
	// churned by plan; a smooth curve of age; an intercept for each region
	// formula: unknown function spline; use s, poly, factor, exposure, offset, weight, precision, I, log, log2, log10, log1p, exp, sqrt, abs, or add other functions to the table as columns
	//   churned ~ plan + spline(age)
	//                    ^
}

func ExampleFormula() {
	f := &Formula{
		Outcome:  "claims",
		Exposure: "years",
		Terms:    []Term{Cross{"age", "region"}, Group{By: []string{"insurer"}}},
	}
	fmt.Println(f)
	// Output:
	// claims ~ age*region + (1 | insurer) + exposure(years)
}
