"""A pytest plugin that runs tests of dask, or of others, with the optimizer on, and writes down which fail.

``DASK_SUITES_ONLY``: a file of test ids, one on a line; all others are deselected.
``DASK_SUITES_STOCK``: when set, the optimizer stays off.
``DASK_SUITES_RESULT``: the JSON file to write the number of passed tests and the ids of the failed ones to.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import dask
import pytest

STOCK = bool(os.environ.get("DASK_SUITES_STOCK"))

switched_on = contextlib.ExitStack()
passed = 0
failed: set[str] = set()


def pytest_configure(config: pytest.Config) -> None:
    if not STOCK:
        import dask_rewrite

        switched_on.enter_context(dask.config.set({"rewrite.on-error": "raise", "rewrite.verify": "each"}))
        switched_on.enter_context(dask_rewrite.enable())


def pytest_unconfigure(config: pytest.Config) -> None:
    switched_on.close()


def pytest_runtest_setup(item: pytest.Item) -> None:
    # a test that switched the optimizer off for good would make all later ones prove nothing
    if not STOCK:
        import dask_rewrite

        assert dask.config.get("array_optimize", None) is dask_rewrite.optimize


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    only = os.environ.get("DASK_SUITES_ONLY")
    if only:
        wanted = set(Path(only).read_text().splitlines())
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in wanted])
        items[:] = [item for item in items if item.nodeid in wanted]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    global passed
    if report.failed:
        failed.add(report.nodeid)
    elif report.passed and report.when == "call":
        passed += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    target = os.environ.get("DASK_SUITES_RESULT")
    if target and not hasattr(session.config, "workerinput"):  # with xdist, the controller hears of all
        Path(target).write_text(json.dumps({"passed": passed, "failed": sorted(failed)}))
