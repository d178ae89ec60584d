"""Random pipelines of steps that Spark computes itself: queries in SQL, and steps of expressions between them.

Doubles are multiples of a quarter, so that their sums have the same digits in any order.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

import tidegate as tg

EVENTS: Final = pa.schema(
    {
        "k": pa.string(),
        "n": pa.int64(),
        "x": pa.float64(),
        "d": pa.decimal128(12, 2),
        "e": pa.decimal128(20, 6),
        "p": pa.bool_(),
        "at": pa.timestamp("us", "UTC"),
        "tags": pa.list_(pa.string()),
        "counts": pa.map_(pa.string(), pa.int32()),
        "r": pa.struct({"n": pa.int16(), "d": pa.decimal128(9, 4), "of": pa.struct({"s": pa.string()})}),
    }
).set(6, pa.field("at", pa.timestamp("us", "UTC"), nullable=False))
OTHERS: Final = pa.schema(
    [
        pa.field("k", pa.string()),
        pa.field("n", pa.int64(), nullable=False),
        pa.field("f", pa.decimal128(10, 4)),
        pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
    ]
)
TYPES: Final = {
    "k": "string", "n": "bigint", "x": "double", "d": "decimal", "e": "decimal", "f": "decimal", "p": "boolean",
    "at": "timestamp",
}  # fmt: skip
NESTED: Final = {
    "bigint": ("SIZE(tags)", "SIZE(counts)", "counts['x']", "r.n"),
    "string": ("r.of.s", "IF(SIZE(tags) > 1, tags[1], '?')"),
    "boolean": ("ARRAY_CONTAINS(tags, 'b')", "r.of.s IS NULL", "r IS NULL"),
    "decimal": ("r.d",),
}
"""Expressions of arrays, maps and structs, by type."""

Rows: TypeAlias = tg.PCollection[Any]
Step: TypeAlias = Callable[[Rows, Rows], Rows]


def write_tables(folder: Path) -> None:
    """Write `events.parquet` and `others.parquet`."""
    draw = random.Random(5)

    def maybe(value: Any) -> Any:
        return None if draw.random() < 0.2 else value

    def at() -> datetime.datetime:
        return datetime.datetime.fromtimestamp(draw.randrange(-80, 240) / 4, datetime.UTC)

    def decimal(scale: int) -> Decimal:
        return Decimal(draw.choice((0, 5, -5, 150, 12_345, 99_999, -(10**scale)))).scaleb(-scale)

    def record() -> dict[str, Any]:
        inner = maybe({"s": maybe(draw.choice(("é", "x", "")))})
        return {"n": maybe(draw.randrange(-3, 4)), "d": maybe(decimal(4)), "of": inner}

    def event() -> dict[str, Any]:
        return {
            "k": maybe(draw.choice(("a", "b", "ß", ""))),
            "n": maybe(draw.randrange(-3, 6)),
            "x": maybe(draw.choice((0.25, -1.5, 4.0, 0.0, float("nan")))),
            "d": maybe(decimal(2)),
            "e": maybe(decimal(6)),
            "p": maybe(draw.random() < 0.5),
            "at": at(),
            "tags": maybe([maybe(draw.choice("abx")) for _ in range(draw.randrange(4))]),
            "counts": maybe([(key, maybe(draw.randrange(9))) for key in "xy"[: draw.randrange(3)]]),
            "r": maybe(record()),
        }

    def other() -> dict[str, Any]:
        return {"k": maybe(draw.choice("abc")), "n": draw.randrange(-2, 4), "f": maybe(decimal(4)), "at": at()}

    pq.write_table(pa.Table.from_pylist([event() for _ in range(40)], EVENTS), folder / "events.parquet")
    pq.write_table(pa.Table.from_pylist([other() for _ in range(15)], OTHERS), folder / "others.parquet")


@dataclass(slots=True)
class Draw:
    """A random pipeline: its steps, and the columns of the rows so far. The same seed gives the same one.

    `nested`: the rows have the arrays, maps and structs of the events, too. `stamped`: the timestamps of the rows are
    of a column. `windowed`: they are in sessions, as the others aren't. `in_windows`: they are in those of a query, in
    which they may look up the others.
    """

    random: random.Random
    columns: dict[str, str] = field(
        default_factory=lambda: {name: TYPES[name] for name in ("k", "n", "x", "d", "e", "p", "at")}
    )
    nested: bool = True
    stamped: bool = True
    windowed: bool = False
    in_windows: bool = False
    steps: list[Step] = field(default_factory=list)
    text: list[str] = field(default_factory=list)

    def pipeline(self) -> Draw:
        """Draw the steps."""
        for _ in range(self.random.randint(1, 3)):
            self.random.choice(
                (self.select, self.group, self.windows, self.windows, self.within, self.join, self.set_operation,
                 self.rank, self.sessions, self.flatten)
            )()  # fmt: skip
        if self.nested:
            self.select()
        if self.random.random() < 0.15:
            self.query(f"SELECT * FROM t ORDER BY {self.pick(*self.columns)} DESC LIMIT {self.random.randint(1, 9)}")
        return self

    def of(self, events: Rows, others: Rows) -> Rows:
        """The rows of the last step."""
        rows = events
        for step in self.steps:
            rows = step(rows, others)
        return rows

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    # -- steps

    def add(self, step: Step, text: str) -> None:
        self.steps.append(step)
        self.text.append(text)

    def query(self, text: str, columns: dict[str, str] | None = None) -> None:
        """A query of `t`, the rows so far, and of `u`, the others."""
        name = f"query {len(self.steps)}"

        def step(rows: Rows, others: Rows) -> Rows:
            tables: Any = {"t": rows, "u": others} if " u" in text else {"t": rows}
            found: Rows = tables | tg.Sql(text, name=name)
            return found

        self.add(step, text)
        if columns is not None:
            self.columns, self.nested = columns, False

    def select(self) -> None:
        shown = {"at": "timestamp"} if "at" in self.columns else {}
        texts = list(shown)
        for number in range(self.random.randint(1, 4)):
            type = self.pick("bigint", "double", "decimal", "string", "boolean", "timestamp", "date")
            shown[f"c{number}"] = type
            texts.append(f"{self.expression(type)} AS c{number}")
        self.query(f"SELECT {self.pick('', 'DISTINCT ')}{', '.join(texts)} FROM t{self.where()}", shown)
        self.stamped &= "DISTINCT" not in self.text[-1]

    def where(self) -> str:
        return f" WHERE {self.condition()}" if self.random.random() < 0.4 else ""

    def group(self) -> None:
        keys = {
            f"g{number}": self.pick("bigint", "string", "decimal", "boolean")
            for number in range(self.random.randint(0, 2))
        }
        texts = {name: self.expression(type) for name, type in keys.items()}
        shown, results = self.aggregates()
        by = f" GROUP BY {', '.join(texts.values())}" if keys else ""
        having = f" HAVING {self.pick('COUNT(*) > 1', 'MIN(n) < 3' if 'n' in self.columns else 'COUNT(*) < 9')}"
        texts |= results
        self.query(
            f"SELECT {', '.join(f'{text} AS {name}' for name, text in texts.items())} FROM t{self.where()}{by}"
            f"{having if keys and self.random.random() < 0.3 else ''}",
            keys | shown,
        )
        self.stamped = False

    def aggregates(self, taken: Collection[str] = ()) -> tuple[dict[str, str], dict[str, str]]:
        """The types and the texts of aggregates, by names that aren't taken."""
        types, texts = {}, {}  # a ratio is no multiple of a quarter: nothing adds it up
        for number in range(self.random.randint(1, 4)):
            name, kind = f"v{number}_" if f"v{number}" in taken else f"v{number}", self.random.random()
            if kind < 0.2:
                types[name], texts[name] = "bigint", self.pick("COUNT(*)", f"COUNT({self.scalar()})")
            elif kind < 0.35:
                types[name], texts[name] = "bigint", f"COUNT(DISTINCT {self.scalar()})"
            elif kind < 0.7:
                type = self.pick("bigint", "decimal", "double")
                function = self.pick("SUM", "AVG")
                types[name] = "ratio" if type == "bigint" and function == "AVG" else type
                if type == "double":
                    types[name] = "ratio"
                texts[name] = f"{function}({self.pick('', 'DISTINCT ')}{self.expression(type, 1)})"
            elif kind < 0.85:
                types[name] = self.pick("bigint", "decimal", "string", "timestamp", "double")
                texts[name] = f"{self.pick('MIN', 'MAX')}({self.expression(types[name], 1)})"
            else:
                types[name], texts[name] = "boolean", f"{self.pick('BOOL_AND', 'BOOL_OR')}({self.condition()})"
            if self.random.random() < 0.25:
                texts[name] += f" FILTER (WHERE {self.condition(1)})"
        return types, texts

    def windows(self) -> None:
        """Groups in windows of a function of SQL."""
        if "at" not in self.columns:
            self.select()
            return
        keys = [name for name, type in self.columns.items() if type in ("bigint", "string", "decimal", "boolean")]
        keys = self.random.sample(keys, min(len(keys), self.random.randint(0, 2)))
        partition = f" PARTITION BY {', '.join(keys)}" if keys else ""
        function = self.pick(
            "TUMBLE(TABLE t, DESCRIPTOR(at), INTERVAL '7' SECONDS)",
            "TUMBLE(TABLE t, DESCRIPTOR(at), INTERVAL '10' SECONDS, INTERVAL '3' SECONDS)",
            "HOP(TABLE t, DESCRIPTOR(at), INTERVAL '4' SECONDS, INTERVAL '10' SECONDS)",
            "CUMULATE(TABLE t, DESCRIPTOR(at), INTERVAL '5' SECONDS, INTERVAL '20' SECONDS)",
            *(f"SESSION(TABLE t{partition}, DESCRIPTOR(at), INTERVAL '{gap}' SECONDS)" for gap in ("2.25", "4", "0.5")),
        )
        types, texts = self.aggregates(keys)
        bounds = ["window_start", "window_end", *self.random.sample(["window_time"], self.random.randint(0, 1))]
        shown = [*keys, *bounds, *(f"{text} AS {name}" for name, text in texts.items())]
        where = "" if function.startswith("SESSION") and self.random.random() < 0.5 else self.where()
        self.query(
            f"SELECT {', '.join(shown)} FROM TABLE({function}){where} GROUP BY {', '.join((*keys, *bounds))}",
            {**{name: self.columns[name] for name in keys}, **dict.fromkeys(bounds, "timestamp"), **types},
        )
        self.stamped, self.windowed, self.in_windows = False, False, True
        if "window_time" in bounds and self.random.random() < 0.5:
            kept = ", ".join(name for name in self.columns if name not in bounds)
            columns = {name: type for name, type in self.columns.items() if name not in bounds} | {"at": "timestamp"}
            self.query(f"SELECT {kept}, window_time AS at FROM t", columns)

    def sessions(self) -> None:
        """Groups in sessions of the rows' timestamps."""
        if not self.stamped:
            self.group()
            return
        keys = [name for name, type in self.columns.items() if type in ("bigint", "string", "boolean")]
        keys = self.random.sample(keys, min(len(keys), self.random.randint(0, 1)))
        value, gap = self.pick(*self.columns), self.random.choice((1, 2.5, 6))

        def step(rows: Rows, others: Rows) -> Rows:
            windowed = rows | tg.WindowInto(tg.Sessions(gap))
            return windowed | tg.GroupBy(*keys).agg(least=tg.fn.min(value), many=tg.fn.count_distinct(value))

        self.add(step, f"sessions of {keys} with gaps of {gap}: MIN and COUNT DISTINCT of {value}")
        self.columns = {name: self.columns[name] for name in keys} | {"least": self.columns[value], "many": "bigint"}
        self.nested, self.stamped, self.windowed = False, False, True

    def within(self) -> None:
        """A join of rows whose timestamps are near each other."""
        if not self.stamped or any(name.endswith("_2") for name in self.columns):
            self.select()
            return
        keys = [name for name in ("k", "n") if name in self.columns]
        if not keys:
            self.select()
            return
        key, kind = self.pick(*keys), self.pick("inner", "left", "right", "full", "semi", "anti")
        within = self.random.choice((2.25, (-6, -1), (0, 5), (-3, 3.5)))

        def step(rows: Rows, others: Rows) -> Rows:
            return rows | tg.Join.on(others, key, how=kind, within=within, suffix="_2")

        self.add(step, f"{kind} join with others on {key} within {within}")
        if kind not in ("semi", "anti"):
            for name in ("k", "n", "f", "at"):
                if name != key:
                    self.columns[f"{name}_2" if name in self.columns else name] = TYPES[name]

    def join(self) -> None:
        """A join by a key, of which some rows have NULL."""
        key = self.pick(*(name for name, type in self.columns.items() if type in ("bigint", "decimal", "string")), "?")
        if key == "?" or self.windowed:
            self.select()
            return
        of = {"bigint": "n", "decimal": "f", "string": "k"}[self.columns[key]]
        kind = self.pick("JOIN", "LEFT JOIN", *(() if self.in_windows else ("RIGHT JOIN", "FULL JOIN")))
        more = self.pick("", "", f" AND t.{self.pick(*self.columns)} IS NOT NULL")
        kept = self.random.sample(list(self.columns), min(3, len(self.columns)))
        shown = ", ".join([*(f"t.{name} AS l{name}" for name in kept), "u.f AS f", "u.n + 1 AS m"])
        columns = {f"l{name}": self.columns[name] for name in kept} | {"f": "decimal", "m": "bigint"}
        self.query(f"SELECT {shown} FROM t {kind} u ON t.{key} = u.{of}{more}", columns)
        self.stamped = False

    def set_operation(self) -> None:
        """The rows and the others, with decimals of different digits."""
        if self.windowed or self.in_windows:
            self.select()
            return
        operation = self.pick("UNION", "UNION ALL", "INTERSECT", "EXCEPT")
        decimal, number = self.expression("decimal"), self.pick("n", "n - 1", "2")
        left = f"SELECT {decimal} AS c0, {self.expression('bigint')} AS c1 FROM t{self.where()}"
        right = f"SELECT {self.pick('f', 'f * 2', '1.5', 'CAST(n AS DECIMAL(5, 1))')} AS c0, {number} AS c1 FROM u"
        self.query(f"{left} {operation} {right}", {"c0": "decimal", "c1": "bigint"})
        self.stamped = False

    def rank(self) -> None:
        """The first rows of partitions."""
        if self.nested:
            self.select()
        per, by = self.pick(*self.columns), self.pick(*self.columns)
        number = f"ROW_NUMBER() OVER (PARTITION BY {per} ORDER BY {by} {self.pick('ASC', 'DESC')}) AS place"
        self.query(f"SELECT {', '.join(self.columns)} FROM (SELECT *, {number} FROM t) WHERE place <= 2")
        self.stamped = False

    def flatten(self) -> None:
        """The rows twice, some of them filtered."""
        if self.nested:
            self.select()
        condition = self.condition(1)
        name = f"some {len(self.steps)}"

        def step(rows: Rows, others: Rows) -> Rows:
            some = {"t": rows} | tg.Sql(f"SELECT * FROM t WHERE {condition}", name=name)
            plain = {"t": rows} | tg.Sql("SELECT * FROM t", name=f"all {name}")
            return (plain, some) | f"both {name}" >> tg.Flatten()

        self.add(step, f"the rows, and again those where {condition}")

    # -- expressions

    def named(self, type: str) -> list[str]:
        """The columns of a type."""
        return [name for name, each in self.columns.items() if each == type]

    def scalar(self) -> str:
        return self.expression(self.pick("bigint", "decimal", "string", "double", "boolean", "timestamp"), 1)

    def expression(self, type: str, depth: int = 0) -> str:
        """An expression of a type, in SQL."""
        columns = self.named(type)
        if self.nested and type in NESTED and self.random.random() < 0.4:
            return self.pick(*NESTED[type])
        if columns and (depth > 1 or self.random.random() < 0.5):
            return self.pick(*columns)
        if depth > 1:
            return _CONSTANTS[type]
        one, two = (self.expression(type, depth + 1) for _ in "12")
        choices = [f"COALESCE({one}, {two})", f"CASE WHEN {self.condition(depth + 1)} THEN {one} ELSE {two} END"]
        choices += [each.format(one, two) for each in _OPERATIONS[type]]
        for pattern, of in _FROM_OTHERS.get(type, ()):
            choices.append(pattern.format(self.expression(of, depth + 1)))
        return self.pick(*choices)

    def condition(self, depth: int = 0) -> str:
        """A condition, in SQL."""
        type = self.pick("bigint", "string", "decimal", "double", "timestamp", "boolean")
        if depth == 0 and self.random.random() < 0.4:
            return f"({self.condition(1)} {self.pick('AND', 'OR')} NOT {self.condition(1)})"
        one, two = self.expression(type, 1 + depth), self.expression(type, 1 + depth)
        return self.pick(
            f"({one} {self.pick('=', '<>', '<', '>=', '<=>')} {two})",
            f"({self.pick(*(self.named(type) or self.columns))} IS {self.pick('', 'NOT ')}NULL)",
            f"({one} IN ({two}, {_CONSTANTS[type]}))",
        )


