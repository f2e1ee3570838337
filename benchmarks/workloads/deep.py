"""Workloads that a loop builds: few blocks, many operations."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.workloads.registry import workload


@workload(20, 1000, 4000, portable=True, growth=(250, 500, 1000))
def adds(da: ModuleType, n: int) -> Any:
    """total = total + x, n times."""
    x = da.arange(4000, chunks=1000)
    total = x
    for _ in range(n):
        total = total + x
    return total


@workload(20, 220, 5000, portable=True, growth=(110, 220, 440))
def leapfrog(da: ModuleType, n: int) -> Any:
    """a, b = b, (a + b) * 0.5, n times: a recurrence of two terms."""
    a = da.arange(4, chunks=1).astype(float)
    b = a + 1
    for _ in range(n):
        a, b = b, (a + b) * 0.5
    return b


@workload(10, 250, 500, portable=True, growth=(60, 120, 240))
def appends(da: ModuleType, n: int) -> Any:
    """x = append(x, one more block), n times."""
    x = da.arange(8, chunks=8)
    for i in range(n):
        x = da.append(x, da.arange(8 * i, 8 * i + 8, chunks=8))
    return x


@workload(10, 500, 1000, heavy=True)
def append_block(da: ModuleType, n: int) -> Any:
    """x = append(x, block), n times, always the same block."""
    x = block = da.from_array(np.arange(8.0), chunks=8)
    for _ in range(n):
        x = da.append(x, block)
    return x


@workload(3, 12, 12, heavy=True, portable=True, end_to_end=True)
def image_borders(da: ModuleType, n: int) -> Any:
    """Put a border of 4 zeros round an image of 256 x 256 in 64-blocks n times, then sum it."""
    x = da.from_array(np.arange(256.0 * 256).reshape(256, 256), chunks=64)
    for _ in range(n):
        rows, columns = x.shape
        top = da.zeros((4, columns), chunks=64)
        x = da.concatenate([top, x, top], axis=0)
        side = da.zeros((rows + 8, 4), chunks=64)
        x = da.concatenate([side, x, side], axis=1)
    return x.sum(axis=0)


@workload(3, 12, 25, portable=True)
def constant_borders(da: ModuleType, n: int) -> Any:
    """Put a constant border round an image n times, then sum it."""
    x = da.from_array(np.arange(64.0 * 64).reshape(64, 64), chunks=32)
    for _ in range(n):
        rows, columns = x.shape
        side = da.zeros((rows, 2), chunks=(x.chunks[0], 2))
        x = da.concatenate([side, x, side], axis=1)
        top = da.zeros((2, columns + 4), chunks=(2, x.chunks[1]))
        x = da.concatenate([top, x, top], axis=0)
    return x.sum(axis=0)


def _diffuse(u: Any) -> Any:
    v = u.copy()
    v[1:-1, 1:-1] += 0.1 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1])
    return v


@workload(2, 20, 120, portable=True, growth=(5, 10, 20))
def heat(da: ModuleType, n: int) -> Any:
    """The heat equation: n explicit steps of map_overlap on 3 x 3 blocks."""
    u = da.from_array(np.arange(30.0 * 30).reshape(30, 30) % 7, chunks=10)
    for _ in range(n):
        u = u.map_overlap(_diffuse, depth=1, boundary=0, dtype=float)
    return u


@workload(2, 120, 120, heavy=True, portable=True, on=("2",))
def heat_periodic(da: ModuleType, n: int) -> Any:
    """The heat equation on a torus: n explicit steps of map_overlap on 3 x 3 blocks."""
    u = da.from_array(np.arange(30.0 * 30).reshape(30, 30) % 7, chunks=10)
    for _ in range(n):
        u = u.map_overlap(_diffuse, depth=1, boundary="periodic", dtype=float)
    return u


@workload(2, 10, 50, portable=True, growth=(3, 6, 12))
def roll_wave(da: ModuleType, n: int) -> Any:
    """A wave equation: n steps with da.roll on 2 x 2 blocks."""
    now = da.from_array(np.arange(20.0 * 20).reshape(20, 20) % 5, chunks=10)
    before = now
    for _ in range(n):
        around = da.roll(now, 1, 0) + da.roll(now, -1, 0) + da.roll(now, 1, 1) + da.roll(now, -1, 1)
        now, before = 2 * now - before + 0.1 * (around - 4 * now), now
    return now


@workload(10, 120, 1200, portable=True, growth=(60, 120, 240))
def diagonal(da: ModuleType, n: int) -> Any:
    """m[i, i] = 1 in a loop, on 4 x 4 blocks."""
    side = max(n, 8)
    m = da.zeros((side, side), chunks=-(-side // 4))
    for i in range(n):
        m[i, i] = 1
    return m


@workload(10, 150, 600, portable=True)
def where_chain(da: ModuleType, n: int) -> Any:
    """x = where(x > c, x * 0.5, x + 1) in a loop: a classifier with many rules."""
    x = da.from_array(np.arange(400.0), chunks=100)
    for i in range(n):
        x = da.where(x > 3 + i % 5, x * 0.5, x + 1)
    return x


@workload(5, 40, 300, portable=True)
def masked_updates(da: ModuleType, n: int) -> Any:
    """total[mask] = value in a loop, with a new mask at each turn."""
    x = da.from_array(np.arange(400.0), chunks=100)
    total = da.zeros(400, chunks=100)
    for i in range(n):
        total[x % (i + 2) == 0] = i
    return total


@workload(4, 96, 1000, portable=True, exact=False, memory=True)
def members(da: ModuleType, n: int) -> Any:
    """sum() of n members of an ensemble."""
    rng = da.random.default_rng(0)
    return sum(rng.random((200, 200), chunks=200) for _ in range(n))


@workload(3, 60, 120, portable=True)
def squares(da: ModuleType, n: int) -> Any:
    """x = (x + 1) * (x - 1) / (x * x + 1), n times: every value is used again."""
    x = da.from_array(np.linspace(0.1, 0.9, 40), chunks=10)
    for _ in range(n):
        x = (x + 1) * (x - 1) / (x * x + 1)
    return x


@workload(2, 10, 30, portable=True, exact=False)
def conjugate_gradient(da: ModuleType, n: int) -> Any:
    """n lazy steps of the conjugate gradient method."""
    base = np.arange(40.0 * 40).reshape(40, 40) % 7
    matrix = da.from_array(base @ base.T + 40 * np.eye(40), chunks=10)
    b = da.from_array(np.arange(40.0), chunks=10)
    x = da.zeros(40, chunks=10)
    r = b - matrix @ x
    p, rho = r, r @ r
    for _ in range(n):
        q = matrix @ p
        alpha = rho / (p @ q)
        x = x + alpha * p
        r = r - alpha * q
        rho, last = r @ r, rho
        p = r + (rho / last) * p
    return x


@workload(3, 10, 20, exact=False)
def solve(da: ModuleType, n: int) -> Any:
    """linalg.solve of a system of n x n blocks."""
    size = 5 * n
    matrix = np.arange(float(size * size)).reshape(size, size) % 17 + size * 17 * np.eye(size)
    a = da.from_array(matrix, chunks=5)
    b = da.from_array(np.arange(float(size)), chunks=5)
    return da.linalg.solve(a, b)
