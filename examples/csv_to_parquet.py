"""Convert a directory of CSV files to Parquet, in a folder for each shop and day; lines that can't be read go aside.

    tidegate run examples/csv_to_parquet.py --input 'examples/data/tills/*.csv' --output build/sales

writes files such as `build/sales/shop=harbour/day=2024-03-01/part-00000-of-00001.parquet`, which Spark, DuckDB and
`pyarrow.dataset` read as one table with the columns `shop` and `day`. Lines that are no sales are written to
`build/sales-rejected….csv`, each with its file, its number and the reason, and counted as `bad_records`.

The annotations of `TillLine` are the schema of the input. Only its columns are parsed, in whatever order a file has
them, and a file that lacks a column gets the default of the class.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

from pydantic import Field

import tidegate as tg


class ConversionOptions(tg.PipelineOptions):
    """The files to read, and where to write."""

    input: str = Field(description="the CSV files, as a pattern")
    output: str = Field(description="the folder of the Parquet files")
    timezone: str = Field(default="Europe/Berlin", description="the time zone of the tills")


@dataclass(frozen=True)
class TillLine:
    """A line of a till: some tills also know the customer's card."""

    at: datetime
    shop: str
    item: str
    pieces: int
    price: Decimal
    card: str | None = None


@dataclass(frozen=True)
class Sale:
    """A row of the output, whose columns `shop` and `day` become folders."""

    shop: str
    day: date
    at: datetime
    item: str
    pieces: int
    total: Decimal
    card: str | None


def sale(line: TillLine, timezone: str) -> Sale:
    """The sale of a till's line; its day is that of the shop."""
    day = line.at.astimezone(ZoneInfo(timezone)).date()
    return Sale(line.shop, day, line.at, line.item, line.pieces, line.pieces * line.price, line.card)


def pipeline(options: ConversionOptions) -> tg.Pipeline:
    """Sales, by shop and day."""
    p = tg.Pipeline(options=options, name="csv to parquet")
    lines, rejected = p | "read" >> tg.ReadFromCsv(
        options.input,
        as_=TillLine,
        timezone=options.timezone,
        strings_can_be_null=True,  # an empty card is None, not an empty text
        bad_records="dead_letter",
    )
    (
        lines
        | tg.Map(sale, options.timezone)
        | "write"
        >> tg.WriteToParquet(f"{options.output}/part", file_name_suffix=".parquet", partition_by=["shop", "day"])
    )
    rejected | "write rejected" >> tg.WriteToCsv(f"{options.output}-rejected", file_name_suffix=".csv", num_shards=1)
    return p


if __name__ == "__main__":
    pipeline(ConversionOptions.from_args()).run().wait_until_finish()
