"""``bisect`` finds the one rewrite that breaks a result."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import dask
import pytest
from dask._task_spec import Task
from dask.delayed import delayed

import dask_rewrite
from dask_rewrite.passes.base import Missed, Rules
from dask_rewrite.passes.fuse_slices import FuseSlices
from dask_rewrite.pipeline import selection
from dask_rewrite.remarks import Remark, Remarks
from dask_rewrite.tools.bisect import BisectError, bisect


def inc(x):
    return x + 1


#: What the wrong rule does. The pipeline may keep a rule from one run to the next, so this is outside of it.
PLAN: dict[str, Any] = {}


@dataclass(frozen=True)
class Wrong:
    """Rewrites every ``inc``, correctly but for one task."""

    name: ClassVar[str] = "wrong"
    anchors: ClassVar[tuple[Any, ...]] = (inc,)

    def rewrite(self, task, site):
        if task.key == "inc-3":
            return Missed("three is left alone")
        if task.key == PLAN["victim"]:
            func = zero_division if PLAN["raises"] else operator.neg
            return {task.key: Task(task.key, func, *task.args)}
        return {task.key: Task(task.key, operator.add, *task.args, 1)}


def zero_division(x):
    raise ZeroDivisionError(x)


@pytest.fixture
def wrong(monkeypatch) -> Iterator[dict[str, Any]]:
    """A pass that is wrong in one place, alone in the pipeline."""
    PLAN.update(victim="inc-7", raises=False)
    monkeypatch.setitem(selection.TASK_PASSES, "wrong", lambda: Rules("wrong", (Wrong(),)))
    monkeypatch.setattr(selection, "PASSES", (*selection.PASSES, "wrong"))
    with dask.config.set({"rewrite.passes": ["cull", "lower", "wrong"]}):
        yield PLAN


def total(count=20):
    return delayed(sum)([delayed(inc)(i, dask_key_name=f"inc-{i}") for i in range(count)])


def computed(count=20):
    with dask_rewrite.enable():
        return total(count).compute(scheduler="sync")


def right(count=20):
    return computed(count) == sum(range(1, count + 1))


@pytest.mark.parametrize("victim", [0, 1, 7, 18, 19])
def test_finds_the_guilty_rewrite(wrong, victim):
    wrong["victim"] = f"inc-{victim}"
    remark = dask_rewrite.bisect(right)
    assert isinstance(remark, Remark)
    assert remark.kind == "applied"
    assert remark.rule == "wrong"
    assert remark.key == f"inc-{victim}"
    assert "the check returns false" in remark.reason


@pytest.mark.parametrize("count", [1, 2, 3, 200])
def test_any_number_of_rewrites(wrong, count):
    wrong["victim"] = f"inc-{count // 2}"
    assert bisect(lambda: right(count)).key == f"inc-{count // 2}"


def test_check_that_raises(wrong):
    wrong["raises"] = True
    remark = bisect(right)
    assert remark.key == "inc-7"
    assert "raises ZeroDivisionError" in remark.reason


def test_check_of_assertions(wrong):
    def check():
        assert right()

    remark = bisect(check)
    assert remark.key == "inc-7"
    assert "raises AssertionError" in remark.reason


@pytest.mark.once
def test_number_of_checks_is_logarithmic(wrong):
    calls = []

    def check():
        calls.append(1)
        return right(500)

    bisect(check)
    assert len(calls) < 25


def test_check_that_never_fails():
    with pytest.raises(
        BisectError, match="passes with all rewrites allowed, and none was made; is the optimizer"
    ):
        bisect(lambda: True)


def test_check_that_always_fails():
    with pytest.raises(BisectError, match="with rewriting switched off, too"):
        bisect(lambda: False)


def test_check_that_always_raises():
    def check():
        raise LookupError("no such data")

    with pytest.raises(BisectError) as info:
        bisect(check)
    assert isinstance(info.value.__cause__, LookupError)


def test_fault_outside_of_single_rewrites():
    def check():
        return not dask.config.get("rewrite.enabled")

    with pytest.raises(BisectError, match="turning layers into tasks is at fault"):
        bisect(check)


def test_check_that_cannot_be_repeated(wrong):
    counts = iter([20, 20, *[0] * 20])

    def check():
        count = next(counts)
        return right(count) and count == 20

    with pytest.raises(BisectError, match="does not do the same each time"):
        bisect(check)


def test_interrupts_are_not_failures():
    def check():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bisect(check)


def test_everything_is_restored(wrong):
    config, allow = dask.config.get("rewrite"), Remarks.allow
    bisect(right)
    with pytest.raises(KeyboardInterrupt):
        bisect(lambda: right() and interrupt())
    assert dask.config.get("rewrite") == config
    assert Remarks.allow is allow


def interrupt():
    raise KeyboardInterrupt


def test_several_graphs_in_one_check(wrong):
    wrong["victim"] = "inc-15"
    remark = bisect(lambda: right(4) and right(10) and right(20) and right(3))
    assert remark.key == "inc-15"


def test_rewrites_are_counted_where_nothing_breaks(wrong):
    wrong["victim"] = "nobody"
    with pytest.raises(BisectError, match=r"passes with all rewrites allowed, and \d+ were made"):
        bisect(right)


def test_numpy_booleans(wrong):
    np = pytest.importorskip("numpy")
    assert bisect(lambda: np.bool_(right())).key == "inc-7"


def test_the_functions_stand_in_the_package_whatever_was_imported_first():
    import dask_rewrite.tools.bisect

    with pytest.raises(BisectError):
        dask_rewrite.bisect(lambda: True)
    with pytest.raises(TypeError):
        dask_rewrite.bisect()
    import dask_rewrite.tools.preflight

    assert dask_rewrite.preflight(delayed(1)).ok


class Lazy:
    """An array that is read block by block, as one in a file is."""

    def __init__(self, data):
        self.data, self.shape, self.dtype, self.ndim = data, data.shape, data.dtype, data.ndim

    def __getitem__(self, index):
        return self.data[index]


def test_a_pass_of_our_own(monkeypatch):
    da = pytest.importorskip("dask.array")
    np = pytest.importorskip("numpy")
    data = np.arange(40)
    own = FuseSlices.rewrite

    def broken(self, task, site):
        found = own(self, task, site)
        if found and task.key[1:] == (3,):  # reads one element less
            (made,) = found.values()
            index = (slice(made.args[1][0].start, made.args[1][0].stop - 1),)
            return {task.key: Task(task.key, made.func, made.args[0], index, *made.args[2:])}
        return found

    monkeypatch.setattr(FuseSlices, "rewrite", broken)

    def check():
        x = da.from_array(Lazy(data), chunks=10)[5:37]
        with dask_rewrite.enable():
            return np.array_equal(x.compute(scheduler="sync"), data[5:37])

    remark = bisect(check)
    assert remark.rule == "fuse-slices"
    assert remark.key[1:] == (3,)


def test_what_is_no_function_is_named():
    with pytest.raises(TypeError, match=r"bisect\(check\): expected a function, got 5"):
        dask_rewrite.bisect(5)
