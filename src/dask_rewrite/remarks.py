"""What the optimizer did, nearly did, and failed to do: remarks as data."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from dask.typing import Key

Kind = Literal["applied", "missed", "failed"]
#: Says whether a single rewrite may be made, given its rule and key.
Gate: TypeAlias = Callable[[str, Key | None], bool]
#: Why, in words, or what says so when it is asked.
Reason: TypeAlias = str | Callable[[], str]

#: Remarks kept word for word per rule and kind; everything is counted.
KEPT = 100


class RewriteWarning(UserWarning):
    """A rewrite was dropped or could not be switched on; the computation goes on without it."""


class MemoryLimitError(MemoryError):
    """A computation would hold more than ``rewrite.memory-limit``; it has not begun."""


#: Warnings stand where none of these was called by another one of them: at a line of the user's.
_INSIDE = frozenset({"dask", "dask_rewrite", "distributed", "importlib", "xarray"})


def warn(text: str) -> None:
    """Warn at the line of the program that called dask: there Python says the same text once."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _INSIDE:
        level, frame = level + 1, frame.f_back
    warnings.warn(f"dask_rewrite: {text}", RewriteWarning, stacklevel=level)


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing that a pass did (``applied``), nearly did (``missed``) or broke on (``failed``).

    Parameters
    ----------
    kind : {"applied", "missed", "failed"}
        What happened.
    rule : str
        Name of the pass or rule, as in the configuration.
    key : Key or None
        The task that it is about, where there is one.
    reason : str
        Why, in words.

    Examples
    --------
    >>> print(Remark("missed", "fuse-slices", ("x", 0), "the index is not a plain slice"))
    missed fuse-slices at ('x', 0): the index is not a plain slice
    """

    kind: Kind
    rule: str
    key: Key | None = None
    reason: str = ""

    def __str__(self) -> str:
        place = "" if self.key is None else f" at {self.key!r}"
        return f"{self.kind} {self.rule}{place}" + (f": {self.reason}" if self.reason else "")


class Remarks:
    """Collector of remarks: counts all, keeps the first hundred of each rule and kind.

    It is asked before each single rewrite, since only applied ones count against a limit.

    Parameters
    ----------
    bisect_limit : int
        Single rewrites that are allowed; negative: all.
    gates : sequence of callable
        Asked with rule and key before a single rewrite; it is made if all of them return true.

    Examples
    --------
    >>> remarks = Remarks()
    >>> remarks.applied("sweep", count=3)
    >>> remarks.counts["sweep", "applied"]
    3
    """

    def __init__(self, bisect_limit: int = -1, gates: Sequence[Gate] = ()) -> None:
        self.counts: Counter[tuple[str, Kind]] = Counter()
        self._kept: list[tuple[Kind, str, Key | None, Reason]] = []
        self.left = bisect_limit  # single rewrites still allowed; negative: no limit
        self.gates = gates

    @property
    def kept(self) -> list[Remark]:
        """The remarks themselves, put into words now: most are never read."""
        return [
            Remark(kind, rule, key, reason if isinstance(reason, str) else reason())
            for kind, rule, key, reason in self._kept
        ]

    def copy(self) -> Remarks:
        """The same remarks, to go on with apart from these."""
        other = Remarks(self.left, self.gates)
        other.counts, other._kept = self.counts.copy(), self._kept[:]
        return other

    @property
    def unlimited(self) -> bool:
        """Whether every single rewrite will be allowed, so that nobody needs to be asked."""
        return self.left < 0 and not self.gates

    def allow(self, rule: str, key: Key | None = None) -> bool:
        """Ask before a single rewrite; says no once ``rewrite.bisect-limit`` is used up."""
        for gate in self.gates:
            if not gate(rule, key):
                self.missed(rule, key, "left out by bisect")
                return False
        if self.left < 0:
            return True
        if self.left == 0:
            self.missed(rule, key, "beyond rewrite.bisect-limit")
            return False
        self.left -= 1
        return True

    def applied(self, rule: str, key: Key | None = None, reason: Reason = "", count: int = 1) -> None:
        self._add("applied", rule, key, reason, count)

    def missed(self, rule: str, key: Key | None = None, reason: Reason = "", count: int = 1) -> None:
        self._add("missed", rule, key, reason, count)

    def failed(self, rule: str, key: Key | None = None, reason: Reason = "", count: int = 1) -> None:
        self._add("failed", rule, key, reason, count)

    def _add(self, kind: Kind, rule: str, key: Key | None, reason: Reason, count: int) -> None:
        before = self.counts[rule, kind]
        self.counts[rule, kind] = before + count
        if before < KEPT:
            self._kept.append((kind, rule, key, reason))

    def __iter__(self) -> Iterator[Remark]:
        return iter(self.kept)

    def __len__(self) -> int:
        return sum(self.counts.values())
