"""Bounded pipelines through the Job API: results, metrics, failures."""

import apache_beam as beam
import beam_jobs
import processes
import pytest
import stage
from apache_beam.metrics import Metrics, MetricsFilter
from apache_beam.testing.util import assert_that, equal_to


def test_word_count(server, name):
  with beam.Pipeline(options=beam_jobs.options(server, name, streaming=False)) as p:
    words = p | beam.Create(['to', 'be', 'or', 'not', 'to', 'be'])
    counts = words | beam.combiners.Count.PerElement()
    assert_that(counts, equal_to([('to', 2), ('be', 2), ('or', 1), ('not', 1)]))


def test_every_element_of_a_large_group_by_key(server, name):
  total, keys = 200_000, 100
  with beam.Pipeline(options=beam_jobs.options(server, name, streaming=False)) as p:
    numbers = p | beam.Create(range(total // 1000)) | beam.Reshuffle() | beam.FlatMap(
        lambda i: range(i * 1000, i * 1000 + 1000))
    groups = numbers | beam.Map(lambda n: (n % keys, n)) | beam.GroupByKey()
    sums = groups | beam.MapTuple(lambda key, values: (key, len(list(values))))
    assert_that(sums, equal_to([(key, total // keys) for key in range(keys)]))


def test_external_worker_pool(server, name, tmp_path):
  with processes.WorkerPool(tmp_path / 'pool.log') as pool:
    options = beam_jobs.options(server, name, streaming=False, environment='EXTERNAL',
                                config=pool.address)
    with beam.Pipeline(options=options) as p:
      squares = p | beam.Create(range(100)) | beam.Map(lambda n: n * n)
      assert_that(squares, equal_to([n * n for n in range(100)]))


def test_counters_are_committed(server, name):
  counter = Metrics.counter('tests', 'seen')

  def count(element):
    counter.inc()
    return element

  pipeline = beam.Pipeline(options=beam_jobs.options(server, name, streaming=False))
  _ = pipeline | beam.Create(range(1234)) | beam.Map(count)
  result = pipeline.run()
  result.wait_until_finish()
  found = result.metrics().query(MetricsFilter().with_name('seen'))['counters']
  assert [c.committed for c in found] == [1234]


ATTEMPTS = []


def fail(element):
  """Pickled by reference: LOOPBACK workers add to the list of this very module."""
  ATTEMPTS.append(element)
  raise KeyError('broken on purpose')


def test_a_bounded_job_fails_after_four_attempts(server, name):
  pipeline = beam.Pipeline(options=beam_jobs.options(server, name, streaming=False))
  _ = pipeline | beam.Create(['x']) | beam.Map(fail)
  with pytest.raises(RuntimeError, match='broken on purpose'):
    pipeline.run().wait_until_finish()
  assert len(ATTEMPTS) == 4
  assert stage.Jobs(server).state(name) == 'FAILED'


def test_cancel(server, name):
  topic, subscription = beam_jobs.make(name)
  pipeline = beam.Pipeline(options=beam_jobs.options(server, name))
  _ = pipeline | beam.io.ReadFromPubSub(subscription=subscription) | beam.Map(len)
  result = pipeline.run()
  stage.wait(lambda: result.state == 'RUNNING', 30, 'the job runs')
  result.cancel()
  stage.wait(lambda: stage.Jobs(server).state(name) == 'CANCELLED', 30, 'the job is cancelled')
