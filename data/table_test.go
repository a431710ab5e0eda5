package data

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/pgsvi/pgsvi"
	"github.com/pgsvi/pgsvi/internal/dense"
	"gonum.org/v1/gonum/mat"
)

const people = "age,colour,smokes,ill\n31,red,1,yes\n52,blue,0,no\n40,green,0,yes\n"

func TestReadTable(t *testing.T) {
	names := []string{"age", "colour=green", "colour=red", "smokes"}
	want := mat.NewDense(3, 4, []float64{31, 0, 1, 1, 52, 0, 0, 0, 40, 1, 0, 0})
	for name, c := range map[string]struct {
		in   string
		opts *TableOptions
	}{
		"plain":       {people, nil},
		"no newline":  {strings.TrimSpace(people), &TableOptions{}},
		"CRLF":        {strings.ReplaceAll(people, "\n", "\r\n"), nil},
		"byte order":  {"\ufeff" + people, nil},
		"gzip":        {string(zipped([]byte(people))), nil},
		"quoted":      {strings.ReplaceAll(people, "red", `"red"`), nil},
		"spaces":      {strings.ReplaceAll(people, ",", " ,\t"), nil},
		"blank lines": {"\n" + strings.ReplaceAll(people, "\n", "\n  \n\n"), nil},
		"semicolons":  {strings.ReplaceAll(people, ",", ";"), &TableOptions{Comma: ';'}},
		"tabs":        {strings.ReplaceAll(people, ",", "\t"), &TableOptions{Comma: '\t'}},
		"named":       {people, &TableOptions{Response: "ill", Positive: "yes"}},
		"first":       {"ill,age,colour,smokes\nyes,31,red,1\nno,52,blue,0\nyes,40,green,0\n", &TableOptions{Response: "ill"}},
		"dropped":     {"ID,age,colour,smokes,ill\na,31,red,1,yes\n?,52,blue,0,no\n,40,green,0,yes\n", &TableOptions{Drop: []string{"ID"}}},
		"one level":   {"age,colour,where,smokes,ill\n31,red,here,1,yes\n52,blue,here,0,no\n40,green,here,0,yes\n", nil},
		"missing rows": {"age,colour,smokes,ill\n31,red,1,yes\n,white,0,no\n52,blue,0,no\n40,NA,0,yes\n40,green,0,yes\n40,green,0,null\n5,grey,-,perhaps\n",
			&TableOptions{Missing: DropRows, NA: []string{"-"}}},
	} {
		table, err := ReadTable(strings.NewReader(c.in), c.opts)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, dense := table.X.(*mat.Dense); !dense || !mat.Equal(table.X, want) || !slices.Equal(table.Y, []float64{1, -1, 1}) {
			t.Errorf("%s: X = %v, Y = %v", name, mat.Formatted(table.X), table.Y)
		}
		if !slices.Equal(table.Names, names) || table.Response != "ill" || !slices.Equal(table.Labels, []string{"no", "yes"}) {
			t.Errorf("%s: names %v, response %s, labels %v", name, table.Names, table.Response, table.Labels)
		}
		dropped, missing := 0, map[string]int{}
		if name == "missing rows" {
			dropped, missing = 4, map[string]int{"age": 1, "colour": 1, "smokes": 1, "ill": 1}
		}
		if table.Dropped != dropped || !maps.Equal(table.Missing, missing) {
			t.Errorf("%s: %d dropped, missing %v", name, table.Dropped, table.Missing)
		}
	}
}

