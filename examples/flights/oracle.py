"""What the pipeline has to say, counted straight from the file.

Shares no code with the pipeline or the publisher.
"""
import calendar
import collections
import dataclasses


@dataclasses.dataclass
class Expected:
  scheduled: int = 0
  flown: int = 0
  delay_minutes: int = 0


def windows(path, month=None):
  """{(airport, window start in seconds): Expected}."""
  found = collections.defaultdict(Expected)
  with open(path) as file:
    names = file.readline().strip().split(',')
    month_at, delay_at = names.index('month'), names.index('dep_delay')
    airport_at, hour_at = names.index('origin'), names.index('time_hour')
    for line in file:
      values = line.rstrip('\n').split(',')
      if month is not None and values[month_at] != str(month):
        continue
      date, clock = values[hour_at].rstrip('Z').split('T')
      fields = [int(f) for f in (*date.split('-'), *clock.split(':'))]
      window = found[values[airport_at], calendar.timegm((*fields, 0, 0, 0))]
      window.scheduled += 1
      if values[delay_at] != 'NA':
        window.flown += 1
        window.delay_minutes += int(values[delay_at])
  return dict(found)


def difference(expected, result):
  """Why a result message is not what was expected, or None."""
  if expected is None:
    return 'a window without flights'
  if result['scheduled'] != expected.scheduled or result['flown'] != expected.flown:
    return (f"{result['scheduled']} scheduled and {result['flown']} flown, "
            f'expected {expected.scheduled} and {expected.flown}')
  if not expected.flown:
    return None if result['average_delay'] is None else 'an average of no flights'
  average = expected.delay_minutes / expected.flown
  if abs(result['average_delay'] - average) > 1e-9:
    return f"average delay {result['average_delay']}, expected {average}"
  return None
