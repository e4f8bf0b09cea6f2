"""User code that throws: for a while, or for one element. Streaming, from Pub/Sub to Pub/Sub."""
import os
import time

import apache_beam as beam
import beam_jobs
import pytest
import stage

OUTAGE_SECONDS = 30
MESSAGES = 2000


class FailWhile(beam.DoFn):
  """Throws as long as a file exists."""

  def __init__(self, path):
    self.path = path

  def process(self, body):
    if os.path.exists(self.path):
      raise RuntimeError('the outage of this test')
    yield body


class FailOn(beam.DoFn):
  """Throws for one element, always."""

  def __init__(self, poison):
    self.poison = poison

  def process(self, body):
    if body == self.poison:
      raise ValueError('this element is poisoned')
    yield body


@pytest.fixture
def line(server, name):
  """run(dofn): a job read → dofn → write; returns (input topic, collector of the output)."""
  started = []

  def run(dofn):
    topic, subscription = beam_jobs.make(f'{name}-in')
    output, results = beam_jobs.make(f'{name}-out')
    pipeline = beam.Pipeline(options=beam_jobs.options(server, name))
    read = pipeline | beam.io.ReadFromPubSub(subscription=subscription)
    _ = read | beam.ParDo(dofn) | beam.io.WriteToPubSub(output)
    started.extend([pipeline.run(), beam_jobs.Collector(results)])
    return topic, started[1]

  yield run
  if started:
    started[0].cancel()
    started[1].stop()


def test_an_outage_of_30_s_loses_and_doubles_nothing(server, name, line, tmp_path):
  switch = tmp_path / 'outage'
  switch.touch()
  topic, results = line(FailWhile(str(switch)))
  bodies = [b'%d' % i for i in range(MESSAGES)]
  beam_jobs.publish(topic, bodies)
  time.sleep(OUTAGE_SECONDS)
  assert results.arrived == []
  switch.unlink()
  assert results.wait(MESSAGES, 90), f'{len(results.arrived)} of {MESSAGES} after the outage'
  time.sleep(3)
  assert sorted(results.bodies()) == sorted(bodies)
  subscription = f'{name}-in'
  assert beam_jobs.metric(server, 'millrace_pubsub_subscription_nacked_total', subscription) == 0
  texts = stage.Jobs(server).messages(name)
  assert any('the outage of this test' in text for text in texts), texts


def test_good_elements_pass_a_poisoned_one(server, name, line):
  topic, results = line(FailOn(b'poison'))
  first = [b'first-%d' % i for i in range(500)]
  began = time.monotonic()
  beam_jobs.publish(topic, first[:250] + [b'poison'] + first[250:])
  assert results.wait(len(first), 30), f'{len(results.arrived)} of {len(first)} within 30 s'
  assert time.monotonic() - began < 30 + 5
  second = [b'second-%d' % i for i in range(500)]
  beam_jobs.publish(topic, second)
  assert results.wait(len(first) + len(second), 30), f'{len(results.arrived)} of 1000'
  time.sleep(2)
  assert sorted(results.bodies()) == sorted(first + second)
  texts = stage.Jobs(server).messages(name)
  assert any('this element is poisoned' in text for text in texts), texts
