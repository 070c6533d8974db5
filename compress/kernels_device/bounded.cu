// Multiples of twice a bound in as many bits as 32 values need, as bounded.py has them: a warp works on a record.
//
// Where a record begins is known when all before it are. So to decode, every block of threads follows the records of a
// part of the message from wherever the first may begin; one block joins these; and all find their records again.

constexpr int THREADS = 256, WARPS = THREADS / 32, EACH = 4, TILE = WARPS * EACH, RAW = 255;
// Bytes of the longest record, of a part of a message, and parts that are joined at a time.
constexpr int LONGEST = 1 + 32 * sizeof(T), PART = 8192, JOINED = 32;

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS, 1)

// What a multiple of the step decodes to, as an element of the type of the second argument.
double shown(double multiple, double) { return multiple; }
template <class E> E shown(double multiple, E) { return rounded((float)multiple); }

// The values of a record, a lane each, and how they are written.
struct Record {
    T x;
    int own, width, bytes;  // values; bits of each, or RAW; length
    uint32 code;

    Record(const T* a, int64 number, int64 count, double bound) {
        int lane = threadIdx.x % 32;
        int64 left = count - 32 * number;
        own = left > 32 ? 32 : left > 0 ? left : 0;
        x = lane < own ? a[32 * number + lane] : As<T>::narrow(0);
        double value = widen(x), q = value / (2 * bound) + 0x1.8p52 - 0x1.8p52;
        double off = (double)widen(shown(q * (2 * bound), x)) - value;
        bool fits = off <= bound && -off <= bound && q < 0x1p30 && -q < 0x1p30;
        fits = __ballot_sync(~0u, fits) == ~0u;
        int whole = fits ? (int)q : 0;
        code = (uint32)whole << 1 ^ (uint32)(whole >> 31);
        uint32 used = code;
        for (int far = 1; far < 32; far *= 2) used |= __shfl_xor_sync(~0u, used, far);
        width = 32 - __clz(used);
        if (!fits || 4 * width >= own * (int)sizeof(T)) width = RAW;
        bytes = own ? 1 + (width == RAW ? own * (int)sizeof(T) : 4 * width) : 0;
    }
    void write(uint8* to) const {
        uint32 lane = threadIdx.x % 32, plane = 0;
        if (own && lane == 0) to[0] = width;
        if (width == RAW) {
            if (lane < own)
                for (int b = 0; b < sizeof(T); b++) to[1 + sizeof(T) * lane + b] = ((const uint8*)&x)[b];
            return;
        }
        for (int p = 0; p < width; p++) {
            uint32 bits = __ballot_sync(~0u, code >> p & 1);
            if (lane == p) plane = bits;
        }
        if (lane < width)
            for (int b = 0; b < 4; b++) to[1 + 4 * lane + b] = plane >> 8 * b;
    }
};

// The records of a block of threads.
struct Stretch {
    int64 first, last;

    Stretch(int64 count) {
        int64 records = (count + 31) / 32, tiles = (records + TILE - 1) / TILE;
        int64 each = (tiles + gridDim.x - 1) / gridDim.x * TILE;
        first = blockIdx.x * each;
        last = first + each < records ? first + each : records;
    }
};

// How many bytes every block of threads will write.
KERNEL measure(uint64* bytes, const T* a, int64 count, int64 bound) {
    __shared__ uint64 total;
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    Stretch mine(count);
    uint64 sum = 0;
    for (int64 number = mine.first + threadIdx.x / 32; number < mine.last; number += WARPS)
        sum += Record(a, number, count, __longlong_as_double(bound)).bytes;
    if (threadIdx.x % 32 == 0) atomicAdd(&total, sum);
    __syncthreads();
    if (threadIdx.x == 0) bytes[blockIdx.x] = total;
}

KERNEL encode(uint8* out, const uint64* bytes, const T* a, int64 count, int64 bound) {
    __shared__ uint64 before;
    __shared__ int sums[WARPS];
    if (threadIdx.x == 0) before = 0;
    __syncthreads();
    for (int block = threadIdx.x; block < blockIdx.x; block += THREADS) atomicAdd(&before, bytes[block]);
    __syncthreads();
    Stretch mine(count);
    uint8* to = out + before;
    int warp = threadIdx.x / 32;
    for (int64 tile = mine.first; tile < mine.last; tile += TILE) {
        auto record = [=](int k) { return Record(a, tile + EACH * warp + k, count, __longlong_as_double(bound)); };
        Record records[EACH] = {record(0), record(1), record(2), record(3)};
        int sum = 0, at = 0, all = 0;
        for (int k = 0; k < EACH; k++) sum += records[k].bytes;
        if (threadIdx.x % 32 == 0) sums[warp] = sum;
        __syncthreads();
        for (int w = 0; w < WARPS; w++) {
            if (w < warp) at += sums[w];
            all += sums[w];
        }
        __syncthreads();
        for (int k = 0; k < EACH; k++) {
            records[k].write(to + at);
            at += records[k].bytes;
        }
        to += all;
    }
}

