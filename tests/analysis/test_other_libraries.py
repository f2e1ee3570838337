"""What is known of functions of SciPy, xarray and masked arrays: they read, and give what is said."""

from __future__ import annotations

import importlib
from typing import Any

import dask.array as da
import numpy as np
import pytest
from dask._task_spec import Task, TaskRef

from dask_rewrite.analysis.effects import Effects
from dask_rewrite.analysis.knowledge import Fact, fact_of_call, known, known_call
from dask_rewrite.analysis.knowledge.other_libraries import _FILTERS, _UFUNCS, OTHER_LIBRARIES
from helpers import assert_same_as_stock

xr = pytest.importorskip("xarray")
ndimage = pytest.importorskip("scipy.ndimage")
special = pytest.importorskip("scipy.special")
for _module in ("scipy.fft", "scipy.signal"):
    importlib.import_module(_module)

#: What filters need besides an image.
MORE: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("gaussian_filter", "gaussian_filter1d", "gaussian_laplace"), (1.0,)),
    "gaussian_gradient_magnitude": (1.0,),
    **dict.fromkeys(("convolve", "correlate"), (np.array([[1, 2, 1]]),)),
    **dict.fromkeys(("convolve1d", "correlate1d"), (np.array([1, 2, 1]),)),
    "rank_filter": (1, 3),
    "percentile_filter": (20, 3),
}
_SIZED = ("uniform", "median", "minimum", "maximum", "grey", "white", "black", "morph")


def given_to(name: str) -> tuple[Any, ...]:
    return MORE.get(name, (3,) if name.startswith(_SIZED) else ())


@pytest.mark.parametrize(("module", "name"), sorted(OTHER_LIBRARIES))
def test_all_names_are_found(module: str, name: str) -> None:
    func = getattr(pytest.importorskip(module), name, None)
    if func is None:
        pytest.skip("not in this version")
    found = known(func)
    assert found is not None
    assert known(func) is found


@pytest.mark.parametrize("dtype", ["u1", "i4", ">i4", "f4", "f8", ">f8"])
@pytest.mark.parametrize("name", _FILTERS)
def test_filters_give_what_is_said_and_only_read(name: str, dtype: str) -> None:
    func = getattr(ndimage, name)
    image = (np.arange(42.0).reshape(6, 7) ** 1.5 % 11).astype(dtype)
    before = image.copy()
    result = func(image, *given_to(name))
    assert not np.shares_memory(result, image)
    np.testing.assert_array_equal(image, before)
    said = fact_of_call(func, (Fact(image.shape, image.dtype), *given_to(name)), {})
    assert said == Fact(result.shape, result.dtype)


@pytest.mark.parametrize("name", _FILTERS)
def test_a_filter_that_is_told_where_to_write_is_not_known(name: str) -> None:
    func = getattr(ndimage, name)
    assert known_call(func, (TaskRef("x"), *given_to(name)), {}) is not None
    assert known_call(func, (TaskRef("x"), *given_to(name)), {"output": TaskRef("y")}) is None
    assert known_call(func, (TaskRef("x"),) * 12, {}) is None


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
@pytest.mark.parametrize("name", [name for name in _UFUNCS if hasattr(special, name)])
def test_ufuncs_work_element_by_element(name: str, dtype: str) -> None:
    func = getattr(special, name)
    args = [np.arange(1, 7).reshape(2, 3).astype(dtype) for _ in range(func.nin)]
    try:
        result = func(*args)
    except TypeError:
        pytest.skip("not of this dtype")
    said = fact_of_call(func, [Fact(each.shape, each.dtype) for each in args], {})
    assert said == Fact(result.shape, result.dtype)


@pytest.mark.parametrize("keywords", [{"overwrite_x": True}, {"overwrite_x": False}])
def test_transforms_may_overwrite_where_they_are_told(keywords: Any) -> None:
    import scipy.fft

    found = known_call(scipy.fft.fft, (TaskRef("x"),), keywords)
    assert found is None  # whoever names it is left alone
    assert known_call(scipy.fft.fft, (TaskRef("x"),), {"axis": 0}) is not None


