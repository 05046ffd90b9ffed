#include "model/own_spec.h"

#include "spec/error.h"
#include "subnet/layout.h"

namespace sdp {

void OwnSpec::resolve(std::string_view) {
  image_size = image_size.value_or(kSmallImageSize);
}

void OwnSpec::check(const Positions& positions) const {
  if (reads_tokens && !vocab_size)
    fail_at(positions.of("model.vocab_size"), "model.vocab_size",
            "expected the size of the vocabulary: the network reads tokens");
}

const OwnNetwork& OwnSpec::network_or_throw() const {
  if (!network)
    throw UsageError(
        "model.name: own is the network of another program, which uses the libraries of this one "
        "(examples/own_model). Use that program, or name another model: sdp-train spec");
  return *network;
}

ModelLayout layout_of(const OwnSpec& spec, int64_t sequence_length) {
  return spec.network_or_throw().layout(spec, sequence_length);
}

}  // namespace sdp