_CONSTANTS: Final = {
    "bigint": "2", "double": "1.5e0", "decimal": "0.05", "string": "'x'", "boolean": "TRUE",
    "timestamp": "TIMESTAMP '1970-01-01 00:00:07'", "date": "DATE '1970-01-01'",
}  # fmt: skip
_OPERATIONS: Final[dict[str, tuple[str, ...]]] = {
    "bigint": ("({} + {})", "({} * {})", "ABS({})", "NULLIF({}, {})", "GREATEST({}, {})", "({} % 3)", "({} DIV 2)"),
    "double": ("({} + {})", "(- {})", "LEAST({}, {})", "({} * 0.5e0)"),
    "decimal": ("({} + {})", "({} - {})", "({} * 3)", "ROUND({}, 1)", "GREATEST({}, {})", "({} / 7)", "({} * {})"),
    "string": ("UPPER({})", "({} || {})", "SUBSTRING({}, 1, 2)", "REPLACE({}, {}, '_')"),
    "boolean": ("({} AND {})", "({} OR {})", "(NOT {})"),
    "timestamp": ("({} + INTERVAL '5' SECOND)", "DATE_TRUNC('minute', {})", "LEAST({}, {})"),
    "date": ("({} + INTERVAL '3' DAY)",),
}
_FROM_OTHERS: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "bigint": (("LENGTH({})", "string"), ("SECOND({})", "timestamp"), ("CAST({} AS BIGINT)", "decimal")),
    "double": (("CAST({} AS DOUBLE)", "bigint"),),
    "decimal": (("CAST({} AS DECIMAL(12, 3))", "bigint"), ("CAST({} AS DECIMAL(9, 1))", "decimal")),
    "string": (
        ("CAST({} AS STRING)", "bigint"),
        ("CAST({} AS STRING)", "decimal"),
        ("CAST({} AS STRING)", "timestamp"),
    ),
    "boolean": (("({} > 1)", "bigint"), ("({} LIKE '%x%')", "string")),
    "date": (("CAST({} AS DATE)", "timestamp"),),
}
