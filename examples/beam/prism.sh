#!/usr/bin/env bash
# Fits with its own Prism server, which starts a worker process for each job:
#
#   ./prism.sh -data a9a.gz -model glm -shards 64
#
# It builds the program and Prism, starts Prism, fits, and stops both. If a worker is killed, it
# stops Prism, which could otherwise wait forever, and the fit ends with an error. With -dir FOLDER
# -resume, the same command then continues after the last complete round.
#
# PORT is the port of Prism (8073). PRISM_LOG is a file for the output of Prism and the workers.
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

# Prism passes the name of a worker in quotes, and one endpoint for all services.
cat >"$work/worker" <<END
#!/bin/sh
for arg; do
	case "\$arg" in
	--id=*) id=\$(printf %s "\${arg#--id=}" | tr -d "'") ;;
	--provision_endpoint=*) at=\${arg#--provision_endpoint=} ;;
	esac
done
# Jobs run one after the other, so a worker that is still running has no more work.
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

# Jobs send the worker binary to Prism. These workers do not need it, so it is the script.
"$work/fit" "$@" -runner prism -endpoint "localhost:$port" -environment_type PROCESS \
	-environment_config "{\"command\": \"$work/worker\"}" -worker_binary "$work/worker"
