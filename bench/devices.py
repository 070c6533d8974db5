"""What is known of CUDA devices, and the way that arrays on them go."""

import numpy as np

from allreduce.engine import Engine
from allreduce.execute.plan import Order
from allreduce.routes import placed

__all__ = ["devices"]

SIZES = (1 << 10, 1 << 26)


def devices(engine: Engine, driver: str | None) -> list[str]:
    """A line on the devices and, if they can be used, on the route of a short and of a long array; collective."""
    try:
        device = engine.channel.device
    except RuntimeError as error:
        return [f"host memory only{', NVIDIA driver ' + driver if driver else ''}: {error}"]
    groups = "; ".join("ranks " + ", ".join(map(str, group)) for group in device.shared)
    lines = [f"CUDA, NVIDIA driver {driver}; {groups + ' have one together' if groups else 'one for each rank'}"]
    for nbytes in SIZES:
        order = placed(engine, Order("allreduce", "ring", nbytes // 4, np.dtype(np.float32)), "auto", False, True)
        lines.append(f"{nbytes} bytes by {'ipc' if order.inside else order.route}; see ALLREDUCE_ROUTE")
    return lines
