"""Half an hour at saturation, with clients that leave and gateways that die: nothing leaks, nothing is lost.

    python -m tests.soak                        10 minutes the engine, in this process, 10 the gateway, 10 the books
    python -m tests.soak engine --minutes 5     one of them

Exits with 1 when anything is wrong, and says what.
"""

import argparse
import asyncio
import sys

from tests.soak import books, engine, gateway

PARTS = {"engine": engine.soak, "gateway": gateway.soak, "books": books.soak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", choices=list(PARTS), help="one of them alone")
    parser.add_argument("--minutes", type=float, default=30, help="for all parts together")
    arguments = parser.parse_args()
    parts = [arguments.part] if arguments.part else list(PARTS)
    faults: list[str] = []
    for part in parts:
        print(f"-- {part}", flush=True)
        faults += [f"{part}: {fault}" for fault in asyncio.run(PARTS[part](arguments.minutes / len(parts)))]
    print("\n".join(faults) or "nothing leaked, nothing was lost")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
