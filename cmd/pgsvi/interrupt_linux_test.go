package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pgsvi/pgsvi/internal/testkit"
)

// A child is a running command in a separate process.
type child struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr bytes.Buffer
}

// start starts the command. Only c.out reads its standard output.
func start(t *testing.T, args ...string) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: exec.Command(self, args...)}
	c.cmd.Env = append(os.Environ(), asCommand+"=1")
	c.cmd.Stderr = &c.stderr
	in, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.in, c.out = in, bufio.NewReaderSize(out, 16)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.cmd.Process.Kill(); c.cmd.Wait() })
	return c
}

// end waits for the process and returns how long it took.
func (c *child) end() (taken time.Duration) {
	c.t.Helper()
	start := time.Now()
	done := make(chan error, 1)
	go func() { done <- c.cmd.Wait() }()
	const most = 2 * time.Second // ten times what it should take, because machines are busy
	select {
	case <-done:
	case <-time.After(most):
		c.t.Errorf("%v after an interrupt it still runs", most)
		c.cmd.Process.Kill()
		<-done
	}
	return time.Since(start)
}

// interrupt sends one interrupt, and checks that it ends the command with status 130.
func (c *child) interrupt() {
	c.t.Helper()
	if err := c.cmd.Process.Signal(os.Interrupt); err != nil {
		c.t.Fatal(err)
	}
	taken := c.end()
	if status := c.cmd.ProcessState.ExitCode(); status != 130 || !strings.HasSuffix(
		c.stderr.String(), "pgsvi: interrupted\n") {
		c.t.Errorf("status %d: %s", status, c.stderr.String())
	}
	c.t.Logf("%.3f s", taken.Seconds())
}

// bigTable writes a table of labels that takes long to read and to fit.
func bigTable(t *testing.T, dir string, rows, columns int) string {
	t.Helper()
	rng := rand.New(rand.NewPCG(2, 7))
	var b bytes.Buffer
	for j := range columns {
		fmt.Fprintf(&b, "x%d,", j)
	}
	b.WriteString("y\n")
	for range rows {
		for range columns {
			fmt.Fprintf(&b, "%.3f,", rng.NormFloat64())
		}
		fmt.Fprintln(&b, []string{"no", "yes"}[rng.IntN(2)])
	}
	return write(t, dir, "big.csv", b.String())
}

// columnsYes returns the decision about the outcome of a bigTable.
const columnsYes = "Outcome(\"y\").Positive(\"yes\")\n"

// TestInterruptReading interrupts verbs that read an endless pipe, a pipe without data and a table.
func TestInterruptReading(t *testing.T) {
	dir, model := trained(t)
	big := bigTable(t, dir, testkit.Shorter(20000, 10000), 50)
	fifo := filepath.Join(dir, "fifo.txt")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Skip(err)
	}
	for _, args := range [][]string{
		{"check"}, {"fit", "-formula", "y ~ ."}, {"gp"}, {"predict", model},
	} {
		t.Run(args[0]+" endless", func(t *testing.T) {
			c := start(t, append(args, "-")...)
			lines := []byte(strings.Repeat("2020-01-01;gold;31,5;yes\n", 1000))
			if _, err := c.in.Write([]byte("since;plan;age;y\n")); err != nil {
				t.Fatal(err)
			}
			fed := make(chan bool)
			go func() {
				for i := 0; ; i++ {
					if _, err := c.in.Write(lines); err != nil {
						return
					}
					if i == 20 {
						close(fed)
					}
				}
			}()
			<-fed
			c.interrupt()
		})
		t.Run(args[0]+" blocked", func(t *testing.T) {
			c := start(t, append(args, "-")...)
			time.Sleep(100 * time.Millisecond)
			c.interrupt()
		})
	}
	t.Run("check a file", func(t *testing.T) {
		c := start(t, "check", big)
		time.Sleep(100 * time.Millisecond)
		c.interrupt()
	})
	for _, args := range [][]string{{"check", fifo}, {"topics", fifo}, {"topics", "/dev/stdin"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			c := start(t, args...)
			time.Sleep(100 * time.Millisecond)
			c.interrupt()
		})
	}
}

