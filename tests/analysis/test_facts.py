"""Every fact is held against the block that comes out; what is said of functions, against what they do."""

from __future__ import annotations

import functools
import operator
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Alias, DataNode, GraphNode, List, Task, TaskRef
from dask.core import flatten
from hypothesis import given, settings
from hypothesis import strategies as st

from array_programs import COUNTING, MAKING, MOVING, matrix, values
from dask_rewrite.analysis.effects import Effects
from dask_rewrite.analysis.facts import Facts
from dask_rewrite.analysis.knowledge import KNOWN, Fact, known, known_call
from dask_rewrite.pipeline.run import rewrite_tasks
from random_programs import programs

NUMBERS = ("f8", "f4", "f2", "i8", "i4", "i1", "u1", "?", "c16", ">f8", "g")
OTHERS = ("M8[D]", "m8[s]", "U3", "S2", "O", [("a", "i4"), ("b", "f8")])

#: How the graphs are lowered: as they are by default, and task by task.
FORMS: dict[str, dict[str, Any]] = {
    "default": {},
    "plain": {"rewrite.passes": ["cull", "lower"]},
    "fused": {"rewrite.passes": ["cull", "fuse-blockwise", "lower", "fuse-chains"]},
}


class Run:
    """The blocks of a graph, under all of its keys, and what is known of them."""

    def __init__(self, *collections: Any) -> None:
        dsk = collections[0].__dask_graph__()
        if len(collections) > 1:
            dsk = dask.highlevelgraph.HighLevelGraph.merge(*[c.__dask_graph__() for c in collections])
        keys = [key for c in collections for key in flatten(c.__dask_keys__())]
        graph = rewrite_tasks(dsk, keys)
        assert graph is not None
        self.nodes = graph.nodes
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.blocks = dict(zip(self.nodes, dask.get(self.nodes, list(self.nodes)), strict=True))
        self.facts = Facts(self.nodes.get)

    def check(self) -> Counter[str]:
        """Hold every fact against its block; returns how many blocks have one."""
        found: Counter[str] = Counter()
        for key, node in self.nodes.items():
            block, fact = self.blocks[key], self.facts.of(key)
            if fact is None:
                found["unknown"] += isinstance(block, (np.ndarray, np.generic))
            else:
                check(fact, block, node)
                found["known"] += 1
                found["filled"] += fact.fill is not None
        return found


def check(fact: Fact, block: Any, of: Any = "") -> None:
    told = f"{fact}, but it is {type(block).__name__} {block!r:.200} of {of!r:.200}"
    if fact.scalar:
        assert isinstance(block, np.generic), told
    else:
        assert type(block) is np.ndarray, told
    assert block.shape == fact.shape, told
    assert block.dtype == fact.dtype, told
    assert fact.nbytes == block.nbytes
    if fact.fill is not None:
        assert fact.fill.dtype == fact.dtype, told
        filled = np.full(block.shape, fact.fill, fact.dtype)
        assert np.asarray(block).tobytes() == filled.tobytes(), told


