"""For all Python tests: the tree's own modules and servers to test against."""
import os
import pathlib
import sys
import uuid

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / 'tools'), str(ROOT / 'examples/flights'), str(ROOT / 'tests/support')]
os.environ['GRPC_VERBOSITY'] = 'NONE'
os.environ.setdefault('GOOGLE_CLOUD_PROJECT', 'tests')

import processes  # noqa: E402


@pytest.fixture(scope='module')
def server(tmp_path_factory):
  """A durable server for the tests of one module."""
  folder = tmp_path_factory.mktemp('millraced')
  with processes.Server(folder / 'data', folder / 'server.log') as running:
    os.environ['PUBSUB_EMULATOR_HOST'] = running.pubsub
    yield running


@pytest.fixture
def fresh_server(tmp_path):
  """A server of the test's own that it may kill; not started yet."""
  made = processes.Server(tmp_path / 'data', tmp_path / 'server.log')
  yield made
  if made.process and made.process.poll() is None:
    made.kill()


@pytest.fixture
def name():
  """A resource name that no other test uses."""
  return f't-{uuid.uuid4().hex[:12]}'
