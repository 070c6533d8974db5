// What dgc.py does before and after it encodes. What is kept is the velocity, and, of a second tensor that is told to be
// the same, what of velocities is not sent yet; a vector has both, one after the other.

// velocity = momentum times velocity plus the tensor; and wanted, what is not sent yet plus that.
KERNEL push(W* vector, const Tensor* tensors, int64 many, int64 momentum) {
    Part part(tensors, 1);
    Eight x = load(part.of.x + part.i, part.own);
    Wide velocity = load(part.of.kept + part.i, part.own), wanted = load(tensors[1].kept + part.i, part.own);
    W share = __longlong_as_double(momentum);
    for (int j = 0; j < 8; j++) {
        W value = wide(x.at[j]);
        velocity.at[j] = value == value ? share * velocity.at[j] + value : quiet(value);
        wanted.at[j] = value == value ? wanted.at[j] + velocity.at[j] : velocity.at[j];
    }
    store(vector + part.i, part.own, velocity);
    store(vector + tensors[1].first + part.i, part.own, wanted);
}

// Of what is sent, which is where the result will be, velocities stop, and nothing is left; odd if that is not finite.
KERNEL stop(W* vector, uint64* odd, const Tensor* tensors, int64 many) {
    Part part(tensors, 1);
    W* wanted = vector + tensors[1].first;
    Eight sent = load(part.of.out + part.i, part.own);
    Wide velocity = load(vector + part.i, part.own), rest = load(wanted + part.i, part.own);
    bool bad = false;
    for (int j = 0; j < 8; j++) {
        W value = widen(sent.at[j]);
        velocity.at[j] = value != 0 ? 0 : velocity.at[j];
        rest.at[j] -= value;
        bad |= !finite(velocity.at[j]) || !finite(rest.at[j]);
    }
    store(vector + part.i, part.own, velocity);
    store(wanted + part.i, part.own, rest);
    if (bad) odd[0] = odd[1] = 1;
}
