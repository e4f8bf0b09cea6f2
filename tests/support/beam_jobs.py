"""Jobs on the server under test: options, topics, results, metrics."""
import re
import threading
import time
import urllib.request

from apache_beam.options.pipeline_options import PipelineOptions
from google.api_core import exceptions
from google.cloud import pubsub_v1

PROJECT = 'millrace-tests'


def options(server, name, streaming=True, environment='LOOPBACK', config=None, extra=()):
  flags = ['--runner=PortableRunner', f'--job_endpoint={server.dataflow}', f'--job_name={name}',
           f'--environment_type={environment}', f'--project={PROJECT}', *extra]
  if config:
    flags += [f'--environment_config={config}', '--sdk_location=container']
  return PipelineOptions(flags, streaming=streaming)


def make(name):
  """A topic and a subscription; returns their full names."""
  topic = f'projects/{PROJECT}/topics/{name}'
  subscription = f'projects/{PROJECT}/subscriptions/{name}'
  pubsub_v1.PublisherClient().create_topic(request={'name': topic})
  pubsub_v1.SubscriberClient().create_subscription(
      request={'name': subscription, 'topic': topic, 'ack_deadline_seconds': 60})
  return topic, subscription


def publish(topic, bodies, **attributes):
  client = pubsub_v1.PublisherClient()
  for future in [client.publish(topic, body, **attributes) for body in bodies]:
    future.result(60)


class Collector(threading.Thread):
  """Pulls and acks one subscription until stopped; keeps (arrival time, message)."""

  def __init__(self, subscription):
    super().__init__(daemon=True)
    self.client = pubsub_v1.SubscriberClient()
    self.subscription, self.over = subscription, threading.Event()
    self.arrived = []
    self.start()

  def run(self):
    while not self.over.is_set():
      try:
        request = {'subscription': self.subscription, 'max_messages': 1000}
        got = self.client.pull(request=request, timeout=1.5, retry=None).received_messages
        now = time.monotonic()
        self.arrived += [(now, m.message) for m in got]
        if got:
          acks = {'subscription': self.subscription, 'ack_ids': [m.ack_id for m in got]}
          self.client.acknowledge(request=acks)
      except exceptions.GoogleAPICallError:
        time.sleep(0.05)

  def bodies(self):
    return [m.data for _, m in self.arrived]

  def wait(self, count, seconds):
    """True once `count` messages are in."""
    end = time.monotonic() + seconds
    while len(self.arrived) < count and time.monotonic() < end:
      time.sleep(0.05)
    return len(self.arrived) >= count

  def stop(self):
    self.over.set()
    self.join()


def metric(server, name, label):
  """Value of the series `name` whose labels contain `label`; None if there is none."""
  text = urllib.request.urlopen(f'http://{server.http}/metrics', timeout=10).read().decode()
  found = re.search(rf'^{name}{{[^}}]*{re.escape(label)}[^}}]*}} (\S+)', text, re.M)
  return float(found[1]) if found else None
