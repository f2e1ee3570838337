"""What is known of functions, one at a time: facts, purity, views, writes."""

from __future__ import annotations

import functools
import operator
import warnings
from collections import Counter
from collections.abc import Mapping
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import DataNode, List, Task, TaskRef
from hypothesis import given
from hypothesis import strategies as st

from analysis.facts_cases import FORMS, NUMBERS, Run, check, made
from array_programs import COUNTING, MAKING, MOVING, matrix, values
from dask_rewrite.analysis.effects import Effects
from dask_rewrite.analysis.knowledge import KNOWN, Fact, known, known_call

# --------------------------------------------------------------------------------------
# one function at a time


def fact_of(value: Any) -> Fact:
    fill = None
    if value.size and np.all(value == value.flat[0]) and value.dtype.char not in "gG":
        fill = np.asarray(value).reshape(-1)[0]
    return Fact(value.shape, value.dtype, fill, isinstance(value, np.generic))


SHAPES = ((), (1,), (3,), (2, 3), (2, 1), (0,), (0, 3), (2, 0))


SOME = (0, 1, 2, -1, 3, 0.5, -0.0, True, 1j, 100000, np.float32(2), np.int8(-3), np.float64(-0.0))


@st.composite
def arrays(draw: Any) -> Any:
    shape = draw(st.sampled_from(SHAPES))
    dtype = draw(st.sampled_from([*NUMBERS[:-1], "M8[D]", "m8[s]", "U2"]))
    if draw(st.booleans()):
        found = values(dtype, shape)
    else:
        found = np.full(shape, values(dtype, (5,))[draw(st.integers(0, 4))])
    return found[()] if not shape and draw(st.booleans()) else found


ELEMENTWISE = sorted(
    (
        *(f for f in KNOWN if type(f) is np.ufunc and not f.signature),
        *(
            f
            for f in vars(operator).values()
            if callable(f) and f in KNOWN and f not in (operator.getitem, operator.matmul)
        ),
    ),
    key=lambda f: (type(f) is np.ufunc, f.__name__),
)


@given(st.data())
def test_elementwise(data: Any) -> None:
    func = data.draw(st.sampled_from(ELEMENTWISE), label="func")
    count = func.nin if type(func) is np.ufunc else 1 + (func not in UNARY)
    args = [data.draw(st.one_of(arrays(), st.sampled_from(SOME)), label="argument") for _ in range(count)]
    compare(func, args)


UNARY = (operator.neg, operator.pos, operator.invert, operator.abs, operator.not_)


@given(st.data())
def test_reductions(data: Any) -> None:
    names = "sum prod max min any all mean var std nansum nanmax nanmean argmin median cumsum nancumsum"
    func = getattr(np, data.draw(st.sampled_from(names.split())))
    x = data.draw(arrays())
    kwargs: dict[str, Any] = {}
    if data.draw(st.booleans()):
        kwargs["axis"] = data.draw(st.sampled_from([None, 0, 1, -1, (0, 1), ()]))
    if data.draw(st.booleans()):
        kwargs["keepdims"] = data.draw(st.booleans())
    if data.draw(st.booleans()):
        kwargs["dtype"] = data.draw(st.sampled_from(["f8", "f4", "i1", "?"]))
    compare(func, [x], kwargs)


@given(st.data())
def test_products(data: Any) -> None:
    func = data.draw(st.sampled_from([np.dot, np.matmul, np.outer, np.vdot, operator.matmul, np.tensordot]))
    sizes = st.sampled_from([(), (3,), (2, 3), (3, 2), (3, 3), (2, 3, 3), (0, 3), (3, 0)])
    dtypes = st.sampled_from(NUMBERS)
    args = [values(data.draw(dtypes), data.draw(sizes)) for _ in range(2)]
    compare(func, args, {"axes": data.draw(st.sampled_from([0, 1, 2]))} if func is np.tensordot else {})


INDICES = (
    *(0, -1, 5, slice(None), slice(1, None), slice(None, None, -1), slice(5, 1), None, ..., True),
    *(
        [0, 1],
        [],
        [True, False, True],
        np.array([1, 0]),
        np.array([True, False]),
        np.array([[0, 1]]),
        np.int64(1),
    ),
    *(np.array(1), "a", (0, 1)),
)


