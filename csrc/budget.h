// A budget of memory, and how the threads of a call share it.
#pragma once

#include <algorithm>
#include <cstdio>
#include <limits>
#include <stdexcept>
#include <string>

#include "batch.h"

namespace wildctc {

struct Budget {
    int64_t bytes;  // 0: as much as is usual
};

// A request that does not fit.
struct OverBudget : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct Share {
    int threads;
    int64_t bytes;  // of each thread
};

static inline std::string in_words(int64_t bytes) {
    char text[32];
    const double kilo = static_cast<double>(bytes) / 1e3;
    const char* format = kilo < 1e3 ? "%.1f kB" : kilo < 1e6 ? "%.1f MB" : "%.1f GB";
    std::snprintf(text, sizeof text, format, kilo < 1e3 ? kilo : kilo < 1e6 ? kilo / 1e3 : kilo / 1e6);
    return text;
}

// Divides the budget among as many threads as it is enough for. `least(n)` is the least number of bytes for utterance n.
// Throws OverBudget where it is not enough for one.
template <class Least>
Share share_of(const Budget& budget, const Batch& b, const char* what, const Least& least, int threads) {
    if (budget.bytes <= 0) return {threads, std::numeric_limits<int64_t>::max()};
    int64_t most = 1;
    for (int64_t n = 0; n < b.size; ++n) {
        const int64_t needed = least(n);
        most = std::max(most, needed);
        if (needed > budget.bytes)
            throw OverBudget("utterance " + std::to_string(n) + ": " + what + " of " + std::to_string(b.input_lengths[n]) +
                             " frames and " + std::to_string(b.target_lengths[n]) + " tokens needs at least " + in_words(needed) +
                             ", the budget is " + in_words(budget.bytes));
    }
    const int64_t workers = std::max<int64_t>(1, std::min<int64_t>(threads, budget.bytes / most));
    return {static_cast<int>(workers), budget.bytes / workers};
}

}  // namespace wildctc
