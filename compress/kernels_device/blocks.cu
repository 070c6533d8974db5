// Runs a codec of blocks over an array of a type T: `record`, `encode_block` and `decode_block` are its own.
//
// A block of threads works on a tile of values. The tile's message goes through shared memory, where it lies as it does
// in 16-byte units of global memory, so that it is read and written by these.

constexpr int TILE = 8 * THREADS, RECORD = record(BLOCK);

struct alignas(16) Unit { uint8 at[16]; };

alignas(16) __shared__ uint8 box[TEAMS * RECORD + 16];

struct Tile {
    Member me;
    int64 first;   // value of the thread
    int64 block;   // first value of the team
    int64 before;  // bytes of the message
    int bytes;

    Tile(int64 count) {
        int team = threadIdx.x / TEAM;
        int64 start = (int64)blockIdx.x * TILE, left = count - start < TILE ? count - start : TILE;
        int64 n = left - team * BLOCK;
        me.place = threadIdx.x % TEAM;
        me.count = n < 0 ? 0 : n > BLOCK ? BLOCK : n;
        int own = me.count - 8 * me.place;
        me.own = own < 0 ? 0 : own > 8 ? 8 : own;
        block = start + team * BLOCK;
        first = block + 8 * me.place;
        before = (int64)blockIdx.x * TEAMS * RECORD;
        bytes = left / BLOCK * RECORD + (left % BLOCK ? record(left % BLOCK) : 0);
    }
    // Where the team's record is in the box, for a message at an address.
    uint8* record_of(const uint8* message) const {
        return box + (uint64)(message + before) % 16 + threadIdx.x / TEAM * RECORD;
    }
};

// Calls f with every byte that the box and global memory share, or g with every unit.
template <class F, class G> void move(const uint8* global, int bytes, F f, G g) {
    int lead = (uint64)global % 16, end = lead + bytes;
    for (int i = 16 * threadIdx.x; i < end; i += 16 * THREADS) {
        if (i >= lead && i + 16 <= end)
            g(i, i - lead);
        else
            for (int k = i < lead ? lead : i; k < end && k < i + 16; k++) f(k, k - lead);
    }
}
void read_box(const uint8* from, int bytes) {
    move(
        from, bytes, [=](int i, int k) { box[i] = from[k]; },
        [=](int i, int k) { *(Unit*)(box + i) = *(const Unit*)(from + k); });
    __syncthreads();
}
void write_box(uint8* to, int bytes) {
    __syncthreads();
    move(
        to, bytes, [=](int i, int k) { to[k] = box[i]; },
        [=](int i, int k) { *(Unit*)(to + k) = *(const Unit*)(box + i); });
}

// out = the message of the values at a, or of the sum of them and of what another message decodes to. LOSING: values at
// `left`, which is a, become what it lacks of them; of a sum that is added to nothing, as where it takes more kernels.
template <bool ADD, bool LOSING>
void encode_tile(uint8* out, const T* a, const uint8* message, T* left, int64 index, int64 count, uint64 stream) {
    Tile tile(count);
    Eight x = load(a + tile.first, tile.me.own);
    float values[8];
    if (ADD) {
        read_box(message + tile.before, tile.bytes);
        decode_block(tile.record_of(message), tile.me, values);
        for (int j = 0; j < 8; j++) x.at[j] = plus(x.at[j], values[j]);
        __syncthreads();
    }
    for (int j = 0; j < 8; j++) values[j] = !ADD || j < tile.me.own ? (float)widen(x.at[j]) : 0;
    encode_block(values, tile.me, noise_key(stream, index + tile.block), tile.record_of(out));
    write_box(out + tile.before, tile.bytes);
    if (LOSING) {
        decode_block(tile.record_of(out), tile.me, values);
        for (int j = 0; j < 8; j++) x.at[j] = minus(x.at[j], values[j]);
        if (ADD)
            for (int j = 0; j < 8; j++) x.at[j] = plus(x.at[j], 0);
        store_together(left + tile.first, tile.me.own, x);
    }
}

// out = the values at a plus those of a message, or less them.
template <bool LESS>
void decode_tile(T* out, const T* a, const uint8* message, int64 count) {
    Tile tile(count);
    float values[8];
    Eight x = load(a + tile.first, tile.me.own), y;
    read_box(message + tile.before, tile.bytes);
    decode_block(tile.record_of(message), tile.me, values);
    for (int j = 0; j < 8; j++) y.at[j] = LESS ? minus(x.at[j], values[j]) : plus(x.at[j], values[j]);
    store_together(out + tile.first, tile.me.own, y);
}

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS, 1)

KERNEL encode(uint8* out, const T* a, int64 index, int64 count, uint64 stream) {
    encode_tile<false, false>(out, a, nullptr, nullptr, index, count, stream);
}
KERNEL losing(uint8* out, T* a, int64 index, int64 count, uint64 stream) {
    encode_tile<false, true>(out, a, nullptr, a, index, count, stream);
}
KERNEL hop(uint8* out, const T* a, const uint8* message, int64 index, int64 count, uint64 stream) {
    encode_tile<true, false>(out, a, message, nullptr, index, count, stream);
}
KERNEL hop_losing(uint8* out, T* a, const uint8* message, int64 index, int64 count, uint64 stream) {
    encode_tile<true, true>(out, a, message, a, index, count, stream);
}
KERNEL decode(T* out, const uint8* message, int64 count) {
    Tile tile(count);
    float values[8];
    Eight x;
    read_box(message + tile.before, tile.bytes);
    decode_block(tile.record_of(message), tile.me, values);
    for (int j = 0; j < 8; j++) x.at[j] = rounded(values[j]);
    store_together(out + tile.first, tile.me.own, x);
}
KERNEL add(T* out, const T* a, const uint8* message, int64 count) { decode_tile<false>(out, a, message, count); }
KERNEL rest(T* out, const T* a, const uint8* message, int64 count) { decode_tile<true>(out, a, message, count); }
