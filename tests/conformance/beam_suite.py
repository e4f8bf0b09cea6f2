"""Beam's own PortableRunnerTest, run unmodified against a job endpoint with LOOPBACK workers."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import processes
import results

HERE = pathlib.Path(__file__).resolve().parent / 'beam'
TEST_SECONDS = 60
IDLE_SECONDS = 120


class Run:
  """One class of portable_suite.py. A test that hangs ends its process; a new one runs the rest."""

  def __init__(self, server, group, only, work):
    self.server, self.group, self.only = server, group, only
    self.report, self.ids = work / f'{group}.jsonl', work / f'{group}.ids'
    self.log = work / f'{group}.log'
    self.seen = 0

  def start(self, *extra, **env):
    path = str(HERE)
    everything = dict(os.environ, SUITE_ENDPOINT=self.server.dataflow, PYTHONPATH=path,
                      SUITE_REPORT=str(self.report), GRPC_VERBOSITY='NONE', **env)
    everything.pop('PUBSUB_EMULATOR_HOST', None)
    command = [sys.executable, '-m', 'pytest', '-c', HERE / 'pytest.ini', '--rootdir', HERE, '-q',
               '-p', 'glue', f'portable_suite.py::{self.group}', *extra]
    with open(self.log, 'ab') as log:
      return subprocess.Popen([str(c) for c in command], cwd=HERE, env=everything, stdout=log,
                              stderr=subprocess.STDOUT, start_new_session=True,
                              preexec_fn=processes.end_with_parent)

  def events(self):
    try:
      lines = self.report.read_text().split('\n')[:-1]
    except FileNotFoundError:
      return []
    new, self.seen = lines[self.seen:], len(lines)
    return [json.loads(line) for line in new]

  def collect(self):
    self.start('--collect-only').wait(180)
    collected = [e for e in self.events() if e['event'] == 'collected']
    if not collected:
      raise RuntimeError(f'no tests collected; see {self.log}')
    return [i for i in collected[0]['ids'] if re.search(self.only, f'beam {i}')]

  def tests(self):
    todo = self.collect()
    idle = 0
    while todo and idle < 3:
      self.server.ensure()
      self.ids.write_text(json.dumps(todo))
      done = set()
      for test in self.run_once():
        done.add(test.name)
        yield test
      idle = 0 if done else idle + 1
      todo = [i for i in todo if i not in done]
    for name in todo:
      yield results.Test(name, 'failed', 'never ran')

  def run_once(self):
    """Runs the tests of self.ids until all are done or one ends the process."""
    process = self.start(SUITE_IDS=str(self.ids))
    current, since, verdict = None, time.monotonic(), None
    while not verdict:
      time.sleep(0.2)
      over = process.poll() is not None
      for event in self.events():
        since = time.monotonic()
        if event['event'] == 'start':
          current = event['id']
        elif event['event'] == 'end':
          current = None
          reason = results.shorten(event['reason'][-450:])
          yield results.Test(event['id'], event['outcome'], reason, event['seconds'])
      waited = time.monotonic() - since
      if over:
        verdict = 'the test process ended'
      elif self.server.died():
        verdict = 'the server ended: ' + self.server.last_words()
      elif waited > (TEST_SECONDS if current else IDLE_SECONDS):
        verdict = f'no end within {waited:.0f} s'
    try:
      os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
      pass
    process.wait()
    if current:
      yield results.Test(current, 'failed', verdict, waited)


def portable_batch(server, only):
  yield from run(server, 'BatchTest', only)


def portable_stream(server, only):
  yield from run(server, 'StreamingTest', only)


def run(server, group, only):
  work = pathlib.Path(tempfile.mkdtemp(prefix='beam-suite-'))
  yield from Run(server, group, only, work).tests()
