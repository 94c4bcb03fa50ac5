"""`tracemill proof`: the proofs of a file of traces, against a model or by themselves.

Exit codes: 0 all good, 1 something was refused or has problems, 2 bad usage.
"""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.progress import track
from rich.text import Text

from flows.console import JsonOption, ProfileOption, SetOption, bad_usage_exits_2, err, out

if TYPE_CHECKING:
    import pyarrow as pa

    from infra.inference import Engine

proof = typer.Typer(
    name="proof",
    help="Proofs of traces: build, verify, inspect; calibrate their limits.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

T = TypeVar("T")

FileArgument = Annotated[
    Path, typer.Argument(help="Traces as .parquet, or a directory with such files.")
]
ModelOption = Annotated[
    str,
    typer.Option("--model", help="Model id or directory; without it the one that the rows name."),
]


@proof.command()
@bad_usage_exits_2
def inspect(file: FileArgument, as_json: JsonOption = False) -> None:
    """Decode proofs without a model: moduli, degrees, counts, problems, signatures."""
    from dataclasses import asdict

    from tasks.validate.traces_file import inspect_traces, read_traces

    found = inspect_traces(read_traces(file))
    bad = [row for row in found if row.problems]
    moduli = Counter(modulus for row in found for modulus in row.moduli)
    result = {
        "traces": len(found),
        "proofs": sum(row.proofs for row in found),
        "traces_with_problems": len(bad),
        "moduli": {str(modulus): count for modulus, count in sorted(moduli.items())},
        "least_degree": min((degree for row in found for degree in row.degrees), default=None),
        "rows": [asdict(row) for row in found],
    }
    if as_json:
        print(json.dumps(result, indent=2))
    else:
        for row in bad:
            for problem in row.problems:
                out.print(Text.assemble((row.trace_id, "bold"), f": {problem}"))
        for key in ("traces", "proofs", "traces_with_problems", "moduli", "least_degree"):
            out.print(f"{key.replace('_', ' ')}: {result[key]}", highlight=False)
    raise typer.Exit(1 if bad else 0)


@proof.command()
@bad_usage_exits_2
def verify(
    file: FileArgument,
    model: ModelOption = "",
    profile: ProfileOption = "local",
    set_: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge every trace by one prefill, with the limits of the profile's validate stage."""
    from flows.profiles import load_profile
    from tasks.validate.traces_file import judge_traces, read_traces

    config = load_profile(profile, set_ or []).validation
    table = read_traces(file)
    engine = _engine(table, model)
    rows = _shown(judge_traces(table, engine, config), "verify", table.num_rows)
    verdicts = Counter(row["verdict"] for row in rows)
    if as_json:
        print(json.dumps({"traces": len(rows), "verdicts": verdicts, "rows": rows}, indent=2))
    else:
        for row in rows:
            for reason in row["reasons"]:
                out.print(Text.assemble((row["trace_id"], "bold"), f": {reason}"))
        for verdict, count in sorted(verdicts.items()):
            out.print(f"{verdict}: {count}", highlight=False)
    raise typer.Exit(0 if verdicts["accepted"] == len(rows) else 1)


@proof.command()
@bad_usage_exits_2
def build(
    file: FileArgument,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Write the traces with their proofs here.")
    ],
    model: ModelOption = "",
    as_json: JsonOption = False,
) -> None:
    """Prove every trace by one prefill, in place of the proofs that it has."""
    from flows.errors import BadConfig
    from infra.storage.parquet import parquet_bytes
    from tasks.validate.traces_file import prove_traces, read_traces, with_proofs

    if output.exists():
        raise BadConfig(f"output {str(output)!r} exists; choose another -o, or remove it")
    if not output.parent.is_dir():
        raise BadConfig(f"output {str(output)!r}: there is no directory {str(output.parent)!r}")
    table = read_traces(file)
    proofs = _shown(prove_traces(table, _engine(table, model)), "build", table.num_rows)
    changed = sum(old != new for old, new in zip(table["proofs"].to_pylist(), proofs, strict=True))
    output.write_bytes(parquet_bytes(with_proofs(table, proofs)))
    result = {
        "traces": len(proofs),
        "proof_bytes": sum(map(len, proofs)),
        "changed": changed,
        "output": str(output),
    }
    if as_json:
        print(json.dumps(result, indent=2))
    else:
        for key, value in result.items():
            out.print(f"{key.replace('_', ' ')}: {value}", highlight=False, markup=False)


@proof.command()
@bad_usage_exits_2
def calibrate(
    model: Annotated[str, typer.Argument(help="Model id or directory.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="The profile; by default where validation on this machine looks."
        ),
    ] = None,
    traces: Annotated[
        int, typer.Option(min=40, help="Traces to decode; other kernels of its dtype replay them.")
    ] = 96,
    other_traces: Annotated[
        int, typer.Option(min=1, help="Traces that each other dtype replays; it may be slow.")
    ] = 40,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest output.")] = 256,
    dtypes: Annotated[str, typer.Option(help="Honest dtypes, with commas.")] = "float32,bfloat16",
    rate: Annotated[
        float, typer.Option(min=1e-9, max=0.1, help="False positives to aim at, per trace.")
    ] = 1e-4,
    as_json: JsonOption = False,
) -> None:
    """Run a model honestly in many ways and write the limits that such runs keep."""
    from flows.errors import BadConfig
    from infra.inference.loading import DTYPES
    from infra.models.profiles import file_name, own_profiles
    from tasks.validate.calibrate import Plan
    from tasks.validate.calibrate import calibrate as run

    unknown = set(dtypes.split(",")) - set(DTYPES)
    if unknown:
        raise BadConfig(f"dtypes {dtypes!r}: {sorted(unknown)} is none of {', '.join(DTYPES)}")
    plan = Plan(traces, other_traces, max_tokens, tuple(dtypes.split(",")), rate)
    with err.status("calibrate") as status:
        profile = run(model, plan, lambda text: status.update(Text(text)))
    if output is None:
        output = own_profiles() / file_name(model, profile.revision)
        output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(profile.to_json(), encoding="utf-8")
    result = {
        "model": profile.model,
        "revision": profile.revision,
        "traces": profile.traces,
        "held_out_refused": f"{profile.held_out.refused} of {profile.held_out.traces}",
        "false_positive_rate_below": profile.held_out.bound,
        "aimed_at": f"{profile.rate:g}" + (" (extrapolated)" if profile.extrapolated else ""),
        "output": str(output),
    }
    if as_json:
        print(json.dumps(result, indent=2))
    else:
        for key, value in result.items():
            out.print(f"{key.replace('_', ' ')}: {value}", highlight=False, markup=False)


def _engine(table: "pa.Table", model: str) -> "Engine":
    from infra.inference import load_engine
    from tasks.validate.traces_file import model_of

    return load_engine(model or model_of(table))


def _shown(steps: Iterable[T], what: str, total: int) -> list[T]:
    """All of the results, with a progress display while they come."""
    return list(track(steps, what, total=total, console=err, disable=not err.is_terminal))
