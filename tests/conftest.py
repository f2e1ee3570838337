"""Fixtures that every test shares."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

# What is compiled for a block of four numbers takes ten seconds; in Python it is the same. Dask
# imports sparse, which asks for this once.
os.environ.setdefault("NUMBA_DISABLE_JIT", "1")

import dask
import pytest
from hypothesis import HealthCheck, settings

import dask_rewrite
import distributed  # noqa: F401  # (registers its defaults before any test saves the configuration)
from helpers import switched_on, unchanged_config

settings.register_profile(
    "ci",
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile(
    "nightly",
    parent=settings.get_profile("ci"),
    max_examples=3000,
    derandomize=False,
)
settings.register_profile(
    "elsewhere",
    parent=settings.get_profile("ci"),
    max_examples=50,
    derandomize=False,  # each release has a seed of its own: --hypothesis-seed
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--share", help="I/N: of the cases of a test the Ith of N shares, drawn by their names; at least one"
    )
    parser.addoption("--verify", default="each", help="rewrite.verify, where a test says nothing of it")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--share"):
        return
    share, shares = map(int, config.getoption("--share").split("/"))
    cases: dict[str, list[str]] = defaultdict(list)
    for name in sorted([item.nodeid for item in items], key=lambda name: crc32(name.encode())):
        cases[name.partition("[")[0]].append(name)
    kept = {name for each in cases.values() for name in each[share % min(len(each), shares) :: shares]}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
    items[:] = [item for item in items if item.nodeid in kept]


SOURCE = Path(dask_rewrite.__file__).parents[1]


@pytest.fixture(autouse=True)
def strict_config(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test starts from dask's defaults, synchronous, and with our checks all on."""
    with unchanged_config():
        for key in ("array_optimize", "delayed_optimize", "bag_optimize"):
            dask.config.config.pop(key, None)
        dask.config.set(
            {
                "scheduler": "sync",
                "rewrite.on-error": "raise",
                "rewrite.verify": request.config.getoption("--verify"),
                "dataframe.convert-string": False,
            }
        )
        yield
        dask_rewrite.disable()


@pytest.fixture
def verified_at_each_pass(strict_config: None) -> None:
    """For tests of what is found then."""
    dask.config.set({"rewrite.verify": "each"})


@pytest.fixture
def on() -> Iterator[None]:
    """Our optimizer, switched on for arrays, delayed and bag."""
    with switched_on():
        yield


@dataclass
class Rewrites:
    """Where and when the rewriting ran."""

    pids: list[int] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.pids)

    def clear(self) -> None:
        self.pids.clear()
        self.threads.clear()

    def assert_once_here(self) -> None:
        assert self.pids == [os.getpid()]
        assert self.threads == [threading.current_thread()]


@pytest.fixture
def rewrites(monkeypatch: pytest.MonkeyPatch) -> Rewrites:
    """Counts the runs of the whole pipeline, and says in which thread each took place."""
    import dask_rewrite.hook.optimizer
    import dask_rewrite.pipeline.run

    original = dask_rewrite.pipeline.run.rewrite_tasks
    result = Rewrites()
    inside = threading.local()

    def counting(*args: Any, **kwargs: Any) -> Any:
        if getattr(inside, "now", False):
            return original(*args, **kwargs)
        result.pids.append(os.getpid())
        result.threads.append(threading.current_thread())
        inside.now = True
        try:
            return original(*args, **kwargs)
        finally:
            inside.now = False

    for name, module in list(sys.modules.items()):
        if name.startswith("dask_rewrite") and module is not None:
            for attribute, value in list(vars(module).items()):
                if value is original:
                    monkeypatch.setattr(module, attribute, counting)
    return result


@pytest.fixture
def python() -> Callable[..., str]:
    """Run a script in a fresh interpreter, warnings being errors, and return what it prints."""

    def run(script: str, *args: str, timeout: float = 60, **env: str) -> str:
        paths = [str(SOURCE), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(script), *args],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **env},
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr
        return done.stdout

    return run


@pytest.fixture(autouse=True)
def no_processes_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test leaves no child process of its own behind (the shared cluster is not its own)."""
    import multiprocessing

    before = {child.pid for child in multiprocessing.active_children()}
    yield
    if not {"cluster", "client"} & set(request.fixturenames):
        left = [child for child in multiprocessing.active_children() if child.pid not in before]
        assert not left, f"processes left behind: {left}"


# --------------------------------------------------------------------------------------
# a cluster of processes: one plain worker, one that has the resource "tape"


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    from distributed.deploy.spec import SpecCluster

    from distributed import Nanny, Scheduler

    options = {"nthreads": 2, "memory_limit": 0, "dashboard_address": None, "host": "127.0.0.1"}
    settings = {
        "distributed.worker.multiprocessing-method": "spawn",
        "distributed.comm.timeouts.connect": "60s",
        "distributed.diagnostics.nvml": False,
    }
    with dask.config.set(settings):
        cluster = SpecCluster(
            workers={
                "plain": {"cls": Nanny, "options": {**options}},
                "tape": {"cls": Nanny, "options": {**options, "resources": {"tape": 2}}},
            },
            scheduler={
                "cls": Scheduler,
                "options": {"dashboard": False, "dashboard_address": ":0", "host": "127.0.0.1"},
            },
            silence_logs=50,
        )
        try:
            yield cluster
        finally:
            cluster.close(timeout=30)


@pytest.fixture
def client(cluster: Any) -> Iterator[Any]:
    """A synchronous client of the shared cluster, left as it was found."""
    from distributed import Client

    with Client(cluster, timeout=60) as client:
        client.wait_for_workers(2, timeout=60)
        yield client
        client.cancel(list(client.futures))


@pytest.fixture
def tiny_products() -> Iterator[None]:
    """Two threads, and products of blocks that are as small as those of the tests."""
    with dask.config.set(
        scheduler="threads", num_workers=2, **{"rewrite.options": {"contract": {"min-bytes": 1}}}
    ):
        yield
