#pragma once

// Restoring a run, or single models of it, from a checkpoint.

#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <vector>

namespace sdp {

class CheckpointReader;
class Engines;
class FullModel;
class TensorSource;
enum class ModelValues;
struct DataIdentity;
struct Experiment;
struct ExperimentSpec;
struct Manifest;

/// Checks whether a run may resume with this data. The order of samples depends on the number of training
/// samples: throws DataError if it differs from the checkpoint's, unless the samples have another length
/// (`is_resized`). Otherwise returns a warning for each data set that has changed.
std::vector<std::string> check_data(const Manifest& manifest, const DataIdentity& training_data,
                                    const DataIdentity& test_data, bool is_resized);

/// Whether the network is divided as in the checkpoint that `saved` made.
bool is_divided_as(const Experiment& saved, const Experiment& experiment);

/// Restores the engines and the slots' buffers. If the network is divided in another way, every slot's
/// BatchNorm statistics become the average over the owners; everything else is carried over element by
/// element. So it is if only one of the two has local steps, or if workers with local steps own other units:
/// a worker's state begins as the average over those that owned the elements, and the outer momentum, where
/// there was none, as zero. Throws DataError if the checkpoint is not of `saved`, or if it was saved within a
/// round of local steps and workers own other units now.
void restore(const CheckpointReader& reader, const Experiment& saved, const Experiment& experiment,
             const Engines& engines);

// Both models below refer to the experiment, which made the checkpoint, and the reader. Making them throws
// DataError if the checkpoint belongs to another experiment.

/// The full model of a checkpoint, read parameter by parameter. Throws UsageError if the checkpoint does not
/// have these values.
std::unique_ptr<FullModel> saved_full_model(const Experiment& experiment, const CheckpointReader& reader,
                                            c10::Device device, ModelValues values);

/// Whether the checkpoint has a moving average of the values (ModelValues::kAverage).
bool has_average(const Manifest& manifest, const ExperimentSpec& spec);

/// One worker's subnetwork of a checkpoint, with the BatchNorm statistics of its replica 0.
std::unique_ptr<TensorSource> saved_subnetwork(const Experiment& experiment, const CheckpointReader& reader,
                                               c10::Device device, int worker);

}  // namespace sdp
