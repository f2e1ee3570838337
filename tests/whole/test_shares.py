"""The options of the tests themselves: shares of many cases, and how often graphs are verified."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import dask
import pytest

from conftest import MANY, pytest_collection_modifyitems

pytestmark = pytest.mark.once


def kept(share: str | None, items: list[Any]) -> tuple[set[str], set[str]]:
    """What runs, and what is said to be left out."""
    left: list[Any] = []
    hook = SimpleNamespace(pytest_deselected=lambda items: left.extend(items))
    config: Any = SimpleNamespace(getoption=lambda name: share, hook=hook)
    items = list(items)
    pytest_collection_modifyitems(config, items)
    return {item.nodeid for item in items}, {item.nodeid for item in left}


def test_every_case_of_many_is_in_one_share() -> None:
    few = [SimpleNamespace(nodeid=f"a.py::test_few[{i}]") for i in range(MANY)]
    many = [SimpleNamespace(nodeid=f"a.py::test_many[{i}-{k}]") for i in range(20) for k in range(3)]
    everything = {item.nodeid for item in few + many}
    assert kept(None, few + many) == (everything, set())
    shares = [kept(f"{i}/3", few + many) for i in range(3)]
    assert all(runs | left == everything and not runs & left for runs, left in shares)
    cases = [{name for name in runs if "many" in name} for runs, _ in shares]
    assert sum(map(len, cases)) == len(set().union(*cases)) == len(many)
    for each in cases:
        assert len(each) > 10
        assert {name[-2] for name in each} == {"0", "1", "2"}  # of each parameter all values
    assert all(item.nodeid in runs for item in few for runs, _ in shares)


def test_graphs_are_verified_at_each_pass_unless_asked_otherwise(request: pytest.FixtureRequest) -> None:
    assert dask.config.get("rewrite.verify") == request.config.getoption("--verify")
