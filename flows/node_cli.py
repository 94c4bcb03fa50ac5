"""`tracemill node`: this machine as a node of a pool."""

import os
from pathlib import Path
from typing import Annotated

import typer

from flows.console import bad_usage_exits_2

node = typer.Typer(name="node", help="This machine as a node of a pool.", no_args_is_help=True)


@node.callback()
def _group() -> None:
    """Keeps `join` a command of its own while it is the only one."""


@node.command()
@bad_usage_exits_2
def join(
    url: Annotated[str, typer.Argument(help="Of the pool's service: https://host:port.")],
    invite: Annotated[
        str,
        typer.Option(
            envvar="TRACEMILL_POOL_INVITE", help="Invite of the pool; at the first start only."
        ),
    ] = "",
    ca: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="PEM of the pool's CA, from its operator."),
    ] = None,
    key_file: Annotated[
        Path | None,
        typer.Option(
            help="The node's key; default: one for this pool, in the user's config directory."
        ),
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(
            help="TOML: image name -> command of this machine; default: images.toml in the user's "
            "config directory."
        ),
    ] = None,
    docker: Annotated[
        bool, typer.Option("--docker", help="Run images that are not in the list as containers.")
    ] = False,
    work_dir: Annotated[
        Path | None, typer.Option(help="Where tasks write; default: a temporary directory.")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="A model on this machine's disk; repeatable.")
    ] = None,
    p2p_id: Annotated[
        str,
        typer.Option(
            help="Id by which peers reach its stage of a model; default: that of an iroh stage "
            "with the node's seed."
        ),
    ] = "",
    address: Annotated[
        str,
        typer.Option(
            help="HOST:PORT at which peers reach this node, which listens there; `:PORT` on the "
            "host that the pool sees. Without it, round trips to it are not measured."
        ),
    ] = "",
    location: Annotated[
        str, typer.Option(help="LAT,LON of this machine in degrees, as 48.14,11.58.")
    ] = "",
    idle_seconds: Annotated[
        float, typer.Option(min=0, help="Leave after so long without work; 0: never.")
    ] = 0.0,
) -> None:
    """Join a pool, prove this machine's compute, and work until SIGTERM.

    SIGTERM or Ctrl-C finishes the shard in hand first; a second one does not. Exit code 3: the pool
    does not take this node, or not any more.
    """
    from infra.pool.agent.config import AgentConfig, location_of
    from infra.pool.agent.identity import config_dir, key_of_pool
    from infra.pool.agent.images import read_images
    from infra.pool.agent.run import run_agent

    config = AgentConfig(
        url=url,
        invite=invite,
        ca=ca,
        key_file=key_file or key_of_pool(url),
        images=read_images(images or config_dir() / "images.toml"),
        docker=docker,
        models=tuple(model or ()),
        p2p_id=p2p_id,
        work_dir=work_dir,
        address=address,
        location=location_of(location),
        idle_seconds=idle_seconds,
    )
    # A task must not see the invite.
    os.environ.pop("TRACEMILL_POOL_INVITE", None)
    raise typer.Exit(run_agent(config))
