"""Which step of which task an exception comes from: ``explain_error(exc)``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from dask.typing import Key
from dask.utils import key_split

from dask_rewrite.graph.labels import functions_of
from dask_rewrite.graph.names import layer_name, unmarked
from dask_rewrite.hook.notes import WITHOUT, Origin, origin
from dask_rewrite.hook.recorder import Recorder
from dask_rewrite.tools.expressions import expression_of
from dask_rewrite.tools.preflight import layers_of


@dataclass(frozen=True, slots=True, repr=False)
class ErrorReport:
    """Where an exception comes from. Shows itself as text.

    Parameters
    ----------
    origin : Origin
        The step that raised, its task, and all steps of that, as far as they are known.
    layers : tuple of str
        Layers of the collections that call what raised, as the program built them.
    elsewhere : bool
        Collections were given, and none of them calls it.
    """

    origin: Origin
    layers: tuple[str, ...]
    elsewhere: bool = False

    def __repr__(self) -> str:
        lines = [str(self.origin), *(f"in the layer {name!r}" for name in self.layers)]
        if self.elsewhere:
            lines.append(
                "in none of the layers of the collections that were given: give those that were computed"
            )
        return "\n".join([*lines, WITHOUT])


def explain_error(error: BaseException, *collections: Any) -> ErrorReport:
    """Name the step, the task and the layer that an exception of a computation comes from.

    Schedulers of one process add the same as a note to the exception. A cluster sends exceptions without the
    values that stood in its frames: there the step is told by the name of its function, and the layer if the
    collections are given that were computed; the task only for a ``KilledWorker``.

    Parameters
    ----------
    error : BaseException
        What computing raised.
    *collections : dask collections
        What was computed.

    Returns
    -------
    ErrorReport

    Examples
    --------
    >>> import dask.array as da
    >>> import dask_rewrite
    >>> def fails(block):
    ...     raise ValueError("bad block")
    >>> x = da.ones(4, chunks=2).map_blocks(fails, dtype=float)
    >>> try:
    ...     x.sum().compute()
    ... except ValueError as error:
    ...     report = dask_rewrite.explain_error(error, x)
    >>> report.origin.step, report.layers == (x.name,)
    ('fails', True)
    """
    if not isinstance(error, BaseException):
        raise TypeError(f"explain_error(error): expected an exception, got {error!r}")
    found = origin(error)
    if not collections:
        return ErrorReport(found, ())
    node = _sent(found, collections)
    if node is not None:
        found = replace(found, steps=tuple(functions_of(node)))
    wanted = {found.step} if found.step else set(found.steps)
    layers = [
        name
        for name, tasks in layers_of(collections)
        if any(not wanted.isdisjoint(functions_of(task)) for task in tasks.values())
    ]
    return ErrorReport(found, tuple(layers), elsewhere=bool(wanted) and not layers)


def _sent(found: Origin, collections: tuple[Any, ...]) -> Any:
    """The task as it was sent to the scheduler, or another one that has the same step."""
    nodes = dict(expression_of(collections, Recorder(), "explain_error").__dask_graph__())
    if found.key is not None:
        if found.key in nodes:
            return nodes[found.key]
        # a cluster that has lost a worker gets other names, and what gathers results is named anew each time
        for name in (_unmarked, key_split):
            wanted = name(found.key)
            alike = [node for key, node in nodes.items() if name(key) == wanted]
            if len(alike) == 1:
                return alike[0]
        return None
    return next((node for node in nodes.values() if found.step in functions_of(node)), None)


def _unmarked(key: Key) -> Any:
    name = unmarked(str(layer_name(key)))
    return (name, *key[1:]) if type(key) is tuple else name
