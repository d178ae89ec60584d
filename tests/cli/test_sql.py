"""`tidegate sql`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tidegate.cli import app

BIDS = """item,price,at
vase,3,2025-01-01T12:01:00Z
vase,8,2025-01-01T12:07:00Z
lamp,5,2025-01-01T12:08:00Z
"""
SCRIPT = """
CREATE TABLE bids (item VARCHAR NOT NULL, price BIGINT, at TIMESTAMP(3) NOT NULL,
    WATERMARK FOR at AS at - INTERVAL '5' SECONDS)
WITH ('connector' = 'filesystem', 'path' = 'bids.csv', 'format' = 'csv');
CREATE TABLE best WITH ('path' = 'out/best', 'format' = 'json');
INSERT INTO best SELECT window_start, item, MAX(price) AS price
FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' MINUTES)) WHERE price > :least
GROUP BY window_start, window_end, item;
SELECT COUNT(*) AS n FROM bids
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bids.csv").write_text(BIDS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sql(*arguments: str, input: str = "") -> Result:
    return CliRunner().invoke(app, ["sql", *arguments], input=input)


def test_a_query_over_a_file_prints_csv_where_there_is_no_terminal() -> None:
    query = "SELECT item, MAX(price) AS best FROM 'bids.csv' WHERE item <> :other GROUP BY item"
    result = sql("-e", query, "--param", "other=x")
    assert result.output == "item,best\nvase,8\nlamp,5\n"


def test_a_script_inserts_into_a_table_and_prints_its_queries(folder: Path) -> None:
    (folder / "report.sql").write_text(SCRIPT)
    result = sql("report.sql", "--param", "least=3")
    assert (result.exit_code, result.output) == (0, "n\n3\n")
    written = [json.loads(line) for path in (folder / "out").iterdir() for line in path.read_text().splitlines()]
    assert [(row["item"], row["price"]) for row in written] == [("vase", 8), ("lamp", 5)]


def test_the_plan_is_explained_without_a_run(folder: Path) -> None:
    result = sql("-e", SCRIPT, "--param", "least=3", "--explain")
    assert "GroupBy item" in result.output
    assert not (folder / "out").exists()


def test_statements_are_read_at_the_prompt_and_tables_stay() -> None:
    result = sql(
        input="CREATE TABLE b\nWITH ('path' = 'bids.csv');\nSELECT price FROM b\nWHERE item = 'lamp';\nSELECT x FROM b;"
    )
    assert "price\n5\n" in result.output
    assert "there is no column x; there are item, price, at" in result.output


def test_an_error_points_into_the_script_and_names_no_line_of_python() -> None:
    result = sql("-e", "SELECT *\nFROM 'bids.csv'\nWHERE itm = 1")
    assert result.exit_code == 2
    assert result.output.endswith("line 3, column 7:\n    WHERE itm = 1\n          ^\n")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE TABLE t (a BIGINT)", "WITH is missing: write CREATE TABLE"),
        ("CREATE TABLE t WITH ('path' = 'x.csv', 'pth' = 'y')", "there is no option 'pth'; there are connector, path"),
        ("CREATE TABLE t WITH ('connector' = 'kafka', 'path' = 'x')", "there is no connector 'kafka'"),
        ("CREATE TABLE t WITH ('path' = 'x.txt')", "the format 'txt' is none of csv, json, parquet, avro, arrow"),
        ("CREATE TABLE t (a INT) WITH ('path' = 'x.csv')", "the column a has the type INT"),
        ("CREATE TABLE t (WATERMARK FOR a AS a) WITH ('path' = 'x.csv')", "needs the column a TIMESTAMP"),
        ("INSERT INTO t SELECT item FROM 'bids.csv'", "INSERT INTO t: there is no CREATE TABLE of it"),
        ("SELECT * FROM nowhere", "there is no table nowhere"),
        ("CREATE TABLE t WITH ('path' = 'x.csv')", "neither query a table nor insert into one"),
    ],
)
def test_a_statement_that_is_wrong_is_refused(statement: str, message: str) -> None:
    result = sql("-e", statement)
    assert result.exit_code == 2
    assert message in result.output
