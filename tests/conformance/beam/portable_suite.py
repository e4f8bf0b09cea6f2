"""Beam's PortableRunnerTest, aimed at an external job endpoint with LOOPBACK workers."""
import os

from apache_beam.options.pipeline_options import PortableOptions, StandardOptions
from apache_beam.runners.portability import portable_runner_test

ENDPOINT = os.environ['SUITE_ENDPOINT']


class ExternalJobService:
  """Mixed in before PortableRunnerTest: takes the endpoint as given, starts and stops nothing."""
  streaming = False

  @classmethod
  def _create_job_endpoint(cls):
    return ENDPOINT

  @classmethod
  def tearDownClass(cls):
    pass

  def create_options(self):
    options = portable_runner_test.PortableRunnerTest.create_options(self)
    options.view_as(PortableOptions).environment_type = 'LOOPBACK'
    options.view_as(PortableOptions).job_server_timeout = 300
    options.view_as(StandardOptions).streaming = self.streaming
    return options


class BatchTest(ExternalJobService, portable_runner_test.PortableRunnerTest):
  pass


class StreamingTest(ExternalJobService, portable_runner_test.PortableRunnerTest):
  streaming = True
