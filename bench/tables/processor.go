package tables

import (
	"bufio"
	"cmp"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/cpu"
)

// Processor returns the name of the processor and its longest vectors that programs may use.
func Processor() string {
	unit := runtime.GOARCH
	switch {
	case cpu.X86.HasAVX512F:
		unit = "AVX-512"
	case cpu.X86.HasAVX2:
		unit = "AVX2"
	case cpu.ARM64.HasASIMD:
		unit = "NEON"
	}
	return model() + ", " + unit
}

// model returns the name of the processor, or of its architecture if the system does not report the
// name.
func model() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, name, ok := strings.Cut(lines.Text(), ":"); ok &&
			strings.TrimSpace(key) == "model name" {
			return cmp.Or(strings.TrimSpace(name), runtime.GOARCH)
		}
	}
	return runtime.GOARCH
}

// Commit returns the name of the current commit, with the suffix -dirty if files differ from it. It
// is empty outside of a clone.
func Commit() string {
	out, _ := exec.Command("git", "describe", "--always", "--dirty").Output()
	return strings.TrimSpace(string(out))
}
