#!/usr/bin/env python3
"""Runs pubsub-load cells against several servers in turn and prints medians.

  run_matrix.py --load PATH/pubsub-load --servers servers.json --cells FILE --repeat 3 --out FILE

servers.json: {"name": {"cmd": "... {port} ...", "port": 9085, "args": "extra pubsub-load options",
                        "cleanup": "shell command after each run"}, ...}
cells: one a line, "name: options of pubsub-load"; '@a,b' after the name: these servers only.

Each repetition goes through all cells, in each cell through all servers, each started afresh, so
that what else the machine does falls on all alike. A run waits for a quiet machine first, and is
done again (up to --retries times) when other processes took more than --max-other cores meanwhile.
Everything stays on loopback.
"""
import argparse
import json
import os
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import time

COLUMNS = ('cell | server | runs | msg/s median (min..max) | MB/s | p50 ms | p99 ms | errors | '
           'lost | dup | server cores | client cores | other cores')


def busy():
  values = [int(x) for x in open('/proc/stat').readline().split()[1:9]]
  return values[0] + values[1] + values[2] + values[5] + values[6] + values[7]


def wait_quiet(limit_s, cores=0.15):
  end = time.time() + limit_s
  ticks = os.sysconf('SC_CLK_TCK')
  while True:
    before = busy()
    time.sleep(0.5)
    if (busy() - before) / ticks / 0.5 < cores or time.time() > end:
      return


def start(command, port):
  began = time.time()
  process = subprocess.Popen(shlex.split(command.format(port=port)), stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL, start_new_session=True)
  while time.time() < began + 60:
    try:
      socket.create_connection(('127.0.0.1', port), 0.2).close()
      return process, time.time() - began
    except OSError:
      if process.poll() is not None:
        raise SystemExit(f'server ended: {command}') from None
      time.sleep(0.01)
  raise SystemExit(f'server did not listen: {command}')


def stop(process):
  process.send_signal(signal.SIGTERM)
  try:
    process.wait(10)
  except subprocess.TimeoutExpired:
    process.kill()
    process.wait()


def read_cells(path, servers):
  """[(name, options, names of servers)]."""
  cells = []
  for line in open(path):
    line = line.strip()
    if not line or line.startswith('#'):
      continue
    name, options = line.split(':', 1)
    name, limited, only = name.partition('@')
    names = [n for n in only.split(',') if n in servers] if limited else list(servers)
    cells.append((name.strip(), options.strip(), names))
  return cells


def run_once(load, server, cell, options):
  """One start, one run, one stop: (seconds to ready, result or None, last words)."""
  process, ready = start(server['cmd'], server['port'])
  time.sleep(server.get('settle', 0.3))
  command = [load, '--endpoint', f"127.0.0.1:{server['port']}", '--server-pid', str(process.pid),
             '--label', cell, *shlex.split(options), *shlex.split(server.get('args', ''))]
  result, words = None, ''
  try:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    words = done.stderr[-300:]
    result = json.loads(done.stdout) if done.stdout.strip() else None
  except (subprocess.TimeoutExpired, json.JSONDecodeError) as error:
    words = str(error)[:300]
  stop(process)
  if server.get('cleanup'):
    subprocess.run(server['cleanup'], shell=True)
  os.sync()  # what one server left unwritten must not weigh on the next
  return ready, result, words


def other(row):
  return row['result']['other_cpu_cores'] if row['result'] else float('inf')


def run_cell(args, cell, options, name, server, repetition):
  """Runs a cell until the machine was quiet enough; returns the least disturbed row."""
  best = None
  for _ in range(args.retries + 1):
    wait_quiet(args.quiet_wait)
    ready, result, words = run_once(args.load, server, cell, options)
    row = dict(cell=cell, server=name, rep=repetition, args=options, ready_s=round(ready, 3),
               result=result, stderr=words)
    if best is None or other(row) < other(best):
      best = row
    if other(row) <= args.max_other:
      break
  return best


def median(results, path):
  values = []
  for value in results:
    for key in path.split('.'):
      value = value.get(key) if isinstance(value, dict) else None
    values.append(value or 0)
  return statistics.median(values)


def table(rows):
  print(COLUMNS)
  for cell, name in dict.fromkeys((r['cell'], r['server']) for r in rows):
    found = [r['result'] for r in rows if (r['cell'], r['server']) == (cell, name) and r['result']]
    if not found:
      print(f'{cell} | {name} | failed')
      continue
    rate = [r['messages_per_s'] for r in found]
    m = {p: median(found, p) for p in ('mb_per_s', 'latency_ms.p50', 'latency_ms.p99', 'errors',
                                       'lost', 'duplicates', 'server_cpu_cores', 'client_cpu_cores',
                                       'other_cpu_cores')}
    print(f'{cell} | {name} | {len(found)} | {statistics.median(rate):,.0f} ({min(rate):,.0f}..'
          f"{max(rate):,.0f}) | {m['mb_per_s']:.4g} | {m['latency_ms.p50']:.3g} | "
          f"{m['latency_ms.p99']:.3g} | {m['errors']:.0f} | {m['lost']:.0f} | "
          f"{m['duplicates']:.0f} | "
          f"{m['server_cpu_cores']:.2f} | {m['client_cpu_cores']:.2f} | {m['other_cpu_cores']:.2f}")


def ratios(rows):
  """millrace against the ceiling of its cell: rate and latencies."""
  for cell in dict.fromkeys(r['cell'] for r in rows):
    found = {}
    for row in rows:
      if row['cell'] == cell and row['result']:
        found.setdefault(row['server'], []).append(row['result'])
    ours = found.pop('millrace', None)
    for name, theirs in found.items() if ours else ():
      rate, p50, p99 = (median(ours, p) / (median(theirs, p) or 1)
                        for p in ('messages_per_s', 'latency_ms.p50', 'latency_ms.p99'))
      print(f'{cell}: millrace / {name}: rate {rate:.2f}, p50 {p50:.2f}, p99 {p99:.2f}')


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument('--load')
  parser.add_argument('--servers')
  parser.add_argument('--cells')
  parser.add_argument('--out', required=True)
  parser.add_argument('--only', default='', help='comma list of cells')
  parser.add_argument('--repeat', type=int, default=3)
  parser.add_argument('--retries', type=int, default=2)
  parser.add_argument('--max-other', type=float, default=0.2)
  parser.add_argument('--quiet-wait', type=float, default=30)
  parser.add_argument('--only-table', action='store_true')
  args = parser.parse_args()
  if args.only_table:
    rows = [json.loads(line) for line in open(args.out)]
    table(rows)
    ratios(rows)
    return
  servers = json.load(open(args.servers))
  rows = []
  only = args.only.split(',') if args.only else None
  cells = [c for c in read_cells(args.cells, servers) if not only or c[0] in only]
  with open(args.out, 'a') as out:
    for repetition in range(args.repeat):
      for cell, options, names in cells:
        for name in names:
          row = run_cell(args, cell, options, name, servers[name], repetition)
          rows.append(row)
          out.write(json.dumps(row) + '\n')
          out.flush()
          r = row['result']
          shown = row['stderr']
          if r:
            shown = f"{r['messages_per_s']:,.0f}/s other {r['other_cpu_cores']:.2f}"
          print(repetition, cell, name, shown, file=sys.stderr, flush=True)
  table(rows)
  ratios(rows)


main()
