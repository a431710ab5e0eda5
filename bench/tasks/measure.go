package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/pgsvi/pgsvi/bench/tables"
)

// task measures a task. The programs that are installed take turns.
func (o *options) task(ctx context.Context, t task) ([]row, error) {
	file := o.path("rows.csv")
	if err := t.generate(file, max(1000, t.rows/o.scale)); err != nil {
		return nil, err
	}
	var rows []row
	var lines [][]string
	for _, p := range t.programs {
		version, err := o.version(ctx, p)
		if err != nil {
			fmt.Fprintf(o.stderr, "%s: %s is left out: %v\n", t.name, p.label, err)
			continue
		}
		if p.save != nil {
			if _, err := o.measure(ctx, o.command(p, p.save, o.path("training.csv"))); err != nil {
				return nil, err
			}
		}
		rows = append(rows, row{task: t.name, program: p.label, version: version,
			rounds: o.rounds, processor: tables.Processor()})
		lines = append(lines, o.command(p, p.args, file))
	}
	return rows, o.inTurn(ctx, rows, lines)
}

// inTurn runs the command lines of the rows in turn, and sets the medians of their times. The ratio
// is the median of the ratios to the first row in the same round.
func (o *options) inTurn(ctx context.Context, rows []row, lines [][]string) error {
	all := make([][]usage, len(rows)) // indexed by row and round
	for range o.rounds {
		for i, line := range lines {
			u, err := o.measure(ctx, line)
			if err != nil {
				return err
			}
			all[i] = append(all[i], u)
		}
	}
	for i := range rows {
		var cpu, wall, ratio []float64
		for k, u := range all[i] {
			cpu, wall = append(cpu, u.cpu), append(wall, u.wall)
			ratio = append(ratio, u.cpu/all[0][k].cpu)
		}
		rows[i].cpu, rows[i].wall, rows[i].ratio = median(cpu), median(wall), median(ratio)
	}
	return nil
}

// usage holds the times that a process took, in seconds.
type usage struct{ cpu, wall float64 }

// measure runs a command line and discards its output.
func (o *options) measure(ctx context.Context, line []string) (u usage, err error) {
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "OPENBLAS_NUM_THREADS=1", "OMP_NUM_THREADS=1")
	said := &headWriter{}
	cmd.Stderr = said
	start := time.Now()
	if err := cmd.Run(); err != nil {
		return u, fmt.Errorf("%q: %w\n%s", line, err, said.text)
	}
	s := cmd.ProcessState
	return usage{(s.UserTime() + s.SystemTime()).Seconds(), time.Since(start).Seconds()}, nil
}

// A headWriter keeps the first bytes of its input.
type headWriter struct{ text []byte }

func (w *headWriter) Write(b []byte) (int, error) {
	const most = 4096
	w.text = append(w.text, b[:min(len(b), most-len(w.text))]...)
	return len(b), nil
}

// median returns the median of v, or the larger of the two middle elements.
func median(v []float64) float64 { return slices.Sorted(slices.Values(v))[len(v)/2] }
