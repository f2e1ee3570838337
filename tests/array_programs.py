"""Programs over the dask.array API, made anew from a matrix, for tests that look at every block."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import dask.array as da
import numpy as np


def matrix(dtype: Any = float, shape: tuple[int, ...] = (7, 9), chunks: Any = (3, 4)) -> da.Array:
    return da.from_array(values(dtype, shape), chunks=chunks)


def values(dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Distinct values, with what is special of the dtype among them."""
    n = int(np.prod(shape))
    dtype = np.dtype(dtype)
    if dtype.kind == "V":
        found = np.zeros(n, dtype)
        for name in dtype.names or ():
            found[name] = np.arange(n)
    elif dtype.kind == "U":
        found = np.array([str(i) for i in range(n)], dtype)
    else:
        found = (np.arange(n) % 100).astype(dtype)
    if dtype.kind in "fc" and n > 3:
        found[1:4] = np.nan, -0.0, np.inf
    return found.reshape(shape)


def square(n: int = 8, dtype: Any = float) -> np.ndarray:
    a = np.arange(n * n, dtype=float).reshape(n, n) % 7
    return (a @ a.T + 20 * n * np.eye(n)).astype(dtype)


def assigned(x: da.Array, index: Any, value: Any) -> da.Array:
    x = x.copy()
    x[index] = value
    return x


def nested_pairs(x: da.Array) -> da.Array:
    return da.block([[x, x], [x, x]]).rechunk((5, 6))


#: Programs that make sense for every dtype.
MOVING: dict[str, Callable[[da.Array], Any]] = {
    "itself": lambda x: x,
    "row": lambda x: x[2],
    "rows": lambda x: x[1:6, ::2],
    "backwards": lambda x: x[::-1, 3:],
    "new axis": lambda x: x[:, None, 2],
    "item": lambda x: x[3, 4],
    "ellipsis": lambda x: x[..., 1],
    "nothing": lambda x: x[3:3],
    "list": lambda x: x[[1, 5, 2]],
    "twice": lambda x: x[:, [1, 1, 8]],
    "permuted": lambda x: x[:, np.random.RandomState(0).permutation(9)],
    "mask of numpy": lambda x: x[np.arange(7) % 3 == 0],
    "computed positions": lambda x: x[da.from_array(np.array([1, 2, 5]), chunks=2)],
    "points": lambda x: x.vindex[[1, 5, 6], [2, 3, 8]],
    "points in rows": lambda x: x.vindex[[[1, 5], [6, 0]], [[2, 3], [8, 2]]],
    "points of whole axes": lambda x: da.stack([x, x], axis=1).vindex[[6, 1, 5], :, [8, 2, 2]],
    "blocks": lambda x: x.blocks[1:, 0],
    "take": lambda x: da.take(x, [3, 1], axis=1),
    "transposed": lambda x: x.T,
    "three axes": lambda x: da.stack([x, x]).transpose((2, 0, 1)),
    "flipped": lambda x: da.flip(x, 0),
    "swapped": lambda x: da.swapaxes(x, 0, 1),
    "moved": lambda x: da.moveaxis(x, 0, 1),
    "rolled axis": lambda x: da.rollaxis(x, 1),
    "turned": lambda x: da.rot90(x),
    "expanded": lambda x: da.expand_dims(x, 1),
    "squeezed": lambda x: da.squeeze(x[:1]),
    "raised": lambda x: da.atleast_3d(x),
    "flat": lambda x: x.ravel(),
    "reshaped": lambda x: x.rechunk((7, 9)).reshape((3, 21)),
    "split axes": lambda x: x.rechunk((7, -1)).reshape((7, 3, 3)),
    "broadcast": lambda x: da.broadcast_to(x[0], (4, 9), chunks=(2, 4)),
    "broadcast more": lambda x: da.broadcast_to(x, (2, 7, 9)),
    "rechunked": lambda x: x.rechunk((4, 7)),
    "rechunked twice": lambda x: x.rechunk((7, 1)).rechunk((1, 9)),
    "one block": lambda x: x.rechunk(-1),
    "concatenated": lambda x: da.concatenate([x, x[:2]]),
    "side by side": lambda x: da.concatenate([x, x], axis=1).rechunk((7, 8)),
    "stacked": lambda x: da.stack([x, x], axis=1),
    "one on another": lambda x: da.vstack([x, x]),
    "next to another": lambda x: da.hstack([x, x]),
    "blocked": nested_pairs,
    "rolled": lambda x: da.roll(x, 3, axis=1),
    "rolled flat": lambda x: da.roll(x, 3),
    "repeated": lambda x: da.repeat(x, 2, axis=0),
    "tiled": lambda x: da.tile(x, (2, 1)),
    "inserted": lambda x: da.insert(x, 3, x[0], axis=0),
    "deleted": lambda x: da.delete(x, 3, axis=0),
    "edges": lambda x: da.pad(x, 2, mode="edge"),
    "reflected": lambda x: da.pad(x, 2, mode="reflect"),
    "wrapped": lambda x: da.pad(x, 2, mode="wrap"),
    "windows": lambda x: da.lib.stride_tricks.sliding_window_view(x, 3, axis=0),
    "copied": lambda x: x.copy(),
    "copied blocks": lambda x: x.map_blocks(np.copy),
    "set row": lambda x: assigned(x, 3, x[0]),
    "set by mask": lambda x: assigned(x, np.arange(7) % 2 == 0, x[1]),
    "set nothing": lambda x: assigned(x, slice(3, 3), x[0, 0]),
    "set list": lambda x: assigned(x, [1, 5], x[0]),
    "block by block": lambda x: da.reshape_blockwise(x, (x.size,)),
    "halo": lambda x: da.overlap.overlap(x, depth=1, boundary="reflect"),
    "around": lambda x: da.overlap.overlap(x, depth=1, boundary="periodic"),
    "no boundary": lambda x: da.map_overlap(np.copy, x, depth=1, boundary="none", dtype=x.dtype),
}

