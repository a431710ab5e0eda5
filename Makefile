# Short names for the commands of CONTRIBUTING.md. Run "make" to list them.

.DEFAULT_GOAL := help
.PHONY: help test short lint bench ci

STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2

help: ## list the targets
	@sed -n 's/^\([a-z]*\): ## /\1: /p' $(MAKEFILE_LIST)

test: ## run every test, some at a reduced size (about two minutes)
	go test ./...

short: ## run the quick tests (about one minute)
	go test -short ./...

lint: ## check formatting, vet, staticcheck and the structure
	@test -z "$$(gofmt -l .)" || { gofmt -l . | sed 's/^/run gofmt -w on /'; exit 1; }
	go vet ./...
	go run $(STATICCHECK) ./...
	go run ./bench/layers -check

bench: ## run the benchmarks of the root package
	go test -run '^$$' -bench . .

ci: ## run everything that CI runs (about 15 minutes)
	.ci/run
