// heron_kernel

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

// Elements from `begin` up to, not with, `end`, in whole blocks, so that none depends on
// its place. Called twice, and inlined in neither, which would only be more code.
static __attribute__((noinline, noclone)) int32_t blocks(
    int64_t begin,
    int64_t end,
    const double *x_ptr,
    double *result_ptr
)
{
    int32_t status = 0;
    for (int64_t block = begin; block < end; block += 16) {
        double x_lanes[16];
        double state_1_lanes[16];
        double state_2_lanes[16];
        #pragma omp simd
        for (int32_t lane = 0; lane < 16; lane++) {
            const int64_t i = block + lane;
            const double x = x_ptr[i];
            x_lanes[lane] = x;
        }
        #pragma omp simd
        for (int32_t lane = 0; lane < 16; lane++) {
            const double x = x_lanes[lane];
            state_1_lanes[lane] = x;
        }
        for (int32_t round_1 = 0; round_1 < 100; round_1++) {
            int32_t alive_1 = 0;
            #pragma omp simd reduction(|: alive_1)
            for (int32_t lane = 0; lane < 16; lane++) {
                const double x = x_lanes[lane];
                double state_1 = state_1_lanes[lane];
                const double mul_1 = state_1 * state_1;
                const double sub_1 = mul_1 - x;
                const double abs_1 = fabs(sub_1);
                const bool gt_1 = abs_1 > 1e-12;
                const double div_1 = x / state_1;
                const double add_1 = state_1 + div_1;
                const double mul_2 = add_1 * 0.5;
                state_1 = gt_1 ? mul_2 : state_1;
                state_1_lanes[lane] = state_1;
                alive_1 |= gt_1;
            }
            if (!alive_1) break;
        }
        #pragma omp simd
        for (int32_t lane = 0; lane < 16; lane++) {
            const double x = x_lanes[lane];
            const double state_1 = state_1_lanes[lane];
            double state_2 = state_1;
            #pragma GCC unroll 3
            for (int32_t round_2 = 0; round_2 < 3; round_2++) {
                const double mul_3 = state_2 * x;
                state_2 = mul_3;
            }
            state_2_lanes[lane] = state_2;
        }
        #pragma omp simd
        for (int32_t lane = 0; lane < 16; lane++) {
            const int64_t i = block + lane;
            const double state_2 = state_2_lanes[lane];
            result_ptr[i] = state_2;
        }
    }
    return status;
}

// Elements from `begin` up to, not with, `end`; 1 if an integer was divided by zero.
static int32_t compute(
    int64_t begin,
    int64_t end,
    const double *x_ptr,
    double *result_ptr
)
{
    int32_t status = 0;
    const int64_t start = end - (end - begin) % 16;
    if (start > begin) {
        status |= blocks(
            begin, start,
            x_ptr, result_ptr
        );
    }
    if (start < end) {
        const int32_t count = (int32_t)(end - start);
        double x_pad[16];
        double result_pad[16];
        #pragma omp simd
        for (int32_t lane = 0; lane < 16; lane++) {
            const int64_t i = start + (lane < count ? lane : count - 1);
            x_pad[lane] = x_ptr[i];
        }
        status |= blocks(
            0, 16,
            x_pad, result_pad
        );
        for (int32_t lane = 0; lane < count; lane++) {
            const int64_t i = start + lane;
            result_ptr[i] = result_pad[lane];
        }
    }
    return status;
}

int32_t heron_kernel(
    int64_t n,
    const double *x_ptr,
    double *result_ptr,
    int32_t threads
)
{
    const int64_t useful = n / 1024;
    if (useful < threads) threads = (int32_t)useful;
    if (threads < 2) {
        return compute(
            0, n,
            x_ptr, result_ptr
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
            x_ptr, result_ptr
        );
    }
    return status;
}
