// What differences.py does before and after an all-reduce. All tensors are told of twice: what is kept is first
// the state of this rank with the other sign, and then the sum of all states.

// values = how the tensor differs from the state
KERNEL apart(W* values, const Tensor* tensors, int64 many) {
    Part part(tensors, many / 2);
    Eight x = load(part.of.x + part.i, part.own);
    Wide less = load(part.of.kept + part.i, part.own);
    for (int j = 0; j < 8; j++) {
        W value = wide(x.at[j]);
        less.at[j] = value == value ? value + less.at[j] : quiet(value);
    }
    store(values + part.place, part.own, less);
}

// The result = the sum of all states and changes. In a vector of what is lost, then of the changes, these become the
// next states; odd if one is not finite.
KERNEL go_on(W* vector, uint64* odd, const Tensor* tensors, int64 many, int64 alpha) {
    Part part(tensors, many / 2);
    const Tensor& all = tensors[many / 2 + part.number];
    Eight x = load(part.of.x + part.i, part.own);
    Wide less = load(part.of.kept + part.i, part.own), total = load(all.kept + part.i, part.own);
    Wide lost = load(vector + part.place, part.own), change = load(vector + all.first + part.i, part.own);
    W share = __longlong_as_double(alpha);
    bool bad = false;
    for (int j = 0; j < 8; j++) {
        W moved = wide(x.at[j]) + less.at[j] - lost.at[j];
        x.at[j] = As<T>::narrow(total.at[j] + change.at[j]);
        lost.at[j] = less.at[j] - share * moved;
        change.at[j] = total.at[j] + share * change.at[j];
        bad |= !finite(lost.at[j]) || !finite(change.at[j]);
    }
    store(part.of.out + part.i, part.own, x);
    store(vector + part.place, part.own, lost);
    store(vector + all.first + part.i, part.own, change);
    if (bad) all_odd(odd, many);
}
