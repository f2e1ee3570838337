"""A simulated run of a graph, and what stands in memory where it holds most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import dask.config

from dask_rewrite.analysis.memory.cluster import Cluster, on_cluster
from dask_rewrite.analysis.memory.graphs import Sized
from dask_rewrite.analysis.memory.threads import on_threads
from dask_rewrite.analysis.memory.work import Course, Work
from dask_rewrite.graph.names import is_finalize, kind_name

#: Points of a curve; between them the highest is kept.
POINTS = 200


class Standing(NamedTuple):
    """Results of one kind that are held at the peak, and for whom.

    Parameters
    ----------
    name : str
        What their keys have in common.
    tasks, nbytes : int
        How many there are, and their bytes together.
    waits_for : str
        The kind of task that needs them last; empty if they were asked for.
    uncounted : int
        How many of them nobody can guess the bytes of.
    """

    name: str
    tasks: int
    nbytes: int
    waits_for: str
    uncounted: int = 0


@dataclass(slots=True)
class Run:
    """What a graph would hold, read, decode, move and write.

    Parameters
    ----------
    tasks : int
        Tasks of the graph.
    peak, least, most : int
        Most bytes of results held at one time, over all workers. The three differ where there are blocks of
        unknown size: ``peak`` takes these to be as large as what they are made of, ``least`` as nothing.
    peak_worker : int
        Most bytes held by any one worker.
    floor : int
        What one task needs and makes together, at most: whatever the order, no less is held, if blocks of
        unknown size are as large as what they are made of.
    read, written, moved : int
        Bytes out of files, into files, and from worker to worker.
    decoded : int
        Bytes of the stored chunks that hold what is read, each counted as often as it is decoded; of files
        that do not tell how they are stored, what is read.
    unknown : int
        Blocks of unknown size.
    uncounted : list of (str, int)
        Kinds of tasks, and how many of each, of whose results nobody can guess what they weigh.
    at : float
        When the peak is reached: the part of all tasks that are done.
    standing : list of Standing
        What is held at the peak, the most bytes first.
    curve : list of int
        Bytes held over the course of the run, at most so many as `POINTS`.
    """

    tasks: int = 0
    peak: int = 0
    least: int = 0
    most: int = 0
    peak_worker: int = 0
    floor: int = 0
    read: int = 0
    written: int = 0
    moved: int = 0
    decoded: int = 0
    unknown: int = 0
    uncounted: list[tuple[str, int]] = field(default_factory=list)
    at: float = 0.0
    standing: list[Standing] = field(default_factory=list)
    curve: list[int] = field(default_factory=list)


def simulate(graph: Sized, threads: int, workers: int = 0) -> Run:
    """Run a graph without doing its work.

    Parameters
    ----------
    graph : Sized
        The graph as numbers.
    threads : int
        Threads of this process, or of each worker.
    workers : int
        Workers of a cluster; 0 for a scheduler of this process.
    """
    courses = [_course(work, threads, workers) for work in graph.works]
    middle = len(courses) // 2
    likely = courses[middle]
    least = min([course.peak for course in courses])  # tasks end in another order where sizes differ
    run = Run(len(graph.keys), likely.peak, least, courses[-1].peak, likely.peak_worker)
    run.read, run.decoded, run.written = graph.read, graph.decoded, graph.written
    run.moved, run.unknown = likely.moved, graph.unknown
    run.floor = floor_of(graph.works[middle])
    kinds = Counter([kind_name(graph.keys[task]) for task in graph.uncounted])
    run.uncounted = [(kind, count) for kind, count in kinds.most_common() if not is_finalize(kind)]
    if likely.held:
        run.at = (likely.at + 1) / len(likely.held)
        run.standing = _standing(graph, likely, workers > 0)
        run.curve = _thinned(likely.held)
    return run


def floor_of(work: Work) -> int:
    """Most bytes that one task alone needs and makes."""
    return max(needs_of(work), default=0)


def needs_of(work: Work) -> list[int]:
    """Bytes that each task needs and makes, of those that are not there from the start."""
    owned, views, given = work.owned, work.views, work.given
    needs = []
    for task, needed in enumerate(work.inputs):
        held = {*needed, *[one for each in needed for one in views[each]], task} - given
        needs.append(0 if task in given else sum([owned[one] for one in held]))
    return needs


def peak_of(work: Work, threads: int, workers: int = 0) -> int:
    """Most bytes held at one time, as :func:`simulate` finds it."""
    return _course(work, threads, workers).peak


def _course(work: Work, threads: int, workers: int) -> Course:
    if not workers:
        return on_threads(work, threads)
    saturation = dask.config.get("distributed.scheduler.worker-saturation", 1.1)
    return on_cluster(work, Cluster(workers, threads, float(saturation)))


def _standing(graph: Sized, course: Course, cluster: bool) -> list[Standing]:
    """What is held at the peak, by kind and by who needs it last."""
    work = graph.likely
    sizes = work.nbytes if cluster else work.owned
    kinds: dict[tuple[str, str], list[int]] = {}
    uncounted = set(graph.uncounted)
    for task in course.ended[: course.at + 1]:
        freed = course.freed[task]
        if (0 <= freed < course.at) or not sizes[task]:
            continue
        user = "" if freed < 0 else kind_name(graph.keys[course.ended[freed]])
        total = kinds.setdefault((kind_name(graph.keys[task]), user), [0, 0, 0])
        total[0] += 1
        total[1] += sizes[task]
        total[2] += task in uncounted
    found = [Standing(name, n, nbytes, user, lost) for (name, user), (n, nbytes, lost) in kinds.items()]
    return sorted(found, key=lambda each: (-each.nbytes, each.name, each.waits_for))


def _thinned(values: Sequence[int]) -> list[int]:
    """At most so many points, each the highest of those that it stands for."""
    if len(values) <= POINTS:
        return list(values)
    ends = [len(values) * i // POINTS for i in range(POINTS + 1)]
    return [max(values[a:b]) for a, b in pairwise(ends)]
