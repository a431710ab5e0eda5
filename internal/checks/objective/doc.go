// Package objective tests objectives, and what they are made of: distributions, divergences,
// estimators, proximal steps, the splits f + h, and certificates of runs.
package objective
