"""The reads of one file in a task, as they stand in it or in templates that it calls."""

from __future__ import annotations

from typing import Any, NamedTuple

from dask._task_spec import Task, TaskRef
from dask.typing import Key

from dask_rewrite.analysis.knowledge.loading import LOADING_IDS, Source
from dask_rewrite.graph.nodes import literal
from dask_rewrite.graph.program import operation
from dask_rewrite.graph.substitute import replaced
from dask_rewrite.graph.templates import calls_frame, template_of
from dask_rewrite.passes.demand.boxes import Box
from dask_rewrite.passes.demand.windows import taken


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
    box: Box
    template: Template | None

    @property
    def file(self) -> TaskRef:
        """The reference to the file."""
        found: TaskRef = self.getter.args[0] if self.template is None else self._inputs[self.template.file]
        return found

    def over(self, value: Any) -> Any:
        """What stands in the task instead, where the value was read already."""
        if self.template is None:
            return value
        inputs = {name: arg for name, arg in self._inputs.items() if name != self.template.place}
        call = self.template.body.__call__
        return operation(call, (operation(dict, (), {**inputs, self.template.file: value}),))

    @property
    def _inputs(self) -> dict[str, Any]:
        found = template_of(self.node)
        assert found is not None
        return found[1]


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
        self._templates: dict[int, Template | None] = {}

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
        return found if len({_options(read.getter) for read in found}) == 1 else []

    def _read(self, node: Task) -> Read | None:
        """A getter, or the call of a template with one in it."""
        template = None
        getter, index = node, node.args[1] if len(node.args) > 1 else None
        if calls_frame(node.func):
            called = template_of(node)
            if called is None or (template := self._template(called[0])) is None:
                return None
            inputs, getter = called[1], template.getter
            if [name for name, arg in inputs.items() if self._file in _needs(arg)] != [template.file]:
                return None
            index = getter.args[1] if template.place is None else inputs[template.place]
            source = inputs[template.file]
        else:
            source = getter.args[0]
        box = box_of(index, self._shape)
        if box is None or type(source) is not TaskRef or TaskRef in map(type, _others(getter)):
            return None
        return Read(node, getter, box, template)

    def _template(self, body: Task) -> Template | None:
        if id(body) not in self._templates:
            self._templates[id(body)] = read_in(body)
        return self._templates[id(body)]


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
    given = str(index.key) if type(index) is TaskRef else None
    return Template(getter, str(file.key), given, replaced(body, {id(getter): file}))


def _needs(arg: Any) -> frozenset[Key]:
    return frozenset([arg.key]) if type(arg) is TaskRef else getattr(arg, "_dependencies", frozenset())


def box_of(index: Any, shape: tuple[int, ...]) -> Box | None:
    """What a getter reads, if that is a box of the file."""
    index = literal(index)
    plain = type(index) is tuple and len(index) == len(shape)
    if not plain or not all(type(item) is slice and item.step in (None, 1) for item in index):
        return None
    return taken(index, shape)


def _options(getter: Task) -> Any:
    """What tells getters apart besides the file and the index."""
    return (id(getter.func), *getter.kwargs, *[id(literal(other)) for other in _others(getter)])


def _others(getter: Task) -> list[Any]:
    return [*getter.args[2:], *getter.kwargs.values()]
