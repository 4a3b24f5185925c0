"""Numbers with an exponent of their own, in Triton: csrc/scaled.h, which says why, for the GPU.

A number is a pair: mantissa (float32 or float64) and exponent (int32 or int64). 0 is any mantissa with the exponent
`zero_of`. A sum aligns exponents and a product adds them, so the recursion needs no exp and no log, nothing underflows,
and the error of T frames is that of T roundings of a mantissa, however small the number is.

A state is settled after each frame: its mantissa is brought back to [1, 2), its exponent is not below that of 0.
"""

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

# NaN must not be a constant: at each launch Triton checks that constants have not changed, and NaN differs from NaN.
ABSENT = tl.constexpr(float("-inf"))
ZERO32, ZERO64 = tl.constexpr(-(1 << 27)), tl.constexpr(-(1 << 59))
# the shift that rounds to an integer, 1.5 · 2^23 and 1.5 · 2^52, and its bits
_MAGIC32, _BITS32 = tl.constexpr(12582912.0), tl.constexpr(0x4B400000)
_MAGIC64, _BITS64 = tl.constexpr(6755399441055744.0), tl.constexpr(0x4338000000000000)
_LOG2_E = tl.constexpr(1.4426950408889634)


def inlined(function: Callable[..., Any]) -> Any:
    """Make a function that kernels can call.

    Args:
        function: Operations on Triton's tensors.

    Returns:
        A jit function; for the interpreter the function itself, because a call of a jit function takes it 10 ms.
    """
    compiled = triton.jit(function)
    return compiled if isinstance(compiled, triton.runtime.JITFunction) else function


@inlined
def _power_of_two(e, like):
    """2^e, for e in the range of normal numbers."""
    if like.dtype == tl.float64:
        power = ((e + 1023) << 52).to(tl.float64, bitcast=True)
    else:
        power = ((e + 127) << 23).to(tl.float32, bitcast=True)
    return power


INTERPRETED = tl.constexpr(not isinstance(_power_of_two, triton.runtime.JITFunction))


@inlined
def zero_of(like):
    """The exponent of 0, for mantissas of a type."""
    if like.dtype == tl.float64:
        zero: tl.constexpr = ZERO64
    else:
        zero: tl.constexpr = ZERO32
    return zero


@inlined
def _aligned(a, e):
    """The mantissa of a at the exponent e ≥ its own. A term far below its sum becomes negligible, never subnormal."""
    if a[0].dtype == tl.float64:
        by = tl.maximum(a[1] - e, -900)
    else:
        by = tl.maximum(a[1] - e, -100)
    return a[0] * _power_of_two(by, a[0])


@inlined
def add(a, b):
    """a + b."""
    e = tl.maximum(a[1], b[1])
    return _aligned(a, e) + _aligned(b, e), e


@inlined
def add3(a, b, c):
    """a + b + c."""
    e = tl.maximum(tl.maximum(a[1], b[1]), c[1])
    return _aligned(a, e) + _aligned(b, e) + _aligned(c, e), e


@inlined
def add4(a, b, c, d):
    """a + b + c + d."""
    e = tl.maximum(tl.maximum(a[1], b[1]), tl.maximum(c[1], d[1]))
    return (_aligned(a, e) + _aligned(b, e)) + (_aligned(c, e) + _aligned(d, e)), e


@inlined
def times(a, b):
    """a · b."""
    return a[0] * b[0], a[1] + b[1]


@inlined
def pick(condition, a, b):
    """a where the condition holds, otherwise b."""
    return tl.where(condition, a[0], b[0]), tl.where(condition, a[1], b[1])


@inlined
def settled(a):
    """The same number with a mantissa in [1, 2) and an exponent not below that of 0."""
    if a[0].dtype == tl.float64:
        bits = a[0].to(tl.int64, bitcast=True)
        up = (bits >> 52) - 1023
        m = (bits - (up << 52)).to(tl.float64, bitcast=True)
    else:
        bits = a[0].to(tl.int32, bitcast=True)
        up = (bits >> 23) - 127
        m = (bits - (up << 23)).to(tl.float32, bitcast=True)
    return m, tl.maximum(a[1] + up, zero_of(a[0]))