func TestReadTableColumns(t *testing.T) {
	for name, c := range map[string]struct {
		in     string
		opts   TableOptions
		names  []string
		x, y   []float64
		labels []string
	}{
		"no header":        {"1,2,0\n3,4,1\n", TableOptions{}, []string{"x1", "x2"}, []float64{1, 2, 3, 4}, []float64{0, 1}, nil},
		"no header, first": {"1,2,0\n3,4,1\n", TableOptions{Response: "x1"}, []string{"x2", "y"}, []float64{2, 0, 4, 1}, []float64{1, 3}, nil},
		"missing in first": {"1,?,0\n3,4,1\n5,6,7\n", TableOptions{Missing: DropRows}, []string{"x1", "x2"}, []float64{3, 4, 5, 6}, []float64{1, 7}, nil},
		"told there is none": {"a,1,p\nb,2,q\n", TableOptions{Header: HeaderNo},
			[]string{"x1=b", "x2"}, []float64{0, 1, 1, 2}, []float64{-1, 1}, []string{"p", "q"}},
		"told there is one":  {"2019,2020,y\n1,2,3\n4,5,6\n", TableOptions{Header: HeaderYes}, []string{"2019", "2020"}, []float64{1, 2, 4, 5}, []float64{3, 6}, nil},
		"nameless":           {",b,y\n1,2,3\n4,5,6\n", TableOptions{}, []string{"x1", "b"}, []float64{1, 2, 4, 5}, []float64{3, 6}, nil},
		"nameless dropped":   {",b,y\n1,2,3\n4,5,6\n", TableOptions{Drop: []string{"x1"}}, []string{"b"}, []float64{2, 5}, []float64{3, 6}, nil},
		"categorical":        {"a,y\n10,1\n9,2\n10,3\n", TableOptions{Categorical: []string{"a"}}, []string{"a=9"}, []float64{0, 1, 0}, []float64{1, 2, 3}, nil},
		"one odd":            {"a,y\n1,1\nx,2\n2,3\n", TableOptions{}, []string{"a=2", "a=x"}, []float64{0, 0, 0, 1, 1, 0}, []float64{1, 2, 3}, nil},
		"positive":           {"a,y\n1,no\n2,yes\n", TableOptions{Positive: "no"}, []string{"a"}, []float64{1, 2}, []float64{1, -1}, []string{"yes", "no"}},
		"positive number":    {"a,y\n1,2\n2,1\n", TableOptions{Positive: "1"}, []string{"a"}, []float64{1, 2}, []float64{-1, 1}, []string{"2", "1"}},
		"response as text":   {"a,y\n1,2\n2,1\n", TableOptions{Categorical: []string{"y"}}, []string{"a"}, []float64{1, 2}, []float64{1, -1}, []string{"1", "2"}},
		"counts":             {"a,y\n1,2\n2,7\n3,0\n", TableOptions{}, []string{"a"}, []float64{1, 2, 3}, []float64{2, 7, 0}, nil},
		"quotes and commas":  {"\"a,b\",\"y\"\"\"\n\"p,\nq\",1\nr,2\n", TableOptions{}, []string{"a,b=r"}, []float64{0, 1}, []float64{1, 2}, nil},
		"empty tab":          {"a\tb\ty\n1\t\t3\n4\t5\t6\n7\t8\t9\n", TableOptions{Comma: '\t', Missing: DropRows}, []string{"a", "b"}, []float64{4, 5, 7, 8}, []float64{6, 9}, nil},
		"case of NaN, NULL":  {"a,y\nNULL,1\nnan,2\n3,3\n4,4\n", TableOptions{Missing: DropRows}, []string{"a"}, []float64{3, 4}, []float64{3, 4}, nil},
		"sodium is no gap":   {"a,y\nNa,1\nK,2\n", TableOptions{}, []string{"a=Na"}, []float64{1, 0}, []float64{1, 2}, nil},
		"most levels":        {"a,y\np,1\nq,2\nr,3\n", TableOptions{MaxLevels: 3}, []string{"a=q", "a=r"}, []float64{0, 0, 1, 0, 0, 1}, []float64{1, 2, 3}, nil},
		"infinite, but text": {"a,y\ninf,1\nx,2\n", TableOptions{}, []string{"a=x"}, []float64{0, 1}, []float64{1, 2}, nil},
	} {
		table, err := ReadTable(strings.NewReader(c.in), &c.opts)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !slices.Equal(table.Names, c.names) || !mat.Equal(table.X, mat.NewDense(len(c.y), len(c.names), c.x)) || !slices.Equal(table.Y, c.y) || !slices.Equal(table.Labels, c.labels) {
			t.Errorf("%s: names %v, X = %v, Y = %v, labels %v", name, table.Names, mat.Formatted(table.X), table.Y, table.Labels)
		}
	}
}