struct alignas(16) Unit { uint8 at[16]; };
alignas(16) __shared__ uint8 box[PART + (LONGEST + 15) / 16 * 16];

// Reads a part of a message, and what its last record may take of the next; zeros after the end.
void read_box(const uint8* message, int64 nbytes) {
    int64 start = (int64)blockIdx.x * PART;
    for (int i = 16 * threadIdx.x; i < sizeof box; i += 16 * THREADS) {
        if (start + i + 16 <= nbytes)
            *(Unit*)(box + i) = *(const Unit*)(message + start + i);
        else
            for (int b = 0; b < 16; b++) box[i + b] = start + i + b < nbytes ? message[start + i + b] : 0;
    }
    __syncthreads();
}

// From the byte that tells a record's width to the next one; damaged ones are as long as any.
int length(int width) { return width < 32 ? 1 + 4 * width : LONGEST; }

// For every byte that the first record of a part may begin with: where that of the next part does, and, in the upper
// half, how many there are between.
KERNEL follow(uint32* ends, const uint8* message, int64 nbytes) {
    read_box(message, nbytes);
    for (int entry = threadIdx.x; entry < LONGEST; entry += THREADS) {
        int place = entry, records = 0;
        for (; place < PART; records++) place += length(box[place]);
        ends[(int64)blockIdx.x * LONGEST + entry] = records << 16 | (place - PART);
    }
}

// Where the first record of every part begins, and which it is.
KERNEL join(int64* starts, const uint32* ends, int64 parts) {
    __shared__ uint32 some[JOINED * LONGEST];
    int64 record = 0;
    int entry = 0;
    for (int64 part = 0; part < parts; part += JOINED) {
        int now = parts - part < JOINED ? parts - part : JOINED;
        __syncthreads();
        for (int i = threadIdx.x; i < now * LONGEST; i += THREADS) some[i] = ends[part * LONGEST + i];
        __syncthreads();
        if (threadIdx.x == 0)
            for (int k = 0; k < now; k++) {
                starts[2 * (part + k)] = entry;
                starts[2 * (part + k) + 1] = record;
                record += some[k * LONGEST + entry] >> 16;
                entry = some[k * LONGEST + entry] & 0xFFFF;
            }
    }
}

// Adds the values of a message; a record that does not fit is passed over.
KERNEL spread(T* out, const uint8* message, const int64* starts, int64 nbytes, int64 count, int64 bound) {
    __shared__ uint16 places[PART];
    __shared__ int records;
    read_box(message, nbytes);
    if (threadIdx.x == 0) {
        int found = 0;
        for (int place = starts[2 * blockIdx.x]; place < PART; place += length(box[place])) places[found++] = place;
        records = found;
    }
    __syncthreads();
    int lane = threadIdx.x % 32;
    for (int k = threadIdx.x / 32; k < records; k += WARPS) {
        const uint8* from = box + places[k];
        int64 first = 32 * (starts[2 * blockIdx.x + 1] + k), left = count - first;
        int own = left > 32 ? 32 : left > 0 ? left : 0, width = from[0], bytes = width < 32 ? 4 * width : own * sizeof(T);
        if (lane >= own || (int64)blockIdx.x * PART + places[k] + 1 + bytes > nbytes) continue;
        T value = As<T>::narrow(0);
        if (width < 32) {
            uint32 code = 0;
            for (int p = 0; p < width; p++) code |= (from[1 + 4 * p + lane / 8] >> lane % 8 & 1u) << p;
            value = shown((double)((int)(code >> 1) ^ -(int)(code & 1)) * (2 * __longlong_as_double(bound)), value);
        } else {
            for (int b = 0; b < sizeof(T); b++) ((uint8*)&value)[b] = from[1 + sizeof(T) * lane + b];
        }
        out[first + lane] = As<T>::narrow(Sum()(widen(out[first + lane]), widen(value)));
    }
}
