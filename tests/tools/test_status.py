"""``status`` says whether collections that are computed now are rewritten, and why not."""

from __future__ import annotations

import sys
import warnings
from dataclasses import FrozenInstanceError
from datetime import datetime
from typing import Any

import dask
import pytest
from click.testing import CliRunner

import dask_rewrite
from dask_rewrite.hook.switch import switched_on
from dask_rewrite.tools.cli import rewrite

BY_HAND = "dask_rewrite.enable()"


@pytest.fixture(autouse=True)
def without_dask_array(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "dask_array", raising=False)  # other tests may have imported it


def test_off() -> None:
    found = dask_rewrite.status()
    assert not found
    assert (found.array, found.delayed, found.bag, found.since, found.obstacles) == (
        None,
        None,
        None,
        None,
        (),
    )
    assert repr(found).splitlines()[0] == f"dask_rewrite {dask_rewrite.__version__} is off"
    assert repr(found).count("not rewritten") == 3


def test_enabled_and_disabled() -> None:
    before = datetime.now()
    dask_rewrite.enable()
    found = dask_rewrite.status()
    assert found
    assert found.since is not None
    assert before <= found.since <= datetime.now()
    assert (found.array, found.delayed, found.bag) == (BY_HAND,) * 3
    assert "is on, since" in repr(found)
    dask_rewrite.disable()
    assert not dask_rewrite.status()
    assert not switched_on


def test_while_enabled_as_a_context() -> None:
    with dask_rewrite.enable():
        with dask_rewrite.enable():
            assert dask_rewrite.status()
        assert dask_rewrite.status().array == BY_HAND
    assert not dask_rewrite.status()


def test_survives_a_refresh() -> None:
    dask_rewrite.enable()
    since = dask_rewrite.status().since
    dask.config.refresh()
    assert dask_rewrite.status().since == since
    assert dask_rewrite.status().bag == BY_HAND


def test_by_configuration() -> None:
    with dask.config.set(array_optimize=dask_rewrite.optimize):
        found = dask_rewrite.status()
    assert (found.array, found.delayed, found.since) == ("dask's configuration", None, None)
    assert found
    assert "by dask's configuration" in repr(found)


def test_by_auto(python: Any) -> None:
    out = python(
        """
        import dask_rewrite.auto
        print(dask_rewrite.status())
        """
    )
    assert out.count("by import dask_rewrite.auto") == 3


def test_another_optimizer_is_named() -> None:
    with dask.config.set(bag_optimize=len), warnings.catch_warnings():
        warnings.simplefilter("ignore", dask_rewrite.RewriteWarning)
        dask_rewrite.enable()
        found = dask_rewrite.status()
    assert found
    assert found.bag is None
    assert found.array == BY_HAND
    (obstacle,) = found.obstacles
    assert obstacle.startswith("bag_optimize is <built-in function len>")


@pytest.mark.parametrize(
    ("option", "value"),
    [("rewrite.enabled", False), ("array.query-planning", True), ("optimization.tune.active", False)],
)
def test_options_that_are_in_the_way(option: str, value: bool) -> None:
    with dask.config.set(array_optimize=dask_rewrite.optimize), dask.config.set({option: value}):
        found = dask_rewrite.status()
    (obstacle,) = found.obstacles
    assert obstacle.startswith(f"{option} is {str(value).lower()}: ")
    assert f"in the way: {obstacle}" in repr(found)


def test_false_when_every_graph_is_left_to_dask() -> None:
    with dask_rewrite.enable(), dask.config.set({"rewrite.enabled": False}):
        assert not dask_rewrite.status()
        assert dask_rewrite.status().array == BY_HAND


def test_dask_array_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dask_array", sys)
    (obstacle,) = dask_rewrite.status().obstacles
    assert obstacle.startswith("dask_array is imported")


def test_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        dask_rewrite.status().since = None  # type: ignore[misc] # frozen


def test_on_the_command_line() -> None:
    result = CliRunner().invoke(rewrite, ["status"], catch_exceptions=False)
    assert result.output == f"{dask_rewrite.status()!r}\n"
