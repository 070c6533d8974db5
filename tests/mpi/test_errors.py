"""Bad input is refused by the rank that made it, before anything is sent.

Only one rank makes the mistake, the others do not even call; then all of them call rightly. Had anything been
sent, or a number been drawn, that call would hang or give wrong sums.
"""

import numpy as np
import pytest
from mpi4py import MPI
from witness import RANK, SIZE, WORLD, everyone_has

import allreduce
from allreduce.algorithms import parse
from allreduce.execute.elements import BFLOAT16

pytestmark = pytest.mark.mpi


@pytest.fixture
def comm():
    """What is not refused waits for ranks that never call: not for long."""
    with allreduce.Communicator(timeout=5) as comm:
        yield comm


def ok(comm):
    recv = np.empty(7, int)
    comm.Allreduce(np.arange(7) + RANK, recv)
    return np.array_equal(recv, SIZE * np.arange(7) + SIZE * (SIZE - 1) // 2)


def refused(comm, call, error, *words, culprit=0):
    """On one rank the call raises this error with these words; afterwards all is as before."""
    found = ""
    if culprit % SIZE == RANK:
        try:
            result = call()
        except error as caught:
            missing = [word for word in words if str(word) not in str(caught)]
            if missing:
                found = f"{caught!r} does not say {missing}"
        except BaseException as caught:
            found = f"{caught!r}, not {error}"
        else:
            found = f"not refused: {result!r}"
    everyone_has(found)
    assert ok(comm)


class Device:
    """Looks like an array on a GPU."""

    dtype, size, shape, nbytes = np.dtype("d"), 4, (4,), 32
    __cuda_array_interface__ = {"shape": (4,), "typestr": "<f8", "data": (16, False), "version": 3}  # noqa: RUF012


#: There is no CUDA; or there is, and this is none of its memory.
NO_DEVICE = (RuntimeError, ValueError)


def unaligned(dtype="d", count=4):
    return np.zeros(count * 8 + 1, np.uint8)[1:].view(dtype)


def readonly():
    array = np.zeros(4)
    array.flags.writeable = False
    return array


def overlapping(function):
    whole = np.arange(12.0)
    return lambda: function(whole[:8], whole[4:])


X, Y = np.arange(4.0), np.full(4, -1.0)
F = np.arange(6.0).reshape(2, 3)


def run(*args, **wishes):
    return lambda comm: allreduce.allreduce(*args, comm=comm, **wishes)


CASES = {
    "dtypes differ": (run(X, Y.astype("f")), TypeError, "float64", "float32"),
    "counts differ": (run(X, np.empty(5)), ValueError, 4, 5),
    "larger recvbuf": (run(X, np.empty(8)), ValueError, 4, 8),
    "overlap": (lambda comm: overlapping(lambda a, b: allreduce.allreduce(a, b, comm=comm))(), ValueError, "overlap"),
    "read-only recvbuf": (run(X, readonly()), ValueError, "recvbuf", "read-only"),
    "read-only in place": (run(MPI.IN_PLACE, readonly()), ValueError, "read-only"),
    "bytes to receive": (run(bytes(4), bytes(4)), ValueError, "read-only"),
    "sendbuf not contiguous": (run(np.arange(8.0)[::2], Y), ValueError, "sendbuf", "contiguous"),
    "recvbuf not contiguous": (run(X, np.arange(8.0)[::2]), ValueError, "recvbuf", "contiguous"),
    "backwards": (run(X[::-1], Y), ValueError, "sendbuf", "contiguous"),
    "no result for strides": (run(np.arange(12.0).reshape(3, 4)[:, 1:3]), ValueError, "contiguous"),
    "foreign order": (run(X.astype(">f8"), Y.astype(">f8")), TypeError, ">f8"),
    "unaligned": (run(unaligned(), Y), ValueError, "aligned"),
    "unaligned recvbuf": (run(X, unaligned()), ValueError, "recvbuf", "aligned"),
    "C and Fortran": (run(F, np.empty((2, 3), order="F")), ValueError, "order"),
    "unknown algorithm": (run(X, algorithm="rign"), ValueError, "rign", "ring"),
    "algorithm no name": (run(X, algorithm=3), TypeError, 3),
    "unknown parameter": (run(X, algorithm="ring:radix=3"), ValueError, "ring", "radix"),
    "unreadable parameter": (run(X, algorithm="torus:grid=2by2"), ValueError, "2by2"),
    "parameter of no value": (run(X, algorithm="torus:grid"), ValueError, "grid"),
    "grid": (run(X, algorithm=f"torus:grid=2x{SIZE}"), ValueError, f"2x{SIZE}", SIZE),
    "grid of three": (run(X, algorithm=f"torus_two_way:grid=1x1x{SIZE}"), ValueError, "two dimensions"),
    "negative grid": (run(X, algorithm=f"torus:grid=-1x-{SIZE}"), ValueError, "grid"),
    "nodes": (run(X, algorithm=f"hierarchical:nodes={SIZE}+1"), ValueError, "nodes"),
    "radix": (run(X, algorithm="kary_tree:radix=0"), ValueError, 0),
    "segments": (run(X, algorithm="pipelined_tree:segments=-2"), ValueError, -2),
    "unknown op": (run(X, op="summ"), ValueError, "summ", "sum"),
    "op of another kind": (run(X, op=3), TypeError, 3),
    "op no op": (run(X, op=None), TypeError, None),
    "op a list": (run(X, op=["sum"]), TypeError, "['sum']"),
    "op of another shape": (run(X, op=lambda a, b: a.sum()), TypeError, "shape"),
    "list": (run([1.0, 2.0]), TypeError, "sendbuf", "list"),
    "list of none": (run([]), TypeError, "sendbuf", "list"),
    "list to receive": (run(X, [1.0, 2.0, 3.0, 4.0]), TypeError, "recvbuf", "list"),
    "number": (run(1.0), TypeError, "sendbuf", "float"),
    "nothing": (run(None), TypeError, "sendbuf", "NoneType"),
    "text": (run("abc"), TypeError, "sendbuf", "str"),
    "strings": (run(np.array(["a"])), TypeError, "<U1"),
    "objects": (run(np.array([1, None], object)), TypeError, "object"),
    "no bytes": (run(np.empty(3, "V0")), TypeError, "no bytes"),
    "objects by an own op": (run(np.array([1, 2], object), op=lambda a, b: a), TypeError, "object"),
    "dates": (run(np.zeros(2, "M8[s]")), TypeError, "datetime64"),
    "device": (run(Device()), NO_DEVICE, "sendbuf", "device"),
    "device to receive": (run(X, Device()), NO_DEVICE, "recvbuf", "device"),
    "avg of bool": (run(np.ones(3, bool), op="avg"), TypeError, "avg", "bool"),
    "min of complex": (run(np.ones(3, complex), op="min"), TypeError, "min", "complex128"),
    "bits of floats": (run(X, op=MPI.BAND), TypeError, "band", "float64"),
    "MINLOC": (run(X, op=MPI.MINLOC), TypeError, "MINLOC"),
    "accumulate nonsense": (run(X, accumulate="nonsense"), TypeError, "accumulate", "nonsense"),
    "accumulate narrower": (run(X, accumulate="float32"), ValueError, "float32", "float64"),
    "accumulate other kind": (run(np.ones(3, "i"), accumulate="float64"), ValueError, "float64", "int32"),
    "accumulate complex": (run(np.ones(3, "F"), accumulate="complex128"), ValueError, "complex128"),
    "accumulate max": (run(np.ones(3, "e"), op="max", accumulate="float32"), ValueError, "max"),
    "accumulate list": (run(np.ones(3, "e"), accumulate=["f"]), (TypeError, ValueError), "f"),
    "accumulate number": (run(np.ones(3, "e"), accumulate=5), TypeError, "accumulate", 5),
    "accumulate native": (run(np.ones(3, "f"), accumulate="d", algorithm="native"), ValueError, "native"),
    "count too large": (run([X, 5, MPI.DOUBLE], Y), TypeError, 5),
    "count negative": (run([X, -1, MPI.DOUBLE], [np.empty(4), -1, MPI.DOUBLE]), (TypeError, ValueError), -1),
    "another datatype": (run([X, MPI.FLOAT], Y), TypeError, "datatype"),
    "native op": (run(X, op=lambda a, b: a, algorithm="native"), TypeError, "native"),
    "native bfloat16": (
        run(np.ones(2, BFLOAT16), algorithm="native"), TypeError, "bfloat16",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_refused_at_the_door(comm, case):
    call, error, *words = CASES[case]
    assert ok(comm)
    x, y = X.copy(), Y.copy()
    refused(comm, lambda: call(comm), error, *words)
    refused(comm, lambda: call(comm), error, *words, culprit=SIZE - 1)
    assert np.array_equal(x, X) and np.array_equal(y, Y), "changed a buffer"


def test_refused_when_the_right_plan_is_there(comm):
    """The shortest way in must not be a way round the door."""
    x, y, whole = np.arange(4.0) + RANK, np.empty(4), np.arange(6.0)
    for _ in range(2):
        allreduce.allreduce(x, y, comm=comm)
    wanted = y.copy()
    for call, error, *words in (
        (lambda: allreduce.allreduce(x, np.empty(4, "f"), comm=comm), TypeError, "float32"),
        (lambda: allreduce.allreduce(x, np.empty(5), comm=comm), ValueError, 5),
        (lambda: allreduce.allreduce(x, readonly(), comm=comm), ValueError, "read-only"),
        (lambda: allreduce.allreduce(x[::-1], comm=comm), ValueError, "contiguous"),
        (lambda: allreduce.allreduce(np.arange(8.0)[::2], y, comm=comm), ValueError, "contiguous"),
        (lambda: allreduce.allreduce(x, np.arange(8.0)[::2], comm=comm), ValueError, "contiguous"),
        (lambda: allreduce.allreduce(unaligned(), y, comm=comm), ValueError, "aligned"),
        (lambda: allreduce.allreduce(x, unaligned(), comm=comm), ValueError, "aligned"),
        (lambda: allreduce.allreduce(x, [0.0] * 4, comm=comm), TypeError, "list"),
        (lambda: allreduce.allreduce(Device(), comm=comm), NO_DEVICE, "device"),
        (lambda: allreduce.allreduce(Device(), y, comm=comm), NO_DEVICE, "device"),
        (lambda: allreduce.allreduce(x, Device(), comm=comm), NO_DEVICE, "device"),
        (lambda: allreduce.allreduce(x, y, comm=comm, route="rome"), ValueError, "route"),
        (lambda: allreduce.allreduce(x, y, comm=comm, stream=5), ValueError, "stream"),
        (lambda: allreduce.allreduce(whole[:4], whole[2:6], comm=comm), ValueError, "overlap"),
        (lambda: allreduce.allreduce(whole[2:6], whole[:4], comm=comm), ValueError, "overlap"),
        (lambda: comm.Allreduce(x, readonly()), ValueError, "read-only"),
        (lambda: comm.Allreduce(x, np.empty(3)), ValueError, "3"),
        (lambda: comm.Allreduce(np.empty(3), y), ValueError, "3"),
        (lambda: comm.Allreduce(x[::-1], y), ValueError, "contiguous"),
        (lambda: comm.Allreduce(x.astype("f"), y), TypeError, "float32"),
    ):  # fmt: skip
        refused(comm, call, error, *words)
        assert np.array_equal(y, wanted) and np.array_equal(x, np.arange(4.0) + RANK), "changed a buffer"


def test_refused_by_the_other_collectives(comm):
    whole, share = np.arange(2.0 * SIZE), np.empty(2)
    fixed = np.zeros(2)
    fixed.flags.writeable = False
    cases = [
        (lambda: allreduce.reduce_scatter(whole, np.empty(3), comm=comm), ValueError, 3),
        (lambda: allreduce.reduce_scatter(whole, np.empty(2, "f"), comm=comm), TypeError, "float32"),
        (lambda: allreduce.reduce_scatter(whole, algorithm="swing", comm=comm), ValueError, "swing", "ring"),
        (lambda: allreduce.reduce_scatter(whole.astype(bool), op="avg", comm=comm), TypeError, "avg"),
        (lambda: allreduce.allgather(share, np.empty(2 * SIZE + 1), comm=comm), ValueError, 2 * SIZE + 1),
        (lambda: allreduce.allgather(share, np.empty((SIZE, 2), "f"), comm=comm), TypeError, "float32"),
        (lambda: allreduce.allgather(share, algorithm="star", comm=comm), ValueError, "star"),
        (lambda: allreduce.reduce(share, root=SIZE, comm=comm), ValueError, "root", SIZE),
        (lambda: allreduce.reduce(share, root=-1, comm=comm), ValueError, "root", -1),
        (lambda: allreduce.reduce(share, root="0", comm=comm), TypeError, "root", "'0'"),
        (lambda: allreduce.reduce(share, np.empty(3), root=RANK, comm=comm), ValueError, 3),
        (lambda: allreduce.reduce(share, algorithm="ring", comm=comm), ValueError, "ring", "star"),
        (lambda: allreduce.bcast(share, SIZE, comm=comm), ValueError, "root", SIZE),
        (lambda: allreduce.bcast(share, algorithm="ring", comm=comm), ValueError, "ring", "star"),
        (lambda: allreduce.bcast(whole[::2], comm=comm) if SIZE > 1 else allreduce.bcast(np.zeros(4)[::2], comm=comm),
         ValueError, "contiguous"),
        (lambda: allreduce.bcast([1, 2], comm=comm), TypeError, "list"),
        (lambda: allreduce.bcast(np.empty(3, "V0"), comm=comm), TypeError, "no bytes"),
    ]  # fmt: skip
    if SIZE > 1:
        cases += [
            (lambda: allreduce.reduce_scatter(np.ones(SIZE + 1), comm=comm), ValueError, SIZE + 1),
            (lambda: allreduce.reduce_scatter(MPI.IN_PLACE, np.ones(SIZE + 1), comm=comm), ValueError, SIZE + 1),
            (lambda: allreduce.allgather(MPI.IN_PLACE, np.ones(SIZE + 1), comm=comm), ValueError, SIZE + 1),
            (lambda: allreduce.reduce_scatter(whole, whole[1:3], comm=comm), ValueError, "overlap"),
            (lambda: allreduce.allgather(whole[1:3], whole, comm=comm), ValueError, "overlap"),
            (lambda: allreduce.reduce(MPI.IN_PLACE, share, root=(RANK + 1) % SIZE, comm=comm), ValueError, "IN_PLACE"),
            (lambda: allreduce.bcast(fixed, (RANK + 1) % SIZE, comm=comm), ValueError, "read-only"),
        ]
    for call, error, *words in cases:
        refused(comm, call, error, *words)


def test_objects_are_never_sent():
    """Their addresses mean nothing elsewhere, and crash when they are freed."""
    for call in (
        lambda: allreduce.bcast(np.array([None, 1], object), comm=MPI.COMM_SELF),
        lambda: allreduce.bcast(np.zeros(1, [("a", object)]), comm=MPI.COMM_SELF),
    ):
        with pytest.raises(TypeError, match="object"):
            call()


def test_in_flight_and_persistent_calls_have_the_same_door(comm):
    for method in (comm.Iallreduce, comm.Allreduce_init):
        refused(comm, lambda method=method: method(X, np.empty(5)), ValueError, 5)
        refused(comm, lambda method=method: method(X, readonly()), ValueError, "read-only")
    from allreduce.execute.requests import in_flight

    assert not in_flight


@pytest.mark.parametrize("name", ["recursive_multiplying:radix=1", "multi_ring:rings=0", "double_tree:segments=0"])
def test_parameters_that_lead_nowhere(name):
    """A radix of one would multiply for ever."""
    with pytest.raises(ValueError, match=r"at least|radix|from 1"):
        parse(name, 4)


def test_what_is_no_request(comm):
    request = comm.Iallreduce(X, Y.copy())
    with pytest.raises(TypeError, match="not None"):
        allreduce.waitall([request, None])
    request.Wait()


def test_what_is_no_communicator():
    for comm in (3, "world", MPI.COMM_NULL, object()):
        with pytest.raises(TypeError, match="intracommunicator"):
            allreduce.allreduce(np.ones(2), comm=comm)
    for timeout in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="timeout"):
            allreduce.Communicator(timeout=timeout)
    for make in (allreduce.Communicator, allreduce.Mesh):
        with pytest.raises(TypeError, match="intracommunicator, not 3"):
            make(3)
    with pytest.raises(TypeError, match=r"timeout must be .*, not 'soon'"):
        allreduce.Communicator(timeout="soon")
    with pytest.raises((TypeError, ValueError)):
        allreduce.Communicator(MPI.COMM_NULL)


def test_an_unknown_algorithm_of_a_communicator_is_found_early():
    for name, said in (("rign", "have ring"), (f"torus:grid=2x{SIZE}", "grid"), ("node:segments=2", "parameters")):
        with pytest.raises(ValueError, match=said):
            allreduce.Communicator(algorithm=name)
    with pytest.raises(TypeError, match="not 3"):
        allreduce.Communicator(algorithm=3)
    with allreduce.Communicator(algorithm=f"torus:grid=1x{SIZE}") as comm:  # what MPI has split is not lost
        comm.Split(RANK).close()


def test_a_root_of_any_whole_type(comm):
    root = np.int64(SIZE - 1)
    assert (allreduce.bcast(np.full(3, RANK), root, comm=comm) == root).all()


def test_an_operation_that_raises_does_so_where_it_is_called(comm):
    """Found when it is tried out, before anything is sent."""

    def op(a, b):
        raise ZeroDivisionError("never")

    refused(comm, lambda: allreduce.allreduce(X, op=op, comm=comm), ZeroDivisionError, "never")
    WORLD.Barrier()