func TestReadTableErrors(t *testing.T) {
	for _, c := range []struct {
		in   string
		opts TableOptions
		want error
		says string
	}{
		{"", TableOptions{}, pgsvi.ErrEmpty, "without a line of data"},
		{"a,b,y\n\n", TableOptions{}, pgsvi.ErrEmpty, "without a line of data"},
		{"a,b\n1,2,3\n", TableOptions{}, pgsvi.ErrShape, "line 2 has 3 fields, want 2"},
		{"a,b,a\n1,2,3\n", TableOptions{}, pgsvi.ErrShape, `line 1: two columns are named "a"`},
		{"a,,x2\n1,2,3\n", TableOptions{}, pgsvi.ErrShape, `two columns are named "x2"`},
		{"a,b\n1,\"2\n", TableOptions{}, pgsvi.ErrShape, "line 2"},
		{"a,b\n1,2\"\n", TableOptions{}, csv.ErrBareQuote, "line 2"},
		{"y\n1\n2\n", TableOptions{}, pgsvi.ErrShape, `no column with different values besides "y"`},
		{"a,y\nx,1\nx,2\n", TableOptions{}, pgsvi.ErrShape, `no column with different values besides "y"`},
		{"5.1,3.5,setosa\n", TableOptions{}, pgsvi.ErrParam, `line 1 has "setosa", as names of columns do, and the number "3.5"`},
		{"a,y\n1,2\n\ninf,3\n", TableOptions{}, pgsvi.ErrNotFinite, `line 4, column "a": found "inf"`},
		{"a,y\n1,2\n3,1e999\n", TableOptions{}, pgsvi.ErrNotFinite, `line 3, column "y": found "1e999"`},
		{"a,b,y\n1,2,0\n\n?,3,1\n,NA,null\n", TableOptions{}, pgsvi.ErrNotFinite, `line 4 has the first of 4 missing values in 3 columns (2 of "a", 1 of "b", 1 of "y")`},
		{"a,b,c,d,e,f,y\n,,,,,,\n", TableOptions{}, pgsvi.ErrNotFinite, `7 missing values in 7 columns (1 of "a", 1 of "b", 1 of "c", 1 of "d", 1 of "e", …)`},
		{"a,y\n1,2\n?,0\ninf,3\n", TableOptions{Missing: DropRows}, pgsvi.ErrNotFinite, `line 4, column "a": found "inf"`},
		{"a,y\n?,0\n", TableOptions{Missing: DropRows}, pgsvi.ErrEmpty, "no missing value"},
		{"a,y\n1,p\n2,q\n3,r\n", TableOptions{}, pgsvi.ErrLabel, `line 2, column "y": found the response "p", but there are 3 different`},
		{"a,y\n1,1\n2,q\n3,2\n", TableOptions{}, pgsvi.ErrLabel, `line 3, column "y": found the response "q", but there are 3 different`},
		{"a,y\n1,p\n2,p\n", TableOptions{}, pgsvi.ErrLabel, "there are 1 different"},
		{"a,y\n1,p\n2,q\n", TableOptions{Positive: "r"}, pgsvi.ErrParam, `Positive is "r", but column "y" has "p" and "q"`},
		{"a,y\n1,p\n2,q\n", TableOptions{Response: "z"}, pgsvi.ErrParam, `no column "z"`},
		{"a,y\n1,p\n2,q\n", TableOptions{Drop: []string{"z"}}, pgsvi.ErrParam, `no column "z"`},
		{"a,y\n1,p\n2,q\n", TableOptions{Categorical: []string{"z"}}, pgsvi.ErrParam, `no column "z"`},
		{"a,y\n1,p\n2,q\n", TableOptions{Drop: []string{"y"}}, pgsvi.ErrParam, `"y", of the responses, is among those to drop`},
		{"a,y\n1,1\n2,2\nx,3\n", TableOptions{MaxLevels: 2}, pgsvi.ErrParam, `line 4, column "a": found "x", so it is categorical, but it has 3`},
		{"a,y\n1,2\n", TableOptions{Comma: '"'}, pgsvi.ErrParam, "Comma"},
		{"a,y\n1,2\n", TableOptions{Comma: '\n'}, pgsvi.ErrParam, "Comma"},
		{"a,y\n1,2\n", TableOptions{Comma: -1}, pgsvi.ErrParam, "Comma"},
		{"a,y\n1,2\n", TableOptions{MaxLevels: -1}, pgsvi.ErrParam, "MaxLevels is -1"},
		{"a,y\n1,2\n", TableOptions{Header: 3}, pgsvi.ErrParam, "Header is 3"},
		{"a,y\n1,2\n", TableOptions{Missing: 2}, pgsvi.ErrParam, "Missing is 2"},
	} {
		table, err := ReadTable(strings.NewReader(c.in), &c.opts)
		if table != nil || !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) || !strings.HasPrefix(err.Error(), "pgsvi: ") {
			t.Errorf("%q: %v, error %q, want %q that is %q", c.in, table, err, c.says, c.want)
		}
	}
	if _, err := ReadTable(io.MultiReader(strings.NewReader("a,b\n3,"), iotest.ErrReader(io.ErrClosedPipe)), nil); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("failing reader: %v", err)
	}
}

