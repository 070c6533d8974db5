"""PyTorch's Futures of tensors on a device, which it makes only where there is one: what its documentation says."""

import torch
from torch.utils._pytree import tree_leaves


class Future(torch.futures.Future):
    """Of a result that is ready on the stream which is current when it is set, if the device was named.

    Who waits has it on what is current then, a callback on the stream `own`.
    """

    own = None

    def __init__(self, *, devices=None):
        super().__init__()
        self.devices, self.ready = devices, None

    def set_result(self, result):
        there = {str(x.device) for x in tree_leaves(result) if isinstance(x, torch.Tensor) and x.is_cuda}
        if there and self.devices:
            assert there <= {*map(str, self.devices)}
            stream = torch.cuda.current_stream()
            self.ready = stream.fake.record(stream)
        super().set_result(result)

    def follow(self):
        stream = torch.cuda.current_stream()
        if self.ready:
            stream.fake.wait(stream, self.ready)

    def wait(self):
        result = super().wait()
        self.follow()
        return result

    def then(self, callback):
        child = type(self)(devices=self.devices)

        def call(_):
            with torch.cuda.stream(self.own):
                self.follow()
                try:
                    child.set_result(callback(self))
                except Exception as error:  # as C++ does, which knows no other
                    child.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))

        self.add_done_callback(call)
        return child