def made(program: Callable[..., Any], *args: Any) -> list[Any]:
    """The arrays of a program; none if it does not take the dtype."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = program(*args)
    return list(result) if isinstance(result, (tuple, list)) else [result]


# --------------------------------------------------------------------------------------
# facts against blocks


@pytest.mark.parametrize("form", FORMS)
def test_facts_are_true_and_many(form: str) -> None:
    found: Counter[str] = Counter()
    with dask.config.set(FORMS[form]):
        for program in (*MOVING.values(), *COUNTING.values()):
            try:
                found += Run(*made(program, matrix())).check()
            except TypeError:  # shifting floats
                assert program is COUNTING["shifted"]
        for make in MAKING.values():
            found += Run(*made(make)).check()
    assert found["known"] >= 0.9 * (found["known"] + found["unknown"])
    assert found["filled"] >= 100


@pytest.mark.parametrize("dtype", [*NUMBERS, *OTHERS], ids=str)
@pytest.mark.parametrize("shape", [(7, 9), (0, 9)], ids=str)
def test_dtypes(dtype: Any, shape: tuple[int, int]) -> None:
    found: Counter[str] = Counter()
    moved: Counter[str] = Counter()
    cases = {**MOVING, **COUNTING} if dtype in NUMBERS else MOVING
    half = (*NUMBERS, *OTHERS).index(dtype) % 2  # every program with half of the dtypes
    for name, program in list(cases.items())[half::2]:
        try:
            run = Run(*made(program, matrix(dtype, shape, (3, 4) if all(shape) else -1)))
        except Exception:  # not for this dtype or shape
            continue
        got = run.check()
        found += got
        if name in MOVING:
            moved += got
    assert moved["known"] >= 0.8 * (moved["known"] + moved["unknown"]) > 0
    if dtype in NUMBERS:
        assert found["known"] >= 0.8 * (found["known"] + found["unknown"])


@pytest.mark.parametrize("dtype", ["f8", "i2", "?", "U2", "O"])
def test_no_axes(dtype: str) -> None:
    x = da.from_array(values(dtype, ()), chunks=())
    cases: list[Callable[[Any], Any]] = [
        *(lambda x: x, lambda x: x[...], lambda x: x[()], lambda x: x[None], lambda x: x.reshape((1, 1))),
        *(lambda x: da.stack([x, x]), lambda x: da.ravel(x), lambda x: x.T, lambda x: x + x, lambda x: -x),
        *(lambda x: x.sum(), lambda x: da.where(x > 0, x, x), lambda x: x.astype("f4"), lambda x: x + 1),
        *(lambda x: x.max(), lambda x: x.mean(), lambda x: da.dot(x, x), lambda x: da.isin(x, [1])),
        *(lambda x: da.broadcast_to(x, (3, 2)), lambda x: x.round(), lambda x: da.clip(x, 0, 1)),
    ]
    ran = 0
    for program in cases:
        try:
            run = Run(*made(program, x))
        except Exception:  # not for this dtype
            continue
        run.check()
        ran += 1
    assert ran > 5


def masked(block: Any) -> Any:
    return np.ma.masked_array(block, np.asarray(block) > 3)


def as_matrix(block: Any) -> Any:
    return np.matrix(block)


class Subclass(np.ndarray):
    pass


def as_subclass(block: Any) -> Any:
    return np.asarray(block).view(Subclass)


def as_sparse(block: Any) -> Any:
    import sparse

    return sparse.COO.from_numpy(np.nan_to_num(block))


def as_objects(block: Any) -> Any:
    return block.astype(object)


def as_something(block: Any) -> Any:
    return block.astype("f4") if block.shape[0] == 3 else masked(block)


CHUNKS = (masked, as_matrix, as_subclass, as_sparse, as_objects, as_something)


@pytest.mark.parametrize("kind", CHUNKS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("stated", [True, False], ids=["stated", "found out"])
def test_other_chunk_types(kind: Any, stated: bool) -> None:
    """What a user's function makes is unknown, whatever the collection says."""
    if kind is as_sparse:
        pytest.importorskip("sparse")
    ran = 0
    cases = [*MOVING.values(), *COUNTING.values()]
    for program in cases[::40] if kind is as_sparse else cases[stated::2]:  # each costs a compilation
        x = matrix()
        meta = {"dtype": float, "meta": np.empty((0, 0))} if stated else {}
        try:
            run = Run(*made(program, x.map_blocks(kind, **meta)))
        except Exception:  # not for this type
            continue
        run.check()
        ran += 1
    assert ran > 20 or kind in (as_matrix, as_sparse)


