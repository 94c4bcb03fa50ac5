"""What all messages share: limits, kinds of text, and the bases of what is said and answered."""

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

MAX_BODY_BYTES = 2 << 20
MAX_UPLOAD_BYTES = 100 << 20
MAX_DEPTH = 64
"""Of free objects; pydantic writes 255 levels and reads fewer, so what it stored could be lost."""

NodeId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
ShortText = Annotated[str, StringConstraints(max_length=200)]
Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:+=-]{0,199}$")]
P2pId = Annotated[
    str,
    StringConstraints(pattern=r"^([A-Za-z0-9/\[][A-Za-z0-9._:/@=+,%\[\]-]*)?$", max_length=200),
]
"""It stands in the command line of the node's neighbour: no option, no variable, no shell."""
Finite = Annotated[float, Field(allow_inf_nan=False)]


def _sendable(found: dict[str, Any]) -> dict[str, Any]:
    """Refuse what is no JSON elsewhere: NaN, infinities, half surrogate pairs, great depth."""
    level: list[Any] = [found]
    for _ in range(MAX_DEPTH):
        inner = [item for item in level if isinstance(item, dict | list)]
        level = [
            part for item in inner for part in (item.values() if isinstance(item, dict) else item)
        ]
    if any(isinstance(item, dict | list) for item in level):
        raise ValueError(f"objects and lists lie in each other more than {MAX_DEPTH} deep")
    json.dumps(found, allow_nan=False, ensure_ascii=False).encode()
    return found


JsonObject = Annotated[dict[str, Any], AfterValidator(_sendable)]


class Said(BaseModel):
    """What comes to the service."""

    model_config = ConfigDict(extra="forbid")


class Shown(BaseModel):
    """What the service tells."""

    model_config = ConfigDict(extra="ignore")


class Answer(Shown):
    """What the service answers with."""

    success: bool = True


class Done(Answer):
    """Nothing more to say."""


class Epoch(Answer):
    """Answer to GET /epoch: what requests to this run of the service are signed for."""

    epoch: str
    time_ms: int
    """The service's clock."""


class Refusal(BaseModel):
    """Body of every error."""

    success: Literal[False] = False
    error: str
    code: str