// TestInterruptFit interrupts fits, and checks that they write no model and no other file.
func TestInterruptFit(t *testing.T) {
	dir := t.TempDir()
	big := bigTable(t, dir, 3000, 500) // a fit takes over a second
	columns := write(t, dir, "columns.txt", columnsYes)
	var texts strings.Builder
	rng := rand.New(rand.NewPCG(4, 4))
	for range 3000 {
		for range 60 {
			fmt.Fprintf(&texts, "word%c%c ", 'a'+rng.IntN(26), 'a'+rng.IntN(26))
		}
		texts.WriteByte('\n')
	}
	corpus := write(t, dir, "texts.txt", texts.String())
	before, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		printed bool // the columns
		wait    time.Duration
		args    []string
	}{
		{"fit", true, 50 * time.Millisecond, []string{"fit", "-formula", "y ~ .", "-columns",
			columns, big}},
		{"gp", true, 50 * time.Millisecond, []string{"gp", "-columns", columns, big}},
		{"topics", false, 300 * time.Millisecond, []string{"topics", "-topics", "50", corpus}},
		{"topics lda", false, 300 * time.Millisecond,
			[]string{"topics", "-topics", "50", "-model", "lda", corpus}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := start(t, append(c.args, "-o", filepath.Join(dir, "model"))...)
			if c.printed { // before the fit begins
				for {
					line, err := p.out.ReadString('\n')
					if err != nil {
						t.Fatal(err, p.stderr.String())
					}
					if strings.Contains(line, "~") {
						break
					}
				}
			}
			time.Sleep(c.wait)
			p.interrupt()
			after, err := os.ReadDir(dir)
			if err != nil || len(after) != len(before) {
				t.Errorf("%d files, and %d before: %v", len(after), len(before), err)
			}
		})
	}
}

// slowTable writes a table of customers whose predictions fill a pipe.
func slowTable(t *testing.T, dir string) string {
	t.Helper()
	line := "2020-01-01;gold;31,5;\n"
	return write(t, dir, "slow.csv", "since;plan;age;churned\n"+strings.Repeat(line, 20000))
}

// TestInterruptWriting interrupts predict while it writes to a pipe that nobody reads.
func TestInterruptWriting(t *testing.T) {
	dir, model := trained(t)
	c := start(t, "predict", model, slowTable(t, dir))
	if _, err := c.out.ReadString('\n'); err != nil {
		t.Fatal(err, c.stderr.String())
	}
	time.Sleep(200 * time.Millisecond)
	c.interrupt()
}

// TestInterruptTwice checks that a second interrupt kills the command.
func TestInterruptTwice(t *testing.T) {
	dir, model := trained(t)
	table := slowTable(t, dir)
	for try := range 5 {
		c := start(t, "predict", model, table)
		if _, err := c.out.ReadString('\n'); err != nil {
			t.Fatal(err, c.stderr.String())
		}
		time.Sleep(200 * time.Millisecond)
		for range 2 {
			if err := c.cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err,
				os.ErrProcessDone) {
				t.Fatal(err)
			}
			time.Sleep(30 * time.Millisecond)
		}
		c.end()
		if s, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() &&
			s.Signal() == syscall.SIGINT {
			return
		}
		t.Logf("try %d: %v", try, c.cmd.ProcessState)
	}
	t.Error("a second interrupt does not kill it")
}

// TestEndless checks that a file that never ends and has no lines is an error.
func TestEndless(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "64MiB")
	_, stderr, err := process(t, "check", "/dev/zero")
	if err == nil || !strings.Contains(stderr, "zero: ") || !strings.Contains(stderr,
		"a line or record is longer than") {
		t.Errorf("%v: %s", err, stderr)
	}
}
