#!/usr/bin/env bash
# Fits on a Prism server of its own, which starts a worker process for each job:
#
#   ./prism.sh -data a9a.gz -model glm -shards 64
#
# It builds the program and Prism, starts Prism, fits, and stops what it has started. Prism may
# wait for ever for a worker that was killed; so Prism is stopped then, and the fit ends with an
# error. With -dir FOLDER -resume the same command goes on where a round had ended.
#
# PORT is that of Prism (8073). PRISM_LOG is a file for what Prism and the workers say.
set -euo pipefail
port=${PORT:-8073}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
prism=
touch "$work/workers"
stop() {
	if [ -n "$prism" ]; then kill "$prism" 2>/dev/null || true; fi
	while read -r worker; do kill "$worker" 2>/dev/null || true; done <"$work/workers"
	rm -rf "$work"
}
trap stop EXIT
(cd "$here" && go build -o "$work/fit" . &&
	go build -o "$work/prism" github.com/apache/beam/sdks/v2/go/cmd/prism)

log=${PRISM_LOG:-$work/log}
"$work/prism" -job_port "$port" -serve_http=false -log_kind text >"$log" 2>&1 &
prism=$!

# Prism gives a worker its name in quotes, and one endpoint for all services.
cat >"$work/worker" <<END
#!/bin/sh
for arg; do
	case "\$arg" in
	--id=*) id=\$(printf %s "\${arg#--id=}" | tr -d "'") ;;
	--provision_endpoint=*) at=\${arg#--provision_endpoint=} ;;
	esac
done
# Jobs come one after the other: a worker that is still there has nothing more to do.
while read -r old; do kill "\$old" 2>/dev/null; done <"$work/workers"
"$work/fit" --worker --id="\$id" --control_endpoint="\$at" --logging_endpoint="\$at" &
echo \$! >"$work/workers"
wait \$!
code=\$?
if [ \$code -eq 137 ]; then # kill -9, or out of memory
	kill $prism
fi
exit \$code
END
chmod +x "$work/worker"

for _ in $(seq 100); do
	if (exec 3<>"/dev/tcp/localhost/$port") 2>/dev/null; then break; fi
	if ! kill -0 "$prism" 2>/dev/null; then
		cat "$log" >&2
		exit 1
	fi
	sleep 0.1
done

# The worker binary is what a job sends to Prism. These workers have theirs, so it is the script.
"$work/fit" "$@" -runner prism -endpoint "localhost:$port" -environment_type PROCESS \
	-environment_config "{\"command\": \"$work/worker\"}" -worker_binary "$work/worker"
