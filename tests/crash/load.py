"""Publish and consume load by stock clients, with a record of what the server promised.

The record lives in this process, outside the server: what was answered OK, in which run of the
server, and everything that came out. `check` compares it with the two promises.
"""
import collections
import random
import threading
import time
import zlib

from google.api_core import exceptions
from google.cloud import pubsub_v1

OUTSTANDING_MAX = 2000
PULL_MAX = 200
ACK_DEADLINE_SECONDS = 60  # far above any pause of a run: only a crash brings a message back


def body(number, rng):
  """A message that can be checked: number, padding, checksum."""
  text = f'{number}:'.encode() + rng.randbytes(rng.randrange(20, 2000)).hex().encode()
  return text + b':%08x' % zlib.crc32(text)


def number_of(data):
  """The number of a message, or None if its bytes are not what was published."""
  text, _, checksum = data.rpartition(b':')
  if not checksum or int(checksum, 16) != zlib.crc32(text):
    return None
  return int(text.split(b':')[0])


class Boots:
  """Which run of the server is going on. Odd numbers are the times in between."""

  def __init__(self):
    self.number = 0

  def killed(self):
    self.number += 1

  def started(self):
    self.number += 1


class Publisher(threading.Thread):
  """Publishes numbered messages as fast as OUTSTANDING_MAX allows; keeps the ids of those acked."""

  def __init__(self, topic, seed):
    super().__init__(daemon=True)
    batches = pubsub_v1.types.BatchSettings(max_messages=100, max_latency=0.01)
    self.client = pubsub_v1.PublisherClient(batch_settings=batches)
    self.topic, self.rng = topic, random.Random(seed)
    self.room, self.stop = threading.Semaphore(OUTSTANDING_MAX), threading.Event()
    self.acked = {}  # number → message id
    self.sent, self.unknown = 0, 0

  def run(self):
    while not self.stop.is_set():
      if not self.room.acquire(timeout=0.1):
        continue
      number, self.sent = self.sent, self.sent + 1
      future = self.client.publish(self.topic, body(number, self.rng))
      future.add_done_callback(lambda done, number=number: self.answered(number, done))

  def answered(self, number, future):
    if future.exception() is None:
      self.acked[number] = future.result()
    else:
      self.unknown += 1
    self.room.release()

  def finish(self, seconds=90):
    """Stops and waits until every publish is answered one way or the other."""
    self.stop.set()
    self.join()
    end = time.monotonic() + seconds
    while len(self.acked) + self.unknown < self.sent and time.monotonic() < end:
      time.sleep(0.05)


class Received:
  """What came out of one subscription. Thread-safe by the interpreter's lock: appends only."""

  def __init__(self):
    self.numbers = collections.Counter()
    self.ids = {}  # message id → number
    self.corrupt = []

  def take(self, message):
    number = number_of(message.data)
    if number is None:
      self.corrupt.append(message.message_id)
      return
    self.numbers[number] += 1
    self.ids[message.message_id] = number


class UnaryConsumer(threading.Thread):
  """Pull and Acknowledge in turn. An ack counts as promised when the server that had handed the
  message out answered OK, and was not killed in between."""

  def __init__(self, subscription, boots, received, share=1.0, seed=0):
    super().__init__(daemon=True)
    self.client = pubsub_v1.SubscriberClient()
    self.subscription, self.boots, self.received = subscription, boots, received
    self.share, self.rng = share, random.Random(seed)
    self.promised = {}  # message id → boot in which the ack was answered
    self.broken = []  # (message id, boot of the ack, boot of the return)
    self.failed_calls, self.stop = 0, threading.Event()

  def run(self):
    while not self.stop.is_set():
      try:
        self.turn()
      except exceptions.GoogleAPICallError:
        self.failed_calls += 1
        time.sleep(0.05)

  def turn(self, wait=2):
    boot = self.boots.number
    request = {'subscription': self.subscription, 'max_messages': PULL_MAX}
    messages = self.client.pull(request=request, timeout=wait, retry=None).received_messages
    for m in messages:
      if m.message.message_id in self.promised:
        self.broken.append((m.message.message_id, self.promised[m.message.message_id], boot))
      self.received.take(m.message)
    acks = [m for m in messages if self.rng.random() < self.share]
    if not acks:
      return len(messages)
    request = {'subscription': self.subscription, 'ack_ids': [m.ack_id for m in acks]}
    self.client.acknowledge(request=request, timeout=5, retry=None)
    if boot == self.boots.number and boot % 2 == 0:
      for m in acks:
        self.promised[m.message.message_id] = boot
    return len(messages)

  def drain(self, wanted, seconds):
    """Goes on in the caller's thread until `wanted()` is true and nothing comes any more."""
    end, empty = time.monotonic() + seconds, 0
    self.share = 1.0
    while time.monotonic() < end and empty < 3:
      try:
        got = self.turn(wait=1.5)
      except exceptions.DeadlineExceeded:
        got = 0
      except exceptions.GoogleAPICallError:
        continue
      empty = empty + 1 if not got and wanted() else 0
    return wanted()


def streaming_consumer(subscription, received):
  """A stock streaming pull that acks everything; returns its future."""

  def take(message):
    received.take(message)
    message.ack()

  flow = pubsub_v1.types.FlowControl(max_messages=1000)
  return pubsub_v1.SubscriberClient().subscribe(subscription, callback=take, flow_control=flow)
