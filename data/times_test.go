package data

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// columnFile returns a table with n rows of x and y.
func columnFile(n int, x func(i int) string) string { return ninesFile(n, x, "") }

// TestTimesAsNumbers checks that numbers that look like dates or times need a decision, that each
// choice suffices, and that other numbers need no decision.
func TestTimesAsNumbers(t *testing.T) {
	day := func(layout string, step int) func(int) string {
		return func(i int) string {
			return time.Date(2018, 1, 3, i%24, 7*i%60, 0, 0, time.UTC).AddDate(0, 0,
				i*step).Format(layout)
		}
	}
	for _, c := range []struct {
		name string
		n    int
		x    func(int) string
		want string // the first choice; "" for none
	}{
		{"days", 60, day("20060102", 3), `Date("x").Layout("20060102")`},
		{"few days", 8, day("20060102", 30), `Date("x").Layout("20060102")`},
		{"minutes", 60, day("200601021504", 3), `Date("x").Layout("200601021504")`},
		{"months", 60, day("200601", 31), `Date("x").Layout("200601")`},
		{"days and none", 60, func(i int) string {
			if i%30 == 7 {
				return "99999999"
			}
			return day("20060102", 3)(i)
		}, `Date("x").MissingAre("99999999").Layout("20060102").Impute()`},
		{"clock", 60, func(i int) string { return fmt.Sprint(i*7%24*100 + i*11%60) },
			`Number("x").Clock()`},
		{"no clock: few", 20, func(i int) string { return fmt.Sprint(i*7%24*100 + i*11%60) }, ""},
		{"no clock: 60 to 99", 60, func(i int) string { return fmt.Sprint(i * 37 % 2300) }, ""},
		{"no clock: multiples of 50", 60, func(i int) string { return fmt.Sprint(i * 50 % 2350) },
			""},
		{"no clock: one hour", 60, func(i int) string { return fmt.Sprint(100 + i) }, ""},
		{"no clock: counts", 60, func(i int) string { return fmt.Sprint(i * i % 59) }, ""},
		{"no months", 60, func(i int) string { return fmt.Sprint(201800 + i%14) }, ""},
		{"no days", 60, func(i int) string { return fmt.Sprint(20181220 + i%30) }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := tableOf(t, columnFile(c.n, c.x))
			s := table.Suggest("y")
			if c.want == "" {
				if text := fmt.Sprint(s); strings.Contains(text, "Date(") ||
					strings.Contains(text, "Clock") {
					t.Fatalf("suggests %s", text)
				}
				return
			}
			if len(s.Decisions) != 1 || len(s.Decisions[0].Choices) < 2 {
				t.Fatalf("suggests %v", s)
			}
			for k, choice := range s.Decisions[0].Choices {
				call := choice.Column.String()
				if k == 0 && call != "data."+c.want {
					t.Errorf("suggests %s, want %s", call, c.want)
				}
				if _, number := choice.Column.(NumberColumn); number &&
					strings.Contains(fmt.Sprint(s), "99999999") {
					continue // which asks about the nines
				}
				if left := table.Suggest("y", choice.Column); len(left.Decisions) > 0 {
					t.Errorf("%s leaves %v", call, left)
				}
				if _, err := table.Encoder(Outcome("y"), choice.Column); err != nil {
					t.Errorf("%s: %v", call, err)
				}
			}
			if left := table.Suggest("y", Number("x").NotMissing("99999999")); len(
				left.Decisions) > 0 {
				t.Errorf("a number that was declared leaves %v", left)
			}
		})
	}
}

// TestDateDigitsOfObjects checks that JSON numbers are dates if a Layout reads them.
func TestDateDigitsOfObjects(t *testing.T) {
	table := tableOf(t, `{"d": 20181231, "y": 1}`+"\n"+`{"d": 20190102, "y": 2.5}`+"\n"+
		`{"d": 20190103, "y": 3}`+"\n")
	e, err := table.Encoder(Date("d").Layout("20060102"), Outcome("y"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := e.Row(map[string]string{"d": "20190102"})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []any{[]byte(`{"d": 20190102}`), map[string]any{"d": 20190102},
		map[string]any{"d": 20190102.0}, map[string]any{"d": "2019-01-02"}} {
		if got, err := e.Row(row); err != nil || got.X[0] != want.X[0] {
			t.Errorf("%v: %v, %v, want %v", row, got, err, want)
		}
	}
}

// TestWeeks checks that ISO weeks are read as the dates of their Mondays.
func TestWeeks(t *testing.T) {
	for text, want := range map[string]string{
		"2018-W52": "2018-12-24", "2019-W01": "2018-12-31", "2020-W53": "2020-12-28",
		"2021W01": "2021-01-04", "2019-W01-3": "2019-01-02", "2015-W01": "2014-12-29",
		"2019-W53": "", "2019-W00": "", "2019-W1": "", "2019-W01-8": "", "2019-V01": "",
	} {
		day, ok := parseWeek(text)
		if got := day.Format(time.DateOnly); ok != (want != "") || ok && got != want {
			t.Errorf("%s is %s, %v, want %s", text, got, ok, want)
		}
	}
	table := tableOf(t, columnFile(60, func(i int) string {
		y, w := time.Date(2018, 1, 1+7*i, 0, 0, 0, 0, time.UTC).ISOWeek()
		return fmt.Sprintf("%d-W%02d", y, w)
	}))
	e, err := table.Encoder(Outcome("y"))
	if err != nil {
		t.Fatal(err)
	}
	if c := e.column("x"); c.Kind != kindDate || c.Max*yearSeconds != 59*7*24*3600 {
		t.Errorf("%+v", c)
	}
	if _, err := table.Encoder(Outcome("y"), Date("x").Layout("2006-W01")); err != nil {
		t.Error(err)
	}
	if _, err := e.Row(map[string]any{"x": "2018-W60"}); err == nil {
		t.Error("a week 60")
	}
}

// TestClock checks times of day in hours.
func TestClock(t *testing.T) {
	table := tableOf(t, columnFile(60, func(i int) string {
		return fmt.Sprint(i*7%24*100 + i*11%60)
	}))
	e, err := table.Encoder(Outcome("y"), Number("x").Clock().Raw())
	if err != nil {
		t.Fatal(err)
	}
	for v, want := range map[any]float64{"830": 8.5, 1745: 17.75, "0015": 0.25, 0.0: 0} {
		if r, err := e.Row(map[string]any{"x": v}); err != nil || r.X[0] != want {
			t.Errorf("%v is %v, %v, want %v", v, r, err, want)
		}
	}
	for _, v := range []any{"860", 2400, "-5", 8.5} {
		if r, err := e.Row(map[string]any{"x": v}); err == nil {
			t.Errorf("%v is %v", v, r)
		}
	}
}
