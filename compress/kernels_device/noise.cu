// Random numbers without a state, as noise.py has them: a hash of where they are used.

uint32 mix(uint32 x) {
    x = (x ^ x >> 16) * 0x7FEB352D;
    x = (x ^ x >> 15) * 0x846CA68B;
    return x ^ x >> 16;
}

// What to add the number within the block to; with, if ranks are correlated, the rank bit-reversed on top of it.
uint64 noise_key(uint64 stream, uint64 index) {
    uint64 turn = CORRELATED ? (uint64)__brev(stream >> 40) << 32 : 0;
    if (CORRELATED) stream &= (1ULL << 40) - 1;
    uint32 key = mix(SEED + 0x9E3779B9);
    key = mix(key ^ (uint32)stream);
    key = mix(key ^ (uint32)(stream >> 32));
    key = mix(key ^ (uint32)(index >> 32));
    return turn | (uint32)(key + (uint32)index);
}
uint32 random32(uint64 key, int i) { return mix((uint32)key + i) ^ (uint32)(key >> 32); }

// In steps of 2**-16, within -1/2..1/2.
float noise(uint64 key, int i) { return ((float)(int)(random32(key, i) >> 16) - 32767.5f) * 0x1p-16f; }
