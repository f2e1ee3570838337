"""The reads of one file in a graph, and the tasks that only put them together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MethodType
from typing import Any, TypeGuard

from dask._task_spec import GraphNode, Task, TaskRef
from dask.typing import Key
from toolz import pipe

from dask_rewrite.analysis.facts import Facts, nowhere
from dask_rewrite.analysis.knowledge.loading import LOADING_IDS
from dask_rewrite.graph.nodes import NO_KWARGS, literal
from dask_rewrite.graph.program import operation
from dask_rewrite.graph.templates import Frame, frame_of, template_of
from dask_rewrite.passes.align_reads.storage import touched
from dask_rewrite.passes.demand.boxes import Box, lengths, size
from dask_rewrite.passes.demand.windows import box_of
from dask_rewrite.passes.movement.mosaic import composed, cut, whole
from dask_rewrite.passes.movement.moves import GETITEMS, JOINS
from dask_rewrite.passes.movement.read import Reader
from dask_rewrite.passes.site import Site
from dask_rewrite.passes.steps import Opaque, steps_of

#: Functions that may make a box of a file of others; what is transposed or padded is none.
_BOXES = GETITEMS | JOINS


@dataclass(slots=True)
class File:
    """A file of a graph and who reads from it.

    Parameters
    ----------
    key : Key
        Under which it stands in the graph.
    source : object
        The file.
    chunks : tuple of int
        The shape of what it decodes at once.
    """

    key: Key
    source: Any
    chunks: tuple[int, ...]
    boxes: dict[Key, Box] = field(default_factory=dict)  # of tasks that are just a read, or made of such
    reads: dict[Key, Box] = field(default_factory=dict)  # of tasks that are just a read
    inside: dict[Key, Box] = field(default_factory=dict)  # of tasks that read among other things
    indexes: dict[Key, Any] = field(default_factory=dict)  # of all of these, as they stand in the tasks
    example: Task | None = None  # one of the getters: they differ in their index only
    programs: dict[Any, str] = field(default_factory=dict)  # what these know the index of their read by

    def decoded(self, boxes: Iterable[Box]) -> int:
        """How many chunks are decoded where each box is read by itself."""
        return sum([touched(box, self.chunks) for box in boxes])

    def largest(self, boxes: Iterable[Box]) -> int:
        """Bytes of the largest box."""
        nbytes: int = max(map(size, boxes)) * self.source.dtype.itemsize
        return nbytes

    def learn(self, key: Key, node: GraphNode) -> bool:
        """Take in a task that uses the file; False if it is used in another way than the others."""
        frame = frame_of(node) if isinstance(node, Task) and node.func is pipe else None
        alike = None if frame is None else self._form(frame)
        if frame is not None and alike in self.programs:
            call, index = None, frame.inputs[self.programs[alike]]
        else:
            calls = list(calls_on(node, self.key))
            if len(calls) != 1:
                return False
            (call, index) = calls[0]
        box = box_of(index, self.source.shape)
        if box is None or (call is not None and not self._is_alike(call)):
            return False
        if frame is not None and call is not None:
            given = [name for name, arg in frame.inputs.items() if arg is index]
            if len(given) == 1 and not any(
                arg is one for arg in options_of(call) for one in frame.inputs.values()
            ):
                self.programs[alike] = given[0]
        self.indexes[key] = index
        if call is node:
            self.reads[key] = self.boxes[key] = box
        else:
            self.inside[key] = box
        return True

    def read(self, source: TaskRef, index: Any) -> Task:
        """A read like the others."""
        example = self.example
        assert example is not None
        options = map(literal, example.args[2:])
        return operation(example.func, (source, index, *options), example.kwargs or NO_KWARGS)

    def _form(self, frame: Frame) -> Any:
        """What programs have in common that read by what they are given under the same name."""
        files = [name for name, arg in frame.inputs.items() if _is(arg, self.key, None)]
        return (*map(id, frame.bodies), *frame.inputs, None, *files)

    def _is_alike(self, call: Task) -> bool:
        if any(type(option) is TaskRef for option in options_of(call)):
            return False
        if self.example is None:
            self.example = call
            return True
        mine, other = self.example, call
        if mine.func is not other.func or len(mine.args) != len(other.args) or mine.kwargs != other.kwargs:
            return False
        return all(a is b for a, b in zip(mine.args[2:], other.args[2:]))


def options_of(call: Task) -> list[Any]:
    """What a getter is given besides the file and the index."""
    return [*call.args[2:], *call.kwargs.values()]


def calls_on(node: Any, file: Key) -> Iterator[tuple[Task, Any]]:
    """The calls of getters on a file within a task, and their indices."""
    stack: list[tuple[Any, Mapping[Any, Any] | None]] = [(node, None)]
    while stack:
        here, scope = stack.pop()
        if not isinstance(here, Task):
            if _is(here, file, scope):
                yield here, None
            continue
        if id(here.func) in LOADING_IDS and len(here.args) >= 2 and _is(here.args[0], file, scope):
            yield here, _literal(here.args[1], scope)
            continue
        if here.func is pipe and scope is None:
            yield from _calls_in_program(here, file)
            continue
        if type(here.func) is MethodType:
            called = template_of(here)
            if called is not None:
                stack.append((called[0], called[1]))
                continue
        stack += [(arg, scope) for arg in (*here.args, *here.kwargs.values())]


def _calls_in_program(task: Task, file: Key) -> Iterator[tuple[Task, Any]]:
    """The same where the task is a program, whose steps refer to each other."""
    try:
        steps = steps_of(task, Facts(nowhere))
    except Opaque:
        yield task, None
        return
    for step in steps:
        call = step.task
        if file not in call._dependencies:
            continue
        if id(call.func) in LOADING_IDS and len(call.args) >= 2 and _is(call.args[0], file, None):
            yield call, _literal(call.args[1], None)
        else:
            yield call, None


def _is(arg: Any, file: Key, scope: Mapping[Any, Any] | None) -> bool:
    if type(arg) is TaskRef and scope is not None:
        arg = scope.get(arg.key)
    return type(arg) is TaskRef and arg.key == file


def _literal(arg: Any, scope: Mapping[Any, Any] | None) -> Any:
    if type(arg) is TaskRef and scope is not None:
        arg = scope.get(arg.key)
    return literal(arg)


def follow(file: File, site: Site, most: int) -> dict[Key, Box] | None:
    """The boxes that are asked of a file in the end: tasks that put reads together are followed.

    Parameters
    ----------
    file : File
        The file and its reads.
    site : Site
        The graph around them.
    most : int
        Chunks, counted for each box that touches them.

    Returns
    -------
    dict of Key to Box, or None
        By the tasks whose results other work uses. None as soon as these boxes touch more chunks than that.
    """
    nodes = site.graph.nodes
    reader = Reader(site.facts)
    boxes = file.boxes
    work = list(reversed(boxes))
    while work:  # the last first: neighbours are put together before all others are cut
        for user in site.consumers(work.pop()):
            node = nodes[user]
            if user in boxes or not _moves(node) or not boxes.keys() >= node._dependencies:
                continue
            box = _joined(node, file, reader)
            if box is None:
                continue
            boxes[user] = box
            work.append(user)
            if site.wanted(user) or not all(_moves(nodes[key]) for key in site.consumers(user)):
                most -= touched(box, file.chunks)  # it will be asked for
                if most < 0:
                    return None
    return {
        key: box
        for key, box in boxes.items()
        if site.wanted(key) or not boxes.keys() >= set(site.consumers(key))
    }


def _moves(node: GraphNode) -> TypeGuard[Task]:
    return type(node) is Task and id(node.func) in _BOXES


def _joined(task: Task, file: File, reader: Reader) -> Box | None:
    """The box of the file that a task makes of blocks that are boxes of it."""
    if id(task.func) in GETITEMS and len(task.args) == 2 and type(block := task.args[0]) is TaskRef:
        of = file.boxes[block.key]
        part = box_of(literal(task.args[1]), lengths(of))
        if part is not None:
            return tuple([(start + a, start + b) for (start, _), (a, b) in zip(of, part)])
    found = reader.read(task)
    if found is None or found[1] != file.source.dtype:
        return None
    source = whole(file.key, file.source.shape)
    mosaic = composed(found[0], lambda key: cut(source, tuple([slice(*ends) for ends in file.boxes[key]])))
    if len(mosaic.pieces) != 1:
        return None
    (piece,) = mosaic.pieces
    if piece.source != file.key or len(piece.shape) != len(file.source.shape):
        return None
    if any(step != 1 or along != axis for axis, (_, step, along) in enumerate(piece.axes)):
        return None
    return tuple([(start, start + n) for (start, _, _), n in zip(piece.axes, piece.shape)])
