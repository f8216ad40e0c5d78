// tanh_backward_kernel
// tanh(Tensor self) -> Tensor
// self: tanh_backward(grad, result) * alpha
// tanh(float16).vjp(self)

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

// The bits of a half. Written in integers, since compilers vectorise that everywhere.
typedef uint16_t float16;

static inline float float16_to_float(float16 half)
{
    const uint32_t magnitude = half & 0x7fff;
    // The exponent moves from bias 15 to 127 by a multiplication, which keeps infinity
    // and NaN; a subnormal is its mantissa counted in steps of 2 to the -24.
    const float normal = float_of((magnitude << 13) + 0x70000000) * 0x1p-112f;
    const float subnormal = (float)(int32_t)magnitude * 0x1p-24f;
    const uint32_t bits = bits_of(magnitude < 0x400 ? subnormal : normal);
    return float_of((uint32_t)(half & 0x8000) << 16 | bits);
}

// Rounds to nearest, ties to even.
static inline float16 float_to_float16(float value)
{
    const uint32_t sign = bits_of(value) >> 16 & 0x8000;
    const float magnitude = fabsf(value);
    // What is added has its last bit where the half has it, so that the sum is rounded
    // there; too large a number becomes infinite by the first multiplication.
    const float scaled = magnitude * 0x1p112f * 0x1p-110f;
    const uint32_t exponent = bits_of(magnitude) & 0x7f800000;
    const uint32_t least = exponent < 0x38800000 ? 0x38800000 : exponent;
    const uint32_t sum = bits_of(float_of(least + 0x07800000) + scaled);
    const uint32_t rounded = (sum >> 13 & 0x7c00) + (sum & 0xfff);
    return (float16)(sign | (value != value ? 0x7e00 : rounded));
}

// Elements from `begin` up to, not with, `end`; 1 if an integer was divided by zero.
static int32_t compute(
    int64_t begin,
    int64_t end,
    const float16 *grad_ptr,
    const float16 *result_ptr,
    float16 *grad_self_ptr,
    double alpha
)
{
    int32_t status = 0;
    const float alpha_f32 = (float)alpha;
    #pragma omp simd
    for (int64_t i = begin; i < end; i++) {
        const float16 grad_half = grad_ptr[i];
        const float16 result_half = result_ptr[i];
        const float grad = float16_to_float(grad_half);
        const float mul_1 = grad * alpha_f32;
        const float result = float16_to_float(result_half);
        const float mul_2 = result * result;
        const float sub_1 = 1.0f - mul_2;
        const float mul_3 = mul_1 * sub_1;
        grad_self_ptr[i] = float_to_float16(mul_3);
    }
    return status;
}

int32_t tanh_backward_kernel(
    int64_t n,
    const float16 *grad_ptr,
    const float16 *result_ptr,
    float16 *grad_self_ptr,
    double alpha,
    int32_t threads
)
{
    const int64_t useful = n / 14563;
    if (useful < threads) threads = (int32_t)useful;
    if (threads < 2) {
        return compute(
            0, n,
            grad_ptr, result_ptr, grad_self_ptr, alpha
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
            grad_ptr, result_ptr, grad_self_ptr, alpha
        );
    }
    return status;
}
