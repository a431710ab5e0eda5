module github.com/pgsvi/pgsvi

go 1.26.0

require (
	golang.org/x/exp v0.0.0-20260908205506-85c1c2202aba
	gonum.org/v1/gonum v0.17.0
)

require golang.org/x/tools v0.50.0 // indirect
