// The sign of every value, times the mean magnitude of its block, as sign.py has it.

constexpr int record(int n) { return 2 + packed(1, n); }

void encode_block(const float* x, Member me, uint64 key, uint8* out) {
    float unit = 0.5f / (float)filled(me.count), sizes[8];  // no sum of so many overflows
    uint32 codes[8];
    for (int j = 0; j < 8; j++) {
        sizes[j] = __uint_as_float(magnitude(x[j])) * unit;
        codes[j] = __float_as_uint(x[j]) >> 31;
    }
    float mean = tree_sum(sizes) / ((float)me.count * unit);
    bool finite = peak(x) < INFINITE;
    if (me.own && me.place == 0) put_bytes<2>(out, finite ? scale_up(mean, LARGEST) : NAN_SCALE);
    pack<1>(codes, me.own, out + 2 + me.place);
}

void decode_block(const uint8* message, Member me, float* x) {
    uint32 mean = __float_as_uint(scale(me.own ? get_bytes<2>(message) : 0)), codes[8];
    unpack<1>(message + 2 + me.place, me.own, codes);
    for (int j = 0; j < 8; j++) x[j] = __uint_as_float(mean | codes[j] << 31);
}
