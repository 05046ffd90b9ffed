#include "train/step_trace.h"

#include <ATen/ATen.h>

#include "train/process_report.h"
#include "train/train_step.h"

namespace sdp {

StepTrace::StepTrace(const Experiment& experiment, const RunFolder& folder, Communicator& comm)
    : experiment_(experiment), comm_(comm) {
  if (comm.rank() == 0) lines_.emplace(folder.trace());
}

void StepTrace::append(int64_t step, const at::Tensor& losses, const std::vector<int64_t>& samples) {
  const std::vector<double> all_losses = gather(comm_, {}, losses).losses;
  const at::Tensor mine = at::tensor(samples, at::kLong).to(comm_.device());
  at::Tensor all = at::empty({comm_.size() * mine.numel()}, mine.options());
  comm_.all_gather(all, mine);
  if (!lines_) return;
  const BatchGeometry geometry = batch_geometry(experiment_.spec);
  const int64_t slots = losses.numel();
  // [process, micro-batch, slot, sample] -> [worker and replica, micro-batch and sample]
  const at::Tensor by_slot = all.cpu()
                                 .view({comm_.size(), geometry.accumulate_steps, slots, geometry.batch_size})
                                 .transpose(1, 2)
                                 .reshape({comm_.size() * slots, -1})
                                 .contiguous();  // reshape may return a strided view
  for (int64_t i = 0; i < by_slot.size(0); ++i) {
    const int64_t* first = by_slot[i].const_data_ptr<int64_t>();
    lines_->append(TraceRecord{.step = step + 1,
                               .worker = i / geometry.replicas,
                               .replica = i % geometry.replicas,
                               .loss = all_losses[static_cast<size_t>(i)],
                               .samples = {first, first + by_slot.size(1)}});
  }
}

}  // namespace sdp
