"""The process: options, ready line, shutdown, errors in one sentence."""
import os
import socket
import subprocess
import threading
import time
import urllib.request

from google.api_core import exceptions
from google.cloud import pubsub_v1
import pytest

import processes


def run(*options, cwd=None, seconds=10):
  return subprocess.run([processes.binary(), *map(str, options)], capture_output=True, text=True,
                        timeout=seconds, cwd=cwd)


def refused(*options, cwd=None):
  """The one sentence with which millraced ends."""
  ended = run(*options, cwd=cwd)
  assert ended.returncode == 1, ended
  assert ended.stdout == ''
  lines = ended.stderr.strip().splitlines()
  assert len(lines) == 1 and lines[0].startswith('millraced: ') and lines[0].endswith('.'), ended
  return lines[0]


ANY_PORT = ('--pubsub-port=0', '--dataflow-port=0', '--http-port=0')


def test_version_and_help():
  assert run('--version').stdout.startswith('millraced ')
  text = run('--help').stdout
  for option in ('--listen', '--pubsub-port', '--dataflow-port', '--http-port', '--data-dir',
                 '--in-memory', '--durability', '--min-free', '--roles', '--log-level', '--config',
                 '--allow-unauthenticated-network'):
    assert option in text
  assert run('--no-such-option').returncode != 0


def test_both_loopbacks_share_one_number(fresh_server):
  fresh_server.start()
  for port in fresh_server.ports.values():
    for host in ('127.0.0.1', '::1'):
      socket.create_connection((host, port), 2).close()
  assert fresh_server.stop() == 0


def test_start_is_quick_and_small(fresh_server):
  fresh_server.start()
  assert fresh_server.stop() == 0
  # The second start finds a warm disk. CPU time, since the machine may be busy with other things.
  fresh_server.start()
  assert fresh_server.cpu_seconds() < 0.3
  assert fresh_server.memory_kb() < 64 * 1024
  before = fresh_server.cpu_seconds()
  time.sleep(3)
  assert fresh_server.cpu_seconds() - before < 0.1


def test_config_file_has_the_same_names(tmp_path):
  config = tmp_path / 'millraced.toml'
  config.write_text('listen = ["127.0.0.1"]\npubsub-port = 0\ndataflow-port = 0\nhttp-port = 0\n'
                    f'data-dir = "{tmp_path}/there"\nroles = ["pubsub"]\ndurability = "async"\n'
                    'min-free = "1MB"\nlog-level = "warning"\n')
  child = subprocess.Popen([processes.binary(), '--config', config], stdout=subprocess.PIPE,
                           text=True)
  line = child.stdout.readline()
  assert line.startswith('ready pubsub=127.0.0.1:') and ' dataflow=- ' in line
  assert (tmp_path / 'there').is_dir()
  child.terminate()
  assert child.wait(5) == 0
  config.write_text('no-such-option = 1\n')
  assert run('--config', config).returncode != 0


def test_sentences(fresh_server, tmp_path):
  fresh_server.start()
  port = fresh_server.ports['pubsub']
  busy = refused('--in-memory', f'--pubsub-port={port}', '--dataflow-port=0', '--http-port=0')
  assert str(port) in busy
  assert str(fresh_server.pid) in refused('--data-dir', fresh_server.data_dir, *ANY_PORT)
  assert '--allow-unauthenticated-network' in refused('--in-memory', '--listen=0.0.0.0', *ANY_PORT)
  assert 'numeric address' in refused('--in-memory', '--listen=nowhere', *ANY_PORT)
  a_file = tmp_path / 'file'
  a_file.write_text('')
  assert str(a_file) in refused('--data-dir', a_file / 'data', *ANY_PORT)


@pytest.mark.skipif(os.geteuid() == 0, reason='root may write everywhere')
def test_unwritable_data_directory(tmp_path):
  folder = tmp_path / 'data'
  folder.mkdir(mode=0o500)
  assert str(folder) in refused('--data-dir', folder, *ANY_PORT)


def test_network_needs_the_flag_and_then_works(tmp_path):
  log = tmp_path / 'log'
  with processes.Server(None, log, '--listen=0.0.0.0', '--allow-unauthenticated-network') as server:
    with urllib.request.urlopen(f'http://127.0.0.1:{server.ports["http"]}/health', timeout=5):
      pass
  assert 'without authentication' in log.read_text()


def test_sigterm_with_clients_connected(fresh_server, monkeypatch):
  fresh_server.start()
  monkeypatch.setenv('PUBSUB_EMULATOR_HOST', fresh_server.pubsub)
  publisher, subscriber = pubsub_v1.PublisherClient(), pubsub_v1.SubscriberClient()
  topic = publisher.create_topic(name='projects/p/topics/topic').name
  sub = subscriber.create_subscription(name='projects/p/subscriptions/sub', topic=topic).name
  other = subscriber.create_subscription(name='projects/p/subscriptions/other', topic=topic).name
  got = threading.Event()
  stream = subscriber.subscribe(sub, lambda message: (message.ack(), got.set()))
  publisher.publish(topic, b'x').result(10)
  assert got.wait(10)
  subscriber.pull(subscription=other, max_messages=1)
  pull = threading.Thread(target=lambda: pytest.raises(
      exceptions.GoogleAPICallError, subscriber.pull, subscription=other, max_messages=1,
      retry=None))
  pull.start()
  time.sleep(0.3)
  poll = socket.create_connection(('127.0.0.1', fresh_server.ports['http']))
  began = time.monotonic()
  assert fresh_server.stop(5) == 0
  assert time.monotonic() - began < 5
  pull.join(10)
  poll.close()
  # The stock subscriber takes the end as transient and comes back by itself.
  assert not stream.done(), stream.exception()
  fresh_server.start()
  got.clear()
  publisher.publish(topic, b'y').result(30)
  assert got.wait(60)
  stream.cancel()
  stream.result(30)


def test_what_was_acknowledged_survives_a_restart(fresh_server, monkeypatch):
  fresh_server.start()
  monkeypatch.setenv('PUBSUB_EMULATOR_HOST', fresh_server.pubsub)
  publisher, subscriber = pubsub_v1.PublisherClient(), pubsub_v1.SubscriberClient()
  topic = publisher.create_topic(name='projects/p/topics/topic').name
  sub = subscriber.create_subscription(name='projects/p/subscriptions/sub', topic=topic).name
  ids = [publisher.publish(topic, str(i).encode()).result(10) for i in range(30)]
  got = subscriber.pull(subscription=sub, max_messages=10).received_messages
  acked = {m.message.message_id for m in got}
  subscriber.acknowledge(subscription=sub, ack_ids=[m.ack_id for m in got])
  for end in (fresh_server.kill, fresh_server.stop):
    end()
    fresh_server.start()
    left = set()
    while len(left) < 30 - len(acked):
      left |= {m.message.message_id
               for m in subscriber.pull(subscription=sub, max_messages=100).received_messages}
    assert left == set(ids) - acked
