"""Clean, join and sum up the orders of a shop with Dask dataframes: from CSV to Parquet.

    python examples/clean_orders.py [--files N] [--rows N]

The program makes the data in a temporary directory, with a seed: CSV files of orders, and customers
as Parquet. The files are as such files are: orders that were sent twice, amounts that are missing
or no numbers, currencies in capitals or not, with blanks. What is right is known, as the dirt was
added last.

The first step reads, cleans and converts the orders, and writes them as Parquet. The second joins
them with the customers, and writes the sales by country, segment and month. Both steps run on
Dask's synchronous scheduler first, which is a plain loop in this process, and then with
``scheduler=scaler_get``. Nothing else differs, and both must write the same.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd

from scaler_exec import scaler_get

if TYPE_CHECKING:
    from collections.abc import Callable

RATES = {"EUR": 1.0, "USD": 0.92, "GBP": 1.17, "CHF": 1.05}
COUNTRIES = ("AT", "CH", "DE", "FR", "GB", "US")
SEGMENTS = ("business", "consumer", "public")
CUSTOMERS = 20_000
BY = ["country", "segment", "month"]


def make_data(folder: Path, files: int, rows: int) -> float:
    """Write customers and orders; return the sales that are in them, in euros."""
    random, total = np.random.default_rng(17), 0.0
    (folder / "orders").mkdir(parents=True)
    customers = {
        "customer": np.arange(CUSTOMERS),
        "country": random.choice(COUNTRIES, CUSTOMERS),
        "segment": random.choice(SEGMENTS, CUSTOMERS),
    }
    pd.DataFrame(customers).to_parquet(folder / "customers.parquet")
    for number, day in enumerate(pd.date_range("2026-01-01", periods=files, freq="5D")):
        amounts = np.round(random.lognormal(3.5, 1.0, rows), 2)
        currencies = random.choice(list(RATES), rows)
        orders = pd.DataFrame(
            {
                "order": np.arange(rows) + number * rows,
                "customer": random.integers(CUSTOMERS, size=rows),
                "placed": day + pd.to_timedelta(random.integers(86_400, size=rows), unit="s"),
                "amount": amounts.astype(str),
                "currency": currencies,
            }
        )
        lost = random.random(rows) < 0.02
        orders.loc[lost, "amount"] = random.choice(["", "n/a", "?"], lost.sum())
        total += float((amounts * np.array([RATES[one] for one in currencies]))[~lost].sum())
        sloppy = random.random(rows) < 0.1
        orders.loc[sloppy, "currency"] = " " + orders.loc[sloppy, "currency"].str.lower()
        again = orders.sample(frac=0.05, random_state=number)
        shuffled = pd.concat([orders, again]).sample(frac=1.0, random_state=number)
        shuffled.to_csv(folder / "orders" / f"{day:%Y-%m-%d}.csv", index=False)
    return total


def clean(orders: pd.DataFrame) -> pd.DataFrame:
    """Return each order of a file once, with its amount in euros and its month."""
    orders = orders.drop_duplicates("order")
    amounts = pd.to_numeric(orders["amount"], errors="coerce")
    rates = orders["currency"].str.strip().str.upper().map(RATES)
    months = orders["placed"].dt.strftime("%Y-%m")
    kept = orders[["order", "customer"]].assign(euros=amounts * rates, month=months)
    return kept.dropna(subset=["euros"]).sort_values("order")


def load(source: Path, target: Path) -> pd.DataFrame:
    """Read, clean, write; read, join, group, write; return what was written last."""
    types, files = {"amount": "str", "currency": "str"}, str(source / "orders" / "*.csv")
    orders = dd.read_csv(files, dtype=types, parse_dates=["placed"], blocksize=None)
    orders.map_partitions(clean).to_parquet(target / "orders", write_index=False)

    orders = dd.read_parquet(target / "orders")
    customers = dd.read_parquet(source / "customers.parquet")
    sales = orders.merge(customers, on="customer").groupby(BY).euros.agg(["count", "sum", "mean"])
    sales.reset_index().to_parquet(target / "sales")
    return pd.read_parquet(target / "sales").sort_values(BY, ignore_index=True)


def timed(
    scheduler: str | Callable[..., Any], source: Path, target: Path
) -> tuple[pd.DataFrame, float]:
    """Return what `load` writes, and the seconds that it takes."""
    start = time.perf_counter()
    # Dask's other way to shuffle, by files, keeps no order of rows; the last bits of sums need it.
    with dask.config.set({"scheduler": scheduler, "dataframe.shuffle.method": "tasks"}):
        sales = load(source, target)
    return sales, time.perf_counter() - start


def main() -> None:
    """Load the orders twice, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--files", type=int, default=24, metavar="N")
    parser.add_argument("--rows", type=int, default=80_000, metavar="N", help="of each file")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as name:
        source, sample = Path(name, "all"), Path(name, "sample")
        total = make_data(source, args.files, args.rows)
        # Once for nothing: the workers start, and all processes import what they need.
        make_data(sample, 4, 100)
        timed("synchronous", sample, sample / "alone")
        timed(scaler_get, sample, sample / "together")
        expected, alone_s = timed("synchronous", source, source / "alone")
        sales, together_s = timed(scaler_get, source, source / "together")

    found = float(sales["sum"].sum())
    print(sales.nlargest(5, "sum").to_string(index=False, float_format="{:,.2f}".format))
    print(f"{sales['count'].sum():,} orders, {found:,.2f} euros; made were {total:,.2f}")
    speed_up = alone_s / together_s
    print(f"one core {alone_s:.2f} s, workers {together_s:.2f} s: speed-up {speed_up:.2f}")
    if not expected.equals(sales) or not math.isclose(found, total):
        sys.exit("the two runs differ, or orders were lost")
    print("both runs wrote the same")


if __name__ == "__main__":
    main()
