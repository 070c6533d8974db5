"""All-reduces inside compiled functions of JAX: none is lost, all in order, with gradients."""

import numpy as np
import pytest
from witness import RANK, SIZE, Verdict

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install 'allreduce[jax]'")

import jax.numpy as jnp  # noqa: E402

from allreduce.jax import allreduce  # noqa: E402

pytestmark = pytest.mark.mpi
TOTAL = SIZE * (SIZE + 1) / 2


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 5)], ids=str)
def test_compiled_or_not(shape, dtype):
    x = jnp.full(shape, RANK + 1, dtype)
    with Verdict() as verdict:
        for call in (allreduce, jax.jit(allreduce)):
            found = call(x)
            verdict.check(found.shape == shape and found.dtype == x.dtype, found)
            verdict.check((found == TOTAL).all(), found)
        verdict.check((jax.jit(lambda x: allreduce(x, "max"))(x) == SIZE).all(), "max")


def test_calls_keep_their_order_though_no_result_is_used():
    """Of different lengths, so that swapped or dropped ones would not fit together."""

    @jax.jit
    def some(x):
        allreduce(x)
        allreduce(x)
        rest = allreduce(x[1:], "avg")
        return jax.lax.scan(lambda carry, _: (allreduce(carry, "avg") + 1, carry), rest, length=5)[0]

    found = np.asarray(some(jnp.arange(4.0)))
    with Verdict() as verdict:
        verdict.check(np.allclose(found, [6, 7, 8]), found)
        verdict.same(found)


def test_gradients_are_those_of_all_ranks():
    """Of the sum over ranks of what each makes of the result."""

    def loss(x, op):
        return (RANK + 1) * allreduce(x, op).sum()

    with Verdict() as verdict:
        for op, wanted in (("sum", TOTAL), ("avg", TOTAL / SIZE)):
            found = jax.jit(jax.grad(loss), static_argnums=1)(jnp.ones(3), op)
            verdict.check(np.allclose(found, wanted), op, found)


def test_replicas_train_as_one():
    """Linear regression by gradient descent, each rank with its share of the samples."""
    rng = np.random.default_rng(0)
    samples, weights = rng.standard_normal((8 * SIZE, 3)), np.array([1.0, -2.0, 3.0])
    x = jnp.asarray(samples[RANK::SIZE])
    y = jnp.asarray((samples @ weights)[RANK::SIZE])

    @jax.jit
    def step(w):
        return w - 0.3 * allreduce(jax.grad(lambda w: ((x @ w - y) ** 2).mean())(w), "avg")

    w = jnp.zeros(3)
    for _ in range(60):
        w = step(w)
    with Verdict() as verdict:
        verdict.check(np.allclose(w, weights, atol=1e-2), w)
        verdict.same(np.asarray(w))


def test_refusals():
    with pytest.raises(Exception, match="unknown algorithm"):
        jax.block_until_ready(allreduce(jnp.ones(3), algorithm="rign"))
    with pytest.raises(ValueError, match="vmap"):
        jax.vmap(allreduce)(jnp.ones((2, 3)))
