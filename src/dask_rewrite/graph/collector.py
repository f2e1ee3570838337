"""The collector of garbage, at rest while many small objects are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: New objects from which it takes long to look for garbage among them.
_MANY = 50_000


@contextmanager
def collector_paused() -> Iterator[None]:
    """Collecting garbage while many small objects are made costs as much as making them.

    Nor are they walked through once it runs again: a graph is no garbage, and nothing here makes circles.
    They count as old from then on, as they would after two collections.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            # What the program has frozen itself would be thawed, too: then they stay young.
            if gc.get_count()[0] > _MANY and not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()
