"""Modified Bessel functions of the first kind, I0 and I1, and these times exp(-abs(x)).

Comes in: nodes of one floating dtype. Goes out: a node. Up to 8 the power series is
summed; beyond, sqrt(x) exp(-x) I(x) is a polynomial in 1/x. tools/fit.py made its
coefficients. Sources: Abramowitz and Stegun, Handbook of Mathematical Functions (A&S),
by formula.
"""

from __future__ import annotations

from math import factorial

from fuser.expr import Expr, polynomial
from fuser.ir import Node
from fuser.special import operator

# From here on the asymptotic form is used, and how many terms the series needs below.
_FAR = 8
_TERMS = {32: 15, 64: 21}
# Beyond this all of them have overflown, in every dtype.
_OVER = 1000


@operator("i0(Tensor self) -> Tensor", "int_to_float")
def i0(self: Node) -> Node:
    """I0(x); inf from 92 in float32 and from 714 in float64."""
    return _whole(Expr(self), 0).node


@operator("special_i1(Tensor self) -> Tensor", "int_to_float")
def i1(self: Node) -> Node:
    """I1(x), which is odd; infinite from 92 in float32 and from 714 in float64."""
    x = Expr(self)
    return _whole(x, 1).apply("copysign", x).node


@operator("special_i0e(Tensor self) -> Tensor", "int_to_float")
def i0e(self: Node) -> Node:
    """exp(-abs(x)) I0(x)."""
    return _scaled(Expr(self), 0).node


@operator("special_i1e(Tensor self) -> Tensor", "int_to_float")
def i1e(self: Node) -> Node:
    """exp(-abs(x)) I1(x), which is odd."""
    x = Expr(self)
    return _scaled(x, 1).apply("copysign", x).node


@operator("i0e_gap(Tensor self) -> Tensor", "int_to_float")
def i0e_gap(self: Node) -> Node:
    """exp(-x) (I0(x) - I1(x)) for x >= 8, which falls off like 1 / (2 x sqrt(2 pi x)).

    It is minus the derivative of exp(-x) I0(x), without a difference that cancels.
    """
    x = Expr(self)
    inverse = 1 / x
    series = polynomial(2 * _FAR * inverse - 1, _I0E_GAP[self.dtype.bits])
    return (inverse / x.apply("sqrt") * series).node


def _whole(x: Expr, order: int) -> Expr:
    """I(x) for a positive x, in steps that overflow only with the result."""
    close, near, far = _split(x.apply("abs"))
    far = far.apply("minimum", _OVER)
    root = (far * 0.5).apply("exp")
    return close.where(_series(near, order), root * _tail(far, order) * root)


def _scaled(x: Expr, order: int) -> Expr:
    """exp(-x) I(x) for a positive x."""
    close, near, far = _split(x.apply("abs"))
    value = (-near).apply("exp") * _series(near, order)
    return close.where(value, _tail(far, order))


def _split(size: Expr) -> tuple[Expr, Expr, Expr]:
    """Whether the argument is close, and it where it is close and where it is far; what
    is not meant stands at a harmless place."""
    close = size <= _FAR
    return close, close.where(size, 0), close.where(size.lift(_FAR), size)


def _series(x: Expr, order: int) -> Expr:
    """I(x) for 0 <= x <= 8 (A&S 9.6.10); all terms are positive."""
    half = x * 0.5
    terms = range(_TERMS[x.node.dtype.bits])
    total = polynomial(
        half * half, [1 / (factorial(k) * factorial(k + order)) for k in terms]
    )
    return half * total if order else total


def _tail(x: Expr, order: int) -> Expr:
    """exp(-x) I(x) for x >= 8, which falls off like 1 / sqrt(2 pi x) (A&S 9.7.1)."""
    inverse = 1 / x
    series = polynomial(2 * _FAR * inverse - 1, _TAILS[order][x.node.dtype.bits])
    return inverse.apply("sqrt") * series


# sqrt(x) exp(-x) I0(x), in powers of t = 16 / x - 1.
_TAIL0 = {
    32: (
        0.402176509,
        0.00336055585,
        0.000136216843,
        1.11115255e-05,
        1.47679211e-06,
        3.63171031e-07,
        1.08298983e-07,
    ),
    64: (
        0.4021765094450081,
        0.0033605519836678913,
        0.00013621607438951463,
        1.114303378845176e-05,
        1.4838476780922646e-06,
        2.9735992084667734e-07,
        8.872014585661555e-08,
        3.932512321137824e-08,
        2.156780676115673e-08,
        7.559364098665437e-09,
        -6.856484545962442e-09,
        -1.3427511481900905e-08,
        -5.0175940345046716e-09,
        7.600254486433509e-09,
        6.522264862032271e-09,
        -3.5862834111582305e-09,
        -4.5305710768621196e-09,
        1.6084886155781772e-09,
        2.163681278413876e-09,
        -6.327909921997027e-10,
        -6.494591114401118e-10,
        1.7698085539456536e-10,
        9.114760157514253e-11,
        -2.4421972688131832e-11,
    ),
}

# sqrt(x) exp(-x) I1(x), in powers of t.
_TAIL1 = {
    32: (
        0.389398459,
        -0.00974958153,
        -0.000219236669,
        -1.50033231e-05,
        -1.8267145e-06,
        -4.21555437e-07,
        -1.22124985e-07,
    ),
    64: (
        0.38939845902587233,
        -0.009749577193235765,
        -0.00021923576383137776,
        -1.503854719822176e-05,
        -1.8349102493990178e-06,
        -3.4838563464253135e-07,
        -1.0001075046243961e-07,
        -4.3128498031006734e-08,
        -2.3394122958362557e-08,
        -8.432168972932417e-09,
        6.84757829926934e-09,
        1.4051746928735543e-08,
        5.5720183980930355e-09,
        -7.687251308765992e-09,
        -6.9444186339873875e-09,
        3.501765193290176e-09,
        4.763780078020254e-09,
        -1.5218214060680734e-09,
        -2.2624401109204446e-09,
        5.870664618471487e-10,
        6.7727478454462e-10,
        -1.6283264322621244e-10,
        -9.491890392992049e-11,
        2.2421768596847442e-11,
    ),
}

_TAILS = (_TAIL0, _TAIL1)

# x sqrt(x) exp(-x) (I0(x) - I1(x)), in powers of t.
_I0E_GAP = {
    32: (
        0.204448807,
        0.00531328956,
        0.000373966637,
        4.46852224e-05,
        8.17088345e-06,
        2.75617472e-06,
        9.30608752e-07,
    ),
    64: (
        0.20444880670617205,
        0.0053132601242864425,
        0.00037396928731067773,
        4.493600847609857e-05,
        8.164115368299275e-06,
        2.167813519528063e-06,
        8.519367368799853e-07,
        4.6732120299817433e-07,
        2.51530489233608e-07,
        4.33403991195765e-09,
        -2.2053169166200564e-07,
        -2.1913644290817756e-07,
        3.8641580378565614e-08,
        2.059585123446264e-07,
        3.5763255892111246e-08,
        -1.4917203356328575e-07,
        -4.110773605716881e-08,
        9.119269640350881e-08,
        2.309729930802236e-08,
        -4.2615018572771984e-08,
        -7.441559230114979e-09,
        1.2878575208047424e-08,
        1.080902391321681e-09,
        -1.8304022518813494e-09,
    ),
}
