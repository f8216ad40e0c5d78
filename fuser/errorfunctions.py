"""The inverse of the error function, and the scaled complementary error function.

Comes in: nodes of one floating dtype. Goes out: a node. Both are polynomials in a
fraction that takes the whole range of the argument to (-1, 1): without branches, every
target can vectorise them. tools/fit.py made the coefficients.
"""

from __future__ import annotations

import math

from fuser.expr import Expr, polynomial
from fuser.ir import Node
from fuser.special import operator


@operator("erfinv(Tensor self) -> Tensor", "int_to_float")
def erfinv(self: Node) -> Node:
    """The x with erf(x) = self: inf at 1, -inf at -1, and NaN beyond.

    It is self times a function of w = -log(1 - self**2), as in M. Giles, "Approximating
    the erfinv function", GPU Computing Gems, Jade edition (2012), which is smooth and
    grows like sqrt(w).
    """
    y, bits = Expr(self), self.dtype.bits
    w = -((1 - y) * (1 + y)).apply("log")
    r = 3 * w / (w + _REACH[bits])
    value = y * (math.sqrt(math.pi) / 2 + r * polynomial(r - 1, _ERFINV[bits]))
    return y.apply("abs").equals(1).where(y * math.inf, value).node


@operator("special_erfcx(Tensor self) -> Tensor", "int_to_float")
def erfcx(self: Node) -> Node:
    """exp(x**2) erfc(x), which overflows at about -9.4 in float32 and -26.6 in float64.

    For x >= 0, (2 x + 1) erfcx(x) is a tame function of the fraction x / (x + 4): see
    M. M. Shepherd and J. G. Laframboise, "Chebyshev approximation of (1 + 2x) exp(x**2)
    erfc x in 0 <= x < inf", Math. Comp. 36 (1981). Below 0 it is
    2 exp(x**2) - erfcx(-x), with an exponential whose error vanishes at 0.
    """
    x = Expr(self)
    size = x.apply("abs")
    r = _fraction(size)
    series = r * polynomial(r - 1, _ERFCX[self.dtype.bits])
    upper = (0.5 + series) / (size + 0.5)
    below = x.apply("minimum", 0)
    lower = 2 + (2 * (below * below).apply("expm1") - upper)
    return (x < 0).where(lower, upper).node


@operator("erfcx_gap(Tensor self) -> Tensor", "int_to_float")
def erfcx_gap(self: Node) -> Node:
    """1 / sqrt(pi) - x erfcx(x) for x >= 0, which falls off like 1 / (2 sqrt(pi) x**2).

    It is -1/2 times the derivative of erfcx, without a difference that cancels.
    """
    x = Expr(self)
    series = polynomial(_fraction(x) - 1, _ERFCX_GAP[self.dtype.bits])
    return (series / (x + 1) / (x + 1)).node


@operator("normal_tail(Tensor self) -> Tensor", "int_to_float")
def normal_tail(self: Node) -> Node:
    """exp(x**2 / 2) times what of the normal distribution lies above x, for x from 0 to
    16 in float32 and to 40 in float64, where exp(-x**2 / 2) is 0.

    Half of erfcx(x / sqrt(2)), which is 1/2 at 0 and a tame function of x / (x + 4).
    """
    x, bits = Expr(self), self.dtype.bits
    r = x / (x + 4)
    series = polynomial((2 + 8 / _NORMAL_REACH[bits]) * r - 1, _NORMAL_TAIL[bits])
    return ((1 - r) * (0.5 + r * series)).node


def _fraction(x: Expr) -> Expr:
    """2 x / (x + 4), which takes x >= 0 to [0, 2], infinity too."""
    finite = x.apply("minimum", 2.0**60)
    return 2 * finite / (finite + 4)


# w ends at 15.95 and 36.05, where self is the last number below 1; a little further, at
# twice these, r is 2.
_REACH = {32: 8.0, 64: 18.25}

