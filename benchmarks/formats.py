"""Formats: reads files of records into Python rows, and writes rows to files, beside the same work by hand.

Ours and the work by hand take turns in one process, in processor time, and the best of several turns counts. A ratio of
1.0 means equal speed, more means that ours is faster. `--directory` measures the peak memory of reading directories of
more and more files instead, `--partitions` that of writing to more and more partitions.

    python benchmarks/formats.py --rows 200000
    python benchmarks/formats.py --only "csv →"
    python benchmarks/formats.py --directory 10 100 1000 10000
    python benchmarks/formats.py --partitions 1 100 10000
"""

from __future__ import annotations

import argparse

import formats_read
import formats_write
from turns import print_heading


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--only", default="", help="the cases whose title contains this")
    parser.add_argument("--directory", type=int, nargs="+", help="measure memory for so many files")
    parser.add_argument("--partitions", type=int, nargs="+", help="measure memory for so many partitions")
    parser.add_argument("--format", default="Parquet", help="of the files of these partitions")
    parser.add_argument("--read", help=argparse.SUPPRESS)
    parser.add_argument("--write", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.read:
        formats_read.read_directory(given.read)
    elif given.write:
        formats_write.write_partitions(given.write, given.rows, given.format)
    elif given.directory:
        formats_read.peaks(given.directory, min(given.rows, 5000), __file__)
    elif given.partitions:
        formats_write.peaks(given.partitions, given.rows, given.format, __file__)
    else:
        print_heading(given.rows, given.turns)
        formats_read.compare(given.rows, given.turns, given.only)
        formats_write.compare(given.rows, given.turns, given.only)


if __name__ == "__main__":
    main()
