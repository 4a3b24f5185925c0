#include "transcript.h"

#include <stdexcept>
#include <string>

namespace wildctc {
namespace {

std::string str(int64_t x) { return std::to_string(x); }

[[noreturn]] void fail(int64_t n, const std::string& what) {
    throw std::invalid_argument("utterance " + str(n) + ": " + what);
}

std::string named(const Transcript& t, int64_t a) {
    return "arc " + str(a) + " (" + str(t.source(a)) + " → " + str(t.target(a)) + ", label " + str(t.labels[a]) + ")";
}

void check_states(const Transcript& t) {
    std::vector<int64_t> last_into(static_cast<size_t>(t.states), -1);
    for (int64_t a = 0; a < t.tokens; ++a) {
        if (t.source(a) < 0 || t.target(a) <= t.source(a) || t.target(a) >= t.states)
            fail(t.n, named(t, a) + " does not lead forward, inside states 0 to " + str(t.states - 1));
        last_into[static_cast<size_t>(t.target(a))] = a;
    }
    for (int64_t a = 0; a < t.tokens; ++a) {
        const int64_t last = last_into[static_cast<size_t>(t.source(a))];
        if (last >= a || (last < 0 && t.source(a) != 0))
            fail(t.n, named(t, a) + (last < 0 ? " cannot be reached" : " stands before an arc that leads to its source"));
    }
    for (int64_t i = 0; i < t.words; ++i) {
        const int64_t from = t.word_source(i), to = t.word_target(i);
        const bool inside = from >= 0 && from < to && to < t.states && t.word(i) >= 0 && t.word(i) < t.b.graphs->num_words[t.n];
        if (!inside || last_into[static_cast<size_t>(to)] <= last_into[static_cast<size_t>(from)] ||
            (from > 0 && last_into[static_cast<size_t>(from)] < 0))
            fail(t.n, "word arc " + str(i) + " (" + str(from) + " → " + str(to) + ") has no token arcs beside it");
    }
}

// `what` gives the name of the weight: text is made only for a message.
template <class Name>
void check_weight(const Transcript& t, double x, double largest, const Name& what) {
    if (std::isnan(x) || x > largest)
        fail(t.n, what() + " is " + (std::isnan(x) ? "NaN" : std::to_string(x)) + " in all, must be a number of at most " +
                      str(static_cast<int64_t>(largest)) + " (for " + str(t.b.input_lengths[t.n]) + " frames in " +
                      (t.b.dtype == DType::float64 ? "float64" : "float32") + ") or -inf");
}

void check_width(const Transcript& t, const char* name, const Weights& w, int64_t count) {
    if (w.per_arc() && w.width < count) fail(t.n, std::string(name) + " has " + str(w.width) + " weights, needs " + str(count));
}

}  // namespace

void check_graph(const Batch& b, int64_t n, int64_t offset, double largest) {
    const Transcript t(b, n, offset);
    check_width(t, "bypass", b.bypass, t.tokens);
    check_width(t, "arc_weights", b.graphs->added, t.tokens);
    check_width(t, "self_loop", b.self_loop, t.states);
    check_width(t, "word_bypass", b.word_bypass, b.graphs->num_words[n]);
    check_states(t);
    for (int64_t a = 0; a < t.tokens; ++a) {
        check_weight(t, t.token_weight(a), largest, [&] { return "the weight of " + named(t, a); });
        check_weight(t, t.bypass_weight(a), largest, [&] { return "the weight of the bypass beside " + named(t, a); });
    }
    for (int64_t q = 0; q < t.states; ++q) {
        check_weight(t, t.loop_weight(q), largest, [&] { return "self_loop weight " + str(q); });
        check_weight(t, t.final_weight(q), largest, [&] { return "the weight of the end " + str(q); });
    }
    for (int64_t i = 0; i < t.words; ++i)
        check_weight(t, t.word_weight(i), largest, [&] { return "word_bypass weight " + str(t.word(i)); });
}

}  // namespace wildctc
