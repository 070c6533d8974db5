"""What vectors of values and of codes have in common: messages that are codes, cut into strips."""

from collections.abc import Iterator
from itertools import zip_longest

from ..schedules import Send
from .lowering import Vector
from .table import Posted, Region
from .wire import Strip, Wire

__all__ = ["Travelling"]


class Travelling(Vector):
    """A vector whose messages are codes."""

    wire: Wire

    def packs(self, group: list) -> int:
        return 0 if self.wire.varies else super().packs(group)

    def post_all(self, groups: list[list[Send]], places: dict[range, Region]) -> list[Posted]:
        """To each peer a strip in turn: they travel side by side, and are to come together where they are added."""
        turns = zip_longest(*(self.sending(group, places) for group in groups), fillvalue=[])
        return [p for turn in turns for posted in turn for p in posted]

    def sending(self, group: list[Send], places: dict[range, Region]) -> Iterator[list[Posted]]:
        """Post what goes to one peer, strip by strip."""
        raise NotImplementedError

    def post(self, kind: int, peer: int, region: Region, blocks: range) -> list[Posted]:
        return [p for strip in self.wire.strips(blocks) for p in self.post_strip(kind, peer, region, strip)]

    def post_strip(self, kind: int, peer: int, message: Region, strip: Strip) -> list[Posted]:
        piece = strip.nbytes if self.wire.varies else self.piece
        return self.table.post(kind, peer, message.after(strip.start), strip.nbytes, piece, self.wire.varies)
