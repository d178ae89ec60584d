"""`tidegate sql`."""

from __future__ import annotations

import io
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner, Result

import tidegate as tg
from tidegate.cli import app
from tidegate.cli.sql.results import print_rows

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


def test_a_parameter_that_is_given_twice_is_refused() -> None:
    result = sql("-e", "SELECT item FROM 'bids.csv' WHERE price = :n", "--param", "n=1", "--param", "n=2")
    assert (result.exit_code, "--param gives n twice" in result.output) == (2, True)


def test_a_script_inserts_into_a_table_and_prints_its_queries(folder: Path) -> None:
    (folder / "report.sql").write_text(SCRIPT)
    result = sql("report.sql", "--param", "least=3")
    assert (result.exit_code, result.output) == (0, "n\n3\n")
    written = [json.loads(line) for path in (folder / "out").iterdir() for line in path.read_text().splitlines()]
    assert [(row["item"], row["price"]) for row in written] == [("vase", 8), ("lamp", 5)]


def test_a_table_that_no_statement_names_is_warned_of(folder: Path) -> None:
    tables = "CREATE TABLE a WITH ('path' = 'bids.csv'); CREATE TABLE Spare WITH ('path' = 'bids.csv');"
    result = sql("-e", f"{tables} SELECT item FROM A")
    assert result.exit_code == 0, result.output
    assert "warning: no statement reads the table Spare, or inserts into it" in result.stderr
    assert "table a," not in result.stderr


def test_the_plan_is_explained_without_a_run(folder: Path) -> None:
    result = sql("-e", SCRIPT, "--param", "least=3", "--explain")
    assert "GroupBy item" in result.output
    assert re.search(r"Show 1 +statement:\d+\n", result.output)
    assert not (folder / "out").exists()


def test_statements_are_read_at_the_prompt_and_tables_stay() -> None:
    result = sql(
        input="CREATE TABLE b\nWITH ('path' = 'bids.csv');\nSELECT price FROM b\nWHERE item = 'lamp';\nSELECT x FROM b;"
    )
    assert "price\n5\n" in result.output
    assert "there is no column x; there are item, price, at" in result.output


def test_steps_are_of_the_lines_of_the_script(folder: Path) -> None:
    (folder / "report.sql").write_text(
        "-- each\nSELECT item FROM 'bids.csv'\n;\nSELECT\n 1 / (price - 8) AS x FROM 'bids.csv'"
    )
    assert "Query 2/Select  " in sql("report.sql", "--explain").output
    failed = sql("report.sql")
    assert failed.exit_code == 1
    assert "DIVIDE_BY_ZERO" in failed.output
    assert "in step 'Query 2/Select', applied at report.sql:4\n" in failed.output
    assert "in your code" not in failed.output


