package cputime

import (
	"testing"
	"time"
)

func TestSeconds(t *testing.T) {
	before := Seconds()
	for begun, sum := time.Now(),
		0; time.Since(begun) < 30*time.Second && Seconds() <= before; sum++ {
	}
	if used := Seconds() - before; !(used > 0 && used < 31) {
		t.Errorf("work took %v s", used)
	}
}