#: Programs over numbers.
COUNTING: dict[str, Callable[[da.Array], Any]] = {
    "ones": lambda x: da.ones_like(x),
    "zeros": lambda x: da.zeros(x.shape, chunks=x.chunks, dtype=x.dtype)[1:],
    "full": lambda x: da.full_like(x, 3) + da.full(x.shape, 2, chunks=x.chunks),
    "empty": lambda x: da.empty_like(x) * 0,
    "appended": lambda x: reduce(lambda a, _: da.append(a, da.zeros((1, 9), chunks=1), 0), range(4), x),
    "padded": lambda x: da.pad(x, 2, mode="constant"),
    "padded ramp": lambda x: da.pad(x, 2, mode="linear_ramp"),
    "constants": lambda x: (da.ones(x.shape, chunks=x.chunks) * 3 - 1).sum(axis=0),
    "constant borders": lambda x: da.pad(da.pad(x, 1), 1).rechunk((4, 4)).sum(axis=0),
    "constants of all kinds": lambda x: da.concatenate([da.zeros((3, 9), dtype=x.dtype), x]).rechunk(3).max(),
    "added": lambda x: x + 1,
    "added to it": lambda x: 1.5 - x,
    "a row": lambda x: x + x[0],
    "a column": lambda x: x * x[:, :1],
    "of numpy": lambda x: x + np.float32(2),
    "an array of numpy": lambda x: np.arange(9) + x,
    "a number that is an array": lambda x: x + x.sum(),
    "divided": lambda x: x / x.max(),
    "raised to": lambda x: x**2,
    "remainders": lambda x: x % 3,
    "quotients": lambda x: x // 3,
    "both": lambda x: da.divmod(x, 3)[0],
    "negated": lambda x: -x,
    "absolute": lambda x: abs(x),
    "compared": lambda x: (x > 3) & (x < 9),
    "inverted": lambda x: ~(x > 3),
    "shifted": lambda x: x << 2,
    "sine": lambda x: da.sin(x),
    "greater one": lambda x: da.maximum(x, 3),
    "not a number": lambda x: da.isnan(x),
    "clipped": lambda x: da.clip(x, 2, 9),
    "clipped below": lambda x: x.clip(min=5),
    "rounded": lambda x: x.round(1),
    "real": lambda x: da.real(x),
    "imaginary": lambda x: da.imag(x),
    "conjugated": lambda x: da.conj(x * 1j),
    "angle": lambda x: da.angle(x),
    "fraction": lambda x: da.modf(x)[1],
    "mantissa": lambda x: da.frexp(x)[0],
    "exponents": lambda x: da.ldexp(x, 2),
    "close": lambda x: da.isclose(x, x),
    "where": lambda x: da.where(x > 3, x, 0),
    "where constants": lambda x: da.where(x > 3, 1, 0.5),
    "no nan": lambda x: da.nan_to_num(x),
    "contained": lambda x: da.isin(x, [3, 4]),
    "digitized": lambda x: da.digitize(x, np.array([1, 5.0, 10])),
    "fixed": lambda x: da.fix(x),
    "sinc": lambda x: da.sinc(x),
    "as float32": lambda x: x.astype("f4"),
    "as int": lambda x: x.astype(np.int16) + 1,
    "as it is": lambda x: x.astype(x.dtype, copy=False),
    "dtype": lambda x: da.add(x, 1, dtype="f8"),
    "only some": lambda x: da.add(x, 1, where=x > 3, out=None),
    "outer": lambda x: da.outer(x[0], x[:, 0]),
    "triangles": lambda x: da.tril(x[:, :7].rechunk(4)) + da.triu(x[:, :7].rechunk(4), 1),
    "chain": lambda x: sum((x * i for i in range(1, 12)), x),
    "long chain": lambda x: reduce(operator.add, [x + i for i in range(30)]),
    "blocks by numpy": lambda x: x.map_blocks(np.square),
    "blocks added": lambda x: da.map_blocks(np.add, x, 1),
    "blocks by keyword": lambda x: x.map_blocks(np.clip, 1, 2),
    "blocks by partial": lambda x: x.map_blocks(partial(np.multiply, 2)),
    "sum": lambda x: x.sum(),
    "sum of columns": lambda x: x.sum(axis=0),
    "sum kept": lambda x: x.sum(axis=1, keepdims=True),
    "sum of both": lambda x: x.sum(axis=(0, 1), split_every=2),
    "sum as": lambda x: x.sum(dtype="f4"),
    "count": lambda x: (x > 3).sum(axis=0),
    "mean": lambda x: x.mean(),
    "mean of rows": lambda x: x.rechunk((2, 3)).mean(axis=1, split_every=2),
    "variance": lambda x: x.var(axis=1),
    "deviation": lambda x: x.std(),
    "deviations": lambda x: (x - x.mean(axis=0)) / x.std(axis=0),
    "moment": lambda x: x.rechunk((2, 3)).moment(3),
    "least": lambda x: x.min(),
    "most": lambda x: x.max(axis=0),
    "where least": lambda x: x.argmin(),
    "where most": lambda x: x.argmax(axis=0),
    "where, in steps": lambda x: x.rechunk((2, 3)).argmin(axis=1, split_every=2),
    "product": lambda x: x.prod(axis=0),
    "any": lambda x: (x > 3).any(),
    "all": lambda x: (x > 3).all(axis=0),
    "sum without nan": lambda x: da.nansum(x, axis=0),
    "mean without nan": lambda x: da.nanmean(x),
    "variance without nan": lambda x: da.nanvar(x, axis=0),
    "most without nan": lambda x: da.nanmax(x, axis=0),
    "where without nan": lambda x: da.nanargmin(da.where(x > 3, x, 3), axis=0),
    "cumulated": lambda x: x.cumsum(axis=0),
    "multiplied up": lambda x: x.cumprod(axis=1),
    "cumulated in a tree": lambda x: da.cumsum(x, axis=0, method="blelloch"),
    "cumulated without nan": lambda x: da.nancumsum(x, axis=0),
    "largest": lambda x: da.topk(x, 3, axis=1),
    "smallest": lambda x: da.topk(x, -3, axis=0),
    "where largest": lambda x: da.argtopk(x, 3, axis=1),
    "median": lambda x: da.median(x.rechunk((-1, 4)), axis=0),
    "differences": lambda x: da.diff(x, axis=0),
    "average": lambda x: da.average(x, weights=abs(x) + 1, axis=0),
    "dot": lambda x: x.dot(x.T),
    "dot of a vector": lambda x: x.dot(x[0]),
    "product of matrices": lambda x: x @ x.T,
    "products of matrices": lambda x: da.stack([x, x]) @ x.T,
    "contracted": lambda x: da.tensordot(x, x, axes=((1,), (1,))),
    "contracted twice": lambda x: da.tensordot(x, x, axes=((0, 1), (0, 1))),
    "not contracted": lambda x: da.tensordot(x, x[0], axes=0),
    "einsum": lambda x: da.einsum("ij,kj->ik", x, x),
    "einsum of one": lambda x: da.einsum("ij->j", x),
    "vdot": lambda x: da.vdot(x.ravel(), x.ravel()),
    "gram": lambda x: (x.T @ x) / 12,
    "covariance": lambda x: da.cov(x),
}

