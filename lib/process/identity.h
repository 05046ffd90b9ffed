#pragma once

// What tells hosts, processes and moments apart.

#include <cstdint>
#include <string>

namespace sdp {

/// 16 hexadecimal digits drawn at random.
std::string random_id();

/// Name of this host; "localhost" if it has none.
std::string host_name();

/// The current time in UTC, "2026-11-22T18:30:00Z".
std::string utc_now();

/// Of this host's kernel, until it starts again; empty if it does not tell.
std::string boot_id();

/// Boot id and PID namespace: processes with the same value see each other's PIDs.
std::string machine_id();

/// When this process started, in clock ticks since boot; distinguishes it from a later one with the same PID.
int64_t process_start();

/// Whether the process of this machine that has this PID and began at that time exists and may still write.
bool is_running(int64_t pid, int64_t start);

}  // namespace sdp