# (erfinv(y) / y - sqrt(pi) / 2) / r, in powers of r - 1.
_ERFINV = {
    32: (
        0.972552187,
        0.397575924,
        0.0275300004,
        0.0109861138,
        0.0532895681,
        0.0237586681,
        -0.0110010887,
        -0.00714264573,
        0.00638371261,
        0.00531582915,
        -0.0013099315,
        -0.00201796759,
        0.000293471923,
        0.000646708182,
        2.85353478e-06,
        -8.4968052e-05,
    ),
    64: (
        1.967550151952329,
        0.30268305777816135,
        0.027208359255080455,
        0.25547072214030686,
        -0.12694693842696836,
        0.05981958054143064,
        0.07811629400316808,
        -0.11513357117756635,
        0.06536342492907375,
        0.027983541964251624,
        -0.07142797810854866,
        0.04726312510581214,
        0.003851417204953076,
        -0.034354324118479315,
        0.03169231815011824,
        -0.00874975313280165,
        -0.013890314419930279,
        0.02108600410403133,
        -0.011138572585551261,
        -0.004445804906990011,
        0.012148944650565797,
        -0.0085687334209717,
        0.0009376395062822577,
        0.004326699872966116,
        -0.007278824774409694,
        0.0060686284979161375,
        0.002628919491232354,
        -0.009971093964163727,
        0.003974763470890085,
        0.0067417493466366205,
        -0.005807478501788657,
        -0.0022856350159986827,
        0.003796435233539275,
        9.831646566636814e-05,
        -0.001457331131537725,
        0.00024240039462905782,
        0.00032029186066468633,
        -9.338177770110574e-05,
        -3.148095251580039e-05,
        1.2040690362791678e-05,
    ),
}

# ((x + 1/2) erfcx(x) - 1/2) / r, in powers of r - 1.
_ERFCX = {
    32: (
        0.116497559,
        -0.186308115,
        0.193997973,
        -0.159949643,
        0.109429579,
        -0.0625608146,
        0.0293992128,
        -0.0108259633,
        0.00271529635,
        -0.000177150954,
        -0.000181808702,
        5.86685001e-05,
    ),
    64: (
        0.11649755931277626,
        -0.1863081177330575,
        0.19399794378436455,
        -0.15994941665702145,
        0.1094298836390019,
        -0.06256346613967603,
        0.029398283231161566,
        -0.01081452546523997,
        0.0027156584585246585,
        -0.00019967344225031095,
        -0.0001792133195346419,
        7.958481747371783e-05,
        -4.273602230694483e-06,
        -7.925456740345492e-06,
        2.3137023376480436e-06,
        5.399174491985849e-07,
        -3.921792894341315e-07,
        -1.8721743306520714e-08,
        5.5632043226112774e-08,
        -2.21482859238984e-09,
        -6.859615820893767e-09,
        5.872031189660079e-10,
        5.396435809389828e-10,
        -5.687316966483959e-11,
    ),
}

# (x + 1)**2 (1 / sqrt(pi) - x erfcx(x)), in powers of r - 1.
_ERFCX_GAP = {
    32: (
        0.404793826,
        -0.197746768,
        0.0954855931,
        -0.00311909494,
        -0.0470116569,
        0.0529580709,
        -0.0341209908,
        0.0124726819,
        0.00082881749,
        -0.00492662321,
        0.00323419845,
        -0.000685688659,
        -6.75937657e-05,
    ),
    64: (
        0.40479382618776816,
        -0.1977464051942545,
        0.09548549725274044,
        -0.0031292786039965647,
        -0.04700895512969202,
        0.05303996761715082,
        -0.03414299462880576,
        0.012189180541251721,
        0.0009068039257751296,
        -0.004445893851092234,
        0.003096088690760869,
        -0.0010836956602024888,
        5.7458846784519685e-05,
        0.00013424074104881415,
        -5.378748896043087e-05,
        -4.605610713531618e-06,
        9.393203666992903e-06,
        -1.2086699428759204e-06,
        -1.2920647068387955e-06,
        3.5666015593869816e-07,
        1.6703932017465556e-07,
        -5.912332213892507e-08,
        -1.9690384703532724e-08,
        5.266977999787665e-09,
        1.5165506675677577e-09,
    ),
}

# Where exp(-x**2 / 2) is 0, or what is left of it is.
_NORMAL_REACH = {32: 16, 64: 40}

# (y / (1 - r) - 1/2) / r with r = x / (x + 4), where y is the value, in powers of where
# r is between its ends, from -1 to 1.
_NORMAL_TAIL = {
    32: (
        -0.691286916,
        0.297727134,
        -0.092105099,
        0.0161957646,
        0.000549183618,
        -0.000972084478,
        8.29538894e-05,
        5.13049803e-05,
        -7.14056821e-06,
    ),
    64: (
        -0.6523592621005605,
        0.31081240433299206,
        -0.11033297466226652,
        0.023948149542033094,
        -0.00015006533049366424,
        -0.001682708157779388,
        0.00029427462202157733,
        0.00011949615326681053,
        -3.805139551537206e-05,
        -1.1814148143800838e-05,
        4.29698749276276e-06,
        1.6415987780416354e-06,
        -4.275888698884016e-07,
        -2.685174410684932e-07,
        2.4008812830136162e-08,
        4.3283433336570156e-08,
        3.844100387748036e-09,
        -5.945734327323068e-09,
        -1.483635793237547e-09,
        5.771070051714689e-10,
        1.8527180669357915e-10,
        -2.642349622306511e-11,
    ),
}
