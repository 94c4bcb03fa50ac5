"""`tracemill pool`: the node pool, and its simulation."""

import json
from concurrent.futures import ProcessPoolExecutor
from typing import Annotated

import typer
from rich.table import Table

from flows.console import JsonOption, bad_usage_exits_2, out

pool = typer.Typer(
    name="pool",
    help="The node pool: machines that come, go and lie.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@pool.command()
@bad_usage_exits_2
def simulate(
    hours: Annotated[float, typer.Option(min=0.1, max=240, help="Simulated time.")] = 72.0,
    churn: Annotated[
        float, typer.Option(min=0, max=1, help="Sudden losses per node and hour.")
    ] = 0.05,
    liars: Annotated[
        float, typer.Option(min=0, max=1, help="Share of nodes whose results are refused.")
    ] = 0.01,
    shard_seconds: Annotated[
        float, typer.Option(min=0, help="Work per result on both sides; 0: 300 s and 1800 s.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of machines and troubles.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """The SYNTHETIC-2 fleet under our policies and under the original's: where the GPU-hours go."""
    from infra.pool.simulation.compare import POLICIES
    from infra.pool.simulation.compare import simulate as run
    from infra.pool.simulation.fleet import Troubles

    troubles = Troubles(churn=churn, liars=liars)
    with ProcessPoolExecutor(len(POLICIES)) as workers:
        futures = {
            name: workers.submit(run, name, seed, hours, troubles, shard_seconds or None)
            for name in POLICIES
        }
        with out.status("simulating; three days take some minutes ..."):
            results = {name: future.result() for name, future in futures.items()}
    if as_json:
        print(json.dumps(results, indent=2))
        return
    table = Table("figure", *POLICIES, title=f"{hours:g} h, churn {churn:g} per hour, seed {seed}")
    for key in dict.fromkeys(key for result in results.values() for key in result):
        shown = [results[name].get(key, 0) for name in POLICIES]
        table.add_row(key, *(f"{v:,.2f}" if isinstance(v, float) else f"{v:,}" for v in shown))
    out.print(table)
