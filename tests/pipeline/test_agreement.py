"""A pass that changes what a block is known to be is caught, named and left out."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Alias, DataNode, GraphNode, Task, TaskRef

import dask_rewrite
from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.verify import VerificationError
from dask_rewrite.passes.base import Rules
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.site import Replacement, Site
from dask_rewrite.pipeline import selection
from dask_rewrite.pipeline.verify_facts import check_facts
from dask_rewrite.remarks import RewriteWarning
from helpers import switched_on

pytestmark = pytest.mark.usefixtures("verified_at_each_pass")

X = DataNode("x", np.arange(6.0).reshape(2, 3))


def graph_of(*nodes: GraphNode) -> Graph:
    return Graph({node.key: node for node in nodes}, (nodes[-1].key,))


def made_by(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Graph:
    return graph_of(X, Task("y", func, *args, **kwargs))


BEFORE = made_by(np.add, TaskRef("x"), 1)

SAME = {
    "another way": made_by(operator.add, 1, TaskRef("x")),
    "unknown": made_by(lambda x: x, TaskRef("x")),
    "an alias": graph_of(X, Alias("y", "x")),
    "the same": graph_of(X, BEFORE.nodes["y"]),
    "a constant": made_by(np.full, (2, 3), 1.0),
    "gone": graph_of(X),
}

OTHER = {
    "shape": made_by(operator.getitem, TaskRef("x"), (slice(None), slice(2))),
    "dtype": made_by(np.add, TaskRef("x"), 1, dtype="f4"),
    "byte order": made_by(np.full, (2, 3), 1.0, ">f8"),
    "axes": made_by(np.transpose, TaskRef("x")),
    "an axis more": made_by(operator.getitem, TaskRef("x"), None),
    "scalar": made_by(operator.getitem, TaskRef("x"), (0, 0)),
}


@pytest.mark.parametrize("after", SAME.values(), ids=list(SAME))
def test_facts_agree(after: Graph) -> None:
    check_facts(BEFORE, after)


@pytest.mark.parametrize("after", OTHER.values(), ids=list(OTHER))
def test_facts_differ(after: Graph) -> None:
    with pytest.raises(VerificationError, match="task 'y' made an array") as caught:
        check_facts(BEFORE, after)
    assert caught.value.key == "y"


@pytest.mark.parametrize("value", [1.0, -0.0, np.nan])
def test_constants_are_compared_by_their_bits(value: float) -> None:
    before = made_by(np.full, (2, 3), value)
    check_facts(before, made_by(np.full, (2, 3), value))
    check_facts(before, made_by(np.empty, (2, 3)))
    with pytest.raises(VerificationError, match="filled with"):
        check_facts(before, made_by(np.full, (2, 3), 0.0))
    check_facts(made_by(np.full, (0, 3), value), made_by(np.full, (0, 3), 0.0))  # of no elements


def test_what_lies_below_is_looked_at() -> None:
    """The task itself is the same: what it is given is not."""
    top = Task("z", np.negative, TaskRef("y"))
    with pytest.raises(VerificationError, match="'y'"):
        check_facts(graph_of(X, BEFORE.nodes["y"], top), graph_of(X, OTHER["shape"].nodes["y"], top))


@dataclass(frozen=True, slots=True)
class Narrow:
    """``x + y`` → the same in float32: wrong."""

    name: ClassVar[str] = "narrow"
    anchors: ClassVar[tuple[Any, ...]] = (operator.add,)

    def rewrite(self, task: Task, site: Site) -> Replacement:
        return {task.key: Task(task.key, np.add, *task.args, dtype="f4")}


@dataclass(frozen=True, slots=True)
class NarrowAll:
    """The same as a pass of its own."""

    name: str = "narrow-all"

    def run(self, graph: Graph, context: Context) -> Graph:
        return Rules(self.name, (Narrow(),)).run(graph, context)


@pytest.fixture
def narrowing(monkeypatch: pytest.MonkeyPatch) -> da.Array:
    monkeypatch.setitem(selection.TASK_PASSES, "narrow", lambda: Rules("narrow", (Narrow(),)))
    monkeypatch.setitem(selection.TASK_PASSES, "narrow-all", NarrowAll)
    names = ("cull", "lower", "narrow", "narrow-all", "sweep")
    monkeypatch.setattr(selection, "PASSES", names)
    return da.from_array(np.arange(6.0), chunks=3) + 1


@pytest.mark.parametrize("name", ["narrow", "narrow-all"])
@pytest.mark.parametrize("level", ["each", "rule"])
def test_a_wrong_pass_is_left_out(narrowing: da.Array, name: str, level: str) -> None:
    config = {
        "rewrite.passes": ["cull", "lower", name, "sweep"],
        "rewrite.verify": level,
        "rewrite.on-error": "warn",
        "rewrite.print-after": [],
    }
    with switched_on(**config), pytest.warns(RewriteWarning, match=f"{name}.*float64.*float32"):
        result = narrowing.compute()
    np.testing.assert_array_equal(result, np.arange(6.0) + 1, strict=True)


def test_a_wrong_pass_raises_where_it_is_wanted(narrowing: da.Array) -> None:
    config = {"rewrite.passes": ["cull", "lower", "narrow"]}
    with switched_on(**config), pytest.raises(VerificationError, match="made an array"):
        narrowing.compute()


def test_only_thorough_checks_look_at_facts(narrowing: da.Array) -> None:
    config = {"rewrite.passes": ["cull", "lower", "narrow"], "rewrite.verify": "end"}
    with switched_on(**config):
        assert narrowing.compute().dtype == np.float32


def test_our_passes_keep_facts() -> None:
    from array_programs import COUNTING, MAKING, MOVING, matrix

    with dask.config.set({"rewrite.verify": "rule", "rewrite.on-error": "raise"}):
        for program in [*MOVING.values(), *COUNTING.values()][::3]:
            try:
                found = program(matrix())
            except TypeError:
                continue
            if found is NotImplemented:  # of dask's own fix, by a warning of NumPy 2.5
                continue
            dask_rewrite.optimize(*(found if isinstance(found, tuple) else (found,)))
        for make in MAKING.values():
            found = make()
            dask_rewrite.optimize(*(found if isinstance(found, tuple) else (found,)))


def test_values_are_not_compared() -> None:
    """As the documentation says: a slice shifted by one is no other kind of block."""
    first = made_by(operator.getitem, TaskRef("x"), (slice(None), slice(0, 2)))
    check_facts(first, made_by(operator.getitem, TaskRef("x"), (slice(None), slice(1, 3))))
    with pytest.raises(VerificationError, match="task 'y' made an array"):
        check_facts(first, made_by(operator.getitem, TaskRef("x"), (slice(None), slice(0, 3))))
