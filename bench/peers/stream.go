package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/pgsvi/pgsvi/bench/tables"
)

// stream runs examples/stream on rows in a file, with all processors, which it reports the memory
// of.
func (o *options) stream(ctx context.Context) ([]row, error) {
	const cols = 30
	program := filepath.Join(o.temp, "stream")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/pgsvi/pgsvi/examples/stream")
	build.Stderr = o.stderr
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("go build: %w", err)
	}
	cmd := exec.CommandContext(ctx, program, "-rows", strconv.Itoa(o.streamed), "-cols", strconv.Itoa(cols), "-file", filepath.Join(o.temp, "rows.bin"))
	cmd.Stderr = o.stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("examples/stream: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	var rows, columns int
	var seconds, speed, memory float64
	if _, err := fmt.Sscanf(lines[len(lines)-1], "rows=%d cols=%d seconds=%f rows_per_second=%f peak_mb=%f", &rows, &columns, &seconds, &speed, &memory); err != nil {
		return nil, fmt.Errorf("the last line of examples/stream is %q: %w", lines[len(lines)-1], err)
	}
	r := o.newRow(fmt.Sprintf("%d rows × %d from a file", rows, columns), "GLMStream", "one pass")
	r.threads, r.seconds, r.pass = runtime.NumCPU(), seconds, 1
	r.more = map[string]float64{"rows_per_second": speed, "peak_mb": memory}
	return []row{r}, nil
}

// streamTable returns the table of the part stream.
func streamTable(rows []row) string {
	var lines [][]string
	for _, r := range rows {
		lines = append(lines, []string{r.work, strconv.Itoa(r.threads), number("%.1f", r.seconds),
			number("%.2f", r.known("rows_per_second")/1e6), number("%.0f", r.known("peak_mb"))})
	}
	return tables.Markdown([]string{"", "threads", "seconds of the clock", "million rows a second", "MB resident"}, lines)
}
