"""What modules define that are not imported only to be known."""

from __future__ import annotations

import sys
from typing import Any


def imported(module: str, name: str) -> Any:
    """What a module has under a name; None where nobody has imported it, as there are no objects of it then.

    Examples
    --------
    >>> imported("sys", "modules") is sys.modules
    True
    >>> imported("no.such.module", "Thing") is None
    True
    """
    return getattr(sys.modules.get(module), name, None)
