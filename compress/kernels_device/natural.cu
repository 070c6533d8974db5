// The nearest power of two, or one of the two around a value at random, as natural.py has them: exponents, then signs.

constexpr int record(int n) { return n + packed(1, n); }

void encode_block(const float* x, Member me, uint64 key, uint8* out) {
    uint32 signs[8];
    for (int j = 0; j < 8; j++) {
        int i = 8 * me.place + j;
        uint32 size = magnitude(x[j]), carry = STOCHASTIC ? random32(key, i) >> 9 : 0x400000;
        uint32 exponent = (size + carry) >> 23;
        exponent = size >= INFINITE ? 255 : exponent > 254 ? 254 : exponent;
        signs[j] = __float_as_uint(x[j]) >> 31;
        if (j < me.own) out[i] = exponent;
    }
    pack<1>(signs, me.own, out + me.count + me.place);
}

void decode_block(const uint8* message, Member me, float* x) {
    uint32 signs[8];
    unpack<1>(message + me.count + me.place, me.own, signs);
    for (int j = 0; j < 8; j++) {
        uint32 exponent = j < me.own ? message[8 * me.place + j] : 0;
        x[j] = __uint_as_float((exponent == 255 ? 0x7FC00000 : exponent << 23) | signs[j] << 31);
    }
}
