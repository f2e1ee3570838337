"""How tasks are written down for another process: as columns, not one by one.

Tasks of one structure (function, nesting, which arguments are references, which are literals) are pickled as
one template and the columns of what differs in them. Builtins and dask's own classes make the tasks of it
again while it is unpickled, in the same order: nothing of this package is needed there.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice
from operator import itemgetter
from typing import Any

from dask.typing import Key

from dask_rewrite.wire_columns import FEWEST, NODES, Columns, merged, parted, signature
from dask_rewrite.wire_numbers import Call

#: Ends with an error, not with tasks missing, should a column ever be too short.
_paired = partial(zip, strict=True)
_second = itemgetter(1)


class Packed:
    """Pickles as the columns of a mapping of tasks and unpickles as a plain dict.

    Parameters
    ----------
    tasks : mapping of Key to object
        Tasks under their keys. What is no task, or like no other, is pickled as it is.

    Examples
    --------
    >>> import pickle
    >>> from dask._task_spec import Task, TaskRef
    >>> tasks = {("y", i): Task(("y", i), abs, TaskRef(("x", i))) for i in range(1000)}
    >>> pickle.loads(pickle.dumps(Packed(tasks))) == tasks
    True
    >>> len(pickle.dumps(Packed(tasks))) < len(pickle.dumps(tasks)) / 50
    True
    """

    __slots__ = ("tasks",)

    def __init__(self, tasks: Mapping[Key, Any]) -> None:
        self.tasks = tasks

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        try:
            with _collector_paused():
                return dict, (_pairs(self.tasks),)
        except Exception:  # whatever the tasks are, they have to arrive
            return dict, (dict(self.tasks),)


def _pairs(tasks: Mapping[Key, Any]) -> Any:
    """Keys and tasks, as what unpickles as an iterator over them."""
    keys, nodes = list(tasks), list(tasks.values())
    columns = Columns(keys)
    if len(keys) < FEWEST:
        return list(zip(keys, columns.rest(nodes)))
    signatures = [
        signature(node) if type(node) in NODES and node.key == key else None for key, node in zip(keys, nodes)
    ]
    codes, parts, rest = parted(signatures)
    names = [columns.column([keys[row] for row in part]) for part in parts]
    # Every part takes its keys from here: its next task is made when the next key is its own.
    turn = Call(iter, (columns.table,))
    made = [columns.nodes([nodes[row] for row in part], turn) for part in parts]
    if rest:
        names.append([keys[row] for row in rest])
        made.append(Call(map, (_second, Call(zip, (turn, columns.rest([nodes[row] for row in rest]))))))
    here = Call(islice, (merged(names, codes), len(keys)))
    elsewhere = list(islice(columns.positions, len(keys), None))
    if elsewhere:
        here = Call(chain, (here, Call(islice, (columns.column(elsewhere), len(elsewhere)))))
    columns.table.args = (here,)
    body = Call(islice, (merged(made, codes), len(keys)))
    return Call(_paired, (Call(islice, (columns.table, len(keys))), body))


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Collecting garbage while columns are built costs as much as building them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
