#include "spec/print.h"

#include <xxhash.h>

#include "spec/value_text.h"
#include "spec/visit.h"

namespace sdp {
namespace {

template <SpecStruct Spec>
void print_struct(const Spec& spec, const std::string& indent, std::string& out) {
  for_each_field<Spec>([&]<class T>(const FieldInfo& field, T Spec::*member) {
    out += indent + std::string(field.key) + ":";
    if constexpr (SpecStruct<T>) {
      out += "\n";
      print_struct(spec.*member, indent + "  ", out);
    } else {
      out += " " + yaml_text(spec.*member) + "\n";
    }
  });
}

}  // namespace

std::string to_yaml(const ExperimentSpec& spec) {
  std::string out;
  print_struct(spec, "", out);
  return out;
}

std::string spec_hash(const ExperimentSpec& spec) {
  const std::string text = to_yaml(spec);
  XXH128_canonical_t digest;
  XXH128_canonicalFromHash(&digest, XXH3_128bits(text.data(), text.size()));
  std::string hex;
  for (const unsigned char byte : digest.digest) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

}  // namespace sdp