def test_piped_statements_can_be_explained() -> None:
    result = sql("--explain", input="SELECT item FROM 'bids.csv';\nSELECT price FROM 'bids.csv'")
    assert (result.exit_code, "Query 2" in result.output, "vase" in result.output) == (0, True, False)


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
        ("CREATE TABLE t (a VARCHAR, WATERMARK FOR a AS a) WITH ('path' = 'x.csv')", "needs the column a TIMESTAMP"),
        ("CREATE TABLE t (a VARCHAR, a BIGINT) WITH ('path' = 'x.csv')", "the table t: there are two columns a"),
        ("CREATE TABLE t WITH ('path' = 'x.csv', 'follow' = 'yes')", "'follow' is 'true' or 'false', not 'yes'"),
        (
            "CREATE TABLE t WITH ('path' = 'x.csv', 'strings_can_be_null' = '1')",
            "'strings_can_be_null' is 'true' or 'false', not '1'",
        ),
        (
            "CREATE TABLE t WITH ('path' = 'x.json', 'strings_can_be_null' = 'true')",
            "'strings_can_be_null' is for csv, not for json",
        ),
        ("INSERT INTO t SELECT item FROM 'bids.csv'", "INSERT INTO t: there is no CREATE TABLE of it"),
        ("SELECT * FROM nowhere", "there is no table nowhere"),
        ("SELECT * FROM 'bids.txt'", "'bids.txt' is no table, and its suffix is none of csv, json, parquet"),
        ("SELECT price\nFROM 'no.csv'", "error: no file matches 'no.csv': looked in "),
        ("SELECT price\nFROM 'no.csv'", "\n  line 2, column 6:\n    FROM 'no.csv'\n         ^\n"),
        ("SELECT price FROM 'bids.csv' WHERE price > :n", "error: the parameter n has no value: params has none\n"),
        ("CREATE TABLE t WITH ('path' = 'x.csv')", "neither query a table nor insert into one"),
    ],
)
def test_a_statement_that_is_wrong_is_refused(statement: str, message: str) -> None:
    result = sql("-e", statement)
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize(
    ("statement", "place"),
    [
        ("CREATE TABLE t WITH ('path' = 'x.csv',\n'pth' = 'y')", "'pth'"),
        ("CREATE TABLE t WITH ('path' = 'x.csv',\n'path' = 'y.csv')", "'path' = 'y.csv'"),
        ("CREATE TABLE t WITH ('connector' =\n'kafka', 'path' = 'x')", "'kafka'"),
        ("CREATE TABLE t WITH ('path' = 'x.csv', 'format' =\n'cvs')", "'cvs'"),
        ("CREATE TABLE t WITH ('path' =\n'x.txt')", "'x.txt'"),
        ("CREATE TABLE t WITH ('path' = 'x.csv', 'follow' =\n'yes')", "'yes'"),
        ("CREATE TABLE t WITH ('path' = 'x.json', 'delimiter' = ';')", "'delimiter'"),
        ("CREATE TABLE t (a BIGINT,\nb INT) WITH ('path' = 'x.csv')", "b INT"),
        ("CREATE TABLE t (a BIGINT,\na BIGINT) WITH ('path' = 'x.csv')", "a BIGINT)"),
        ("CREATE TABLE t (a BIGINT, WATERMARK FOR\na AS a) WITH ('path' = 'x.csv')", "a AS a"),
        ("CREATE TABLE t (a TIMESTAMP, WATERMARK FOR a AS b) WITH ('path' = 'x.csv')", "b)"),
        (
            "CREATE TABLE t (a TIMESTAMP, WATERMARK FOR a AS a, WATERMARK FOR a AS a) WITH ('path' = 'x.csv')",
            "WATERMARK FOR a AS a)",
        ),
        ("CREATE TABLE t (a TIMESTAMP, WATERMARK FOR a AS a - INTERVAL '5' ELLS) WITH ('path' = 'x.csv')", "'5' ELLS"),
    ],
)
def test_an_error_in_create_table_points_to_what_is_wrong_in_it(statement: str, place: str) -> None:
    result = sql("-e", f"{statement}; SELECT 1 AS x FROM 'bids.csv'")
    shown, caret = result.output.splitlines()[-2:]
    assert shown[caret.index("^") :].startswith(place), result.output


def test_csv_of_another_delimiter_is_read_and_written(folder: Path) -> None:
    (folder / "semicolons.csv").write_text(BIDS.replace(",", ";"))
    create = """
    CREATE TABLE some WITH ('path' = 'semicolons.csv', 'delimiter' = ';');
    CREATE TABLE bars WITH ('path' = 'out/bars', 'format' = 'csv', 'delimiter' = '|');
    """
    result = sql("-e", f"{create} INSERT INTO bars SELECT item, price FROM some WHERE price > 4")
    assert result.exit_code == 0
    (written,) = (folder / "out").iterdir()
    assert sorted(written.read_text().splitlines()) == ['"item"|"price"', '"lamp"|5', '"vase"|8']


def test_an_empty_field_of_csv_is_null_in_a_column_of_text_if_the_table_says_so(folder: Path) -> None:
    (folder / "kinds.csv").write_text("kind,n\na,1\n,2\n")
    table = "CREATE TABLE kinds WITH ('path' = 'kinds.csv'{}); SELECT COUNT(kind) AS n FROM kinds"
    assert sql("-e", table.format("")).output == "n\n2\n"
    assert sql("-e", table.format(", 'strings_can_be_null' = 'true'")).output == "n\n1\n"
    assert sql("-e", table.format(", 'strings_can_be_null' = 'FALSE'")).output == "n\n2\n"


def test_a_file_with_names_that_are_no_identifiers_is_read_by_its_other_columns(folder: Path) -> None:
    (folder / "w.csv").write_text("order id,n\n1,2\n")
    assert "in SQL, write a CREATE TABLE that names others" in sql("-e", "SELECT n FROM 'w.csv'").output
    assert sql("-e", "CREATE TABLE w (n BIGINT) WITH ('path' = 'w.csv'); SELECT n FROM w").output == "n\n2\n"


def test_a_column_that_a_file_lacks_is_null_if_the_table_says_so(folder: Path) -> None:
    (folder / "in").mkdir()
    (folder / "in" / "1.csv").write_text("item\nvase\n")
    (folder / "in" / "2.csv").write_text("item,price\nlamp,5\n")
    table = "CREATE TABLE bids (item VARCHAR, price BIGINT) WITH ('path' = 'in/*.csv'{});"
    query = "SELECT item, price FROM bids ORDER BY item LIMIT 2"
    union = ", 'schema_evolution' = 'union'"
    assert sql("-e", f"{table.format(union)} {query}").output == "item,price\nlamp,5\nvase,\n"
    assert "schema_evolution='union' puts None in its place" in sql("-e", f"{table.format('')} {query}").output
    refused = sql("-e", f"{table.format(union.replace('union', 'unite'))} {query}").output
    assert "schema_evolution is 'refuse' or 'union', not 'unite'" in refused


