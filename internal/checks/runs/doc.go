// Package runs tests the runs of a Solver: schedules, stopping rules, recorders, cancellation,
// memory, workers, saved files, and runs that continue from them.
package runs
