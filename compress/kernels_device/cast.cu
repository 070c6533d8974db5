// Sixteen bits a value, of a type To, as cast.py has them.

constexpr int record(int n) { return 2 * n; }

void encode_block(const float* x, Member me, uint64 key, uint8* out) {
    for (int j = 0; j < 8; j++)
        if (j < me.own) put_bytes<2>(out + 16 * me.place + 2 * j, As<To>::narrow(within(x[j], LIMIT)).bits);
}

void decode_block(const uint8* message, Member me, float* x) {
    for (int j = 0; j < 8; j++)
        x[j] = widen(To{(uint16)(j < me.own ? get_bytes<2>(message + 16 * me.place + 2 * j) : 0)});
}
