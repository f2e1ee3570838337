"""The options of the tests themselves: shares of cases, and how often graphs are verified."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import dask
import pytest

from conftest import pytest_collection_modifyitems

pytestmark = pytest.mark.once


def kept(share: str | None, items: list[Any]) -> tuple[set[str], set[str]]:
    """What runs, and what is said to be left out."""
    left: list[Any] = []
    hook = SimpleNamespace(pytest_deselected=lambda items: left.extend(items))
    config: Any = SimpleNamespace(getoption=lambda name: share, hook=hook)
    items = list(items)
    pytest_collection_modifyitems(config, items)
    return {item.nodeid for item in items}, {item.nodeid for item in left}


@pytest.mark.parametrize("count", [1, 2, 3, 4, 60])
def test_every_case_is_in_a_share_and_every_test_in_all(count: int) -> None:
    items = [SimpleNamespace(nodeid=f"a.py::test_{word}[{i}-{i % 3}]") for word in "ab" for i in range(count)]
    everything = {item.nodeid for item in items}
    assert kept(None, items) == (everything, set())
    shares = [kept(f"{i}/3", items) for i in range(3)]
    assert all(runs | left == everything and not runs & left for runs, left in shares)
    assert set().union(*[runs for runs, _ in shares]) == everything
    for word in "ab":
        cases = [{name for name in runs if f"test_{word}" in name} for runs, _ in shares]
        assert all(len(each) in (max(1, count // 3), -(-count // 3)) for each in cases)
        assert count < 3 or sum(map(len, cases)) == count
        # of each parameter all values
        assert count < 60 or all({name[-2] for name in each} == {"0", "1", "2"} for each in cases)


def test_graphs_are_verified_at_each_pass_unless_asked_otherwise(request: pytest.FixtureRequest) -> None:
    assert dask.config.get("rewrite.verify") == request.config.getoption("--verify")
