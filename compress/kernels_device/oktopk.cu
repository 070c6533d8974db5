// What oktopk.py does with runs of neighbours: they are dealt out to regions, turned by a number from a hash.

constexpr int THREADS = 256;

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS, 1)

// Where in the regions, which are of so many values each, the value of a thread goes.
struct Hand {
    int64 i, place;

    Hand(int64 size, int64 length, int64 run) {
        i = (int64)blockIdx.x * THREADS + threadIdx.x;
        int64 number = i / run, hand = number / size;
        place = (number + mix(hand) % size) % size * length + hand * run + i % run;
    }
};

// regions = the values, and zeros where there are none
KERNEL deal(T* regions, const T* x, int64 count, int64 size, int64 length, int64 run) {
    Hand hand(size, length, run);
    if (hand.i < size * length) regions[hand.place] = hand.i < count ? x[hand.i] : As<T>::narrow(0);
}

// x = the values of the regions
KERNEL collect(T* x, const T* regions, int64 count, int64 size, int64 length, int64 run) {
    Hand hand(size, length, run);
    if (hand.i < count) x[hand.i] = regions[hand.place];
}
