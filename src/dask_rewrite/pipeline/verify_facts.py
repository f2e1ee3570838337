"""Whether what is known of a block before a pass is still true after it."""

from __future__ import annotations

from dataclasses import replace

from dask._task_spec import GraphNode, Task

from dask_rewrite.analysis.facts import Fact, Facts
from dask_rewrite.analysis.knowledge.loading import LOADING_IDS
from dask_rewrite.graph.graph import Graph
from dask_rewrite.graph.verify import VerificationError, verify


def verify_thoroughly(graph: Graph, before: Graph | None = None) -> None:
    """All checks that there are: of the graph itself, and against the one that a pass was given."""
    verify(graph, external=graph.external, thorough=True)
    if before is not None:
        check_facts(before, graph)


def check_facts(before: Graph, after: Graph) -> None:
    """Raise :class:`~dask_rewrite.graph.verify.VerificationError` if a task makes another block than it did.

    Looked at are the tasks that stand under the same key in both graphs and are not the same object. Where
    both blocks are known, their shapes and dtypes must be equal, and the constants that fill them must have
    the same bits. A pass may well lose what was known, or make something known.

    Parameters
    ----------
    before, after : Graph
        What a pass was given and what it returned.

    Examples
    --------
    >>> import numpy as np
    >>> from dask._task_spec import Task
    >>> before = Graph({"x": Task("x", np.empty, 3, "f4")}, ("x",))
    >>> check_facts(before, Graph({"x": Task("x", np.empty, (3,), "f4")}, ("x",)))
    >>> check_facts(before, Graph({"x": Task("x", np.empty, 3, "f8")}, ("x",)))
    Traceback (most recent call last):
        ...
    dask_rewrite.graph.verify.VerificationError: task 'x' made an array (3,) of float32, now float64
    """
    changed = [
        key
        for key, node in after.nodes.items()
        if (old := before.nodes.get(key)) is not None and old is not node
    ]
    if not changed:
        return
    was, now = Facts(before.nodes.get), Facts(after.nodes.get)
    for key in changed:
        old_fact = was.of(key)
        new_fact = None if old_fact is None else now.of(key)
        if old_fact is None or new_fact is None:
            continue
        if old_fact.scalar and _reads(after.nodes[key]):
            old_fact = replace(old_fact, scalar=False)  # dask's own fusion of slices and reads does so too
        if differ := _difference(old_fact, new_fact):
            raise VerificationError(f"task {key!r} made {_shown(old_fact)}, now {differ}", key)


def _reads(node: GraphNode) -> bool:
    """Whether a task is a read, which makes arrays of scalars."""
    return type(node) is Task and id(node.func) in LOADING_IDS


def _difference(old: Fact, new: Fact) -> str:
    if old.scalar != new.scalar:
        return "a scalar" if new.scalar else "an array"
    if old.shape != new.shape:
        return str(new.shape)
    if old.dtype != new.dtype:
        return str(new.dtype)
    if old.fill is not None and new.fill is not None and old.fill.tobytes() != new.fill.tobytes():
        return str(new.fill) if old.size else ""
    return ""


def _shown(fact: Fact) -> str:
    kind = "a scalar" if fact.scalar else f"an array {fact.shape}"
    return f"{kind} of {fact.dtype}" + ("" if fact.fill is None else f" filled with {fact.fill}")
