#!/usr/bin/env python3
"""Runs suites that others wrote against a server and compares with expected_failures.txt.

  run.py [--suite NAME,…] [--only REGEX] [--pubsub HOST:PORT --dataflow HOST:PORT] [--json FILE]

Without addresses it starts build/bin/millraced itself. A failure that is not listed and a listed
test that passes both count as failures of this run; skipped is what a suite itself skips. A test
that surprises is run once more, alone, and the second verdict counts: some suites depend on the
machine's pace.
"""
import argparse
import dataclasses
import json
import pathlib
import re
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / 'tools')]

import beam_suite  # noqa: E402
import processes  # noqa: E402
import pubsub_suites  # noqa: E402

SUITES = {
    'go-pubsub': pubsub_suites.go_pubsub,
    'python-system': pubsub_suites.python_system,
    'beam-portable-batch': beam_suite.portable_batch,
    'beam-portable-stream': beam_suite.portable_stream,
}


SURPRISES_MAX = 10


class Given:
  """A server that runs already; nobody here restarts it."""

  def __init__(self, pubsub, dataflow):
    self.pubsub, self.dataflow = pubsub, dataflow

  def ensure(self):
    pass

  def died(self):
    return False

  def stop(self):
    pass


class Own(processes.Server):
  """A server of our own, started again when a test has ended it."""

  def ensure(self):
    if self.process is None or self.died():
      self.start()

  def died(self):
    return self.process.poll() is not None

  def last_words(self):
    return processes.tail(self.log, 3)


class Expected:
  """expected_failures.txt. A name that ends with * stands for all that begin so: Go's order of
  subtests changes, and the first failure ends the test."""

  def __init__(self):
    self.names = set()
    for line in (HERE / 'expected_failures.txt').read_text().splitlines():
      line = line.partition('#')[0]
      if line.strip():
        suite, test = line.split(None, 1)
        self.names.add((suite, test.strip()))

  @staticmethod
  def matches(pattern, test):
    return test.startswith(pattern[:-1]) if pattern.endswith('*') else test == pattern

  def listed(self, suite, test):
    return any(s == suite and self.matches(p, test) for s, p in self.names)

  def not_run(self, suite, tests):
    """Entries of this suite that no test bears."""
    return [p for s, p in sorted(self.names)
            if s == suite and not any(self.matches(p, t) for t in tests)]


def judge(test, listed):
  """(what to print, does it count as a failure of this run)."""
  if test.outcome == 'failed':
    return ('expected', False) if listed else ('FAILED', True)
  if test.outcome == 'passed' and listed:
    return 'PASSED THOUGH LISTED', True
  return test.outcome, False


def again(name, server, test):
  """The same test once more, alone; the old result if the suite does not find it."""
  server.ensure()
  if name == 'python-system':
    only = 'python-system ' + test.name.partition('[')[0].rpartition('.')[2]
  else:
    suite = 'beam' if name.startswith('beam') else name
    only = f"{suite} {re.escape(test.name.partition('/')[0])}$"
  return next((t for t in SUITES[name](server, only) if t.name == test.name), test)


def settle(name, server, surprising, expected):
  """Runs what surprised once more, unless it is too much for chance; returns what is still bad."""
  if len(surprising) > SURPRISES_MAX:
    return len(surprising)
  bad = 0
  for test in surprising:
    verdict, counts = judge(again(name, server, test), expected.listed(name, test.name))
    print(f'{verdict:8} on the second try: {name} {test.name}', flush=True)
    bad += counts
  return bad


def run_suite(name, server, only, expected):
  """Runs one suite; returns (results, number of bad ones)."""
  server.ensure()
  tests, surprising, began = [], [], time.monotonic()
  for test in SUITES[name](server, only):
    verdict, counts = judge(test, expected.listed(name, test.name))
    if counts:
      surprising.append(test)
    tests.append(test)
    message = f'  {test.message[:300]}' if test.outcome == 'failed' else ''
    print(f'{verdict:8} {test.seconds:6.1f}s {name} {test.name}{message}', flush=True)
  bad = settle(name, server, surprising, expected)
  if not only:
    for entry in expected.not_run(name, {t.name for t in tests}):
      print(f'FAILED  listed but not run: {name} {entry}')
      bad += 1
  count = {o: sum(t.outcome == o for t in tests) for o in ('passed', 'failed', 'skipped')}
  known = sum(t.outcome == 'failed' and expected.listed(name, t.name) for t in tests)
  print(f"{name}: {count['passed']} passed, {count['failed']} failed ({known} of them expected), "
        f"{count['skipped']} skipped by the suite, {time.monotonic() - began:.0f} s", flush=True)
  return tests, bad


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--suite', default=','.join(SUITES))
  parser.add_argument('--only', default='', help='regular expression on "suite test"')
  parser.add_argument('--pubsub')
  parser.add_argument('--dataflow')
  parser.add_argument('--json', help='file for all results')
  args = parser.parse_args()
  work = pathlib.Path(tempfile.mkdtemp(prefix='conformance-'))
  given = args.pubsub or args.dataflow
  server = Given(args.pubsub, args.dataflow) if given else Own(work / 'data', work / 'server.log')
  expected = Expected()
  everything, bad = {}, 0
  try:
    for name in args.suite.split(','):
      everything[name], more = run_suite(name, server, args.only, expected)
      bad += more
  finally:
    server.stop()
  if args.json:
    rows = {n: [dataclasses.asdict(t) for t in tests] for n, tests in everything.items()}
    pathlib.Path(args.json).write_text(json.dumps(rows, indent=1))
  good = sum(t.outcome == 'passed' for tests in everything.values() for t in tests)
  print(f'conformance: {good} passed, {bad} failed (logs: {work})')
  return 1 if bad or not good else 0


if __name__ == '__main__':
  sys.exit(main())
