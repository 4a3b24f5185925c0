// A parallel loop over utterances. Its threads live for one call, so there is nothing to shut down, and no lock that a
// fork could inherit. Which thread takes which utterance does not change the results.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace wildctc {

// body(item, worker), called once for each item in `order`; worker: 0…threads − 1, of which the calling thread is 0. Fewer
// workers are used where there are fewer items, or where no more threads can be started.
template <class Body>
void parallel_over(const std::vector<int64_t>& order, int threads, const Body& body) {
    const int workers = std::min<int64_t>(threads, static_cast<int64_t>(order.size()));
    std::atomic<size_t> next{0};
    std::exception_ptr error;
    std::mutex error_mutex;
    const auto work = [&](int worker) {
        try {
            for (size_t i; (i = next.fetch_add(1)) < order.size();) body(order[i], worker);
        } catch (...) {
            const std::lock_guard<std::mutex> lock(error_mutex);
            error = std::current_exception();
        }
    };
    std::vector<std::thread> others(static_cast<size_t>(std::max(workers - 1, 0)));
    try {
        for (int i = 1; i < workers; ++i) others[static_cast<size_t>(i - 1)] = std::thread(work, i);
    } catch (const std::system_error&) {
        // No further thread can be started: those that were do all of the work.
    }
    work(0);
    for (std::thread& other : others)
        if (other.joinable()) other.join();
    if (error) std::rethrow_exception(error);
}

}  // namespace wildctc
