"""Steps removed from a pipeline: by `del p["label"]`, or because they could not be applied."""

from __future__ import annotations

import pytest

import tidegate as tg


def words(p: tg.Pipeline) -> tg.PCollection[str]:
    return p | "words" >> tg.Create(["tea", "jam", "tea"])


def labels(p: tg.Pipeline) -> list[str]:
    return [node.label for node in p.portable().nodes]


def test_deleting_a_step_deletes_all_steps_downstream_and_no_others() -> None:
    p = tg.Pipeline()
    tea = words(p)
    counts = tea | "count" >> tg.CombinePerElement(len)
    _ = tea | "with side" >> tg.Map(lambda word, n: (word, n), tg.AsDict(counts))
    _ = ({"a": counts, "b": tea | "pair" >> tg.Map(lambda word: (word, 1))}) | "join" >> tg.CoGroupByKey()
    _ = tea | "length" >> tg.Map(len)
    del p["count"]
    assert labels(p) == ["words", "pair", "length"]
    assert p["length"].collect() == [3, 3, 3]
    with pytest.raises(tg.BuildError, match="there is no step 'count'"):
        p["count"]


def test_the_output_of_a_deleted_step_can_be_neither_read_nor_collected() -> None:
    p = tg.Pipeline()
    tea = words(p)
    counts = tea | "count" >> tg.CombinePerElement(len)
    del p["count"]
    for use in (
        lambda: counts | tg.Map(str),
        lambda: (counts, counts) | tg.Flatten(),
        lambda: tea | tg.Map(lambda word, n: word, tg.AsDict(counts)),
        lambda: counts.head(1),
    ):
        with pytest.raises(tg.BuildError, match=r"PCollection\('count'\) is no longer in the pipeline"):
            use()
    assert labels(p) == ["words"]


def test_the_label_and_the_output_path_of_a_deleted_step_can_be_used_again(tmp_path: object) -> None:
    p = tg.Pipeline()
    tea = words(p)
    for _ in range(2):
        _ = tea | "write" >> tg.io.WriteToText(f"{tmp_path}/out")
        del p["write"]
    assert labels(p) == ["words"]


def test_a_step_inside_a_composite_cannot_be_deleted() -> None:
    p = tg.Pipeline()
    _ = words(p) | "lengths" >> tg.ptransform_fn(lambda pcoll: pcoll | "inner" >> tg.Map(len))()
    with pytest.raises(tg.BuildError, match=r"a part of the step 'lengths', .*: write del p\['lengths'\]"):
        del p["inner"]
    with pytest.raises(tg.BuildError, match="there is no step 'length'; did you mean 'lengths'"):
        del p["length"]


def test_a_step_added_after_a_run_is_refused_even_if_another_step_was_deleted() -> None:
    def run_too_early() -> None:
        with tg.Pipeline() as p:
            run_and_add(p)

    def run_and_add(p: tg.Pipeline) -> None:
        tea = words(p)
        _ = tea | "early" >> tg.Map(len)
        p.run()
        del p["early"]
        _ = tea | "late" >> tg.Map(len)

    with pytest.raises(tg.BuildError, match="the step 'late', applied at"):
        run_too_early()


def test_a_step_that_could_not_be_applied_leaves_no_steps_behind() -> None:
    p = tg.Pipeline()
    tea = words(p)

    @tg.ptransform_fn
    def Broken(pcoll: tg.PCollection[str]) -> tg.PCollection[int]:
        _ = pcoll | "inner" >> tg.Map(len)
        raise LookupError("not yet")

    for _ in range(2):
        with pytest.raises(tg.BuildError, match="LookupError: not yet"):
            tea | "outer" >> Broken()
    assert labels(p) == ["words"]
    assert (tea | "outer" >> tg.Map(len)).collect() == [3, 3, 3]


def test_head_removes_no_steps() -> None:
    p = tg.Pipeline()
    assert (words(p) | "length" >> tg.Map(len)).head(1) == [3]
    assert labels(p) == ["words", "length"]
