"""What both parts of the demo stand on: topics, subscriptions, jobs and their submission."""
import os
import pathlib
import subprocess
import sys
import time

import grpc
from apache_beam.portability.api import beam_job_api_pb2 as job_api
from apache_beam.portability.api import beam_job_api_pb2_grpc as job_grpc
from google.cloud import pubsub_v1

HERE = pathlib.Path(__file__).resolve().parent
PROJECT = 'flights'


def use(server):
  """Points the stock clients of this process and its children at the server."""
  os.environ['PUBSUB_EMULATOR_HOST'] = server.pubsub
  os.environ['GRPC_VERBOSITY'] = 'NONE'
  os.environ['GOOGLE_CLOUD_PROJECT'] = PROJECT


def make(name):
  """A topic and a subscription of this name; returns their full names."""
  topic = f'projects/{PROJECT}/topics/{name}'
  subscription = f'projects/{PROJECT}/subscriptions/{name}'
  pubsub_v1.PublisherClient().create_topic(request={'name': topic})
  pubsub_v1.SubscriberClient().create_subscription(
      request={'name': subscription, 'topic': topic, 'ack_deadline_seconds': 60})
  return topic, subscription


def submit(server, pool, subscription, topic, job_name, *options):
  """Runs pipeline.py, which ends as soon as the job is submitted."""
  command = [
      sys.executable, HERE / 'pipeline.py', '--runner=PortableRunner',
      f'--job_endpoint={server.dataflow}', '--environment_type=EXTERNAL',
      f'--environment_config={pool.address}', '--sdk_location=container',
      f'--job_name={job_name}', f'--project={PROJECT}',
      f'--input_subscription={subscription}', f'--output_topic={topic}', *options
  ]
  done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=120)
  if done.returncode:
    raise RuntimeError(f'the pipeline was not accepted: {done.stderr[-2000:]}')


class Jobs:
  """Beam's Job API, as far as the demo looks at it."""

  def __init__(self, server):
    self.stub = job_grpc.JobServiceStub(grpc.insecure_channel(server.dataflow))

  def listed(self):
    answer = self.stub.GetJobs(job_api.GetJobsRequest(), timeout=10, wait_for_ready=True)
    return {job.job_name: job for job in answer.job_info}

  def state(self, name):
    job = self.listed().get(name)
    return job_api.JobState.Enum.Name(job.state) if job else 'UNKNOWN'

  def messages(self, name, seconds=2):
    """Texts of the job's messages so far."""
    texts = []
    try:
      request = job_api.JobMessagesRequest(job_id=self.listed()[name].job_id)
      for answer in self.stub.GetMessageStream(request, timeout=seconds):
        if answer.HasField('message_response'):
          texts.append(answer.message_response.message_text)
    except (grpc.RpcError, KeyError):
      pass
    return texts

  def cancel(self, name):
    job = self.listed().get(name)
    if job:
      self.stub.Cancel(job_api.CancelJobRequest(job_id=job.job_id), timeout=10)


def wait(condition, seconds, what, step=0.05):
  """Waits until condition() is true; RuntimeError when it is not within `seconds`."""
  end = time.monotonic() + seconds
  while time.monotonic() < end:
    if condition():
      return
    time.sleep(step)
  raise RuntimeError(f'{what}: not within {seconds:g} s')
