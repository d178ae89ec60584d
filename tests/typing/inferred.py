# A file for type checkers only, never imported. The comment on each line is the type it reveals to mypy and, after a
# slash, to pyright if that differs.
from collections.abc import Iterable, Iterator
from typing import reveal_type

import tidegate as tg
from tidegate import combiners


def length(text: str) -> int:
    return len(text)


def half(x: float) -> float:
    return x / 2


def pair(text: str) -> tuple[str, int]:
    return text, len(text)


def pieces(text: str, sep: str) -> list[str]:
    return text.split(sep)


def by_length(text: str, n: int) -> int:
    return len(text) % n


def stamp(text: str) -> tg.TimestampedValue[str]:
    return tg.TimestampedValue(text, 1)


def total(group: tuple[str, Iterable[int]]) -> int:
    return sum(group[1])


class Stamp(tg.DoFn):
    def process(self, element: str) -> Iterator[tg.TimestampedValue[int]]:
        yield tg.TimestampedValue(1, 1)


class Split(tg.DoFn):
    def process(self, element: str) -> list[str]:
        return element.split()


class Longest(tg.CombineFn[str, str, str]):
    pass


p = tg.Pipeline()
texts = p | tg.Create(["a", "b"])
pairs = texts | tg.Map(pair)
times = texts | tg.Map(pair) | tg.MapValues(half)

reveal_type(texts)  # PCollection[str]
reveal_type(texts | tg.Map(length))  # PCollection[int]
reveal_type(texts | tg.Map(len))  # PCollection[int]
reveal_type(texts | tg.Map(lambda text: len(text)))  # PCollection[int]
reveal_type(texts | tg.Map(length) | tg.Map(half))  # PCollection[float]
reveal_type(texts | "label" >> tg.Map(length))  # PCollection[int]
reveal_type(texts | tg.Map(length, name="label"))  # PCollection[int]
reveal_type(texts | tg.FlatMap(pieces, ","))  # PCollection[str]
reveal_type(texts | tg.FlatMap(pieces, sep=","))  # PCollection[str]
reveal_type(texts | tg.ParDo(Split()))  # PCollection[str]
reveal_type(texts | tg.FlatMap(str.split))  # PCollection[str]
reveal_type(texts | tg.Filter(str.isdigit))  # PCollection[str]
reveal_type(texts | tg.Filter(lambda text: text.isdigit()))  # PCollection[str] / PCollection[Any]
reveal_type(texts | tg.Filter(lambda text: text.isdigit()) | tg.Map(length))  # PCollection[int]
reveal_type(texts | tg.Map(stamp))  # PCollection[str]
reveal_type(texts | tg.Map(lambda text: tg.TimestampedValue(text, 1)) | tg.Map(length))  # PCollection[int]
reveal_type(texts | tg.ParDo(Stamp()))  # PCollection[int]
reveal_type(texts | tg.Map(lambda text: (text, 1)) | tg.GroupByKey() | tg.Map(total))  # PCollection[int]
reveal_type(p | tg.Create([tg.TimestampedValue("a", 1)]))  # PCollection[str]
reveal_type(p | tg.Create({"a": 1}))  # PCollection[tuple[str, int]]
reveal_type((texts, texts) | tg.Flatten())  # PCollection[str]
reveal_type(texts | tg.Reshuffle())  # PCollection[str]
reveal_type(texts | tg.WindowInto(tg.FixedWindows(10)))  # PCollection[str]

reveal_type(pairs)  # PCollection[tuple[str, int]]
reveal_type(pairs | tg.Keys())  # PCollection[str]
reveal_type(pairs | tg.Values())  # PCollection[int]
reveal_type(pairs | tg.KvSwap())  # PCollection[tuple[int, str]]
reveal_type(texts | tg.WithKeys(length))  # PCollection[tuple[int, str]]
reveal_type(texts | tg.WithKeys(1))  # PCollection[tuple[int, str]]
reveal_type(pairs | tg.MapValues(half))  # PCollection[tuple[str, float]]
reveal_type(pairs | tg.FlatMapValues(range))  # PCollection[tuple[str, int]]
reveal_type(pairs | tg.GroupByKey())  # PCollection[tuple[str, Iterable[int]]]
reveal_type(pairs | tg.GroupByKey() | tg.MapValues(sum))  # PCollection[tuple[str, int]]
reveal_type(pairs | tg.GroupByKey() | tg.CombineValues(combiners.MeanFn()))  # PCollection[tuple[str, float]]
reveal_type(pairs | tg.GroupByKey() | tg.Map(lambda group: len(list(group[1]))))  # PCollection[int]

