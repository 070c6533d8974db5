// What error feedback does before and after an all-reduce, as feedback.py has it: what is kept are residuals.

// values = tensors plus residuals
KERNEL wanted(W* values, const Tensor* tensors, int64 many) {
    Part part(tensors, many);
    Eight x = load(part.of.x + part.i, part.own);
    Wide y = load(part.of.kept + part.i, part.own);
    for (int j = 0; j < 8; j++) {
        W value = wide(x.at[j]);
        y.at[j] = value == value ? value + y.at[j] : quiet(value);
    }
    store(values + part.place, part.own, y);
}

// Results = the total, rounded, for which one rank answers; and whether what is lost is odd.
KERNEL finish(const W* total, W* lost, uint64* odd, const Tensor* tensors, int64 many, int64 answers) {
    Part part(tensors, many);
    Wide sum = load(total + part.place, part.own), rest = load(lost + part.place, part.own);
    Eight result;
    bool rounds = sizeof(T) < sizeof(W) && answers, bad = false;
    for (int j = 0; j < 8; j++) {
        result.at[j] = As<T>::narrow(sum.at[j]);
        if (rounds) rest.at[j] += sum.at[j] - widen(result.at[j]);
        bad |= !finite(rest.at[j]);
    }
    if ((const void*)part.of.out != total) store(part.of.out + part.i, part.own, result);
    if (rounds) store(lost + part.place, part.own, rest);
    if (bad) all_odd(odd, many);
}
