// Large pages for large results.
#pragma once

#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace wildctc {

// Asks for large pages where memory that is about to be written covers whole ones. New memory is slow to touch: with pages of
// 4 KB, the gradient of a large vocabulary takes longer to map than to compute.
inline void prefer_large_pages(void* start, int64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    constexpr uintptr_t page = uintptr_t{2} << 20;
    const uintptr_t first = (reinterpret_cast<uintptr_t>(start) + page - 1) / page * page;
    const uintptr_t last = (reinterpret_cast<uintptr_t>(start) + static_cast<uintptr_t>(bytes)) / page * page;
    if (start != nullptr && last > first) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#else
    (void)start;
    (void)bytes;
#endif
}

}  // namespace wildctc
