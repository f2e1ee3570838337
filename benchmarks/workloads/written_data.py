"""The data of the programs as people write them: a store, a folder of files and tables, written once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr

#: Days, latitudes, longitudes, and the chunks of these in the store.
SIZES = {
    "tiny": ((60, 16, 16), (12, 8, 8)),
    "small": ((360, 48, 64), (60, 24, 32)),
    "large": ((1440, 96, 192), (120, 48, 96)),
}


class Data:
    """What lies on disk for one size.

    Parameters
    ----------
    folder : Path
        Where it is written, and where programs may write.
    size : str
        A name of `SIZES`.
    images : int
        How many files with one image each.
    """

    def __init__(self, folder: Path, size: str, images: int = 100) -> None:
        self.folder = folder
        self.shape, self.chunks = SIZES[size]
        days, lats, lons = self.shape
        rng = np.random.default_rng(0)
        dims = ("time", "lat", "lon")
        season = 10 * np.sin(np.arange(days) * 2 * np.pi / 365)[:, None, None]
        values = 280 + season + rng.normal(size=self.shape)
        coords = {
            "time": np.arange(days).astype("M8[D]").astype("M8[ns]"),
            "lat": np.linspace(-88, 88, lats),
            "lon": np.arange(lons) * 360 / lons,
        }
        fields = {"warm": (dims, values), "rain": (dims, rng.gamma(0.5, size=self.shape))}
        year = xr.Dataset(fields, coords).chunk(dict(zip(dims, self.chunks, strict=True)))
        year.to_zarr(folder / "fields.zarr")
        self.files = [folder / f"part-{i:03}.nc" for i in range(12)]
        for i, path in enumerate(self.files):
            part = year.isel(time=slice(i * days // 12, (i + 1) * days // 12))
            part.load().to_netcdf(path, engine="h5netcdf")
        self.plates = [folder / f"plate-{i:03}.npy" for i in range(images)]
        for i, path in enumerate(self.plates):
            np.save(path, rng.random((4 * lats, 4 * lats)) + i)
        rows = days * 100
        table = rng.normal(size=(rows, 16))
        da.from_array(table, chunks=(rows // 12, 16)).to_zarr(str(folder / "table.zarr"))
        label = (table @ np.linspace(-1, 1, 16) + rng.normal(size=rows) > 0).astype("f8")
        da.from_array(label, chunks=rows // 12).to_zarr(str(folder / "label.zarr"))

    @property
    def fields(self) -> xr.Dataset:
        """Two variables over time, lat and lon, from the store."""
        return xr.open_zarr(self.folder / "fields.zarr")

    @property
    def warm(self) -> xr.DataArray:
        """The first variable."""
        return self.fields.warm

    @property
    def cube(self) -> Any:
        """The same as a plain array."""
        return self.warm.data

    @property
    def table(self) -> Any:
        """Rows of sixteen numbers."""
        return da.from_zarr(str(self.folder / "table.zarr"))

    @property
    def label(self) -> Any:
        """0 or 1 for each row of the table."""
        return da.from_zarr(str(self.folder / "label.zarr"))
