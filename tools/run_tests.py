"""The stages of ./test: runs each, shows its summary, adds everything up.

No stage is skipped by itself: a stage whose program is missing fails.
"""
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOGS = ROOT / 'build/test-logs'
PYTHON = sys.executable
GTEST_PASSED = re.compile(r'\[  PASSED  \] (\d+) tests?\.')
GTEST_FAILED = re.compile(r'\[  FAILED  \] (\d+) tests?, listed below')


def one(_, status):
  """A check counts as one test."""
  return (0, 1) if status else (1, 0)


def gtest(text, status):
  passed = sum(int(n) for n in GTEST_PASSED.findall(text))
  failed = sum(int(n) for n in GTEST_FAILED.findall(text))
  return passed, failed or (1 if status or not passed else 0)


def totals(pattern):
  """Counts from the runner's own last summary, 'N passed' and 'N failed' in any order."""

  def read(text, status):
    lines = [line for line in text.splitlines() if re.search(pattern, line)]
    found = re.findall(r'(\d+) (passed|failed|error)', lines[-1] if lines else '')
    passed = sum(int(n) for n, word in found if word == 'passed')
    failed = sum(int(n) for n, word in found if word != 'passed')
    return passed, failed or (1 if status or not passed else 0)

  return read


def sanitized(preset, *targets):
  """Builds the targets under a sanitizer and runs them one after the other."""
  runs = ' && '.join(f'build-{preset}/bin/{t} --gtest_brief=1' for t in targets)
  # Leaks are left out: a simulated crash drops what was in flight.
  halt = 'export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 ASAN_OPTIONS=detect_leaks=0'
  return ['bash', '-c', f'{halt}; tools/build {preset} {" ".join(targets)} && {runs}']


STAGES = {
    'layers': (['tools/check_layers'], one),
    'tidy': (['tools/tidy'], one),
    'format': (['tools/format', '--check'], one),
    'unit': (['ctest', '--test-dir', 'build', '-V', '--timeout', '300'], gtest),
    'asan': (sanitized('asan', 'storage_test', 'pubsub_test', 'engine_test'), gtest),
    # The broker is left out: protobuf's headers change the layout of messages under
    # ThreadSanitizer, and Debian's library is built without.
    'tsan': (sanitized('tsan', 'engine_test'), gtest),
    'python': ([PYTHON, '-m', 'pytest', '-c', 'tests/pytest.ini', '--rootdir', 'tests', 'tests'],
               totals(r' in [\d.]+s')),
    'conformance': ([PYTHON, 'tests/conformance/run.py'], totals('^conformance: ')),
}
# Lines worth showing while a stage runs; everything is in its log.
SHOWN = {
    'unit': re.compile(r'Test\s+#|tests passed|FAILED|Failure'),
    'asan': re.compile(r'tests? ran|FAILED|ERROR|SUMMARY|Failure'),
    'tsan': re.compile(r'tests? ran|FAILED|WARNING|SUMMARY|Failure'),
}


def run(name):
  """Runs one stage; returns (passed, failed)."""
  command, read = STAGES[name]
  print(f'== {name}', flush=True)
  shown, text, began = SHOWN.get(name), [], time.monotonic()
  with open(LOGS / f'{name}.log', 'w') as log:
    process = subprocess.Popen([str(c) for c in command], cwd=ROOT, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors='replace')
    for line in process.stdout:
      log.write(line)
      text.append(line)
      if not shown or shown.search(line):
        print(line, end='', flush=True)
    status = process.wait()
  passed, failed = read(''.join(text), status)
  print(f'{name}: {passed} passed, {failed} failed, {time.monotonic() - began:.0f} s', flush=True)
  return passed, failed


def main():
  names = sys.argv[1:] or list(STAGES)
  unknown = [n for n in names if n not in STAGES]
  if unknown:
    sys.exit(f'unknown stages: {unknown}; there are {list(STAGES)}')
  LOGS.mkdir(parents=True, exist_ok=True)
  counts = {name: run(name) for name in names}
  passed, failed = (sum(column) for column in zip(*counts.values()))
  seconds = time.time() - int(os.environ.get('TEST_BEGAN', time.time()))
  bad = [name for name, (_, f) in counts.items() if f]
  print('\nfailed stages: ' + ', '.join(bad) if bad else '\nall stages passed')
  print(f'wall time {int(seconds // 60)} min {int(seconds % 60)} s')
  print(f'{passed} passed, {failed} failed')
  return 1 if failed else 0


if __name__ == '__main__':
  sys.exit(main())
