"""The collector of garbage, at rest while many small objects are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: New objects from which it takes long to look for garbage among them.
_MANY = 50_000
#: So often, as in Python itself, new objects become old before all that is old is looked through.
_TURNS = 10
#: How often they did since then.
_aged = 0


@contextmanager
def collector_paused() -> Iterator[None]:
    """Collecting garbage while many small objects are made costs as much as making them.

    Nor are they walked through once it runs again: a graph is no garbage, and nothing here makes circles.
    They count as old from then on, as they would after two collections. That sets the counts of the collector
    to zero, so that what it would look through after some large graphs is looked through here.
    """
    global _aged
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            young, _, old = gc.get_count()
            # What the program has frozen itself would be thawed, too: then they stay young.
            if young > _MANY and not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
                _aged += 1 + old
                if _aged > _TURNS:
                    _aged = 0
                    gc.collect()
            gc.enable()
