// Package cputime measures the processor time of this process. The benchmarks use it because wall
// time depends on what else runs on the machine.
package cputime
