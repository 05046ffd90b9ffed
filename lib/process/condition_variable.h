#pragma once

// std::condition_variable for programs that shall also run with the libstdc++ of GCC 11 (RHEL 9,
// Ubuntu 22.04): GCC 12 gave wait() a new symbol version, and the older one, which every libstdc++ since
// GCC 4.4 has, does the same.

#include <condition_variable>

#if defined(__GLIBCXX__) && defined(__x86_64__)
__asm__(
    ".symver _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE,"
    "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");
#endif
