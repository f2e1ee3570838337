"""Which boxes are asked of a file in the end, and how soon it is seen that there are too many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array as da
import pytest

from dask_rewrite.passes.align_reads import reads
from helpers import checked
from passes.test_align_reads import SIZE, Stored


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []
    joined = reads._joined
    monkeypatch.setattr(reads, "_joined", lambda *given: (found.append(given), joined(*given))[1])
    return found


@pytest.mark.once
def test_halos_are_not_all_followed(looks: list[Any]) -> None:
    x = da.from_array(Stored((4, 4)).array, chunks=4)
    assert len(checked(x.map_overlap(lambda block: block * 2, depth=1, boundary="none"))) > 50**2
    assert len(looks) < 2 * 50**2  # of some 22,000 slices and joins


@pytest.mark.parametrize(
    ("make", "fewest"),
    [
        (lambda v: v.rechunk((40, 40)), 25),
        (lambda v: da.concatenate([v[:40].rechunk((40, 40)), v[40:]]), 90),
        (lambda v: (v.rechunk((40, SIZE)), v.rechunk((SIZE, 40))), 110),
    ],
    ids=["joined", "some joined", "joined twice"],
)
def test_what_is_read_in_the_end(make: Callable[[da.Array], Any], fewest: int, looks: list[Any]) -> None:
    made = make(da.from_array(Stored().array, chunks=20))
    tasks = checked(*(made if type(made) is tuple else (made,)))
    assert looks
    assert len([key for key in tasks if tasks[key].dependencies]) == fewest
