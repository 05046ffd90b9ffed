#include "model/model.h"
#include "model/own/own_spec.h"

namespace sdp {

std::unique_ptr<Model> make_model(const OwnSpec& spec, const DropRates& drop) {
  return spec.network_or_throw().make(spec, drop);
}

}  // namespace sdp
