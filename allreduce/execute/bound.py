"""Plans bound to a channel: a table, and the operations that run it."""

from typing import TYPE_CHECKING

import numpy as np

from .device import Launched
from .lowering import BETWEEN
from .mpi_abi import library
from .neighbours import Neighbours
from .operation import Compiled, Interpreted, Operation, Scratch
from .plan import Order, lower
from .shared import SMALL, lower_shared
from .table import Table

if TYPE_CHECKING:
    from .channel import Channel

__all__ = ["NODE", "Plan"]

#: The name of the algorithm that reads the others' memory instead of messages.
NODE = "node"


class Plan:
    """A table bound to a channel, with the operations that run it; more than one only if several are in flight."""

    def __init__(self, order: Order, channel: "Channel", table: Table | None = None) -> None:
        """`table`: to be run instead of the order's own."""
        self.order, self.channel = order, channel
        #: whose window it uses
        self.node = channel.inside(order.members(channel.rank)) if order.inside else channel
        asked = order, channel.rank, channel.size
        far = 0 if channel.together else BETWEEN
        self.table = table or (lower_shared(*asked) if order.algorithm == NODE else lower(*asked, far))
        self.rows = self.table.array()
        self.addresses = np.array([k.address for k in self.table.kernels] or [0], np.int64)
        compiled = library() is not None and all(k.address for k in self.table.kernels)
        self.kind: type[Operation] = Launched if order.route else Compiled if compiled else Interpreted
        #: ranks whose device memory we map
        self.near = self.neighbours() if order.route and order.inside else None
        usual = channel.device.scratch if order.route else channel.scratch
        first = self.kind(self, usual if usual.can_serve(self.table.scratch) else self.new_scratch())
        self.operations: list[Operation] = [first]
        #: the address of the first operation's state for `loop.run`, or 0
        self.state = first.address if isinstance(first, Compiled) else 0

    def new(self) -> Operation:
        """One more operation, with memory of its own."""
        return self.kind(self, self.new_scratch())

    def new_scratch(self) -> Scratch:
        """Memory of one operation's own."""
        return self.channel.device.new_scratch() if self.order.route else Scratch()

    def neighbours(self) -> Neighbours:
        """Ranks whose device memory we map; whoever asked for this has made sure that one can."""
        members = self.order.members(self.channel.rank)
        found = self.channel.device.neighbours(members, self.order.place.areas)
        if found is None:
            raise ValueError("the ranks of this node cannot map each other's device memory")
        return found

    def operation(self) -> Operation:
        """One that is not running."""
        for operation in self.operations:
            if not operation.busy:
                return operation
        self.operations.append(self.new())
        return self.operations[-1]

    @property
    def published(self) -> int:
        """Bytes that this adds to what makes `calibrate` due."""
        nbytes = self.order.count * self.order.dtype.itemsize
        elsewhere = self.order.route or not self.node.spin
        return nbytes if self.table.signals and nbytes > SMALL and not elsewhere else 0

    @property
    def counts(self) -> tuple[int, int]:
        """Elements of the send and of the receive buffer."""
        count, part = self.order.count, self.order.count // self.channel.size
        return {"reduce_scatter": (count, part), "allgather": (part, count)}.get(self.order.collective, (count, count))
