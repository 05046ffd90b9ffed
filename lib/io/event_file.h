#pragma once

// TensorBoard's event files, written without TensorFlow.
//
// A file is a sequence of TFRecords (tensorflow/core/lib/io/record_writer.h), little-endian:
//   uint64 bytes of the data | uint32 masked CRC-32C of these 8 bytes | data | uint32 masked CRC-32C of the
//   data
// where masked(crc) = ((crc >> 15) | (crc << 17)) + 0xa282ead8. The data is an `Event` in protobuf's wire
// format (tensorflow/core/util/event.proto), of which these fields are used:
//   Event       1 wall_time double | 2 step int64 | 3 file_version string | 5 summary | 7 session_log
//   Summary     1 value (repeated)
//   Value       1 tag string | 2 simple_value float | 9 metadata
//   metadata    1 plugin: 1 name string | 2 content bytes
//   SessionLog  1 status enum (START = 1)
// Hyperparameters are the content of the plugin "hparams" (tensorboard/plugins/hparams/plugin_data.proto):
//   3 session_start_info: 1 hparams map | 5 start_time_secs double
// where an entry of the map is 1 key string | 2 value: 2 number double | 3 string | 4 bool varint.
// A field is its key (number << 3 | wire type) as a varint, then a varint (wire type 0), 8 bytes (1), a
// length as a varint and so many bytes (2), or 4 bytes (5).

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "io/file.h"

namespace sdp {

struct Scalar {
  std::string tag;  ///< "train/loss": TensorBoard groups by what is before the '/'
  double value = 0;
};

/// A setting of the run, its value as YAML.
struct Hyperparameter {
  std::string key;
  std::string value;
};

/// CRC-32C (Castagnoli) as RFC 3720, appendix B.4: reflected polynomial 0x82F63B78, all bits inverted before
/// and after.
uint32_t crc32c(std::string_view data);

/// The bytes of an event for TensorBoard's table of hyperparameters. Values are numbers, booleans or texts.
std::string hyperparameters_event(double wall_time_s, const std::vector<Hyperparameter>& settings);

/// The bytes of an event with scalars; non-finite values are left out.
std::string scalars_event(double wall_time_s, int64_t step, const std::vector<Scalar>& scalars);

/// A TFRecord of `data`.
std::string tf_record(std::string_view data);

/// events.out.tfevents.SECONDS.HOST in a folder. TensorBoard reads the files of a folder in the order of
/// their names. SECONDS is the current time, or one more than that of the newest existing file if that is
/// later.
class EventFile {
 public:
  /// Creates a file that begins with the version and the start of a session at `first_step`: TensorBoard then
  /// drops what earlier files of the folder recorded for that step and later ones. Throws DataError.
  EventFile(const std::filesystem::path& folder, int64_t first_step,
            const std::vector<Hyperparameter>& settings);

  /// The operating system has the data when the call returns. Throws DataError.
  void append(int64_t step, const std::vector<Scalar>& scalars);

 private:
  OutputFile file_;
};

}  // namespace sdp