def test_what_comes_back_along_no_axes_is_the_block_itself() -> None:
    import scipy.fft

    x = np.ones((2, 3))
    for transform in (np.fft.fftn, scipy.fft.fftn, scipy.fft.dctn):
        assert np.shares_memory(transform(x, axes=()), x) <= (not known(transform).fresh)


MASKED = {
    "greater": lambda x: da.ma.masked_greater(x, 3),
    "where": lambda x: da.ma.masked_where(x > 3, x),
    "invalid": lambda x: da.ma.filled(da.ma.masked_invalid(x / (x - 3)), 7),
    "inside": lambda x: da.ma.masked_inside(x, 2, 4),
    "fixed": lambda x: da.ma.fix_invalid(x / (x - 3), fill_value=9),
    "values": lambda x: da.ma.masked_values(x, 3.0),
    "twice": lambda x: da.ma.masked_less(da.ma.masked_greater(x, 5), 2),
}


@pytest.mark.filterwarnings("ignore:divide by zero|invalid value:RuntimeWarning")
@pytest.mark.parametrize("name", MASKED)
def test_masked_blocks(name: str) -> None:
    x = da.from_array(np.arange(24.0).reshape(4, 6) % 7, chunks=(2, 3))
    masked = MASKED[name](x)
    assert_same_as_stock(masked, x + 1, masked.sum(axis=0), (masked * 2)[1:])


def test_functions_that_only_take_indices_are_known() -> None:
    for func, given in (
        (np.unravel_index, (TaskRef("i"), (3, 4))),
        (np.take_along_axis, (TaskRef("x"), TaskRef("i"), 0)),
    ):
        assert known_call(func, given, {}) is not None


def test_masking_without_a_copy_writes() -> None:
    assert known_call(np.ma.masked_where, (TaskRef("m"), TaskRef("x")), {}) is not None
    assert known_call(np.ma.masked_where, (TaskRef("m"), TaskRef("x")), {"copy": False}) is None
    assert known_call(np.ma.masked_where, (TaskRef("m"), TaskRef("x"), False), {}) is None
    assert Effects().of(Task("y", np.ma.masked_where, TaskRef("m"), TaskRef("x"))) == "view"


def test_smoothed_images_are_as_with_stock() -> None:
    x = da.from_array(np.arange(400.0).reshape(20, 20) ** 1.5 % 17, chunks=(10, 5))
    smooth = x.map_overlap(ndimage.gaussian_filter, depth=3, boundary="reflect", sigma=1.0)
    edges = smooth.map_overlap(ndimage.sobel, depth=1, boundary="nearest")
    assert_same_as_stock(smooth, edges.max(axis=0), (smooth > smooth.mean()).sum())


def test_error_function_of_two_outputs() -> None:
    x = da.from_array(np.arange(24.0).reshape(4, 6) / 9, chunks=(2, 3))
    y = x.map_blocks(special.erf)
    assert_same_as_stock(y[1:3].sum(axis=0), (1 - y)[::2], y.T + x.T)


def fields() -> Any:
    values = np.arange(60.0).reshape(5, 3, 4) ** 1.3 % 13
    return xr.DataArray(values, dims=("time", "lat", "lon"), coords={"lat": [0.0, 1, 2]}).chunk(time=2)


def test_interpolated_fields() -> None:
    x = fields()
    assert_same_as_stock(x.interp(lat=[0.25, 1.5]).data, x.interp(lat=[0.25, 1.5]).mean("time").data)


def test_scans_by_halves() -> None:
    x = da.from_array(np.arange(24.0).reshape(8, 3), chunks=(2, 3))
    y = da.cumsum(x, axis=0, method="blelloch")
    assert_same_as_stock(y, y[3:5], (x * 2).cumsum(axis=0, method="blelloch").sum())
