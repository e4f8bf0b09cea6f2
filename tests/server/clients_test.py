"""Pub/Sub through the official Python client, and REST with nothing but the standard library."""
import base64
import concurrent.futures
import gzip
import json
import threading
import time
import urllib.error
import urllib.request

from google.api_core import exceptions
from google.cloud import pubsub_v1
import grpc
import pytest

PROJECT = 'projects/tests'


@pytest.fixture
def publisher(server):
  client = pubsub_v1.PublisherClient()
  yield client
  client.stop()


@pytest.fixture
def subscriber(server):
  with pubsub_v1.SubscriberClient() as client:
    yield client


@pytest.fixture
def topic(publisher, name):
  return publisher.create_topic(name=f'{PROJECT}/topics/{name}').name


@pytest.fixture
def subscription(subscriber, topic, name):
  return subscriber.create_subscription(
      name=f'{PROJECT}/subscriptions/{name}', topic=topic, ack_deadline_seconds=10).name


def rest(server, method, path, body=None, headers=()):
  data = None if body is None else json.dumps(body).encode()
  request = urllib.request.Request(f'http://{server.pubsub}{path}', data, dict(headers),
                                   method=method)
  try:
    with urllib.request.urlopen(request, timeout=40) as answer:
      return answer.status, answer.read().decode()
  except urllib.error.HTTPError as error:
    return error.code, error.read().decode()


def test_ten_thousand_messages_arrive_once_each(publisher, subscriber, topic, subscription):
  count, seen, done = 10000, {}, threading.Event()

  def on_message(message):
    seen[message.message_id] = seen.get(message.message_id, 0) + 1
    message.ack()
    if len(seen) == count:
      done.set()

  stream = subscriber.subscribe(subscription, on_message)
  futures = [publisher.publish(topic, b'x' * 100, n=str(i)) for i in range(count)]
  ids = {future.result(60) for future in futures}
  assert len(ids) == count
  assert done.wait(60), len(seen)
  stream.cancel()
  stream.result(30)
  assert set(seen) == ids
  assert max(seen.values()) == 1


def test_nack_comes_back_and_unary_acks_free_the_stream(publisher, subscriber, topic, subscription):
  for i in range(20):
    publisher.publish(topic, str(i).encode()).result(10)
  tries, done, lock = {}, threading.Event(), threading.Lock()

  def on_message(message):
    with lock:
      tries[message.data] = tries.get(message.data, 0) + 1
      first = tries[message.data] == 1
    message.nack() if first else message.ack()
    with lock:
      if len(tries) == 20 and all(n >= 2 for n in tries.values()):
        done.set()

  flow = pubsub_v1.types.FlowControl(max_messages=2)
  stream = subscriber.subscribe(subscription, on_message, flow_control=flow)
  assert done.wait(60), tries
  stream.cancel()
  stream.result(30)


def test_pull_acknowledge_and_lease_expiry(publisher, subscriber, topic, subscription):
  publisher.publish(topic, b'hello', color='red').result(10)
  got = subscriber.pull(subscription=subscription, max_messages=10).received_messages
  assert [m.message.data for m in got] == [b'hello']
  assert dict(got[0].message.attributes) == {'color': 'red'}
  subscriber.modify_ack_deadline(subscription=subscription, ack_ids=[got[0].ack_id],
                                 ack_deadline_seconds=0)
  again = subscriber.pull(subscription=subscription, max_messages=10).received_messages
  assert again[0].message.message_id == got[0].message.message_id
  subscriber.acknowledge(subscription=subscription, ack_ids=[again[0].ack_id])
  began = time.monotonic()
  none = subscriber.pull(subscription=subscription, max_messages=1, timeout=4, retry=None)
  assert not none.received_messages
  assert 2.5 < time.monotonic() - began < 3.9


def test_a_cancelled_stream_takes_nothing_more(publisher, subscriber, topic, subscription):
  for i in range(5):
    got, arrived = [], threading.Event()

    def on_message(message, got=got, arrived=arrived):
      got.append(message.data)
      message.ack()
      arrived.set()

    stream = subscriber.subscribe(subscription, on_message)
    if i:
      assert arrived.wait(5)
    time.sleep(0.2)
    stream.cancel()
    stream.result(30)
    publisher.publish(topic, str(i).encode()).result(10)


def test_errors_have_codes_and_texts(publisher, subscriber, topic, subscription):
  with pytest.raises(exceptions.AlreadyExists, match='Resource already exists in the project'):
    publisher.create_topic(name=topic)
  with pytest.raises(exceptions.NotFound, match='Resource not found .resource=nothing.'):
    publisher.get_topic(topic=f'{PROJECT}/topics/nothing')
  with pytest.raises(exceptions.InvalidArgument, match='Invalid resource name given'):
    publisher.create_topic(name=f'{PROJECT}/topics/1x')
  with pytest.raises(exceptions.InvalidArgument, match='invalid ack ID'):
    subscriber.acknowledge(subscription=subscription, ack_ids=['garbage'])
  publisher.publish(topic, b'x').result(10)
  got = subscriber.pull(subscription=subscription, max_messages=1).received_messages
  with pytest.raises(exceptions.InvalidArgument, match='must be between 0 and 600'):
    subscriber.modify_ack_deadline(subscription=subscription, ack_ids=[got[0].ack_id],
                                   ack_deadline_seconds=601)
  with pytest.raises(exceptions.NotFound):
    subscriber.subscribe(f'{PROJECT}/subscriptions/nothing', print).result(10)


