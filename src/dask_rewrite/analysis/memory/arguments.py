"""Results whose size an argument tells: dask declares the size of the blocks that are counted for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from dask._task_spec import GraphNode, Task
from dask.array.dispatch import percentile_lookup
from dask.typing import Key

from dask_rewrite.analysis.evaluate import Evaluator
from dask_rewrite.analysis.facts import Fact, Facts
from dask_rewrite.analysis.knowledge.known import through_partials
from dask_rewrite.graph.gates import ungated
from dask_rewrite.graph.nodes import literal


def sized_by_argument(node: Any) -> Any:
    """What a task probably gives that counts in bins, or finds percentiles.

    Returns
    -------
    Fact, tuple, None or False
        None if values alone say how large it is, False if it is another task.

    Examples
    --------
    >>> from functools import partial
    >>> sized_by_argument(Task("x", partial(np.bincount, minlength=8), np.arange(3))).shape
    (8,)
    >>> sized_by_argument(Task("x", np.sort, np.arange(3)))
    False
    """
    if type(node) is not Task:
        return False
    func, args, kwargs = through_partials(node.func, node.args, node.kwargs)
    if func is np.bincount:
        bins, dtype = literal(kwargs.get("minlength", 0)), "i8" if kwargs.get("weights") is None else "f8"
        return Fact((int(bins),), np.dtype(dtype)) if isinstance(bins, (int, np.integer)) and bins else None
    if func is percentile_lookup and len(args) > 1:  # with the number of elements
        return Fact((np.size(literal(args[1])),), np.dtype("f8")), 0
    return False


def guessed(lookup: Callable[[Key], GraphNode | None], estimate: Callable[[Key], Any]) -> Facts:
    """Facts of a graph; of blocks of which nothing is known what their arguments tell, or the estimate."""

    def said(key: Key) -> Any:
        found = sized_by_argument(lookup(key))
        return estimate(key) if found is False else found

    return Facts(lambda key: ungated(lookup(key)), said, evaluator=Evaluator(through_gates=True))