reveal_type(pairs | tg.CombinePerKey(sum))  # PCollection[tuple[str, Any]]
reveal_type(pairs | tg.KvSwap() | tg.CombinePerKey(Longest()))  # PCollection[tuple[int, str]]
reveal_type(texts | tg.CombineGlobally(Longest()))  # PCollection[str]
reveal_type(texts | tg.CombineGlobally(Longest()).without_defaults())  # PCollection[str]
reveal_type(texts | combiners.Count.Globally())  # PCollection[int]
reveal_type(texts | combiners.Count.PerElement())  # PCollection[tuple[str, int]]
reveal_type(pairs | combiners.Count.PerKey())  # PCollection[tuple[str, int]]
reveal_type(pairs | combiners.Mean.PerKey())  # PCollection[tuple[str, float]]
reveal_type(pairs | combiners.Latest.PerKey())  # PCollection[tuple[str, int]]
reveal_type(texts | combiners.Latest.Globally())  # PCollection[str]
reveal_type(texts | combiners.ToList())  # PCollection[list[str]]
reveal_type(texts | combiners.ToSet())  # PCollection[set[str]]
reveal_type(pairs | combiners.ToDict())  # PCollection[dict[str, int]]

reveal_type((pairs, times) | tg.CoGroupByKey())  # PCollection[tuple[str, tuple[list[int], list[float]]]]
reveal_type({"a": pairs, "b": pairs} | tg.CoGroupByKey())  # PCollection[tuple[str, dict[str, list[int]]]]
reveal_type([pairs, pairs] | tg.CoGroupByKey())  # PCollection[tuple[str, tuple[list[int], ...]]]

reveal_type(texts | tg.Partition(by_length, 3))  # tuple[PCollection[str], ...]
reveal_type(texts | tg.Distinct())  # PCollection[str]
reveal_type(texts | tg.Tee(tg.Map(length)))  # PCollection[str]
reveal_type(texts | tg.LogElements("text: "))  # PCollection[str]
reveal_type(texts | tg.BatchElements(1, 10))  # PCollection[list[str]]
reveal_type(texts | tg.Regex.find("a"))  # PCollection[str]
reveal_type(texts | tg.Regex.find_kv("(a)b", 1))  # PCollection[tuple[str, str]]
reveal_type(pairs | tg.ToString.Kvs())  # PCollection[str]
reveal_type(texts | tg.Select(n=length))  # PCollection[Row]
reveal_type(texts | tg.Select(n=length) | tg.Map(lambda row: row.n))  # PCollection[Any]
reveal_type(p | tg.Impulse())  # PCollection[bytes]


def halved(pairs: tg.PCollection[tuple[str, float]]) -> tg.PCollection[tuple[str, float]]:
    return pairs | tg.MapValues(half)


def turn(numbers: tg.PCollection[int]) -> tg.Round[tg.PCollection[int]]:
    return tg.Round(numbers, again=numbers)


def both(
    two: tuple[tg.PCollection[int], tg.PCollection[str]],
) -> tuple[tg.PCollection[int], tg.PCollection[str]]:
    return two


loop_values = p | tg.Create([("a", 1.0)])
loop_numbers = p | tg.Create([1])
loop_pair = (loop_numbers, p | tg.Create(["a"]))
reveal_type(loop_values | tg.Iterate(halved, rounds=3))  # PCollection[tuple[str, float]]
reveal_type(loop_numbers | tg.Iterate(turn))  # IterateResult[PCollection[int]]
reveal_type(loop_pair | tg.Iterate(both, rounds=2))  # tuple[PCollection[int], PCollection[str]]