def test_compressed_publishes(server, topic, subscriber, subscription):
  request = pubsub_v1.types.PublishRequest(topic=topic, messages=[{'data': b'a' * 5000}])
  with grpc.insecure_channel(server.pubsub, compression=grpc.Compression.Gzip) as channel:
    publish = channel.unary_unary(
        '/google.pubsub.v1.Publisher/Publish', pubsub_v1.types.PublishRequest.serialize,
        pubsub_v1.types.PublishResponse.deserialize)
    assert len(publish(request, timeout=10).message_ids) == 1
  got = subscriber.pull(subscription=subscription, max_messages=1).received_messages
  assert got[0].message.data == b'a' * 5000


def test_rest_round_trip(server, name):
  topic, sub = f'/v1/{PROJECT}/topics/{name}', f'/v1/{PROJECT}/subscriptions/{name}'
  assert rest(server, 'PUT', topic, {}) == (200, f'{{\n  "name": "{topic[4:]}"\n}}\n')
  status, text = rest(server, 'PUT', sub, {'topic': topic[4:], 'labels': None})
  made = json.loads(text)
  assert status == 200
  assert made['pushConfig'] == {}
  assert made['ackDeadlineSeconds'] == 10
  assert made['messageRetentionDuration'] == '604800s'
  assert made['expirationPolicy'] == {'ttl': '2678400s'}
  assert made['state'] == 'ACTIVE'
  body = {'messages': [{'data': base64.b64encode(b'hi').decode(), 'attributes': {'a': 'b'}}]}
  status, text = rest(server, 'POST', topic + ':publish', body)
  assert status == 200 and len(json.loads(text)['messageIds']) == 1
  status, text = rest(server, 'POST', sub + ':pull', {'maxMessages': 10})
  received = json.loads(text)['receivedMessages']
  assert base64.b64decode(received[0]['message']['data']) == b'hi'
  assert received[0]['message']['publishTime'].endswith('Z')
  assert 'deliveryAttempt' not in received[0]
  assert rest(server, 'POST', sub + ':acknowledge', {'ackIds': [received[0]['ackId']]}) == (
      200, '{}\n')
  status, text = rest(server, 'PATCH', sub + '?updateMask=ackDeadlineSeconds%2CbigqueryConfig',
                      {'subscription': {'ackDeadlineSeconds': 77}})
  assert status == 200 and json.loads(text)['ackDeadlineSeconds'] == 77, text
  status, text = rest(server, 'GET', f'/v1/{PROJECT}/topics?pageSize=1000&alt=json')
  assert {'name': topic[4:]} in json.loads(text)['topics']
  assert rest(server, 'DELETE', topic) == (200, '{}\n')
  status, text = rest(server, 'GET', topic)
  assert status == 404
  assert json.loads(text)['error']['status'] == 'NOT_FOUND'
  assert json.loads(rest(server, 'GET', sub)[1])['topic'] == '_deleted-topic_'


def test_rest_takes_gzip(server, name):
  topic = f'/v1/{PROJECT}/topics/{name}'
  rest(server, 'PUT', topic, {})
  body = gzip.compress(json.dumps({'messages': [{'data': 'aGk='}]}).encode())
  request = urllib.request.Request(f'http://{server.pubsub}{topic}:publish', body,
                                   {'Content-Encoding': 'gzip'}, method='POST')
  with urllib.request.urlopen(request, timeout=10) as answer:
    assert json.load(answer)['messageIds']


def test_many_long_polls_hold_no_thread(server, publisher, topic, subscription):
  path = f'/v1/{subscription}:pull'
  with concurrent.futures.ThreadPoolExecutor(50) as pool:
    polls = [pool.submit(rest, server, 'POST', path, {'maxMessages': 1}) for _ in range(50)]
    time.sleep(0.5)
    for _ in range(50):
      publisher.publish(topic, b'x')
    ids = [json.loads(p.result(30)[1])['receivedMessages'][0]['message']['messageId']
           for p in polls]
  assert len(set(ids)) == 50


def test_health_reflection_and_http(server):
  with grpc.insecure_channel(server.pubsub) as channel:
    check = channel.unary_unary('/grpc.health.v1.Health/Check')
    assert check(b'', timeout=5) == b'\x08\x01'
    reflect = channel.stream_stream(
        '/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo')
    answer = next(iter(reflect(iter([b'\x3a\x01*']), timeout=5)))
    assert b'google.pubsub.v1.Publisher' in answer
  for path, want in (('/health', b'ok\n'), ('/ready', b'ready\n')):
    with urllib.request.urlopen(f'http://{server.http}{path}', timeout=5) as answer:
      assert answer.read() == want
  with urllib.request.urlopen(f'http://{server.http}/metrics', timeout=5) as answer:
    text = answer.read().decode()
  assert 'process_cpu_seconds_total' in text and 'millrace_log_disk_bytes' in text