// TestTableKept: with rows dropped, Kept says which rows of the file the rows of X are.
func TestTableKept(t *testing.T) {
	in := "age,colour,ill\n31,red,yes\n\n?,red,no\n52,blue,no\n40,,yes\n28,red,yes\n"
	train, err := ReadTable(strings.NewReader(in), &TableOptions{Missing: DropRows})
	if err != nil || !slices.Equal(train.Kept, []int{0, 2, 4}) || train.Dropped != 2 {
		t.Fatalf("kept %v, dropped %d, %v", train.Kept, train.Dropped, err)
	}
	customers := []string{"a", "b", "c", "d", "e"}
	test, err := train.Encode(strings.NewReader("colour,age\n?,1\nred,2\nblue,?\nblue,4\nred,5\n"))
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := test.X.Dims(); n != len(test.Kept) || n+test.Dropped != len(customers) {
		t.Errorf("%d rows of X, %d kept, %d dropped", n, len(test.Kept), test.Dropped)
	}
	var of []string
	for i, k := range test.Kept {
		of = append(of, fmt.Sprint(customers[k], test.X.At(i, 0)))
	}
	if !slices.Equal(of, []string{"b2", "d4", "e5"}) {
		t.Errorf("predictions are of %v", of)
	}
	if !slices.Equal(train.Kept, []int{0, 2, 4}) {
		t.Errorf("Encode has changed Kept to %v", train.Kept)
	}
	whole, err := ReadTable(strings.NewReader(people), nil)
	if err != nil || !slices.Equal(whole.Kept, []int{0, 1, 2}) {
		t.Errorf("no row dropped: kept %v, %v", whole.Kept, err)
	}
}

