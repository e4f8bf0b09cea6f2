"""A stock Apache Beam pipeline: departures per airport and window, from Pub/Sub to Pub/Sub.

Counts the scheduled departures and averages the delay of those that flew. Submits the job and ends;
the job goes on without it.
"""
import argparse
import json

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.window import FixedWindows


def parse(message):
  """JSON of one flight → (airport, minutes of delay, or None if it never left ("NA"))."""
  flight = json.loads(message)
  return flight['origin'], None if flight['dep_delay'] == 'NA' else int(flight['dep_delay'])


class Departures(beam.CombineFn):
  """(scheduled, flown, sum of delays)."""

  def create_accumulator(self):
    return 0, 0, 0

  def add_input(self, total, delay):
    scheduled, flown, minutes = total
    if delay is None:
      return scheduled + 1, flown, minutes
    return scheduled + 1, flown + 1, minutes + delay

  def merge_accumulators(self, totals):
    return tuple(sum(column) for column in zip(*totals))

  def extract_output(self, total):
    return total


def result(departures, window=beam.DoFn.WindowParam):
  airport, (scheduled, flown, minutes) = departures
  return json.dumps({
      'airport': airport,
      'window_start': window.start.micros // 1_000_000,
      'window_end': window.end.micros // 1_000_000,
      'scheduled': scheduled,
      'flown': flown,
      'average_delay': minutes / flown if flown else None,
  }).encode()


def departures_per_window(messages, window_seconds):
  """JSON of flights with event times → one JSON message per airport and window."""
  return (
      messages
      | beam.Map(parse)
      | beam.WindowInto(FixedWindows(window_seconds))
      | beam.CombinePerKey(Departures())
      | beam.Map(result))


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--input_subscription', required=True)
  parser.add_argument('--output_topic', required=True)
  parser.add_argument('--window_seconds', type=int, default=3600)
  args, beam_args = parser.parse_known_args()
  pipeline = beam.Pipeline(options=PipelineOptions(beam_args, streaming=True))
  flights = pipeline | beam.io.ReadFromPubSub(
      subscription=args.input_subscription, id_label='id', timestamp_attribute='ts')
  results = departures_per_window(flights, args.window_seconds)
  _ = results | beam.io.WriteToPubSub(args.output_topic)
  print('job submitted, state', pipeline.run().state)


if __name__ == '__main__':
  main()
