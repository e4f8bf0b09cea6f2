"""The flights that left New York in 2013, from Pub/Sub through Beam to Pub/Sub, checked exactly.

Starts a server and a Beam worker pool, publishes the flights with the stock client, runs
pipeline.py on them and compares every window with oracle.py. With --kill the server is killed
(kill -9) and started again three times meanwhile: while publishing, and twice while the job runs.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(ROOT / 'tools')]

import live  # noqa: E402
import oracle  # noqa: E402
import processes  # noqa: E402
import stage  # noqa: E402
import subscriber  # noqa: E402

JOB = 'flights'
SILENCE_SECONDS = 120  # no new result for so long: something is wrong
GRACE_SECONDS = 3  # for results that must not come


class Killer:
  """kill -9 and restart of the server at given moments. Called from the driver's thread only."""

  def __init__(self, server, wanted):
    self.server, self.wanted, self.kills = server, wanted, 0

  def kill(self, when):
    began = time.monotonic()
    self.server.kill()
    self.server.start()
    self.kills += 1
    print(f'  kill -9 number {self.kills} {when}; ready again after '
          f'{time.monotonic() - began:.1f} s', flush=True)


def publish(topic, flights, month, killer):
  """Runs publisher.py to its end; returns its last progress line."""
  command = [sys.executable, HERE / 'publisher.py', '--topic', topic, '--flights', flights]
  if month:
    command += ['--month', month]
  process = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, text=True)
  progress = {'acked': 0, 'done': False}
  total = 27_000 if month else 336_000
  for line in process.stdout:
    progress = json.loads(line)
    if killer.wanted and not killer.kills and progress['acked'] > total / 3:
      killer.kill(f"while publishing ({progress['acked']:,} acknowledged)")
  if process.wait() or not progress['done']:
    raise RuntimeError('the publisher failed')
  return progress


def follow(comparison, killer):
  """Prints the table as days become complete, until all results are in or nothing comes."""
  airports = sorted({airport for airport, _ in comparison.expected})
  total = len(comparison.expected)
  print(subscriber.heading(airports))
  began, last, seen = time.monotonic(), time.monotonic(), 0
  while comparison.missing() and time.monotonic() - last < SILENCE_SECONDS:
    time.sleep(0.02)
    for day, per_airport, received in comparison.new_rows():
      print(subscriber.row(day, per_airport, received, airports, total), flush=True)
    received = len(comparison.results)
    if received != seen:
      last, seen = time.monotonic(), received
    if killer.wanted and kill_now(killer.kills, received / total, time.monotonic() - began):
      killer.kill(f'while the job runs ({received:,} of {total:,} results in)')
      began = time.monotonic()
  for day, per_airport, received in comparison.new_rows():
    print(subscriber.row(day, per_airport, received, airports, total))
  time.sleep(GRACE_SECONDS)


def kill_now(kills, share, seconds):
  """The second kill before or with the first results, the third on the way."""
  if kills == 1:
    return share > 0 or seconds > 20
  return kills == 2 and (share > 0.3 and seconds > 0.5 or seconds > 20)


def verdict(comparison, flights, progress, killer, seconds):
  """Prints the summary; returns the number of differences."""
  missing = comparison.missing()
  for key, why in comparison.differences[:10]:
    print(f'  difference at {key}: {why}')
  for key in missing[:10]:
    print(f'  missing: {key}')
  differences = len(comparison.differences) + len(missing)
  copies = progress['sent'] - flights
  print(f"{progress['sent']:,} messages published ({copies:,} copies, {progress['repeated']} "
        f'publishes repeated), {len(comparison.results):,} windows, {killer.kills} kills, '
        f'{comparison.redelivered} redelivered, {seconds:.1f} s')
  print(f'{flights:,} flights in, {comparison.counted():,} counted, {differences} differences',
        flush=True)
  return differences


def main_part(server, pool, args):
  month = None if args.all else 1
  expected = oracle.windows(args.flights, month)
  flights = sum(window.scheduled for window in expected.values())
  topic, subscription = stage.make('flights')
  output, results = stage.make('flights-results')
  killer = Killer(server, args.kill)
  print(f'publishing {flights:,} flights and a copy of every 20th …', flush=True)
  began = time.monotonic()
  progress = publish(topic, args.flights, month, killer)
  print(f"{progress['acked']:,} publishes acknowledged after {time.monotonic() - began:.1f} s; "
        'submitting the pipeline …', flush=True)
  comparison = subscriber.Comparison(expected, redelivery_allowed=args.kill)
  pull = subscriber.subscribe(results, comparison.receive)
  stage.submit(server, pool, subscription, output, JOB)
  follow(comparison, killer)
  differences = verdict(comparison, flights, progress, killer, time.monotonic() - began)
  jobs = stage.Jobs(server)
  if differences:
    print(f'job {JOB}: {jobs.state(JOB)}', *jobs.messages(JOB)[-10:], sep='\n  ')
  pull.cancel()
  if args.kill and killer.kills != 3:
    print(f'only {killer.kills} of 3 kills happened')
    differences += 1
  jobs.cancel(JOB)
  return differences


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--kill', action='store_true', help='kill -9 the server three times')
  parser.add_argument('--all', action='store_true', help='the whole year, not January')
  parser.add_argument('--live', type=float, metavar='SECONDS',
                      help='length of the live part (default 10; 0: none; with --kill: none)')
  parser.add_argument('--flights', default=ROOT / '.deps/flights/flights.csv')
  parser.add_argument('--keep', action='store_true', help='keep data directory and logs')
  args = parser.parse_args()
  seconds = args.live if args.live is not None else 0 if args.kill else 10
  work = pathlib.Path(tempfile.mkdtemp(prefix='millrace-flights-'))
  server = processes.Server(work / 'data', work / 'server.log')
  differences = 1
  try:
    with server, processes.WorkerPool(work / 'pool.log') as pool:
      print(f'server ready after {server.ready_seconds * 1000:.0f} ms: pubsub={server.pubsub} '
            f'dataflow={server.dataflow} http={server.http}')
      stage.use(server)
      differences = main_part(server, pool, args)
      if seconds:
        differences += live.run(server, pool, seconds)
  finally:
    if differences or args.keep:
      print(f'logs and data: {work}')
    else:
      shutil.rmtree(work)
  return 1 if differences else 0


if __name__ == '__main__':
  sys.exit(main())
