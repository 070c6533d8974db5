// Whole multiples of a step, as linear.py has them: WIDTH bits a value, stochastic or not, by the peak or the norm.

constexpr int LEVELS = (1 << (WIDTH - 1)) - 1;

constexpr int record(int n) { return 2 + packed(WIDTH, n); }

void encode_block(const float* x, Member me, uint64 key, uint8* out) {
    uint32 top = peak(x);
    float step = (L2 ? norm(x, power_below(top)) : __uint_as_float(top)) / LEVELS, most = LARGEST / LEVELS;
    uint32 bits = STOCHASTIC ? scale_up(step, most) : scale_near(step, most);
    bits = top >= INFINITE ? NAN_SCALE : __float_as_uint(step) >= SMALLEST ? bits : 0;
    bool codable = 0 < bits && bits < NAN_SCALE;
    float inverse = 1 / scale(bits);
    uint32 codes[8];
    for (int j = 0; j < 8; j++) {
        int q = nearest(x[j] * inverse + (STOCHASTIC ? noise(key, 8 * me.place + j) : 0)) - nearest(0);
        if (STOCHASTIC) q = q < -LEVELS ? -LEVELS : q > LEVELS ? LEVELS : q;
        codes[j] = codable ? q + LEVELS : LEVELS;
    }
    if (me.own && me.place == 0) put_bytes<2>(out, bits);
    pack<WIDTH>(codes, me.own, out + 2 + WIDTH * me.place);
}

void decode_block(const uint8* message, Member me, float* x) {
    float step = scale(me.own ? get_bytes<2>(message) : 0);
    uint32 codes[8];
    unpack<WIDTH>(message + 2 + WIDTH * me.place, me.own, codes);
    for (int j = 0; j < 8; j++) x[j] = (float)((int)codes[j] - LEVELS) * step;
}