@pytest.mark.parametrize("option", ["'schema_evolution' = 'union'", "'follow' = 'true'"])
def test_a_table_whose_columns_only_its_files_tell_is_refused(option: str) -> None:
    result = sql("-e", f"CREATE TABLE bids\nWITH ('path' = 'bids*.csv', {option}); SELECT item FROM bids")
    assert result.exit_code == 2
    assert "the columns of bids can't be told from its files now: name them, as in CREATE TABLE bids (" in (
        result.output
    )


def test_a_folder_that_is_followed_may_be_empty_at_first_if_the_table_names_its_columns(folder: Path) -> None:
    (folder / "in").mkdir()
    table = "CREATE TABLE t (price DECIMAL(10, 2)) WITH ('path' = 'in/*.csv', 'follow' = 'true');"
    explained = sql("--explain", "-e", f"{table} SELECT price * 2 AS double FROM t")
    assert "→ double decimal(" in explained.output


TABLES = """
CREATE TABLE bids (item VARCHAR NOT NULL, price BIGINT NOT NULL) WITH ('path' = 'bids.csv');
CREATE TABLE some (item VARCHAR NOT NULL, price BIGINT) WITH ('path' = 'out/some', 'format' = 'json');
"""


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        ("CREATE TABLE Some WITH ('path' = 'bids.csv')", "the table Some is created twice"),
        ("INSERT INTO some SELECT item, price / 2 AS price FROM bids", "the column price is BIGINT in the table and"),
        ("INSERT INTO some SELECT NULLIF(item, 'x') AS item, price FROM bids", "the column item is NOT NULL in the"),
        ("INSERT INTO some SELECT price, item FROM bids", "the table has the columns item, price, and the query price"),
        ("INSERT INTO bids SELECT * FROM bids", "the script reads bids.csv, too, in the same run"),
        ("INSERT INTO some SELECT * FROM bids; SELECT * FROM some", "the script inserts into out/some, too"),
    ],
)
def test_tables_are_neither_created_twice_nor_given_other_rows_nor_read_while_written(
    folder: Path, statements: str, message: str
) -> None:
    result = sql("-e", TABLES + statements)
    assert result.exit_code == 2
    assert message in result.output
    assert not (folder / "out").exists()


def test_the_case_of_a_table_s_name_does_not_matter() -> None:
    result = sql("-e", TABLES + "INSERT INTO Some SELECT * FROM Bids; SELECT COUNT(*) AS n FROM BIDS")
    assert (result.exit_code, result.output) == (0, "n\n3\n")


def test_flags_may_follow_statements_and_a_file_has_to_be_there() -> None:
    assert sql("-e", "SELECT COUNT(*) AS n FROM 'bids.csv'", "--runner", "direct").output == "n\n3\n"
    missing = sql("nowhere.sql")
    assert (missing.exit_code, "File 'nowhere.sql' does not exist" in missing.output) == (2, True)


def test_a_parameter_that_no_statement_has_is_refused() -> None:
    result = sql(
        "-e", "SELECT item FROM 'bids.csv'; SELECT :a AS a FROM 'bids.csv'", "--param", "a=1", "--param", "b=2"
    )
    assert (result.exit_code, "the statements have no parameter :b" in result.output) == (2, True)


def test_piped_statements_end_with_the_input_and_tell_of_failures() -> None:
    result = sql(input="SELECT COUNT(*) AS n FROM 'bids.csv'\n")
    assert (result.exit_code, result.output) == (0, "n\n3\n")
    failed = sql(input="SELECT x FROM 'bids.csv';\nSELECT COUNT(*) AS n FROM 'bids.csv';\n")
    assert (failed.exit_code, "n\n3\n" in failed.output) == (1, True)
    again = sql(input=TABLES + "CREATE TABLE some WITH ('path' = 'bids.csv');\nSELECT COUNT(*) AS n FROM some;\n")
    assert (again.exit_code, again.output) == (0, "n\n3\n")


def test_a_terminal_shows_brackets_and_tells_empty_strings_from_null(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", Terminal())
    print_rows(tg.Pipeline() | tg.Create([Named("[red]", ""), Named("x", None)]) | tg.Select("name", "note"))
    shown = [line for line in cast(Terminal, sys.stdout).getvalue().splitlines() if "red" in line or "x" in line]
    assert (["[red]" in shown[0], "NULL" in shown[0]], "NULL" in shown[1]) == ([True, False], True)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@dataclass(frozen=True)
class Named:
    name: str
    note: str | None
