"""Notes on exceptions: which step of a fused task raised, what cannot be sent, and how to do without.

A note changes neither type nor message of an exception, and it is added once. Dask's schedulers of one
process tell a `Callback` that a computation failed. A cluster's tell nobody here: there the exception
goes straight to the user, who can ask `explain_error` about it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import dask.config
import toolz
from dask import _task_spec
from dask._task_spec import DataNode, Task
from dask.callbacks import Callback
from dask.typing import Key

from dask_rewrite.config import OPTIMIZER, OPTIMIZER_KEYS, Options
from dask_rewrite.graph.names import layer_name
from dask_rewrite.graph.templates import is_template

#: How to compute without this package, so that bug reports go to the right place.
WITHOUT = 'to compute without dask_rewrite: dask.config.set({"rewrite.enabled": False})'
_START = "dask_rewrite: "
#: Steps that are listed; there may be thousands.
_SHOWN = 8
#: Tasks of a graph, and bytes of each, that are tried again when it could not be pickled twice.
_TRIED = 200
_ENOUGH = 1 << 20
_INSTALLED = os.path.dirname(os.path.dirname(dask.__file__))
#: Where frames of dask's machinery come from, and those of calling a task.
_MACHINERY = tuple(os.path.join(_INSTALLED, name, "") for name in ("dask", "distributed"))
_CALLING = (_task_spec.__file__, os.path.join(os.path.dirname(toolz.__file__), ""))


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an exception comes from, as far as it tells.

    Parameters
    ----------
    step : str
        The function that raised; empty if it cannot be told.
    key : Key or None
        The task that called it.
    steps : tuple of str
        All functions of that task, in their order.
    """

    step: str = ""
    key: Key | None = None
    steps: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = f"raised by {self.step!r}" if self.step else "raised"
        if self.key is not None:
            text += f" in the task {self.key!r}"
        if len(self.steps) > 1:
            more = ["..."] if len(self.steps) > _SHOWN else []
            text += f", which is fused of {' -> '.join([*self.steps[:_SHOWN], *more])}"
        return text


def origin(error: BaseException) -> Origin:
    """Read where an exception comes from off its traceback.

    Where that has the frames of dask, task and step are known; else the step is the function next to dask.
    """
    from dask_rewrite.graph.held import unheld
    from dask_rewrite.graph.labels import functions_of, step_name
    from dask_rewrite.graph.templates import opened

    tasks: list[Task] = []
    given: Any = ()
    step = below = ""
    trace = error.__traceback__
    while trace is not None:
        frame, trace = trace.tb_frame, trace.tb_next
        file = frame.f_code.co_filename
        if file.startswith(_CALLING):
            found = frame.f_locals.get("self")
            if isinstance(found, Task):
                given = given if tasks else frame.f_locals.get("values", ())
                tasks.append(found)
                step = step_name(found) or step
        elif tasks:
            break  # the user's own function; what it calls is not a step
        below = "" if file.startswith((*_MACHINERY, *_CALLING)) else below or frame.f_code.co_name
    if tasks:
        # what is hoisted is not to be seen in the task itself, but in a value or the task that it calls
        whole = opened(unheld(tasks[0], lambda key: DataNode(key, given[key]) if key in given else None))
        steps = next(filter(None, map(functions_of, filter(None, [whole, *tasks]))), [])
        return Origin(step, tasks[0].key, tuple(steps))
    key = getattr(error, "task", None)  # of a KilledWorker
    return Origin(below, key if isinstance(key, (str, tuple)) else None)


def annotate(error: BaseException, text: str) -> None:
    """Add a note, unless there is one of ours already, or the exception does not take any."""
    with suppress(Exception):
        if not any(str(note).startswith(_START) for note in getattr(error, "__notes__", ())):
            error.add_note(f"{_START}{text}; {WITHOUT}")


def _finish(dsk: Any, state: Any, failed: bool) -> None:
    error = sys.exception() if failed else None
    if isinstance(error, Exception):
        with suppress(Exception):  # a note is never the reason for another exception
            found = origin(error)
            if found.key is None:  # it comes from another process, without the values of its frames
                found = _among(found.step, dsk, state["running"])
            if len(found.steps) > 1 and (_is_ours(dsk.get(found.key)) or _is_on()):
                annotate(error, str(found))


def _is_ours(task: Any) -> bool:
    """Whether dask itself does not make tasks like this one: a template that is called, or a program."""
    func = getattr(task, "func", None)
    return func is toolz.pipe or is_template(func)


def _is_on() -> bool:
    found = [getattr(dask.config.get(key, None), "_name", None) for key in OPTIMIZER_KEYS]
    return Options.current().enabled and OPTIMIZER in found


def _among(step: str, dsk: Mapping[Key, Any], running: Iterable[Key]) -> Origin:
    """The first of these tasks that has this step."""
    from dask_rewrite.graph.labels import functions_of

    for key in running:
        steps = tuple(functions_of(dsk[key]))
        if step in steps:
            return Origin(step, key, steps)
    return Origin(step)


_CALLBACK = Callback(finish=_finish)


def watch() -> None:
    """Have notes added to exceptions from inside of fused tasks, by schedulers of this process.

    The callback stays until the optimizer is switched off. Taking it away after each computation would change
    a set that schedulers in other threads may be going through.
    """
    _CALLBACK.register()


def unwatch() -> None:
    """Take the callback away again."""
    with suppress(KeyError):
        _CALLBACK.unregister()


def complain(tasks: Mapping[Key, Any]) -> None:
    """Raise what pickling these tasks raises, with a note on what is to blame, if that is soon found.

    Programs with functions that are pickled by value come here too: distributed finds out at its third try.
    So one task of each layer and function is looked at, and no more than a megabyte of each.
    """
    from dask_rewrite.graph.culprit import culprit
    from dask_rewrite.graph.pickling import pickled_up_to

    alike: dict[Any, Key] = {}
    for key, task in tasks.items():
        alike.setdefault((layer_name(key), id(getattr(task, "func", None))), key)
    for key in islice(alike.values(), _TRIED):
        try:
            pickled_up_to(tasks[key], _ENOUGH)
        except Exception as error:
            if (found := culprit(tasks[key])) is not None:
                where = " -> ".join(found.path[-3:]) or "the task itself"
                annotate(error, f"the task {key!r} cannot be sent: {where} is a {found.kind}")
            raise
