// Numbers of 8 bits times a power of two, as fp8.py has them: MANTISSA bits, an exponent with a BIAS, a largest of
// 1.75 * 2**TOP_EXPONENT.

constexpr int DROP = 23 - MANTISSA;
constexpr uint32 REBIAS = (127 - BIAS) << MANTISSA;

constexpr int record(int n) { return 1 + n; }

float power(int exponent) { return __uint_as_float((uint32)(exponent + 127) << 23); }

uint32 code_of(float x, float inverse) {
    float limit = __uint_as_float(0x7F800000 - (1 << 23 >> MANTISSA));  // the next number decodes to infinity
    float size = __uint_as_float(magnitude(x));
    size = (size < limit ? size : limit) * inverse;
    uint32 bits = __float_as_uint(size);
    uint32 rounded = ((bits + (1 << (DROP - 1)) - 1 + (bits >> DROP & 1)) >> DROP) - REBIAS;
    float shifter = power(24 - BIAS - MANTISSA);  // its last bit is the least number's
    uint32 small = __float_as_uint(size + shifter) - __float_as_uint(shifter);
    return (size >= power(1 - BIAS) ? rounded : small) | (__float_as_uint(x) >> 24 & 0x80);
}

void encode_block(const float* x, Member me, uint64 key, uint8* out) {
    uint32 largest = peak(x);
    int exponent = (int)(largest >> 23) + ((largest & 0x7FFFFF) > 0x600000) - TOP_EXPONENT;
    exponent = exponent > 0 ? exponent : 0;
    bool finite = largest < INFINITE;
    float inverse = power(127 - exponent);
    if (me.own && me.place == 0) out[0] = finite ? exponent : 255;
    for (int j = 0; j < 8; j++)
        if (j < me.own) out[1 + 8 * me.place + j] = finite ? code_of(x[j], inverse) : 0;
}

void decode_block(const uint8* message, Member me, float* x) {
    uint32 exponent = me.own ? message[0] : 0;
    float scale = __uint_as_float(exponent == 0 ? 0x00400000 : exponent == 255 ? 0x7FC00000 : exponent << 23);
    for (int j = 0; j < 8; j++) {
        uint32 code = j < me.own ? message[1 + 8 * me.place + j] : 0;
        x[j] = __uint_as_float((code & 0x80) << 24 | (code & 0x7F) << DROP) * power(127 - BIAS) * scale;
    }
}
