"""What the commands of the command line share: consoles, options, exit code 2 for bad usage."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import Annotated, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.text import Text

PIPE_WIDTH = 150
"""Columns where the output is no terminal, so that tables in logs are not cut to 80."""

out = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
err = Console(stderr=True, width=None if sys.stderr.isatty() else PIPE_WIDTH)

P = ParamSpec("P")
R = TypeVar("R")

ProfileOption = Annotated[
    str, typer.Option("--profile", help="Name of a file in configs/, or a path to a .toml file.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change one value: a.b=value. May be given several times."),
]
RunIdOption = Annotated[
    str, typer.Option("--run-id", help="Id of the run; one that exists is resumed.")
]
RootOption = Annotated[
    str, typer.Option("--root", help="Storage root: a directory or an fsspec URI.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def bad_usage_exits_2(command: Callable[P, R]) -> Callable[P, R]:
    """Errors of configuration and usage end with their text and exit code 2, no traceback."""

    @wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        from data_contracts.errors import ContractError
        from flows.errors import FlowError
        from infra.models.errors import ModelError
        from infra.pool.agent.errors import AgentError
        from infra.pool.core.errors import CoreError
        from infra.pool.errors import PoolError
        from infra.storage.errors import StorageError
        from tasks.collect.errors import CollectError
        from tasks.report.errors import ReportError
        from tasks.validate.errors import ValidateError

        usage = (
            FlowError,
            ContractError,
            ModelError,
            AgentError,
            CoreError,
            PoolError,
            StorageError,
            CollectError,
            ReportError,
            ValidateError,
        )
        try:
            return command(*args, **kwargs)
        except usage as error:
            err.print(Text.assemble(("error: ", "red"), str(error)), soft_wrap=True)
            raise typer.Exit(2) from error

    return wrapped
