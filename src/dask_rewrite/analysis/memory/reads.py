"""What a graph reads of files that tell their sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from dask._task_spec import Task, TaskRef, _execute_subgraph
from dask.typing import Key

from dask_rewrite.analysis.knowledge.loading import LOADING_IDS
from dask_rewrite.analysis.knowledge.stored import decoded, taken
from dask_rewrite.analysis.memory.calls import calls_of, reaches_out
from dask_rewrite.graph.by_identity import ByIdentity
from dask_rewrite.graph.nodes import MARKER, literal


class Reads(NamedTuple):
    """Bytes that tasks read of files.

    Parameters
    ----------
    read : int
        What they ask for.
    decoded : int
        Of all stored chunks that hold a part of that, each as often as it is decoded; what is asked for of
        files that do not tell how they are stored.
    """

    read: int
    decoded: int


def reads_in(nodes: Mapping[Key, Any]) -> Reads | None:
    """What all tasks of a graph read together; None if none reads a file that tells its size.

    Examples
    --------
    >>> import dask.array as da
    >>> import zarr
    >>> x = da.from_array(zarr.zeros((6, 4), chunks=(3, 2), dtype="i4"), chunks=(2, 4))
    >>> reads_in(x.dask)
    Reads(read=96, decoded=192)
    """
    total = Reads(0, 0)
    found = False
    reaching = ByIdentity[bool]()
    for node in nodes.values():
        if type(node) is not Task or not reaches_out(node, reaching):
            continue
        fused = node.args[0] if node.func is _execute_subgraph else {}  # by dask: files may stand inside
        for call in calls_of(node):
            if id(call.func) not in LOADING_IDS or len(call.args) < 2:
                continue
            source, index = call.args[0], literal(call.args[1])
            if type(source) is TaskRef:
                source = fused.get(source.key, nodes.get(source.key))
            if type(source) is Task and source.func is MARKER:
                (source,) = source.args
            source = literal(source)
            nbytes = None if isinstance(source, np.ndarray) else taken(source, index)
            if nbytes is not None:
                total = Reads(total.read + nbytes, total.decoded + (decoded(source, index) or nbytes))
                found = True
    return total if found else None
