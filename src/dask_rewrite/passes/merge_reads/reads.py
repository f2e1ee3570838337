"""The reads of one file in a task, as they stand in it or in templates that it calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dask._task_spec import Task, TaskRef
from dask.typing import Key

from dask_rewrite.analysis.knowledge.loading import LOADING_IDS, Source
from dask_rewrite.graph.by_identity import ByIdentity
from dask_rewrite.graph.nodes import literal, needs_of
from dask_rewrite.graph.program import operation
from dask_rewrite.graph.substitute import replaced
from dask_rewrite.graph.templates import calls_frame, template_of
from dask_rewrite.passes.align_reads.reads import options_of
from dask_rewrite.passes.demand.boxes import Box, index_of
from dask_rewrite.passes.demand.windows import box_of


class Template(NamedTuple):
    """A template that reads once, and nothing else of what it reads from."""

    getter: Task
    file: str  # the name of the file in it
    place: str | None  # the name of the index, if that is given as well
    body: Task  # the same without the read: the name of the file stands for what was read


class Read(NamedTuple):
    """A read of a box of a file in a task."""

    node: Task  # what stands in the task: the getter, or the call of a template
    getter: Task
    file: TaskRef
    box: Box
    template: Template | None
    inputs: Mapping[Any, Any]  # of the template

    def over(self, value: Any) -> Any:
        """What stands in the task instead, where the value was read already."""
        if self.template is None:
            return value
        inputs = {name: arg for name, arg in self.inputs.items() if name != self.template.place}
        call = self.template.body.__call__
        return operation(call, (operation(dict, (), {**inputs, self.template.file: value}),))


class Reads:
    """Finds the reads of a file.

    Parameters
    ----------
    file : Key
        The key under which it stands in the graph.
    source : Source
        What is known of it.
    """

    def __init__(self, file: Key, source: Source) -> None:
        self.itemsize = source.dtype.itemsize
        self._file, self._shape = file, source.shape
        self._templates = ByIdentity[Template | None]()

    def of(self, task: Any) -> list[Read]:
        """The reads in a task; none where it needs anything else, or reads in another way."""
        found: list[Read] = []
        stack = [task] if task._dependencies == {self._file} else []
        while stack:
            here = stack.pop()
            if type(here) is not Task:
                if getattr(here, "_dependencies", None) or type(here) is TaskRef:
                    return []
            elif calls_frame(here.func) or id(here.func) in LOADING_IDS:
                if self._file in here._dependencies:
                    read = self._read(here)
                    if read is None:
                        return []
                    found.append(read)
            else:
                stack += [*here.args, *here.kwargs.values()]
        return found if len({_form(read.getter) for read in found}) == 1 else []

    def _read(self, node: Task) -> Read | None:
        """A getter, or the call of a template with one in it."""
        template, inputs, getter = None, dict[Any, Any](), node
        if calls_frame(node.func):
            called = template_of(node)
            if called is None or (template := self._templates.of(called[0], read_in)) is None:
                return None
            inputs, getter = called[1], template.getter
            if [name for name, arg in inputs.items() if self._file in needs_of([arg])] != [template.file]:
                return None
        if len(getter.args) < 2 or TaskRef in map(type, options_of(getter)):
            return None
        file, index = (inputs.get(arg.key, arg) if type(arg) is TaskRef else arg for arg in getter.args[:2])
        box = box_of(literal(index), self._shape)
        return (
            None
            if box is None or type(file) is not TaskRef
            else Read(node, getter, file, box, template, inputs)
        )


def read_in(body: Task) -> Template | None:
    """The one read of a template."""
    getters, used, stack = [], list[Key](), list[Any]([body])
    while stack:
        here = stack.pop()
        if type(here) is TaskRef:
            used.append(here.key)
        elif type(here) is Task:
            if id(here.func) in LOADING_IDS:
                getters.append(here)
            stack += [*here.args, *here.kwargs.values()]
        elif getattr(here, "_dependencies", None):
            return None
    if len(getters) != 1 or len(getters[0].args) < 2 or getters[0] is body:
        return None
    (getter,) = getters
    file, index = getter.args[:2]
    names = [each.key for each in (file, index) if type(each) is TaskRef]
    if type(file) is not TaskRef or any(used.count(name) > 1 for name in names):
        return None
    if TaskRef in map(type, options_of(getter)):  # may differ from call to call
        return None
    given = str(index.key) if type(index) is TaskRef else None
    return Template(getter, str(file.key), given, replaced(body, {id(getter): file}))


def read_of(getter: Task, file: TaskRef, box: Box) -> Task:
    """A read of a box, as a getter reads."""
    return operation(getter.func, (file, index_of(box), *getter.args[2:]), getter.kwargs)


def _form(getter: Task) -> Any:
    """What tells getters apart besides the file and the index."""
    return (id(getter.func), *getter.kwargs, *[id(literal(option)) for option in options_of(getter)])
