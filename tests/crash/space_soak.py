#!/usr/bin/env python3
"""Space is freed by liveness: 10 GB pass while one message stays unacked and 1,000 topics idle.

space_soak.py [GB]. Needs build/bin/millraced and build/bin/pubsub-load; takes a few minutes.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / 'tools'))

import processes  # noqa: E402
from google.cloud import pubsub_v1  # noqa: E402

IDLE_TOPICS = 1000
DISK_MAX = 1_000_000_000
PROJECT = 'projects/space'


def disk(folder):
  """Bytes on disk, as du counts them."""
  return sum(p.stat().st_blocks * 512 for p in pathlib.Path(folder).rglob('*') if p.is_file())


def make(publisher, subscriber, name):
  topic, subscription = f'{PROJECT}/topics/{name}', f'{PROJECT}/subscriptions/{name}'
  publisher.create_topic(request={'name': topic})
  subscriber.create_subscription(request={'name': subscription, 'topic': topic})
  publisher.publish(topic, b'stays').result(60)
  return subscription


def main():
  wanted = float(sys.argv[1] if len(sys.argv) > 1 else 10) * 1e9
  with tempfile.TemporaryDirectory(prefix='space-') as work:
    server = processes.Server(pathlib.Path(work) / 'data', pathlib.Path(work) / 'log')
    with server:
      os.environ['PUBSUB_EMULATOR_HOST'] = server.pubsub
      publisher, subscriber = pubsub_v1.PublisherClient(), pubsub_v1.SubscriberClient()
      kept = [make(publisher, subscriber, f'idle-{i}') for i in range(IDLE_TOPICS)]
      passed, most = 0, 0
      while passed < wanted:
        command = [processes.load_generator(), '--endpoint', server.pubsub, '--mode', 'e2e',
                   '--message-size', 10000, '--batch', 100, '--concurrency', 4, '--warmup', 0,
                   '--seconds', 10]
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True)
        result = json.loads(done.stdout)
        assert result['lost'] == 0 and result['errors'] == 0, done.stdout
        passed += result['publish']['messages_ok'] * 10000
        most = max(most, disk(server.data_dir))
        now = disk(server.data_dir) / 1e6
        print(f'{passed / 1e9:.1f} GB passed, {now:.0f} MB on disk', flush=True)
      time.sleep(10)
      end = disk(server.data_dir)
      for subscription in kept[::100]:
        request = {'subscription': subscription, 'max_messages': 1}
        got = subscriber.pull(request=request, timeout=20).received_messages
        assert [m.message.data for m in got] == [b'stays'], subscription
  print(f'{passed / 1e9:.1f} GB passed, at most {most / 1e6:.0f} MB, at the end {end / 1e6:.0f} MB')
  return 0 if end <= DISK_MAX else 1


if __name__ == '__main__':
  sys.exit(main())
