"""Faults of a node, told apart by whose they are."""


class AgentError(Exception):
    """Base class; `retryable` says whether the agent goes on by itself."""

    retryable = False


class BadImages(AgentError):
    """The list of images cannot be used."""


class BadKeyFile(AgentError):
    """The file of the node's key cannot be used."""


class BadAddress(AgentError):
    """The node cannot be reached by its peers at the address that it is to tell them."""

    def __init__(self, address: str, why: str):
        super().__init__(
            f"address {address[:200]!r} for peers: {why}; allowed is HOST:PORT with a port from 1 "
            "to 65535 that is free, an IPv6 address in brackets; give another one with --address, "
            "or none"
        )


class BadLocation(AgentError):
    """A place that is not on Earth."""

    def __init__(self, text: str):
        super().__init__(
            f"location {text[:80]!r} is no place; allowed is LAT,LON in degrees, as 48.14,11.58"
        )


class NotAdmitted(AgentError):
    """The pool does not take this node."""


class NoImage(AgentError):
    """A task whose image this node does not run."""

    def __init__(self, image: str, known: list[str]):
        super().__init__(
            f"image {image[:200]!r} is not in this node's own list "
            f"({', '.join(known) or 'empty'}), and is no image name or docker is not allowed here; "
            "add it to the list (--images, else images.toml in the user's config directory), or "
            "start the agent with --docker"
        )


class BadMount(AgentError):
    """A place in a container where nothing can be mounted."""

    def __init__(self, path: str):
        super().__init__(
            f"a task wants a mount at {path[:200]!r}; allowed are absolute paths without a colon. "
            "The pool's operator has to change the task"
        )


class WorkerDied(AgentError):
    """The process that works on shards ended, or said what is no answer."""

    retryable = True
