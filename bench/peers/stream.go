package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/pgsvi/pgsvi/bench/tables"
)

// stream runs examples/stream on rows in a file, with all processors. It reports the memory of the
// process.
func (o *options) stream(ctx context.Context) ([]row, error) {
	program := filepath.Join(o.temp, "stream")
	build := exec.CommandContext(ctx, "go", "build", "-o", program,
		"github.com/pgsvi/pgsvi/examples/stream")
	build.Stderr = o.stderr
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("go build: %w", err)
	}
	cmd := exec.CommandContext(ctx, program, "-rows", strconv.Itoa(o.streamed), "-file",
		filepath.Join(o.temp, "rows.bin"))
	cmd.Stderr = o.stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("examples/stream: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	var rows, columns int
	var seconds float64
	if _, err := fmt.Sscanf(lines[len(lines)-1], "rows=%d cols=%d seconds=%f", &rows, &columns,
		&seconds); err != nil {
		return nil, fmt.Errorf("the last line of examples/stream is %q: %w", lines[len(lines)-1],
			err)
	}
	r := o.newRow(fmt.Sprintf("%d rows × %d from a file", rows, columns), "GLMStream", "one pass")
	r.threads, r.seconds, r.pass = runtime.NumCPU(), seconds, 1
	r.more = map[string]float64{"rows_per_second": float64(rows) / max(seconds, 0.005),
		"peak_mb": resident(cmd.ProcessState) / 1e6}
	return []row{r}, nil
}

// resident returns the peak resident memory of a process in bytes, or NaN if the system does not
// report it.
func resident(p *os.ProcessState) float64 {
	usage, ok := p.SysUsage().(*syscall.Rusage)
	switch {
	case !ok:
		return math.NaN()
	case runtime.GOOS == "darwin":
		return float64(usage.Maxrss)
	}
	return 1024 * float64(usage.Maxrss)
}

// streamTable returns the table of part stream.
func streamTable(rows []row) string {
	var lines [][]string
	for _, r := range rows {
		lines = append(lines, []string{r.work, strconv.Itoa(r.threads), number("%.1f", r.seconds),
			number("%.2f", r.known("rows_per_second")/1e6), number("%.0f", r.known("peak_mb"))})
	}
	return tables.Markdown([]string{"", "threads", "wall seconds", "million rows per second",
		"MB resident"}, lines)
}