#: Programs that make their own data.
MAKING: dict[str, Callable[[], Any]] = {
    "unit matrix": lambda: da.eye(7, chunks=3),
    "off the diagonal": lambda: da.eye(7, chunks=3, k=2, dtype=int),
    "range": lambda: da.arange(3, 40, 2, chunks=7),
    "range of floats": lambda: da.arange(0, 1, 0.07, chunks=4),
    "range down": lambda: da.arange(9, -3, -1, chunks=4, dtype="f4"),
    "line": lambda: da.linspace(0, 1, 33, chunks=7),
    "triangle": lambda: da.tri(6, 7, k=1, chunks=4),
    "diagonal": lambda: da.diag(da.arange(12, chunks=4)),
    "diagonal of": lambda: da.diag(da.from_array(square(), chunks=4)),
    "indices": lambda: da.indices((5, 6), chunks=(2, 3)),
    "mesh": lambda: da.meshgrid(da.arange(5, chunks=2), da.arange(6, chunks=4))[0],
    "one broadcast": lambda: da.broadcast_to(da.ones(()), (5, 6), chunks=(2, 3)),
    "negative zeros": lambda: da.full((4, 6), -0.0, chunks=3).sum(axis=0) * 1,
    "nans": lambda: da.full((4, 6), np.nan, chunks=3).max(axis=0) + 1,
    "small ints": lambda: da.full((300,), 100, dtype="i1", chunks=300) + da.full((300,), 100, dtype="i1"),
    "sum of small ints": lambda: da.full((300,), -100, dtype="i1", chunks=300).sum(),
    "halves": lambda: da.full((4, 6), 0.1, chunks=3).sum(axis=0),
    "large floats": lambda: da.full((400, 6), 2.0**50, chunks=(400, 3)).sum(axis=0),
    "half floats": lambda: da.full((400, 6), 7, dtype="f2", chunks=(400, 3)).sum(axis=0),
    "truths": lambda: da.ones((4, 6), dtype=bool, chunks=3).all(axis=0) | da.zeros(6, dtype=bool, chunks=3),
    "texts": lambda: da.concatenate([da.full(3, "a", dtype="U1"), da.full(3, "abc", dtype="U3")]).rechunk(4),
    "dates": lambda: da.full(5, np.datetime64("2000-01-01"), chunks=2) + np.timedelta64(1, "D"),
    "numbers": lambda: da.random.default_rng(3).random((7, 9), chunks=(3, 4)),
    "normal": lambda: da.random.default_rng(3).normal(size=(7, 9), chunks=(3, 4)),
    "integers": lambda: da.random.default_rng(3).integers(0, 9, size=(7, 9), chunks=(3, 4)),
    "counts": lambda: da.random.default_rng(3).poisson(4, size=(7, 9), chunks=(3, 4)),
    "float32": lambda: da.random.default_rng(3).random((7, 9), chunks=(3, 4), dtype="f4"),
    "old numbers": lambda: da.random.RandomState(4).random_sample((7, 9), chunks=(3, 4)),
    "old integers": lambda: da.random.RandomState(4).randint(0, 9, size=(7, 9), chunks=(3, 4)),
    "default numbers": lambda: da.random.random((7, 9), chunks=(3, 4)),
    "drawn without size": lambda: da.random.default_rng(3).normal(matrix(), 1, size=(7, 9), chunks=(3, 4)),
    "lu": lambda: da.linalg.lu(da.from_array(square(), chunks=4)),
    "complex lu": lambda: da.linalg.lu(da.from_array(square(8, complex), chunks=4)),
    "qr": lambda: da.linalg.qr(matrix(shape=(20, 3), chunks=(5, 3)).map_blocks(np.nan_to_num)),
    "wide qr": lambda: da.linalg.sfqr(da.from_array(square()[:3], chunks=(3, 4))),
    "cholesky": lambda: da.linalg.cholesky(da.from_array(square(), chunks=4)),
    "complex cholesky": lambda: da.linalg.cholesky(da.from_array(square(8, complex), chunks=4)),
    "solved": lambda: da.linalg.solve(da.from_array(square(), chunks=4), da.arange(8.0, chunks=4)),
    "solved as positive": lambda: da.linalg.solve(*[da.from_array(square(), chunks=4)] * 2, assume_a="pos"),
    "solved in float32": lambda: da.linalg.solve(*[da.from_array(square(8, "f4"), chunks=4)] * 2),
    "solved triangle": lambda: da.linalg.solve_triangular(
        da.from_array(square(), chunks=4), da.arange(8.0, chunks=4)
    ),
    "inverse": lambda: da.linalg.inv(da.from_array(square(), chunks=4)),
    "svd": lambda: da.linalg.svd(da.from_array(square(8)[:, :3], chunks=(4, 3))),
    "compressed svd": lambda: da.linalg.svd_compressed(da.from_array(square(), chunks=4), 2, seed=3),
    "least squares": lambda: da.linalg.lstsq(
        da.from_array(square()[:, :3], chunks=(4, 3)), da.arange(8.0, chunks=4)
    ),
}
