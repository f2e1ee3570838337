"""Annotations stay with their tasks, whatever is fused around them."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._expr import FinalizeCompute
from dask.base import collections_to_expr

import dask_rewrite
from helpers import add_one, assert_same, checked, distinct, rewritten, switched_on


def annotations_of(*collections: Any) -> dict[str, dict[Any, Any]]:
    """What dask itself hands to the scheduler: by kind, then by key."""
    with switched_on():
        return FinalizeCompute(collections_to_expr(list(collections))).optimize().__dask_annotations__()


def values_of(found: dict[str, dict[Any, Any]], kind: str) -> set[Any]:
    return {repr(value) for value in found.get(kind, {}).values()}


ALL = {
    "priority": 10,
    "retries": 3,
    "resources": {"GPU": 1},
    "workers": ["alice"],
    "allow_other_workers": True,
    "custom": "anything",
}


@pytest.mark.parametrize("kind", ALL)
def test_each_kind_survives(kind: str) -> None:
    with dask.annotate(**{kind: ALL[kind]}):
        x = distinct((6,), 2) + 1
    found = annotations_of(x * 2)
    assert values_of(found, kind) == {repr(ALL[kind])}
    assert len(found[kind]) >= 3


def test_all_of_them_together() -> None:
    with dask.annotate(**ALL):
        x = distinct((6,), 2) + 1
    found = annotations_of(x.sum())
    assert set(ALL) <= set(found)


def test_keys_that_are_annotated_are_in_the_graph() -> None:
    with dask.annotate(priority=3):
        x = distinct((6,), 2) + 1
    with switched_on():
        expr = FinalizeCompute(collections_to_expr([x * 2])).optimize()
        tasks = set(expr.__dask_graph__())
        for by_key in expr.__dask_annotations__().values():
            assert by_key.keys() <= tasks


def test_the_result_is_a_graph_with_annotated_layers() -> None:
    with dask.annotate(retries=2):
        x = distinct((6,), 2) + 1
    graph = rewritten(x.sum())
    assert any(layer.annotations for layer in graph.layers.values())
    assert any(not layer.annotations for layer in graph.layers.values())


def test_unannotated_tasks_stay_so() -> None:
    x = distinct((6,), 2) + 1
    assert annotations_of(x.sum()) == {}
    with dask.annotate(retries=2):
        y = x.rechunk(3)
    found = annotations_of(y.sum())
    with switched_on():
        total = len(FinalizeCompute(collections_to_expr([y.sum()])).optimize().__dask_graph__())
    assert 0 < len(found["retries"]) < total


@pytest.mark.parametrize("kind", ["workers", "resources"])
def test_unequal_restrictions_do_not_fuse(kind: str) -> None:
    one, other = (["alice"], ["bob"]) if kind == "workers" else ({"GPU": 1}, {"tape": 1})
    x = distinct((6,), 2)
    with dask.annotate(**{kind: one}):
        y = x + 1
    with dask.annotate(**{kind: other}):
        z = y * 2
    found = annotations_of(z)
    assert values_of(found, kind) == {repr(one), repr(other)}
    assert sum(value == one for value in found[kind].values()) == 3
    assert sum(value == other for value in found[kind].values()) == 3
    assert_same(dask_rewrite.optimize(z).compute(), (np.arange(6.0) + 1) * 2)


def test_a_restricted_task_does_not_swallow_an_unrestricted_one_that_is_shared() -> None:
    x = distinct((6,), 2)
    y = x + 1
    with dask.annotate(resources={"GPU": 1}):
        z = y * 2
    found = annotations_of(z + y)
    assert len(found["resources"]) == 3


def test_equal_restrictions_fuse() -> None:
    x = distinct((6,), 2)
    with dask.annotate(workers=["alice"], priority=5):
        for i in range(10):
            x = x + i
    assert len(checked(x)) <= 7


def test_priority_callables_see_the_original_keys() -> None:
    seen = []

    def priority(key: Any) -> int:
        seen.append(key)
        return key[1] * 10

    x = distinct((6,), 2)
    with dask.annotate(priority=priority):
        y = x + 1
    name = y.name
    z = (y * 2).sum()
    found = annotations_of(z)
    assert seen
    assert {key[0] for key in seen} <= {name}
    assert {10, 20} <= set(found["priority"].values())
    assert not any(map(callable, found["priority"].values()))


def test_a_callable_that_raises_does_not_change_what_dask_does() -> None:
    x = distinct((6,), 2)
    with dask.annotate(priority=lambda key: 1 // 0):
        y = x + 1
    with pytest.raises(ZeroDivisionError):
        annotations_of(y)


def test_the_switch_drops_them() -> None:
    with dask.annotate(priority=10):
        x = distinct((6,), 2) + 1
    with dask.config.set({"rewrite.annotations": "drop"}):
        assert annotations_of(x * 2) == {}


def test_one_remark_says_that_they_take_effect() -> None:
    with dask.annotate(priority=10):
        x = distinct((6,), 2) + 1
        y = distinct((6,), 3) + 1
    report = dask_rewrite.explain(x.sum() + y.sum())
    remarks = [remark for remark in report.remarks if "annotation" in str(remark)]
    assert len(remarks) == 1
    without = dask_rewrite.explain((distinct((6,), 2) + 1).sum())
    assert not [remark for remark in without.remarks if "annotation" in str(remark)]


def test_annotations_of_delayed_survive() -> None:
    with dask.annotate(retries=4):
        d = dask.delayed(sum)([1, 2])
    found = annotations_of(d + 1)
    assert list(found["retries"].values()) == [4]
    assert d.key in found["retries"]


def test_annotations_of_a_mix_survive() -> None:
    with dask.annotate(retries=4):
        d = dask.delayed(sum)([1, 2])
    with dask.annotate(priority=7):
        x = distinct((6,), 2) + 1
    found = annotations_of(x, d, x.sum())
    assert set(found["retries"].values()) == {4}
    assert set(found["priority"].values()) == {7}


def test_annotations_of_optimized_collections_survive_further_work() -> None:
    with dask.annotate(retries=4):
        x = distinct((6,), 2) + 1
    y = dask_rewrite.optimize(x)
    assert set(annotations_of(y + 1)["retries"].values()) == {4}


def test_annotations_of_many_tasks() -> None:
    with dask.annotate(retries=4):
        x = da.ones((101, 101), chunks=1).map_blocks(add_one)
    found = annotations_of(x * 2)
    assert len(found["retries"]) >= 101 * 101
    assert set(found["retries"].values()) == {4}


def test_a_graph_that_is_left_as_it_is_keeps_what_stock_keeps() -> None:
    with dask.annotate(retries=4):
        x = da.ones((40,), chunks=1) + 1
    expected = FinalizeCompute(collections_to_expr([x * 2])).optimize().__dask_annotations__()
    with dask.config.set({"rewrite.lower-limit": 5}):
        assert annotations_of(x * 2) == expected


def test_inputs_that_are_fused_keep_the_strictest_of_harmless_annotations() -> None:
    # Equal workers and resources may fuse; what is lost then must not be a retry or a priority.
    x = distinct((6,), 2)
    with dask.annotate(retries=1):
        y = x + 1
    with dask.annotate(retries=5):
        z = y * 2
    found = annotations_of(z)
    assert 5 in set(found["retries"].values())
    fused = len(checked(z)) <= 4
    assert fused or 1 in set(found["retries"].values())


def test_callables_are_not_asked_about_the_source_of_an_array() -> None:
    """Its key is a string, of which such a callable makes no number."""
    import dask
    import dask.array as da
    import numpy as np

    from dask_rewrite.pipeline.run import rewrite_tasks

    class Lazy:
        shape, ndim, dtype = (4, 4), 2, np.dtype("f8")

        def __getitem__(self, where: object) -> object:
            return np.ones((4, 4))[where]

    with dask.annotate(priority=lambda key: key[1] * 10):
        x = da.from_array(Lazy(), chunks=2)
    graph = rewrite_tasks(x.dask, [(x.name, i, j) for i in range(2) for j in range(2)])
    assert graph is not None
    assert {type(found["priority"]) for found in graph.annotations.values()} == {int}