@inlined
def plain(a):
    """As a float, of a number that is at most about 1; 0 if it is below the range of normal numbers."""
    if a[0].dtype == tl.float64:
        bits = a[0].to(tl.int64, bitcast=True)
        x = tl.where((bits >> 52) + a[1] > 0, bits + (a[1] << 52), 0).to(tl.float64, bitcast=True)
    else:
        bits = a[0].to(tl.int32, bitcast=True)
        x = tl.where((bits >> 23) + a[1] > 0, bits + (a[1] << 23), 0).to(tl.float32, bitcast=True)
    return x


@inlined
def exp_of(x):
    """e^x; 0 for x under −2·10⁶ (float32) or −10¹² (float64), and for NaN, which the caller has to find."""
    if x.dtype == tl.float64:
        low = tl.where(x > -1.0e12, x, -1.0e12)
        shifted = low * _LOG2_E + _MAGIC64
        e = shifted.to(tl.int64, bitcast=True) - _BITS64
        n = shifted - _MAGIC64
        m = tl.exp((low - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10)
        e = tl.where(x > -1.0e12, e, ZERO64)
    else:
        low = tl.where(x > -2.0e6, x, -2.0e6)
        shifted = low * _LOG2_E + _MAGIC32
        e = shifted.to(tl.int32, bitcast=True) - _BITS32
        n = shifted - _MAGIC32
        m = tl.exp((low - n * 0.693359375) - n * -2.12194440e-4)
        e = tl.where(x > -2.0e6, e, ZERO32)
    return m, e


@inlined
def nothing_like(zeros):
    """0 for each element of a tensor of zeros."""
    if zeros.dtype == tl.float64:
        e = zeros.to(tl.int64) + ZERO64
    else:
        e = zeros.to(tl.int32) + ZERO32
    return zeros + 1.0, e


@inlined
def load_number(mantissas, exponents, at, mask):
    """Numbers of an array; 0 where the mask does not hold."""
    zero = zero_of(tl.zeros((1,), mantissas.dtype.element_ty))
    return tl.load(mantissas + at, mask, 1.0), tl.load(exponents + at, mask, zero)


@inlined
def store_number(mantissas, exponents, at, number, mask):
    """Store numbers in an array where the mask holds."""
    tl.store(mantissas + at, number[0], mask)
    tl.store(exponents + at, number[1], mask)


# ------------------------------------------------------------------------------------------------- one frame of a cell


@inlined
def advance(
    b, y, s, into, either_before, by_word, p, blank, star, loop, bypass, STARS: tl.constexpr, WORDS: tl.constexpr
):  # fmt: skip
    """Alphas of a position after a frame, from those before it.

    `into`: what comes into the token from the position before; `either_before`: B + N there; `by_word`: what comes by a
    word arc.
    """
    either = add(b, y)
    if STARS:
        both = times(either, loop), times(either_before, bypass)
        if WORDS:
            to_s = add4(s, both[0], both[1], by_word)
        else:
            to_s = add3(s, both[0], both[1])
        whole = add(either, s)
        s = settled(times(to_s, star))
    else:
        whole = either
    return settled(times(whole, blank)), settled(times(add(y, into), p)), s


@inlined
def out_of(b, y, s, repeat_follows, STARS: tl.constexpr):
    """What leads from a position into the token of the next, and B + N."""
    either = add(b, y)
    if STARS:
        onward = pick(repeat_follows, add(b, s), add(either, s))
    else:
        onward = pick(repeat_follows, b, either)
    return onward, either


@inlined
def retreat(
    b, in_token, in_star, next_token, next_star, by_word, repeat_follows, blank, loop, next_bypass,
    STARS: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """Betas of a position before a frame, from those after it.

    `in_token` and `in_star`: beta of N and S after the frame times their emission; `next_…`: those of the next
    position; `by_word`: that of ★ at the end of the word that starts here, times the weight of the word.
    """
    silent = times(b, blank)
    onward = add(silent, next_token)
    changed = pick(repeat_follows, silent, onward)
    if STARS:
        wild = add(times(in_star, loop), times(next_star, next_bypass))
        if WORDS:
            wild = add(wild, by_word)
        return settled(add(onward, wild)), settled(add3(changed, wild, in_token)), settled(add(onward, in_star))
    return settled(onward), settled(add(changed, in_token)), b
