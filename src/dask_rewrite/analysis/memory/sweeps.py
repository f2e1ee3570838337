"""Orders that go through arrays block by block, and do at once what can be done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dask.typing import Key

from dask_rewrite.analysis.memory.work import Work


def sweeps(work: Work, keys: Sequence[Key]) -> Iterator[list[int]]:
    """Two orders of tasks: along the last axes of arrays first, and along the first ones.

    Where blocks need their neighbours, two or three rows of blocks are held, in whatever way what is made of
    them is put together afterwards. Whoever goes for one result after the other holds far more.

    Parameters
    ----------
    work : Work
        The graph as numbers.
    keys : sequence of Key
        The names of its tasks: in the keys of blocks are their places.

    Examples
    --------
    Four blocks in two rows, and a sum of each column.

    >>> keys = [("x", 0, 0), ("x", 1, 0), ("x", 0, 1), ("x", 1, 1), ("sum", 0), ("sum", 1)]
    >>> by_rows, by_columns = sweeps(Work([(), (), (), (), (0, 1), (2, 3)], [()] * 6), keys)
    >>> by_rows, by_columns
    ([0, 2, 1, 4, 3, 5], [0, 1, 4, 2, 3, 5])
    """
    given, users = work.given, work.users()
    missing = work.missing(users)
    starts = [task for task, count in enumerate(missing) if not count and task not in given]
    places = [_place(keys[task]) for task in starts]
    for step in (1, -1):
        ordered = sorted(zip([place[::step] for place in places], starts))
        yield _sweep([start for _, start in ordered], users, missing[:])


def _place(key: Any) -> tuple[int, ...]:
    """The place of a block in its array."""
    return tuple([part for part in key[1:] if type(part) is int]) if type(key) is tuple else ()


def _sweep(starts: Sequence[int], users: Sequence[Sequence[int]], missing: list[int]) -> list[int]:
    """One start after the other, each with all that can be done then."""
    order: list[int] = []
    for start in starts:
        stack = [start]
        while stack:
            task = stack.pop()
            order.append(task)
            for user in users[task]:
                missing[user] -= 1
                if not missing[user]:
                    stack.append(user)
    return order
