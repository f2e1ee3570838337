"""Random programs of linear algebra and of wide sums: as with dask's own optimizer, and as with NumPy."""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask import delayed
from hypothesis import given
from hypothesis import strategies as st

from helpers import assert_same, assert_sound, examples, fan_in, keys_of, stock, switched_on, tasks_of

pytestmark = pytest.mark.filterwarnings("ignore:Increasing number of chunks", "ignore::RuntimeWarning")

STEPS: dict[str, Callable[[Any, da.Array, da.Array], da.Array]] = {
    "lower factor": lambda draw, a, b: da.linalg.lu(a)[1],
    "upper factor": lambda draw, a, b: da.linalg.lu(a)[2],
    "permutation": lambda draw, a, b: da.linalg.lu(a)[0],
    "all of lu": lambda draw, a, b: functools.reduce(da.dot, da.linalg.lu(a)),
    "cholesky": lambda draw, a, b: da.linalg.cholesky(_definite(a), lower=draw(st.booleans())),
    "solve": lambda draw, a, b: da.linalg.solve(a, b),
    "solve, definite": lambda draw, a, b: da.linalg.solve(_definite(a), b, assume_a="pos"),
    "triangle": lambda draw, a, b: da.linalg.solve_triangular(a, b, lower=draw(st.booleans())),
    "inverse": lambda draw, a, b: da.linalg.inv(a),
    "normal equations": lambda draw, a, b: da.linalg.solve(a.T @ a, a.T @ b),
    "twice": lambda draw, a, b: da.linalg.solve(a, da.linalg.solve(a, b)),
    "residual": lambda draw, a, b: a.dot(da.linalg.solve(a, b)) - b,
    "sum of blocks": lambda draw, a, b: da.linalg.lu(a)[2].sum(axis=0),
}


def _definite(a: da.Array) -> da.Array:
    return a + a.T


@st.composite
def systems(draw: Any) -> list[da.Array]:
    """One to three results on the same matrix, most of them of more blocks than one task may wait for."""
    blocks = draw(st.sampled_from([1, 2, 5, 9, 11]))
    chunk = draw(st.integers(1, 3))
    n = blocks * chunk
    dtype = draw(st.sampled_from(["f8", "f4"]))
    values = (np.arange(n * n) % 7).reshape(n, n) + 20.0 * n * np.eye(n)
    a = da.from_array(values.astype(dtype), chunks=chunk)
    columns = draw(st.sampled_from([1, 2, 5]))
    right = np.arange(n * columns).reshape(n, columns) % 5 + 1
    b = da.from_array(right.astype(dtype), chunks=(chunk, draw(st.sampled_from([1, columns]))))
    if draw(st.booleans()):
        a, b = a + 0, b * 1
    names = draw(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=3))
    return [STEPS[name](draw, a, b) for name in names]


def compute(*outputs: Any, **config: Any) -> Any:
    with switched_on(**config):
        return dask.compute(*outputs, scheduler="sync")


@given(systems())
@examples(25)
def test_linear_algebra(outputs: list[da.Array]) -> None:
    with stock():
        expected = dask.compute(*outputs, scheduler="sync")
    assert_same(compute(*outputs, **{"rewrite.reassociate": False}), expected)
    tasks = tasks_of(*outputs)
    assert_sound(tasks, keys_of(*outputs))
    for actual, wanted in zip(compute(*outputs), expected, strict=True):
        assert (actual.dtype, actual.shape) == (wanted.dtype, wanted.shape)
        scale = np.abs(wanted).max(initial=1)
        precision = 1e-9 if wanted.dtype == "f8" else 1e-3
        np.testing.assert_allclose(actual / scale, wanted / scale, rtol=precision, atol=precision)


# -- wide folds of arrays and of delayed values --------------------------------------------


def _chain(function: Any) -> Callable[[list[Any]], Any]:
    return lambda xs: functools.reduce(function, xs)


#: What makes one array of many, on dask's and on NumPy's arrays.
WIDE: dict[str, Callable[[list[Any]], Any]] = {
    "sum": sum,
    "+": _chain(operator.add),
    "*": _chain(operator.mul),
    "+ and negative": lambda xs: functools.reduce(lambda x, y: x + -y, xs),
    "+ and a constant": lambda xs: functools.reduce(lambda x, y: x + y + 1, xs),
    "other way round": lambda xs: functools.reduce(lambda x, y: y + x, xs),
    "in pairs": lambda xs: sum(x + y for x, y in zip(xs[::2], xs[1::2], strict=False)),
    "twice": lambda xs: sum(xs) + sum(xs[::-1]),
    "np.maximum": _chain(np.maximum),
    "np.minimum": _chain(np.minimum),
    "np.logical_and": _chain(np.logical_and),
    "np.logical_or": _chain(np.logical_or),
}


