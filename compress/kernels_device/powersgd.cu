// A step of power iteration, as powersgd.py has it, of many matrices at once. Sums have an order that depends on nothing
// but the shape, so that all devices get the same bits; LAPACK and BLAS have another.
//
// A matrix lies row by row, and so do its factors: P has RANK numbers for each of its rows, Q for each of its columns.

constexpr int WARPS = THREADS / 32, MOST_THREADS = 1024;
// Rows of M that read the same of Q; and of a patch, which is a warp wide.
constexpr int ROWS = 4, PATCH = 256;
// How the work is cut into tiles.
enum Cut { BY_ROWS, BY_PATCHES, BY_FACTORS };

struct Matrix {
    W* m;      // gradient plus residual; in the end, what is lost of it
    W* p;      // of this rank, then of all, then orthonormal
    W* parts;  // of M^T P, from each PATCH of rows
    W* own;    // M^T P
    W* total;  // its sum over the ranks
    W* q;      // what is remembered
    T* out;
    int64 rows, columns;
    int64 first[3];  // of its tiles, by the cut
};

struct Place {
    Matrix of;
    int64 number, tile;

    Place(const Matrix* table, int64 many, Cut cut) {
        number = 0;
        for (int64 end = many; end - number > 1;) {
            int64 middle = (number + end) / 2;
            (table[middle].first[cut] <= blockIdx.x ? number : end) = middle;
        }
        of = table[number];
        tile = blockIdx.x - of.first[cut];
    }
};

// A thread's column of a patch, and the rows that its warp has of it: every WARPS-th.
struct Strip : Place {
    int64 chunk, column, first, last;

    Strip(const Matrix* table, int64 many) : Place(table, many, BY_PATCHES) {
        int64 strips = (of.columns + 31) / 32;
        chunk = tile / strips;
        column = tile % strips * 32 + threadIdx.x % 32;
        first = chunk * PATCH + threadIdx.x / 32;
        last = (chunk + 1) * PATCH < of.rows ? (chunk + 1) * PATCH : of.rows;
        if (column >= of.columns) last = 0;
    }
};

float root(float x) { return __fsqrt_rn(x); }
double root(double x) { return __dsqrt_rn(x); }

// The sum over all threads of a block, the same in each.
W over_block(W x) {
    __shared__ W warps[MOST_THREADS / 32];
    for (int far = 16; far; far /= 2) x += __shfl_xor_sync(~0u, x, far);
    __syncthreads();
    warps[threadIdx.x / 32] = x;
    __syncthreads();
    W sum = warps[0];
    for (int warp = 1; warp < blockDim.x / 32; warp++) sum += warps[warp];
    return sum;
}

// The sum over threads that have the same place in their warps.
W over_warps(W x) {
    __shared__ W all[WARPS][32];
    __syncthreads();
    all[threadIdx.x / 32][threadIdx.x % 32] = x;
    __syncthreads();
    W sum = all[0][threadIdx.x % 32];
    for (int warp = 1; warp < WARPS; warp++) sum += all[warp][threadIdx.x % 32];
    return sum;
}

// p = M Q
KERNEL multiply(const Matrix* table, int64 many) {
    Place at(table, many, BY_ROWS);
    int64 row = at.tile * ROWS, left = at.of.rows - row, columns = at.of.columns;
    W sums[ROWS][RANK] = {};
    for (int64 j = threadIdx.x; j < columns; j += THREADS)
        for (int i = 0; i < ROWS; i++) {
            W x = i < left ? at.of.m[(row + i) * columns + j] : 0;
            for (int k = 0; k < RANK; k++) sums[i][k] += x * at.of.q[j * RANK + k];
        }
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int k = 0; k < RANK; k++) {  // unrolled, or sums would be in memory and not in registers
            W sum = over_block(sums[i][k]);
            if (threadIdx.x == 0 && i < left) at.of.p[(row + i) * RANK + k] = sum;
        }
}

