"""`tracemill pool`: the node pool, and its simulation."""

import json
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from flows.console import JsonOption, RootOption, bad_usage_exits_2, err, out

pool = typer.Typer(
    name="pool",
    help="The node pool: machines that come, go and lie.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


ledger = typer.Typer(name="ledger", help="Who did what, and what was found.", no_args_is_help=True)
pool.add_typer(ledger)


@pool.command()
@bad_usage_exits_2
def serve(
    root: RootOption = "./data",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8480,
    database: Annotated[
        str,
        typer.Option(help="A path (SQLite) or postgresql://user@host/name; default: user's state."),
    ] = "",
    settings: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="TOML file of settings.")
    ] = None,
    admin_key_file: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="File with the admin key; else TRACEMILL_POOL_ADMIN_KEY, else one is made and "
            "kept in the user's config directory.",
        ),
    ] = None,
    tls: Annotated[
        bool, typer.Option("--tls", help="TLS on loopback too; elsewhere it is always on.")
    ] = False,
) -> None:
    """Serve the node pool over HTTP. One service per database; it survives kill -9."""
    from infra.pool.service.run import LOOPBACK, ca_file, read_admin_key, read_settings
    from infra.pool.service.run import serve as serve_here
    from infra.storage import Store

    secure = tls or host not in LOOPBACK
    err.print(f"pool on {'https' if secure else 'http'}://{host}:{port}, storage {root}; /docs")
    if secure:
        err.print(f"nodes need the pool's CA: {ca_file()}", soft_wrap=True)
    serve_here(
        read_settings(settings),
        root=root,
        database=database or str(_state_dir() / "pool.sqlite"),
        host=host,
        port=port,
        admin_key=read_admin_key(admin_key_file, Store(root)),
        tls=tls,
    )


@pool.command()
@bad_usage_exits_2
def invite(
    url: Annotated[str, typer.Argument(help="Of the pool's service.")] = "http://127.0.0.1:8480",
    root: RootOption = "./data",
    uses: Annotated[int, typer.Option(min=1, max=100_000, help="Nodes that may join with it.")] = 1,
    hours: Annotated[float, typer.Option(min=0.01, max=2160, help="For how long it is good.")] = 24,
    label: Annotated[str, typer.Option(help="For you.")] = "",
    trusted: Annotated[
        bool, typer.Option("--trusted", help="For machines of our own: they may judge others.")
    ] = False,
    admin_key_file: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="File with the admin key, as for `serve`."),
    ] = None,
    ca: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="PEM of the pool's CA; default: our own."),
    ] = None,
) -> None:
    """Make an invite and print its key; with it a new node joins (`tracemill node join`)."""
    from infra.pool.client import PoolClient
    from infra.pool.service.run import ca_file, read_admin_key
    from infra.pool.wire import Invite, InviteRequest
    from infra.storage import Store

    own = ca_file()
    trust = ca or (own if url.startswith("https") and own.exists() else None)
    client = PoolClient(
        url, admin_key=read_admin_key(admin_key_file, Store(root)), ca=trust, patience=5.0
    )
    ask = InviteRequest(uses=uses, seconds=hours * 3600, label=label, trusted=trusted)
    made = client.call("POST", "/invites", ask, Invite)
    print(made.invite)
    shown = f" --ca {trust.name}" if trust else ""
    err.print(f"tracemill node join {url} --invite {made.invite}{shown}", soft_wrap=True)


@pool.command("admin-key")
@bad_usage_exits_2
def admin_key(root: RootOption = "./data") -> None:
    """Print the admin key that `serve` uses on this machine, for clients of its own user."""
    from infra.pool.service.run import read_admin_key
    from infra.storage import Store

    print(read_admin_key(None, Store(root)))


@ledger.command()
@bad_usage_exits_2
def verify(
    root: RootOption = "./data",
    head: Annotated[str, typer.Option(help="Hash of an entry that must be there.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Check the chain of the ledger below a root; exit code 1 where it does not hold."""
    from dataclasses import asdict

    from infra.pool.ledger import verify as check
    from infra.storage import Store

    found = check(Store(root), head)
    if as_json:
        print(json.dumps(asdict(found), indent=2))
    else:
        kinds = ", ".join(f"{count} {kind}" for kind, count in found.kinds.items())
        out.print(f"{found.entries} entries ({kinds or 'none'}), head {found.head}")
        for fault in found.faults:
            out.print(f"[red]broken[/red]: {fault}", highlight=False)
    raise typer.Exit(1 if found.faults else 0)


def _state_dir() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "tracemill"


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
