"""``python -m benchmarks`` is ``python -m benchmarks.run``."""

from __future__ import annotations

from benchmarks.run import run

run()
