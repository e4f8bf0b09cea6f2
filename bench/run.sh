#!/usr/bin/env bash
# bench/run.sh [CELLS [options of run_matrix.py]]: the cells of bench/cells/CELLS.txt (durable, drain, fanout; all without a name),
# millraced against the ceiling server on the same disk, median of 3. Results go to build/bench/CELLS.jsonl.
set -euo pipefail
cd "$(dirname "$0")/.."
bin="${BIN:-build/bin}"
[ -x "$bin/millraced" ] && [ -x "$bin/pubsub-load" ] || tools/build release millraced pubsub-load pubsub-ceiling
out="$PWD/build/bench"
disk="$out/disk"
rm -rf "$disk"; mkdir -p "$disk/log"
cat > "$out/servers.json" <<JSON
{
  "millrace": {"cmd": "$bin/millraced --data-dir $disk/millrace --pubsub-port {port} --dataflow-port 0 --http-port 0",
               "port": 9085, "cleanup": "rm -rf $disk/millrace"},
  "log": {"cmd": "$bin/pubsub-ceiling --port {port} --log $disk/log", "port": 9086},
  "raw": {"cmd": "$bin/pubsub-ceiling --port {port}", "port": 9087},
  "raw-b": {"cmd": "$bin/pubsub-ceiling --port {port} --backlog", "port": 9088}
}
JSON
names=(durable drain fanout)
if [ $# -gt 0 ]; then names=("$1"); shift; fi
for name in "${names[@]}"; do
  echo "== $name"
  rm -f "$out/$name.jsonl"
  python3 bench/run_matrix.py --load "$bin/pubsub-load" --servers "$out/servers.json" --cells "bench/cells/$name.txt" \
    --out "$out/$name.jsonl" "$@"
done
rm -rf "$disk"
