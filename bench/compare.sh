#!/usr/bin/env bash
# Runs the benchmarks of two commits in turn and compares them; see README.md.
set -euo pipefail
unset CDPATH

usage() {
	[ $# -eq 0 ] || echo "compare.sh: $*" >&2
	cat >&2 <<'END'
usage: bench/compare.sh OLD NEW [BENCH-REGEXP [COUNT]]

OLD and NEW are commits. NEW may be . for the files as they are. BENCH-REGEXP selects the
benchmarks, as in go test -bench (default: all). COUNT is the number of runs of each (default: 6).
The environment variable BENCHTIME=100ms sets go test -benchtime, and PACKAGE=. sets the folder of
the benchmarks (default: ./bench).
END
	exit 2
}

[ $# -ge 2 ] && [ $# -le 4 ] || usage
regexp=${3:-.} count=${4:-6} package=${PACKAGE:-./bench}
[[ $count =~ ^[1-9][0-9]{0,3}$ ]] || usage "COUNT is '$count', not a positive number"
if [ -n "${PGSVI_DATA:-}" ]; then
	PGSVI_DATA=$(cd "$PGSVI_DATA" && pwd) || usage "PGSVI_DATA is not a folder"
	export PGSVI_DATA
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# commit prints the hash of a commit.
commit() {
	git rev-parse --verify --quiet --end-of-options "$1^{commit}" || usage "'$1' is not a commit"
}
old=$(commit "$1")
if [ "$2" = . ]; then new=.; else new=$(commit "$2"); fi

tmp=$(mktemp -d)
cleanup() {
	for name in old new; do
		[ ! -e "$tmp/$name/.git" ] || git worktree remove --force "$tmp/$name"
	done
	rm -rf "$tmp"
}
trap cleanup EXIT

# Install benchstat before measuring, and keep it out of go.mod.
GOFLAGS='' GOBIN=$tmp go install golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da

# build NAME COMMIT builds the benchmarks of a commit and sets folder[NAME].
declare -A folder
build() {
	folder[$1]=$PWD
	if [ "$2" != . ]; then
		folder[$1]=$tmp/$1
		git worktree add --quiet --detach "$tmp/$1" "$2"
	fi
	(cd "${folder[$1]}" && go test -c -o "$tmp/$1.test" "$package")
	if [ ! -e "$tmp/$1.test" ]; then
		echo "compare.sh: $1 has no benchmarks in $package" >&2
		exit 1
	fi
}
build old "$old"
build new "$new"

for ((i = 1; i <= count; i++)); do
	for name in old new; do
		echo "compare.sh: run $i of $count, $name" >&2
		if ! (cd "${folder[$name]}/$package" && "$tmp/$name.test" -test.run '^$' -test.timeout 0 -test.benchmem \
			-test.bench "$regexp" -test.benchtime "${BENCHTIME:-1s}" >"$tmp/out"); then
			cat "$tmp/out" >&2
			exit 1
		fi
		cat "$tmp/out" >>"$tmp/$name.txt"
	done
done
if ! grep -q '^Benchmark' "$tmp/old.txt" "$tmp/new.txt"; then
	echo "compare.sh: no benchmark matches '$regexp'" >&2
	exit 1
fi
"$tmp/benchstat" "old=$tmp/old.txt" "new=$tmp/new.txt"
