"""R5: `pydantic_adherance` (the spelling of the data), validation by a model of the row.

The model's source is not trusted: it runs in the sandbox, and what goes wrong while it
runs is the row's fault.
"""

from verifiers import strict_json
from verifiers.errors import RowFault, SandboxBroken, VerifierFault
from verifiers.kinds.base import Info, Kind, text_of
from verifiers.kinds.code import LIMITS, result_of
from verifiers.kinds.json_answer import find_object_text
from verifiers.result import Outcome, judged, no_answer
from verifiers.sandbox import profile, run, weak


def _judge(answer: str, info: Info) -> Outcome:
    source = text_of(info, "pydantic_config")
    name = text_of(info, "model_name")
    if not name.isidentifier():
        raise RowFault(f"model_name must be a plain name, got {name!r:.60}")
    try:
        found = find_object_text(answer)
    except strict_json.InvalidJson as error:
        return no_answer(str(error))
    nonce = run.new_nonce()
    job = {"mode": "model", "source": source, "model_name": name, "object": found, "nonce": nonce}
    try:
        ended = run.run_job(profile.PYDANTIC, dict(job), b"", LIMITS)
    except SandboxBroken as error:
        raise VerifierFault(str(error)) from error
    if ended.starved:
        raise VerifierFault("the machine gave the model's source no CPU, twice")
    if ended.out_of_time or ended.out_of_output:
        raise RowFault("pydantic_config passed a limit of time or output")
    result = result_of(ended, nonce, 4096)
    if result is None:
        words = ended.stderr.decode("utf-8", "replace").strip().splitlines()
        raise RowFault(f"pydantic_config does not load or validate: {words[-1:]!r:.200}")
    if not isinstance(result.get("value"), bool):
        raise RowFault(f"pydantic_config: {result.get('error')!r:.200}")
    return judged(result["value"], str(result.get("why", "")))


_ROW = {
    "pydantic_config": "from pydantic import BaseModel\n\nclass M(BaseModel):\n    n: int\n",
    "model_name": "M",
}
KIND = Kind(
    name="pydantic_adherence",
    version=1,
    task_types=("pydantic_adherance", "pydantic_adherence"),
    binary=True,
    judge=_judge,
    self_limiting=True,
    settings={"weak_sandbox": weak.allowed()},
    missing=lambda: run.availability()[1],
    self_tests=(
        ('{"n": "5"}', _ROW, 1.0),
        ('{"n": "x"}', _ROW, 0.0),
        ('{"n": 5}', {**_ROW, "model_name": "N"}, None),
    ),
)
