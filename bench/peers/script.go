package main

import (
	"context"
	"embed"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pgsvi/pgsvi/bench/tables"
)

// The scripts run the other programs. Each prints a CSV table with the columns method, variant,
// seed, pass, logloss_bits, seconds, predict and note, and further columns of numbers.
//
//go:embed *.py *.R
var scripts embed.FS

// script runs a script and returns its rows for a data set.
func (o *options) script(ctx context.Context, set, name string, args ...any) ([]row, error) {
	program := o.python
	if filepath.Ext(name) == ".R" {
		program = o.rscript
	}
	cmd := exec.CommandContext(ctx, program, filepath.Join(o.temp, name))
	for _, a := range args {
		cmd.Args = append(cmd.Args, fmt.Sprint(a))
	}
	cmd.Env = append(os.Environ(), "OPENBLAS_NUM_THREADS=1", "OMP_NUM_THREADS=1")
	cmd.Stderr = o.stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", program, name, err)
	}
	rows, err := o.parse(strings.NewReader(string(out)), set, program)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return rows, nil
}

// unpack writes the scripts to the temporary folder.
func (o *options) unpack() error {
	return os.CopyFS(o.temp, scripts)
}

// parse parses the table of a script.
func (o *options) parse(r io.Reader, set, program string) ([]row, error) {
	lines, err := csv.NewReader(r).ReadAll()
	if err != nil {
		return nil, err
	}
	if len(lines) < 2 {
		return nil, fmt.Errorf("%s: a table without rows", set)
	}
	var rows []row
	for _, line := range lines[1:] {
		w := o.newRow(set, "", "")
		w.version = o.version(program)
		for i, name := range lines[0] {
			if err := w.set(name, line[i]); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", set, name, err)
			}
		}
		rows = append(rows, w)
	}
	return rows, nil
}

// set sets the field of the column with the given name.
func (r *row) set(name, field string) (err error) {
	switch name {
	case "method":
		r.method = field
	case "variant":
		r.variant = field
	case "note":
		r.note = field
	case "seed":
		r.seed, err = strconv.Atoi(field)
	case "pass":
		r.pass, err = value(field)
	case "threads":
		if field != "nan" { // scripts with one thread write nan
			r.threads, err = strconv.Atoi(field)
		}
	case "logloss_bits":
		r.bits, err = value(field)
	case "seconds":
		r.seconds, err = value(field)
	case "predict":
		r.predict, err = value(field)
	default:
		if r.more == nil {
			r.more = make(map[string]float64)
		}
		r.more[name], err = value(field)
	}
	return err
}

// value parses a number. R writes NA for an unknown number.
func value(field string) (float64, error) {
	if field == "NA" {
		return math.NaN(), nil
	}
	return strconv.ParseFloat(field, 64)
}

// sklearn returns an error if scikit-learn is missing.
func (o *options) sklearn(ctx context.Context) error {
	return o.need(ctx, "scikit-learn (Debian: python3-sklearn)", o.python, "-c",
		"import sklearn; print('scikit-learn', sklearn.__version__)")
}

// rstanarm returns an error if rstanarm is missing.
func (o *options) rstanarm(ctx context.Context) error {
	return o.need(ctx, "rstanarm (Debian: r-cran-rstanarm)", o.rscript, "-e",
		"cat('rstanarm', format(packageVersion('rstanarm')))")
}

// itself returns nil, for parts that need no other program.
func (o *options) itself(context.Context) error { return nil }

// need returns an error if a program does not run, and stores the version that it prints.
func (o *options) need(ctx context.Context, what, program string, args ...string) error {
	version, err := try(ctx, what, program, args...)
	if err == nil {
		o.setVersion(program, version)
	}
	return err
}

// try returns the version that a program prints, or an error if the program does not run.
func try(ctx context.Context, what, program string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, program, args...).Output()
	if err != nil {
		return "", fmt.Errorf("%s has no %s: %w", program, what, err)
	}
	return strings.TrimSpace(string(out)), nil
}

func (o *options) setVersion(program, version string) {
	if o.versions == nil {
		o.versions = make(map[string]string)
	}
	o.versions[program] = strings.TrimSpace(version)
}

// version returns the version of a program after try. For this library it is the commit of the
// files. It is empty if it is not known.
func (o *options) version(program string) string {
	if _, ok := o.versions[program]; !ok && program == "pgsvi" {
		o.setVersion(program, tables.Commit())
	}
	return o.versions[program]
}
