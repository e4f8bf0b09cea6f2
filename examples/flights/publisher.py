"""Publishes the flights of 2013 with the stock client, some twice, until each is acknowledged.

Prints a line of JSON every 0.1 s: how many publishes were handed over, how many acknowledged.
"""
import argparse
import csv
import datetime
import heapq
import json
import random
import threading
import time

from google.cloud import pubsub_v1

COPIES = 0.05  # so many rows go twice
COPY_DISTANCE_MAX = 1000  # a copy follows its first within so many messages
OUTSTANDING_MAX = 5000
SEED = 2013


def rows(path, month=None):
  """(row number, event time in ms, row) in the order of the file."""
  with open(path, newline='') as file:
    for number, row in enumerate(csv.DictReader(file), 1):
      if month is None or int(row['month']) == month:
        at = datetime.datetime.fromisoformat(row['time_hour'].replace('Z', '+00:00'))
        yield number, int(at.timestamp() * 1000), row


def with_copies(flights, seed=SEED):
  """The same flights, COPIES of them twice."""
  flights = list(flights)
  order = random.Random(seed)
  twice = set(order.sample(range(len(flights)), round(len(flights) * COPIES)))
  waiting = []  # (position, index)
  position = 0
  for index, flight in enumerate(flights):
    while waiting and waiting[0][0] <= position:
      yield flights[heapq.heappop(waiting)[1]]
      position += 1
    yield flight
    position += 1
    if index in twice:
      # Copies that wait together push each other back by a few places; 900 leaves room for them.
      heapq.heappush(waiting, (position + order.randrange(COPY_DISTANCE_MAX - 100), index))
  while waiting:
    yield flights[heapq.heappop(waiting)[1]]


class Sender:
  """Keeps at most OUTSTANDING_MAX publishes under way and repeats those that fail."""

  def __init__(self, topic):
    batches = pubsub_v1.types.BatchSettings(max_messages=500, max_bytes=1_000_000, max_latency=0.02)
    self.client = pubsub_v1.PublisherClient(batch_settings=batches)
    self.topic = topic
    self.room = threading.Semaphore(OUTSTANDING_MAX)
    self.lock = threading.Lock()
    self.sent = self.acked = self.repeated = 0

  def send(self, number, at_ms, row):
    self.room.acquire()
    with self.lock:
      self.sent += 1
    self.publish(json.dumps(row).encode(), {'id': str(number), 'ts': str(at_ms)})

  def publish(self, body, attributes):
    future = self.client.publish(self.topic, body, **attributes)
    future.add_done_callback(lambda done: self.answered(done, body, attributes))

  def answered(self, future, body, attributes):
    if future.exception() is not None:
      with self.lock:
        self.repeated += 1
      # Not in this callback's thread: the client may hold locks here.
      threading.Timer(0.2, self.publish, (body, attributes)).start()
      return
    with self.lock:
      self.acked += 1
    self.room.release()

  def progress(self, done=False):
    with self.lock:
      return json.dumps(
          dict(sent=self.sent, acked=self.acked, repeated=self.repeated, done=done))


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--topic', required=True, help='projects/P/topics/T')
  parser.add_argument('--flights', required=True, help='flights.csv')
  parser.add_argument('--month', type=int, help='only this month')
  args = parser.parse_args()
  sender = Sender(args.topic)
  finished = threading.Event()

  def tell():
    while not finished.wait(0.1):
      print(sender.progress(), flush=True)

  teller = threading.Thread(target=tell)
  teller.start()
  for flight in with_copies(rows(args.flights, args.month)):
    sender.send(*flight)
  while sender.acked < sender.sent:
    time.sleep(0.02)
  finished.set()
  teller.join()
  print(sender.progress(done=True), flush=True)


if __name__ == '__main__':
  main()
