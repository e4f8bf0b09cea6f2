"""Receives the pipeline's results with the stock client and compares each with the oracle."""
import collections
import datetime
import json
import threading

from google.cloud import pubsub_v1

import oracle


class Comparison:
  """Results as they came in. Thread-safe: the client calls receive() from its threads.

  Nothing is deduplicated: a second result for a window is a difference. Only the same message
  (same message id) delivered again by the broker after a kill counts as a redelivery, since its ack
  may have died with the server.
  """

  def __init__(self, expected, redelivery_allowed):
    self.expected, self.redelivery_allowed = expected, redelivery_allowed
    self.lock = threading.Lock()
    self.results = {}
    self.message_ids = set()
    self.differences = []
    self.redelivered = 0
    self.missing_per_day = collections.Counter(self.day(start) for _, start in expected)
    self.days = collections.defaultdict(lambda: collections.defaultdict(list))
    self.complete_days = []

  @staticmethod
  def day(start):
    return datetime.datetime.fromtimestamp(start, datetime.timezone.utc).date()

  def receive(self, message):
    with self.lock:
      self.take(message.message_id, json.loads(message.data))
    message.ack()

  def take(self, message_id, result):
    key = result['airport'], result['window_start']
    if message_id in self.message_ids and self.redelivery_allowed:
      self.redelivered += 1
      return
    self.message_ids.add(message_id)
    if key in self.results:
      self.differences.append((key, f'a second result: {result}'))
      return
    self.results[key] = result
    why = oracle.difference(self.expected.get(key), result)
    if why:
      self.differences.append((key, why))
    if key in self.expected:
      day = self.day(key[1])
      self.days[day][key[0]].append(result)
      self.missing_per_day[day] -= 1
      if not self.missing_per_day[day]:
        self.complete_days.append(day)

  def new_rows(self):
    """Table rows of the days that became complete since the last call."""
    with self.lock:
      days, self.complete_days = self.complete_days, []
      return [(day, self.days.pop(day), len(self.results)) for day in days]

  def missing(self):
    with self.lock:
      return [key for key in self.expected if key not in self.results]

  def counted(self):
    with self.lock:
      return sum(result['scheduled'] for result in self.results.values())


def heading(airports):
  return 'day        ' + ''.join(f'{a + " flights   delay":>22}' for a in airports) + '    windows'


def row(day, per_airport, received, airports, total):
  """One day: departures and mean delay per airport, and how many windows are in."""
  cells = []
  for airport in airports:
    results = per_airport.get(airport, [])
    flown = sum(r['flown'] for r in results)
    minutes = sum(r['average_delay'] * r['flown'] for r in results if r['flown'])
    delay = f'{minutes / flown:5.1f} min' if flown else '        -'
    cells.append(f"{sum(r['scheduled'] for r in results):8d} {delay:>13}")
  return f'{day} ' + ''.join(cells) + f'   {received:,}/{total:,}'


def subscribe(subscription, receive):
  """Starts a stock streaming pull; returns its future."""
  client = pubsub_v1.SubscriberClient()
  return client.subscribe(subscription, callback=receive)