def test_sources(tmp_path: Path) -> None:
    h5py, zarr = pytest.importorskip("h5py"), pytest.importorskip("zarr")
    a = values("f4", (7, 9))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for dtype in ("f4", ">f8", "i2", "?", "c8"):
            source = file.create_dataset(dtype, data=np.nan_to_num(a, posinf=9).astype(dtype))
            for inline in (False, True):
                x = da.from_array(source, chunks=(3, 4), inline_array=inline, lock=True)
                for y in (x, x[1:5, ::2] + 1, x[2], x[:, [1, 3]], x.sum(axis=0)):
                    found = Run(y).check()
                    assert found["known"] >= found["unknown"]
        names = file.create_dataset("names", data=[b"a", b"bc"], dtype=h5py.string_dtype())
        Run(da.from_array(names, chunks=1)).check()
    try:
        swapped = zarr.open(str(tmp_path / "b.zarr"), mode="w", shape=(7, 9), chunks=(3, 4), dtype=">f4")
    except (KeyError, TypeError, ValueError, FileNotFoundError):
        pass  # this version has no such arrays
    else:
        swapped[:] = a
        for index in (slice(None), 2, (2, 3)):
            Run(da.from_array(swapped, chunks=(3, 4))[index]).check()
    store = zarr.open(str(tmp_path / "a.zarr"), mode="w", shape=(7, 9), chunks=(3, 4), dtype="f4")
    store[:] = a
    for x in (da.from_array(store, chunks=(3, 4)), da.from_zarr(str(tmp_path / "a.zarr"))):
        for y in (x, x[1:5, ::2] + 1, x[2], x.T @ x):
            found = Run(y).check()
            assert found["known"] > found["unknown"] == 0


class Lazy:
    """Looks like an array and gives what it likes."""

    shape, dtype, ndim = (7, 9), np.dtype("f8"), 2

    def __getitem__(self, index: Any) -> Any:
        return masked(values("f4", (7, 9))[index])


def test_other_sources(tmp_path: Path) -> None:
    values("f8", (7, 9)).tofile(tmp_path / "raw")
    mapped = np.memmap(tmp_path / "raw", dtype="f8", shape=(7, 9))
    for source in (Lazy(), mapped, masked(values("f8", (7, 9))), as_subclass(values("f8", (7, 9)))):
        for asarray in (True, False):
            x = da.from_array(source, chunks=(3, 4), asarray=asarray)
            for y in (x, x + 1, x.sum(axis=0), x[2], x.rechunk(4)):
                Run(y).check()


def test_user_functions_are_unknown() -> None:
    x = matrix().map_blocks(lambda block: block, dtype=float)
    run = Run(x)
    assert all(run.facts.of(key) is None for key in flatten(x.__dask_keys__()))
    y = da.from_array(values("f8", (7, 9)), chunks=(3, 4)).map_blocks(np.frompyfunc(abs, 1, 1), dtype="O")
    run = Run(y)
    assert all(run.facts.of(key) is None for key in flatten(y.__dask_keys__()))


def test_xarray() -> None:
    xr = pytest.importorskip("xarray")
    x = xr.DataArray(matrix(), dims=("x", "y"), coords={"x": np.arange(7), "g": ("x", np.arange(7) % 3)})
    found: Counter[str] = Counter()
    for y in (
        *(x.mean("y"), x.sel(x=3), x.isel(y=slice(2, 9)), x.where(x > 3), x - x.mean("x"), x.fillna(0)),
        *(x.coarsen(x=2, boundary="trim").mean(), x.shift(x=1), x.cumsum("x"), x.diff("x"), x.var()),
        *(xr.concat([x, x], "x"), xr.dot(x, x), x.count(), x.astype("f4"), x.pad(x=1), x.roll(x=2)),
        *(x.rolling(x=3).mean(), x.groupby("g").mean(), x.stack(z=("x", "y")), x.round(1), x.max("x")),
    ):
        found += Run(y.data).check()
    assert found["known"] >= 0.9 * (found["known"] + found["unknown"])


@given(programs())
@settings(max_examples=60)
def test_random_programs(program: tuple[list[da.Array], bool]) -> None:
    try:
        run = Run(*program[0])
    except (ValueError, TypeError, IndexError, ZeroDivisionError, OverflowError):
        return
    run.check()


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


# --------------------------------------------------------------------------------------
# the interpreter


def test_templates_with_equal_inputs_that_differ() -> None:
    """1 is not True, and 0.0 is not -0.0."""
    template = Task(None, operator.getitem, TaskRef("x0"), TaskRef("x1"))
    filled = Task(None, np.full, (2,), TaskRef("x1"))
    x = DataNode("x", np.arange(6).reshape(2, 3))
    nodes: dict[Any, GraphNode] = {"x": x}
    for name, body, value in (
        *(("one", template, (1,)), ("true", template, (True,)), ("slice", template, slice(1))),
        *(("zero", filled, 0.0), ("negative", filled, -0.0), ("int", filled, 0)),
    ):
        nodes[name] = Task(name, body.__call__, Task(None, dict, x0=TaskRef("x"), x1=value))
    facts = Facts(nodes.get)
    blocks = dict(zip(nodes, dask.get(nodes, list(nodes)), strict=True))
    for key in nodes:
        if (fact := facts.of(key)) is not None:
            check(fact, blocks[key], nodes[key])
    assert None not in [facts.of(name) for name in ("one", "slice", "zero")]


