//go:build race

package pgsvi

const raceEnabled = true
