"""What an embedding is. Apart from the other types, so that who answers exact repeats alone is spared numpy's 11 MB."""

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float32]  # (d,), L2-normalised
Vectors = npt.NDArray[np.float32]  # (n, d), each row L2-normalised
