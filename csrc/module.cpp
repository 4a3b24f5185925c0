// The Python module. Its functions take addresses and return nothing. wildctc/lattice/native.py is the only caller; it
// makes sure that every address belongs to a tensor of the right type and size that outlives the call.
#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>

#include <tuple>

#include "engine.h"

namespace nb = nanobind;
using namespace wildctc;

namespace {

template <class T>
T* pointer(uintptr_t address) {
    return reinterpret_cast<T*>(address);
}

using WeightsArgument = std::tuple<double, uintptr_t, int64_t>;

Weights weights(const WeightsArgument& w) {
    return {std::get<0>(w), pointer<const double>(std::get<1>(w)), std::get<2>(w)};
}

using CountsArgument = std::tuple<uintptr_t, int64_t>;

CountRows counts(const CountsArgument& c) { return {pointer<double>(std::get<0>(c)), std::get<1>(c)}; }

}  // namespace

NB_MODULE(_native, m) {
    nb::class_<Transcripts>(m, "Transcripts")
        .def("__init__", [](Transcripts* self, uintptr_t arcs, uintptr_t arc_weights, uintptr_t word_arcs, uintptr_t word_weights,
                            uintptr_t final, uintptr_t states, uintptr_t words, uintptr_t num_words, uintptr_t lengths,
                            uintptr_t chain, const WeightsArgument& added) {
            new (self) Transcripts{pointer<const int64_t>(arcs), pointer<const double>(arc_weights),
                                   pointer<const int64_t>(word_arcs), pointer<const double>(word_weights),
                                   pointer<const double>(final), pointer<const int64_t>(states), pointer<const int64_t>(words),
                                   pointer<const int64_t>(num_words), pointer<const int64_t>(lengths),
                                   pointer<const uint8_t>(chain), weights(added)};
        });
    nb::class_<Batch>(m, "Batch")
        .def(
            "__init__",
            [](Batch* self, uintptr_t logits, int dtype, std::tuple<int64_t, int64_t, int64_t> shape,
               std::tuple<int64_t, int64_t, int64_t> strides, uintptr_t targets, int64_t target_width,
               int64_t target_total, uintptr_t words, uintptr_t input_lengths, uintptr_t target_lengths, int64_t blank,
               const WeightsArgument& bypass, const WeightsArgument& self_loop, const WeightsArgument& word_bypass,
               bool loops_at_words) {
                new (self) Batch{pointer<void>(logits), static_cast<DType>(dtype),
                                 std::get<0>(shape), std::get<1>(shape), std::get<2>(shape),
                                 std::get<0>(strides), std::get<1>(strides), std::get<2>(strides),
                                 {pointer<const int64_t>(targets), target_width, target_total},
                                 {pointer<const int64_t>(words), target_width, target_total},
                                 pointer<const int64_t>(input_lengths), pointer<const int64_t>(target_lengths),
                                 blank, weights(bypass), weights(self_loop), weights(word_bypass), loops_at_words};
            })
        .def("set_graphs", [](Batch& b, const Transcripts& graphs) { b.graphs = &graphs; }, nb::keep_alive<1, 2>())
        .def("check", [](const Batch& b) { check(b); })
        .def("loss",
             [](const Batch& b, uintptr_t losses, uintptr_t reduced, int reduction, bool zero_infinity, bool backward,
                uintptr_t gradient, int64_t stride_t, int64_t stride_n, const CountsArgument& bypass,
                const CountsArgument& self_loop, const CountsArgument& word, const CountsArgument& token, int64_t memory,
                int threads) {
                 const nb::gil_scoped_release release;
                 loss(b,
                      {pointer<void>(losses), pointer<void>(reduced), static_cast<Reduction>(reduction), zero_infinity,
                       backward, pointer<void>(gradient), stride_t, stride_n,
                       counts(bypass), counts(self_loop), counts(word), counts(token)},
                      {memory}, threads);
             })
        .def("best_path",
             [](const Batch& b, uintptr_t score, uintptr_t position, uintptr_t state, uintptr_t arc, uintptr_t first,
                uintptr_t last, int64_t memory, int threads) {
                 const nb::gil_scoped_release release;
                 best_path(b,
                           {pointer<double>(score), pointer<int32_t>(position), pointer<int8_t>(state), pointer<int8_t>(arc),
                            {pointer<const int32_t>(first), pointer<const int32_t>(last)}},
                           {memory}, threads);
             })
        .def("graph_best_path", [](const Batch& b, uintptr_t score, uintptr_t place, uintptr_t state, uintptr_t arc,
                                   uintptr_t via, int64_t memory, int threads) {
            const nb::gil_scoped_release release;
            graph_best_path(b, {pointer<double>(score), pointer<int32_t>(place), pointer<int8_t>(state), pointer<int8_t>(arc),
                                pointer<int32_t>(via)}, {memory}, threads);
        });
    nb::exception<OverBudget>(m, "OverBudget", PyExc_MemoryError);
    m.def("instruction_set", &instruction_set);
}
