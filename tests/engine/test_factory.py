"""The operators that a process imports before it forks others are those that the factory imports for steps."""

from __future__ import annotations

import ast
import inspect

from tidegate.runners.engine import factory

PREFIX = "tidegate.runners.engine."
RARE = ("asynchronous.", "iteration.", "grouping.kept_tables")
"""Few pipelines have calls or loops, and asyncio takes long to import."""


def test_a_process_imports_all_but_rare_operators_before_it_forks_others() -> None:
    functions = [each for each in ast.parse(inspect.getsource(factory)).body if isinstance(each, ast.FunctionDef)]
    imported = {
        each.module.removeprefix(PREFIX)
        for function in functions
        for each in ast.walk(function)
        if isinstance(each, ast.ImportFrom) and each.module is not None
    }
    assert {module for module in imported if not module.startswith(RARE)} == set(factory._OPERATORS)
    assert all(any(module.startswith(rare) for module in imported) for rare in RARE)
    assert len(set(factory._OPERATORS)) == len(factory._OPERATORS)
