"""`python -m verifiers.environments lock|install`: what the operator does before rows are scored.

lock REQUIREMENT... -o FILE    resolve an environment wheel and all that it needs, with hashes
install FILE                   install it; prints the digest that rows name
"""

import argparse
import sys
from pathlib import Path

from verifiers.environments.install import install
from verifiers.environments.lock import make_lock, read_lock
from verifiers.errors import VerifiersError


def main() -> int:
    """Exit status 0 done, 1 failed, 2 bad usage."""
    parser = argparse.ArgumentParser(prog="python -m verifiers.environments", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("lock", "install"):
        command = commands.add_parser(name)
        command.add_argument("--wheels", type=Path, action="append", default=[], metavar="DIR")
    commands.choices["lock"].add_argument("requirements", nargs="+")
    commands.choices["lock"].add_argument("-o", "--output", type=Path, required=True)
    commands.choices["install"].add_argument("lock", type=Path)
    options = parser.parse_args()
    try:
        if options.command == "lock":
            lock = make_lock(options.requirements, options.wheels)
            options.output.write_text(lock.text, encoding="utf-8")
        else:
            lock = read_lock(options.lock.read_text(encoding="utf-8"))
            install(lock, options.wheels)
    except (VerifiersError, OSError, UnicodeDecodeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(lock.digest)
    return 0


if __name__ == "__main__":
    sys.exit(main())
