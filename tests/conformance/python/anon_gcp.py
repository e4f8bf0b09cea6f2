"""pytest plugin: anonymous credentials and a project for suites that ask for default credentials.

It changes no expectation. It only answers google.auth.default() and gives the REST transports of
the Pub/Sub client plain http and anonymous credentials (the client itself does that for gRPC when
PUBSUB_EMULATOR_HOST is set).
"""
import os

import google.auth
from google.auth.credentials import AnonymousCredentials
from google.pubsub_v1.services.publisher.transports import rest as publisher_rest
from google.pubsub_v1.services.schema_service.transports import rest as schema_rest
from google.pubsub_v1.services.subscriber.transports import rest as subscriber_rest

PROJECT = os.environ.setdefault('GOOGLE_CLOUD_PROJECT', 'conformance')
google.auth.default = lambda *a, **k: (AnonymousCredentials(), PROJECT)


def plain_http(transport):
  init = transport.__init__

  def patched(self, *args, **kwargs):
    # The client hands a gRPC channel to every transport when PUBSUB_EMULATOR_HOST is set.
    kwargs.pop('channel', None)
    kwargs['url_scheme'] = 'http'
    kwargs['credentials'] = AnonymousCredentials()
    init(self, *args, **kwargs)

  transport.__init__ = patched


plain_http(publisher_rest.PublisherRestTransport)
plain_http(subscriber_rest.SubscriberRestTransport)
plain_http(schema_rest.SchemaServiceRestTransport)
