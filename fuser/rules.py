"""The algebra that simplify knows: what is on the left may be written as on the right.

Comes in: nothing. Goes out: `RULES` and `POWERS`, text in the formula language. One
letter stands for any node; a number stands for that constant.
"""

from __future__ import annotations

# A line that begins with # names the kinds of results to which the next lines apply.
#
# Each holds for every value that its letters can have, NaN, infinities and the sign of
# zero included, and on integers modulo 2**bits: `x * 0 -> 0` and `x + 0 -> x` do not
# (-0.0 + 0 is 0.0). On complex numbers a real factor means scaling: with 1 written out
# as 1 + 0i, `x * 1` would turn an infinite part of x into NaN in the other one.
RULES = """
    # bool, int, float, complex
    x * 1                  ->  x
    1 * x                  ->  x
    x / 1                  ->  x
    x - 0                  ->  x
    x * -1                 ->  -x
    -1 * x                 ->  -x
    -(-x)                  ->  x
    x + (-y)               ->  x - y
    x - (-y)               ->  x + y
    (-x) + y               ->  y - x
    (-x) * (-y)            ->  x * y
    abs(abs(x))            ->  abs(x)
    conj(conj(x))          ->  x
    conj(complex(x, y))    ->  complex(x, -y)
    real(conj(x))          ->  real(x)
    imag(conj(x))          ->  -imag(x)
    real(complex(x, y))    ->  x
    imag(complex(x, y))    ->  y
    where(true, x, y)      ->  x
    where(false, x, y)     ->  y
    where(c, x, x)         ->  x
    where(!c, x, y)        ->  where(c, y, x)
    where(c, where(c, x, y), z)  ->  where(c, x, z)
    where(c, x, where(c, y, z))  ->  where(c, x, z)
    !(!c)                  ->  c
    logical_and(c, true)   ->  c
    logical_and(true, c)   ->  c
    logical_and(c, false)  ->  false
    logical_and(false, c)  ->  false
    logical_and(c, c)      ->  c
    logical_or(c, false)   ->  c
    logical_or(false, c)   ->  c
    logical_or(c, true)    ->  true
    logical_or(true, c)    ->  true
    logical_or(c, c)       ->  c
    logical_xor(c, false)  ->  c
    logical_xor(false, c)  ->  c
    logical_xor(c, true)   ->  !c
    logical_xor(true, c)   ->  !c

    # float
    abs(-x)                ->  abs(x)
    (-x) / (-y)            ->  x / y
"""

# Powers with a known exponent, as PyTorch computes them: they agree with pow within
# rounding, but for the root of -0 (which is -0) and of -inf (which is NaN), and where a
# product is out of range before the result is.
POWERS = """
    # float, complex
    pow(x, 0)              ->  1
    pow(x, 1)              ->  x
    pow(x, 2)              ->  x * x
    pow(x, 3)              ->  x * x * x
    pow(x, 0.5)            ->  sqrt(x)
    pow(x, -0.5)           ->  rsqrt(x)
    pow(x, -1)             ->  1 / x
    pow(x, -2)             ->  1 / (x * x)
    pow(2, x)              ->  exp2(x)
"""
