// Groups of 16 values of different widths, as dynamic.py, pairs.py and allocation.py have them: LEVELS of every width,
// what the next bytes are worth to it, PRICES, which rise, and the ROOTS and MANTISSAS of an octave.
//
// A group belongs to two neighbouring threads. Of a pair of codes, one is the first thread's, one the second's.

constexpr int WARPS = TEAM / 32, GROUP = 16, CLASSES = 7, GRADES = 12, SMALL = 12 * 16;
constexpr float LEAST = 0x1p-100f, FITTING = 1 - 1.0f / (1 << SIXTEENTHS / 16);

constexpr int groups_of(int n) { return (n + GROUP - 1) / GROUP; }
constexpr int head_of(int n) { return 3 + packed(3, groups_of(n)); }
constexpr int record(int n) {
    int more = head_of(n) - groups_of(n) / 2;
    return SIXTEENTHS * groups_of(n) / 8 + (more > 0 ? more : 0);
}

bool exists(Member me) { return 8 * (me.place & ~1) < me.count; }

// Bytes of a group.
constexpr int width_of(int grade) { return grade ? grade + 4 : 0; }

// How many 16ths of an octave a number up to one is below one, rounded down.
int depth(float x) {
    int bits = __float_as_uint(x), deep = 16 * (127 - (bits >> 23));
    for (int i = 0; i < 16; i++) deep -= (bits & 0x7FFFFF) > MANTISSAS[i];
    return deep > 0 ? deep : 0;
}

// How many of the scales of a block lie above a depth, or at it.
int scales_above(int deep, int spacing) {
    int above = 0;
    for (int c = 1; c < CLASSES; c++) above += deep >= c * spacing;
    return deep < SMALL ? above : 0;
}

// How far apart the scales of a block lie, so that they are least in the mean; every lane tries one distance.
int spacing_of(int deep) {
    __shared__ int totals[TEAMS * WARPS][32];
    int lane = threadIdx.x % 32, total = 0;
    for (int group = 0; group < 16; group++) total += scales_above(__shfl_sync(~0u, deep, 2 * group), lane + 1);
    __syncthreads();
    totals[threadIdx.x / 32][lane] = total;
    __syncthreads();
    total = 0;
    for (int w = 0; w < WARPS; w++) total += totals[threadIdx.x / TEAM * WARPS + w][lane];
    int best = total * (lane + 1) << 6 | (32 - lane);
    for (int far = 1; far < 32; far *= 2) {
        int other = __shfl_xor_sync(~0u, best, far);
        best = other > best ? other : best;
    }
    return 33 - (best & 63);
}

float scale_of(float unit, int number, int spacing) {
    int below = number * spacing;
    return unit * ROOTS[below % 16] * __uint_as_float((uint32)(127 - below / 16) << 23);
}

// The sum over all groups of the team before this one; x is the same in both threads.
int sum_before(int x, int& total) {
    __shared__ int sums[TEAMS * WARPS];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, sum = lane % 2 ? 0 : x, before = 0;
    for (int far = 1; far < 32; far *= 2) {
        int y = __shfl_up_sync(~0u, sum, far);
        if (lane >= far) sum += y;
    }
    __syncthreads();
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
    total = 0;
    for (int w = warp / WARPS * WARPS; w < warp / WARPS * WARPS + WARPS; w++) {
        if (w < warp) before += sums[w];
        total += sums[w];
    }
    return before + sum - x;
}

// What a group gets: its bytes, where they begin, and its levels; and the bytes that all get.
struct Share { int width, place, levels, used; };

// Bytes go where they are worth most. Every thread looks at one step of one class, and sums what all steps cost that
// are worth as much; the first that is too dear is taken by as many groups as can afford it.
Share share_of(int number, int spacing, int budget, Member me) {
    __shared__ int counts[TEAMS * WARPS][CLASSES], grades[TEAMS][CLASSES + 1], raised[TEAMS], spare[TEAMS];
    int team = threadIdx.x / TEAM, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    __syncthreads();
    for (int c = 0; c < CLASSES; c++) {
        uint32 those = __ballot_sync(~0u, lane % 2 == 0 && number == c);
        if (lane == c) counts[warp][c] = __popc(those);
    }
    if (me.place <= CLASSES) grades[team][me.place] = 0;
    if (me.place == 0) raised[team] = -1, spare[team] = 0;
    __syncthreads();
    int mine = me.place / GRADES, next = me.place % GRADES;
    if (mine < CLASSES) {
        int price = mine * spacing + PRICES[next], step = width_of(next + 1) - width_of(next), spent = 0, cost = 0;
        for (int c = 0; c < CLASSES; c++) {
            int grade = 0, count = 0;
            for (int g = 0; g < GRADES; g++) grade += c * spacing + PRICES[g] < price + (c <= mine);
            for (int w = 0; w < WARPS; w++) count += counts[team * WARPS + w][c];
            spent += count * width_of(grade);
            if (c == mine) cost = count * step;
        }
        if (spent <= budget)
            atomicAdd(&grades[team][mine], 1);
        else if (spent - cost <= budget)
            raised[team] = mine, spare[team] = (budget - spent + cost) / step;
    }
    __syncthreads();
    Share share;
    bool lifted = number == raised[team];
    int all, rank = sum_before(lifted, all);
    int grade = grades[team][number] + (lifted && rank < spare[team]);
    share.width = width_of(grade);
    share.levels = LEVELS[grade];
    share.place = sum_before(share.width, share.used);
    return share;
}

