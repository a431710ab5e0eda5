// Package objective tests pgsvi.Objective and its parts: distributions, divergences, estimators,
// proximal steps, splits f + h, and certificates of runs.
package objective
