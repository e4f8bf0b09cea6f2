"""Unpacks Beam's protos from the apache-beam wheel.

beam_protos.py WHEEL OUT writes OUT/beam.pb (FileDescriptorSet of Beam's files in dependency order),
OUT/files.txt (their names) and OUT/standard_coders.yaml (Beam's golden vectors for coders).
Needs no protobuf runtime.
"""
import ast
import pathlib
import re
import sys
import zipfile

MODEL = '/org/apache/beam/model/'
# Elements.Data.data is declared with ctype CORD, for which protoc 3.21 hides accessors: the same
# field with ctype STRING.
CORD = b'\n\x04data\x18\x03 \x01(\x0cB\x02\x08\x01'
STRING = CORD[:-1] + b'\x00'


def varint(number):
  out = bytearray()
  while number > 127:
    out.append(number & 127 | 128)
    number >>= 7
  out.append(number)
  return bytes(out)


def main():
  wheel, out = sys.argv[1], pathlib.Path(sys.argv[2])
  out.mkdir(parents=True, exist_ok=True)
  files = {}
  with zipfile.ZipFile(wheel) as archive:
    for name in archive.namelist():
      if name.endswith('standard_coders.yaml'):
        (out / 'standard_coders.yaml').write_bytes(archive.read(name))
      if MODEL not in name or not name.endswith('_pb2.py'):
        continue
      for node in ast.walk(ast.parse(archive.read(name))):
        if isinstance(node, ast.Call) and getattr(node.func, 'attr', '') == 'AddSerializedFile':
          files[name.split('portability/api/')[1].replace('_pb2.py', '.proto')] = node.args[0].value
  dependency = re.compile(rb'\x1a.(org/apache/beam/[a-z_/0-9]+\.proto)')
  imports = {n: dependency.findall(b) for n, b in files.items()}
  ordered = []

  def add(name):
    if name in ordered:
      return
    for other in imports[name]:
      add(other.decode())
    ordered.append(name)

  for name in sorted(files):
    add(name)
  with open(out / 'beam.pb', 'wb') as descriptors:
    for name in ordered:
      descriptors.write(b'\x0a' + varint(len(files[name])) + files[name].replace(CORD, STRING))
  (out / 'files.txt').write_text('\n'.join(ordered) + '\n')


main()
