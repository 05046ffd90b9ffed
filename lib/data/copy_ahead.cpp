#include "data/copy_ahead.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>
#include <utility>

namespace sdp {

std::optional<c10::Stream> make_copy_stream(at::Device device) {
  if (device.is_cpu()) return std::nullopt;
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, /*isHighPriority=*/true);
}

CopyAheadLoader::CopyAheadLoader(std::unique_ptr<BatchLoader> loader, Precision precision, at::Device device,
                                 std::optional<c10::Stream> stream)
    : loader_(std::move(loader)),
      precision_(precision),
      device_(device),
      stream_(stream),
      thread_([this](const std::stop_token& stop) { copy_batches(stop); }) {}

CopyAheadLoader::Copy CopyAheadLoader::make_copy() {
  Copy copy;
  try {
    c10::OptionalStreamGuard guard(stream_);
    copy.batch = to_tensors(loader_->next(), precision_, device_);
    if (stream_) {
      copy.done.emplace(device_.type());
      copy.done->record(*stream_);
    }
  } catch (...) {
    copy.error = std::current_exception();
  }
  return copy;
}

void CopyAheadLoader::copy_batches(const std::stop_token& stop) {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (!room_.wait(lock, stop, [&] { return copies_.size() < kBatchesAhead; })) return;
    }
    Copy copy = make_copy();  // throws std::logic_error past the loader's last batch
    const bool failed = copy.error != nullptr;
    const std::lock_guard lock(mutex_);
    copies_.push_back(std::move(copy));
    ready_.notify_one();
    if (failed) return;
  }
}

TensorBatch CopyAheadLoader::next() {
  std::unique_lock lock(mutex_);
  const auto start = std::chrono::steady_clock::now();
  ready_.wait(lock, [&] { return !copies_.empty(); });
  wait_ms_ += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();

  if (copies_.front().error) std::rethrow_exception(copies_.front().error);  // also at the next call
  Copy copy = std::move(copies_.front());
  copies_.pop_front();
  lock.unlock();
  room_.notify_one();

  if (copy.done) {
    const c10::Stream compute = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
    copy.done->block(compute);
    // The allocator does not reuse the memory before the computation has finished with it.
    for (const at::Tensor& tensor : {copy.batch.input, copy.batch.labels, copy.batch.mixed_labels})
      if (tensor.defined()) tensor.record_stream(compute);
  }
  return std::move(copy.batch);
}

}  // namespace sdp
