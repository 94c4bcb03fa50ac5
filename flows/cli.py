"""The command line `tracemill`.

Exit codes: 0 done, 1 failed or incomplete, 2 bad usage. Heavy imports happen inside the commands,
so that `--help` answers at once.
"""

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.console import (
    JsonOption,
    ProfileOption,
    RootOption,
    RunIdOption,
    SetOption,
    bad_usage_exits_2,
    err,
    out,
)
from flows.node_cli import node
from flows.pool_cli import pool
from flows.proof_cli import proof
from flows.rl_cli import rl
from flows.validator_cli import validator

app = typer.Typer(
    name="tracemill",
    help="Verified, difficulty-annotated reasoning data from GPUs that nobody has to trust.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(node)
app.add_typer(pool)
app.add_typer(proof)
app.add_typer(validator)
app.command()(rl)


@app.command()
@bad_usage_exits_2
def plan(
    profile: ProfileOption = "local", set_: SetOption = None, as_json: JsonOption = False
) -> None:
    """What a run would do: tasks, models, shards, tokens and disk. Starts nothing."""
    from flows.estimate import estimate
    from flows.plan_view import plan_tables
    from flows.profiles import load_profile

    result = estimate(load_profile(profile, set_ or []))
    if as_json:
        print(json.dumps(result.to_json(), indent=2))
        return
    for table in plan_tables(result):
        out.print(table)


@app.command()
@bad_usage_exits_2
def run(
    profile: ProfileOption = "local",
    set_: SetOption = None,
    run_id: RunIdOption = "",
    as_json: JsonOption = False,
) -> None:
    """Tasks to published splits. The same run id goes on where it stopped."""
    # The progress display says what Prefect's log would; a worker's or a user's own level stays.
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "WARNING")
    from flows.local import run_here
    from flows.profiles import load_profile

    raise typer.Exit(run_here(load_profile(profile, set_ or []), run_id, out, err, as_json))


@app.command()
@bad_usage_exits_2
def status(run_id: str, root: RootOption = "./data", as_json: JsonOption = False) -> None:
    """The funnel of a run, finished or not: where every row went and what is missing."""
    from flows.runs import find_run
    from flows.tables import print_funnel
    from tasks.report.funnel import funnel

    found = find_run(root, run_id)
    result = funnel(found.store, found.layout)
    if as_json:
        print(json.dumps(result.to_json(), indent=2))
    else:
        print_funnel(out, result)


@app.command()
@bad_usage_exits_2
def report(run_id: str, root: RootOption = "./data") -> None:
    """Write the run's HTML report and funnel.json, and print where they are."""
    from flows.artifacts import write_results
    from flows.runs import find_run

    found = find_run(root, run_id)
    write_results(found)
    print(found.store.uri(found.layout.report))


@app.command()
def doctor(as_json: JsonOption = False) -> None:
    """What is installed and works here, what not, and what follows from it."""
    from flows.doctor import checks

    found = checks()
    if as_json:
        print(json.dumps([check.to_json() for check in found], indent=2))
    else:
        for check in found:
            mark = "[green]ok[/green]  " if check.ok else "[yellow]none[/yellow]"
            out.print(f"{mark} [bold]{check.name}[/bold]: {check.detail}", highlight=False)
    if any(check.needed and not check.ok for check in found):
        raise typer.Exit(1)


@app.command()
@bad_usage_exits_2
def verify(
    file: Annotated[
        Path, typer.Argument(help="Rows as .jsonl or .parquet; - reads JSON lines from stdin.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="Write results here: parquet by the name .parquet, else JSON lines.",
        ),
    ] = None,
    workers: Annotated[
        int, typer.Option(min=0, max=256, help="Scoring processes; 0: one per core.")
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Score rows that have task_type, completion, verification_info and perhaps id.

    One result per row, in order: id, score, status, verifier, detail, seconds. Exit code 0 says
    that every row has its result, whatever its status.
    """
    from flows.verify_file import verify_file

    raise typer.Exit(verify_file(file, output, workers, as_json, err))


@app.command()
@bad_usage_exits_2
def up(port: Annotated[int, typer.Option(help="Port of the server on loopback.")] = 4200) -> None:
    """Start a Prefect server, a work pool, a worker and all deployments on this machine."""
    from flows.server import start

    url = start(port, err)
    out.print(f"Prefect UI: {url}  (stop with `tracemill down`)")


@app.command()
@bad_usage_exits_2
def down() -> None:
    """Stop what `tracemill up` started."""
    from flows.server import stop

    out.print("stopped" if stop() else "nothing was running")


def main() -> Any:
    """Entry point for `python -m flows.cli`."""
    return app()


if __name__ == "__main__":
    sys.exit(main())