@given(st.data())
def test_indexing(data: Any) -> None:
    x = data.draw(arrays())
    index = data.draw(st.one_of(st.sampled_from(INDICES), st.tuples(*[st.sampled_from(INDICES)] * 2)))
    for func in GETTERS:
        compare(func, [x, index])


@given(st.data())
def test_joining(data: Any) -> None:
    func = data.draw(st.sampled_from([np.concatenate, np.stack, np.vstack, np.hstack]))
    parts = data.draw(st.lists(arrays(), min_size=1, max_size=3))
    axis = {"axis": data.draw(st.sampled_from([0, 1, -1]))} if func in (np.concatenate, np.stack) else {}
    compare(func, [parts], axis)


def compare(func: Any, args: list[Any], kwargs: Mapping[str, Any] | None = None) -> None:
    """The fact of a call against its result; a call that fails has none, or not always."""
    kwargs = dict(kwargs or {})
    facts: list[Any] = []
    for position, arg in enumerate(args):
        if type(arg) is list and func not in GETTERS and hasattr(arg[0], "dtype"):
            facts.append(list(map(fact_of, arg)))
        else:
            is_fact = type(arg) is np.ndarray and not (position and func in GETTERS)
            facts.append(fact_of(arg) if is_fact else arg)
    try:
        found = known(func).fact(*facts, **kwargs)
    except Exception:
        return  # the interpreter takes this for unknown
    if found is None:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = func(*args, **kwargs)
        except (ValueError, OverflowError):  # values matter: negative powers of integers, empty extremes
            assert func is not np.full
            return
    results = result if isinstance(result, tuple) else (result,)
    for one, block in zip(found if isinstance(found, tuple) else (found,), results, strict=True):
        if isinstance(one, Fact):
            check(one, block, (func, args, kwargs))


GETTERS = (operator.getitem, dask.array.chunk.getitem, dask.array.core.getter)


