"""kill -9 under publish and consume load by stock clients, judged by a record outside the server.

CRASH_KILLS sets the number of kills (soak.sh: 20), CRASH_SEED the moments.
"""
import os
import random
import time

import load
import pytest
from google.cloud import pubsub_v1

KILLS = int(os.environ.get('CRASH_KILLS', '4'))
SEED = int(os.environ.get('CRASH_SEED', '0')) or random.randrange(1, 1 << 30)
DRAIN_SECONDS = 120


def make(name, subscriptions):
  topic = f'projects/crash/topics/{name}'
  pubsub_v1.PublisherClient().create_topic(request={'name': topic})
  paths = [f'projects/crash/subscriptions/{name}-{s}' for s in subscriptions]
  for path in paths:
    pubsub_v1.SubscriberClient().create_subscription(
        request={'name': path, 'topic': topic, 'ack_deadline_seconds': load.ACK_DEADLINE_SECONDS})
  return topic, paths


def lost(publisher, received):
  return [n for n in publisher.acked if n not in received.numbers]


@pytest.mark.timeout(120 + 15 * KILLS + 2 * DRAIN_SECONDS)
def test_acknowledged_publishes_stay_and_acknowledged_messages_stay_away(fresh_server, name):
  rng = random.Random(SEED)
  print(f'seed {SEED}, {KILLS} kills')
  server, boots = fresh_server.start(), load.Boots()
  os.environ['PUBSUB_EMULATOR_HOST'] = server.pubsub
  topic, (unary_path, stream_path) = make(name, ('unary', 'stream'))
  unary_received, stream_received = load.Received(), load.Received()
  publisher = load.Publisher(topic, SEED)
  # A part of the messages is left unacked, so that every crash finds leases and gaps.
  consumer = load.UnaryConsumer(unary_path, boots, unary_received, share=0.8, seed=SEED)
  stream = load.streaming_consumer(stream_path, stream_received)
  publisher.start()
  consumer.start()
  for _ in range(KILLS):
    time.sleep(rng.uniform(0.3, 2.5))
    server.kill()
    boots.killed()
    server.start()
    boots.started()
  time.sleep(1)
  publisher.finish()
  consumer.stop.set()
  consumer.join()
  # Once more from disk alone: what the clients may still hold in memory does not count.
  server.kill()
  boots.killed()
  server.start()
  boots.started()
  # A stock subscriber gives up for good when an ack found no server for a minute: what is left is
  # for a new one.
  stream.cancel()
  stream = load.streaming_consumer(stream_path, stream_received)
  consumer.drain(lambda: not lost(publisher, unary_received), DRAIN_SECONDS)
  end = time.monotonic() + DRAIN_SECONDS
  while lost(publisher, stream_received) and time.monotonic() < end:
    time.sleep(0.1)
  stream.cancel()
  print(f'{publisher.sent} published, {len(publisher.acked)} answered OK, {publisher.unknown} not; '
        f'{len(consumer.promised)} acks promised, {consumer.failed_calls} calls failed; '
        f'{sum(unary_received.numbers.values())} unary and {sum(stream_received.numbers.values())} '
        f'streamed deliveries')
  assert len(publisher.acked) > 100 * KILLS, 'hardly any load: this run proves nothing'
  assert len(consumer.promised) > 50 * KILLS, 'hardly any acks: this run proves nothing'
  assert lost(publisher, unary_received)[:10] == []
  assert lost(publisher, stream_received)[:10] == []
  assert consumer.broken[:10] == []
  assert unary_received.corrupt == [] and stream_received.corrupt == []
  wrong_id = [n for n, i in publisher.acked.items() if unary_received.ids.get(i) != n]
  assert wrong_id[:10] == []
  assert server.stop() == 0
