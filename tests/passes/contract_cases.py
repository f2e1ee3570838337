"""Products summed over a long axis, and how to look at what becomes of them."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.callbacks import Callback
from dask.graph_manipulation import chunks
from dask.highlevelgraph import HighLevelGraph

from dask_rewrite.config import Options
from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.verify import is_acyclic, verify
from dask_rewrite.passes.context import Context
from dask_rewrite.passes.contract import Contract
from dask_rewrite.pipeline.run import rewrite_tasks
from dask_rewrite.remarks import Remarks
from helpers import keys_of

BEFORE = ["cull", "fuse-blockwise", "lower", "fuse-slices"]


def blocks(rows: int = 4, columns: int = 24, side: int = 4, dtype: Any = "f8", last: int = 0) -> da.Array:
    """Blocks that are computed, of values that all differ; the last of each row may be smaller."""
    shape = (rows * side, columns * side - last)
    values = np.arange(shape[0] * shape[1]).reshape(shape) % 251
    return da.from_array(values.astype(dtype), chunks=side) + np.ones((), dtype)


def lowered(*collections: Any) -> Graph:
    """The graph as the pass gets it."""
    graph = HighLevelGraph.merge(*[collection.__dask_graph__() for collection in collections])
    with dask.config.set({"rewrite.passes": BEFORE}):
        found = rewrite_tasks(graph, [key for c in collections for key in keys_of(c)])
    assert found is not None
    return found


def run(graph: Graph, **options: Any) -> tuple[Graph, Remarks]:
    remarks = Remarks()
    after = Contract(**{"min_bytes": 1, **options}).run(graph, Context(remarks, Options.current()))
    verify(after, thorough=True)
    assert is_acyclic(after.nodes)
    assert_close(dask.get(after.nodes, list(graph.outputs)), dask.get(graph.nodes, list(graph.outputs)))
    return after, remarks


def assert_close(actual: Any, expected: Any) -> None:
    for one, other in zip(actual, expected, strict=True):
        assert type(one) is type(other)
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-5 if one.dtype.itemsize == 4 else 1e-12)


def reasons(remarks: Remarks) -> str:
    return "; ".join(remark.reason for remark in remarks if remark.kind == "missed")


def gates_of(graph: Graph) -> list[Any]:
    return [key for key, node in graph.nodes.items() if getattr(node, "func", None) is chunks.checkpoint]


class Held(Callback):
    """The most bytes of distinct buffers in a local scheduler's hands at one time."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0

    def _posttask(self, key: Any, result: Any, dsk: Any, state: Any, worker: Any) -> None:
        owners = {}
        for value in list(state["cache"].values()):
            if isinstance(value, np.ndarray):
                while isinstance(value.base, np.ndarray):
                    value = value.base
                owners[id(value)] = value.nbytes
        self.peak = max(self.peak, sum(owners.values()))


PRODUCTS = {
    "dot": lambda x: x.dot(x.T),
    "matmul": lambda x: x @ x.T,
    "tensordot": lambda x: da.tensordot(x, x, axes=((1,), (1,))),
    "einsum": lambda x: da.einsum("ik,jk->ij", x, x),
    "cov": lambda x: da.cov(x),
    "centred": lambda x: (x - 3).dot((x - 3).T),
    "cast": lambda x: x.astype("c16").dot(x.astype("c16").T),
    "scaled": lambda x: (x @ x.T) / 7,
    "total": lambda x: (x @ x.T).sum(),
    "two axes": lambda x: (lambda y: da.tensordot(y, y, axes=((1, 2), (1, 2))))(
        x.reshape(x.shape[0], x.shape[1] // 2, 2)
    ),
    "three dimensions": lambda x: (lambda y: y @ y.transpose(0, 2, 1))(da.stack([x, x + 1])),
    "elementwise": lambda x: (x[:, None, :] * x[None, :, :]).sum(axis=2),
    "vector": lambda x: x @ da.arange(x.shape[1], chunks=4, dtype=float),
    "kept axis": lambda x: (x[:, None, :] * x[None, :, :]).sum(axis=2, keepdims=True),
    "columns": lambda x: da.einsum("ki,kj->ij", x.T, x.T),
    "normal equations": lambda x: da.linalg.solve(x @ x.T + 100 * da.eye(x.shape[0], chunks=4), x[:, 0]),
}


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every read of more than one element of an HDF5 dataset, from now on."""
    import h5py

    reads: list[Any] = []
    plain = h5py.Dataset.__getitem__

    def counting(self: Any, index: Any, *args: Any, **kwargs: Any) -> Any:
        found = plain(self, index, *args, **kwargs)
        if np.size(found) > 1:
            reads.append(index)
        return found

    monkeypatch.setattr(h5py.Dataset, "__getitem__", counting)
    return reads
