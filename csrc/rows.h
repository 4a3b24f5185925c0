// Reading a frame's logits and writing its gradient, in any of the four float types, through strides.
#pragma once

#include "lattice.h"

namespace wildctc {

static inline float half_to_float(uint16_t h) {
    // Shift the 10-bit mantissa and 5-bit exponent into place and correct the bias by a multiplication, which also
    // makes subnormals right; infinities and NaN keep a full exponent.
    const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
    const int32_t magnitude = static_cast<int32_t>(h & 0x7fffu) << 13;
    const float scaled = same_bits<float>(magnitude) * 0x1p112f;
    const int32_t special = magnitude | 0x7f800000;
    const int32_t bits = magnitude >= 0x0f800000 ? special : bits_of(scaled);
    return same_bits<float>(static_cast<int32_t>(static_cast<uint32_t>(bits) | sign));
}

static inline uint16_t float_to_half(float x) {
    // Round to nearest even by letting float addition do the rounding at the half's last bit.
    const uint32_t bits = static_cast<uint32_t>(bits_of(x));
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
    if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);
    if (magnitude < 0x38800000u) {  // subnormal half: align to 2^-24 by adding 0.5
        const float aligned = same_bits<float>(static_cast<int32_t>(magnitude)) + 0.5f;
        return static_cast<uint16_t>(sign | (static_cast<uint32_t>(bits_of(aligned)) - 0x3f000000u));
    }
    const uint32_t odd = (magnitude >> 13) & 1u;
    return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
}

static inline float bfloat_to_float(uint16_t h) {
    return same_bits<float>(static_cast<int32_t>(static_cast<uint32_t>(h) << 16));
}

static inline uint16_t float_to_bfloat(float x) {
    const uint32_t bits = static_cast<uint32_t>(bits_of(x));
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

template <class From, class R, class Convert>
static inline void gather_row(const Frames& f, int64_t t, R* out, Convert convert) {
    const From* row = static_cast<const From*>(f.data) + t * f.stride_t;
    if (f.stride_c == 1) {
        for (int64_t v = 0; v < f.outputs; ++v) out[v] = convert(row[v]);
    } else {
        for (int64_t v = 0; v < f.outputs; ++v) out[v] = convert(row[v * f.stride_c]);
    }
}

template <class R>
constexpr DType own_dtype() {
    return sizeof(R) == 4 ? DType::float32 : DType::float64;
}

// Rows of this tensor can be computed where they stand.
template <class R>
static bool in_place(const Frames& f) {
    return f.data != nullptr && f.dtype == own_dtype<R>() && f.stride_c == 1;
}

// The logits of frame t, in place where that is possible, else converted into `scratch`.
template <class R>
static const R* load_row(const Frames& f, int64_t t, R* scratch) {
    if (in_place<R>(f)) return static_cast<const R*>(f.data) + t * f.stride_t;
    switch (f.dtype) {
        case DType::float32: gather_row<float>(f, t, scratch, [](float x) { return static_cast<R>(x); }); break;
        case DType::float64: gather_row<double>(f, t, scratch, [](double x) { return static_cast<R>(x); }); break;
        case DType::float16: gather_row<uint16_t>(f, t, scratch, [](uint16_t x) { return static_cast<R>(half_to_float(x)); }); break;
        case DType::bfloat16: gather_row<uint16_t>(f, t, scratch, [](uint16_t x) { return static_cast<R>(bfloat_to_float(x)); }); break;
    }
    return scratch;
}

template <class To, class R, class Convert>
static inline void scatter_row(const Frames& f, int64_t t, const R* from, Convert convert) {
    To* row = static_cast<To*>(f.data) + t * f.stride_t;
    for (int64_t v = 0; v < f.outputs; ++v) row[v * f.stride_c] = convert(from[v]);
}

template <class R>
static R* gradient_row(const Frames& f, int64_t t, R* scratch) {
    return in_place<R>(f) ? static_cast<R*>(f.data) + t * f.stride_t : scratch;
}

template <class R>
static void store_row(const Frames& f, int64_t t, const R* row) {
    if (in_place<R>(f)) return;
    switch (f.dtype) {
        case DType::float32: scatter_row<float>(f, t, row, [](R x) { return static_cast<float>(x); }); break;
        case DType::float64: scatter_row<double>(f, t, row, [](R x) { return static_cast<double>(x); }); break;
        case DType::float16: scatter_row<uint16_t>(f, t, row, [](R x) { return float_to_half(static_cast<float>(x)); }); break;
        case DType::bfloat16: scatter_row<uint16_t>(f, t, row, [](R x) { return float_to_bfloat(static_cast<float>(x)); }); break;
    }
}

template <class R>
static void fill_frames(const Frames& f, int64_t from, int64_t to, R value, R* scratch) {
    for (int64_t t = from; t < to; ++t) {
        R* row = gradient_row<R>(f, t, scratch);
        for (int64_t v = 0; v < f.outputs; ++v) row[v] = value;
        store_row<R>(f, t, row);
    }
}

}  // namespace wildctc