CALLS: dict[str, tuple[Any, ...]] = {
    "does not fit": (np.full, (3,), 300, "u1"),
    "no number": (np.full, (3,), np.nan, "i8"),
    "too large": (np.full, (3,), 1e300, "f4"),
    "cut off": (np.full, (3,), 3.7, "i4"),
    "complex": (np.full, (3,), 2j, "f4"),
    "text": (np.full, (3,), "abc", "U2"),
    "byte order": (np.tril, values(">f8", (3, 3))),
    "longest text": (np.max, values("U3", (3, 3))),
    "no size": (np.full, (), 1.5),
    "negative size": (np.zeros, (-1,)),
    "structured": (np.zeros, (3,), [("a", "i4")]),
    "objects": (np.zeros, (3,), object),
    "dates": (np.ones, (3,), "M8[D]"),
    "large steps": (da.chunk.arange, 0, 10, 3, 4, "i8"),
    "too few steps": (da.chunk.arange, 0, 0.3, 0.1, 3, "f8"),
    "steps of floats": (da.chunk.arange, 0, 1, 0.1, 11, "f8"),
    "no steps": (da.chunk.arange, 3, 0, 1, 0, "i8"),
    "steps of other floats": (da.chunk.arange, 1, 1.3, 0.1, 3, "f8"),
    "repeated": (np.repeat, values("f8", (3, 3)), 0, 1),
    "padded": (np.pad, values("i1", (3, 3)), ((1, 2), (0, 1))),
    "padded by one": (np.pad, values(">i2", (3, 3)), 1, "mean"),
    "partial": (functools.partial(np.sum, axis=0), values("i1", (3, 3))),
    "folded": (sum, [values("?", (3,)), values("?", (3,))]),
    "folded text": (sum, ["a", "b"]),
    "one fold": (functools.reduce, operator.add, [values("?", (3,))]),
    "object text": (operator.add, values("O", (3,)), 1),
    "number of none": (np.add, 1, None),
    "powers": (operator.pow, values("i8", (3,)), 2),
    "negative powers": (operator.pow, values("f8", ()), -1),
    "cumulated": (np.cumsum, values("?", (2, 3)), 1),
    "cumulated flat": (np.cumsum, values("i1", (2, 3))),
    "sorted": (np.sort, values(">f8", (2, 3))),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_calls(call: tuple[Any, ...]) -> None:
    compare(call[0], list(call[1:]))


# --------------------------------------------------------------------------------------
# purity, views, writes


def bits(block: Any) -> Any:
    if isinstance(block, (list, tuple)):
        return [bits(each) for each in block]
    if isinstance(block, dict):
        return {name: bits(each) for name, each in block.items()}
    if isinstance(block, (np.ndarray, np.generic)) and not block.dtype.hasobject:
        return block.dtype, block.shape, block.tobytes()
    return repr(block)


def test_effects_are_as_stated() -> None:
    """Nothing writes into an argument; fresh results share no memory; pure functions repeat themselves."""
    seen: Counter[str] = Counter()
    cases = [functools.partial(p, matrix()) for p in (*MOVING.values(), *COUNTING.values())]
    with dask.config.set(FORMS["plain"]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for program in (*cases, *MAKING.values()):
            try:
                run = Run(*made(program))
            except TypeError:
                continue
            effects = Effects()
            for key, node in run.nodes.items():
                if type(node) is not Task or "empty" in str(key) or "random" in str(key):
                    continue
                effect = effects.of(node)
                seen[effect] += 1
                if effect == "unknown":
                    continue
                inputs = {dep: run.blocks[dep] for dep in node.dependencies}
                before = bits(list(inputs.values()))
                result = node(inputs)
                assert bits(list(inputs.values())) == before, f"{node!r:.200} writes into its arguments"
                if effect == "fresh":
                    for block in inputs.values():
                        if isinstance(block, np.ndarray) and isinstance(result, np.ndarray):
                            assert not np.shares_memory(result, block), f"{node!r:.200} is not fresh"
                if effects.pure(node):
                    seen["pure"] += 1
                    assert bits(node(inputs)) == bits(run.blocks[key]), f"{node!r:.200} is not pure"
    assert seen["unknown"] < 0.1 * seen["fresh"]
    assert seen["pure"] > 1000
    assert seen["view"] > 500


def test_calls_that_write_are_not_known() -> None:
    x, y = TaskRef("x"), TaskRef("y")
    effects = Effects()
    for task in (
        Task("a", np.add, x, 1, y),
        Task("a", np.add, x, 1, out=y),
        Task("a", np.sum, x, 0, None, y),
        Task("a", functools.partial(np.sum, out=y), x),
        Task("a", np.clip, x, 0, 1, y),
        Task("a", np.nan_to_num, x, copy=False),
        Task("a", np.nan_to_num, x, False),
        Task("a", np.median, x, overwrite_input=True),
        Task("a", np.concatenate, List(x, x), out=y),
        Task("a", dask.utils.apply, np.add, List(x, 1), {"out": [1]}),
        Task("a", dask.utils.apply, lambda block: block, List(x)),
        Task("a", functools.reduce, operator.iadd, List(x, y)),
        Task("a", operator.iadd, x, y),
        Task("a", operator.iadd, Task(None, operator.getitem, x, 0), y),
        Task("a", operator.iadd, DataNode(None, np.ones(3)), y),
        Task("a", operator.setitem, x, 0, 1),
        Task("a", np.copyto, x, y),
        Task("a", np.frompyfunc(abs, 1, 1), x),
        Task("a", da.reductions.mean_chunk, x, sum=lambda block, **kwargs: block),
        Task("a", list.append, x, y),
    ):
        assert effects.of(task) == "unknown", task
    assert effects.of(Task("a", operator.iadd, Task(None, np.add, x, 1), y)) == "fresh"
    assert effects.of(Task("a", dask.utils.apply, np.add, List(x, 1), {"dtype": "f4"})) == "fresh"
    assert known_call(da.chunk.astype, (x,), {"copy": False}).fresh is False
    assert known_call(da.chunk.astype, (x,), {}).fresh is True


def test_random_is_never_pure() -> None:
    effects = Effects()
    for x in (da.random.default_rng(0).random(4, chunks=2), da.random.RandomState(0).random_sample(4)):
        for node in Run(x).nodes.values():
            assert not effects.pure(node)
