"""What kernels read and write: (address, bytes, whether it is written)."""

import re

import numpy as np

ITEMSIZES = {
    "Half": 2, "BFloat16": 2, "unsigned char": 1, "signed char": 1, "unsigned short": 2, "signed short": 2,
    "unsigned int": 4, "signed int": 4, "unsigned long long": 8, "signed long long": 8, "float": 4, "double": 8,
    "Complex<float>": 8, "Complex<double>": 16,
}  # fmt: skip


def touched(fake, text, name, arguments):
    """By a kernel of a source text."""
    types = {which: ITEMSIZES[kind] for kind, which in re.findall(r"typedef ([\w<> ]+) (T|To|From|W|Code);", text)}
    if name in OF_METHODS:
        block = re.search(r"constexpr int (?:BLOCK|RANK) = (\d+);", text)
        return OF_METHODS[name](fake, types, block and int(block[1]), *arguments)
    if name == "cast":
        out, a, count = arguments
        return [(out, count * types["To"], True), (a, count * types["From"], False)]
    if name == "divide":
        out, a, _, count = arguments
        operands = [a]
    elif name.startswith("fused_"):
        out, parts, size, count, also = arguments
        assert not also
        operands = fake.numbers(parts, size)
    else:
        assert name.startswith("reduce_") or name == "difference"
        out, *operands, count = arguments
    nbytes = count * types["T"]
    return [(out, nbytes, True), *((operand, nbytes, False) for operand in operands)]


def tensors(fake, table, many):
    """Of memory.cu: (x, kept, out, first, count, tile) of each."""
    return np.reshape(fake.numbers(table, 6 * many), (many, 6)).tolist()


def wanted(fake, types, _, values, table, many):
    for x, residual, _, first, count, _ in tensors(fake, table, many):
        yield from ((x, types["T"] * count, False), (residual, types["W"] * count, False))
        yield values + types["W"] * first, types["W"] * count, True


def finish(fake, types, _, total, lost, odd, table, many, answers):
    for k, (_, _, out, first, count, _) in enumerate(tensors(fake, table, many)):
        place, wide = types["W"] * first, types["W"] * count
        yield from ((total + place, wide, False), (lost + place, wide, False), (odd + 8 * k, 8, True))
        if out != total:
            yield out, types["T"] * count, True
        if types["T"] < types["W"] and answers:
            yield lost + place, wide, True


def keep(fake, types, _, lost, odd, table, many):
    for k, (_, residual, _, first, count, _) in enumerate(tensors(fake, table, many)):
        yield from ((lost + types["W"] * first, types["W"] * count, False), (odd + 8 * k, 8, False))
        yield residual, types["W"] * count, True


def apart(fake, types, _, values, table, many):
    return wanted(fake, types, _, values, table, many // 2)


def go_on(fake, types, _, vector, odd, table, many, alpha):
    told = tensors(fake, table, many)
    for (x, own, out, place, count, _), (_, total, _, change, _, _) in zip(told, told[many // 2 :]):
        kept = (own, total, *(vector + types["W"] * first for first in (place, change)))
        yield from ((part, types["W"] * count, False) for part in kept)
        yield from ((x, types["T"] * count, False), (out, types["T"] * count, True))
        yield from ((part, types["W"] * count, True) for part in kept[2:])
    yield odd, 8 * many, True


def peaks(fake, types, block, out, a, count):
    return [(a, count * types["T"], False), (out, 4 * -(-count // block), True)]


def quantise(fake, types, block, out, a, peaks, index, count, stream):
    return [(a, count * types["T"], False), (peaks, 4 * -(-count // block), False), (out, count * types["Code"], True)]


def restore(fake, types, block, out, sums, peaks, count):
    read = [(sums, count * types["Code"], False), (peaks, 4 * -(-count // block), False)]
    return [*read, (out, count * types["T"], True)]


def push(fake, types, _, vector, table, many, momentum):
    told = tensors(fake, table, many)
    for x, _, _, _, count, _ in told[: many // 2]:
        yield x, types["T"] * count, False
    for _, kept, _, first, count, _ in told:
        yield from ((kept, types["W"] * count, False), (vector + types["W"] * first, types["W"] * count, True))


def stop(fake, types, _, vector, sent, odd, table, many):
    count = sum(count for *_, count, _ in tensors(fake, table, many))
    yield from ((sent, types["T"] * count // 2, False), (odd, 8 * many, True))
    yield from ((vector, types["W"] * count, False), (vector, types["W"] * count, True))


def share(fake, types, _, total, table, many):
    for _, _, out, first, count, _ in tensors(fake, table, many)[: many // 2]:
        yield from ((total + types["T"] * first, types["T"] * count, False), (out, types["T"] * count, True))


def deal(fake, types, _, regions, x, count, size, length, run):
    return [(x, types["T"] * count, False), (regions, types["T"] * size * length, True)]


def collect(fake, types, _, x, regions, count, size, length, run):
    return [(regions, types["T"] * size * length, False), (x, types["T"] * count, True)]


def matrices(fake, types, rank, table, many):
    """Of powersgd.cu: (m, p, parts, own, total, q, out, rows, columns) of each, and bytes of M, P, parts, Q and out."""
    for row in np.reshape(fake.numbers(table, 12 * many), (many, 12)).tolist():
        rows, columns = row[7:9]
        wide, patches = types["W"], -(-rows // 256)
        sizes = wide * rows * columns, wide * rows * rank, wide * patches * columns * rank, wide * columns * rank
        yield *row[:7], *sizes, types["T"] * rows * columns


def multiply(*facts):
    for m, p, _, _, _, q, _, whole, left, _, right, _ in matrices(*facts):
        yield from ((m, whole, False), (q, right, False), (p, left, True))


def orthonormalise(*facts):
    for _, p, *_, left, _, _, _ in matrices(*facts):
        yield from ((p, left, False), (p, left, True))


def multiply_turned(*facts):
    for m, p, parts, _, _, _, _, whole, left, sums, _, _ in matrices(*facts):
        yield from ((m, whole, False), (p, left, False), (parts, sums, True))


def add_parts(*facts):
    for _, _, parts, own, total, _, _, _, _, sums, right, _ in matrices(*facts):
        yield from ((parts, sums, False), (own, right, True), (total, right, True))


def approximate(fake, types, rank, odd, table, many):
    yield odd, 8 * many, True
    for m, p, _, own, total, _, out, whole, left, _, right, result in matrices(fake, types, rank, table, many):
        yield from ((m, whole, False), (p, left, False), (own, right, False), (total, right, False))
        yield from ((m, whole, True), (out, result, True))


def keep_factors(fake, types, rank, odd, table, many):
    yield odd, 8 * many, False
    for _, _, _, _, total, q, _, _, _, _, right, _ in matrices(fake, types, rank, table, many):
        yield from ((total, right, False), (q, right, True))


#: Kernels of methods, and of no codec as `lookup` has it: they work on whole arrays.
OF_METHODS = {
    function.__name__: function
    for function in (
        wanted, finish, keep, apart, go_on, push, stop, share, deal, collect, peaks, quantise, restore,
        multiply, orthonormalise, multiply_turned, add_parts, approximate, keep_factors,
    )
}