// TestTableIdentifiers: columns of identifiers and dates are refused, each by its name and number
// of categories, unless they are asked for.
func TestTableIdentifiers(t *testing.T) {
	var in strings.Builder
	in.WriteString("customer,since,until,size,plan,y\n")
	for i := range 1000 {
		fmt.Fprintf(&in, "K%05d,2024-%02d-%02d,%d.%d.2025 12:30,%d,%c,%d\n", i*7%876, i%12+1, i%28+1, i%28+1, i%12+1, i, 'a'+rune(i%26), i%2)
	}
	_, err := ReadTable(strings.NewReader(in.String()), nil)
	if !errors.Is(err, pgsvi.ErrParam) || strings.Count(err.Error(), "pgsvi: ") != 1 {
		t.Fatalf("error %v", err)
	}
	for _, says := range []string{`line 2, column "customer": found "K00000"`, "876 categories in 1000 rows", `column "since"`, "dates, 84 different", `column "until"`, "TableOptions.Drop"} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("%v does not say %q", err, says)
		}
	}
	for _, says := range []string{`"plan"`, `"size"`} {
		if strings.Contains(err.Error(), says) {
			t.Errorf("%v refuses %s", err, says)
		}
	}
	table, err := ReadTable(strings.NewReader(in.String()), &TableOptions{Drop: []string{"customer", "since", "until"}})
	if err != nil || len(table.Names) != 26 {
		t.Errorf("dropped: %v, %v", table, err)
	}
	table, err = ReadTable(strings.NewReader(in.String()), &TableOptions{Categorical: []string{"customer", "since", "until"}})
	if err != nil || len(table.Names) != 875+83+83+26 {
		t.Errorf("meant: %v", err)
	}
	if _, err = ReadTable(strings.NewReader(in.String()), &TableOptions{Drop: []string{"since", "until"}, MaxLevels: 876}); err != nil {
		t.Errorf("so many: %v", err)
	}
	if _, err = ReadTable(strings.NewReader(in.String()), &TableOptions{Drop: []string{"since", "until"}, MaxLevels: 875}); !errors.Is(err, pgsvi.ErrParam) {
		t.Errorf("too many: %v", err)
	}
	// Few rows with few levels, texts with some dates among them, and a constant date are none of
	// this.
	for _, in := range []string{
		"a,b,y\n1,p,1\n2,q,2\n3,r,3\n",
		"a,b,y\n1,2024-01-01,1\n2,never,2\n3,2024-01-03,3\n",
		"a,b,y\n1,2024-01-01,1\n2,2024-01-01,2\n",
		"a,b,y\n1,18-25,1\n2,26-39,2\n3,40+,3\n",
	} {
		if _, err := ReadTable(strings.NewReader(in), nil); err != nil {
			t.Errorf("%q: %v", in, err)
		}
	}
	for _, date := range []string{"2024-01-31", "31.1.2024", "1/31/2024", "31/1/24", "31-Jan-2024", "Jan 31, 2024", "2024-01-31T10:11:12Z", "2024-01-31 10:11:12", "Jan 2024", "2024-01"} {
		if _, err := ReadTable(strings.NewReader("b;y\n"+date+";1\n"+strings.ReplaceAll(date, "2024", "2025")+";2\n"+strings.ReplaceAll(date, "24", "23")+";2\n"), &TableOptions{Comma: ';'}); !errors.Is(err, pgsvi.ErrParam) || !strings.Contains(err.Error(), "it has dates") {
			t.Errorf("%s: %v", date, err)
		}
	}
}

