
#if defined(__FMA__) || defined(__aarch64__)
// exp of a float, without a branch: as fast for all numbers, infinity and NaN too, while
// vector libraries call a function once an element where it overflows or is subnormal.
// exp(x) = 2^n 2^n exp(r) for the whole number n closest to x / (2 log 2): two factors, so
// that each is a normal number. Of exp(r) = 1 + r + r^2 p(r), p interpolates at Chebyshev's
// points of (-log 2, log 2). Within 1.2 units in the last place.
static inline float vector_expf(float x)
{
    const float below = x > 176 ? 176 : x;
    const float inside = below < -176 ? -176 : below;
    // n in the last bits of a sum, and that as a number
    const union { float value; uint32_t bits; } sum = {
        fmaf(inside, 0x1.715476p-1f, 0x1.8p23f)
    };
    const float n = sum.value - 0x1.8p23f;
    const float r = fmaf(n, -0x1.7f7d1cp-19f, fmaf(n, -0x1.62e4p0f, inside));
    float p = 2.50343913e-05f;
    p = fmaf(p, r, 0.000200742859f);
    p = fmaf(p, r, 0.00138883288f);
    p = fmaf(p, r, 0.00833277254f);
    p = fmaf(p, r, 0.04166667f);
    p = fmaf(p, r, 0.1666667f);
    p = fmaf(p, r, 0.5f);
    const union { uint32_t bits; float value; } power = {(sum.bits << 23) + 0x3f800000};
    return (fmaf(p * r, r, r) + 1) * power.value * power.value;
}
#define expf vector_expf
#endif
