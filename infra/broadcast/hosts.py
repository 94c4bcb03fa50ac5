"""Which hosts others than this machine reach, and that those need a token."""

from ipaddress import ip_address

from infra.broadcast.errors import OpenOrigin


def is_loopback(host: str) -> bool:
    """Whether a host name or address is reached from this machine alone."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def check_open(host: str, token: str) -> None:
    """Refuse to serve others than this machine without a token."""
    if not is_loopback(host) and not token:
        raise OpenOrigin(host)
