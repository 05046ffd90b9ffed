#include "train/nonfinite.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace sdp {

std::optional<NonfiniteStep> find_nonfinite(Communicator& comm, const at::Tensor& losses,
                                            const at::Tensor& gradients_are_finite) {
  const int64_t slots = losses.numel();
  const at::Tensor mine = at::zeros({slots + 1}, losses.options());  // 1: not finite
  mine.narrow(0, 0, slots).copy_(at::isfinite(losses).logical_not());
  mine.narrow(0, slots, 1).copy_(gradients_are_finite.logical_not());
  const at::Tensor all = at::empty({comm.size() * (slots + 1)}, losses.options());
  comm.all_gather(all, mine);
  const at::Tensor host = all.cpu();
  const double* flag = host.const_data_ptr<double>();
  NonfiniteStep found;
  for (int rank = 0; rank < comm.size(); ++rank) {
    for (int64_t slot = 0; slot < slots; ++slot)
      if (*flag++ != 0) found.slots.push_back(static_cast<size_t>(rank * slots + slot));
    if (*flag++ != 0) found.gradient_ranks.push_back(rank);
  }
  if (found.slots.empty() && found.gradient_ranks.empty()) return std::nullopt;
  return found;
}

BufferBackup::BufferBackup(const ParameterStore& store) {
  for (size_t s = 0; s < store.slots().size(); ++s)
    for (const BufferPiece& piece : store.buffer_pieces(static_cast<int>(s))) {
      buffers_.push_back(piece.values);
      copies_.push_back(at::empty_like(piece.values));
    }
}

void BufferBackup::take() {
  const at::NoGradGuard no_grad;
  if (!buffers_.empty()) at::_foreach_copy_(copies_, buffers_);
}

void BufferBackup::put_back() {
  const at::NoGradGuard no_grad;
  if (!buffers_.empty()) at::_foreach_copy_(buffers_, copies_);
}

}  // namespace sdp
