// mixture_kernel

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

// The bits of a float, and the float of bits.
static inline uint32_t bits_of(float value)
{
    const union { float value; uint32_t bits; } both = {value};
    return both.bits;
}

static inline float float_of(uint32_t bits)
{
    const union { uint32_t bits; float value; } both = {bits};
    return both.value;
}

// The upper half of a float's bits.
typedef uint16_t bfloat16;

static inline float bfloat16_to_float(bfloat16 half)
{
    return float_of((uint32_t)half << 16);
}

// Rounds to nearest, ties to even; a NaN stays one, made quiet.
static inline bfloat16 float_to_bfloat16(float value)
{
    const uint32_t bits = bits_of(value);
    const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
    return (bfloat16)((value != value ? bits | 0x400000 : rounded) >> 16);
}

// Division that truncates; 0 for a divisor of 0, and no trap for the least number by -1.
static inline int32_t quotient_int32_t(int32_t a, int32_t b)
{
    return b == 0 ? 0 : b == -1 ? (int32_t)-a : (int32_t)(a / b);
}

static inline int32_t remainder_int32_t(int32_t a, int32_t b)
{
    return b == 0 || b == -1 ? 0 : (int32_t)(a % b);
}

// Elements from `begin` up to, not with, `end`, in whole blocks, so that none depends on
// its place. Called twice, and inlined in neither, which would only be more code.
static __attribute__((noinline, noclone)) int32_t blocks(
    int64_t begin,
    int64_t end,
    const int32_t *a_ptr,
    const bfloat16 *x_ptr,
    const float *z_ptr,
    float *total_ptr,
    uint8_t *below_ptr,
    int64_t x_step,
    int64_t total_step,
    int32_t b
)
{
    int32_t status = 0;
    for (int64_t block = begin; block < end; block += 64) {
        #pragma omp simd reduction(|: status)
        for (int32_t lane = 0; lane < 64; lane++) {
            const int64_t i = block + lane;
            const int32_t a = a_ptr[i];
            const bfloat16 x_half = x_ptr[i * x_step];
            const float z_re = z_ptr[2 * i];
            const float z_im = z_ptr[2 * i + 1];
            const int32_t idiv_1 = quotient_int32_t(a, b);
            const float idiv_1_f32 = (float)idiv_1;
            const float x = bfloat16_to_float(x_half);
            const float exp_1 = expf(x);
            const float mul_1 = exp_1 * z_re;
            const float add_1 = idiv_1_f32 + mul_1;
            const bool lt_1 = idiv_1_f32 < mul_1;
            total_ptr[2 * i * total_step] = add_1;
            total_ptr[2 * i * total_step + 1] = z_im;
            below_ptr[i] = lt_1;
        }
    }
    return status;
}

// Elements from `begin` up to, not with, `end`; 1 if an integer was divided by zero.
static int32_t compute(
    int64_t begin,
    int64_t end,
    const int64_t *sizes,
    const int64_t *strides,
    const int32_t *a_base,
    const int32_t *b_base,
    const bfloat16 *x_base,
    const float *z_base,
    float *total_base,
    uint8_t *below_base
)
{
    int32_t status = 0;
    int64_t first = begin % sizes[2];
    int64_t rest = begin / sizes[2];
    int64_t top = rest % sizes[1];
    rest /= sizes[1];
    int64_t at_0 = rest;
    while (begin < end) {
        const int64_t rest_of_row = sizes[2] - first;
        const int64_t left = end - begin;
        const int64_t length = left < rest_of_row ? left : rest_of_row;
        const int64_t last = first + length;
        // Several rows at once, unless this is a part of one.
        int64_t rows = length == sizes[2] ? left / length : 1;
        if (rows > 16) rows = 16;
        if (rows > sizes[1] - top) rows = sizes[1] - top;
        const int64_t bottom = top + rows;
        for (int64_t tile = first; tile < last; tile += 64) {
            const bool whole = last - tile > 64;
            const int64_t tile_end = whole ? tile + 64 : last;
            for (int64_t at_1 = top; at_1 < bottom; at_1++) {
                const int32_t *a_ptr = a_base + at_0 * strides[0] + at_1 * strides[1];
                const int32_t *b_ptr = b_base + at_0 * strides[3] + at_1 * strides[4];
                const int64_t x_step = strides[8];
                const bfloat16 *x_ptr = x_base + at_0 * strides[6] + at_1 * strides[7];
                const float *z_ptr = z_base
                    + 2 * (at_0 * strides[9] + at_1 * strides[10]);
                const int64_t total_step = strides[14];
                float *total_ptr = total_base
                    + 2 * (at_0 * strides[12] + at_1 * strides[13]);
                uint8_t *below_ptr = below_base
                    + at_0 * strides[15] + at_1 * strides[16];
                const int32_t b = b_ptr[0];
                const bool division_by_zero_1 = b == 0;
                status |= division_by_zero_1;
                const int64_t start = tile_end - (tile_end - tile) % 64;
                if (start > tile) {
                    status |= blocks(
                        tile, start,
                        a_ptr, x_ptr, z_ptr, total_ptr, below_ptr, x_step, total_step, b
                    );
                }
                if (start < tile_end) {
                    const int32_t count = (int32_t)(tile_end - start);
                    int32_t a_pad[64];
                    bfloat16 x_pad[64];
                    float z_pad[128];
                    float total_pad[128];
                    uint8_t below_pad[64];
                    #pragma omp simd
                    for (int32_t lane = 0; lane < 64; lane++) {
                        const int64_t i = start + (lane < count ? lane : count - 1);
                        a_pad[lane] = a_ptr[i];
                        x_pad[lane] = x_ptr[i * x_step];
                        z_pad[2 * lane] = z_ptr[2 * i];
                        z_pad[2 * lane + 1] = z_ptr[2 * i + 1];
                    }
                    status |= blocks(
                        0, 64,
                        a_pad, x_pad, z_pad, total_pad, below_pad, 1, 1, b
                    );
                    for (int32_t lane = 0; lane < count; lane++) {
                        const int64_t i = start + lane;
                        total_ptr[2 * i * total_step] = total_pad[2 * lane];
                        total_ptr[2 * i * total_step + 1] = total_pad[2 * lane + 1];
                        below_ptr[i] = below_pad[lane];
                    }
                }
            }
        }
        begin += rows * length;
        first = 0;
        top = bottom;
        if (top == sizes[1]) {
            top = 0;
            at_0++;
        }
    }
    return status;
}

int32_t mixture_kernel(
    const int64_t *sizes,
    const int64_t *strides,
    const int32_t *a_base,
    const int32_t *b_base,
    const bfloat16 *x_base,
    const float *z_base,
    float *total_base,
    uint8_t *below_base,
    int32_t threads
)
{
    const int64_t n = sizes[0] * sizes[1] * sizes[2];
    const int64_t useful = n / 2788;
    if (useful < threads) threads = (int32_t)useful;
    if (threads < 2) {
        return compute(
            0, n,
            sizes, strides, a_base, b_base, x_base, z_base, total_base, below_base
        );
    }
    // Shares of whole cache lines, so that no two threads write to the same one.
    const int64_t share = (n / threads + 64) & ~(int64_t)63;
    int32_t status = 0;
#pragma omp parallel for num_threads(threads) schedule(static, 1) reduction(|: status)
    for (int32_t k = 0; k < threads; k++) {
        const int64_t begin = k * share;
        const int64_t end = n - begin < share ? n : begin + share;
        if (begin >= end) continue;
        status |= compute(
            begin, end,
            sizes, strides, a_base, b_base, x_base, z_base, total_base, below_base
        );
    }
    return status;
}
