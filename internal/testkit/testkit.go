// Package testkit has what tests of several packages need.
package testkit
