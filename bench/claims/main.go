// Command claims asks two questions about Khan et al. (2016) on real data: do exact expectations
// predict better than estimates, and do the bounds of the convergence theory hold?
//
//	go run ./bench/claims -out bench/claims     # needs usps and a9a in -data or PGSVI_DATA
//	go run ./bench/claims -draw -out bench/claims -readme docs/paper.md
//
// Gaussian process classifiers have the hyperparameters of the paper, and a9a is a logistic
// regression with the prior N(0, I). The command writes predictions.csv, theory.csv and a picture of
// the predictions to the folder of -out, and prints both tables. -draw measures nothing and uses the
// stored files.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/pgsvi/pgsvi/bench/command"
	"github.com/pgsvi/pgsvi/bench/paper"
	"github.com/pgsvi/pgsvi/bench/tables"
	"github.com/pgsvi/pgsvi/plot"
)

//go:generate go run -C ../.. ./bench/claims -draw -out bench/claims -readme docs/paper.md

func main() {
	command.Main("claims", run)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("claims", flag.ContinueOnError)
	f.SetOutput(stderr)
	folder := f.String("data", os.Getenv("PGSVI_DATA"),
		"`folder` with usps and a9a (default: PGSVI_DATA)")
	out := f.String("out", ".", "`folder` to write to")
	readme := f.String("readme", "", "Markdown `file` in which to replace the tables")
	stored := f.Bool("draw", false, "measure nothing, and use the files in -out")
	seeds := f.Int("seeds", 5, "runs of each random method")
	if err := f.Parse(args); err != nil {
		return err
	}
	switch {
	case f.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	case *seeds < 1:
		return fmt.Errorf("-seeds is %d; it must be positive", *seeds)
	}
	predictions := filepath.Join(*out, "predictions.csv")
	theory := filepath.Join(*out, "theory.csv")
	if err := os.MkdirAll(*out, 0o777); err != nil {
		return err
	}
	if !*stored {
		if *folder == "" {
			return errors.New("there is no data folder; set PGSVI_DATA or -data")
		}
		sets, err := readSets("testdata", *folder)
		if err != nil {
			return err
		}
		if err := measure(ctx, predictions, sets, *seeds, stderr); err != nil {
			return err
		}
		if err := certify(ctx, theory, []*paper.Problem{sets[0].gp, sets[1].gp}); err != nil {
			return err
		}
	}
	fits, err := readTable[fit](predictions)
	if err != nil {
		return err
	}
	proofs, err := readTable[proof](theory)
	if err != nil {
		return err
	}
	if err := plot.Save(filepath.Join(*out, "claims.png"), picture(fits), 9); err != nil {
		return err
	}
	texts := map[string]string{"predictions": predictionTable(fits), "theory": theoryTable(proofs)}
	if *readme != "" {
		if err := tables.Replace(*readme, texts); err != nil {
			return err
		}
	}
	_, err = io.WriteString(stdout, strings.Join(
		[]string{texts["predictions"], texts["theory"]}, "\n"))
	return err
}