def _array(i: int, n: int, dtype: str, chunks: int) -> tuple[da.Array, np.ndarray]:
    values = ((np.arange(n) * (i + 3)) % 11 - 4).astype(dtype)
    return da.from_array(values, chunks=chunks), values


@given(st.data())
@examples(80)
def test_wide_folds_of_arrays(data: st.DataObject) -> None:
    fold = WIDE[data.draw(st.sampled_from(sorted(WIDE)))]
    count = data.draw(st.sampled_from([2, 8, 9, 17, 30, 70]))
    dtypes = data.draw(st.lists(st.sampled_from(["i1", "i8", "f4", "f8"]), min_size=1, max_size=2))
    n, chunks = data.draw(st.sampled_from([(1, 1), (4, 2), (5, 3)]))
    one = data.draw(st.booleans())  # the same array again and again, in part
    made = [_array(i % 7 if one else i, n, dtypes[i % len(dtypes)], chunks) for i in range(count)]
    if data.draw(st.booleans()):
        made = [(x + 1, v + 1) for x, v in made]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = fold([x for x, _ in made])
        expected = fold([v for _, v in made])
    outputs = [x, made[0][0], x * 2] if data.draw(st.booleans()) else [x]
    with stock():
        wanted = dask.compute(*outputs, scheduler="sync")
    assert_same(compute(*outputs, **{"rewrite.reassociate": False}), wanted)
    actual = compute(*outputs)
    assert actual[0].dtype == expected.dtype
    np.testing.assert_allclose(actual[0], expected, rtol=1e-5)
    if x.dtype.kind in "bi":
        assert_same(actual, wanted)
    assert_sound(tasks_of(*outputs), keys_of(*outputs))


def _is(value: Any) -> Any:
    return value


DELAYED: dict[str, Callable[[list[Any]], Any]] = {
    "sum": lambda xs: delayed(sum)(xs),
    "np.sum": lambda xs: delayed(np.sum)(xs, axis=0),
    "add.reduce": lambda xs: delayed(np.add.reduce)(xs),
    "maximum.reduce": lambda xs: delayed(np.maximum.reduce)(xs),
    "reduce": lambda xs: delayed(functools.reduce)(operator.add, xs),
    "reduce or": lambda xs: delayed(functools.reduce)(np.logical_or, xs),
    "nested": lambda xs: delayed(operator.sub)(delayed(sum)(xs), xs[0]),
    "sums of sums": lambda xs: delayed(sum)([delayed(sum)(xs[i:]) for i in range(0, len(xs), 10)]),
}


@given(st.data())
@examples(80)
def test_wide_folds_of_delayed_values(data: st.DataObject) -> None:
    fold = DELAYED[data.draw(st.sampled_from(sorted(DELAYED)))]
    count = data.draw(st.sampled_from([2, 9, 20, 70]))
    dtypes = data.draw(st.lists(st.sampled_from(["?", "i1", "i8", "f8"]), min_size=1, max_size=2))
    known = data.draw(st.booleans())
    word = data.draw(st.booleans())
    parts = []
    for i in range(count):
        value = np.arange(4).astype(dtypes[i % len(dtypes)]) * (i % 3 == 0)
        if known:
            parts.append(delayed(np.multiply)(value, value.dtype.type(1)))
        else:
            parts.append(delayed(_is)(value))
    try:
        x = fold(parts)
    except TypeError:
        return
    outputs = [x, parts[0]] if data.draw(st.booleans()) else [x]
    try:
        with stock():
            expected = dask.compute(*outputs, scheduler="sync")
    except TypeError as error:
        with pytest.raises(type(error)):
            compute(*outputs)
        return
    # a user who gives the word for blocks of different types gets what was asked for
    options = {"rewrite.options": {"tree-sum": {"delayed": word and len(set(dtypes)) == 1}}}
    assert_same(compute(*outputs, **options), expected)
    if count > 8 and known and len(set(dtypes)) == 1:
        assert max(map(fan_in, tasks_of(*outputs).values())) <= 8
