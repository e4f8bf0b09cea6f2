"""The flights demo without a server: publisher, oracle, the pipeline on Beam's own runner."""
import json

import apache_beam as beam
import apache_beam.testing.util
import oracle
import pipeline
import publisher
import pytest
from apache_beam.testing.test_pipeline import TestPipeline

from conftest import ROOT

FLIGHTS = ROOT / '.deps/flights/flights.csv'
JANUARY = 27_004


@pytest.fixture(scope='module')
def january():
  return list(publisher.rows(FLIGHTS, month=1))


def test_every_row_once_and_one_in_twenty_again_nearby(january):
  places = {}
  for place, (number, _, _) in enumerate(publisher.with_copies(january)):
    places.setdefault(number, []).append(place)
  assert len(places) == JANUARY
  copies = [p[1] - p[0] for p in places.values() if len(p) == 2]
  assert len(copies) == round(JANUARY * 0.05)
  assert max(copies) <= 1000
  assert all(len(p) <= 2 for p in places.values())


def test_rows_are_far_out_of_order_in_event_time(january):
  latest, most = 0, 0
  for _, at, _ in january:
    latest = max(latest, at)
    most = max(most, latest - at)
  assert most > 12 * 3600 * 1000


def test_oracle_counts_every_flight():
  expected = oracle.windows(FLIGHTS, month=1)
  assert sum(w.scheduled for w in expected.values()) == JANUARY
  assert sum(w.flown for w in expected.values()) < JANUARY


def test_oracle_tells_a_wrong_result():
  expected = oracle.Expected(scheduled=3, flown=2, delay_minutes=5)
  good = dict(scheduled=3, flown=2, average_delay=2.5)
  assert oracle.difference(expected, good) is None
  assert oracle.difference(expected, {**good, 'flown': 3})
  assert oracle.difference(expected, {**good, 'average_delay': 2.4})
  assert oracle.difference(None, good)


def test_pipeline_agrees_with_the_oracle(january):
  expected = oracle.windows(FLIGHTS, month=1)
  days = [row for row in january if row[2]['day'] in ('1', '2')]
  last = max(at for _, at, _ in days) // 1000
  # Whole hours of the first two local days; nothing of the third is among them.
  expected = {key: w for key, w in expected.items() if key[1] <= last}

  def check(results):
    results = [json.loads(r) for r in results]
    assert len(results) == len(expected)
    for result in results:
      window = expected.get((result['airport'], result['window_start']))
      assert oracle.difference(window, result) is None

  with TestPipeline(runner='FnApiRunner') as p:
    messages = p | beam.Create([(json.dumps(row).encode(), at / 1000) for _, at, row in days])
    stamped = messages | beam.MapTuple(lambda body, at: beam.window.TimestampedValue(body, at))
    results = pipeline.departures_per_window(stamped, 3600)
    beam.testing.util.assert_that(results, check)
