#!/usr/bin/env python3
"""Elements per second of a Beam runner with Python LOOPBACK workers.

  run.py group --elements 1000000 --endpoint HOST:PORT --server-pid PID   through a GroupByKey
  run.py map --elements 1000000 --endpoint HOST:PORT                      the same without a shuffle
  run.py small --endpoint HOST:PORT                                       median of a tiny job
  run.py stream --elements 50000 --endpoint HOST:PORT --pubsub HOST:PORT  Pub/Sub to Pub/Sub

Prints one JSON line: wall seconds, elements per second, CPU seconds of the client (SDK and workers)
and of the runner. On a shared machine compare CPU seconds.
"""
import argparse
import json
import os
import sys
import threading
import time
import uuid

os.environ.setdefault('GRPC_VERBOSITY', 'NONE')

import apache_beam as beam  # noqa: E402
from apache_beam.options.pipeline_options import PipelineOptions  # noqa: E402
from apache_beam.transforms import window  # noqa: E402

RESULT = {}
LOCK = threading.Lock()


def arguments():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('case', choices=['group', 'map', 'small', 'stream'])
  parser.add_argument('--endpoint', help='a Beam job service; without: the FnApiRunner')
  parser.add_argument('--pubsub', help='HOST:PORT of a Pub/Sub server (case stream)')
  parser.add_argument('--elements', type=int, default=1_000_000)
  parser.add_argument('--keys', type=int, default=1000)
  parser.add_argument('--bytes', type=int, default=100, help='message size (case stream)')
  parser.add_argument('--server-pid', type=int, help='the runner, to report its CPU time too')
  parser.add_argument('--limit', type=int, default=300, help='seconds; longer is not finished')
  return parser.parse_args()


def cpu(server_pid):
  """CPU seconds so far of this client with its workers, and of the runner."""
  own = os.times()
  server = 0.0
  if server_pid:
    fields = open(f'/proc/{server_pid}/stat').read().rsplit(')', 1)[1].split()
    server = (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')
  return own.user + own.system, server


def options(args, streaming=False):
  flags = ['--project=millrace-bench'] + (['--streaming'] if streaming else [])
  if args.endpoint:
    flags += ['--runner=PortableRunner', f'--job_endpoint={args.endpoint}',
              '--environment_type=LOOPBACK']
  else:
    flags += ['--runner=FnApiRunner']
  return PipelineOptions(flags)


class Note(beam.DoFn):
  """Adds what passes to RESULT of this very process: LOOPBACK workers are its threads."""

  def __init__(self, key):
    self.key = key

  def start_bundle(self):
    self.n = 0

  def process(self, x):
    self.n += x if isinstance(x, int) else 1
    yield x

  def finish_bundle(self):
    main = sys.modules['__main__']
    with main.LOCK:
      main.RESULT[self.key] = main.RESULT.get(self.key, 0) + self.n


def bounded(args):
  keys, per = args.keys, 1000
  p = beam.Pipeline(options=options(args))
  numbers = (
      p | beam.Create(range(args.elements // per)) | beam.Reshuffle()
      | beam.FlatMap(lambda i: range(i * per, i * per + per))
      | beam.Map(lambda n: (f'word-{n % keys}', 1)))
  if args.case == 'group':  # every element crosses the shuffle: a plain GroupByKey is not lifted
    numbers = numbers | beam.GroupByKey() | beam.MapTuple(lambda k, ones: sum(ones))
  else:  # all in one fused stage
    numbers = numbers | beam.Map(lambda kv: kv[1])
  _ = numbers | beam.ParDo(Note('total'))
  began = time.time()
  state = p.run().wait_until_finish(duration=args.limit * 1000)
  seconds = time.time() - began
  assert state == 'DONE' and RESULT['total'] == args.elements, (state, RESULT)
  return dict(seconds=round(seconds, 2), elements_per_s=round(args.elements / seconds))


def small(args):
  times = []
  for _ in range(20):
    p = beam.Pipeline(options=options(args))
    _ = p | beam.Create([('k', 1)]) | beam.GroupByKey()
    began = time.time()
    p.run().wait_until_finish()
    times.append(time.time() - began)
  return dict(median_s=round(sorted(times)[10], 3), max_s=round(max(times), 3))


def counting_job(args, subscription, topic):
  keys = args.keys
  p = beam.Pipeline(options=options(args, streaming=True))
  _ = (
      p | beam.io.ReadFromPubSub(subscription=subscription) | beam.ParDo(Note('read'))
      | beam.Map(lambda b: (int(b[:11]) % keys, 1)) | beam.WindowInto(window.FixedWindows(5))
      | beam.CombinePerKey(sum) | beam.MapTuple(lambda k, n: f'{k} {n}'.encode())
      | beam.io.WriteToPubSub(topic))
  return p.run()


def stream(args):
  """A backlog first; read_s ends with the last message read, end_to_end_s with the last count."""
  from google.api_core import exceptions
  from google.cloud import pubsub_v1
  os.environ['PUBSUB_EMULATOR_HOST'] = args.pubsub
  publisher, subscriber = pubsub_v1.PublisherClient(), pubsub_v1.SubscriberClient()

  def make(name):
    topic = f'projects/millrace-bench/topics/{name}-{uuid.uuid4().hex[:8]}'
    subscription = topic.replace('/topics/', '/subscriptions/')
    publisher.create_topic(request=dict(name=topic))
    subscriber.create_subscription(
        request=dict(name=subscription, topic=topic, ack_deadline_seconds=60))
    return topic, subscription

  (source, source_subscription), (sink, sink_subscription) = make('in'), make('out')
  padding = b'.' * max(0, args.bytes - 12)
  for future in [publisher.publish(source, b'%011d ' % i + padding) for i in range(args.elements)]:
    future.result(120)
  began = time.time()
  job = counting_job(args, source_subscription, sink)
  read_s, counted, messages = None, 0, 0
  while counted < args.elements and time.time() - began < args.limit:
    if read_s is None and RESULT.get('read', 0) >= args.elements:
      read_s = round(time.time() - began, 1)
    try:
      request = dict(subscription=sink_subscription, max_messages=1000)
      got = subscriber.pull(request=request, timeout=1, retry=None).received_messages
    except (exceptions.DeadlineExceeded, exceptions.ServiceUnavailable):
      continue
    if got:
      acks = dict(subscription=sink_subscription, ack_ids=[m.ack_id for m in got])
      subscriber.acknowledge(request=acks)
      counted += sum(int(m.message.data.split()[1]) for m in got)
      messages += len(got)
  total = time.time() - began
  job.cancel()
  return dict(read_s=read_s, read_per_s=read_s and round(args.elements / read_s),
              read=RESULT.get('read'), end_to_end_s=round(total, 1), counted=counted,
              exact=counted == args.elements, output_messages=messages)


def main():
  args = arguments()
  before = cpu(args.server_pid)
  case = {'small': small, 'stream': stream}.get(args.case, bounded)
  result = dict(case=args.case, runner=args.endpoint or 'FnApiRunner', elements=args.elements,
                **case(args))
  used = [round(b - a, 2) for a, b in zip(before, cpu(args.server_pid))]
  result['cpu_client_s'], result['cpu_server_s'] = used
  print(json.dumps(result), flush=True)
  os._exit(0)


if __name__ == '__main__':
  main()