// Eight parts of pairs, of so many bits, in as many bytes: the lower byte of each, or what is above.
void put_parts(uint8* to, int bits, const uint32* parts) {
    uint64 word = 0;
    for (int j = 0; j < 8; j++) word |= (uint64)parts[j] << bits * j;
    for (int b = 0; b < 8; b++)
        if (b < bits) to[b] = word >> 8 * b;
}
void get_parts(const uint8* from, int bits, int above, uint32* pairs) {
    uint64 word = 0;
    for (int b = 0; b < 8; b++)
        if (b < bits) word |= (uint64)from[b] << 8 * b;
    for (int j = 0; j < 8; j++) pairs[j] |= (uint32)(word >> bits * j & ((1 << bits) - 1)) << above;
}

void encode_block(const float* x, Member me, uint64 key, uint8* out) {
    uint32 top = peak(x), highest = 0, parts[8];
    uint32 bits = __uint_as_float(top) >= LEAST ? scale_up(__uint_as_float(top), LARGEST) : 0;
    bits = top >= INFINITE ? NAN_SCALE : bits;
    bool sound = 0 < bits && bits < NAN_SCALE, odd = me.place % 2;
    float unit = sound ? scale(bits) : 1, sizes[8];
    for (int j = 0; j < 8; j++) {
        sizes[j] = sound && j < me.own ? __uint_as_float(magnitude(x[j])) : 0;
        highest = magnitude(sizes[j]) > highest ? magnitude(sizes[j]) : highest;
    }
    uint32 theirs = __shfl_xor_sync(~0u, highest, 1);
    highest = theirs > highest ? theirs : highest;
    int deep = exists(me) ? depth(FITTING * __uint_as_float(highest) / unit) : SMALL;
    int spacing = spacing_of(deep), number = deep < SMALL ? scales_above(deep, spacing) : CLASSES;
    uint32 word = exists(me) ? number << 3 * (me.place / 2 % 8) : 0;
    for (int far = 2; far < 16; far *= 2) word |= __shfl_xor_sync(~0u, word, far);
    if (me.own && me.place == 0) put_bytes<2>(out, bits), out[2] = spacing;
    if (me.own && me.place % 16 == 0) put_bytes<3>(out + 3 + 3 * (me.place / 16), word);
    int head = head_of(me.count), budget = me.count ? record(me.count) - head : 0;
    Share share = share_of(number, spacing, budget, me);
    int levels = share.levels ? share.levels : 1;
    float group = scale_of(unit, number, spacing), less = 0.25f / (float)(levels * levels);
    for (int j = 0; j < 8; j++) {
        float place = __fsqrt_rn(1 - less + 3 * (sizes[j] / group)) - 1;
        int q = nearest(place * (float)levels) - nearest(0);
        q = q < levels ? q : levels;
        int code = levels + (j < me.own && __float_as_uint(x[j]) >> 31 ? -q : q);
        int other = __shfl_xor_sync(~0u, code, 1), size = 2 * levels + 1;
        parts[j] = odd ? (other + size * code) >> 8 : (code + size * other) & 255;
    }
    int own = odd ? share.width - 8 : share.width < 8 ? share.width : 8;
    if (own > 0) put_parts(out + head + share.place + 8 * odd, own, parts);
    for (int i = share.used + me.place; i < budget; i += TEAM) out[head + i] = 0;
}

void decode_block(const uint8* message, Member me, float* x) {
    float unit = scale(me.own ? get_bytes<2>(message) : 0);
    int spacing = me.count ? message[2] : 1, number = CLASSES;  // threads without values look at steps, too
    if (exists(me)) number = get_bytes<3>(message + 3 + 3 * (me.place / 16)) >> 3 * (me.place / 2 % 8) & 7;
    int head = head_of(me.count), budget = me.count ? record(me.count) - head : 0;
    Share share = share_of(number, spacing, budget, me);
    const uint8* from = message + head + share.place;
    int size = 2 * share.levels + 1;
    float inverse = 1 / (float)size, step = scale_of(unit, number, spacing) / (float)(3 * share.levels * share.levels);
    uint32 pairs[8] = {};
    if (share.width) get_parts(from, share.width < 8 ? share.width : 8, 0, pairs);
    if (share.width > 8) get_parts(from + 8, share.width - 8, 8, pairs);
    for (int j = 0; j < 8; j++) {
        uint32 upper = ((float)pairs[j] + 0.5f) * inverse;
        float q = (float)(me.place % 2 ? upper : pairs[j] - size * upper) - (float)share.levels;
        float far = __uint_as_float(magnitude(q)) + (float)(2 * share.levels);
        x[j] = share.width ? q * far * step : unit * 0;
    }
}
