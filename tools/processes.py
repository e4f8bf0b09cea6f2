"""The processes that demos, tests and benches run: the server under test and Beam's worker pool.

Owned by one driver process and ended with it, however it ends. Nothing here knows what is tested.
"""
import ctypes
import os
import pathlib
import re
import select
import signal
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
READY = re.compile(r'^ready pubsub=(\S+) dataflow=(\S+) http=(\S+)$')
READY_SECONDS = 30


def binary():
  """Path of millraced: $MILLRACED or build/bin/millraced."""
  return os.environ.get('MILLRACED', str(ROOT / 'build/bin/millraced'))


def load_generator():
  """Path of pubsub-load, which is built beside the server."""
  return pathlib.Path(binary()).parent / 'pubsub-load'


def end_with_parent():
  """For preexec_fn: the kernel kills the child when this process is gone."""
  ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def popen(command, log, **options):
  """A child in a session of its own whose output goes to the file `log`."""
  with open(log, 'ab') as out:
    return subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stderr=out,
                            stdout=options.pop('stdout', out), start_new_session=True,
                            preexec_fn=end_with_parent, **options)


class Server:
  """One millraced. start() after kill() brings it back on the same ports and data directory."""

  def __init__(self, data_dir, log, *options, wrapper=()):
    self.data_dir, self.log, self.options, self.wrapper = data_dir, log, options, list(wrapper)
    self.process, self.starts = None, 0
    self.ports = {'pubsub': 0, 'dataflow': 0, 'http': 0}
    self.pubsub = self.dataflow = self.http = ''

  def start(self):
    where = ['--in-memory'] if self.data_dir is None else ['--data-dir', self.data_dir]
    ports = [a for name, port in self.ports.items() for a in (f'--{name}-port', port)]
    command = [*self.wrapper, binary(), *where, *ports, *self.options]
    self.process = popen(command, self.log, stdout=subprocess.PIPE, text=True)
    self.starts += 1
    began = time.monotonic()
    if not select.select([self.process.stdout], [], [], READY_SECONDS)[0]:
      self.kill()
      raise RuntimeError(f'not ready after {READY_SECONDS} s; see {self.log}')
    line = self.process.stdout.readline().strip()
    self.ready_seconds = time.monotonic() - began
    match = READY.match(line)
    if not match:
      self.process.wait(10)
      exit_status = self.process.returncode
      raise RuntimeError(f'no ready line but {line!r} (exit {exit_status}); {tail(self.log)}')
    self.pubsub, self.dataflow, self.http = match.groups()
    for name in self.ports:
      self.ports[name] = int(getattr(self, name).rsplit(':', 1)[1])
    return self

  @property
  def pid(self):
    """The server itself, also under a wrapper such as strace."""
    if self.wrapper:
      pid = self.process.pid
      return int(open(f'/proc/{pid}/task/{pid}/children').read().split()[0])
    return self.process.pid

  def kill(self):
    """kill -9."""
    os.kill(self.pid, signal.SIGKILL)
    self.process.wait()

  def stop(self, seconds=5):
    """SIGTERM; returns the exit status. Fails when the server does not end in time."""
    if self.process is None or self.process.poll() is not None:
      return self.process.returncode if self.process else 0
    os.kill(self.pid, signal.SIGTERM)
    try:
      return self.process.wait(seconds)
    except subprocess.TimeoutExpired:
      self.process.kill()
      self.process.wait()
      raise RuntimeError(f'the server did not end within {seconds} s of SIGTERM') from None

  def cpu_seconds(self):
    fields = open(f'/proc/{self.pid}/stat').read().rsplit(')', 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')

  def memory_kb(self, field='VmRSS'):
    status = open(f'/proc/{self.pid}/status').read()
    return int(re.search(rf'^{field}:\s+(\d+)', status, re.M)[1])

  def __enter__(self):
    return self.start()

  def __exit__(self, *error):
    if error[0] is None:
      self.stop()
    elif self.process.poll() is None:
      self.kill()


class WorkerPool:
  """Beam's own worker pool for the EXTERNAL environment; starts Python workers on demand."""

  def __init__(self, log):
    self.log, self.process, self.address = log, None, ''

  def start(self):
    with socket.socket() as s:
      s.bind(('127.0.0.1', 0))
      port = s.getsockname()[1]
    # The pool starts a plain `python` from PATH for each worker.
    folder = os.path.dirname(sys.executable)
    env = dict(os.environ, PATH=f'{folder}:{os.environ["PATH"]}', GRPC_VERBOSITY='NONE')
    module = 'apache_beam.runners.worker.worker_pool_main'
    self.process = popen([sys.executable, '-m', module, '--service_port', port], self.log, env=env)
    self.address = f'localhost:{port}'
    wait_for_port(port, self.process, self.log)
    return self

  def stop(self):
    if self.process and self.process.poll() is None:
      # The pool starts its workers in its own process group.
      os.killpg(self.process.pid, signal.SIGKILL)
      self.process.wait()

  def __enter__(self):
    return self.start()

  def __exit__(self, *error):
    self.stop()


def wait_for_port(port, process, log, seconds=60):
  end = time.monotonic() + seconds
  while time.monotonic() < end:
    try:
      socket.create_connection(('localhost', port), 1).close()
      return
    except OSError:
      if process.poll() is not None:
        break
      time.sleep(0.05)
  raise RuntimeError(f'nothing listens on port {port}; {tail(log)}')


def tail(log, lines=5):
  """The last lines of a log file, for an error message."""
  try:
    return ' | '.join(open(log, errors='replace').read().splitlines()[-lines:])[-1500:]
  except OSError:
    return ''
