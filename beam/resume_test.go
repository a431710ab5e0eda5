package beam

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/pgsvi/pgsvi"
)

// TestResume checks that a fit whose jobs fail resumes to the same bits, on Prism and in this
// process.
func TestResume(t *testing.T) {
	path := writeTo(t, filepath.Join(t.TempDir(), "rows"), rowFileOf(t, labels(1000), false))
	want, all := glm(t, &Job{Paths: []string{path}, Block: 50})
	dir := t.TempDir()
	lost := errors.New("a worker is lost")
	for k := 0; k <= all.K; k++ {
		jobs := 0
		job := &Job{Paths: []string{path}, Block: 50, Dir: dir, Resume: true}
		job.Run = func(ctx context.Context, p *beam.Pipeline) error {
			if jobs++; jobs > 1 {
				return lost
			}
			return onPrism(ctx, p)
		}
		_, res, err := FitGLM(context.Background(), testCols, pgsvi.BernoulliLogit{}, nil, job)
		if k < all.K && (!errors.Is(err, lost) || res.K != k) || k == all.K && err != nil {
			t.Fatalf("run %d: %+v, %v", k, res, err)
		}
	}
	got, res := glm(t, &Job{Paths: []string{path}, Block: 50, Dir: dir, Resume: true})
	if got != want || res.K != all.K || !res.Converged || res.ELBO != all.ELBO ||
		res.Items != 1000 {
		t.Errorf("%s after %+v, want %s after %+v", got, res, want, all)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 1 {
		t.Errorf("files %v, error %v", left, err)
	}
	job := Job{Paths: []string{path}, Block: 50, Dir: dir}
	wants(t, &job, pgsvi.ErrParam, "Resume", checkpointName)
	job.Resume, job.Block = true, 60
	wants(t, &job, pgsvi.ErrParam, "another fit", checkpointName)
	job.Block = 50
	_, _, err := FitGLM(context.Background(), testCols, pgsvi.BernoulliLogit{},
		&pgsvi.GLMOptions{PriorSD: 2}, &job)
	wantsError(t, err, pgsvi.ErrParam, "another fit")
	file := filepath.Join(dir, checkpointName)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	writeTo(t, file, b[:len(b)-1])
	wants(t, &job, pgsvi.ErrFile, file)
	b[len(b)/2] ^= 1
	writeTo(t, file, b)
	wants(t, &job, pgsvi.ErrFile, file)
}

// killed fits the rows in a folder, in a process that the test kills.
func killed(folder string) {
	job := &Job{Paths: []string{filepath.Join(folder, "rows")}, Block: 500,
		Dir:    filepath.Join(folder, "fit"),
		Resume: true, Goal: 1e-9, Rounds: 7}
	job.Report = func(r Result) { fmt.Printf("round %d\n", r.K) }
	if os.Getenv("PGSVI_BEAM_PRISM") != "" {
		job.Run = onPrism
	}
	fmt.Println("begin")
	p, _, err := FitGLM(context.Background(), testCols, pgsvi.BernoulliLogit{}, nil, job)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if err := p.Save(os.Stderr); err != nil {
		os.Exit(1)
	}
}

// TestKilled kills the process of a fit, and so its workers, at ten random times. Each time the
// next run must continue after the last complete round, and the last run must have the same bits as
// a fit without interruption.
func TestKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs for some seconds")
	}
	rows := rowFileOf(t, labels(40_000), false)
	run := func(folder string, wait time.Duration) (out, post string) {
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		cmd := exec.CommandContext(ctx, os.Args[0]) // a kill is SIGKILL
		cmd.Env = append(os.Environ(), "PGSVI_BEAM_KILLED="+folder, "PGSVI_BEAM_PRISM=1")
		var o, e strings.Builder
		cmd.Stdout, cmd.Stderr = &o, &e
		if err := cmd.Run(); err != nil && ctx.Err() == nil {
			t.Fatalf("%v\n%s%s", err, o.String(), e.String())
		} else if err == nil {
			return o.String(), e.String()
		}
		return o.String(), ""
	}
	whole := t.TempDir()
	writeTo(t, filepath.Join(whole, "rows"), rows)
	start := time.Now()
	_, want := run(whole, time.Hour)
	took := time.Since(start)
	folder := t.TempDir()
	writeTo(t, filepath.Join(folder, "rows"), rows)
	rng := rand.New(rand.NewPCG(uint64(start.UnixNano()), 1))
	ended := -1 // last round reported as complete
	for k := range 10 {
		if k%5 == 0 && k > 0 { // start a new fit
			ended = -1
			if err := os.RemoveAll(filepath.Join(folder, "fit")); err != nil {
				t.Fatal(err)
			}
		}
		out, _ := run(folder, time.Duration((0.05+0.6*rng.Float64())*float64(took)))
		ended = check(t, out, ended)
	}
	out, got := run(folder, time.Hour)
	check(t, out, ended)
	if got != want || want == "" {
		t.Error("the posterior of a fit that was killed differs")
	}
}

// check checks that a run continued after the last reported round, and returns the last round of
// the run.
func check(t *testing.T, out string, ended int) int {
	t.Helper()
	t.Logf("after round %d: %q", ended, out)
	for i, line := range strings.Split(strings.TrimSpace(out), "\n") {
		var k int
		if _, err := fmt.Sscanf(line, "round %d", &k); err != nil {
			continue
		}
		if i == 1 && k <= ended {
			t.Errorf("round %d was taken again", k)
		}
		ended = k
	}
	return ended
}
