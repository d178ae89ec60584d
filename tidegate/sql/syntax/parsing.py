"""Parsing: from the text of statements to syntax trees, by the pure and by the compiled sqlglot alike.

Window table functions, `TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '1' MINUTE))`, aren't in sqlglot's grammar.
They are cut out of the tokens before parsing and replaced by names, so that no dialect needs to be subclassed, which
the compiled sqlglot doesn't allow.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidegate.sdk.errors import BuildError
from tidegate.sql.syntax.parse_tree import Node
from tidegate.sql.syntax.table_functions import TableFunction, cut_out, renamed
from tidegate.sql.syntax.text import SqlText


@dataclass(frozen=True, slots=True)
class Parsed:
    """A statement as a syntax tree, with the table functions that names in it stand for."""

    source: SqlText
    tree: Node
    functions: Mapping[str, TableFunction] = field(default_factory=dict)


_QUOTED: Final = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|`([^`\"]*)`", re.DOTALL)


def parsed(text: str, functions: Collection[str] = ()) -> list[Parsed]:
    """The statements of a text. Raises SqlError where it is no SQL, and BuildError without sqlglot.

    `functions` are names of functions of the author's, which win over those of SQL.
    """
    source = SqlText(text)
    if not functions:
        return parsed_tokens(tokens_of(source), source)
    # How the names of the author's functions begin while sqlglot parses, which so takes none for one that it knows.
    marker = f"author_{os.urandom(8).hex()}_"
    return parsed_tokens(_with_functions(tokens_of(source), functions, marker), source, marker)


def tokens_of(source: SqlText) -> list[Any]:
    """The words of a text."""
    sqlglot = _sqlglot()
    from sqlglot.dialects.dialect import Dialect

    try:
        tokens: list[Any] = Dialect.get_or_raise(None).tokenize(_with_double_quotes(source.text))
    except sqlglot.errors.TokenError as error:
        raise _token_error(error, source) from None
    return tokens


def parsed_tokens(tokens: list[Any], source: SqlText, marker: str = "") -> list[Parsed]:
    """The statements that words of a text make up. With a marker, names of the author's functions begin with it."""
    sqlglot = _sqlglot()
    from sqlglot.dialects.dialect import Dialect

    tokens, functions = cut_out(tokens, source)
    try:
        trees = Dialect.get_or_raise(None).parser().parse(tokens, _with_double_quotes(source.text))
    except sqlglot.errors.ParseError as error:
        raise _parse_error(error, source) from None
    found = [tree for tree in trees if tree is not None]
    if marker:
        found = [_with_names_of_functions(tree, marker) for tree in found]
    return [Parsed(source, Node(tree), functions) for tree in found]


_RESERVED: Final = frozenset(
    """
    ALL AND ANY AS BETWEEN CASE CAST CUMULATE DESCRIPTOR DISTINCT DIV ELSE ESCAPE EXCEPT EXISTS EXTRACT FALSE FILTER
    FROM GLOB HAVING HOP ILIKE IN INTERSECT INTERVAL IS JOIN LATERAL LIKE LIMIT NOT NULL ON OR OVER QUALIFY REGEXP RLIKE
    SELECT SESSION SOME TABLE THEN TRUE TRY_CAST TUMBLE UNION USING VALUES WHEN WHERE WITH XOR
    """.split()
)
"""The words that SQL writes in front of a parenthesis without calling a function, and its constants."""

_NO_CALLS_AFTER: Final = frozenset(("ALIAS", "DCOLON"))
"""The words before what a parenthesis makes no call: a type, or the name of a table with those of its columns."""


def _with_functions(tokens: list[Any], functions: Collection[str], marker: str) -> list[Any]:
    """The words of a text, with the calls of these functions marked. Raises BuildError for a name that can't be one."""
    for name in functions:
        if not name.isidentifier() or name.upper() in _RESERVED:
            raise BuildError(f"functions[{name!r}]: {name!r} can't name a function in SQL. Give it another name")
    names = {each.lower() for each in functions}
    return [
        renamed(each, f"{marker}{each.text}") if each.text.lower() in names and _is_called(tokens, at) else each
        for at, each in enumerate(tokens)
    ]


def _is_called(tokens: list[Any], at: int) -> bool:
    """Whether a word is the name of a function that is called there: in no quotes, and no type."""
    called = at + 1 < len(tokens) and tokens[at + 1].token_type.name == "L_PAREN"
    quoted = tokens[at].token_type.name in ("STRING", "IDENTIFIER")
    return called and not quoted and not (at and tokens[at - 1].token_type.name in _NO_CALLS_AFTER)


def _with_names_of_functions(tree: Any, marker: str) -> Any:
    """The tree of sqlglot with the author's functions under their names."""
    for node in list(tree.walk()):
        name = node.args.get("this")
        if isinstance(name, str) and name.startswith(marker) and node.key != "literal":
            node.set("this", name.removeprefix(marker))
    return tree


def _with_double_quotes(text: str) -> str:
    """The text with names in double quotes in place of backticks, as Flink and Spark write them."""
    return _QUOTED.sub(lambda found: found[0] if found[1] is None else f'"{found[1]}"', text)


def only_query(text: str, functions: Collection[str] = ()) -> Parsed:
    """The one statement of a text, which has to be a query and may call functions of the author's."""
    statements = parsed(text, functions)
    if len(statements) != 1:
        raise BuildError(f"tg.Sql takes one query, and the text has {len(statements) or 'no'} statements")
    return statements[0]


def _sqlglot() -> Any:
    try:
        import sqlglot
        import sqlglot.errors
    except ImportError:
        raise BuildError("SQL needs the package sqlglot: pip install 'tidegate[sql]'") from None
    return sqlglot


def _token_error(error: Exception, source: SqlText) -> Exception:
    rest = _QUOTED.sub(lambda found: " " * len(found[0]), source.text)
    opened = re.search(r"['\"`]|/\*", rest)
    if opened is None:
        return source.error(f"the text can't be divided into words of SQL: {_first_line(error)}", None)
    return source.error(f"{opened[0]} begins what nothing ends", opened.start())


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else "it is not closed"


def _in_words(message: str) -> str:
    """A message of sqlglot's without names of its classes."""
    missing = re.match(r"Required keyword: '\w+' missing for <class '(?:\w+\.)*(\w+)'>", message)
    if missing is not None:
        name = "WHEN" if missing[1] == "If" else re.sub(r"(?<=[a-z])(?=[A-Z])", "_", missing[1]).upper()
        return f"a part of {name} is missing"
    token = re.search(r"<Token .*?text: (.*?), line:.*", message)
    if token is None:
        return re.sub(r"but got None$", "but found the end of the text", message)
    found = "the end of the text" if token[1] == "SENTINEL" else token[1]
    return f"{message[: token.start()]}{found}".replace("but got", "but found")


def _parse_error(error: Any, source: SqlText) -> Exception:
    found = error.errors[0] if error.errors else {}
    message = _in_words(str(found.get("description") or _first_line(error)).rstrip(". "))
    line, column, word = found.get("line"), found.get("col"), found.get("highlight") or ""
    if not line or not column:
        return source.error(f"this is no SQL: {message}", None)
    begin = sum(len(each) + 1 for each in source.text.split("\n")[: line - 1])
    # sqlglot gives the column of the last character of the word.
    return source.error(f"this is no SQL: {message}", max(begin + column - max(len(word), 1), 0))
