// Package trust holds tests of the library that fit random problems, in any units, and compare with
// slow references. They use the library as its users do.
package trust
