# A file for type checkers only, never imported: exactly the lines that end in "wrong" are errors.
import tidegate as tg
from tidegate import combiners


def length(text: str) -> int:
    return len(text)


def half(x: float) -> float:
    return x / 2


def pair(text: str) -> tuple[str, int]:
    return text, len(text)


p = tg.Pipeline()
texts = p | tg.Create(["a", "b"])
numbers = texts | tg.Map(length)
pairs = texts | tg.Map(pair)

a1 = texts | tg.Map(half)  # wrong
a2 = numbers | tg.Map(length)  # wrong
a3 = numbers | tg.Map(half)
a4 = texts | tg.Map(half, name="half")  # wrong
a5 = texts | tg.FlatMap(length)  # wrong
a6 = texts | tg.Filter(half)  # wrong
a7 = texts | tg.Map(3)  # wrong

b1 = numbers | tg.GroupByKey()  # wrong
b2 = pairs | tg.GroupByKey()
b3 = numbers | tg.CombinePerKey(sum)  # wrong
b4 = numbers | combiners.Count.PerKey()  # wrong
b5 = numbers | tg.Keys()  # wrong
b6 = numbers | tg.Values()  # wrong
b7 = pairs | tg.MapValues(half)
b8 = numbers | combiners.ToDict()  # wrong

c1 = numbers | tg.Regex.find("a")  # wrong
c2 = texts | tg.ToString.Kvs()  # wrong
c3 = (pairs, numbers) | tg.CoGroupByKey()  # wrong
c4 = texts | tg.Partition(half, 2)  # wrong
c5 = texts | tg.Create([1])  # wrong

d1 = p | tg.io.ReadFromText("x", encodin="ascii")  # wrong
d2 = p | tg.io.ReadFromTextWithFilename("x", follow="yes")  # wrong
d3 = p | tg.ReadFromCsv("x", delimiter=3)  # wrong
d4 = p | tg.ReadFromJson("x", delimiter=";")  # wrong
d5 = p | tg.ReadFromDelta("x", colums=["a"])  # wrong
d6 = texts | tg.io.ReadAllFromText(poll_interval=1)  # wrong
d7 = texts | tg.io.ReadAllFromCsv(null_value=["-"])  # wrong
d8 = p | tg.ReadFromCsv("x", schema={"a": int}, follow=True, null_values=["-"], timestamp=lambda row: row.a)
