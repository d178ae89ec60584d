"""What to write in place of a construct that is refused."""

from __future__ import annotations

from typing import Final

_TIME_OF_THE_RUN: Final = "its value would differ whenever the pipeline runs again. Pass a value in params"

_OF_ITEMS: Final = "apply tg.FlatMap before the query, which makes a row of each item"
_MADE_IN_PYTHON: Final = "let a function of tg.udf make it"

JOIN_OF_WINDOWS: Final = (
    "by TABLE(TUMBLE(…)) of both tables and ON l.window_start = r.window_start AND l.window_end = r.window_end"
)
"""How streams are joined in their windows."""

_KINDS: Final = {
    "Any": "write ARRAY_CONTAINS(array, value), or IN (SELECT …)",
    "Array": _MADE_IN_PYTHON,
    "Map": _MADE_IN_PYTHON,
    "Slice": _MADE_IN_PYTHON,
    "Struct": _MADE_IN_PYTHON,
    "Explode": _OF_ITEMS,
    "Lateral": _OF_ITEMS,
    "Unnest": _OF_ITEMS,
    "Window": "of OVER clauses, only ROW_NUMBER() OVER (PARTITION BY … ORDER BY …) is supported",
    "TryCast": "a value that can't be cast is an error, so write CAST, inside CASE WHEN … THEN if need be",
    "Star": "* stands for all columns only in SELECT and COUNT(*)",
    "CurrentTimestamp": _TIME_OF_THE_RUN,
    "CurrentDate": _TIME_OF_THE_RUN,
    "CurrentTime": _TIME_OF_THE_RUN,
    "Rand": _TIME_OF_THE_RUN,
    "Uuid": _TIME_OF_THE_RUN,
    "Fetch": "write LIMIT n",
}

_ARGUMENTS: Final = {
    ("Between", "symmetric"): "write BETWEEN LEAST(a, b) AND GREATEST(a, b)",
    ("Cast", "format"): "write CAST without FORMAT",
    ("Count", "expressions"): "COUNT takes one column, so group by the others",
    ("DateAdd", "unit"): "write DATE_ADD(date, days)",
    ("DateDiff", "unit"): "DATEDIFF counts days, so write DATEDIFF(later, earlier)",
    ("DateSub", "unit"): "write DATE_SUB(date, days)",
    ("Distinct", "on"): "number the rows by ROW_NUMBER() OVER (PARTITION BY … ORDER BY …), and keep those with 1",
    ("Group", "cube"): "write a query for each grouping, and UNION ALL between them",
    ("Group", "grouping_sets"): "write a query for each grouping, and UNION ALL between them",
    ("Group", "rollup"): "write a query for each grouping, and UNION ALL between them",
    ("Group", "all"): "name the columns",
    ("Join", "method"): "name the columns in USING or ON",
    ("Select", "hint"): "leave it out",
    ("Select", "into"): "write INSERT INTO … SELECT in a script",
    ("Select", "laterals"): "apply tg.FlatMap before the query",
    ("Select", "qualify"): "write the query in FROM (…), and the condition in WHERE around it",
    ("Select", "windows"): "write OVER (PARTITION BY … ORDER BY …)",
    ("Star", "except_"): "name the columns",
    ("Star", "rename"): "name the columns",
    ("Star", "replace"): "name the columns",
    ("Table", "db"): "a table has one name, that of a collection",
    ("Table", "pivots"): "write CASE in an aggregate for each column",
    ("Table", "sample"): "apply tg.Filter before the query",
    ("Trim", "expression"): "it takes away spaces alone. For other characters write REGEXP_EXTRACT",
    ("Window", "spec"): "ROW_NUMBER numbers the whole partition",
    ("With", "recursive"): "iterate by tg.Iterate",
}


def for_kind(kind: str) -> str:
    """What to write in place of a kind of nodes: begins with a colon, or is empty."""
    return f": {_KINDS[kind]}" if kind in _KINDS else ""


def for_argument(kind: str, name: str) -> str:
    """What to write in place of an argument of a kind of nodes."""
    return _ARGUMENTS.get((kind, name), "leave it out")
