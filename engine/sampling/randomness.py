"""Randomness as a function of (seed, position): neither a row's neighbours nor a preemption can change it."""

import numpy as np
import numpy.typing as npt


def uniforms(seeds: npt.NDArray[np.uint64], positions: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """One number in [0, 1) for each (seed, position), 53 bits: SplitMix64's finaliser over both.

    Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators".
    """
    mixed = _finalise(_finalise(seeds + np.uint64(0x9E3779B97F4A7C15)) + positions * np.uint64(0x9E3779B97F4A7C15))
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _finalise(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
