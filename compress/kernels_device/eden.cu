// Random signs and a Hadamard transform, then the nearest of 2**WIDTH centres, as eden.py has them.
//
// CENTRES are those above zero, ascending; what is nearest to one of them ends at its edge.

constexpr int HALF_OF_CENTRES = 1 << (WIDTH - 1);

constexpr int record(int n) {
    int size = 8;
    while (size < n) size *= 2;
    return 8 + packed(WIDTH, size);
}

// x with a random sign.
float flipped(float x, uint32 key, int i) {
    return __uint_as_float(__float_as_uint(x) ^ (mix(key + (uint32)i) & 0x80000000));
}

// Sums and differences of values whose numbers differ in one bit, from the highest bit of `size` on, in place.
void hadamard(float* x, int place, int size) {
    for (int far = TEAM / 2; far; far /= 2) {
        if (far >= 32) {
            __syncthreads();
            for (int j = 0; j < 8; j++) room[j * THREADS + threadIdx.x] = x[j];
            __syncthreads();
        }
        for (int j = 0; j < 8; j++) {
            float y = far >= 32 ? room[j * THREADS + (threadIdx.x ^ far)] : __shfl_xor_sync(~0u, x[j], far);
            if (8 * far < size) x[j] = place & far ? y - x[j] : x[j] + y;
        }
    }
    for (int far = 4; far; far /= 2)
        for (int j = 0; j < 8; j++)
            if (!(j & far)) {
                float y = x[j + far];
                x[j + far] = x[j] - y;
                x[j] += y;
            }
}

void encode_block(const float* x, Member me, uint64 key, uint8* out) {
    uint32 top = peak(x);
    bool finite = top < INFINITE;
    int size = filled(me.count), first = 8 * me.place;
    float unit = power_below(top), rotated[8], products[8];
    for (int j = 0; j < 8; j++) {
        rotated[j] = finite && j < me.own ? flipped(x[j] / unit, (uint32)key, first + j) : 0;
        products[j] = rotated[j] * rotated[j];
    }
    float norm = __fsqrt_rn(tree_sum(products)), inverse = norm > 0 ? 1 / norm : 0;
    hadamard(rotated, me.place, size);
    uint32 codes[8];
    for (int j = 0; j < 8; j++) {
        float t = __uint_as_float(magnitude(rotated[j])) * inverse, centre = CENTRES[0];
        codes[j] = __float_as_uint(rotated[j]) >> 31 << (WIDTH - 1);
        for (int edge = 0; edge < HALF_OF_CENTRES - 1; edge++)
            if (t > EDGES[edge]) centre = CENTRES[edge + 1], codes[j]++;
        products[j] = first < size ? t * centre : 0;
    }
    float dot = tree_sum(products), scale = finite ? dot > 0 ? norm / dot * unit : 0 : __uint_as_float(0x7FC00000);
    scale = scale > LARGEST ? LARGEST : scale;
    if (me.own && me.place == 0) put_bytes<8>(out, (uint64)__float_as_uint(scale) << 32 | (uint32)key);
    pack<WIDTH>(codes, me.count && first < size ? 8 : 0, out + 8 + WIDTH * me.place);
}

void decode_block(const uint8* message, Member me, float* x) {
    int size = me.count ? filled(me.count) : 0, first = 8 * me.place;
    uint64 head = me.count ? get_bytes<8>(message) : 0;
    float scale = __uint_as_float(head >> 32);
    uint32 codes[8];
    unpack<WIDTH>(message + 8 + WIDTH * me.place, first < size ? 8 : 0, codes);
    for (int j = 0; j < 8; j++) {
        x[j] = CENTRES[0];
        for (int edge = 0; edge < HALF_OF_CENTRES - 1; edge++)
            if ((int)codes[j] % HALF_OF_CENTRES > edge) x[j] = CENTRES[edge + 1];
        if (codes[j] >= HALF_OF_CENTRES) x[j] = -x[j];
    }
    hadamard(x, me.place, size);
    for (int j = 0; j < 8; j++) {
        float product = x[j] * scale;
        product = product > LARGEST ? LARGEST : product < -LARGEST ? -LARGEST : product;
        x[j] = flipped(product, (uint32)head, first + j);
    }
}
