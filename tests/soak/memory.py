"""Does memory stay flat? The first third of a soak is allowed to fill caches."""

MAX_GROWTH = 0.10  # of the memory held after the first third


def growth(samples_mb: list[float]) -> list[str]:
    """What is wrong with a series of measurements in MiB, or nothing."""
    third = len(samples_mb) // 3
    if not third:
        return []
    before, after = max(samples_mb[third : 2 * third]), max(samples_mb[-third:])
    return [f"memory grew from {before:.0f} to {after:.0f} MiB"] if after > before * (1 + MAX_GROWTH) else []
