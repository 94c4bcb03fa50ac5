"""How one agent behaves."""

import re
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator

from infra.pool.agent.errors import BadAddress, BadLocation
from infra.pool.agent.images import Images
from infra.pool.wire import Location, P2pId

_ADDRESS = re.compile(
    r"(\[(?P<v6>[0-9A-Fa-f:.]{2,64})\]|(?P<host>[A-Za-z0-9._-]{0,64})):(?P<port>[1-9][0-9]{0,4})",
    re.ASCII,
)


class AgentConfig(BaseModel):
    """One node of one pool."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str = Field(pattern=r"^https?://")
    invite: str = ""
    ca: Path | None = Field(default=None, description="PEM of the pool's own CA.")
    key_file: Path
    images: Images = Images()
    docker: bool = Field(default=False, description="Run other images as containers.")
    models: tuple[str, ...] = Field(default=(), description="On this machine's disk.")
    address: str = Field(
        default="", description="HOST:PORT at which peers reach it; `:PORT`: on what the pool sees."
    )
    location: Location | None = None
    p2p_id: P2pId = Field(default="", description="Empty: the one that follows from its seed.")
    work_dir: Path | None = Field(default=None, description="For what tasks write; else temporary.")
    idle_seconds: float = Field(default=0.0, ge=0, description="Leave after so long without work.")

    @field_validator("address")
    @classmethod
    def _is_one(cls, address: str) -> str:
        split_address(address)
        return address


def location_of(text: str) -> Location | None:
    """The place of LAT,LON in degrees; none for an empty text. BadLocation: it is none."""
    if not text:
        return None
    latitude, _, longitude = text.partition(",")
    try:
        return Location(latitude=float(latitude), longitude=float(longitude))
    except ValueError as error:
        raise BadLocation(text) from error


def split_address(address: str) -> tuple[str, int]:
    """(host, port) of HOST:PORT; ("", 0) for an empty text. BadAddress: it is none."""
    if not address:
        return "", 0
    found = _ADDRESS.fullmatch(address)
    if found is None or int(found["port"]) > 65535:
        raise BadAddress(address, "it is none")
    return found["v6"] or found["host"] or "", int(found["port"])
