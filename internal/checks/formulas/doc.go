// Package formulas compares the columns of the models of formulas with R.
package formulas