// TestTableDoubts: columns of numbers that look like identifiers, codes or dates are read, and
// named.
func TestTableDoubts(t *testing.T) {
	column := func(rows int, f func(i int) any) string {
		var in strings.Builder
		in.WriteString("a,y\n")
		for i := range rows {
			fmt.Fprintf(&in, "%v,%d\n", f(i), i*7%10)
		}
		return in.String()
	}
	for name, c := range map[string]struct{ in, want string }{
		"identifiers":      {column(30, func(i int) any { return 1000 + i*i }), "identifiers: they are 30 whole numbers from \"1000\" on"},
		"row numbers":      {column(10, func(i int) any { return i }), "identifiers"},
		"too few":          {column(9, func(i int) any { return i }), ""},
		"one falls":        {column(30, func(i int) any { return i * (29 - i) }), ""},
		"one twice":        {column(30, func(i int) any { return max(i, 1) }), ""},
		"not whole":        {column(30, func(i int) any { return float64(i) + 0.5 }), ""},
		"dates":            {column(30, func(i int) any { return 20240100 + i*7%30 + 1 }), "dates: they are numbers such as \"20240101\""},
		"rising dates":     {column(30, func(i int) any { return 20240101 + i }), "dates"},
		"minutes":          {column(30, func(i int) any { return 202401011200 + int64(i*7%30) }), "dates"},
		"seconds":          {column(30, func(i int) any { return 20240101120000 + int64(i*7%30) }), "dates"},
		"no such day":      {column(30, func(i int) any { return 20240200 + i*7%31 + 1 }), ""},
		"another age":      {column(30, func(i int) any { return 99990101 + i*7%30 }), ""},
		"years":            {column(30, func(i int) any { return 1990 + i*7%30 }), ""},
		"postal codes":     {column(30, func(i int) any { return fmt.Sprintf("%05d", 9000+i*211%7000) }), "codes: \"09000\" has a 0 in front"},
		"zero":             {column(30, func(i int) any { return i % 2 }), ""},
		"below one":        {column(30, func(i int) any { return float64(i*7%30) / 30 }), ""},
		"card numbers":     {column(30, func(i int) any { return 4000123412341234 + int64(i*7%30) }), "codes"},
		"negative, rising": {column(30, func(i int) any { return i - 15 }), "identifiers"},
	} {
		table, err := ReadTable(strings.NewReader(c.in), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := table.Doubts["a"]; (got == "") != (c.want == "") || !strings.HasPrefix(got, c.want) || len(table.Doubts) > 1 || (table.Doubts == nil) != (c.want == "") {
			t.Errorf("%s: %q, want %q", name, table.Doubts, c.want)
		}
		if len(table.Names) != 1 || table.Names[0] != "a" {
			t.Errorf("%s: names %q", name, table.Names)
		}
		if test, err := table.Encode(strings.NewReader(c.in)); err != nil || test.Doubts != nil {
			t.Errorf("%s: encoded %v, %v", name, test, err)
		}
	}
	ids := column(30, func(i int) any { return i })
	if table, err := ReadTable(strings.NewReader(ids), &TableOptions{Categorical: []string{"a"}}); err != nil || table.Doubts != nil {
		t.Errorf("categorical: %v, %v", table, err)
	}
	two := strings.NewReplacer("\n", ",1\n", "a,y", "a,b").Replace(ids)
	if table, err := ReadTable(strings.NewReader(strings.Replace(two, "a,b,1", "a,b,y", 1)), &TableOptions{Drop: []string{"a"}}); err != nil || table.Doubts != nil {
		t.Errorf("dropped: %v, %v", table, err)
	}
}

func TestReadTableSparse(t *testing.T) {
	var in strings.Builder
	in.WriteString("state,x,y\n")
	const levels = 40
	for i := range 4 * levels {
		fmt.Fprintf(&in, "s%02d,%d,%d\n", i%levels, i, i)
	}
	table, err := ReadTable(strings.NewReader(in.String()), nil)
	if err != nil {
		t.Fatal(err)
	}
	x, sparse := table.X.(*pgsvi.Sparse)
	if !sparse {
		t.Fatalf("X is a %T", table.X)
	}
	if n, d := x.Dims(); n != 4*levels || d != levels || x.NNZ() != 4*(levels-1)+4*levels-1 {
		t.Errorf("%d×%d with %d non-zeros", n, d, x.NNZ())
	}
	for i := range 4 * levels {
		for j := range levels {
			want := 0.
			if j == levels-1 {
				want = float64(i)
			} else if j == i%levels-1 {
				want = 1
			}
			if x.At(i, j) != want {
				t.Fatalf("(%d, %d) is %v, want %v", i, j, x.At(i, j), want)
			}
		}
	}
	// Test data stay what the training data are, however dense.
	test, err := table.Encode(strings.NewReader("state,x\ns01,3\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, sparse := test.X.(*pgsvi.Sparse); !sparse || test.X.At(0, 0) != 1 || test.X.At(0, levels-1) != 3 {
		t.Errorf("X of Encode is a %T", test.X)
	}
}

func TestTableEncode(t *testing.T) {
	train, err := ReadTable(strings.NewReader(people), &TableOptions{Positive: "no"})
	if err != nil {
		t.Fatal(err)
	}
	want := mat.NewDense(2, 4, []float64{20, 0, 0, 1, 0.5, 1, 0, 3})
	for name, c := range map[string]struct {
		in string
		y  []float64
	}{
		"same order":  {"age,colour,smokes,ill\n20,blue,1,yes\n0.5,green,3,no\n", []float64{-1, 1}},
		"other order": {"ill,extra,smokes,colour,age\nyes,?,1,blue,20\nno,,3,green,0.5\n", []float64{-1, 1}},
		"one label":   {"age,colour,smokes,ill\n20,blue,1,no\n0.5,green,3,no\n", []float64{1, 1}},
		"no response": {"age,colour,smokes\n20,blue,1\n0.5,green,3\n", nil},
	} {
		test, err := train.Encode(strings.NewReader(c.in))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !mat.Equal(test.X, want) || !slices.Equal(test.Y, c.y) || (test.Y == nil) != (c.y == nil) ||
			!slices.Equal(test.Names, train.Names) || !slices.Equal(test.Labels, []string{"yes", "no"}) || test.Response != "ill" {
			t.Errorf("%s: X = %v, Y = %v, %v, %v", name, mat.Formatted(test.X), test.Y, test.Names, test.Labels)
		}
	}
	for _, c := range []struct {
		in   string
		want error
		says string
	}{
		{"age,colour,smokes,ill\n1,white,1,no\n", pgsvi.ErrParam, `line 2, column "colour": found the unknown category "white"`},
		{"age,colour,smokes,ill\n1,red,1,no\n1,red,1,perhaps\n", pgsvi.ErrLabel, `line 3, column "ill": found the response "perhaps", want "yes" or "no"`},
		{"age,smokes,ill\n1,1,no\n", pgsvi.ErrShape, `no column "colour"`},
		{"age,colour,smokes,ill\nold,red,1,no\n", pgsvi.ErrNotFinite, `line 2, column "age": found "old"`},
		{"age,colour,smokes,ill\n1,?,1,no\n", pgsvi.ErrNotFinite, `1 missing values in 1 columns (1 of "colour")`},
		{"age,colour,smokes,ill\n", pgsvi.ErrEmpty, "without a line of data"},
		{"1,red,2,no\n", pgsvi.ErrEmpty, "without a line of data"},
	} {
		if test, err := train.Encode(strings.NewReader(c.in)); test != nil || !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: error %v, want %q", c.in, err, c.says)
		}
	}

	// Without names, with rows dropped and an option that is changed meanwhile.
	na := []string{"-"}
	train, err = ReadTable(strings.NewReader("1,a,0\n2,b,1\n-,a,1\n"), &TableOptions{Header: HeaderNo, NA: na, Missing: DropRows})
	if err != nil {
		t.Fatal(err)
	}
	na[0] = "!"
	test, err := train.Encode(strings.NewReader("5,b,7\n-,a,0\n6,-,0\n7,a,0\n"))
	if err != nil || !mat.Equal(test.X, mat.NewDense(2, 2, []float64{5, 1, 7, 0})) || test.Dropped != 2 || test.Missing["x1"] != 1 || test.Missing["x2"] != 1 || test.Y[0] != 7 {
		t.Errorf("%+v, %v", test, err)
	}
	if train.Dropped != 1 || len(train.Missing) != 1 {
		t.Errorf("Encode has changed the table: %+v", train)
	}
	if _, err := train.Encode(strings.NewReader("5,b\n")); !errors.Is(err, pgsvi.ErrShape) || !strings.Contains(err.Error(), "line 1 has 2 fields, want 3") {
		t.Errorf("fewer columns: %v", err)
	}
}

func TestTableSigns(t *testing.T) {
	read := func(in string) *Table {
		t.Helper()
		table, err := ReadTable(strings.NewReader(in), nil)
		if err != nil {
			t.Fatal(err)
		}
		return table
	}
	for _, c := range []struct {
		low, high string
	}{{"0", "1"}, {"1", "2"}, {"-1", "1"}, {"0.5", "10"}} {
		table := read("a,y\n1," + c.high + "\n2," + c.low + "\n3," + c.high + "\n")
		for range 2 {
			if err := table.Signs(); err != nil || !slices.Equal(table.Y, []float64{1, -1, 1}) || !slices.Equal(table.Labels, []string{c.low, c.high}) {
				t.Errorf("%v: %v, %v, %v", c, table.Y, table.Labels, err)
			}
			if test, err := table.Encode(strings.NewReader("a,y\n1," + c.low + ".0\n2," + c.low + ".0\n")); c.low != "0.5" && (err != nil || !slices.Equal(test.Y, []float64{-1, -1})) {
				t.Errorf("%v: Encode: %v", c, err)
			}
		}
		if _, err := table.Encode(strings.NewReader("a,y\n1,7\n")); !errors.Is(err, pgsvi.ErrLabel) || !strings.Contains(err.Error(), `line 2, column "y": found the response "7", want`) {
			t.Errorf("%v: Encode of another: %v", c, err)
		}
	}
	table := read(people)
	if err := table.Signs(); err != nil || !slices.Equal(table.Y, []float64{1, -1, 1}) || table.Labels[1] != "yes" {
		t.Errorf("texts: %v, %v", table.Y, err)
	}
	for _, in := range []string{"a,y\n1,0\n2,1\n3,2\n", "a,y\n1,0\n2,0\n"} {
		table := read(in)
		before := slices.Clone(table.Y)
		if err := table.Signs(); !errors.Is(err, pgsvi.ErrLabel) || !slices.Equal(before, table.Y) || table.Labels != nil {
			t.Errorf("%q: %v, %v", in, table.Y, err)
		}
	}
	if err := new(Table).Signs(); !errors.Is(err, pgsvi.ErrLabel) {
		t.Errorf("no responses: %v", err)
	}
}

// FuzzReadTable checks that whatever is accepted is rectangular and finite with
// categories that are exclusive, that the file itself is encoded to the same, and
// that numbers are those of ReadCSV.
func FuzzReadTable(f *testing.F) {
	for _, s := range []string{"", people, "1,2\n3,4\n", "\ufeffa,b\r\n1,\"x\"\r\n\n2,y", "a,y\n?,1\nNaN,2\n3,3\n", ",a\n1,2\n2,3", "a,a\n1,2", "a\n1", "1,x\n2,y\n", "a,y\n1,p\n2,q\n3,p\n", string(zipped([]byte(people)))} {
		f.Add([]byte(s), byte(','), uint8(0))
		f.Add([]byte(s), byte(';'), uint8(7))
	}
	f.Fuzz(func(t *testing.T, in []byte, comma byte, kind uint8) {
		opts := &TableOptions{Comma: rune(comma), Missing: MissingPolicy(kind % 2), Header: HeaderPolicy(kind / 2 % 3)}
		table, err := ReadTable(bytes.NewReader(in), opts)
		x, y, err2 := ReadCSV(bytes.NewReader(in))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "pgsvi: ") {
				t.Fatalf("error %q without prefix", err)
			}
			return
		}
		n, d := table.X.Dims()
		if n == 0 || d == 0 || n != len(table.Y) || d != len(table.Names) {
			t.Fatalf("%d×%d, %d responses, %d names", n, d, len(table.Y), len(table.Names))
		}
		if (table.Dropped > 0) != (len(table.Missing) > 0) {
			t.Fatalf("%d dropped, missing %v", table.Dropped, table.Missing)
		}
		for i := range n {
			row := mat.Row(nil, i, table.X)
			if _, ok := dense.AllFinite(append(row, table.Y[i])); !ok || table.Labels != nil && math.Abs(table.Y[i]) != 1 {
				t.Fatalf("row %d is %v, %v", i, row, table.Y[i])
			}
			for _, c := range table.columns {
				if sum := 0.; c.levels != nil {
					for k := range len(c.levels) - 1 {
						sum += row[c.at+k]
					}
					if sum != 0 && sum != 1 {
						t.Fatalf("row %d has %v categories of %s", i, sum, c.name)
					}
				}
			}
		}
		again, err := table.Encode(bytes.NewReader(in))
		if err != nil || !mat.Equal(again.X, table.X) || !slices.Equal(again.Y, table.Y) || again.Dropped != table.Dropped || !maps.Equal(again.Missing, table.Missing) {
			t.Fatalf("encoded to something else: %v", err)
		}
		if err2 == nil && comma == ',' && opts.Header == HeaderAuto && (!mat.Equal(x, table.X) || !slices.Equal(y, table.Y)) {
			t.Fatalf("ReadCSV has %v, %v", mat.Formatted(x), y)
		}
	})
}

func BenchmarkReadTable(b *testing.B) {
	for name, line := range map[string]string{
		"numbers":    "0.25,-1.7352,3e-05,0.123456789012345,12.5,0.077,%d\n",
		"categories": "39,State-gov,77516,Bachelors,13,Never-married,Adm-clerical,%d\n",
	} {
		b.Run(name, func(b *testing.B) {
			var in strings.Builder
			for i := range 10000 {
				fmt.Fprintf(&in, line, i%50)
			}
			b.SetBytes(int64(in.Len()))
			for b.Loop() {
				if _, err := ReadTable(strings.NewReader(in.String()), &TableOptions{Header: HeaderNo}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A table whose separator is another one says so.
func TestReadTableSeparator(t *testing.T) {
	_, err := ReadTable(strings.NewReader("a;b;y\n1;2;0\n2;1;1\n"), nil)
	if !errors.Is(err, pgsvi.ErrShape) || !strings.Contains(err.Error(), "TableOptions.Comma") {
		t.Errorf("%v", err)
	}
}
