"""What an embedding is. Apart from the other types, so that one can speak of decisions without numpy's 11 MB."""

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float32]  # (d,), L2-normalised
