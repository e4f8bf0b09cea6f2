"""Reads what the runners of the suites leave behind, as lists of Test."""
import dataclasses
import re
import xml.etree.ElementTree as xml


@dataclasses.dataclass
class Test:
  name: str
  outcome: str  # passed, failed, skipped
  message: str = ''
  seconds: float = 0


def shorten(text):
  return ' '.join((text or '').split())[:500]


def junit_xml(path):
  """pytest --junitxml. The plugin flaky writes an earlier try as passed: any failure counts."""
  tests = {}
  for case in xml.parse(path).getroot().iter('testcase'):
    name, seconds = f"{case.get('classname')}.{case.get('name')}", float(case.get('time', 0))
    bad = [c for c in case if c.tag in ('failure', 'error')]
    skipped = case.find('skipped')
    if bad:
      text = shorten(bad[0].get('message') or bad[0].text)
      tests[name] = Test(name, 'failed', text, seconds)
    elif skipped is not None:
      tests[name] = Test(name, 'skipped', shorten(skipped.get('message')), seconds)
    else:
      tests.setdefault(name, Test(name, 'passed', '', seconds))
  return list(tests.values())


def go_test_output(text):
  """go test -v. Only leaves of the tree of subtests count; random parts of names are cut off."""
  found = re.findall(r'^\s*--- (PASS|FAIL|SKIP): (\S+) \(([\d.]+)s\)', text, re.M)
  names = {name for _, name, _ in found}
  word = {'PASS': 'passed', 'FAIL': 'failed', 'SKIP': 'skipped'}
  tests = []
  for outcome, name, seconds in found:
    if any(other.startswith(name + '/') for other in names):
      continue
    message = ''
    if outcome == 'FAIL':
      lines = re.findall(r'^\s+\S+\.go:\d+: .*(?:\n\s{8,}.*){0,4}', text, re.M)
      message = shorten(' | '.join(lines[-3:]))
    name = re.sub(r'/[0-9a-f]{8}-[0-9a-f-]{27}$', '', name)
    tests.append(Test(name, word[outcome], message, float(seconds)))
  return tests
