"""Reads `strace -f -ttt -T` of a server: writes with their bytes, and finished syncs."""
import dataclasses
import re

CALL = re.compile(r'^(?:\[pid +)?(\d+)\]? +(\d+\.\d+) (\w+)\((\d+)(.*)$')
RESUMED = re.compile(r'^(?:\[pid +)?(\d+)\]? +(\d+\.\d+) <\.\.\. (\w+) resumed>(.*)$')
DURATION = re.compile(r'= (-?\d+).*<(\d+\.\d+)>$')
SYNCS = ('fdatasync', 'fsync')
WRITES = ('write', 'pwrite64', 'writev', 'pwritev', 'pwritev2')
STRACE = ('strace', '-f', '-ttt', '-T', '-s', '16384', '-e',
          'trace=' + ','.join((*SYNCS, *WRITES)), '-o')


@dataclasses.dataclass
class Call:
  name: str
  fd: int
  begin: float  # seconds since 1970, as the clients' time.time()
  end: float
  arguments: str
  result: int


def read(path):
  """All finished calls, by the time of their end."""
  calls, open_calls = [], {}
  with open(path, errors='replace') as file:
    for line in file:
      line = line.rstrip('\n')
      started = CALL.match(line)
      if started:
        pid, at, name, fd, rest = started.groups()
        if rest.endswith('<unfinished ...>'):
          open_calls[pid] = Call(name, int(fd), float(at), 0, rest, 0)
          continue
        ended = DURATION.search(rest)
        if ended:
          end = float(at) + float(ended[2])
          calls.append(Call(name, int(fd), float(at), end, rest, int(ended[1])))
        continue
      resumed = RESUMED.match(line)
      if resumed and resumed[1] in open_calls:
        call = open_calls.pop(resumed[1])
        ended = DURATION.search(resumed[4])
        call.end, call.result = float(resumed[2]), int(ended[1]) if ended else -1
        call.arguments += resumed[4]
        calls.append(call)
  return sorted(calls, key=lambda call: call.end)


def syncs_between(calls, begin, end, fd=None):
  """Successful syncs that began after `begin` and ended before `end`."""
  return [c for c in calls if c.name in SYNCS and c.result == 0 and c.begin >= begin and
          c.end <= end and (fd is None or c.fd == fd)]
