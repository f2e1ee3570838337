"""What the tests of fusion share."""

from __future__ import annotations

import threading

import numpy as np


class Calls:
    """A block function that counts its runs."""

    def __init__(self) -> None:
        self.count = 0
        self.lock = threading.Lock()

    def __call__(self, block: np.ndarray) -> np.ndarray:
        with self.lock:
            self.count += 1
        return block + 1

    def __dask_tokenize__(self) -> object:
        return id(self)
