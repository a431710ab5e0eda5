// Package runs tests runs of a Solver: schedules, stopping rules, recorders, cancellation, memory,
// workers, files that are saved and loaded, and runs that go on from them.
package runs
