"""`tracemill validator`: the service that judges uploads, and what an audit policy catches."""

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from flows.console import JsonOption, ProfileOption, RootOption, SetOption, bad_usage_exits_2, out

validator = typer.Typer(
    name="validator", help="Judge uploads of nodes; plan audits.", no_args_is_help=True
)

SHARES = (0.5, 0.1, 0.01)
TRIALS = 1000


def state_dir(model: str) -> Path:
    """Where the queue of a model's validator lies."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "tracemill" / "validator" / model.replace("/", "--")


@validator.command()
@bad_usage_exits_2
def serve(
    model: Annotated[str, typer.Option(help="Model that this validator judges.")],
    root: RootOption,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8470,
    token_file: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="File with the bearer token; else TRACEMILL_VALIDATOR_TOKEN. Off loopback one is "
            "needed.",
        ),
    ] = None,
    state: Annotated[
        Path | None, typer.Option(help="Directory of the queue; default: the user's state.")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, max=64, help="Threads of the model.")] = 1,
    profile: ProfileOption = "local",
    set_: SetOption = None,
) -> None:
    """Judge uploads below a storage root for one model, over HTTP. See toploc/README.md."""
    from flows.profiles import load_profile
    from tasks.validate.service_run import serve as serve_here

    serve_here(
        model,
        root,
        load_profile(profile, set_ or []).validation,
        host=host,
        port=port,
        state=state or state_dir(model),
        token_file=token_file,
        threads=threads,
    )


@validator.command()
@bad_usage_exits_2
def audit(
    shards: Annotated[int, typer.Option(min=1, max=10_000, help="Shards of one node.")] = 100,
    target: Annotated[
        float, typer.Option(min=0.01, max=0.999999, help="Wanted probability of a catch.")
    ] = 0.99,
    halving: Annotated[
        int, typer.Option(min=1, help="Honest verdicts after which the rate is one half.")
    ] = 8,
    early: Annotated[
        int, typer.Option(min=0, help="Shards that the node does honestly first.")
    ] = 0,
    detect: Annotated[
        float, typer.Option(min=0.01, max=1.0, help="Chance that an audit sees what is wrong.")
    ] = 1.0,
    cost: Annotated[
        float, typer.Option(min=0.0, help="Cost of verification over generation, audited in full.")
    ] = 1.0,
    as_json: JsonOption = False,
) -> None:
    """The floor that catches a cheating node, by share of its lies: computed and simulated."""
    from toploc.audit import (
        AuditPolicy,
        catch_chance,
        forecast,
        needed_floor,
        needed_rate,
        schedule,
        simulate,
    )

    rows: list[dict[str, Any]] = []
    for share in SHARES:
        plan = schedule(shards, share, early)
        lies = int(sum(plan))
        floor = needed_floor(target, plan, halving, detect)
        policy = AuditPolicy(floor or 1.0, halving)
        expected = forecast(policy, plan, detect)
        audited = forecast(policy, [0.0] * shards, detect).audited
        rows.append(
            {
                "share": share,
                "lies": lies,
                "constant_rate": needed_rate(target, lies, detect),
                "floor": floor,
                "caught": expected.caught,
                "caught_simulated": simulate(policy, plan, TRIALS, detect).caught,
                "caught_at_floor_only": catch_chance(policy.floor, lies, detect),
                "lies_kept": expected.kept,
                "honest_audited": audited,
                "cost": audited * cost,
            }
        )
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    title = f"{shards} shards of one node, caught with probability {target}"
    table = Table(title=title, title_justify="left", header_style="bold")
    for name in ("cheats on", "lies", "constant rate", "floor", "caught", "simulated",
                 "lies kept", "audited if honest", "verification / generation"):  # fmt: skip
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            f"{row['share']:.0%}",
            str(row["lies"]),
            *(
                "not reachable" if row[key] is None else f"{row[key]:.4f}"
                for key in ("constant_rate", "floor")
            ),
            f"{row['caught']:.4f}",
            f"{row['caught_simulated']:.3f}",
            f"{row['lies_kept']:.2f}",
            f"{row['honest_audited']:.1%}",
            f"{row['cost']:.3f}",
        )
    out.print(table)
