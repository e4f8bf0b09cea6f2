"""A job with an EXTERNAL pool goes on after kill -9 of the server, with no client attached."""
import json
import os
import subprocess
import sys
import time

import beam_jobs
import processes
import stage

from conftest import ROOT


WINDOW, BAND = 30, 40  # seconds


def flight(airport, delay):
  return json.dumps({'origin': airport, 'dep_delay': str(delay)}).encode()


def test_open_windows_survive_two_kills(fresh_server, name, tmp_path):
  """State of a window that is still open when the server dies is there when it closes."""
  server = fresh_server.start()
  os.environ['PUBSUB_EMULATOR_HOST'] = server.pubsub
  topic, subscription = beam_jobs.make(f'{name}-in')
  output, results_subscription = beam_jobs.make(f'{name}-out')
  with processes.WorkerPool(tmp_path / 'pool.log') as pool:
    submit(server, pool, subscription, output, name)
    collector = beam_jobs.Collector(results_subscription)
    stage.wait(lambda: stage.Jobs(server).state(name) == 'RUNNING', 60, 'the job runs')
    # One window that closes BAND after its end; its messages come before, between and after the
    # kills.
    start = int(time.time() // WINDOW) * WINDOW
    for part in range(3):
      for number in range(4):
        stamp = {'id': f'{part}-{number}', 'ts': str(start * 1000 + 1000 * part)}
        beam_jobs.publish(topic, [flight('EWR', 1)], **stamp)
      time.sleep(2)  # so that the job has consumed them: they live in its state now
      if part < 2:
        server.kill()
        server.start()
    assert time.time() < start + WINDOW + BAND, 'this machine is too slow for the test'
    stage.wait(lambda: collector.arrived, 90, 'the result of the window')
    time.sleep(3)
    collector.stop()
    results = [json.loads(body) for body in collector.bodies()]
    assert [(r['window_start'], r['scheduled'], r['flown']) for r in results] == [(start, 12, 12)]
    assert stage.Jobs(server).state(name) == 'RUNNING'


def submit(server, pool, subscription, topic, name):
  command = [sys.executable, ROOT / 'examples/flights/pipeline.py', '--runner=PortableRunner',
             f'--job_endpoint={server.dataflow}', '--environment_type=EXTERNAL',
             f'--environment_config={pool.address}', '--sdk_location=container',
             f'--job_name={name}', f'--input_subscription={subscription}',
             f'--output_topic={topic}', f'--window_seconds={WINDOW}',
             f'--project={beam_jobs.PROJECT}',
             f'--dataflow_service_options=timestamp_band={BAND}s']
  subprocess.run([str(c) for c in command], check=True, timeout=120)
