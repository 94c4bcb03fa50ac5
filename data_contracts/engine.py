"""Great Expectations behind one call: which rules fail on a frame, and on which rows.

Building a suite's metric graph costs ten times as much as evaluating it, and a table of one shard
is small. So the graph of a contract is built once per process and evaluated on every frame; rules
that fail there (rare) run again through the public validation call, which names the rows.
Invariants: nothing leaves the machine; a fault of the machinery raises `ExpectationFault` and is
never taken for a finding about the data.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from data_contracts.errors import ExpectationFault
from data_contracts.rules import ROW_TYPES, SEVERITY, Contract, Rule

_RUNTIME = {"result_format": "BOOLEAN_ONLY", "catch_exceptions": False}
_LOCK = threading.RLock()
_SUITES: WeakKeyDictionary[Contract, _Suite] = WeakKeyDictionary()
_CONTEXT: Any = None


@dataclass(frozen=True)
class _Suite:
    rules: tuple[Rule, ...]
    expectations: tuple[Any, ...]
    needed: tuple[dict[str, Any], ...]
    """Per expectation: name of a metric -> its id in the graph."""
    edges: tuple[Any, ...]


@dataclass(frozen=True)
class Failure:
    """A rule that does not hold; `rows` is None where it is about the whole table."""

    rule: Rule
    rows: tuple[int, ...] | None


def failures(contract: Contract, frame: Any) -> list[Failure]:
    """Rules of the contract that do not hold on a pandas frame with a plain 0..n-1 index."""
    with _LOCK:
        try:
            suite = _suite(contract, frame)
            failed = _failed(suite, frame)
            return [_explain(contract, suite, position, frame) for position in failed]
        except ExpectationFault:
            raise
        except Exception as error:
            raise ExpectationFault(
                f"contract {contract.name!r}: Great Expectations failed with "
                f"{type(error).__name__}: {str(error)[:300]}. This says nothing about the data; "
                "check the installed version (1.24 was tried) and the rule's arguments"
            ) from error


def _suite(contract: Contract, frame: Any) -> _Suite:
    if contract not in _SUITES:
        os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
        import great_expectations as gx
        from great_expectations.execution_engine import PandasExecutionEngine
        from great_expectations.validator.validation_graph import ValidationGraph

        built = [
            getattr(gx.expectations, rule.type)(**rule.kwargs, severity=SEVERITY[rule.outcome])
            for rule in contract.rules
        ]
        engine = PandasExecutionEngine(batch_data_dict={"table": frame})
        graph = ValidationGraph(execution_engine=engine)
        names = []
        for expectation in built:
            needed = expectation.get_validation_dependencies(
                execution_engine=engine, runtime_configuration=_RUNTIME
            )
            for metric in needed.get_metric_configurations():
                graph.build_metric_dependency_graph(metric, runtime_configuration=_RUNTIME)
            names.append({name: m.id for name, m in needed.metric_configurations.items()})
        edges = tuple(graph.edges)
        _SUITES[contract] = _Suite(contract.rules, tuple(built), tuple(names), edges)
    return _SUITES[contract]


def _failed(suite: _Suite, frame: Any) -> list[int]:
    from great_expectations.execution_engine import PandasExecutionEngine
    from great_expectations.validator.validation_graph import ValidationGraph

    engine = PandasExecutionEngine(batch_data_dict={"table": frame})
    graph = ValidationGraph(execution_engine=engine, edges=list(suite.edges))
    metrics, aborted = graph.resolve(runtime_configuration=_RUNTIME, show_progress_bars=False)
    if aborted:
        raise ExpectationFault(
            f"metrics {sorted(str(item[0]) for item in aborted)} could not be computed on columns "
            f"{list(frame.columns)}; check the rule's arguments"
        )
    failed = []
    for position, expectation in enumerate(suite.expectations):
        own = {name: metrics[metric] for name, metric in suite.needed[position].items()}
        outcome = expectation._validate(
            metrics=own, runtime_configuration=_RUNTIME, execution_engine=engine
        )
        if not outcome["success"]:
            failed.append(position)
    return failed


def _explain(contract: Contract, suite: _Suite, position: int, frame: Any) -> Failure:
    """Run one failed rule through the public call, for its rows."""
    import great_expectations as gx

    rule = suite.rules[position]
    batch = _batch_definition().get_batch(batch_parameters={"dataframe": frame})
    result = batch.validate(suite.expectations[position], result_format="COMPLETE")
    raised = result.exception_info or {}
    nested = [item for item in raised.values() if isinstance(item, dict)] or [raised]
    if any(item.get("raised_exception") for item in nested) or result.success:
        said = "; ".join(str(item.get("exception_message", "")) for item in nested)
        raise ExpectationFault(
            f"contract {contract.name!r}, rule {rule.name!r}: {said or 'two runs disagree'} "
            f"(great_expectations {gx.__version__}). This says nothing about the data; check the "
            "rule's arguments"
        )
    if rule.type not in ROW_TYPES:
        return Failure(rule, None)
    return Failure(rule, tuple(int(row) for row in result.result["unexpected_index_list"]))


def _batch_definition() -> Any:
    global _CONTEXT
    if _CONTEXT is None:
        import great_expectations as gx

        context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = {"globally": False}
        asset = context.data_sources.add_pandas("frames").add_dataframe_asset("frame")
        _CONTEXT = (context, asset.add_batch_definition_whole_dataframe("whole"))
    return _CONTEXT[1]
