"""A client whose event loop must not stand still."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dask_rewrite.hook.optimizer
from dask_rewrite import RewriteWarning
from helpers import distinct

pytestmark = [pytest.mark.usefixtures("on"), pytest.mark.timeout(120)]

VALUE = np.arange(144.0).reshape(12, 12)


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_rewrite.hook.optimizer, "MOST_ON_EVENT_LOOP", 20)


def computed(cluster: Any, submit: Callable[[Any, Any], Any]) -> Any:
    """What an asynchronous client gives for a graph of 144 blocks."""
    from distributed import Client

    async def main() -> Any:
        async with Client(cluster.scheduler_address, asynchronous=True) as client:
            x = distinct((12, 12), 1) * 2 + 1
            future = submit(client, x)
            if asyncio.iscoroutine(future):
                future = await future
            return await future

    return asyncio.run(main())


def test_small_graphs_are_rewritten_at_once(cluster: Any) -> None:
    found = computed(cluster, lambda client, x: client.compute(x))
    np.testing.assert_array_equal(found, VALUE * 2 + 1)


@pytest.mark.usefixtures("small_limit")
def test_large_graphs_do_not_keep_the_loop_waiting(cluster: Any) -> None:
    with pytest.warns(RewriteWarning, match="to_thread"):
        found = computed(cluster, lambda client, x: client.compute(x))
    np.testing.assert_array_equal(found, VALUE * 2 + 1)


@pytest.mark.usefixtures("small_limit")
def test_a_thread_rewrites_them(cluster: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RewriteWarning)
        found = computed(cluster, lambda client, x: asyncio.to_thread(client.compute, x))
    np.testing.assert_array_equal(found, VALUE * 2 + 1)
