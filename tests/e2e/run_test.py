"""The demo as ./run starts it, also killed three times; footprint of a full server."""
import re
import subprocess
import sys

import processes
import pytest

from conftest import ROOT


def flights(*options):
  command = [sys.executable, ROOT / 'examples/flights/main.py', *options]
  done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=580)
  print(done.stdout[-3000:], done.stderr[-2000:])
  return done


@pytest.mark.timeout(600)
def test_january_survives_three_kills():
  done = flights('--kill')
  assert '27,004 flights in, 27,004 counted, 0 differences' in done.stdout
  assert ' 3 kills' in done.stdout
  assert done.returncode == 0


@pytest.mark.timeout(600)
def test_january_and_the_live_part():
  done = flights('--live', '10')
  assert '27,004 flights in, 27,004 counted, 0 differences' in done.stdout
  assert done.returncode == 0
  p99 = float(re.search(r'p99 ([\d.]+) s', done.stdout)[1])
  assert p99 < 2
  quiet = float(re.search(r'quiet: ([\d.]+) %', done.stdout)[1])
  assert quiet < 2


def fill(server, wanted):
  """Publishes at least `wanted` messages of 1 KB that a subscription keeps; returns how many."""
  stored = 0
  while stored < wanted:
    command = [processes.load_generator(), '--endpoint', server.pubsub, '--mode', 'publish',
               '--message-size', 1000, '--batch', 500, '--concurrency', 16, '--rate', 100_000,
               '--warmup', 1, '--seconds', 9.1, '--keep']
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=200)
    stored += int(re.search(r'"messages_ok": (\d+)', done.stdout)[1])
  return stored


def test_a_million_waiting_messages(tmp_path):
  """Ready within 2 s of CPU time (tests run beside others), at most 300 MB of anonymous memory."""
  server = processes.Server(tmp_path / 'data', tmp_path / 'log')
  with server:
    stored = fill(server, 1_000_000)
    server.kill()
    server.start()
    print(f'ready after {server.ready_seconds:.2f} s with {stored} messages waiting, RssAnon '
          f"{server.memory_kb('RssAnon') // 1024} MB")
    assert server.cpu_seconds() < 2
    assert server.memory_kb('RssAnon') < 300 * 1024
