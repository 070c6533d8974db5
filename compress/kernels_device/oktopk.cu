// What oktopk.py does with neighbours: they are dealt out to regions, turned by a number from a hash.

constexpr int THREADS = 256;

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS, 1)

// Where in the regions, which are of so many values each, the values of a thread go.
struct Hand {
    int64 i, place;

    Hand(int64 size, int64 length) {
        i = (int64)blockIdx.x * THREADS + threadIdx.x;
        int64 number = i / size;
        place = (i + mix(number) % size) % size * length + number;
    }
};

// regions = the values, and zeros where there are none
KERNEL deal(T* regions, const T* x, int64 count, int64 size, int64 length) {
    Hand hand(size, length);
    if (hand.i < size * length) regions[hand.place] = hand.i < count ? x[hand.i] : As<T>::narrow(0);
}

// x = the values of the regions
KERNEL collect(T* x, const T* regions, int64 count, int64 size, int64 length) {
    Hand hand(size, length);
    if (hand.i < count) x[hand.i] = regions[hand.place];
}
