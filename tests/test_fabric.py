"""What is said of adapters for RDMA, on a tree of files as Linux has them."""

import pytest

from bench.fabric import fabric


@pytest.fixture
def node(tmp_path):
    def write(path, text):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text + "\n")

    port = "sys/class/infiniband/mlx5_0/ports/1"
    for name, text in (("rate", "400 Gb/sec (4X NDR)"), ("state", "4: ACTIVE"), ("link_layer", "InfiniBand")):
        write(f"{port}/{name}", text)
    write("proc/modules", "nvidia_uvm 1 0\ngdrdrv 1 0")
    return tmp_path


def test_adapters_and_ways_to_gpus(node):
    assert fabric({}, node) == [
        "mlx5_0, port 1: 400 Gb/sec (4X NDR), InfiniBand, active", "gdrdrv: GDRCopy, short messages from GPU memory",
    ]  # fmt: skip
    (node / "proc/modules").write_text("")
    assert "no nvidia_peermem" in fabric({}, node)[1]


@pytest.mark.parametrize("name, value, out", [
    ("UCX_TLS", "tcp,self,sm", True), ("UCX_TLS", "rc_x,self", False), ("UCX_TLS", "^tcp", False),
    ("UCX_TLS", "all", False), ("FI_PROVIDER", "tcp;ofi_rxm", True), ("FI_PROVIDER", "verbs;ofi_rxm", False),
])  # fmt: skip
def test_settings_that_leave_adapters_out(name, value, out, node):
    assert (f"{name}={value} leaves these adapters out" in fabric({name: value}, node)) == out


def test_without_adapters(tmp_path):
    assert "no adapters for RDMA" in fabric({}, tmp_path)[0]