def test_unknown_inputs_stay_unknown() -> None:
    nodes: dict[Any, GraphNode] = {
        "a": Alias("a", "elsewhere"),
        "b": Task("b", np.add, TaskRef("a"), 1),
        "c": Task("c", np.concatenate, List(TaskRef("b"), TaskRef("d"))),
        "d": DataNode("d", np.ones(3)),
        "loop": Task("loop", np.add, TaskRef("loop"), 1),
    }
    facts = Facts(nodes.get)
    assert [facts.of(key) for key in "abc"] == [None, None, None]
    assert facts.of("d") == Fact((3,), np.dtype("f8"))
    assert facts.of("loop") is None


def test_deep() -> None:
    nodes: dict[Any, GraphNode] = {0: DataNode(0, np.ones(3, "f4"))}
    for i in range(1, 20_000):
        nodes[i] = Task(i, np.add, TaskRef(i - 1), 1)
    assert Facts(nodes.get).of(19_999) == Fact((3,), np.dtype("f4"))


def test_lazy_fill_values_are_not_computed() -> None:
    x = da.from_array(np.array(100)).map_blocks(_must_not_run, dtype=int)
    nodes = {"a": Task("a", np.full, (3, 3), x), "b": Task("b", np.full, (3, 3), [1, 2, 3])}
    facts = Facts(nodes.get)
    assert facts.of("a") is None
    assert facts.of("b") is None


def _must_not_run(block: np.ndarray) -> np.ndarray:
    raise AssertionError


def test_what_is_remembered_can_be_forgotten_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Facts are told apart by identity, so that whoever does that must keep them alive."""
    from dask_rewrite.analysis import fact_cache as fact_memory

    monkeypatch.setattr(fact_memory, "MOST", 0)
    nodes: dict[Any, Any] = {}
    for i in range(1, 60):
        nodes["x", i] = DataNode(("x", i), np.zeros((i, 2)))
        inner = Task(None, np.negative, TaskRef(("x", i)))
        nodes["y", i] = Task(("y", i), np.add, inner, TaskRef(("x", i)))
    facts = Facts(nodes.get)
    for i in range(1, 60):
        fact_memory.tidy()
        assert facts.of(("y", i)) == Fact((i, 2), np.dtype(float))
        assert Facts(nodes.get).of(("y", i)) == Fact((i, 2), np.dtype(float))


def test_calls_are_remembered_by_what_they_are_called_with() -> None:
    from dask_rewrite.analysis.fact_cache import number_of, signature

    zero, minus = np.array([0.0]), np.array([-0.0])
    assert signature(zero) == signature(zero.copy()) != signature(minus)
    assert signature(np.array([1], "u1")) != signature(np.array([1], "i1"))
    assert signature(np.float64(1)) != signature(np.float32(1))
    assert signature(slice(1)) != signature(slice(True))
    assert signature((slice(1),)) != signature((slice(True),)) != signature((slice(1.0),))
    assert signature(np.add) != signature(np.subtract)
    assert number_of(functools.partial(np.sum, axis=0)) == number_of(functools.partial(np.sum, axis=0))
    assert number_of(functools.partial(np.sum, axis=0)) != number_of(functools.partial(np.sum, axis=False))
    for value in (np.zeros(1000), lambda: None, np.array([None])):
        with pytest.raises(TypeError):
            signature(value)


def test_equal_facts_have_one_number() -> None:
    from dask_rewrite.analysis.fact_cache import intern

    one, other = intern(Fact((9, 8, 7), np.dtype("f8"))), intern(Fact((9, 8, 7), np.dtype("f8")))
    assert one is other
    assert one.number
    assert Fact((9, 8, 7), np.dtype("f8")) == one
    assert intern(Fact((9, 8, 7), np.dtype("f4"))).number != one.number
    assert "number" not in repr(one)
