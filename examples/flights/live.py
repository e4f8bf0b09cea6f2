"""The live part: current time stamps at a steady rate, windows of one second, their latency."""
import json
import threading
import time

from google.cloud import pubsub_v1

import stage
import subscriber

AIRPORTS = ('EWR', 'JFK', 'LGA')
JOB = 'flights-live'
BAND = '500ms'
QUIET_SECONDS = 5


class Results:
  """Counts per window and the time from a window's end to its result. Thread-safe."""

  def __init__(self):
    self.lock = threading.Lock()
    self.counts, self.latencies, self.doubled = {}, [], 0

  def receive(self, message):
    now = time.time()
    result = json.loads(message.data)
    with self.lock:
      key = result['airport'], result['window_end']
      if key in self.counts:
        self.doubled += 1
      self.counts[key] = result['scheduled']
      self.latencies.append(now - result['window_end'])
    message.ack()

  def counted(self):
    with self.lock:
      return sum(self.counts.values())


def publish(topic, rate, seconds, name):
  """Publishes `rate` messages a second, each due at its own moment; returns how many."""
  batches = pubsub_v1.types.BatchSettings(max_latency=0.005)
  client = pubsub_v1.PublisherClient(batch_settings=batches)
  began = time.time()
  futures = []
  for number in range(int(rate * seconds)):
    pause = began + number / rate - time.time()
    if pause > 0:
      time.sleep(pause)
    flight = {'origin': AIRPORTS[number % len(AIRPORTS)], 'dep_delay': str(number % 60)}
    at_ms = int(time.time() * 1000)
    futures.append(
        client.publish(topic, json.dumps(flight).encode(), id=f'{name}-{number}', ts=str(at_ms)))
  for future in futures:
    future.result(60)
  return len(futures)


def percentile(values, share):
  ordered = sorted(values)
  return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def quiet_cpu(server):
  """Percent of a core that the server uses while nothing happens."""
  time.sleep(2)
  before = server.cpu_seconds()
  time.sleep(QUIET_SECONDS)
  return (server.cpu_seconds() - before) / QUIET_SECONDS * 100


def run(server, pool, seconds, rate=500):
  """Runs the live part; returns its differences."""
  print(f'\nlive: {rate} messages a second for {seconds:g} s, windows of 1 s, band {BAND}')
  topic, subscription = stage.make('live')
  output, results_subscription = stage.make('live-results')
  results = Results()
  pull = subscriber.subscribe(results_subscription, results.receive)
  stage.submit(server, pool, subscription, output, JOB, '--window_seconds=1',
               f'--dataflow_service_options=timestamp_band={BAND}')
  jobs = stage.Jobs(server)
  stage.wait(lambda: jobs.state(JOB) == 'RUNNING', 60, 'the live job runs')
  publish(topic, rate, 1, 'first')  # starts the workers; not measured
  stage.wait(lambda: results.counted() >= rate, 60, 'the first window of the live job')
  time.sleep(1)
  with results.lock:
    results.counts.clear()
    results.latencies.clear()
  published = publish(topic, rate, seconds, 'live')
  end = time.monotonic() + 15
  while results.counted() < published and time.monotonic() < end:
    time.sleep(0.05)
  time.sleep(1)
  lost = published - results.counted()
  latencies = results.latencies
  print(f'live: {published:,} in, {results.counted():,} counted, {len(latencies):,} results, '
        f'{results.doubled} doubled')
  if latencies:
    print(f'live: result after the end of its window: p50 {percentile(latencies, 0.5):.3f} s, '
          f'p99 {percentile(latencies, 0.99):.3f} s, max {max(latencies):.3f} s')
  print(f'live: server CPU when quiet: {quiet_cpu(server):.1f} % of a core')
  pull.cancel()
  jobs.cancel(JOB)
  return abs(lost) + results.doubled
