package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pgsvi/pgsvi/internal/save"
	"github.com/pgsvi/pgsvi/internal/testkit"
)

// asCommand is the environment variable of a test process that runs the command.
const asCommand = "PGSVI_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	os.Exit(m.Run())
}

// process runs the command in a separate process.
func process(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, args...)
	c.Env = append(os.Environ(), asCommand+"=1")
	var out, said bytes.Buffer
	c.Stdout, c.Stderr = &out, &said
	err = c.Run()
	return out.String(), said.String(), err
}

// write writes a file into a folder.
func write(t *testing.T, dir, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// records parses CSV.
func records(t *testing.T, text string) [][]string {
	t.Helper()
	all, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// customers holds rows to predict: the third has a plan that training has not seen, the fifth has
// no age, and the seventh has an age that is not a number.
var customers = [][]string{
	{"plan", "age", "since"},
	{"basic", "31", "2020-03-01"}, {"gold", "44,5", "2019-11-12"}, {"silver", "52", "2021-01-05"},
	{"basic", "28", "2020-07-30"}, {"gold", "", "2020-02-02"}, {"basic", "61", "2019-05-17"},
	{"basic", "old", "2020-10-10"}, {"gold", "39", "2021-06-21"},
}

// table returns rows with some of their columns, in the given order, separated by semicolons.
func table(rows [][]string, columns ...int) string {
	var b strings.Builder
	for _, r := range rows {
		for i, j := range columns {
			if i > 0 {
				b.WriteByte(';')
			}
			b.WriteString(r[j])
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// trained returns a folder and the file of a churn model in it.
func trained(t *testing.T) (dir, model string) {
	t.Helper()
	text, err := churn()
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	return dir, write(t, dir, "churn.pgsvi", string(text))
}

// churn fits a churn model once and returns its file.
var churn = sync.OnceValues(func() (file []byte, err error) {
	dir, err := os.MkdirTemp("", "churn")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	rng := rand.New(rand.NewPCG(5, 5))
	var b strings.Builder
	b.WriteString("since;plan;age;churned\n")
	for i := range 200 {
		age, plan := 20+45*rng.Float64(), []string{"gold", "basic"}[rng.IntN(2)]
		churned := "no"
		if rng.Float64() < 1/(1+math.Exp((age-40)/8)) {
			churned = "yes"
		}
		text := strings.Replace(fmt.Sprintf("%.1f", age), ".", ",", 1)
		if i%50 == 7 {
			text = ""
		}
		fmt.Fprintf(&b, "20%02d-%02d-%02d;%s;%s;%s\n", 19+i%3, 1+i%12, 1+i%28, plan, text, churned)
	}
	path, columns, model := filepath.Join(dir, "churn.csv"), filepath.Join(dir, "columns.txt"),
		filepath.Join(dir, "churn.pgsvi")
	if err := errors.Join(os.WriteFile(path, []byte(b.String()), 0o644), os.WriteFile(columns,
		[]byte("Outcome(\"churned\").Positive(\"yes\")\nCategory(\"plan\").New()\n"+
			"Number(\"age\").Impute()\n"), 0o644)); err != nil {
		return nil, err
	}
	var said bytes.Buffer
	c := &command{ctx: context.Background(), stdout: io.Discard, stderr: &said}
	if status := c.run([]string{"fit", path, "-formula", "churned ~ .", "-columns", columns, "-o",
		model}); status != 0 {
		return nil, fmt.Errorf("fit: %d: %s", status, said.String())
	}
	return os.ReadFile(model)
})

// TestCustomers predicts eight customers. Each has its own answer, note or error, whatever the
// order of the columns, and another process returns the same bits.
func TestCustomers(t *testing.T) {
	dir, model := trained(t)
	path := write(t, dir, "customers.csv", table(customers, 0, 1, 2))
	status, out, stderr := run(t, "predict", model, path)
	if status != 3 || !strings.Contains(stderr, "rows=8 errors=1") {
		t.Fatalf("%d %s", status, stderr)
	}
	answers := records(t, out)
	if len(answers) != 9 {
		t.Fatalf("%d lines", len(answers))
	}
	notes := map[int]string{3: `"plan"="silver" is new`, 5: `"age" is missing and replaced by the mean`,
		7: `"old" is not a number`}
	for i, r := range answers[1:] {
		note := notes[i+1]
		if !strings.Contains(r[4], note) || (note == "") != (r[4] == "") ||
			(i+1 == 7) != (r[1] == "") {
			t.Errorf("row %d: %q, want %q", i+1, r, note)
		}
	}
	swapped := write(t, dir, "swapped.csv", table(customers, 2, 1, 0))
	_, other, _ := run(t, "predict", model, swapped)
	if !slices.EqualFunc(records(t, other)[1:7], answers[1:7], slices.Equal[[]string]) {
		t.Errorf("columns in another order:\n%s\nwant\n%s", other, out)
	}
	own, stderr, err := process(t, "predict", model, path)
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 3 || own != out {
		t.Errorf("another process: %v %s\n%s\nwant\n%s", err, stderr, own, out)
	}
	lacking := write(t, dir, "lacking.csv", table(customers, 0, 2))
	if status, out, stderr := run(t, "predict", model, lacking); status != 1 ||
		strings.Count(out, "\n") > 1 ||
		!strings.Contains(stderr, `the table has no column "age"`) {
		t.Errorf("a column short: %d %s%s", status, out, stderr)
	}
}

// TestDamagedModels checks that a model that is truncated, newer, or from another program is an
// error that gives the reason.
func TestDamagedModels(t *testing.T) {
	dir, model := trained(t)
	good, err := os.ReadFile(model)
	if err != nil {
		t.Fatal(err)
	}
	var later, other bytes.Buffer
	for kind, to := range map[string]*bytes.Buffer{"Predictor": &later, "CTMPosterior": &other} {
		if err := (save.Kind{Name: kind, Version: 9}).Write(to,
			[]byte("of a later release")); err != nil {
			t.Fatal(err)
		}
	}
	changed := bytes.Clone(good)
	changed[len(changed)/2] ^= 1
	path := write(t, dir, "customers.csv", table(customers, 0, 1, 2))
	for name, c := range map[string]struct{ text, says string }{
		"cut":     {string(good[:len(good)-300]), "it ends after"},
		"half":    {string(good[:len(good)/2]), "it ends after"},
		"longer":  {string(good) + "x", "it has extra bytes after its end"},
		"changed": {string(changed), "its checksum is"},
		"later": {later.String(),
			"it has version 9, and this release reads versions up to 1; use a newer release"},
		"topics": {other.String(), "it holds a \"CTMPosterior\""},
		"joblib": {"\x80\x04\x95\x1c\x00sklearn.linear_model",
			"no Save method of pgsvi wrote this file"},
		"empty": {"", "no Save method of pgsvi wrote this file"},
	} {
		file := write(t, dir, name+".pgsvi", c.text)
		status, out, stderr := run(t, "predict", file, path)
		if status != 1 || out != "" || !strings.Contains(stderr, name+".pgsvi: ") ||
			!strings.Contains(stderr, c.says) {
			t.Errorf("%s: %d %s%s, want %s", name, status, out, stderr, c.says)
		}
	}
}

// TestTruthA9A fits the 32,561 rows of a9a from CSV to their optimum with the prior N(0, I).
func TestTruthA9A(t *testing.T) {
	testkit.Long(t)
	dir := testkit.SharedData(t)
	file, err := os.Open(filepath.Join(dir, "a9a", "a9a.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	const columns = 123
	var b strings.Builder
	for j := range columns {
		fmt.Fprintf(&b, "x%d,", j+1)
	}
	b.WriteString("y\n")
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		row := strings.Split(strings.Repeat("0,", columns)+fields[0], ",")
		for _, f := range fields[1:] {
			var j int
			if _, err := fmt.Sscanf(f, "%d:1", &j); err != nil {
				t.Fatal(err)
			}
			row[j-1] = "1"
		}
		b.WriteString(strings.Join(row, ",") + "\n")
	}
	path := write(t, t.TempDir(), "a9a.csv", b.String())
	status, out, stderr := run(t, "fit", "-formula", "y ~ 0 + .", "-learn=false", "-prior-sd", "1",
		"-standardize=false", path)
	if status != 0 {
		t.Fatal(stderr)
	}
	const want = 10724.99614504753 // of truth/a9a.json
	if got := value(t, out, "neg_elbo"); math.Abs(got-want) > 1e-5 {
		t.Errorf("neg_elbo %v, want %v", got, want)
	}
}
