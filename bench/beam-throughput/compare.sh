#!/usr/bin/env bash
# bench/beam-throughput/compare.sh [ELEMENTS]: case group on millraced and on Prism (PRISM=path, or built with Go), three runs each in
# turn. Prints one JSON line a run and the medians. Needs tools/build and tools/python_env.
set -euo pipefail
cd "$(dirname "$0")/../.."
elements="${1:-1000000}"
python=.deps/venv/bin/python
work="$(mktemp -d)"
prism="${PRISM:-.deps/prism/prism}"
if [ ! -x "$prism" ]; then
  mkdir -p .deps/prism
  (cd .deps/prism && { [ -f go.mod ] || go mod init prism.test/run; } && GOFLAGS=-mod=mod go get github.com/apache/beam/sdks/v2@v2.77.0 &&
    GOFLAGS=-mod=mod go build -o prism github.com/apache/beam/sdks/v2/go/cmd/prism) >&2
fi
build/bin/millraced --data-dir "$work/data" --pubsub-port 0 --dataflow-port 0 --http-port 0 > "$work/ready" 2> "$work/millraced.log" &
ours=$!
"$prism" --job_port 8073 --serve_http=false > "$work/prism.log" 2>&1 &
theirs=$!
trap 'kill $ours $theirs 2>/dev/null; wait $ours $theirs 2>/dev/null; rm -rf "$work"' EXIT
until grep -q dataflow= "$work/ready"; do sleep 0.1; done
endpoint="$(sed 's/.*dataflow=\([^ ]*\).*/\1/' "$work/ready")"
for _ in 1 2 3; do
  $python bench/beam-throughput/run.py group --elements "$elements" --endpoint "$endpoint" --server-pid $ours | tee -a "$work/ours"
  $python bench/beam-throughput/run.py group --elements "$elements" --endpoint localhost:8073 --server-pid $theirs | tee -a "$work/theirs"
done
$python - "$work/ours" "$work/theirs" <<'PY'
import json, statistics, sys
ours, theirs = ([json.loads(line)['elements_per_s'] for line in open(path)] for path in sys.argv[1:])
a, b = statistics.median(ours), statistics.median(theirs)
print(f'millraced {a:,}/s, Prism {b:,}/s, ratio {a / b:.2f} (medians of {len(ours)})')
PY