// Column k becomes as long as one, after what lies along those before it is taken away: twice, for the first time leaves
// rounding errors where little is left. False if there was nothing but these.
bool straighten(W* p, int64 rows, int k) {
    auto each = [=](auto f) {
        for (int64 i = threadIdx.x; i < rows; i += blockDim.x) f(p + i * RANK);
    };
    W length = 0;
    each([&](const W* row) { length += row[k] < 0 ? -row[k] : row[k]; });  // whose squares might overflow
    length = over_block(length);
    for (int turn = 0; turn < 2; turn++) {
        if (length == 0) return false;
        each([=](W* row) { row[k] /= length; });
        for (int before = 0; before < k; before++) {
            W along = 0;
            each([&](const W* row) { along += row[before] * row[k]; });
            along = over_block(along);
            each([=](W* row) { row[k] -= along * row[before]; });
        }
        length = 0;
        each([&](const W* row) { length += row[k] * row[k]; });
        length = root(over_block(length));
    }
    if (length < W(0.5)) return false;
    each([=](W* row) { row[k] /= length; });
    return true;
}

// A block for each P, a thread for each row, and every so many. What has no direction of its own gets a new one, or it
// would be zero for ever.
extern "C" __global__ void __launch_bounds__(MOST_THREADS, 1) orthonormalise(const Matrix* table, int64 many) {
    Matrix of = table[blockIdx.x];
    for (int k = 0; k < RANK; k++)
        for (int64 unit = 0; !straighten(of.p, of.rows, k); unit++)
            for (int64 i = threadIdx.x; i < of.rows; i += blockDim.x) of.p[i * RANK + k] = i == unit;
}

// Sums of M^T P over the rows of each patch.
KERNEL multiply_turned(const Matrix* table, int64 many) {
    Strip at(table, many);
    W sums[RANK] = {};
    for (int64 i = at.first; i < at.last; i += WARPS) {
        W x = at.of.m[i * at.of.columns + at.column];
        for (int k = 0; k < RANK; k++) sums[k] += x * at.of.p[i * RANK + k];
    }
#pragma unroll
    for (int k = 0; k < RANK; k++) {
        W sum = over_warps(sums[k]);
        bool mine = threadIdx.x < 32 && at.column < at.of.columns;
        if (mine) at.of.parts[(at.chunk * at.of.columns + at.column) * RANK + k] = sum;
    }
}

// own = total = the sums of these
KERNEL add_parts(const Matrix* table, int64 many) {
    Place at(table, many, BY_FACTORS);
    int64 i = at.tile * THREADS + threadIdx.x, size = at.of.columns * RANK, parts = (at.of.rows + PATCH - 1) / PATCH;
    if (i >= size) return;
    W sum = 0;
    for (int64 part = 0; part < parts; part++) sum += at.of.parts[part * size + i];
    at.of.own[i] = at.of.total[i] = sum;
}

// out = P times the total, turned; M loses what this rank had a share of in it; and whether anything is odd.
KERNEL approximate(uint64* odd, const Matrix* table, int64 many) {
    Strip at(table, many);
    if (at.first >= at.last) return;
    W own[RANK], total[RANK];
    bool bad = false;
    for (int k = 0; k < RANK; k++) {
        own[k] = at.of.own[at.column * RANK + k];
        total[k] = at.of.total[at.column * RANK + k];
        bad |= !finite(total[k]);
    }
    for (int64 i = at.first; i < at.last; i += WARPS) {
        int64 place = i * at.of.columns + at.column;
        W rest = at.of.m[place], sum = 0;
        for (int k = 0; k < RANK; k++) {
            W share = at.of.p[i * RANK + k];
            rest -= share * own[k];
            sum += share * total[k];
        }
        at.of.m[place] = rest;
        at.of.out[place] = As<T>::narrow(sum);
        bad |= !finite(rest);
    }
    if (bad) odd[at.number] = 1;
}

// What is remembered of each Q = its total, unless something is odd.
KERNEL keep_factors(const uint64* odd, const Matrix* table, int64 many) {
    Place at(table, many, BY_FACTORS);
    int64 i = at.tile * THREADS + threadIdx.x;
    if (i < at.of.columns * RANK && !odd[at.number]) at.of.q[i] = at.of.total[i];
}
