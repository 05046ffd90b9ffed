#include "cost/recorder.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Allocator.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "layers/branch.h"

namespace sdp {

using What = CaptureEvent::What;

/// The context of the c10::DataPtr of a storage that was allocated during a recording.
struct Block {
  std::shared_ptr<Recording> recording;
  int64_t bytes = 0;
  int64_t tensor = 0;

  static void free(void* context);
};

struct Recording {
  std::vector<RecordedLayerGroup> layer_groups;
  size_t layer_group = 0;
  bool device_kernels = false;
  bool is_backward = false;
  bool is_finished = false;
  int recomputations = 0;  ///< under way
  int64_t tensors = 0;
  /// (sequence number of the first operation, layer group) of the forward pass, ascending.
  std::vector<std::pair<uint64_t, size_t>> starts;
  uint64_t end = 0;  ///< sequence number of the first operation after the forward pass
  /// Whether autograd's engine is between two operations' gradients.
  bool is_between_gradients = false;
  Block* replaced = nullptr;  ///< the next allocation stands for this one

  void add(const RecordedEvent& event) {
    if (is_finished) return;
    pass().events.push_back(event);
  }
  RecordedPass& pass() {
    RecordedLayerGroup& current = layer_groups[layer_group];
    return is_backward ? current.backward : current.forward;
  }
  /// The backward pass has come to the gradient of the operation with this sequence number. Operations of
  /// recomputations have later numbers than the forward pass; they belong to the layer group that recomputes.
  void enter_backward(int64_t number) {
    if (number < 0 || static_cast<uint64_t>(number) >= end) return;
    const auto after = std::ranges::upper_bound(starts, static_cast<uint64_t>(number), {},
                                                &std::pair<uint64_t, size_t>::first);
    if (after != starts.begin()) layer_group = std::prev(after)->second;
  }
};

void Block::free(void* context) {
  const std::unique_ptr<Block> block(static_cast<Block*>(context));
  if (block->bytes > 0) block->recording->add({What::kTensor, -block->bytes, block->tensor});
}

namespace {

thread_local std::shared_ptr<Recording> current_recording;

Block* block_of(const at::Tensor& tensor) {
  const c10::DataPtr& data = tensor.storage().data_ptr();
  return data.get_deleter() == &Block::free ? static_cast<Block*>(data.get_context()) : nullptr;
}

/// Allocates nothing, and tells the thread's recording. c10 has one allocator per kind of device, hence the
/// single instance.
class RecordingAllocator : public c10::Allocator {
 public:
  static void install() {
    static std::once_flag once;
    std::call_once(once, [] { c10::SetAllocator(c10::kMeta, new RecordingAllocator); });
  }
  c10::DataPtr allocate(size_t size) override {
    if (!current_recording || size == 0) return {nullptr, c10::Device(c10::kMeta)};
    Recording& recording = *current_recording;
    const auto bytes = static_cast<int64_t>(size);
    Block* const replaced = std::exchange(recording.replaced, nullptr);
    auto* block = new Block{current_recording, bytes, replaced ? replaced->tensor : ++recording.tensors};
    if (replaced)
      replaced->bytes = 0;
    else
      recording.add({What::kTensor, bytes, block->tensor});
    return {nullptr, block, &Block::free, c10::Device(c10::kMeta)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, size_t) const override {}
};

enum class Role {
  kKernel,  ///< computes as a whole, whatever it calls
  kSum,     ///< only calls others
  kEither   ///< computes itself if none of the operators that it calls does
};

Role role_of(const c10::OperatorName& name) {
  // Oneself or through a library, by device.
  if (name.name == "aten::convolution" || name.name == "aten::convolution_backward") return Role::kKernel;
  const auto op = c10::Dispatcher::singleton().findSchema(name);
  if (!op || op->hasKernelForDispatchKey(c10::DispatchKey::CPU)) return Role::kKernel;
  const bool is_composite = op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
  return is_composite ? Role::kSum : Role::kEither;
}

/// A call under way.
struct PendingCall : at::ObserverContext {
  PendingCall* caller = nullptr;
  Role role = Role::kEither;
  bool calls_kernels = false;
  bool is_within_kernel = false;
  RecordedCall call;
  KernelCopies copies;  ///< they exist while the results are computed
  std::vector<const c10::TensorImpl*> arguments;
  std::vector<const c10::StorageImpl*> storages;
};

thread_local PendingCall* current_call = nullptr;

void note_arguments(PendingCall& pending, c10::ArrayRef<const c10::IValue> arguments) {
  for (const c10::IValue& argument : arguments) {
    pending.call.arguments.push_back(recorded(argument));
    if (!argument.isTensor() || !argument.toTensor().has_storage()) continue;
    pending.arguments.push_back(argument.toTensor().unsafeGetTensorImpl());
    pending.storages.push_back(argument.toTensor().storage().unsafeGetStorageImpl());
  }
}

/// Whether the result is computed: not a view of an argument, and not just allocated.
bool is_computed(const PendingCall& pending, const at::Tensor& result) {
  if (!result.defined()) return false;
  const auto has = [](const auto& all, const auto* one) { return std::ranges::find(all, one) != all.end(); };
  return has(pending.arguments, result.unsafeGetTensorImpl()) ||
         !has(pending.storages, result.storage().unsafeGetStorageImpl());
}

bool computes_nothing(const std::string& op) {
  for (const char* prefix : {"aten::empty", "aten::new_empty", "aten::resize_"})
    if (op.starts_with(prefix)) return true;
  return op == "aten::as_strided_";
}

/// Whether the call computes anything.
bool add_call(PendingCall& pending, const std::vector<c10::IValue>& results) {
  for (const c10::IValue& result : results) {
    if (result.isTensor() && is_computed(pending, result.toTensor()))
      pending.call.results.push_back(shape_of(result.toTensor()));
    if (result.isTensorList())
      for (const at::Tensor& tensor : result.toTensorVector())
        if (is_computed(pending, tensor)) pending.call.results.push_back(shape_of(tensor));
  }
  if (pending.call.results.empty()) return false;
  current_recording->pass().calls.push_back(std::move(pending.call));
  return true;
}

/// Autograd adds the gradients of a value that is used twice. It adds to the first one in place if nothing
/// else refers to it, except on the meta device.
void replace_first_gradient(const at::RecordFunction& call) {
  if (!current_call) current_recording->replaced = nullptr;
  if (!current_recording->is_between_gradients || std::string_view(call.name()) != "aten::add") return;
  const at::Tensor& first = call.inputs()[0].toTensor();
  constexpr size_t kOwnAndArgument = 2;
  if (first.use_count() <= kOwnAndArgument && first.storage().use_count() == 1 &&
      first.is_non_overlapping_and_dense())
    current_recording->replaced = block_of(first);
}

bool is_recomputation(const at::RecordFunction& call) {
  return call.scope() == at::RecordScope::USER_SCOPE && std::string_view(call.name()) == kRecomputation;
}

std::unique_ptr<at::ObserverContext> before_call(const at::RecordFunction& call) {
  if (call.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    current_recording->is_between_gradients = false;
    if (current_recording->is_backward) current_recording->enter_backward(call.seqNr());
    return nullptr;
  }
  if (is_recomputation(call)) ++current_recording->recomputations;
  if (!call.operator_name()) return nullptr;  // a step of autograd's engine
  replace_first_gradient(call);
  auto pending = std::make_unique<PendingCall>();
  pending->caller = current_call;
  current_call = pending.get();
  pending->call.op = *call.operator_name();
  if (pending->caller) {
    const PendingCall& caller = *pending->caller;
    pending->is_within_kernel = caller.is_within_kernel || caller.role == Role::kKernel;
  }
  pending->role = role_of(pending->call.op);
  pending->call.is_recomputation = current_recording->recomputations > 0;
  pending->copies = copies_of_call(call.name(), call.inputs());
  note_arguments(*pending, call.inputs());
  return pending;
}

void after_call(const at::RecordFunction& call, at::ObserverContext* context) {
  if (call.scope() == at::RecordScope::BACKWARD_FUNCTION) current_recording->is_between_gradients = true;
  if (is_recomputation(call)) --current_recording->recomputations;
  if (!context) return;
  auto& pending = *static_cast<PendingCall*>(context);
  current_call = pending.caller;
  if (pending.copies.bytes > 0)
    current_recording->add(
        {pending.copies.is_convolution ? What::kConvolution : What::kCopies, pending.copies.bytes});
  if (pending.is_within_kernel) return;
  const bool may_compute =
      pending.role == Role::kKernel || (pending.role == Role::kEither && !pending.calls_kernels);
  if (may_compute && !computes_nothing(pending.call.op.name))
    pending.calls_kernels |= add_call(pending, call.outputs());
  if (pending.caller) pending.caller->calls_kernels |= pending.calls_kernels;
}

}  // namespace

bool records_device_kernels() {
  return current_recording && current_recording->device_kernels;
}

Recorder::Recorder(size_t layer_groups, bool device_kernels) : recording_(std::make_shared<Recording>()) {
  if (current_recording) throw std::logic_error("two recorders on one thread");
  add_meta_kernels();
  RecordingAllocator::install();
  recording_->layer_groups.resize(layer_groups);
  recording_->device_kernels = device_kernels;
  current_recording = recording_;
  handle_ =
      at::addThreadLocalCallback(at::RecordFunctionCallback(&before_call, &after_call)
                                     .needsInputs(true)
                                     .needsOutputs(true)
                                     .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION,
                                              at::RecordScope::USER_SCOPE}));
}

Recorder::~Recorder() {
  finish();
}

void Recorder::enter(size_t layer_group) {
  recording_->layer_group = layer_group;
  recording_->starts.emplace_back(at::sequence_number::peek(), layer_group);
}

void Recorder::begin_backward() {
  recording_->end = at::sequence_number::peek();
  recording_->is_backward = true;
}

void Recorder::gradient_ready(int parameter, const at::Tensor& gradient) {
  Block* const block = block_of(gradient);
  if (!block) throw std::logic_error("a gradient from before the recording");
  recording_->add({What::kGradient, -std::exchange(block->bytes, 0), block->tensor, parameter});
}

std::vector<RecordedLayerGroup> Recorder::finish() {
  if (!recording_->is_finished) {
    at::removeCallback(handle_);
    current_recording.reset();
    recording_->is_finished = true;
  }
  return std::move(recording_->layer_groups);
}

}  // namespace sdp
