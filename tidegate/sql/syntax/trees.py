"""Rewriting of expressions: substitution, conjuncts, and conditions that a disjunction implies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tidegate.sdk.relational.expressions import Call, Case, Cast, Column, Tree


def substituted(tree: Tree, replacements: Mapping[Tree, Tree], *, by_name: bool = False) -> Tree:
    """The tree with other parts in place of those that are keys. With `by_name`, columns are compared by name only."""
    if by_name and isinstance(tree, Column):
        found = replacements.get(Column(tree.name))
        return tree if found is None or not isinstance(found, Column) else replace(tree, name=found.name)
    if tree in replacements:
        return replacements[tree]
    match tree:
        case Call(arguments=arguments):
            return replace(
                tree, arguments=tuple(substituted(each, replacements, by_name=by_name) for each in arguments)
            )
        case Case(branches=branches, otherwise=otherwise):
            return replace(
                tree,
                branches=tuple(
                    (
                        substituted(condition, replacements, by_name=by_name),
                        substituted(value, replacements, by_name=by_name),
                    )
                    for condition, value in branches
                ),
                otherwise=substituted(otherwise, replacements, by_name=by_name),
            )
        case Cast(operand=operand):
            return replace(tree, operand=substituted(operand, replacements, by_name=by_name))
        case _:
            return tree


def conjuncts(tree: Tree) -> list[Tree]:
    """The conditions that all have to be true for a condition to be."""
    match tree:
        case Call(operation="and", arguments=(one, two)):
            return [*conjuncts(one), *conjuncts(two)]
        case _:
            return [tree]


def implied(tree: Tree) -> list[Tree]:
    """The conditions that every branch of a disjunction has: `a AND b OR a AND c` implies `a`."""
    branches = [conjuncts(each) for each in _disjuncts(tree)]
    if len(branches) < 2:
        return []
    return [each for each in branches[0] if all(each in other for other in branches[1:])]


def _disjuncts(tree: Tree) -> list[Tree]:
    match tree:
        case Call(operation="or", arguments=(one, two)):
            return [*_disjuncts(one), *_disjuncts(two)]
        case _:
            return [tree]
