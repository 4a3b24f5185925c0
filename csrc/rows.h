// Reading a frame's logits in any of the four float types, through strides, and writing its gradient.
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

static inline float bfloat_to_float(uint16_t h) {
    return same_bits<float>(static_cast<int32_t>(static_cast<uint32_t>(h) << 16));
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

// The logits of frame t: where they are, if type and stride fit; otherwise converted into `scratch`.
template <class R>
static const R* load_row(const Frames& f, int64_t t, R* scratch) {
    if (f.dtype == own_dtype<R>() && f.stride_c == 1) return static_cast<const R*>(f.data) + t * f.stride_t;
    switch (f.dtype) {
        case DType::float32: gather_row<float>(f, t, scratch, [](float x) { return static_cast<R>(x); }); break;
        case DType::float64: gather_row<double>(f, t, scratch, [](double x) { return static_cast<R>(x); }); break;
        case DType::float16: gather_row<uint16_t>(f, t, scratch, [](uint16_t x) { return static_cast<R>(half_to_float(x)); }); break;
        case DType::bfloat16: gather_row<uint16_t>(f, t, scratch, [](uint16_t x) { return static_cast<R>(bfloat_to_float(x)); }); break;
    }
    return scratch;
}

// Row t of a gradient, which is of the type of its numbers and contiguous in its outputs.
template <class R>
static R* row_of(const Frames& f, int64_t t) {
    return static_cast<R*>(f.data) + t * f.stride_t;
}

// Prefetches a row. The rows of an utterance lie far apart, and the hardware prefetches only within a row.
template <class R>
static inline void fetch_row(const Frames& f, int64_t t) {
#if defined(__GNUC__)
    if (f.data == nullptr || f.dtype != own_dtype<R>() || f.stride_c != 1 || t < 0 || t >= f.length) return;
    const char* row = reinterpret_cast<const char*>(row_of<R>(f, t));
    const int64_t bytes = f.outputs * static_cast<int64_t>(sizeof(R));
    for (int64_t i = 0; i < bytes && i < 1024; i += 64) __builtin_prefetch(row + i);
#endif
}

template <class R>
static void fill_rows(const Frames& f, int64_t from, int64_t to, R value) {
    for (int64_t t = from; t < to; ++t)
        for (int64_t v = 0; v < f.outputs; ++v) row_of<R>(f, t)[v] = value;
}

}  // namespace wildctc
