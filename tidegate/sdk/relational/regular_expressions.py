"""Regular expressions: the part that means the same in Java and in Python, translated to Python's.

What differs is refused: look-around, back-references, possessive quantifiers, flags, `\\b`, Unicode properties, classes
inside classes, and a repetition of what may be empty. Classes such as `\\w` are those of ASCII; `.` leaves out Java's
line terminators, and `$` also stands before the last of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NoReturn

_DOT: Final = "[^\n\r\u0085\u2028\u2029]"
_END: Final = "(?=(?:\r\n|[\n\r\u0085\u2028\u2029])?\\Z)(?<!\r(?=\n))"
_CLASSES: Final = {"d": "0-9", "w": "a-zA-Z0-9_", "s": " \t\n\x0b\f\r"}
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_REPETITION: Final = re.compile(r"\{([0-9]{1,4})(,([0-9]{1,4})?)?\}")


class PatternError(ValueError):
    """What is wrong with a pattern, or what part of it means something else on another system."""


@dataclass(frozen=True, slots=True)
class Translated:
    """A regular expression of Python's, and how many groups it captures."""

    text: str
    groups: int


def translated(pattern: str) -> Translated:
    """The pattern as Python has it. Raises PatternError."""
    parser = _Parser(pattern)
    text, _ = parser.alternatives()
    if parser.at < len(pattern):
        parser.refuse("a parenthesis is closed that was not opened")
    return Translated(text, parser.groups)


class _Parser:
    """Reads a pattern from left to right. Each method returns the translation, and whether it can match nothing."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.groups = 0

    def refuse(self, why: str) -> NoReturn:
        raise PatternError(f"{why}, at position {self.at + 1}")

    def alternatives(self) -> tuple[str, bool]:
        text, empty = self._sequence()
        while self._peek() == "|":
            self.at += 1
            other, other_empty = self._sequence()
            text, empty = f"{text}|{other}", empty or other_empty
        return text, empty

    def _peek(self) -> str:
        return self.pattern[self.at : self.at + 1]

    def _take(self) -> str:
        found = self._peek()
        if not found:
            self.refuse("the pattern ends too early")
        self.at += 1
        return found

    def _sequence(self) -> tuple[str, bool]:
        parts, empty = [], True
        while self._peek() not in ("", "|", ")"):
            part, part_empty = self._repeated()
            parts.append(part)
            empty = empty and part_empty
        return "".join(parts), empty

    def _repeated(self) -> tuple[str, bool]:
        start = self._peek()
        text, empty = self._atom()
        found = self._quantifier()
        if found is None:
            return text, empty
        if start in ("^", "$"):
            self.refuse("a quantifier follows an anchor")
        quantifier, least = found
        if empty and quantifier.rstrip("?") not in ("", "{1}"):
            self.refuse("what may be empty is repeated")
        if self._peek() == "?":
            self.at += 1
            quantifier += "?"
        if self._peek() in ("+", "*", "?") or self._quantifier() is not None:
            self.refuse("a quantifier follows another one")
        return text + quantifier, empty or least == 0

    def _quantifier(self) -> tuple[str, int] | None:
        match self._peek():
            case "*" | "?" as sign:
                self.at += 1
                return sign, 0
            case "+":
                self.at += 1
                return "+", 1
            case "{":
                found = _REPETITION.match(self.pattern, self.at)
                if found is None:
                    self.refuse("a brace that repeats nothing is written with a backslash")
                low, high = int(found[1]), int(found[3] or found[1])
                if low > high or high > 1000:
                    self.refuse("a repetition is at most 1,000, and its first number not the greater one")
                self.at = found.end()
                return found[0], low
        return None

    def _atom(self) -> tuple[str, bool]:
        match character := self._take():
            case ".":
                return _DOT, False
            case "^":
                return "\\A", True
            case "$":
                return _END, True
            case "(":
                return self._group()
            case "[":
                return self._class(), False
            case "\\":
                return self._escaped(), False
            case "*" | "+" | "?" | "{":
                self.at -= 1
                self.refuse("a quantifier follows nothing")
            case "]" | "}" as sign:
                self.at -= 1
                self.refuse(f"{sign} is written with a backslash")
        return re.escape(character), False

    def _group(self) -> tuple[str, bool]:
        begin = "("
        if self._peek() == "?":
            if self.pattern[self.at : self.at + 2] != "?:":
                self.refuse("look-around, flags and names of groups are not supported")
            self.at += 2
            begin = "(?:"
        else:
            self.groups += 1
        text, empty = self.alternatives()
        if self._peek() != ")":
            self.refuse("a parenthesis is not closed")
        self.at += 1
        return f"{begin}{text})", empty

    def _escaped(self) -> str:
        character = self._take()
        if character.lower() in _CLASSES:
            return f"[{'^' if character.isupper() else ''}{_CLASSES[character.lower()]}]"
        return re.escape(self._character(character))

    def _character(self, escaped: str) -> str:
        """The character that stands after a backslash."""
        if escaped in _CONTROLS:
            return _CONTROLS[escaped]
        if escaped.isalnum() or not escaped.isascii():
            self.at -= 1
            self.refuse(f"\\{escaped} is not supported")
        return escaped

    def _class(self) -> str:
        negated = self._peek() == "^"
        self.at += negated
        parts: list[str] = []
        while (character := self._take()) != "]" or not parts:
            if character == "\\" and self._peek() in _CLASSES:
                parts.append(_CLASSES[self._take()])
                if self._peek() == "-" and self.pattern[self.at + 1 : self.at + 2] != "]":
                    self.refuse("a class begins no range")
                continue
            first = self._member(character)
            if self._peek() == "-" and self.pattern[self.at + 1 : self.at + 2] not in ("", "]"):
                self.at += 1
                last = self._member(self._take())
                if first > last:
                    self.refuse("the ends of a range are in the wrong order")
                parts.append(f"{re.escape(first)}-{re.escape(last)}")
            else:
                parts.append(re.escape(first))
        return f"[{'^' if negated else ''}{''.join(parts)}]"

    def _member(self, character: str) -> str:
        """A character in a class."""
        match character:
            case "\\":
                return self._character(self._take())
            case "[" | "]" | "^":
                self.at -= 1
                self.refuse(f"{character} in a class is written with a backslash")
            case "&" if self._peek() == "&":
                self.refuse("an intersection of classes is not supported")
        return character
