// What dgc.py does before and after it encodes. All tensors are told of twice: what is kept is first their velocities,
// and then what of these is not sent yet; a vector has both, one after the other.

// velocity = momentum times velocity plus the tensor; and wanted, what is not sent yet plus that.
KERNEL push(W* vector, const Tensor* tensors, int64 many, int64 momentum) {
    Part part(tensors, many / 2);
    const Tensor& rest = tensors[many / 2 + part.number];
    Eight x = load(part.of.x + part.i, part.own);
    Wide velocity = load(part.of.kept + part.i, part.own), wanted = load(rest.kept + part.i, part.own);
    W share = __longlong_as_double(momentum);
    for (int j = 0; j < 8; j++) {
        W value = wide(x.at[j]);
        velocity.at[j] = value == value ? share * velocity.at[j] + value : quiet(value);
        wanted.at[j] = value == value ? wanted.at[j] + velocity.at[j] : velocity.at[j];
    }
    store(vector + part.place, part.own, velocity);
    store(vector + rest.first + part.i, part.own, wanted);
}

// Of what is sent velocities stop, and nothing is left; odd if that is not finite.
KERNEL stop(W* vector, const T* sent, uint64* odd, const Tensor* tensors, int64 many) {
    Part part(tensors, many / 2);
    W* wanted = vector + tensors[many / 2 + part.number].first;
    Eight gone = load(sent + part.place, part.own);
    Wide velocity = load(vector + part.place, part.own), rest = load(wanted + part.i, part.own);
    bool bad = false;
    for (int j = 0; j < 8; j++) {
        W value = widen(gone.at[j]);
        velocity.at[j] = value != 0 ? 0 : velocity.at[j];
        rest.at[j] -= value;
        bad |= !finite(velocity.at[j]) || !finite(rest.at[j]);
    }
    store(vector + part.place, part.own, velocity);
    store(wanted + part.i, part.own, rest);
    if (bad) all_odd(odd, many);
}

// The results = parts of a vector.
KERNEL share(const T* total, const Tensor* tensors, int64 many) {
    Part part(tensors, many / 2);
    store(part.of.out + part.i, part.own, load(total + part.place, part.own));
}
