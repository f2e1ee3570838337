"""The algebra of mosaics against NumPy: what a mosaic says is what NumPy does."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_rewrite.passes.movement.mosaic import (
    Fill,
    Mosaic,
    Piece,
    composed,
    constant,
    cut,
    joined,
    merged,
    padded,
    selection,
    transposed,
    whole,
)
from helpers import examples

pytestmark = pytest.mark.once


def drawn(mosaic: Mosaic, sources: dict[Any, np.ndarray]) -> np.ndarray:
    """The block that a mosaic describes; fails where pieces overlap or leave a gap."""
    result = np.full(mosaic.shape, -1, dtype="i8")
    seen = np.zeros(mosaic.shape, dtype="i8")
    for piece in mosaic.pieces:
        assert all(n > 0 for n in piece.shape)
        place = tuple(slice(a, a + n) for a, n in zip(piece.at, piece.shape, strict=True))
        seen[place] += 1
        if type(piece.source) is Fill:
            result[place] = piece.source.value
            continue
        source = sources[piece.source]
        grid = np.indices(piece.shape)
        position = []
        for offset, step, along in piece.axes:
            coordinate = grid[along] + piece.at[along] if along >= 0 else 0
            position.append(offset + step * coordinate)
        for where, size in zip(position, source.shape, strict=True):
            assert np.all((np.asarray(where) >= 0) & (np.asarray(where) < size))
        result[place] = source[tuple(position)]
    assert (seen == 1).all()
    return result


SOURCES = {
    "x": np.arange(35).reshape(5, 7),
    "y": np.arange(100, 112).reshape(3, 4),
    "z": np.arange(200, 206),
    "c": np.arange(300, 324).reshape(2, 3, 4),
}


@st.composite
def steps(draw: Any, ndim: int = 2) -> Any:
    """One slice, integer or new axis per axis, for any shape."""
    items: list[Any] = []
    for _ in range(draw(st.integers(0, ndim))):
        kind = draw(st.sampled_from(["slice", "slice", "slice", "int", "none"]))
        if kind == "int":
            items.append(draw(st.integers(-3, 2)))
        elif kind == "none":
            items.append(None)
        else:
            end = st.none() | st.integers(-6, 6)
            step = draw(st.sampled_from([None, 1, 1, 2, 3, -1, -2]))
            items.append(slice(draw(end), draw(end), step))
    return tuple(items)


@st.composite
def programs(draw: Any) -> tuple[Mosaic, np.ndarray]:
    """A mosaic built by random steps, and the block that NumPy makes by the same."""
    name = draw(st.sampled_from(sorted(SOURCES)))
    made = [(whole(name, SOURCES[name].shape), SOURCES[name])]
    for _ in range(draw(st.integers(0, 6))):
        mosaic, block = made[-1]
        kind = draw(st.sampled_from(["cut", "pad", "join", "turn", "fill"]))
        if kind == "cut" and block.ndim:
            index = draw(steps(block.ndim))
            found = cut(mosaic, index)
            try:
                block = block[index]
            except IndexError:
                assert found is None
                continue
            assert found is not None
            mosaic = found
        elif kind == "pad" and block.ndim:
            widths = [(draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in block.shape]
            value = np.int64(draw(st.integers(0, 1)))
            mosaic = padded(mosaic, widths, value)
            block = np.pad(block, widths, constant_values=value)
        elif kind == "join" and block.ndim:
            axis = draw(st.integers(0, block.ndim - 1))
            others = [m for m in made if m[1].shape == block.shape]
            chosen = draw(st.lists(st.sampled_from(others), min_size=1, max_size=3))
            both = joined([mosaic, *[m for m, _ in chosen]], axis)
            assert both is not None
            mosaic, block = both, np.concatenate([block, *[b for _, b in chosen]], axis)
        elif kind == "turn":
            order = draw(st.permutations(range(block.ndim)))
            mosaic, block = transposed(mosaic, order), np.transpose(block, order)
        elif kind == "fill":
            mosaic = constant(np.int64(5), block.shape)
            block = np.full(block.shape, 5)
        made.append((mosaic, block))
    return made[-1]


@given(programs())
@examples(400)
def test_a_mosaic_is_what_numpy_makes(made: tuple[Mosaic, np.ndarray]) -> None:
    mosaic, block = made
    assert mosaic.shape == block.shape
    np.testing.assert_array_equal(drawn(mosaic, SOURCES), block)


@given(programs(), programs())
@examples(200)
def test_composition_is_substitution(
    outer: tuple[Mosaic, np.ndarray], inner: tuple[Mosaic, np.ndarray]
) -> None:
    inner_mosaic, block = inner
    if not block.ndim:
        return
    view = cut(whole("inner", block.shape), (slice(None, None, -1), Ellipsis))
    assert view is not None
    turned = transposed(view, tuple(reversed(range(block.ndim))))
    both = composed(turned, {"inner": inner_mosaic}.get)
    np.testing.assert_array_equal(drawn(both, SOURCES), np.transpose(block[::-1]))
    assert composed(both, {}.get) == both


@given(steps(3), st.tuples(*[st.integers(0, 4)] * 3))
@examples(300)
def test_an_index_selects_what_numpy_selects(index: Any, shape: tuple[int, ...]) -> None:
    block = np.zeros(shape)
    try:
        expected = block[index].shape
    except IndexError:
        assert selection(index, shape) is None
    else:
        found = selection(index, shape)
        assert found is not None
        assert found[0] == expected


@pytest.mark.parametrize(
    "index", [[0, 1], (slice(None), [0]), np.array([0]), True, "field", (Ellipsis, Ellipsis)]
)
def test_what_is_not_a_plain_index_is_left(index: Any) -> None:
    assert cut(whole("x", (4, 4)), index) is None


def test_ellipsis() -> None:
    x = whole("c", (2, 3, 4))
    for index in [(..., 1), (0, ...), (0, ..., 1), (..., None), (slice(1), ..., slice(2))]:
        found = cut(x, index)
        assert found is not None
        np.testing.assert_array_equal(drawn(found, SOURCES), SOURCES["c"][index])


def test_there_and_back_is_the_block_itself() -> None:
    """Cut into columns, put together, cut into rows, put together: the piece is one again."""
    x = whole("x", (12, 12))
    columns = [cut(x, (slice(None), slice(i, i + 3))) for i in range(0, 12, 3)]
    rows = []
    for i in range(0, 12, 4):
        row = joined([cut(c, slice(i, i + 4)) for c in columns], axis=1)
        assert row is not None
        rows.append(row)
    assert joined(rows, axis=0) == x


def test_a_frame_of_frames_is_one_frame() -> None:
    zero = np.float64(0)
    once = padded(padded(whole("x", (4, 4)), [(1, 1)] * 2, zero), [(2, 2)] * 2, zero)
    at_once = padded(whole("x", (4, 4)), [(3, 3)] * 2, zero)
    assert once.parts == at_once.parts == 1
    assert len(once.pieces) <= 9


def test_constants_are_told_apart_by_their_bits() -> None:
    assert Fill(np.float64(0.0)) != Fill(np.float64(-0.0))
    assert Fill(np.float64("nan")) == Fill(np.float64("nan"))
    assert Fill(np.int8(1)) != Fill(np.int16(1))
    assert Fill(np.dtype(">f8").type(1)) == Fill(np.float64(1))
    mixed = joined([constant(np.float64(0.0), (2,)), constant(np.float64(-0.0), (2,))], axis=0)
    assert mixed is not None
    assert len(mixed.pieces) == 2


def test_pieces_that_do_not_continue_each_other_stay_apart() -> None:
    x = whole("x", (4,))
    one, other = cut(x, slice(0, 2)), cut(x, slice(0, 2))
    assert one is not None
    assert other is not None
    both = joined([one, other], axis=0)
    assert both is not None
    assert len(both.pieces) == 2


def test_a_column_beside_itself_is_two_pieces() -> None:
    """No slice of the row shows it twice."""
    column = cut(whole("x", (4,)), (slice(None), None))
    assert column is not None
    twice = joined([column, column], axis=1)
    assert twice is not None
    assert len(twice.pieces) == 2
    point = cut(whole("x", (4,)), (2, None))
    assert point is not None
    thrice = joined([point] * 3, axis=0)
    assert thrice is not None
    assert len(thrice.pieces) == 3


def test_many_pieces_are_found_fast() -> None:
    """Looking at a part of a mosaic of many pieces does not look at all of them."""
    many = joined([whole(("x", i), (2, 5)) for i in range(1000)], axis=0)
    assert many is not None
    near = list(many.near((100, 0), (104, 5)))
    assert [piece.source for piece in near] == [("x", i) for i in (50, 51)] or len(near) <= 4
    part = cut(many, slice(101, 104))
    assert part is not None
    assert [piece.source for piece in part.pieces] == [("x", 50), ("x", 51)]


def test_empty_and_zero_dimensional() -> None:
    assert whole("x", (0, 3)).pieces == ()
    assert constant(np.int64(1), ()).pieces == (Piece((), (), Fill(np.int64(1)), ()),)
    assert cut(whole("x", (3,)), slice(2, 2)) == Mosaic((0,), ())
    assert joined([whole("x", (0, 3)), whole("y", (2, 3))], axis=0) == whole("y", (2, 3))
    scalar = cut(whole("z", (6,)), 2)
    assert scalar is not None
    assert scalar.shape == ()
    assert drawn(scalar, SOURCES) == 202


def test_pieces_come_in_the_order_of_their_corners() -> None:
    pieces = [Piece((i,), (1,), ("x", i), ((0, 1, 0),)) for i in (2, 0, 1)]
    assert [p.at for p in merged(pieces, 1)] == [(0,), (1,), (2,)]
    assert all(a.at < b.at for a, b in pairwise(merged(pieces, 1)))
