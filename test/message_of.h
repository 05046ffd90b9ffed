#pragma once

#include <string>

namespace sdp {

/// The message of the error of type `Error` that a call throws; empty if it throws none.
template <class Error, class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace sdp
