"""Values from files."""

from pathlib import Path

import numpy as np

__all__ = ["stored"]


def stored(path: Path) -> np.ndarray:
    """The numbers of a .npy file.

    Raises
    ------
    OSError, ValueError
        No file, one of another kind, or one without numbers.
    """
    try:
        values = np.load(path, allow_pickle=False)
    except (ValueError, EOFError):  # whose words advise to load it unsafely
        values = None
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "biufc" or not values.size:
        raise ValueError(f"{path} is no .npy file that holds numbers")
    return values
