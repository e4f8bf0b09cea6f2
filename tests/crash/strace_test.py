"""Every answered publish lies after a finished fdatasync of the file that holds it; seen by strace.

kill -9 alone keeps the page cache, so it cannot see a missing sync; this can.
"""
import os
import time

import processes
import pytest
import strace_log
from google.cloud import pubsub_v1

SEQUENTIAL, CONCURRENT, ACKS = 30, 300, 20
SLACK = 0.00005  # strace takes the time of a call's end a little after it


@pytest.fixture(scope='module')
def traced(tmp_path_factory):
  """A server under strace, what clients were told and when, and the trace of it all."""
  folder = tmp_path_factory.mktemp('strace')
  log = folder / 'trace'
  server = processes.Server(folder / 'data', folder / 'log', wrapper=[*strace_log.STRACE, str(log)])
  with server:
    os.environ['PUBSUB_EMULATOR_HOST'] = server.pubsub
    told = talk()
  return told, strace_log.read(log)


def talk():
  """Publishes one by one, then many at once, then acknowledges one by one."""
  topic, path = 'projects/strace/topics/traced', 'projects/strace/subscriptions/traced'
  publisher, subscriber = pubsub_v1.PublisherClient(), pubsub_v1.SubscriberClient()
  publisher.create_topic(request={'name': topic})
  subscriber.create_subscription(request={'name': path, 'topic': topic, 'ack_deadline_seconds': 60})
  told = {'one': [], 'many': [], 'acks': []}

  def publish(kind, number):
    mark = f'mark-{kind}-{number:06d}-end'
    begin = time.time()
    future = publisher.publish(topic, mark.encode())
    future.add_done_callback(lambda f: told[kind].append((mark, begin, time.time(), f.exception())))
    return future

  for number in range(SEQUENTIAL):
    publish('one', number).result(60)
  for future in [publish('many', number) for number in range(CONCURRENT)]:
    future.result(60)
  request = {'subscription': path, 'max_messages': ACKS}
  for received in subscriber.pull(request=request, timeout=30).received_messages:
    begin = time.time()
    subscriber.acknowledge(request={'subscription': path, 'ack_ids': [received.ack_id]})
    told['acks'].append((received.message.message_id, begin, time.time(), None))
  return told


def unsynced(told, calls):
  """Publishes that were answered before a sync of the file that holds them had ended."""
  writes = [c for c in calls if c.name in strace_log.WRITES and 'mark-' in c.arguments]
  found = []
  for mark, _, answered, error in told:
    assert error is None
    holding = [c for c in writes if mark in c.arguments]
    assert holding, f'{mark} was answered and is in no write'
    spans = [(c.end - SLACK, answered + SLACK, c.fd) for c in holding]
    if not any(strace_log.syncs_between(calls, *span) for span in spans):
      found.append(mark)
  return found


def test_publish_is_answered_after_its_sync(traced):
  told, calls = traced
  assert len(told['one']) == SEQUENTIAL
  assert unsynced(told['one'], calls) == []


def test_concurrent_publishes_are_answered_after_their_sync(traced):
  told, calls = traced
  assert len(told['many']) == CONCURRENT
  assert unsynced(told['many'], calls) == []


def test_ack_is_answered_after_a_sync(traced):
  told, calls = traced
  assert told['acks']
  for message, begin, end, _ in told['acks']:
    assert strace_log.syncs_between(calls, begin, end + SLACK), message


def test_the_check_sees_a_missing_sync(traced):
  told, calls = traced
  without = [c for c in calls if c.name not in strace_log.SYNCS]
  assert len(unsynced(told['one'], without)) == SEQUENTIAL
