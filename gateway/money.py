"""Nano-dollars in, text out. Money is an integer everywhere else."""

from functools import lru_cache

NANO = 1_000_000_000
WHOLE_PPM = 1_000_000


@lru_cache(maxsize=1024)  # an answer's cost is told to its client and to the log
def dollars(nanousd: int) -> str:
    """Exact decimal dollars without an exponent: 1234 is "0.000001234", two billion is "2.0"."""
    if not nanousd:
        return "0.0"
    sign, amount = ("-", -nanousd) if nanousd < 0 else ("", nanousd)
    whole, fraction = divmod(amount, NANO)
    return f"{sign}{whole}.{f'{fraction:09d}'.rstrip('0') or '0'}"


def part_of(nanousd: int, ppm: int) -> int:
    """So many millionths of an amount, rounded half up."""
    return (2 * nanousd * ppm + 1_000_000) // 2_000_000
