#!/usr/bin/env bash
# tests/crash/soak.sh [KILLS]: twenty (or KILLS) kills under load; ./test runs four. Needs tools/build and tools/python_env.
set -euo pipefail
cd "$(dirname "$0")/../.."
CRASH_KILLS="${1:-20}" exec .deps/venv/bin/python -m pytest -c tests/pytest.ini --rootdir tests -s tests/crash/kill_test.py
