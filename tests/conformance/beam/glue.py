"""pytest plugin for Beam's own test modules, which are imported from the installed apache-beam.

Writes one line of JSON at the start and at the end of each test, so that the parent process can
enforce time limits, and takes the tests to run from a file, so that it can go on after a crash.
"""
import json
import os
import time

import pytest

REPORT = os.environ['SUITE_REPORT']
IDS = os.environ.get('SUITE_IDS')


def emit(**record):
  with open(REPORT, 'a') as file:
    file.write(json.dumps(record) + '\n')


def pytest_addoption(parser):
  parser.addoption('--test-pipeline-options', default='')


def pytest_configure(config):
  for mark in ('it_validatesrunner', 'it_postcommit', 'no_sickbay_batch', 'no_sickbay_streaming',
               'no_xdist', 'uses_dill', 'sickbay_direct'):
    config.addinivalue_line('markers', mark)


def short_id(item):
  return '::'.join(item.nodeid.split('::')[1:])


@pytest.hookimpl(trylast=True)  # after pytest's own selection
def pytest_collection_modifyitems(config, items):
  if IDS:
    wanted = set(json.load(open(IDS)))
    items[:] = [i for i in items if short_id(i) in wanted]
  else:
    emit(event='collected', ids=[short_id(i) for i in items])


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item, nextitem):
  item.began, item.result = time.time(), None
  emit(event='start', id=short_id(item))
  yield
  outcome, reason = item.result or ('failed', 'no result')
  seconds = round(time.time() - item.began, 2)
  emit(event='end', id=short_id(item), outcome=outcome, reason=reason, seconds=seconds)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
  report = (yield).get_result()
  if report.skipped:
    why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    item.result = ('skipped', str(why)[:300])
  elif report.failed:
    text = str(call.excinfo.value) if call.excinfo else str(report.longrepr)
    kind = call.excinfo.typename if call.excinfo else ''
    item.result = ('failed', f'{kind}: {text}'[-1500:])
  elif report.when == 'call' and item.result is None:
    item.result = ('passed', '')
